/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * Why supervisor mode is refused: one row a reason, one table for the module, the library and the
 * command.
 *
 * Include it with one macro defined: TL_REFUSAL(name, code, title, reason, remedy). The name and
 * the code make a constant TL_REFUSED_NAME of enum tl_refusal. The title names what stands in the
 * way, the reason says why that refuses supervisor mode, and the remedy says what a person can do.
 * Reason and remedy continue a sentence: they begin without a capital and end without a full stop.
 *
 * Codes below 32 are about the machine, the kernel and the module: they are bits of
 * tl_supervisor.refusals. The other codes are about the process that one request names. The rows
 * are sorted by code. trapless/supervisor/refusals.py reads them as text.
 */

TL_REFUSAL(PARAMETER, 0, "the module's consent",
	   "the module was loaded without supervisor=1",
	   "trapless module unload, then trapless module load supervisor=1 (it gives up "
	   "protection: a process in supervisor mode can do anything to the machine)")
TL_REFUSAL(CONFIG, 1, "the kernel's configuration",
	   "the kernel was built without something that supervisor mode takes, or for real time",
	   "use another kernel, or try it in a VM: trapless run --lab")
TL_REFUSAL(SYMBOL, 2, "the kernel's functions",
	   "the kernel lacks a function that supervisor mode takes",
	   "use another kernel, or try it in a VM: trapless run --lab")
TL_REFUSAL(PTI, 3, "page-table isolation (PTI)",
	   "page-table isolation is on: under a program's own tables the kernel is not mapped",
	   "boot with pti=off, which opens a processor that Meltdown affects; or use one that it "
	   "does not affect")
TL_REFUSAL(FRED, 4, "event delivery (FRED)",
	   "the processor delivers events by FRED, not through the IDT",
	   "boot with fred=off")
TL_REFUSAL(LASS, 5, "linear address-space separation (LASS)",
	   "LASS is on, and the module was loaded with refuse_ibt=1, which keeps it on under every "
	   "program",
	   "load the module without refuse_ibt=1, or boot with clearcpuid=lass")
TL_REFUSAL(IBT, 6, "indirect-branch tracking (IBT)",
	   "the kernel tracks indirect branches (IBT), and the module was loaded with "
	   "refuse_ibt=1, which keeps that on under every program",
	   "load the module without refuse_ibt=1, or boot with ibt=off")
TL_REFUSAL(SHSTK, 7, "the kernel's shadow stacks",
	   "the kernel itself runs on shadow stacks, and a program's code would use them too",
	   "use another kernel, or try it in a VM: trapless run --lab")
TL_REFUSAL(IBRS, 8, "IBRS at each entry",
	   "the kernel sets IBRS at each entry, and a call in supervisor mode makes none",
	   "boot with spectre_v2=retpoline, which leaves some of these processors open to "
	   "Retbleed; newer processors (enhanced or automatic IBRS) need no such thing")
TL_REFUSAL(CALL_DEPTH, 9, "call-depth tracking",
	   "the kernel accounts call depth from each entry, and a call in supervisor mode makes "
	   "none",
	   "boot without retbleed=stuff, which leaves some of these processors open to Retbleed")
TL_REFUSAL(XEN, 10, "Xen PV",
	   "the kernel is a Xen PV guest: it is not in supervisor mode itself",
	   "run it as an HVM or PVH guest")
TL_REFUSAL(CONFIDENTIAL, 11, "confidential computing (SEV-ES, TDX)",
	   "the machine is a confidential guest (SEV-ES, TDX), whose exceptions the entry code of "
	   "the kernel handles itself",
	   "use a guest whose memory is not encrypted")
TL_REFUSAL(CONTEXT, 12, "context tracking",
	   "context tracking is on (nohz_full): the kernel must see each transition",
	   "boot without nohz_full")
TL_REFUSAL(IST, 13, "an interrupt stack",
	   "the interrupt stack that the module needs is in use",
	   "unload the other module that uses it, or try it in a VM: trapless run --lab")
TL_REFUSAL(ENTRY, 14, "the kernel's entry",
	   "MSR_LSTAR or the IDT is not the kernel's own: another module has changed it",
	   "unload the other module, or try it in a VM: trapless run --lab")
TL_REFUSAL(LOCKDOWN, 15, "lockdown",
	   "the kernel is locked down, and lockdown forbids what supervisor mode does",
	   "boot without lockdown= on the kernel's command line, and with Secure Boot off")
TL_REFUSAL(NOT_CAPABLE, 32, "capabilities of the caller",
	   "the caller lacks CAP_SYS_RAWIO or CAP_SYS_MODULE",
	   "run it as root of the machine itself: a container's root, or that of a user "
	   "namespace, is not enough")
TL_REFUSAL(OTHER_USER, 33, "another user's process",
	   "the process is another user's, and the caller lacks CAP_SYS_PTRACE",
	   "run it as that user with the other capabilities, or with CAP_SYS_PTRACE")
TL_REFUSAL(PRIVILEGED, 34, "set-user-ID",
	   "the process is set-user-ID: its real, effective and saved IDs differ",
	   "have the program started by the user whose rights it takes")
TL_REFUSAL(CONFINED, 35, "confined by seccomp",
	   "the process is confined by seccomp, which a process in supervisor mode could undo",
	   "start the program without its sandbox, if you trust it as you trust the kernel")
TL_REFUSAL(COMPAT, 36, "32-bit",
	   "the process is a 32-bit one",
	   "use a 64-bit build of the program")
TL_REFUSAL(KERNEL_THREAD, 37, "a kernel thread",
	   "it is a kernel thread, or about to exit",
	   "there is nothing to switch: kernel threads are in supervisor mode already")
TL_REFUSAL(VCPU, 38, "runs a virtual machine",
	   "the process runs a virtual machine (KVM), which changes what supervisor mode depends "
	   "on",
	   "switch programs inside of the virtual machine instead")
TL_REFUSAL(NOT_ROOTS, 39, "an ordinary user's process",
	   "the process is not of the machine's root: whoever can change its program or libraries "
	   "would have the kernel",
	   "trapless switch --any-user, if you trust its user as you trust root")
TL_REFUSAL(TRACED, 40, "traced",
	   "another process traces it, without the capabilities that supervisor mode takes and "
	   "CAP_SYS_PTRACE, and could write to its memory",
	   "end the tracer, or run it as root of the machine itself")
TL_REFUSAL(HLT, 41, "a program that hlt ends",
	   "its C library, musl, ends it by hlt when its stack or heap is damaged; in supervisor "
	   "mode hlt only waits, and the program would go on",
	   "use a build with another C library, or --allow-hlt if you accept that")
TL_REFUSAL(SHADOW_STACK, 42, "a shadow stack",
	   "the process has a shadow stack, and function calls in supervisor mode would leave no "
	   "return addresses there",
	   "start the program without shadow stacks (GLIBC_TUNABLES asks for them)")
