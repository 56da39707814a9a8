/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * trapless_calls.h - which system calls may be wrapped: one row a call, one table for the module,
 * the library and `trapless doctor --calls`.
 *
 * It is an allow-list: a number without a row is refused. Include it with three macros defined:
 *   TL_ANY(name, nr)             in a batch or by a worker
 *   TL_BATCH_ONLY(name, nr, why) in one's own batch only: it reads or changes the calling thread
 *   TL_REFUSED(name, nr, why)    never
 * One row a line, sorted by number: trapless/calls.py reads the rows as text.
 */
