/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The calls of c-blake/batch as its README describes them, as both sides have them: an array of
 * calls, each with a jump forward by the sign of its result, and an array of results. It owns the
 * layout. array.c makes the calls.
 */
#ifndef EVAL_ARRAY_H
#define EVAL_ARRAY_H

#define ARRAY_DEVICE "array"		/* in /dev */
#define ARRAY_CALLS_MAX 1024ul

/* No system call: copies the word at args[1] to args[0]. Both may lie in either array. */
#define ARRAY_COPY (-2)

struct array_call {
	short nr;
	short on_error, on_zero, on_positive;	/* calls to jump over; below 0: the end */
	char arguments;				/* in use */
	long args[6];
};

/* lseek(2) on the device takes its address and returns the number of calls, or -errno. */
struct array {
	long *results;
	struct array_call *calls;
	unsigned long count;
};

#endif /* EVAL_ARRAY_H */
