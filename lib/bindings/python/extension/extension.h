/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * What the files of Python's extension module share: its types, and how a call's arguments become
 * 64 bits. It is built for the limited API of Python 3.11, so one file serves every later version.
 *
 * Concurrency: the interpreter's lock protects everything here. Only a flush gives it up, and
 * `inside` then keeps every other thread away from the ring. Between the moment when a call's
 * memory is kept and the moment when the call is in the ring, no code of Python runs: so no signal
 * handler, finaliser or argument can come between the two.
 */
#ifndef TRAPLESS_PYTHON_EXTENSION_H
#define TRAPLESS_PYTHON_EXTENSION_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <trapless.h>

#define ARGUMENTS_MAX 6

/* ---- Memory that a queued call needs (argument.c) ---------------------------------------- */

struct kept {
	struct kept *next;
	Py_buffer view;		/* where view.obj is set, else */
	PyObject *object;	/* what owns the memory, or NULL: */
	char copy[];
};

/* Frees a list of memory. Its owners may then run Python code, which must not find the list. */
void tlpy_kept_free(struct kept *kept);

/* An argument as the ring takes it, with the memory that it points to. */
struct argument {
	uint64_t word;
	uint32_t source;	/* TL_RESULT(0), TL_WORD32(0), TL_WORD64(0); 0: the word */
};

/* A draft: the parts of a call while its arguments are checked. Then it is queued, or given up. */
struct draft {
	struct queue *queue;
	struct kept *kept;
	struct argument arguments[ARGUMENTS_MAX];
	int64_t limit;		/* the largest result, or -1 */
	uint32_t nr;
	PyObject *paths[2];	/* which an error names; exact str or bytes, or NULL */
};

/* They return 0, or -1 with an exception of Python. */
int tlpy_number(PyObject *object, uint64_t *number);
int tlpy_int(PyObject *object, const char *what, int64_t *number);
int tlpy_put_any(struct draft *draft, int i, PyObject *object);
int tlpy_put_number(struct draft *draft, int i, PyObject *object);
int tlpy_put_number_or_call(struct draft *draft, int i, PyObject *object);
int tlpy_put_descriptor(struct draft *draft, int i, PyObject *object);
int tlpy_put_path(struct draft *draft, int i, PyObject *path);
int tlpy_put_writable(struct draft *draft, int i, PyObject *buffer, Py_ssize_t *bytes);
int tlpy_put_readable(struct draft *draft, int i, PyObject *buffer, Py_ssize_t *bytes);
int tlpy_put_stepped(struct draft *draft, int i, PyObject *word);
void tlpy_draft_free(struct draft *draft);
/* A path as the kernel takes it. *owner owns the text. */
const char *tlpy_path_text(PyObject *path, PyObject **owner);

/* ---- Calls (call.c) ----------------------------------------------------------------------- */

struct call {
	PyObject_HEAD
	uint64_t queue;		/* `id` of the queue that it waits in */
	int64_t value;		/* once it is done */
	int64_t limit;
	PyObject *paths[2];
	uint32_t nr;
	uint32_t slot;
	bool done;
	bool dropped;		/* its batch was closed first */
};

extern PyTypeObject *tlpy_call_type;
int tlpy_call_setup(PyObject *module);
struct call *tlpy_call_create(const struct draft *draft);
/* What the call returned. Returns -1 and raises its error where it failed. */
int tlpy_call_result(struct call *call, int64_t *result);
PyObject *tlpy_raise_result(int64_t result, const char *what, PyObject *paths[2]);
/* The text of an errno, in the encoding of the locale as strerror(3) has it. */
PyObject *tlpy_error_text(int error);
/* Errors as objects, which are not raised: what else is said of one, and the paths of a call. */
PyObject *tlpy_error_with(int error, const char *said);
PyObject *tlpy_path_error(int64_t result, PyObject *const paths[2]);

/* ---- Words and stat buffers (memory.c) ---------------------------------------------------- */

struct word {
	PyObject_HEAD
	PyObject *buffer;
	Py_ssize_t offset;
	int bits;
};

extern PyTypeObject *tlpy_word_type, *tlpy_stat_type;
int tlpy_memory_setup(PyObject *module);
bool tlpy_word_is_inside(const struct word *word, Py_ssize_t bytes);

/* ---- Queues (queue.c, batch.c) and what fills them (calls.c) ------------------------------ */

struct slot {
	struct call *call;
	struct kept *kept;
	int end;		/* the condition of a jump to the program's end, or -1 */
};

struct queue {
	PyObject_HEAD
	struct tl_batch *batch;	/* NULL: closed, or never made */
	struct slot *slots;
	uint64_t id;		/* no two queues of a process have the same */
	uint32_t entries;
	uint32_t used;		/* slots below this one have a call */
	int flushing;		/* flushes that have not returned: handlers may flush, too */
	bool inside;		/* a thread is in the library, without the interpreter's lock */
	bool closing;		/* close() has come during a flush */
	bool unordered;
	char busy;		/* AsyncBatch: a flush is under way */
};

int tlpy_queue_setup(PyObject *module);
/* Returns the batch if it may be used now. `in_child` is the error in the child of a fork. */
struct tl_batch *tlpy_queue_use(struct queue *queue, int in_child);
/* Queues the draft. Returns its Call, or NULL with an exception. It frees the draft. */
PyObject *tlpy_queue_add(struct draft *draft);
PyObject *tlpy_queue_give_up(struct draft *draft);
/* Gives calls their results. Those of a program that goes on may be made again: they wait. */
void tlpy_queue_settle(struct queue *queue);
/* A flush that has not returned still needs the batch. */
void tlpy_queue_release_if_closed(struct queue *queue);
/* The parts of the types of batch.c. */
int tlpy_queue_init(PyObject *self, PyObject *args, PyObject *kwargs);
PyObject *tlpy_queue_close(PyObject *self, PyObject *unused);
int tlpy_queue_traverse(PyObject *self, visitproc visit, void *arg);
int tlpy_queue_clear(PyObject *self);
void tlpy_queue_dealloc(PyObject *self);
PyObject *tlpy_queue_flush(PyObject *self, PyObject *const *args, Py_ssize_t given,
			   PyObject *names);
PyObject *tlpy_queue_flush_busy(PyObject *self, PyObject *steps);
/* The call with which the next flush begins, or None. */
PyObject *tlpy_queue_at(struct queue *queue);
PyObject *tlpy_raise_error(int error, const char *what);
/*
 * Says why no object of the library could be made, and what helps; `otherwise` for other errors. An
 * absent module is ENODEV, as for tl_switch_mode().
 */
PyObject *tlpy_raise_unmade(int error, const char *otherwise);
/* Says why a function of the C library has failed on an engine that it made. */
PyObject *tlpy_raise_failure(int error);
/* Why a flush fails for good. */
#define TLPY_LOST "the program has closed the library's descriptors"
/* The slot of a call that waits in this queue, or -1 with an exception. */
int tlpy_queue_slot_of(struct queue *queue, struct call *call);

extern PyMethodDef tlpy_call_methods[];

/* Sorts arguments by name. `out` has n places, of which the first `required` must be given. */
int tlpy_parse(const char *function, PyObject *const *args, Py_ssize_t given, PyObject *names,
	       const char *const *known, int n, int required, int positional, PyObject **out);

/* ---- Names and paths of calls (names.c) ---------------------------------------------------- */

int tlpy_names_setup(PyObject *module);
/* The number of a name or of a number. */
int tlpy_nr_of(PyObject *call, uint32_t *nr);
const char *tlpy_name_of(uint32_t nr, char *spare, size_t bytes);
/* The arguments of a call that are paths, as bits. */
unsigned int tlpy_paths_of(uint32_t nr);

/* ---- Whole lists of files (files.c, folder.c)------------------------------------------------- */

int tlpy_files_setup(PyObject *module);
int tlpy_folder_setup(PyObject *module);

/* ---- Attributes (status.c) ------------------------------------------------------------------ */

int tlpy_status_setup(void);
/* An os.stat_result. */
PyObject *tlpy_stat_object(const struct stat *stat);

/* ---- Entries with their attributes (direntry.c, scandir.c) ----------------------------------- */

int tlpy_direntry_setup(PyObject *module);
int tlpy_scandir_setup(PyObject *module);
/* A DirEntry. kind: a constant text. as_bytes: names and paths are bytes. */
PyObject *tlpy_entry_create(const struct tl_walk_entry *found, const char *kind, bool as_bytes);

/* ---- Files for event loops (engine.c, submission.c, outcome.c, descriptor.c) ----------------- */

int tlpy_engine_setup(PyObject *module);
int tlpy_descriptor_setup(PyObject *module);

/* What the result of an operation becomes. A descriptor that nobody takes is closed. */
enum value_kind {
	KIND_NUMBER,
	KIND_BYTES,
	KIND_STATUS,
	KIND_NAMES,
	KIND_DESCRIPTOR,
};

PyObject *tlpy_outcome_value(enum value_kind kind, const struct tl_files_result *result);
/*
 * Complete a future of asyncio: with a value, with an error, with the exception that is set. They
 * return 1, 0 if the future was done already, or -1 with an exception.
 */
int tlpy_outcome_set(PyObject *future, PyObject *value);
int tlpy_outcome_set_error(PyObject *future, PyObject *error);
int tlpy_outcome_raise(PyObject *future);

#endif /* TRAPLESS_PYTHON_EXTENSION_H */
