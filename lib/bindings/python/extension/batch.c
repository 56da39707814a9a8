// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The types Queue and Batch: what a queue says of itself, and their tables. Batch is a queue whose
 * flush the caller waits for; aio.py has one for event loops. queue.c owns the calls.
 */
#include "extension.h"

#include <errno.h>
#include <stddef.h>
#include <structmember.h>

/* Calls a class or function of a module of Python. */
static PyObject *made_by(const char *module, const char *name, PyObject *argument)
{
	PyObject *python = argument ? PyImport_ImportModule(module) : NULL;
	PyObject *class = python ? PyObject_GetAttrString(python, name) : NULL;
	PyObject *made = class ? PyObject_CallFunctionObjArgs(class, argument, NULL) : NULL;

	Py_XDECREF(argument);
	Py_XDECREF(python);
	Py_XDECREF(class);
	return made;
}

static PyObject *queue_backend(PyObject *self, void *unused)
{
	struct tl_batch *batch = tlpy_queue_use((struct queue *)self, EPERM);

	(void)unused;
	return batch ? made_by("libtrapless.abi", "Backend",
			       PyLong_FromLong(tl_batch_backend(batch))) : NULL;
}

static PyObject *queue_reason(PyObject *self, void *unused)
{
	struct tl_batch *batch = tlpy_queue_use((struct queue *)self, EPERM);
	const char *reason = batch ? tl_batch_reason(batch) : NULL;

	(void)unused;
	if (reason)
		return PyUnicode_FromString(reason);
	return batch ? Py_NewRef(Py_None) : NULL;
}

static PyObject *queue_stats(PyObject *self, void *unused)
{
	struct tl_batch *batch = tlpy_queue_use((struct queue *)self, EPERM);
	struct tl_stats stats = { .size = sizeof(stats) };
	int error = batch ? tl_batch_get_stats(batch, &stats) : 0;

	(void)unused;
	if (error)
		tlpy_raise_error(-error, "stats");
	if (error || !batch)
		return NULL;
	return made_by("libtrapless.counts", "counted", Py_BuildValue("("
#define TL_COUNT(member, offset) "K"
#include <linux/trapless_fields.h>
		")"
#define TL_COUNT(member, offset) , (unsigned long long)stats.member
#include <linux/trapless_fields.h>
		));
}

static PyObject *queue_at(PyObject *self, void *unused)
{
	struct queue *queue = (struct queue *)self;

	(void)unused;
	return tlpy_queue_use(queue, EPERM) ? tlpy_queue_at(queue) : NULL;
}

static PyObject *queue_closed(PyObject *self, void *unused)
{
	struct queue *queue = (struct queue *)self;

	(void)unused;
	return PyBool_FromLong(queue->closing || !queue->batch);
}

static Py_ssize_t queue_len(PyObject *self)
{
	struct tl_batch *batch = tlpy_queue_use((struct queue *)self, EPERM);

	return batch ? (Py_ssize_t)tl_batch_queued(batch) : -1;
}

static PyObject *queue_reduce(PyObject *self, PyObject *unused)
{
	(void)self;
	(void)unused;
	PyErr_SetString(PyExc_TypeError, "a batch is one ring: it cannot be copied or pickled");
	return NULL;
}

static PyObject *queue_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	return Py_NewRef(self);
}

static PyObject *queue_exit(PyObject *self, PyObject *unused)
{
	return tlpy_queue_close(self, unused);
}

static PyMethodDef common[] = {
	{ "close", tlpy_queue_close, METH_NOARGS,
	  "close()\n--\n\nGive the batch back, with the memory of its calls. Calls that were not "
	  "flushed are not made. During a flush it takes effect when the flush is over." },
	{ "_flush", tlpy_queue_flush_busy, METH_O, NULL },
	{ "__reduce_ex__", queue_reduce, METH_O, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyMethodDef batch_methods[] = {
	{ "flush", (PyCFunction)(void (*)(void))tlpy_queue_flush, METH_FASTCALL | METH_KEYWORDS,
	  "flush(steps=1048576)\n--\n\nMake all queued calls, and return their number.\n\n"
	  "A call that fails raises nothing here; its result() does. OSError with ETIME: a program "
	  "has made `steps` steps and is not at its end; another flush goes on." },
	{ "__enter__", queue_enter, METH_NOARGS, NULL },
	{ "__exit__", queue_exit, METH_VARARGS, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyMemberDef members[] = {
	{ "_busy", T_BOOL, offsetof(struct queue, busy), 0, NULL },
	{ NULL, 0, 0, 0, NULL },
};

static PyGetSetDef getters[] = {
	{ "backend", queue_backend, NULL, "Who makes the calls.", NULL },
	{ "reason", queue_reason, NULL,
	  "Why the library makes calls itself, one by one; None where the module has made all.",
	  NULL },
	{ "stats", queue_stats, NULL, "Counts since the batch was created.", NULL },
	{ "at", queue_at, NULL,
	  "The call with which the next flush begins; None where nothing is queued.", NULL },
	{ "closed", queue_closed, NULL, "Whether close() was called.", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot queue_slots[] = {
	{ Py_tp_doc, "Queue(entries=32, *, backend=None, unordered=False)\n--\n\n"
		     "What is common to Batch and AsyncBatch: calls in slots. One thread at a time "
		     "may use it. `entries` is 1 to 4096, rounded up to a power of two. `backend` "
		     "None takes the module where it is." },
	{ Py_tp_new, PyType_GenericNew },
	{ Py_tp_init, tlpy_queue_init },
	{ Py_tp_dealloc, tlpy_queue_dealloc },
	{ Py_tp_traverse, tlpy_queue_traverse },
	{ Py_tp_clear, tlpy_queue_clear },
	{ Py_tp_methods, common },
	{ Py_tp_members, members },
	{ Py_tp_getset, getters },
	{ Py_sq_length, queue_len },
	{ 0, NULL },
};

static PyType_Spec queue_spec = {
	.name = "libtrapless.Queue",
	.basicsize = sizeof(struct queue),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
	.slots = queue_slots,
};

static PyType_Slot batch_slots[] = {
	{ Py_tp_doc, "Batch(entries=32, *, backend=None, unordered=False)\n--\n\n"
		     "Calls that one crossing makes. `with Batch() as batch` gives it back at its "
		     "end." },
	{ Py_tp_methods, batch_methods },
	{ 0, NULL },
};

static PyType_Spec batch_spec = {
	.name = "libtrapless.Batch",
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
	.slots = batch_slots,
};

/* The functions of single calls, which calls.c has. */
static int add_methods(PyTypeObject *type)
{
	for (PyMethodDef *method = tlpy_call_methods; method->ml_name; method++) {
		PyObject *function = PyDescr_NewMethod(type, method);
		int error = !function ||
			    PyObject_SetAttrString((PyObject *)type, method->ml_name, function);

		Py_XDECREF(function);
		if (error)
			return -1;
	}
	return 0;
}

int tlpy_queue_setup(PyObject *module)
{
	PyObject *queue = PyType_FromSpec(&queue_spec), *batch;
	int error;

	if (!queue || add_methods((PyTypeObject *)queue))
		return -1;
	batch = PyType_FromSpecWithBases(&batch_spec, queue);
	error = !batch || PyModule_AddType(module, (PyTypeObject *)queue) ||
		PyModule_AddType(module, (PyTypeObject *)batch);
	Py_DECREF(queue);
	Py_XDECREF(batch);
	return error ? -1 : 0;
}
