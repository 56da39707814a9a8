// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// README.md says how a program imports it from a checkout: by `replace`.

module trapless.example/go

go 1.21
