// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Entries of directories that know their attributes already. It owns what an entry answers, which
 * is what os.DirEntry answers; where entries come from is the business of scandir.c.
 */
#include "extension.h"

#include <dirent.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

static PyTypeObject *type_of_entries;

struct entry {
	PyObject_HEAD
	PyObject *name, *path;
	struct stat stat;	/* valid without `failed` */
	int failed;		/* the errno of reading them, or 0 */
	uint8_t type;		/* DT_* */
	uint64_t inode;
	/* In a tree. */
	unsigned int depth;
	const char *kind;
	int error;		/* an errno, or 0 */
};

static PyObject *text_of(const char *bytes, Py_ssize_t n, bool as_bytes)
{
	return as_bytes ? PyBytes_FromStringAndSize(bytes, n) :
			  PyUnicode_DecodeFSDefaultAndSize(bytes, n);
}

static void set_stat(struct stat *stat, const struct tl_scan_entry *entry)
{
	stat->st_mode = entry->mode;
	stat->st_ino = entry->ino;
	stat->st_dev = makedev(entry->dev_major, entry->dev_minor);
	stat->st_rdev = makedev(entry->rdev_major, entry->rdev_minor);
	stat->st_nlink = entry->nlink;
	stat->st_uid = entry->uid;
	stat->st_gid = entry->gid;
	stat->st_size = (off_t)entry->bytes;
	stat->st_blksize = entry->blksize;
	stat->st_blocks = (blkcnt_t)entry->blocks;
	stat->st_atim = (struct timespec){ entry->atime_sec, entry->atime_nsec };
	stat->st_mtim = (struct timespec){ entry->mtime_sec, entry->mtime_nsec };
	stat->st_ctim = (struct timespec){ entry->ctime_sec, entry->ctime_nsec };
}

PyObject *tlpy_entry_create(const struct tl_walk_entry *found, const char *kind, bool as_bytes)
{
	const struct tl_scan_entry *attributes = found->attributes;
	struct entry *entry = PyObject_New(struct entry, type_of_entries);

	if (!entry)
		return NULL;
	entry->name = text_of(found->name, (Py_ssize_t)found->name_bytes, as_bytes);
	entry->path = text_of(found->path, (Py_ssize_t)found->path_bytes, as_bytes);
	entry->failed = -attributes->error;
	entry->type = attributes->type;
	entry->inode = attributes->d_ino ? attributes->d_ino : attributes->ino;
	entry->depth = found->depth;
	entry->kind = kind;
	entry->error = -found->error;
	set_stat(&entry->stat, attributes);
	if (entry->name && entry->path)
		return (PyObject *)entry;
	Py_DECREF(entry);
	return NULL;
}

static void entry_dealloc(PyObject *self)
{
	struct entry *entry = (struct entry *)self;
	PyTypeObject *type = Py_TYPE(self);

	Py_XDECREF(entry->name);
	Py_XDECREF(entry->path);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* ---- Questions ------------------------------------------------------------------------------- */

static bool is_link(const struct entry *entry)
{
	return entry->failed ? entry->type == DT_LNK : S_ISLNK(entry->stat.st_mode);
}

/* Stores the attributes, by a call if it is a link that is followed. Returns 0 or an errno. */
static int attributes_of(struct entry *entry, bool follow, struct stat *stat_out)
{
	PyObject *owner;
	const char *path;
	int error = 0;

	if (!follow || !is_link(entry)) {
		*stat_out = entry->stat;
		return entry->failed;
	}
	path = tlpy_path_text(entry->path, &owner);
	if (!path)
		return -1;
	Py_BEGIN_ALLOW_THREADS
	if (stat(path, stat_out))
		error = errno;
	Py_END_ALLOW_THREADS
	Py_DECREF(owner);
	return error;
}

static int take_follow(PyObject *args, PyObject *kwargs, int *follow)
{
	static char *names[] = { "follow_symlinks", NULL };

	*follow = 1;
	return PyArg_ParseTupleAndKeywords(args, kwargs, "|$p", names, follow) ? 0 : -1;
}

static PyObject *raise_for(struct entry *entry, int error)
{
	PyObject *paths[2] = { entry->path, NULL };

	return error < 0 ? NULL : tlpy_raise_result(-error, "statx", paths);
}

static PyObject *entry_stat(PyObject *self, PyObject *args, PyObject *kwargs)
{
	struct entry *entry = (struct entry *)self;
	struct stat found;
	int follow, error;

	if (take_follow(args, kwargs, &follow))
		return NULL;
	error = attributes_of(entry, follow, &found);
	return error ? raise_for(entry, error) : tlpy_stat_object(&found);
}

/* A file that is not there is of no type; any other error is raised, as os.DirEntry does. */
static PyObject *entry_is(PyObject *self, PyObject *args, PyObject *kwargs, mode_t format)
{
	struct entry *entry = (struct entry *)self;
	struct stat found;
	int follow, error;

	if (take_follow(args, kwargs, &follow))
		return NULL;
	if (entry->failed && entry->type != DT_UNKNOWN && !(follow && is_link(entry)))
		return PyBool_FromLong(entry->type == IFTODT(format));
	error = attributes_of(entry, follow, &found);
	if (error && error != ENOENT)
		return raise_for(entry, error);
	return PyBool_FromLong(!error && (found.st_mode & S_IFMT) == format);
}

static PyObject *entry_is_dir(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return entry_is(self, args, kwargs, S_IFDIR);
}

static PyObject *entry_is_file(PyObject *self, PyObject *args, PyObject *kwargs)
{
	return entry_is(self, args, kwargs, S_IFREG);
}

static PyObject *entry_is_symlink(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyBool_FromLong(is_link((struct entry *)self));
}

static PyObject *entry_inode(PyObject *self, PyObject *unused)
{
	(void)unused;
	return PyLong_FromUnsignedLongLong(((struct entry *)self)->inode);
}

static PyObject *entry_fspath(PyObject *self, PyObject *unused)
{
	(void)unused;
	return Py_NewRef(((struct entry *)self)->path);
}

static PyObject *entry_error(PyObject *self, void *unused)
{
	struct entry *entry = (struct entry *)self;

	(void)unused;
	if (!entry->error)
		Py_RETURN_NONE;
	return PyObject_CallFunction(PyExc_OSError, "iNO", entry->error,
				     tlpy_error_text(entry->error), entry->path);
}

static PyObject *entry_kind(PyObject *self, void *unused)
{
	(void)unused;
	return PyUnicode_FromString(((struct entry *)self)->kind);
}

static PyObject *entry_repr(PyObject *self)
{
	return PyUnicode_FromFormat("<DirEntry %R>", ((struct entry *)self)->name);
}

/* ---- Set-up ---------------------------------------------------------------------------------- */

#define WITH_NAMES METH_VARARGS | METH_KEYWORDS
#define CALL(function) (PyCFunction)(void (*)(void))function

static PyMethodDef entry_methods[] = {
	{ "stat", CALL(entry_stat), WITH_NAMES,
	  "stat($self, /, *, follow_symlinks=True)\n--\n\n"
	  "The os.stat_result. A call is only made for a link that is followed." },
	{ "is_dir", CALL(entry_is_dir), WITH_NAMES,
	  "is_dir($self, /, *, follow_symlinks=True)\n--\n\nIs it a folder?" },
	{ "is_file", CALL(entry_is_file), WITH_NAMES,
	  "is_file($self, /, *, follow_symlinks=True)\n--\n\nIs it a regular file?" },
	{ "is_symlink", entry_is_symlink, METH_NOARGS,
	  "is_symlink($self, /)\n--\n\nIs it a symbolic link?" },
	{ "inode", entry_inode, METH_NOARGS,
	  "inode($self, /)\n--\n\nThe inode that its folder has." },
	{ "__fspath__", entry_fspath, METH_NOARGS, "__fspath__($self, /)\n--\n\nThe path." },
	{ NULL, NULL, 0, NULL },
};

static PyMemberDef entry_members[] = {
	{ "name", T_OBJECT_EX, offsetof(struct entry, name), READONLY, "Its name in its folder." },
	{ "path", T_OBJECT_EX, offsetof(struct entry, path), READONLY, "Folder and name." },
	{ "depth", T_UINT, offsetof(struct entry, depth), READONLY, "In a tree; 0 is the root." },
	{ NULL, 0, 0, 0, NULL },
};

static PyGetSetDef entry_getters[] = {
	{ "kind", entry_kind, NULL,
	  "'entry', 'left', 'cycle' or 'unreadable', as scantree() says.", NULL },
	{ "error", entry_error, NULL,
	  "Why its attributes, or the names in it, could not be read: an OSError, or None.", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot entry_slots[] = {
	{ Py_tp_doc, "An entry of a folder, with its attributes. As os.DirEntry." },
	{ Py_tp_dealloc, entry_dealloc },
	{ Py_tp_repr, entry_repr },
	{ Py_tp_methods, entry_methods },
	{ Py_tp_members, entry_members },
	{ Py_tp_getset, entry_getters },
	{ 0, NULL },
};

static PyType_Spec entry_spec = {
	.name = "libtrapless.DirEntry",
	.basicsize = sizeof(struct entry),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE |
		 Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = entry_slots,
};

int tlpy_direntry_setup(PyObject *module)
{
	type_of_entries = (PyTypeObject *)PyType_FromSpec(&entry_spec);
	return type_of_entries ? PyModule_AddType(module, type_of_entries) : -1;
}
