/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Declares a source: a machine's memory that is read by physical address. Each kind of source is
 * one file, and one row of the table in source.c. All kinds open for reading only.
 *
 * One thread uses a source.
 */
#ifndef SAMPLER_SOURCE_H
#define SAMPLER_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOURCE_ERROR_BYTES 512

struct source;

/* A place that is read, and how that ended: 0, or -EFAULT. */
struct source_place {
	uint64_t physical;
	void *into;
	size_t length;
	int status;
};

struct source_kind {
	const char *name;	/* the word before the colon */
	const char *form;	/* the whole argument, for people */
	/* 0 or -errno, and then `error` says what to do. `rest` is what follows the colon. */
	int (*open)(struct source *source, const char *rest, char *error);
	/* 0; -EFAULT: no such address; -ENODEV: the target is gone, for good. */
	int (*read)(struct source *source, uint64_t physical, void *into, size_t length);
	/*
	 * Reads places at the same time: 0 or -ENODEV. NULL where reads one after the other are as
	 * quick, because no message lies between.
	 */
	int (*read_together)(struct source *source, struct source_place *place,
			     size_t places);
	/* Checks that the target is still there: 0 or -ENODEV. Called ten times a second. */
	int (*check)(struct source *source);
	void (*close)(struct source *source);
	/* Lines that say where memory is; NULL where the user knows. The caller frees them. */
	char *(*describe)(struct source *source);
	/* A descriptor that can be read when check() knows more; with describe() alone. */
	int (*events)(struct source *source);
	/* Why the target is gone; with describe() alone. */
	const char *(*reason)(const struct source *source);
};

struct source {
	const struct source_kind *kind;
	void *state;
	uint64_t size;	/* one past the highest address that can be read */
	uint64_t pass;	/* 0: each read is one of its own; else see source_begin_pass() */
};

/* `text` is KIND:WHAT, as in ram:/dev/shm/vm. 0 or -errno with `error` filled. */
int source_open(struct source *source, const char *text, char *error);
void source_close(struct source *source);

static inline int source_read(struct source *source, uint64_t physical, void *into, size_t length)
{
	return source->kind->read(source, physical, into, length);
}

/*
 * Begins a pass, in which a place is read once however often it is asked for: where a read is a
 * system call, it takes the neighbours along. What must be read after something else takes a pass
 * of its own.
 */
static inline void source_begin_pass(struct source *source)
{
	source->pass++;
}

static inline int source_check(struct source *source)
{
	return source->kind->check(source);
}

/* The forms of all sources, one after the other, until NULL. */
const char *source_form(size_t index);

/* For kinds: fills `error` and hands back `status`. */
int source_fail(char *error, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* For kinds: the number after `key` in "key=NUMBER", or -EINVAL with `error` filled. */
int source_number(const char *text, const char *key, uint64_t *value, char *error);

extern const struct source_kind source_ram;
extern const struct source_kind source_regions;
extern const struct source_kind source_process;
/* Not in the agent, which is linked statically and loads no library. */
extern const struct source_kind source_leechcore __attribute__((weak));
extern const struct source_kind source_rdma __attribute__((weak));

#endif
