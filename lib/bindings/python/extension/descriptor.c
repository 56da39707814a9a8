// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The descriptor of an open file of an event loop. It owns when the descriptor may be closed: not
 * before the operations under way have ended, since another file could get its number and they
 * would be made on that one. engine.c owns how it is closed.
 */
#include "engine.h"

#include <unistd.h>

PyTypeObject *tlpy_descriptor_type;

static int descriptor_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct descriptor *descriptor = (struct descriptor *)self;
	static char *names[] = { "number", NULL };

	descriptor->detached = true;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "i", names, &descriptor->number))
		return -1;
	descriptor->detached = false;
	return 0;
}

static void descriptor_dealloc(PyObject *self)
{
	struct descriptor *descriptor = (struct descriptor *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (!descriptor->detached) {
		Py_BEGIN_ALLOW_THREADS
		close(descriptor->number);
		Py_END_ALLOW_THREADS
	}
	PyObject_Free(self);
	Py_DECREF(type);
}

static bool is_open(const struct descriptor *descriptor)
{
	if (!descriptor->detached)
		return true;
	PyErr_SetString(PyExc_ValueError, "the file is closed");
	return false;
}

int tlpy_descriptor_use(struct descriptor *descriptor)
{
	if (!is_open(descriptor))
		return -1;
	descriptor->uses++;
	Py_INCREF((PyObject *)descriptor);
	return descriptor->number;
}

int tlpy_descriptor_leave(struct descriptor *descriptor)
{
	int number = !--descriptor->uses && descriptor->detached ? descriptor->number : -1;

	Py_DECREF((PyObject *)descriptor);
	return number;
}

static PyObject *descriptor_fileno(PyObject *self, PyObject *unused)
{
	struct descriptor *descriptor = (struct descriptor *)self;

	(void)unused;
	return is_open(descriptor) ? PyLong_FromLong(descriptor->number) : NULL;
}

static PyObject *descriptor_detach(PyObject *self, PyObject *unused)
{
	struct descriptor *descriptor = (struct descriptor *)self;
	bool closes = !descriptor->detached && !descriptor->uses;

	(void)unused;
	descriptor->detached = true;
	return PyLong_FromLong(closes ? descriptor->number : -1);
}

static PyMethodDef methods[] = {
	{ "fileno", descriptor_fileno, METH_NOARGS, "fileno()\n--\n\nThe number." },
	{ "detach", descriptor_detach, METH_NOARGS,
	  "detach()\n--\n\nRefuse further operations. Returns the number, which the caller closes, "
	  "or -1 if the last operation under way closes it, or if it is closed." },
	{ NULL, NULL, 0, NULL },
};

static PyType_Slot slots[] = {
	{ Py_tp_doc, "FileDescriptor(number)\n--\n\n"
		     "A descriptor that is closed when no operation uses it any more." },
	{ Py_tp_init, descriptor_init },
	{ Py_tp_dealloc, descriptor_dealloc },
	{ Py_tp_methods, methods },
	{ 0, NULL },
};

static PyType_Spec spec = {
	.name = "libtrapless._ring.FileDescriptor",
	.basicsize = sizeof(struct descriptor),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = slots,
};

int tlpy_descriptor_setup(PyObject *module)
{
	tlpy_descriptor_type = (PyTypeObject *)PyType_FromSpec(&spec);
	return tlpy_descriptor_type ? PyModule_AddType(module, tlpy_descriptor_type) : -1;
}
