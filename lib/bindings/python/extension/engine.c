// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The engine of asynchronous files, tl_files.3, for event loops of Python. It owns the table of
 * operations under way: each has a key, which take() returns with its result, and the memory that
 * it was given. What an operation means to a task is the business of libtrapless/async_files.py.
 *
 * Concurrency: the interpreter's lock protects everything here, and only the engine's end gives it
 * up. An operation is in the table before the engine knows it, and out of it before objects are
 * made of its result, so that code of Python that runs meanwhile finds the table whole.
 */
#include "extension.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The kinds of Python values that a result can become. */
enum kind {
	KIND_NUMBER,
	KIND_BYTES,
	KIND_STATUS,
	KIND_NAMES,
};

/* An operation under way. Its number is its place in the table. */
struct entry {
	PyObject *key;		/* NULL: the place is free */
	struct tl_files_op *op;
	Py_buffer source;	/* what is written; source.obj is NULL where nothing is */
	enum kind kind;
	uint32_t next;		/* the next free place */
};

struct engine {
	PyObject_HEAD
	struct tl_files *files;	/* NULL: closed */
	struct entry *entries;
	uint32_t n;
	uint32_t free;		/* the first free place; n: there is none */
};

static struct tl_files *use(PyObject *self)
{
	struct engine *engine = (struct engine *)self;

	if (!engine->files)
		PyErr_SetString(PyExc_ValueError, "the engine is closed");
	return engine->files;
}

/* ---- The table ----------------------------------------------------------------------------- */

static struct entry *take_place(struct engine *engine)
{
	uint32_t more = engine->n ? 2 * engine->n : 64;
	struct entry *entries;

	if (engine->free == engine->n) {
		entries = PyMem_Realloc(engine->entries, more * sizeof(*entries));
		if (!entries) {
			PyErr_NoMemory();
			return NULL;
		}
		memset(entries + engine->n, 0, (more - engine->n) * sizeof(*entries));
		for (uint32_t i = engine->n; i < more; i++)
			entries[i].next = i + 1;
		engine->entries = entries;
		engine->n = more;
	}
	return &engine->entries[engine->free];
}

/* Fills the place, and returns its number; or raises the exception of `error`. */
static PyObject *entered(struct engine *engine, struct entry *entry, PyObject *key, int error)
{
	uint32_t id = (uint32_t)(entry - engine->entries);

	if (error) {
		if (entry->source.obj)
			PyBuffer_Release(&entry->source);
		memset(&entry->source, 0, sizeof(entry->source));
		return tlpy_raise_error(-error, "files");
	}
	entry->key = Py_NewRef(key);
	engine->free = entry->next;
	return PyLong_FromUnsignedLong(id);
}

/* Empties the place. What was in it belongs to the caller. */
static struct entry leave_place(struct engine *engine, uint32_t id)
{
	struct entry left = engine->entries[id];

	memset(&engine->entries[id], 0, sizeof(left));
	engine->entries[id].next = engine->free;
	engine->free = id;
	return left;
}

/* ---- Operations ---------------------------------------------------------------------------- */

/* The text of argument `path`, whose owner is to be released. */
static const char *text_of(PyObject *path, PyObject **owner)
{
	PyObject *name = PyOS_FSPath(path);
	const char *text = NULL;

	*owner = NULL;
	if (name)
		text = tlpy_path_text(name, owner);
	Py_XDECREF(name);
	if (!text)
		Py_CLEAR(*owner);
	return text;
}

static PyObject *add_whole(PyObject *self, PyObject *args, enum kind kind)
{
	struct engine *engine = (struct engine *)self;
	PyObject *key, *path, *owner, *result = NULL;
	struct entry *entry;
	const char *text;
	int error;

	if (!PyArg_ParseTuple(args, "OO", &key, &path))
		return NULL;
	text = text_of(path, &owner);
	entry = text && use(self) ? take_place(engine) : NULL;
	if (entry) {
		entry->kind = kind;
		if (kind == KIND_BYTES)
			error = tl_files_read(engine->files, AT_FDCWD, text, engine->free,
					      &entry->op);
		else
			error = tl_files_list(engine->files, AT_FDCWD, text, engine->free,
					      &entry->op);
		result = entered(engine, entry, key, error);
	}
	Py_XDECREF(owner);
	return result;
}

static PyObject *engine_read(PyObject *self, PyObject *args)
{
	return add_whole(self, args, KIND_BYTES);
}

static PyObject *engine_list(PyObject *self, PyObject *args)
{
	return add_whole(self, args, KIND_NAMES);
}

static PyObject *engine_write(PyObject *self, PyObject *args)
{
	struct engine *engine = (struct engine *)self;
	PyObject *key, *path, *owner, *result = NULL;
	int open_flags, error;
	unsigned int mode, flags;
	struct entry *entry;
	Py_buffer source;
	const char *text;

	if (!PyArg_ParseTuple(args, "OOy*iII", &key, &path, &source, &open_flags, &mode, &flags))
		return NULL;
	text = text_of(path, &owner);
	entry = text && use(self) ? take_place(engine) : NULL;
	if (entry) {
		entry->kind = KIND_NUMBER;
		entry->source = source;
		error = tl_files_write(engine->files, AT_FDCWD, text, source.buf,
				       (size_t)source.len, open_flags, mode, flags, engine->free,
				       &entry->op);
		result = entered(engine, entry, key, error);
	} else {
		PyBuffer_Release(&source);
	}
	Py_XDECREF(owner);
	return result;
}

/* An argument of call(): None is the operation's memory, a path is copied, bytes are kept. */
struct arguments {
	struct tl_request call;
	unsigned int strings, rooms;
	PyObject *owners[6];
	Py_buffer source;
};

static int put_argument(struct arguments *arguments, int i, PyObject *object)
{
	uint64_t number;

	if (object == Py_None) {
		arguments->rooms |= 1u << i;
		return 0;
	}
	if (PyIndex_Check(object)) {
		if (tlpy_number(object, &number))
			return -1;
		arguments->call.args[i] = number;
		return 0;
	}
	if (PyObject_CheckBuffer(object) && !PyBytes_Check(object)) {
		if (arguments->source.obj) {
			PyErr_SetString(PyExc_TypeError, "one buffer at most");
			return -1;
		}
		if (PyObject_GetBuffer(object, &arguments->source, PyBUF_SIMPLE))
			return -1;
		arguments->call.args[i] = (uintptr_t)arguments->source.buf;
		return 0;
	}
	arguments->call.args[i] = (uintptr_t)text_of(object, &arguments->owners[i]);
	arguments->strings |= 1u << i;
	return arguments->call.args[i] ? 0 : -1;
}

/* call(key, kind, name, *arguments): a bytes object is a path, a memoryview what is written. */
static PyObject *engine_call(PyObject *self, PyObject *args)
{
	struct engine *engine = (struct engine *)self;
	struct arguments arguments = { 0 };
	Py_ssize_t n = PyTuple_Size(args);
	PyObject *result = NULL;
	struct entry *entry = NULL;
	long kind;
	int failed;

	if (n < 3 || n > 9) {
		PyErr_SetString(PyExc_TypeError, "call(key, kind, name, up to 6 arguments)");
		return NULL;
	}
	kind = PyLong_AsLong(PyTuple_GetItem(args, 1));
	failed = PyErr_Occurred() || tlpy_nr_of(PyTuple_GetItem(args, 2), &arguments.call.nr);
	for (Py_ssize_t i = 3; i < n && !failed; i++)
		failed = put_argument(&arguments, (int)i - 3, PyTuple_GetItem(args, i));
	if (!failed && use(self))
		entry = take_place(engine);
	if (entry) {
		entry->kind = (enum kind)kind;
		entry->source = arguments.source;
		result = entered(engine, entry, PyTuple_GetItem(args, 0),
				 tl_files_call(engine->files, &arguments.call, arguments.strings,
					       arguments.rooms, engine->free, &entry->op));
	} else if (arguments.source.obj) {
		PyBuffer_Release(&arguments.source);
	}
	for (int i = 0; i < 6; i++)
		Py_XDECREF(arguments.owners[i]);
	return result;
}

static PyObject *engine_cancel(PyObject *self, PyObject *number)
{
	struct engine *engine = (struct engine *)self;
	unsigned long id = PyLong_AsUnsignedLong(number);

	if (PyErr_Occurred())
		return NULL;
	if (engine->files && id < engine->n && engine->entries[id].key)
		tl_files_cancel(engine->files, engine->entries[id].op);
	Py_RETURN_NONE;
}

static PyObject *engine_submit(PyObject *self, PyObject *unused)
{
	struct tl_files *files = use(self);
	int error;

	(void)unused;
	if (!files)
		return NULL;
	error = tl_files_submit(files);
	if (error)
		return tlpy_raise_error(-error, "files");
	Py_RETURN_NONE;
}

/* ---- Results ------------------------------------------------------------------------------- */

/* [(name, type), ...] without "." and "..", in the order of the folder. */
static PyObject *names_of(const char *data, int64_t bytes)
{
	static const size_t type_at = 18, name_at = 19;	/* of struct linux_dirent64 */
	PyObject *names = PyList_New(0), *pair;
	uint16_t length;
	int error = names ? 0 : -1;

	for (int64_t at = 0; at < bytes && !error; at += length) {
		const char *entry = data + at, *name = entry + name_at;

		memcpy(&length, entry + type_at - sizeof(length), sizeof(length));
		if (!strcmp(name, ".") || !strcmp(name, ".."))
			continue;
		pair = Py_BuildValue("(NB)", PyUnicode_DecodeFSDefault(name), entry[type_at]);
		error = pair ? PyList_Append(names, pair) : -1;
		Py_XDECREF(pair);
	}
	if (error)
		Py_CLEAR(names);
	return names;
}

static PyObject *value_of(enum kind kind, const struct tl_files_result *result)
{
	if (result->result < 0)
		Py_RETURN_NONE;
	switch (kind) {
	case KIND_BYTES:
		return PyBytes_FromStringAndSize(result->data, (Py_ssize_t)result->result);
	case KIND_STATUS:
		return tlpy_stat_object(result->data);
	case KIND_NAMES:
		return names_of(result->data, result->result);
	default:
		Py_RETURN_NONE;
	}
}

/* take(): [(key, result, value), ...] of the operations that are complete. */
static PyObject *engine_take(PyObject *self, PyObject *unused)
{
	struct engine *engine = (struct engine *)self;
	PyObject *all = use(self) ? PyList_New(0) : NULL, *one;
	struct tl_files_result result;
	int error = all ? 0 : -1, n = 0;

	(void)unused;
	while (!error && engine->files && (n = tl_files_next(engine->files, &result)) == 1) {
		struct entry entry = leave_place(engine, (uint32_t)result.user_data);

		one = Py_BuildValue("(NLN)", entry.key, (long long)result.result,
				    value_of(entry.kind, &result));
		tl_files_release(engine->files, result.op);
		if (entry.source.obj)
			PyBuffer_Release(&entry.source);
		error = one ? PyList_Append(all, one) : -1;
		Py_XDECREF(one);
	}
	if (!error && n < 0)
		tlpy_raise_error(-n, "files");
	if (error || n < 0)
		Py_CLEAR(all);
	return all;
}

/* ---- The type ------------------------------------------------------------------------------- */

/* Memory of calls that block for ever stays until the process ends: so do its owners. */
static void end(struct engine *engine)
{
	struct tl_files *files = engine->files;
	int busy = 0;

	engine->files = NULL;
	if (files) {
		Py_BEGIN_ALLOW_THREADS
		busy = tl_files_destroy(files);
		Py_END_ALLOW_THREADS
	}
	for (uint32_t id = 0; id < engine->n; id++) {
		struct entry entry = engine->entries[id];

		memset(&engine->entries[id], 0, sizeof(entry));
		if (entry.source.obj && !busy)
			PyBuffer_Release(&entry.source);
		Py_XDECREF(entry.key);
	}
	PyMem_Free(engine->entries);
	engine->entries = NULL;
	engine->n = engine->free = 0;
}

static int engine_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "workers", "flags", NULL };
	struct engine *engine = (struct engine *)self;
	unsigned int workers = TL_FILES_WORKERS, flags = 0;
	int error;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|II", names, &workers, &flags))
		return -1;
	if (engine->files) {
		PyErr_SetString(PyExc_ValueError, "the engine has begun");
		return -1;
	}
	error = tl_files_create(&engine->files, workers, flags);
	if (error)
		tlpy_raise_error(-error, "files");
	return error ? -1 : 0;
}

static PyObject *engine_close(PyObject *self, PyObject *unused)
{
	(void)unused;
	end((struct engine *)self);
	Py_RETURN_NONE;
}

static PyObject *engine_fileno(PyObject *self, PyObject *unused)
{
	struct tl_files *files = use(self);
	int fd;

	(void)unused;
	if (!files)
		return NULL;
	fd = tl_files_fd(files);
	return fd < 0 ? tlpy_raise_error(-fd, "files") : PyLong_FromLong(fd);
}

static PyObject *engine_backend(PyObject *self, void *unused)
{
	struct tl_files *files = use(self);

	(void)unused;
	return files ? PyLong_FromLong(tl_files_backend(files)) : NULL;
}

static int engine_traverse(PyObject *self, visitproc visit, void *arg)
{
	struct engine *engine = (struct engine *)self;

	Py_VISIT(Py_TYPE(self));
	for (uint32_t id = 0; id < engine->n; id++)
		Py_VISIT(engine->entries[id].key);
	return 0;
}

static int engine_clear(PyObject *self)
{
	end((struct engine *)self);
	return 0;
}

static void engine_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_GC_UnTrack(self);
	end((struct engine *)self);
	((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
	Py_DECREF(type);
}

static PyMethodDef methods[] = {
	{ "read", engine_read, METH_VARARGS, "read(key, path, /)\n--\n\nRead a whole file." },
	{ "list", engine_list, METH_VARARGS, "list(key, path, /)\n--\n\nList a folder." },
	{ "write", engine_write, METH_VARARGS,
	  "write(key, path, data, open_flags, mode, flags, /)\n--\n\nWrite a whole file." },
	{ "call", engine_call, METH_VARARGS,
	  "call(key, kind, name, /, *arguments)\n--\n\nMake one system call." },
	{ "cancel", engine_cancel, METH_O, "cancel(number, /)\n--\n\nCancel an operation." },
	{ "submit", engine_submit, METH_NOARGS, "submit()\n--\n\nHand over what was added." },
	{ "take", engine_take, METH_NOARGS,
	  "take()\n--\n\nThe key, result and value of each operation that is complete." },
	{ "fileno", engine_fileno, METH_NOARGS,
	  "fileno()\n--\n\nA descriptor that is readable when take() is to be called." },
	{ "close", engine_close, METH_NOARGS, "close()\n--\n\nGive everything back." },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef properties[] = {
	{ "backend", engine_backend, NULL, "Who makes the calls: a number of Backend.", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot slots[] = {
	{ Py_tp_doc, "Engine(workers=64, flags=0)\n--\n\nAsynchronous files for one event loop." },
	{ Py_tp_init, engine_init },
	{ Py_tp_traverse, engine_traverse },
	{ Py_tp_clear, engine_clear },
	{ Py_tp_dealloc, engine_dealloc },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, properties },
	{ 0, NULL },
};

static PyType_Spec spec = {
	.name = "libtrapless._ring.Engine",
	.basicsize = sizeof(struct engine),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int tlpy_engine_setup(PyObject *module)
{
	PyObject *type = PyType_FromSpec(&spec);
	int error = type ? PyModule_AddType(module, (PyTypeObject *)type) : -1;

	Py_XDECREF(type);
	return error;
}
