/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The engine of asynchronous files as its files share it: the table of operations under way.
 * submission.c owns how they begin; engine.c owns the table, how they end, and the type;
 * descriptor.c owns the descriptors of open files.
 */
#ifndef TRAPLESS_PYTHON_ENGINE_H
#define TRAPLESS_PYTHON_ENGINE_H

#include "extension.h"

/* One call that reads many files or their attributes. It ends with its last use. */
struct many {
	PyObject *future;	/* a reference of each use's owner: its entry, or its function */
	PyObject *paths, *results;	/* one reference for each use */
	Py_ssize_t next;	/* index of the next path */
	unsigned int uses;	/* operations under way, and functions that begin more */
	int kind;		/* of enum value_kind */
	int flags;		/* of newfstatat(2) */
	bool stopped;		/* no further path is wanted */
};

/* A descriptor of an open file, which operations under way use. */
struct descriptor {
	PyObject_HEAD
	int number;
	unsigned int uses;
	bool detached;		/* no further use; the last one closes it */
};

/* An operation under way. Its number is its place in the table. */
struct entry {
	PyObject *future;	/* NULL: the place is free */
	PyObject *paths[2];	/* that an error names, or NULL */
	struct tl_files_op *op;
	Py_buffer *source;	/* what is written, or NULL */
	struct descriptor *descriptor;	/* what it uses, or NULL */
	struct many *many;	/* or NULL; then `future` is that of all, and `index` its place */
	Py_ssize_t index;
	enum value_kind kind;
	uint32_t next;		/* the next free place */
};

struct engine {
	PyObject_HEAD
	struct tl_files *files;	/* NULL: closed */
	PyObject *call_soon;	/* of the loop */
	bool submitting;	/* the loop will call submit() */
	bool taking;		/* inside take(), which submits what is added, and ends a close() */
	bool closing;
	struct entry *entries;
	uint32_t n;
	uint32_t free;		/* the first free place; n: there is none */
};

/*
 * A place for an operation, which will be submitted, or NULL with an exception. It stays free until
 * it is entered. No code of Python may run between the two.
 */
struct entry *tlpy_engine_place(struct engine *engine, enum value_kind kind);
/* Fills the place. Returns 0, or -1 with the exception of `error`. */
int tlpy_engine_enter(struct engine *engine, struct entry *entry, PyObject *future, PyObject *path,
		      int error);
/*
 * Cancels all operations and takes those that end, for an engine that ends. An entry whose call
 * blocks keeps its `op`. The caller has given the interpreter's lock up.
 */
void tlpy_take_rest(struct tl_files *files, struct entry *entries, uint32_t n);
void tlpy_free_source(Py_buffer *source);
void tlpy_many_use(struct many *many);
/*
 * Ends a use. The last one frees it, and completes its future unless it has stopped. Returns 0, or
 * -1 with an exception.
 */
int tlpy_many_leave(struct many *many);
/*
 * Begins operations until enough are under way; the caller has a use, too. Returns 0, or -1 with
 * the exception of a path.
 */
int tlpy_begin_more(struct engine *engine, struct many *many);

extern PyTypeObject *tlpy_descriptor_type;
/* Begins a use, which has a reference. Returns the number, or -1 with an exception. */
int tlpy_descriptor_use(struct descriptor *descriptor);
/* Ends a use. Returns the number that is to be closed now, or -1. */
int tlpy_descriptor_leave(struct descriptor *descriptor);

PyObject *tlpy_engine_read(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *tlpy_engine_list(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *tlpy_engine_stat(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *tlpy_engine_call(PyObject *self, PyObject *const *args, Py_ssize_t given);
PyObject *tlpy_engine_write(PyObject *self, PyObject *args);
PyObject *tlpy_engine_many(PyObject *self, PyObject *args);

#endif /* TRAPLESS_PYTHON_ENGINE_H */
