// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The engine of asynchronous files, tl_files.3, for event loops of Python. It owns the table of
 * operations under way: each has a future of asyncio, which take() completes, and the memory that
 * it was given. submission.c owns how operations begin, and libtrapless/async_files.py what tasks
 * see.
 *
 * Concurrency: the interpreter's lock protects everything here, and only the engine's end gives it
 * up. An operation is out of the table before objects are made of its result, so that code of
 * Python that runs meanwhile finds the table whole. If that code closes the engine, take() ends it.
 */
#include "engine.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct tl_files *use(PyObject *self)
{
	struct engine *engine = (struct engine *)self;

	if (engine->files && !engine->closing)
		return engine->files;
	PyErr_SetString(PyExc_ValueError, "the engine is closed");
	return NULL;
}

/* ---- The table ----------------------------------------------------------------------------- */

/* Has the loop call submit() in its next turn. What is added until then is handed over together. */
static int submit_soon(struct engine *engine)
{
	PyObject *submit, *call_soon, *handle;

	if (engine->submitting || engine->taking)
		return 0;
	call_soon = Py_NewRef(engine->call_soon);
	submit = PyObject_GetAttrString((PyObject *)engine, "submit");
	handle = submit ? PyObject_CallFunctionObjArgs(call_soon, submit, NULL) : NULL;
	engine->submitting = handle != NULL;
	Py_DECREF(call_soon);
	Py_XDECREF(submit);
	Py_XDECREF(handle);
	return handle ? 0 : -1;
}

struct entry *tlpy_engine_place(struct engine *engine, enum value_kind kind)
{
	struct entry *entries;
	uint32_t more;

	/* The loop's function is code of Python, which may close the engine. */
	if (!use((PyObject *)engine) || submit_soon(engine) || !use((PyObject *)engine))
		return NULL;
	more = engine->n ? 2 * engine->n : 64;
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
	engine->entries[engine->free].kind = kind;
	return &engine->entries[engine->free];
}

int tlpy_engine_enter(struct engine *engine, struct entry *entry, PyObject *future, PyObject *path,
		      int error)
{
	if (error) {
		entry->source = NULL;
		tlpy_raise_failure(-error);
		return -1;
	}
	entry->future = Py_NewRef(future);
	entry->paths[0] = Py_XNewRef(path);
	engine->free = entry->next;
	return 0;
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

void tlpy_free_source(Py_buffer *source)
{
	if (source)
		PyBuffer_Release(source);
	PyMem_Free(source);
}

void tlpy_many_use(struct many *many)
{
	Py_INCREF(many->paths);
	Py_INCREF(many->results);
	many->uses++;
}

int tlpy_many_leave(struct many *many)
{
	PyObject *paths = many->paths, *results = many->results;
	int told = 0;

	if (!--many->uses) {
		if (!many->stopped)
			told = tlpy_outcome_set(many->future, results);
		PyMem_Free(many);
	}
	Py_DECREF(paths);
	Py_DECREF(results);
	return told < 0 ? -1 : 0;
}

/*
 * Closes a descriptor by a worker, since close(2) may block, or here if there is none. `future` is
 * that of the last operation: it is done. Keeps the exception that is set.
 */
static void close_descriptor(struct engine *engine, int number, PyObject *future)
{
	struct tl_request call = TL_REQUEST(SYS_close, number);
	PyObject *type, *error, *traceback;
	struct entry *entry;

	PyErr_Fetch(&type, &error, &traceback);
	entry = tlpy_engine_place(engine, KIND_NUMBER);
	if (!entry || tlpy_engine_enter(engine, entry, future, NULL,
			tl_files_call(engine->files, &call, 0, 0, engine->free, &entry->op)))
		close(number);
	PyErr_Restore(type, error, traceback);
}

/* Ends an entry that is out of the table. */
static void free_entry(struct engine *engine, const struct entry *entry)
{
	int closing = entry->descriptor ? tlpy_descriptor_leave(entry->descriptor) : -1;

	if (closing >= 0)
		close_descriptor(engine, closing, entry->future);
	tlpy_free_source(entry->source);
	Py_XDECREF(entry->paths[0]);
	Py_XDECREF(entry->paths[1]);
	Py_DECREF(entry->future);
}

/* cancel(number, future): the operation may have ended, and its number have gone to another. */
static PyObject *engine_cancel(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
	struct engine *engine = (struct engine *)self;
	unsigned long id;

	if (given != 2) {
		PyErr_SetString(PyExc_TypeError, "cancel(number, future)");
		return NULL;
	}
	id = PyLong_AsUnsignedLong(args[0]);
	if (PyErr_Occurred())
		return NULL;
	if (engine->files && id < engine->n && engine->entries[id].future == args[1])
		tl_files_cancel(engine->files, engine->entries[id].op);
	Py_RETURN_NONE;
}

static PyObject *engine_submit(PyObject *self, PyObject *unused)
{
	struct engine *engine = (struct engine *)self;
	int error = engine->files ? tl_files_submit(engine->files) : 0;

	(void)unused;
	engine->submitting = false;
	if (error)
		return tlpy_raise_failure(-error);
	Py_RETURN_NONE;
}

/* stop(future): no further path of many() is begun, and what is under way is cancelled. */
static PyObject *engine_stop(PyObject *self, PyObject *future)
{
	struct engine *engine = (struct engine *)self;

	for (uint32_t id = 0; engine->files && id < engine->n; id++) {
		if (engine->entries[id].future != future)
			continue;
		if (engine->entries[id].many)
			engine->entries[id].many->stopped = true;
		tl_files_cancel(engine->files, engine->entries[id].op);
	}
	Py_RETURN_NONE;
}

/* ---- The end ------------------------------------------------------------------------------- */

/* Nobody completes the future any more. Its loop may be closed, and then nobody awaits it. */
static void give_up(const struct entry *entry)
{
	PyObject *canceled = PyObject_CallMethod(entry->future, "cancel", NULL);

	if (!canceled)
		PyErr_Clear();
	Py_XDECREF(canceled);
	if (entry->many) {
		entry->many->stopped = true;
		tlpy_many_leave(entry->many);
	}
}

/*
 * What calls that block for ever use stays until the process ends: memory, its owners, descriptors.
 * It keeps the exception that is set: an engine may end by it.
 */
static void end(struct engine *engine)
{
	struct tl_files *files = engine->files;
	struct entry *entries = engine->entries;
	PyObject *type, *error, *traceback;
	uint32_t n = engine->n;
	int busy = 0;

	PyErr_Fetch(&type, &error, &traceback);
	engine->files = NULL;
	engine->entries = NULL;
	engine->n = engine->free = 0;
	if (files) {
		Py_BEGIN_ALLOW_THREADS
		tlpy_take_rest(files, entries, n);
		busy = tl_files_destroy(files);
		Py_END_ALLOW_THREADS
	}
	for (uint32_t id = 0; id < n; id++) {
		if (!entries[id].future)
			continue;
		give_up(&entries[id]);
		if (busy && entries[id].op) {
			entries[id].source = NULL;
			entries[id].descriptor = NULL;
		}
		free_entry(engine, &entries[id]);
	}
	PyMem_Free(entries);
	Py_CLEAR(engine->call_soon);
	PyErr_Restore(type, error, traceback);
}

/* ---- Results ------------------------------------------------------------------------------- */

/*
 * Stores one outcome of many, or NULL with its exception, and begins the next. Returns 0, or -1
 * with an exception.
 */
static int take_one_of_many(struct engine *engine, const struct entry *entry, PyObject *value)
{
	struct many *many = entry->many;
	int error = value ? PyList_SetItem(many->results, entry->index, value) : -1;

	if (!error && !engine->closing)
		error = tlpy_begin_more(engine, many);
	if (error) {
		many->stopped = true;
		error = tlpy_outcome_raise(many->future) < 0 ? -1 : 0;
	}
	return tlpy_many_leave(many) || error ? -1 : 0;
}

/* Completes the future of an operation. Returns 0, or -1 with an exception. */
static int complete(struct engine *engine, struct entry *entry,
		    const struct tl_files_result *result)
{
	bool failed = result->result < 0;
	PyObject *value = failed ? tlpy_path_error(result->result, entry->paths) :
				   tlpy_outcome_value(entry->kind, result);
	int told;

	tl_files_release(engine->files, result->op);
	if (entry->many)
		return take_one_of_many(engine, entry, value);
	if (!value)
		told = tlpy_outcome_raise(entry->future);
	else if (failed)
		told = tlpy_outcome_set_error(entry->future, value);
	else
		told = tlpy_outcome_set(entry->future, value);
	/* A future that raises may have the descriptor; one that was cancelled has not. */
	if ((!told || !value) && !failed && entry->kind == KIND_DESCRIPTOR)
		close((int)result->result);
	Py_XDECREF(value);
	return told < 0 ? -1 : 0;
}

/*
 * take(): completes the futures of operations that are complete. If one of them raises, the others
 * are completed all the same, since the descriptor tells of them only once.
 */
static PyObject *engine_take(PyObject *self, PyObject *unused)
{
	struct engine *engine = (struct engine *)self;
	PyObject *type = NULL, *error = NULL, *traceback = NULL;
	struct tl_files_result result;
	int n = 0;

	(void)unused;
	if (!use(self))
		return NULL;
	if (engine->taking) /* code of Python that take() runs, which goes on afterwards */
		Py_RETURN_NONE;
	engine->taking = true;
	while (!engine->closing && (n = tl_files_next(engine->files, &result)) == 1) {
		struct entry entry = leave_place(engine, (uint32_t)result.user_data);

		if (complete(engine, &entry, &result)) {
			if (type)
				PyErr_WriteUnraisable(entry.future);
			else
				PyErr_Fetch(&type, &error, &traceback);
		}
		free_entry(engine, &entry);
	}
	engine->taking = false;
	if (engine->closing)
		end(engine);
	if (type) {
		PyErr_Restore(type, error, traceback);
		return NULL;
	}
	if (n < 0)
		return tlpy_raise_failure(-n);
	Py_RETURN_NONE;
}

/* ---- The type ------------------------------------------------------------------------------- */

static int engine_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "call_soon", "workers", "flags", NULL };
	struct engine *engine = (struct engine *)self;
	unsigned int workers = TL_FILES_WORKERS, flags = 0;
	PyObject *call_soon;
	int error;

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|II", names, &call_soon, &workers,
					 &flags))
		return -1;
	if (engine->files) {
		PyErr_SetString(PyExc_ValueError, "the engine has begun");
		return -1;
	}
	error = tl_files_create(&engine->files, workers, flags);
	if (error) {
		tlpy_raise_unmade(-error, error == -EINVAL ?
			"TRAPLESS_BACKEND is auto, plain or module" : "the engine of files");
		return -1;
	}
	engine->call_soon = Py_NewRef(call_soon);
	return 0;
}

static PyObject *engine_close(PyObject *self, PyObject *unused)
{
	struct engine *engine = (struct engine *)self;

	(void)unused;
	engine->closing = true;
	if (!engine->taking)
		end(engine);
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
	return fd < 0 ? tlpy_raise_failure(-fd) : PyLong_FromLong(fd);
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
	Py_VISIT(engine->call_soon);
	for (uint32_t id = 0; id < engine->n; id++) {
		const struct entry *entry = &engine->entries[id];

		Py_VISIT(entry->future);
		Py_VISIT(entry->paths[0]); /* an object with __fspath__() may lead to the engine */
		Py_VISIT(entry->paths[1]);
		if (entry->source)
			Py_VISIT(entry->source->obj);
		if (entry->many) {
			Py_VISIT(entry->many->paths);
			Py_VISIT(entry->many->results);
		}
	}
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

#define FAST(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef methods[] = {
	{ "read", FAST(tlpy_engine_read), METH_FASTCALL,
	  "read(future, path, /)\n--\n\nRead a whole file." },
	{ "list", FAST(tlpy_engine_list), METH_FASTCALL,
	  "list(future, path, /)\n--\n\nList a folder." },
	{ "stat", FAST(tlpy_engine_stat), METH_FASTCALL,
	  "stat(future, path, flags, /)\n--\n\nAsk for a file's attributes." },
	{ "call", FAST(tlpy_engine_call), METH_FASTCALL,
	  "call(future, kind, path, name, /, *arguments)\n--\n\nMake one system call." },
	{ "write", tlpy_engine_write, METH_VARARGS,
	  "write(future, path, data, open_flags, mode, flags, /)\n--\n\nWrite a whole file." },
	{ "many", tlpy_engine_many, METH_VARARGS,
	  "many(future, paths, kind, flags, /)\n--\n\nRead files, or ask for their attributes: "
	  "a list with an OSError in the place of each that failed." },
	{ "cancel", FAST(engine_cancel), METH_FASTCALL,
	  "cancel(number, future, /)\n--\n\nCancel an operation." },
	{ "stop", engine_stop, METH_O, "stop(future, /)\n--\n\nCancel what many() has begun." },
	{ "submit", engine_submit, METH_NOARGS, "submit()\n--\n\nHand over what was added." },
	{ "take", engine_take, METH_NOARGS,
	  "take()\n--\n\nComplete the futures of operations that are complete." },
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
	{ Py_tp_doc, "Engine(call_soon, workers=64, flags=0)\n--\n\n"
		     "Asynchronous files for one event loop." },
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
