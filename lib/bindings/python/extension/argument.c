// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * How objects of Python become the 64 bits of an argument. It owns what is a number, a descriptor,
 * a path and a buffer, and the memory that a call needs until it is complete. Every function here
 * may run code of Python, which may use the queue: queue.c looks at the queue after all of them.
 */
#include "extension.h"

#include <limits.h>
#include <string.h>

/* ---- Memory -------------------------------------------------------------------------------- */

void tlpy_kept_free(struct kept *kept)
{
	while (kept) {
		struct kept *next = kept->next;

		if (kept->view.obj)
			PyBuffer_Release(&kept->view);
		Py_XDECREF(kept->object);
		PyMem_Free(kept);
		kept = next;
	}
}

static struct kept *keep(struct draft *draft, size_t bytes)
{
	struct kept *kept = PyMem_Malloc(sizeof(*kept) + bytes);

	if (!kept) {
		PyErr_NoMemory();
		return NULL;
	}
	kept->view.obj = NULL;
	kept->object = NULL;
	kept->next = draft->kept;
	draft->kept = kept;
	return kept;
}

void tlpy_draft_free(struct draft *draft)
{
	struct kept *kept = draft->kept;

	draft->kept = NULL;
	Py_CLEAR(draft->paths[0]);
	Py_CLEAR(draft->paths[1]);
	tlpy_kept_free(kept);
}

/* Keeps the buffer of an object. Its memory can be neither moved nor resized meanwhile. */
static struct kept *keep_view(struct draft *draft, PyObject *object)
{
	struct kept *kept = keep(draft, 0);

	if (!kept || PyObject_GetBuffer(object, &kept->view, PyBUF_SIMPLE))
		return NULL;
	return kept;
}

/* Keeps a copy, with a NUL byte behind it. */
static int put_copy(struct draft *draft, int i, const void *data, size_t bytes)
{
	struct kept *kept = keep(draft, bytes + 1);

	if (!kept)
		return -1;
	memcpy(kept->copy, data, bytes);
	kept->copy[bytes] = '\0';
	draft->arguments[i].word = (uintptr_t)kept->copy;
	return 0;
}

static int refuse_fixed(PyObject *buffer)
{
	PyObject *name = PyType_GetName(Py_TYPE(buffer));

	if (name)
		PyErr_Format(PyExc_TypeError, "a call cannot write to a %U: use a bytearray", name);
	Py_XDECREF(name);
	return -1;
}

int tlpy_put_writable(struct draft *draft, int i, PyObject *buffer, Py_ssize_t *bytes)
{
	struct kept *kept = keep_view(draft, buffer);

	if (!kept)
		return -1;
	if (kept->view.readonly)
		return refuse_fixed(buffer);
	draft->arguments[i].word = (uintptr_t)kept->view.buf;
	*bytes = kept->view.len;
	return 0;
}

/* Memory that the call only reads. */
int tlpy_put_readable(struct draft *draft, int i, PyObject *buffer, Py_ssize_t *bytes)
{
	struct kept *kept = keep_view(draft, buffer);

	if (!kept)
		return -1;
	draft->arguments[i].word = (uintptr_t)kept->view.buf;
	*bytes = kept->view.len;
	return 0;
}

/* Memory of add(), which knows nothing of the call: what Python cannot change is copied. */
static int put_buffer(struct draft *draft, int i, PyObject *buffer)
{
	struct kept *kept = keep_view(draft, buffer);

	if (!kept)
		return -1;
	if (kept->view.readonly)
		return put_copy(draft, i, kept->view.buf, (size_t)kept->view.len);
	draft->arguments[i].word = (uintptr_t)kept->view.buf;
	return 0;
}

/* ---- Numbers -------------------------------------------------------------------------------- */

int tlpy_number(PyObject *object, uint64_t *number)
{
	PyObject *exact = NULL;
	int overflow;
	long long found;

	if (!PyLong_Check(object)) {
		exact = PyNumber_Index(object);
		if (!exact)
			return -1;
		object = exact;
	}
	found = PyLong_AsLongLongAndOverflow(object, &overflow);
	*number = (uint64_t)found;
	if (overflow > 0)
		*number = PyLong_AsUnsignedLongLong(object);
	else if (overflow)
		PyErr_SetString(PyExc_OverflowError, "a number that does not fit 64 bits");
	Py_XDECREF(exact);
	return PyErr_Occurred() ? -1 : 0;
}

/* A number of the type int of C, as flags, modes and descriptors are. */
int tlpy_int(PyObject *object, const char *what, int64_t *number)
{
	uint64_t found;

	if (tlpy_number(object, &found))
		return -1;
	*number = (int64_t)found;
	if (*number >= -INT_MAX && *number <= UINT_MAX)
		return 0;
	PyErr_Format(PyExc_OverflowError, "%R is no %s", object, what);
	return -1;
}

int tlpy_put_number(struct draft *draft, int i, PyObject *object)
{
	return tlpy_number(object, &draft->arguments[i].word);
}

static int put_call(struct draft *draft, int i, struct call *call)
{
	int64_t result;
	int slot;

	if (call->done) {
		if (tlpy_call_result(call, &result))
			return -1;
		draft->arguments[i].word = (uint64_t)result;
		return 0;
	}
	slot = tlpy_queue_slot_of(draft->queue, call);
	if (slot < 0)
		return -1;
	draft->arguments[i].word = (uint64_t)slot;
	draft->arguments[i].source = TL_RESULT(0);
	return 0;
}

static int put_word(struct draft *draft, int i, struct word *word)
{
	Py_ssize_t bytes;

	if (tlpy_put_writable(draft, i, word->buffer, &bytes))
		return -1;
	if (!tlpy_word_is_inside(word, bytes))
		return -1;
	draft->arguments[i].word += (uint64_t)word->offset;
	draft->arguments[i].source = word->bits == 32 ? TL_WORD32(0) : TL_WORD64(0);
	return 0;
}

int tlpy_put_number_or_call(struct draft *draft, int i, PyObject *object)
{
	if (Py_IS_TYPE(object, tlpy_call_type))
		return put_call(draft, i, (struct call *)object);
	return tlpy_put_number(draft, i, object);
}

/* The result of fileno(), or an integer of any kind. */
static PyObject *number_of_file(PyObject *object)
{
	PyObject *function, *number;

	if (PyIndex_Check(object))
		return PyNumber_Index(object);
	function = PyObject_GetAttrString(object, "fileno");
	if (!function) {
		if (PyErr_ExceptionMatches(PyExc_AttributeError))
			PyErr_Format(PyExc_TypeError, "%R is no descriptor: it has no fileno()",
				     object);
		return NULL;
	}
	number = PyObject_CallNoArgs(function);
	Py_DECREF(function);
	return number;
}

int tlpy_put_descriptor(struct draft *draft, int i, PyObject *object)
{
	int64_t found = 0;
	PyObject *number;
	int error;

	if (Py_IS_TYPE(object, tlpy_call_type))
		return put_call(draft, i, (struct call *)object);
	if (Py_IS_TYPE(object, tlpy_word_type))
		return put_word(draft, i, (struct word *)object);
	number = number_of_file(object);
	if (!number)
		return -1;
	error = tlpy_int(number, "descriptor", &found);
	if (!error && found > INT_MAX) {
		PyErr_Format(PyExc_OverflowError, "%R is no descriptor", number);
		error = -1;
	}
	Py_DECREF(number);
	draft->arguments[i].word = (uint64_t)found;
	return error;
}

/* ---- Paths ---------------------------------------------------------------------------------- */

static bool has_nul(PyObject *path, const char *text, Py_ssize_t bytes)
{
	if (strlen(text) == (size_t)bytes)
		return false;
	PyErr_Format(PyExc_ValueError, "a NUL byte in %R", path);
	return true;
}

const char *tlpy_path_text(PyObject *path, PyObject **owner)
{
	Py_ssize_t bytes;
	const char *text;

	*owner = NULL;
	if (PyUnicode_Check(path)) {
		text = PyUnicode_AsUTF8AndSize(path, &bytes);
		/* ASCII is the same in every encoding of file names, and needs no copy. */
		if (text && bytes == PyUnicode_GetLength(path)) {
			*owner = Py_NewRef(path);
			return has_nul(path, text, bytes) ? NULL : text;
		}
		PyErr_Clear();
		*owner = PyUnicode_EncodeFSDefault(path);
	} else {
		*owner = Py_NewRef(path);
	}
	if (!*owner)
		return NULL;
	text = PyBytes_AsString(*owner);
	if (!text || has_nul(path, text, PyBytes_Size(*owner)))
		return NULL;
	return text;
}

/* The path for messages: exact str or bytes, so that giving it back runs no code of Python. */
static PyObject *exact(PyObject *path)
{
	if (PyUnicode_Check(path))
		return PyUnicode_FromObject(path);
	return PyBytes_CheckExact(path) ? Py_NewRef(path) :
	       PyBytes_FromStringAndSize(PyBytes_AsString(path), PyBytes_Size(path));
}

static int remember_path(struct draft *draft, PyObject *path)
{
	int i = draft->paths[0] ? 1 : 0;

	draft->paths[i] = exact(path);
	return draft->paths[i] ? 0 : -1;
}

/* A path that the call only reads. */
int tlpy_put_path(struct draft *draft, int i, PyObject *object)
{
	struct kept *kept = keep(draft, 0);
	PyObject *path = kept ? PyOS_FSPath(object) : NULL;
	const char *text;
	int error;

	if (!path)
		return -1;
	text = tlpy_path_text(path, &kept->object);
	draft->arguments[i].word = (uintptr_t)text;
	error = text ? remember_path(draft, path) : -1;
	Py_DECREF(path);
	return error;
}

/* ---- Any argument --------------------------------------------------------------------------- */

static int put_text(struct draft *draft, int i, PyObject *text)
{
	PyObject *owner;
	const char *bytes = tlpy_path_text(text, &owner);
	int error = bytes ? put_copy(draft, i, bytes, strlen(bytes)) : -1;

	Py_XDECREF(owner);
	return error;
}

static bool is_text(PyObject *object)
{
	return PyUnicode_Check(object) || PyBytes_Check(object);
}

int tlpy_put_any(struct draft *draft, int i, PyObject *object)
{
	if (Py_IsNone(object))
		return 0;
	if (PyLong_Check(object))
		return tlpy_put_number(draft, i, object);
	if (Py_IS_TYPE(object, tlpy_call_type))
		return put_call(draft, i, (struct call *)object);
	if (PyObject_TypeCheck(object, tlpy_word_type))
		return put_word(draft, i, (struct word *)object);
	if (tlpy_paths_of(draft->nr) & 1u << i && is_text(object) && remember_path(draft, object))
		return -1;
	if (PyUnicode_Check(object))
		return put_text(draft, i, object);
	if (PyIndex_Check(object)) {
		if (!tlpy_put_number(draft, i, object))
			return 0;
		/* An array of numpy has __index__, and is a number where it holds just one. */
		if (!PyErr_ExceptionMatches(PyExc_TypeError))
			return -1;
		PyErr_Clear();
	}
	return put_buffer(draft, i, object);
}

/* The word that a step of a program writes. */
int tlpy_put_stepped(struct draft *draft, int i, PyObject *object)
{
	struct word *word = (struct word *)object;

	if (!PyObject_TypeCheck(object, tlpy_word_type)) {
		PyErr_Format(PyExc_TypeError, "a step writes to a Word, not to %R", object);
		return -1;
	}
	if (word->bits != 64) {
		PyErr_SetString(PyExc_ValueError, "a step writes 64 bits, not 32");
		return -1;
	}
	if (put_word(draft, i, word))
		return -1;
	draft->arguments[i].source = 0;
	return 0;
}
