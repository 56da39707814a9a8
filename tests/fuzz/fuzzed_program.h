/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a string of bytes means as a program of the fuzzer, and what it shares with the process that
 * watches it. fuzzed_program.c runs it, operations.c has what each byte does, fuzz.c chooses the
 * bytes.
 */
#ifndef TL_FUZZ_PROGRAM_H
#define TL_FUZZ_PROGRAM_H

#include <linux/trapless.h>

#include "random.h"

#define INPUT_MAX 256		/* bytes of a program */
#define FUZZ_UID 1000
#define RINGS 4
#define OPERATIONS_MAX 64	/* that one thread of a program makes */
#define DEPTH_MAX 3		/* threads that start threads */

/* The first byte of a program. */
#define PROGRAM_SUPERVISED 0x01	/* may be switched; does then only what any program may do */
#define PROGRAM_SIGNALS 0x02	/* a timer interrupts it all the time */
#define PROGRAM_RESTART 0x04	/* and calls are restarted after it */

struct input {
	uint32_t length;
	uint8_t bytes[INPUT_MAX];
};

/* Shared with the watcher, who believes nothing that stands here. */
struct mail {
	volatile uint32_t mode;		/* 1 + enum tl_mode that the program wants; 0: nothing */
	volatile uint32_t probes;	/* 1 + value of the parameter that it wants */
	volatile uint32_t pid;		/* of who wants a mode; 0: the program itself */
	volatile uint32_t operations;	/* that were made, for the statistics */
};

/* A thread's way through the bytes. */
struct script {
	const struct input *input;
	uint32_t at;
	uint32_t left;			/* operations that it may still make */
	uint32_t depth;
};

extern struct mail *mail;
extern bool supervised;			/* this program may be switched */

/* Returns 0 behind the end. */
uint8_t script_take(struct script *script);
bool script_ended(const struct script *script);

/* Makes the operations of one thread. */
void script_run(struct script *script);

/* Never returns: the program's process, with the rights of FUZZ_UID. */
void program_run(const struct input *input) __attribute__((noreturn));

/* operations.c: makes the next operation. */
void operation_make(struct script *script);
void operations_init(const struct input *input);

/* disturbances.c: what other threads, processes and the kernel's own facilities do to a program. */
typedef void (*operation)(struct script *script);
void disturb_filter(struct script *script);
void disturb_answer(struct script *script);
void disturb_trace(struct script *script);
void disturb_dispatch(struct script *script);
void disturb_fail(struct script *script);
void disturb_memory(struct script *script);
void disturb_signal(struct script *script);
void disturb_fault(struct script *script);
void disturb_switch(struct script *script);
void disturb_probes(struct script *script);
void disturb_thread(struct script *script);
void disturb_process(struct script *script);
void disturb_identity(struct script *script);

/* The page that a user-space fault handler serves, or some other page. */
void *fault_page(void);

#endif /* TL_FUZZ_PROGRAM_H */
