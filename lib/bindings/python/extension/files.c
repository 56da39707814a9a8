// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Works on whole lists of files: stat, read, unlink. It owns its batches, which it makes without
 * the interpreter's lock, and the reading of a file that is longer than its buffer. What fails for
 * one file is an OSError in that file's place of the list.
 */
#include "extension.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define FILES_MAX 128u		/* files of one flush */
#define CALLS_OF_READ 4u	/* openat, read, read, close */
#define READ_BYTES 65536u
#define END_BYTES 4096u		/* the read that finds the end of the file */
#define SHARED_MIN 8u		/* neighbours for which their folder is opened first */

/* One list of files on its way. */
struct list {
	PyObject *paths;		/* a list of our own */
	PyObject *results;
	PyObject **owners;		/* of the texts */
	const char **texts;
	Py_ssize_t n;
	struct tl_batch *batch;
};

/* ---- Lists ----------------------------------------------------------------------------------- */

static void list_destroy(struct list *list)
{
	for (Py_ssize_t i = 0; list->owners && i < list->n; i++)
		Py_XDECREF(list->owners[i]);
	PyMem_Free(list->owners);
	PyMem_Free(list->texts);
	Py_XDECREF(list->results);
	Py_XDECREF(list->paths);
	tl_batch_destroy(list->batch);
}

/* Stores the text of path i. The list then holds the path itself, for messages. */
static int take_path(struct list *list, Py_ssize_t i)
{
	PyObject *path = PyOS_FSPath(PyList_GetItem(list->paths, i));

	if (!path)
		return -1;
	list->texts[i] = tlpy_path_text(path, &list->owners[i]);
	if (PyList_SetItem(list->paths, i, path) || !list->texts[i])
		return -1;
	return 0;
}

static int list_make(struct list *list, PyObject *paths, unsigned int calls)
{
	int error;

	memset(list, 0, sizeof(*list));
	if (PyUnicode_Check(paths) || PyBytes_Check(paths) ||
	    PyObject_HasAttrString(paths, "__fspath__")) {
		PyErr_SetString(PyExc_TypeError, "a list of paths, and not one path");
		return -1;
	}
	list->paths = PySequence_List(paths);
	if (!list->paths)
		return -1;
	list->n = PyList_Size(list->paths);
	list->owners = PyMem_Calloc((size_t)list->n, sizeof(*list->owners));
	list->texts = PyMem_Calloc((size_t)list->n, sizeof(*list->texts));
	list->results = PyList_New(list->n);
	if (!list->owners || !list->texts || !list->results) {
		PyErr_NoMemory();
		goto failed;
	}
	for (Py_ssize_t i = 0; i < list->n; i++)
		if (take_path(list, i))
			goto failed;
	error = tl_batch_create(&list->batch, FILES_MAX * calls, 0);
	if (!error)
		return 0;
	tlpy_raise_unmade(-error, "a batch");
failed:
	list_destroy(list);
	return -1;
}

static PyObject *list_finish(struct list *list, int error)
{
	PyObject *results = error ? NULL : Py_NewRef(list->results);

	list_destroy(list);
	return results;
}

/* Makes what is queued. Returns 0, or -1 with an exception, as that of a signal handler. */
static int flush(struct tl_batch *batch)
{
	int made;

	for (;;) {
		Py_BEGIN_ALLOW_THREADS
		made = tl_batch_flush(batch);
		Py_END_ALLOW_THREADS
		if (made < 0 && made != -EINTR) {
			tlpy_raise_error(-made, TLPY_LOST);
			return -1;
		}
		if (!tl_batch_queued(batch))
			return PyErr_CheckSignals();
		if (PyErr_CheckSignals())
			return -1;
	}
}

/* The error of a file, as an object; it is not raised. */
static PyObject *error_of(int64_t result, PyObject *path)
{
	return tlpy_path_error(result, (PyObject *const[]){ path, NULL });
}

static int put_result(struct list *list, Py_ssize_t i, PyObject *result)
{
	return result ? PyList_SetItem(list->results, i, result) : -1;
}

/* How many of the list's files the next flush is for. */
static unsigned int chunk(const struct list *list, Py_ssize_t done)
{
	return list->n - done < FILES_MAX ? (unsigned int)(list->n - done) : FILES_MAX;
}

/* ---- stat ------------------------------------------------------------------------------------ */

/* The length of the name of the path's folder, with its slash; 0 where the path names none. */
static size_t folder_bytes(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? (size_t)(slash - path) + 1 : 0;
}

/* How many of n paths, from the first on, lie in the folder of the first. */
static unsigned int neighbours(const char *const *texts, unsigned int n)
{
	size_t bytes = folder_bytes(texts[0]);
	unsigned int i = 1;

	while (i < n && bytes && folder_bytes(texts[i]) == bytes &&
	       !memcmp(texts[i], texts[0], bytes))
		i++;
	return i;
}

/* Opens the path's folder, so that the kernel walks to it once. -1: each path is walked to. */
static int open_folder(const char *path)
{
	size_t bytes = folder_bytes(path);
	char name[PATH_MAX];
	int fd;

	if (bytes >= sizeof(name))
		return -1;
	memcpy(name, path, bytes);
	name[bytes] = '\0';
	Py_BEGIN_ALLOW_THREADS
	fd = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	Py_END_ALLOW_THREADS
	return fd;
}

/* Queues the calls. Returns the number of folders that it has opened. */
static unsigned int queue_stats(const struct list *list, Py_ssize_t from, struct stat *stats,
				int flags, int folders[FILES_MAX / SHARED_MIN])
{
	unsigned int n = chunk(list, from), opened = 0, together;

	for (unsigned int i = 0; i < n; i += together) {
		const char *const *texts = &list->texts[from + i];
		int folder;

		together = neighbours(texts, n - i);
		folder = together < SHARED_MIN ? -1 : open_folder(texts[0]);
		if (folder >= 0)
			folders[opened++] = folder;
		for (unsigned int k = 0; k < together; k++)
			TL_ADD(list->batch, SYS_newfstatat, folder < 0 ? AT_FDCWD : folder,
			       texts[k] + (folder < 0 ? 0 : folder_bytes(texts[0])),
			       &stats[i + k], flags);
	}
	return opened;
}

static int stat_some(struct list *list, Py_ssize_t from, struct stat *stats, int flags)
{
	int folders[FILES_MAX / SHARED_MIN];
	unsigned int n = chunk(list, from);
	unsigned int opened = queue_stats(list, from, stats, flags, folders);
	int error = flush(list->batch);

	while (opened)
		close(folders[--opened]);
	if (error)
		return -1;
	for (unsigned int i = 0; i < n; i++) {
		int64_t result = tl_batch_result(list->batch, i);
		PyObject *found = !result ? tlpy_stat_object(&stats[i]) :
				  error_of(result, PyList_GetItem(list->paths, from + i));

		if (put_result(list, from + i, found))
			return -1;
	}
	return 0;
}

static PyObject *stat_files(PyObject *module, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "paths", "follow_symlinks", NULL };
	struct stat stats[FILES_MAX];
	struct list list;
	PyObject *paths;
	int follow = 1, error = 0;

	(void)module;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$p", names, &paths, &follow) ||
	    list_make(&list, paths, 1))
		return NULL;
	for (Py_ssize_t i = 0; i < list.n && !error; i += FILES_MAX)
		error = stat_some(&list, i, stats, follow ? 0 : AT_SYMLINK_NOFOLLOW);
	return list_finish(&list, error);
}

/* ---- unlink ---------------------------------------------------------------------------------- */

static PyObject *unlink_files(PyObject *module, PyObject *paths)
{
	struct list list;
	int error = 0;

	(void)module;
	if (list_make(&list, paths, 1))
		return NULL;
	for (Py_ssize_t from = 0; from < list.n && !error; from += FILES_MAX) {
		unsigned int n = chunk(&list, from);

		for (unsigned int i = 0; i < n; i++)
			TL_ADD(list.batch, SYS_unlinkat, AT_FDCWD, list.texts[from + i], 0);
		error = flush(list.batch);
		for (unsigned int i = 0; i < n && !error; i++) {
			int64_t result = tl_batch_result(list.batch, i);

			error = put_result(&list, from + i, !result ? Py_NewRef(Py_None) :
				error_of(result, PyList_GetItem(list.paths, from + i)));
		}
	}
	return list_finish(&list, error);
}

/* ---- read ------------------------------------------------------------------------------------ */

/* Where the two reads of one file write to. */
struct room {
	char whole[READ_BYTES];
	char end[END_BYTES];
};

/* Bytes that grow. */
struct text {
	char *bytes;
	size_t used, size;
};

static int text_put(struct text *text, const char *bytes, size_t n)
{
	if (text->size - text->used < n) {
		size_t size = 2 * text->size > text->used + n ? 2 * text->size : text->used + n;
		char *grown = PyMem_Realloc(text->bytes, size);

		if (!grown) {
			PyErr_NoMemory();
			return -1;
		}
		text->bytes = grown;
		text->size = size;
	}
	memcpy(text->bytes + text->used, bytes, n);
	text->used += n;
	return 0;
}

/* Reads on to the end of the file. Returns 0, an error of the file, or 1 with an exception. */
static int read_on(int fd, struct text *text, char *room)
{
	ssize_t got;

	for (;;) {
		Py_BEGIN_ALLOW_THREADS
		got = read(fd, room, READ_BYTES);
		Py_END_ALLOW_THREADS
		if (!got)
			return 0;
		if (got < 0 && errno != EINTR)
			return -errno;
		if (got < 0 ? PyErr_CheckSignals() : text_put(text, room, (size_t)got))
			return 1;
	}
}

/* A file that did not end where the batch looked for its end. */
static PyObject *read_long(int fd, struct room *room, int64_t first, int64_t second, PyObject *path)
{
	struct text text = { NULL, 0, 0 };
	PyObject *result = NULL;
	int error = 1;

	if (!text_put(&text, room->whole, (size_t)first) &&
	    !text_put(&text, room->end, (size_t)second))
		error = read_on(fd, &text, room->whole);
	if (error < 0)
		result = error_of(error, path);
	else if (!error)
		result = PyBytes_FromStringAndSize(text.bytes, (Py_ssize_t)text.used);
	PyMem_Free(text.bytes);
	return result;
}

static void queue_read(struct tl_batch *batch, const char *path, struct room *room)
{
	int opened = TL_ADD(batch, SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	int first = TL_ADD(batch, SYS_read | TL_RESULT(0), opened, room->whole, READ_BYTES);
	int second = TL_ADD(batch, SYS_read | TL_RESULT(0), opened, room->end, END_BYTES);
	int closed = TL_ADD(batch, SYS_close | TL_RESULT(0), opened);

	tl_batch_jump(batch, (unsigned int)first, TL_IF_ERROR, (unsigned int)closed);
	/* There is more: the file stays open. */
	tl_batch_jump(batch, (unsigned int)second, TL_IF_POSITIVE, tl_batch_next(batch));
}

/* The descriptor that a flush has left open, or -1. */
static int open_descriptor(const struct tl_batch *batch, unsigned int slot)
{
	int64_t fd = tl_batch_result(batch, slot);
	unsigned int closed = slot + CALLS_OF_READ - 1;

	if (!tl_batch_done(batch, slot) || fd < 0)
		return -1;
	return tl_batch_done(batch, closed) && tl_batch_result(batch, closed) != -ECANCELED ?
		       -1 : (int)fd;
}

static PyObject *file_object(struct tl_batch *batch, unsigned int slot, struct room *room,
			     PyObject *path)
{
	int64_t opened = tl_batch_result(batch, slot), first = tl_batch_result(batch, slot + 1);
	int64_t second = tl_batch_result(batch, slot + 2);
	int fd = open_descriptor(batch, slot);

	if (opened < 0)
		return error_of(opened, path);
	if (first < 0)
		return error_of(first, path);
	if (fd >= 0)
		return read_long(fd, room, first, second, path);
	return second < 0 ? error_of(second, path) :
			    PyBytes_FromStringAndSize(room->whole, (Py_ssize_t)first);
}

static int read_some(struct list *list, Py_ssize_t from, struct room *rooms)
{
	struct tl_batch *batch = list->batch;
	unsigned int n = chunk(list, from);
	int error;

	for (unsigned int i = 0; i < n; i++)
		queue_read(batch, list->texts[from + i], &rooms[i]);
	error = flush(batch);
	for (unsigned int i = 0; i < n && !error; i++)
		error = put_result(list, from + i,
				   file_object(batch, i * CALLS_OF_READ, &rooms[i],
					       PyList_GetItem(list->paths, from + i)));
	for (unsigned int i = 0; i < n; i++) {
		int fd = open_descriptor(batch, i * CALLS_OF_READ);

		if (fd >= 0)
			close(fd);
	}
	return error;
}

static PyObject *read_files(PyObject *module, PyObject *paths)
{
	struct room *rooms;
	struct list list;
	int error = 0;

	(void)module;
	if (list_make(&list, paths, CALLS_OF_READ))
		return NULL;
	rooms = PyMem_Malloc(FILES_MAX * sizeof(*rooms));
	if (!rooms) {
		PyErr_NoMemory();
		return list_finish(&list, -1);
	}
	for (Py_ssize_t i = 0; i < list.n && !error; i += FILES_MAX)
		error = read_some(&list, i, rooms);
	PyMem_Free(rooms);
	return list_finish(&list, error);
}

/* ---- Set-up ---------------------------------------------------------------------------------- */

static PyMethodDef methods[] = {
	{ "stat_files", (PyCFunction)(void (*)(void))stat_files, METH_VARARGS | METH_KEYWORDS,
	  "stat_files(paths, *, follow_symlinks=True)\n--\n\n"
	  "os.stat() of many files: a list of os.stat_result, with an OSError in the place of each "
	  "file for which it failed." },
	{ "read_files", read_files, METH_O,
	  "read_files(paths, /)\n--\n\n"
	  "The bytes of many files: a list of bytes, with an OSError in the place of each file "
	  "that could not be read." },
	{ "unlink_files", unlink_files, METH_O,
	  "unlink_files(paths, /)\n--\n\n"
	  "os.unlink() of many files: a list of None, with an OSError in the place of each file "
	  "for which it failed." },
	{ NULL, NULL, 0, NULL },
};

int tlpy_files_setup(PyObject *module)
{
	return PyModule_AddFunctions(module, methods);
}
