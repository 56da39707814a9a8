/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares the messages between a program that reads memory and peek, which asks it on its standard
 * input: trapless-agent on another machine, and trapless-sampler --answer for a source that takes a
 * connection. trapless/peek/kernel/memories/agent_memory.py speaks them as well.
 *
 * A message is a struct message and `length` bytes, both ways. Answers to reads come in the order
 * of the reads, so many may be in flight.
 */
#ifndef SAMPLER_WIRE_H
#define SAMPLER_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define READ_BYTES_MAX (1u << 20)

enum kind {
	HELLO = 1,	/* lines of text: what a reader must know of this machine */
	DATA,		/* the bytes of a read */
	FAILED,		/* errno of a read, 4 bytes */
	ROWS,		/* a part of the stream of row.h */
	ENDED,		/* sampling has: an exit status, 4 bytes, and a text */
	READ = 16,	/* struct place */
	SAMPLE,		/* a source, a line end, and a plan */
	STOP,		/* sampling */
	ALIVE,		/* the observer is */
};

struct message {
	uint32_t kind;
	uint32_t length;
};

struct place {
	uint64_t offset;
	uint64_t length;
};

/* The longest silence of an observer: SIGALRM ends the program then. 0: no limit. */
extern unsigned int silence_limit_s;

/* Both end the program where the observer is gone: so is the reason to run. */
void take(void *into, size_t length);
void say(enum kind kind, const void *data, size_t length);

#endif
