// SPDX-License-Identifier: GPL-2.0-only
/*
 * A filter that knows 64-bit calls only sees the requests of a batch as such, whichever gate the
 * batch was entered by; nr 110 is getppid there and iopl in the 32-bit table.
 */
#include "filter.h"
#include "int80.h"

#ifndef AUDIT_ARCH_I386
#define AUDIT_ARCH_I386 0x40000003
#endif

static void filter_both_tables(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 4),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EXDEV),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(*code), code };

	MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

int main(void)
{
	struct ring ring;

	int80_need();
	ring = ring_open(4);
	filter_both_tables();
	CHECK_EQ(int80(SYS_getppid, 0, 0, 0), -EXDEV);
	ring_put(&ring, 0, SYS_getppid);
	ring_put(&ring, 1, SYS_getpid);
	CHECK_EQ(ring_batch_int80(&ring, 0, 2), 2);
	CHECK_DONE(&ring, 0, -EACCES);
	CHECK_DONE(&ring, 1, getpid());
	return 0;
}
