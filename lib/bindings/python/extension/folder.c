// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The entries of one folder, read without the interpreter's lock. It owns what is a folder and what
 * is not; _walk.py walks from folder to folder.
 */
#include "extension.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_BYTES 32768u

struct entry {
	uint64_t inode;
	int64_t offset;
	uint16_t bytes;
	uint8_t type;
	char name[];
};

/* Names with a byte before each that says what they are, and a NUL byte behind it. */
struct names {
	char *bytes;
	size_t used, size;
};

enum kind { IS_FILE = 'f', IS_FOLDER = 'd', IS_LINK_TO_FOLDER = 'l' };

static enum kind kind_of(int fd, const struct entry *entry)
{
	struct stat stat;
	bool link = entry->type == DT_LNK;

	if (entry->type != DT_LNK && entry->type != DT_UNKNOWN)
		return entry->type == DT_DIR ? IS_FOLDER : IS_FILE;
	if (!link && !fstatat(fd, entry->name, &stat, AT_SYMLINK_NOFOLLOW))
		link = S_ISLNK(stat.st_mode);
	if (fstatat(fd, entry->name, &stat, 0) || !S_ISDIR(stat.st_mode))
		return IS_FILE;
	return link ? IS_LINK_TO_FOLDER : IS_FOLDER;
}

static int put_name(struct names *names, enum kind kind, const char *name)
{
	size_t bytes = strlen(name) + 2;

	if (names->size - names->used < bytes) {
		size_t size = 2 * names->size + READ_BYTES;
		char *grown = realloc(names->bytes, size);

		if (!grown)
			return -ENOMEM;
		names->bytes = grown;
		names->size = size;
	}
	names->bytes[names->used] = (char)kind;
	memcpy(names->bytes + names->used + 1, name, bytes - 1);
	names->used += bytes;
	return 0;
}

static bool is_dots(const char *name)
{
	return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Takes the entries that one getdents64() has read. Without the interpreter's lock. */
static int take_entries(int fd, struct names *names, const char *buffer, long bytes)
{
	for (long at = 0; at < bytes;) {
		const struct entry *entry = (const void *)(buffer + at);
		int error = is_dots(entry->name) ? 0 :
			    put_name(names, kind_of(fd, entry), entry->name);

		if (error)
			return error;
		at += entry->bytes;
	}
	return 0;
}

/* Returns 0 or an error. Without the interpreter's lock. */
static int read_folder(const char *path, struct names *names)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
	char buffer[READ_BYTES] __attribute__((aligned(8)));
	long bytes;

	if (fd < 0)
		return -errno;
	while (!error && (bytes = syscall(SYS_getdents64, fd, buffer, sizeof(buffer))) != 0)
		error = bytes < 0 ? -errno : take_entries(fd, names, buffer, bytes);
	close(fd);
	return error;
}

/* Sorts the names into three lists: folders, other files, folders that are links. */
static PyObject *lists_of(const struct names *names, bool text)
{
	PyObject *lists = Py_BuildValue("([][][])");

	for (size_t at = 0; lists && at < names->used;) {
		const char *name = names->bytes + at + 1;
		Py_ssize_t bytes = (Py_ssize_t)strlen(name);
		PyObject *object = text ? PyUnicode_DecodeFSDefaultAndSize(name, bytes) :
					  PyBytes_FromStringAndSize(name, bytes);
		char kind = names->bytes[at];
		int error = !object ||
			    PyList_Append(PyTuple_GetItem(lists, kind == IS_FILE), object) ||
			    (kind == IS_LINK_TO_FOLDER &&
			     PyList_Append(PyTuple_GetItem(lists, 2), object));

		Py_XDECREF(object);
		if (error)
			Py_CLEAR(lists);
		at += (size_t)bytes + 2;
	}
	return lists;
}

static PyObject *list_folder(PyObject *module, PyObject *path)
{
	struct names names = { NULL, 0, 0 };
	PyObject *owner, *lists = NULL, *paths[2] = { path, NULL };
	const char *text;
	int error;

	(void)module;
	if (!PyUnicode_Check(path) && !PyBytes_Check(path))
		return PyErr_Format(PyExc_TypeError, "a path is text or bytes, not %R", path);
	text = tlpy_path_text(path, &owner);
	if (text) {
		Py_BEGIN_ALLOW_THREADS
		error = read_folder(text, &names);
		Py_END_ALLOW_THREADS
		lists = error ? tlpy_raise_result(error, "scandir", paths) :
				lists_of(&names, PyUnicode_Check(path));
	}
	Py_XDECREF(owner);
	free(names.bytes);
	return lists;
}

static PyMethodDef methods[] = {
	{ "list_folder", list_folder, METH_O,
	  "list_folder(path, /)\n--\n\n"
	  "The names in a folder: folders (and links to them), other files, and those of the "
	  "folders that are links." },
	{ NULL, NULL, 0, NULL },
};

int tlpy_folder_setup(PyObject *module)
{
	return PyModule_AddFunctions(module, methods);
}
