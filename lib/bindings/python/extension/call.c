// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * One queued call as Python sees it. It owns what a result is and which error it raises; queue.c
 * owns the slot and says what the call returned.
 */
#include "extension.h"

#include <errno.h>
#include <string.h>

#define ERRNO_MAX 4095
#define SPARE_MAX 256

PyTypeObject *tlpy_call_type;

/* Memory of calls that are gone: most live from one flush to the next. */
static void *spare[SPARE_MAX];
static unsigned int spare_n;

static struct call *allocate(void)
{
	void *memory;

	if (!spare_n)
		return PyObject_New(struct call, tlpy_call_type);
	memory = spare[--spare_n];
	return (struct call *)PyObject_Init(memory, tlpy_call_type);
}

struct call *tlpy_call_create(const struct draft *draft)
{
	struct call *call = allocate();

	if (!call)
		return NULL;
	call->queue = draft->queue->id;
	call->value = 0;
	call->limit = draft->limit;
	call->nr = draft->nr;
	call->slot = 0;
	call->done = false;
	call->dropped = false;
	for (int i = 0; i < 2; i++)
		call->paths[i] = Py_XNewRef(draft->paths[i]);
	return call;
}

static void call_dealloc(PyObject *self)
{
	struct call *call = (struct call *)self;
	PyTypeObject *type = Py_TYPE(self);

	Py_XDECREF(call->paths[0]);
	Py_XDECREF(call->paths[1]);
	if (spare_n < SPARE_MAX)
		spare[spare_n++] = self;
	else
		PyObject_Free(self);
	Py_DECREF(type);
}

PyObject *tlpy_error_text(int error)
{
	return PyUnicode_DecodeLocale(strerror(error), "surrogateescape");
}

PyObject *tlpy_error_with(int error, const char *said)
{
	PyObject *reason = tlpy_error_text(error);
	PyObject *text = reason ? PyUnicode_FromFormat("%U (%s)", reason, said) : NULL;

	Py_XDECREF(reason);
	return text ? PyObject_CallFunction(PyExc_OSError, "iN", error, text) : NULL;
}

PyObject *tlpy_path_error(int64_t result, PyObject *const paths[2])
{
	return PyObject_CallFunction(PyExc_OSError, "iNOOO", (int)-result,
				     tlpy_error_text((int)-result),
				     paths[0] ? paths[0] : Py_None, Py_None,
				     paths[1] ? paths[1] : Py_None);
}

PyObject *tlpy_raise_result(int64_t result, const char *what, PyObject *paths[2])
{
	PyObject *error;

	if (paths[0])
		error = tlpy_path_error(result, paths);
	else
		error = tlpy_error_with((int)-result, what);
	if (error) {
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
		Py_DECREF(error);
	}
	return NULL;
}

static bool is_done(struct call *call)
{
	if (call->done)
		return true;
	PyErr_Format(PyExc_RuntimeError, call->dropped ?
		     "%R is not complete: the batch was closed" :
		     "%R is not complete: flush the batch first", call);
	return false;
}

int tlpy_call_result(struct call *call, int64_t *result)
{
	char number[32];

	if (!is_done(call))
		return -1;
	*result = call->value;
	if (call->value >= 0 || call->value < -ERRNO_MAX)
		return 0;
	tlpy_raise_result(call->value, tlpy_name_of(call->nr, number, sizeof(number)), call->paths);
	return -1;
}

static PyObject *call_result(PyObject *self, PyObject *unused)
{
	int64_t result;

	(void)unused;
	return tlpy_call_result((struct call *)self, &result) ? NULL : PyLong_FromLongLong(result);
}

static PyObject *call_value(PyObject *self, void *unused)
{
	struct call *call = (struct call *)self;

	(void)unused;
	return is_done(call) ? PyLong_FromLongLong(call->value) : NULL;
}

static PyObject *call_done(PyObject *self, void *unused)
{
	(void)unused;
	return PyBool_FromLong(((struct call *)self)->done);
}

static PyObject *call_slot(PyObject *self, void *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLong(((struct call *)self)->slot);
}

static PyObject *call_limit(PyObject *self, void *unused)
{
	struct call *call = (struct call *)self;

	(void)unused;
	return call->limit < 0 ? Py_NewRef(Py_None) : PyLong_FromLongLong(call->limit);
}

static PyObject *call_name(PyObject *self, void *unused)
{
	struct call *call = (struct call *)self;
	char number[32];

	(void)unused;
	return PyUnicode_FromString(tlpy_name_of(call->nr, number, sizeof(number)));
}

static PyObject *call_repr(PyObject *self)
{
	struct call *call = (struct call *)self;
	char number[32];
	const char *name = tlpy_name_of(call->nr, number, sizeof(number));

	if (call->done)
		return PyUnicode_FromFormat("<Call %u %s: %lld>", call->slot, name,
					    (long long)call->value);
	return PyUnicode_FromFormat(call->dropped ? "<Call %u %s: dropped>" :
						    "<Call %u %s: queued>", call->slot, name);
}

static PyObject *call_reduce(PyObject *self, PyObject *unused)
{
	(void)self;
	(void)unused;
	PyErr_SetString(PyExc_TypeError,
			"a call belongs to its batch: it cannot be copied or pickled");
	return NULL;
}

static PyMethodDef methods[] = {
	{ "result", call_result, METH_NOARGS,
	  "result()\n--\n\nWhat the call returned. Raises OSError where it failed, with its errno "
	  "and its path." },
	{ "__reduce_ex__", call_reduce, METH_O, NULL },
	{ NULL, NULL, 0, NULL },
};

static PyGetSetDef getters[] = {
	{ "value", call_value, NULL,
	  "What the call returned: a result, or an error as a negative number.", NULL },
	{ "done", call_done, NULL, "Whether a flush has completed the call.", NULL },
	{ "slot", call_slot, NULL, "The slot of the batch.", NULL },
	{ "name", call_name, NULL, "The name of the system call.", NULL },
	{ "limit", call_limit, NULL,
	  "The largest result, where it is known: a read returns no more than it was asked for.",
	  NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot slots[] = {
	{ Py_tp_doc,
	  "A call in a batch. As an argument of a later call it stands for its result." },
	{ Py_tp_dealloc, call_dealloc },
	{ Py_tp_repr, call_repr },
	{ Py_tp_methods, methods },
	{ Py_tp_getset, getters },
	{ 0, NULL },
};

static PyType_Spec spec = {
	.name = "libtrapless.Call",
	.basicsize = sizeof(struct call),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
		 Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int tlpy_call_setup(PyObject *module)
{
	tlpy_call_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return tlpy_call_type ? PyModule_AddType(module, tlpy_call_type) : -1;
}
