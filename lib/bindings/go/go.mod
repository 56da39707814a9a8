// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
//
// An example, and not a package to import: a program copies what it needs of batch.go.

module trapless.example/go

go 1.21
