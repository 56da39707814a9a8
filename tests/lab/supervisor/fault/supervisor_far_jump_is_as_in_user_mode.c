// SPDX-License-Identifier: GPL-2.0-only
/*
 * A far jump cannot change the privilege level, so one to 32-bit code faults at level 0. The module
 * tries it again in user mode, where it works: in supervisor mode as before and after it.
 */
#include "supervisor.h"

#define TRIES_MAX 20

static struct witness *witness;
static uint8_t *code_32;

/* Below 4 GB: ud2, whose signal tells that it was reached. */
static void make_code(void)
{
	code_32 = MUST(mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0));
	code_32[0] = 0x0f;
	code_32[1] = 0x0b;
}

static void jump(void)
{
	struct { uint32_t address; uint16_t segment; } __attribute__((packed)) far = {
		(uint32_t)(uintptr_t)code_32, 0x23,
	};

	__asm__ volatile("mov %[getppid], %%eax\n\t"
			 "syscall\n\t"
			 "mov %%cs, %[cs]\n\t"
			 "ljmp *%[far]"
			 : [cs] "=m"(witness->cs)
			 : [far] "m"(far), [getppid] "i"(SYS_getppid)
			 : "rax", "rcx", "r11", "memory");
}

static void jump_switched(void)
{
	witness->tries++;	/* the page is there: no fault at CS */
	CHECK_EQ(raw_switch_supervisor(0), 0);
	reach_supervisor();
	jump();
}

static void jump_switched_back(void)
{
	enter_supervisor(0);
	enter_user();
	jump();
}

int main(void)
{
	supervisor_need();
	witness = shared_memory(sizeof(*witness));
	make_code();
	CHECK_KILLED(child_run(jump), SIGILL);
	CHECK_KILLED(child_run(jump_switched_back), SIGILL);
	witness->cs = USER_CS;
	for (int i = 0; i < TRIES_MAX && witness->cs == USER_CS; i++)
		CHECK_KILLED(child_run(jump_switched), SIGILL);
	CHECK(witness->cs != USER_CS);
	enter_supervisor(0);
	return 0;
}
