// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The functions that queue a call: add() for any, and others that know their call and check its
 * memory. It owns which arguments each call has; argument.c owns what an argument is.
 */
#include "extension.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/syscall.h>

#define FASTCALL(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL | METH_KEYWORDS
#define FUNCTION(name) \
	static PyObject *queue_##name(PyObject *self, PyObject *const *args, Py_ssize_t given, \
				      PyObject *names)

static int find(const char *const *known, int n, PyObject *name)
{
	for (int i = 0; i < n; i++)
		if (!PyUnicode_CompareWithASCIIString(name, known[i]))
			return i;
	return n;
}

int tlpy_parse(const char *function, PyObject *const *args, Py_ssize_t given, PyObject *names,
	       const char *const *known, int n, int required, int positional, PyObject **out)
{
	Py_ssize_t named = names ? PyTuple_Size(names) : 0;

	if (given > positional) {
		PyErr_Format(PyExc_TypeError, "%s() takes %d positional arguments, not %zd",
			     function, positional, given);
		return -1;
	}
	for (int i = 0; i < n; i++)
		out[i] = i < given ? args[i] : NULL;
	for (Py_ssize_t i = 0; i < named; i++) {
		PyObject *name = PyTuple_GetItem(names, i);
		int place = find(known, n, name);

		if (place == n || out[place]) {
			PyErr_Format(PyExc_TypeError, place == n ?
				     "%s() has no argument %R" : "%s() is given %R twice", function,
				     name);
			return -1;
		}
		out[place] = args[given + i];
	}
	for (int i = 0; i < required; i++)
		if (!out[i]) {
			PyErr_Format(PyExc_TypeError, "%s() lacks its argument '%s'", function,
				     known[i]);
			return -1;
		}
	return 0;
}

static struct draft draft_of(PyObject *self, uint32_t nr)
{
	return (struct draft){ .queue = (struct queue *)self, .nr = nr, .limit = -1 };
}

/* ---- Any call -------------------------------------------------------------------------------- */

static PyObject *queue_add(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
	struct draft draft = draft_of(self, 0);
	const char *name, *why;
	char said[128];

	if (given < 1 || given > ARGUMENTS_MAX + 1)
		return PyErr_Format(PyExc_TypeError, given ?
				    "a system call takes at most 6 arguments, not %zd" :
				    "add() lacks a call", given - 1);
	if (tlpy_nr_of(args[0], &draft.nr))
		return NULL;
	if (tl_call_get_class(draft.nr, &name, &why) == TL_CALL_REFUSED) {
		PyOS_snprintf(said, sizeof(said), "%s in a batch: %s", name, why);
		return tlpy_raise_error(EOPNOTSUPP, said);
	}
	for (int i = 0; i < (int)given - 1; i++)
		if (tlpy_put_any(&draft, i, args[i + 1]))
			return tlpy_queue_give_up(&draft);
	return tlpy_queue_add(&draft);
}

/* ---- Calls whose memory is checked -------------------------------------------------------- */

FUNCTION(openat)
{
	static const char *const known[] = { "path", "flags", "mode", "folder" };
	struct draft draft = draft_of(self, SYS_openat);
	int64_t flags = O_RDONLY, mode = 0666;
	PyObject *out[4];

	if (tlpy_parse("openat", args, given, names, known, 4, 1, 3, out))
		return NULL;
	draft.arguments[0].word = (uint64_t)AT_FDCWD;
	if (tlpy_put_path(&draft, 1, out[0]) ||
	    (out[1] && tlpy_int(out[1], "set of flags", &flags)) ||
	    (out[2] && tlpy_int(out[2], "mode", &mode)) ||
	    (out[3] && tlpy_put_descriptor(&draft, 0, out[3])))
		return tlpy_queue_give_up(&draft);
	draft.arguments[2].word = (uint64_t)(flags | O_CLOEXEC);
	draft.arguments[3].word = (uint64_t)mode;
	return tlpy_queue_add(&draft);
}

static PyObject *queue_one_file(PyObject *self, uint32_t nr, const char *function,
				PyObject *const *args, Py_ssize_t given, PyObject *names)
{
	static const char *const known[] = { "fd" };
	struct draft draft = draft_of(self, nr);
	PyObject *out[1];

	if (tlpy_parse(function, args, given, names, known, 1, 1, 1, out))
		return NULL;
	if (tlpy_put_descriptor(&draft, 0, out[0]))
		return tlpy_queue_give_up(&draft);
	return tlpy_queue_add(&draft);
}

FUNCTION(close_file)
{
	return queue_one_file(self, SYS_close, "close_file", args, given, names);
}

FUNCTION(fsync)
{
	return queue_one_file(self, SYS_fsync, "fsync", args, given, names);
}

FUNCTION(fdatasync)
{
	return queue_one_file(self, SYS_fdatasync, "fdatasync", args, given, names);
}

static PyObject *queue_any_read(PyObject *self, uint32_t nr, PyObject **out)
{
	struct draft draft = draft_of(self, nr);
	Py_ssize_t bytes;

	if (tlpy_put_descriptor(&draft, 0, out[0]) ||
	    tlpy_put_writable(&draft, 1, out[1], &bytes) ||
	    (nr == SYS_pread64 && tlpy_put_number(&draft, 3, out[2])))
		return tlpy_queue_give_up(&draft);
	draft.arguments[2].word = (uint64_t)bytes;
	draft.limit = bytes;
	return tlpy_queue_add(&draft);
}

FUNCTION(read)
{
	static const char *const known[] = { "fd", "buffer" };
	PyObject *out[2];

	return tlpy_parse("read", args, given, names, known, 2, 2, 2, out) ?
		       NULL : queue_any_read(self, SYS_read, out);
}

FUNCTION(pread)
{
	static const char *const known[] = { "fd", "buffer", "offset" };
	PyObject *out[3];

	return tlpy_parse("pread", args, given, names, known, 3, 3, 3, out) ?
		       NULL : queue_any_read(self, SYS_pread64, out);
}

/* How much of the buffer is written: all, a number, or what a call returns. */
static int put_count(struct draft *draft, PyObject *count, Py_ssize_t bytes)
{
	struct argument *argument = &draft->arguments[2];
	int64_t most;

	argument->word = (uint64_t)bytes;
	if (!count || Py_IsNone(count))
		return 0;
	if (tlpy_put_number_or_call(draft, 2, count))
		return -1;
	most = argument->source ? ((struct call *)count)->limit : (int64_t)argument->word;
	if (most >= 0 && most <= bytes)
		return 0;
	PyErr_Format(PyExc_ValueError, "%R may be more than the buffer's %zd bytes", count, bytes);
	return -1;
}

static PyObject *queue_any_write(PyObject *self, uint32_t nr, PyObject **out, PyObject *count)
{
	struct draft draft = draft_of(self, nr);
	Py_ssize_t bytes;

	if (tlpy_put_descriptor(&draft, 0, out[0]) ||
	    tlpy_put_readable(&draft, 1, out[1], &bytes) ||
	    (nr == SYS_pwrite64 && tlpy_put_number(&draft, 3, out[2])) ||
	    put_count(&draft, count, bytes))
		return tlpy_queue_give_up(&draft);
	draft.limit = bytes;
	return tlpy_queue_add(&draft);
}

FUNCTION(write)
{
	static const char *const known[] = { "fd", "data", "count" };
	PyObject *out[3];

	return tlpy_parse("write", args, given, names, known, 3, 2, 3, out) ?
		       NULL : queue_any_write(self, SYS_write, out, out[2]);
}

FUNCTION(pwrite)
{
	static const char *const known[] = { "fd", "data", "offset", "count" };
	PyObject *out[4];

	return tlpy_parse("pwrite", args, given, names, known, 4, 3, 4, out) ?
		       NULL : queue_any_write(self, SYS_pwrite64, out, out[3]);
}

FUNCTION(fstat)
{
	static const char *const known[] = { "fd", "stat" };
	struct draft draft = draft_of(self, SYS_fstat);
	PyObject *out[2];
	Py_ssize_t bytes;

	if (tlpy_parse("fstat", args, given, names, known, 2, 2, 2, out))
		return NULL;
	if (!PyObject_TypeCheck(out[1], tlpy_stat_type))
		return PyErr_Format(PyExc_TypeError, "fstat() fills a Stat, not %R", out[1]);
	if (tlpy_put_descriptor(&draft, 0, out[0]) || tlpy_put_writable(&draft, 1, out[1], &bytes))
		return tlpy_queue_give_up(&draft);
	return tlpy_queue_add(&draft);
}

/* ---- Programs ----------------------------------------------------------------------------- */

static PyObject *queue_step(PyObject *self, uint32_t nr, const char *function,
			    PyObject *const *args, Py_ssize_t given, PyObject *names)
{
	static const char *const known[] = { "word", "value" };
	struct draft draft = draft_of(self, nr);
	PyObject *out[2];

	if (tlpy_parse(function, args, given, names, known, 2, 2, 2, out))
		return NULL;
	if (tlpy_put_stepped(&draft, 0, out[0]) || tlpy_put_number_or_call(&draft, 1, out[1]))
		return tlpy_queue_give_up(&draft);
	return tlpy_queue_add(&draft);
}

FUNCTION(store)
{
	return queue_step(self, TL_NR_STORE, "store", args, given, names);
}

FUNCTION(increase)
{
	return queue_step(self, TL_NR_INCREASE, "increase", args, given, names);
}

/* The slot of an object that is to be a call of this queue. */
static int slot_of(struct queue *queue, PyObject *object)
{
	if (Py_IS_TYPE(object, tlpy_call_type))
		return tlpy_queue_slot_of(queue, (struct call *)object);
	PyErr_Format(PyExc_TypeError, "jump() takes a call, not %R", object);
	return -1;
}

FUNCTION(jump)
{
	static const char *const known[] = { "call", "condition", "target" };
	struct queue *queue = (struct queue *)self;
	int slot, target, error;
	struct tl_batch *batch;
	int64_t condition;
	PyObject *out[3];
	bool to_end;

	if (tlpy_parse("jump", args, given, names, known, 3, 2, 3, out) ||
	    tlpy_int(out[1], "condition", &condition))
		return NULL;
	if (condition < TL_IF_ALWAYS || condition > TL_IF_FULL)
		return PyErr_Format(PyExc_ValueError, "%R is no condition", out[1]);
	batch = tlpy_queue_use(queue, EPERM);
	to_end = !out[2] || Py_IsNone(out[2]);
	slot = batch ? slot_of(queue, out[0]) : -1;
	if (slot < 0)
		return NULL;
	target = to_end ? 0 : slot_of(queue, out[2]);
	if (target < 0)
		return NULL;
	/* Where the program ends is known only at the flush. */
	error = tl_batch_jump(batch, (unsigned int)slot, (enum tl_condition)condition,
			      to_end ? tl_batch_next(batch) : (unsigned int)target);
	if (error)
		return tlpy_raise_error(-error, queue->unordered ?
			"a batch whose calls may be made in any order knows no jumps" : "jump");
	queue->slots[slot].end = to_end ? (int)condition : -1;
	return Py_NewRef(Py_None);
}

static PyObject *queue_barrier(PyObject *self, PyObject *unused)
{
	struct tl_batch *batch = tlpy_queue_use((struct queue *)self, EPERM);
	int error = batch ? tl_batch_barrier(batch) : 0;

	(void)unused;
	if (error)
		tlpy_raise_error(-error, "barrier");
	return batch && !error ? Py_NewRef(Py_None) : NULL;
}

PyMethodDef tlpy_call_methods[] = {
	{ "add", (PyCFunction)(void (*)(void))queue_add, METH_FASTCALL,
	  "add(call, /, *arguments)\n--\n\n"
	  "Queue a system call by its name or number, with what the kernel is to be given.\n\n"
	  "A buffer is passed by its address, and what cannot be changed (str, bytes) as a copy; "
	  "None is 0. A number is whatever operator.index() takes. A Call stands for its result, a "
	  "Word for what is there when the call is made. Nothing checks that a length fits its "
	  "buffer: the functions for single calls do." },
	{ "openat", FASTCALL(queue_openat),
	  "openat(path, flags=0, mode=0o666, *, folder=-100)\n--\n\nOpen a file, close-on-exec." },
	{ "close_file", FASTCALL(queue_close_file), "close_file(fd)\n--\n\nClose a descriptor." },
	{ "read", FASTCALL(queue_read),
	  "read(fd, buffer)\n--\n\nRead at most as much as the buffer holds." },
	{ "pread", FASTCALL(queue_pread),
	  "pread(fd, buffer, offset)\n--\n\nRead from a position." },
	{ "write", FASTCALL(queue_write),
	  "write(fd, data, count=None)\n--\n\n"
	  "Write the buffer, or `count` bytes of it: that may be a read that is queued." },
	{ "pwrite", FASTCALL(queue_pwrite),
	  "pwrite(fd, data, offset, count=None)\n--\n\nWrite at a position." },
	{ "fstat", FASTCALL(queue_fstat), "fstat(fd, stat)\n--\n\nFill a Stat." },
	{ "fsync", FASTCALL(queue_fsync), "fsync(fd)\n--\n\nBring a file to its disk." },
	{ "fdatasync", FASTCALL(queue_fdatasync),
	  "fdatasync(fd)\n--\n\nBring a file's data to its disk." },
	{ "store", FASTCALL(queue_store),
	  "store(word, value)\n--\n\n"
	  "A step that writes `value` to a word of 64 bits, and returns it." },
	{ "increase", FASTCALL(queue_increase),
	  "increase(word, value)\n--\n\n"
	  "A step that adds `value` to a word of 64 bits, and returns the sum." },
	{ "jump", FASTCALL(queue_jump),
	  "jump(call, condition, target=None)\n--\n\n"
	  "After `call` go on with `target` where the condition is true of its result. None is the "
	  "end of the program as it is when it is flushed." },
	{ "barrier", queue_barrier, METH_NOARGS,
	  "barrier()\n--\n\nIn an unordered batch, calls queued so far are complete before later "
	  "ones begin." },
	{ NULL, NULL, 0, NULL },
};
