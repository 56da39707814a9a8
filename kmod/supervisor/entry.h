/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The names that assembly and C of supervisor mode share: the addresses of entry.S and faults.S,
 * and how a call continues after its exit work. This header owns these names only.
 */
#ifndef TLK_SUPERVISOR_ENTRY_H
#define TLK_SUPERVISOR_ENTRY_H

/* The results of tlk_supervisor_exit_work(), for entry.S. */
#define TLK_LEAVE_TO_SUPERVISOR 0	/* interrupts off, frame as for a return from a call */
#define TLK_LEAVE_TO_USER 1		/* interrupts off, all exit work done */
#define TLK_LEAVE_GONE 2		/* no thread state is left; exit work is still to do */

/* Bytes of one stub of faults.S. */
#define TLK_STUB_BYTES 16

/*
 * Flags that popf and iretq change only at level 0. At level 3 no program has them set, and the
 * first one (IOPL) would be a privilege there. AC is the program's own at either level: nothing is
 * checked at level 0, and the checks that it has asked for begin at level 3.
 */
#define TLK_FLAGS_OF_LEVEL_0 (X86_EFLAGS_IOPL | X86_EFLAGS_VIF | X86_EFLAGS_VIP)

/* Where the table of handlers has tlk_supervisor_retry, behind the kernel's 256. */
#define TLK_VECTOR_RETRY 256

#ifndef __ASSEMBLER__
/* entry.S */
void tlk_supervisor_call(void);
void tlk_supervisor_hand_over(void);

/* faults.S: one stub for each vector, and three that stay on the stack of their own. */
extern const char tlk_supervisor_stubs[];
extern const char tlk_supervisor_retry[];
extern const char tlk_supervisor_stub_debug[];
extern const char tlk_supervisor_stub_nmi[];
extern const char tlk_supervisor_stub_machine_check[];
#endif

#endif /* TLK_SUPERVISOR_ENTRY_H */
