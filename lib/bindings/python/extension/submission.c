// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * How operations on files begin for an event loop: what Python's arguments mean, which memory they
 * keep, and that the loop hands over together what was added in one turn. engine.c owns the table
 * of operations and their end.
 */
#include "engine.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AT_ONCE 64u	/* operations of many files that are under way at a time */

static bool arguments_are(Py_ssize_t given, Py_ssize_t least, Py_ssize_t most)
{
	if (given >= least && given <= most)
		return true;
	PyErr_SetString(PyExc_TypeError, "the number of arguments is wrong");
	return false;
}

/* The text of argument `path`, whose owner is to be released. */
static const char *text_of(PyObject *path, PyObject **owner)
{
	PyObject *name;
	const char *text = NULL;

	if (PyUnicode_CheckExact(path))
		return tlpy_path_text(path, owner);
	*owner = NULL;
	name = PyOS_FSPath(path);
	if (name)
		text = tlpy_path_text(name, owner);
	Py_XDECREF(name);
	return text;
}

static int begin_status(struct engine *engine, struct entry *entry, const char *path, int flags)
{
	struct tl_request call = TL_REQUEST(SYS_newfstatat, AT_FDCWD, path, 0, flags);

	return tl_files_call(engine->files, &call, 1u << 1, 1u << 2, engine->free, &entry->op);
}

/*
 * Begins what needs no more than a path, alone or as the next one of many. Returns its number, or
 * -1 with an exception.
 */
static int64_t begin(struct engine *engine, PyObject *future, PyObject *path, enum value_kind kind,
		     int flags, struct many *many)
{
	struct entry *entry;
	PyObject *owner;
	const char *text = text_of(path, &owner);
	uint32_t id;
	int error = -1;

	entry = text ? tlpy_engine_place(engine, kind) : NULL;
	id = engine->free;
	if (entry && kind == KIND_BYTES)
		error = tl_files_read(engine->files, AT_FDCWD, text, engine->free, &entry->op);
	else if (entry && kind == KIND_NAMES)
		error = tl_files_list(engine->files, AT_FDCWD, text, engine->free, &entry->op);
	else if (entry)
		error = begin_status(engine, entry, text, flags);
	if (entry)
		error = tlpy_engine_enter(engine, entry, future, path, error);
	if (!error && many) {
		tlpy_many_use(many);
		entry->many = many;
		entry->index = many->next++;
	}
	Py_XDECREF(owner);
	return error ? -1 : (int64_t)id;
}

static PyObject *add_path(PyObject *self, PyObject *const *args, Py_ssize_t given,
			  enum value_kind kind)
{
	long flags = 0;
	int64_t id;

	if (!arguments_are(given, 2, kind == KIND_STATUS ? 3 : 2))
		return NULL;
	if (given == 3)
		flags = PyLong_AsLong(args[2]);
	if (flags == -1 && PyErr_Occurred())
		return NULL;
	id = begin((struct engine *)self, args[0], args[1], kind, (int)flags, NULL);
	return id < 0 ? NULL : PyLong_FromLongLong(id);
}

PyObject *tlpy_engine_read(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
	return add_path(self, args, given, KIND_BYTES);
}

PyObject *tlpy_engine_list(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
	return add_path(self, args, given, KIND_NAMES);
}

PyObject *tlpy_engine_stat(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
	return add_path(self, args, given, KIND_STATUS);
}

PyObject *tlpy_engine_write(PyObject *self, PyObject *args)
{
	struct engine *engine = (struct engine *)self;
	Py_buffer *source = PyMem_Calloc(1, sizeof(*source));
	PyObject *future, *path, *owner = NULL;
	struct entry *entry = NULL;
	unsigned int mode, flags;
	const char *text = NULL;
	int open_flags, error = -1;
	uint32_t id;

	if (!source)
		return PyErr_NoMemory();
	if (PyArg_ParseTuple(args, "OOy*iII", &future, &path, source, &open_flags, &mode, &flags))
		text = text_of(path, &owner);
	entry = text ? tlpy_engine_place(engine, KIND_NUMBER) : NULL;
	id = engine->free;
	if (entry) {
		entry->source = source;
		error = tlpy_engine_enter(engine, entry, future, path,
				tl_files_write(engine->files, AT_FDCWD, text, source->buf,
					       (size_t)source->len, open_flags, mode, flags, id,
					       &entry->op));
	}
	if (error)
		tlpy_free_source(source);
	Py_XDECREF(owner);
	return error ? NULL : PyLong_FromUnsignedLong(id);
}

/*
 * Arguments of call(): None is the operation's memory, a path is copied, bytes and the descriptor
 * of a file are kept.
 */
struct arguments {
	struct tl_request call;
	unsigned int strings, rooms;
	PyObject *owners[6];
	Py_buffer *source;
	struct descriptor *descriptor;
};

/* Frees what no operation has got. The code of a later argument may have closed the file. */
static void free_arguments(struct arguments *arguments)
{
	int closing = arguments->descriptor ? tlpy_descriptor_leave(arguments->descriptor) : -1;

	if (closing >= 0)
		close(closing);
	tlpy_free_source(arguments->source);
}

static int put_source(struct arguments *arguments, int i, PyObject *object)
{
	if (arguments->source) {
		PyErr_SetString(PyExc_TypeError, "one buffer at most");
		return -1;
	}
	arguments->source = PyMem_Calloc(1, sizeof(*arguments->source));
	if (!arguments->source) {
		PyErr_NoMemory();
		return -1;
	}
	if (PyObject_GetBuffer(object, arguments->source, PyBUF_SIMPLE))
		return -1;
	arguments->call.args[i] = (uintptr_t)arguments->source->buf;
	return 0;
}

static int put_descriptor(struct arguments *arguments, int i, PyObject *object)
{
	int number;

	if (arguments->descriptor) {
		PyErr_SetString(PyExc_TypeError, "one descriptor at most");
		return -1;
	}
	number = tlpy_descriptor_use((struct descriptor *)object);
	if (number < 0)
		return -1;
	arguments->descriptor = (struct descriptor *)object;
	arguments->call.args[i] = (uint64_t)number;
	return 0;
}

static int put_argument(struct arguments *arguments, int i, PyObject *object)
{
	uint64_t number;

	if (object == Py_None) {
		arguments->rooms |= 1u << i;
		return 0;
	}
	if (Py_IS_TYPE(object, tlpy_descriptor_type))
		return put_descriptor(arguments, i, object);
	if (PyIndex_Check(object)) {
		if (tlpy_number(object, &number))
			return -1;
		arguments->call.args[i] = number;
		return 0;
	}
	if (PyObject_CheckBuffer(object) && !PyBytes_Check(object))
		return put_source(arguments, i, object);
	arguments->call.args[i] = (uintptr_t)text_of(object, &arguments->owners[i]);
	arguments->strings |= 1u << i;
	return arguments->call.args[i] ? 0 : -1;
}

/* call(future, kind, path, name, *arguments): a str, bytes or PathLike is a path, a memoryview what
 * is written. An error names `path`, and the second of two paths. */
PyObject *tlpy_engine_call(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
	struct engine *engine = (struct engine *)self;
	struct arguments arguments = { 0 };
	struct entry *entry = NULL;
	uint32_t id = engine->free;
	unsigned int after_first;
	int error = -1;
	long kind;

	if (!arguments_are(given, 4, 10))
		return NULL;
	kind = PyLong_AsLong(args[1]);
	if (!PyErr_Occurred())
		error = tlpy_nr_of(args[3], &arguments.call.nr);
	for (Py_ssize_t i = 4; i < given && !error; i++)
		error = put_argument(&arguments, (int)i - 4, args[i]);
	if (!error)
		entry = tlpy_engine_place(engine, (enum value_kind)kind);
	if (entry) {
		id = engine->free;
		entry->source = arguments.source;
		error = tlpy_engine_enter(engine, entry, args[0], args[2],
				tl_files_call(engine->files, &arguments.call, arguments.strings,
					      arguments.rooms, id, &entry->op));
	}
	after_first = arguments.strings & (arguments.strings - 1);
	if (entry && !error) {
		entry->descriptor = arguments.descriptor;
		if (after_first)
			entry->paths[1] = Py_NewRef(args[4 + __builtin_ctz(after_first)]);
	} else {
		free_arguments(&arguments);
	}
	for (int i = 0; i < 6; i++)
		Py_XDECREF(arguments.owners[i]);
	return entry && !error ? PyLong_FromUnsignedLong(id) : NULL;
}

/* ---- Many ---------------------------------------------------------------------------------- */

int tlpy_begin_more(struct engine *engine, struct many *many)
{
	while (!many->stopped && many->uses <= AT_ONCE && many->next < PyList_Size(many->paths))
		if (begin(engine, many->future, PyList_GetItem(many->paths, many->next),
			  (enum value_kind)many->kind, many->flags, many) < 0)
			return -1;
	return 0;
}

/* many(future, paths, kind, flags): the bytes of all files, or their attributes. */
PyObject *tlpy_engine_many(PyObject *self, PyObject *args)
{
	struct engine *engine = (struct engine *)self;
	struct many *many = PyMem_Calloc(1, sizeof(*many));
	int error;

	if (!many)
		return PyErr_NoMemory();
	if (PyArg_ParseTuple(args, "OO!ii", &many->future, &PyList_Type, &many->paths, &many->kind,
			     &many->flags))
		many->results = PyList_New(PyList_Size(many->paths));
	if (!many->results) {
		PyMem_Free(many);
		return NULL;
	}
	tlpy_many_use(many);
	Py_DECREF(many->results);
	error = tlpy_begin_more(engine, many);
	many->stopped |= error < 0;
	if (tlpy_many_leave(many) || error)
		return NULL;
	Py_RETURN_NONE;
}
