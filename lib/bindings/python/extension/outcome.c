// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * What an operation on files returns to Python: a value of the language or an error, and how a
 * future of asyncio gets it; and the outcomes that nobody awaits at an engine's end. engine.c owns
 * the operations.
 */
#include "engine.h"

#include <poll.h>
#include <string.h>
#include <unistd.h>

#define GRACE_MS 100		/* without a completion: what is still under way blocks */

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

PyObject *tlpy_outcome_value(enum value_kind kind, const struct tl_files_result *result)
{
	switch (kind) {
	case KIND_BYTES:
		return PyBytes_FromStringAndSize(result->data, (Py_ssize_t)result->result);
	case KIND_STATUS:
		return tlpy_stat_object(result->data);
	case KIND_NAMES:
		return names_of(result->data, result->result);
	default:
		return PyLong_FromLongLong(result->result);
	}
}

/* Whether the exception that is set says that a future was done. It is cleared then. */
static bool was_done(void)
{
	PyObject *type, *error, *traceback, *asyncio, *invalid_state;
	bool done;

	PyErr_Fetch(&type, &error, &traceback);
	asyncio = PyImport_ImportModule("asyncio");
	invalid_state = asyncio ? PyObject_GetAttrString(asyncio, "InvalidStateError") : NULL;
	done = invalid_state && PyErr_GivenExceptionMatches(type, invalid_state);
	Py_XDECREF(asyncio);
	Py_XDECREF(invalid_state);
	PyErr_Restore(type, error, traceback);
	if (done)
		PyErr_Clear();
	return done;
}

/*
 * Calls future.set_result(value) or the like. Returns 1, 0 if the future was done before, or -1
 * with an exception, such as one of the loop's call_soon(), when the future has the value.
 */
static int tell(PyObject *future, const char *name, PyObject *value)
{
	PyObject *method = PyUnicode_InternFromString(name), *returned;

	returned = method ? PyObject_CallMethodObjArgs(future, method, value, NULL) : NULL;
	Py_XDECREF(method);
	Py_XDECREF(returned);
	if (returned)
		return 1;
	/* A future that is done refuses: its task was cancelled. */
	return was_done() ? 0 : -1;
}

int tlpy_outcome_set(PyObject *future, PyObject *value)
{
	return tell(future, "set_result", value);
}

int tlpy_outcome_set_error(PyObject *future, PyObject *error)
{
	return tell(future, "set_exception", error);
}

int tlpy_outcome_raise(PyObject *future)
{
	PyObject *type, *error, *traceback;
	int told;

	PyErr_Fetch(&type, &error, &traceback);
	PyErr_NormalizeException(&type, &error, &traceback);
	told = tlpy_outcome_set_error(future, error);
	Py_XDECREF(type);
	Py_XDECREF(error);
	Py_XDECREF(traceback);
	return told;
}

void tlpy_take_rest(struct tl_files *files, struct entry *entries, uint32_t n)
{
	struct pollfd ready = { .fd = tl_files_fd(files), .events = POLLIN };
	struct tl_files_result result;

	if (ready.fd < 0) /* this is the child of a fork, in which nothing is under way */
		return;
	for (uint32_t id = 0; id < n; id++)
		if (entries[id].future)
			tl_files_cancel(files, entries[id].op);
	do {
		while (tl_files_next(files, &result) == 1) {
			struct entry *entry = &entries[result.user_data];

			if (entry->kind == KIND_DESCRIPTOR && result.result >= 0)
				close((int)result.result);
			tl_files_release(files, result.op);
			entry->op = NULL;
		}
	} while (tl_files_pending(files) && poll(&ready, 1, GRACE_MS) == 1);
}
