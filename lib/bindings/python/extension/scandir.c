// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Iterators over one folder and over a tree, whose entries know their attributes. It owns the
 * iterators; the library reads, and direntry.c owns what an entry answers.
 */
#include "extension.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static PyTypeObject *type_of_scans, *type_of_trees;

/* A reader of the library that no iterator uses, for the next one; of the process `spare_of`. */
static struct tl_scan *spare;
static pid_t spare_of;

struct iterator {
	PyObject_HEAD
	struct tl_scan *scan;	/* one of the two, or none: closed */
	struct tl_walk *walk;
	PyObject *path;		/* as it was given, or its __fspath__() */
	bool as_bytes;
	bool inside;		/* a thread is in the library, without the interpreter's lock */
	/* Of a scan: the path of an entry, which begins with that of the folder. */
	char *text;
	size_t folder_bytes;
};

/* ---- Both ------------------------------------------------------------------------------------ */

static void iterator_end(struct iterator *iterator)
{
	struct tl_scan *scan = iterator->scan;
	struct tl_walk *walk = iterator->walk;

	iterator->scan = NULL;
	iterator->walk = NULL;
	tl_walk_destroy(walk);
	if (!scan)
		return;
	tl_scan_close(scan);
	if (spare) {
		tl_scan_destroy(scan);
		return;
	}
	spare = scan;
	spare_of = getpid();
}

static void iterator_dealloc(PyObject *self)
{
	struct iterator *iterator = (struct iterator *)self;
	PyTypeObject *type = Py_TYPE(self);

	iterator_end(iterator);
	PyMem_Free(iterator->text);
	Py_XDECREF(iterator->path);
	PyObject_Free(self);
	Py_DECREF(type);
}

static int iterator_use(struct iterator *iterator)
{
	if (!iterator->inside)
		return 0;
	PyErr_SetString(PyExc_RuntimeError, "another thread uses this iterator");
	return -1;
}

static PyObject *iterator_close(PyObject *self, PyObject *unused)
{
	struct iterator *iterator = (struct iterator *)self;

	(void)unused;
	if (iterator_use(iterator))
		return NULL;
	iterator_end(iterator);
	Py_RETURN_NONE;
}

static PyObject *iterator_enter(PyObject *self, PyObject *unused)
{
	(void)unused;
	return Py_NewRef(self);
}

/* Makes an iterator for a path. *text is the path as the kernel takes it, and *owner owns it. */
static struct iterator *iterator_create(PyTypeObject *type, PyObject *path, const char **text,
					PyObject **owner)
{
	struct iterator *iterator;

	*owner = NULL;
	path = PyOS_FSPath(path);
	if (!path)
		return NULL;
	*text = tlpy_path_text(path, owner);
	iterator = *text ? PyObject_New(struct iterator, type) : NULL;
	if (!iterator) {
		Py_DECREF(path);
		return NULL;
	}
	memset((char *)iterator + sizeof(iterator->ob_base), 0,
	       sizeof(*iterator) - sizeof(iterator->ob_base));
	iterator->path = path;
	iterator->as_bytes = PyBytes_Check(path);
	return iterator;
}

/* The iterator, or NULL with an exception for an error of the library. */
static PyObject *iterator_return(struct iterator *iterator, PyObject *owner, int error)
{
	PyObject *paths[2] = { iterator->path, NULL };

	Py_XDECREF(owner);
	if (!error)
		return (PyObject *)iterator;
	tlpy_raise_result(error, "open", paths);
	Py_DECREF(iterator);
	return NULL;
}

/* ---- One folder ------------------------------------------------------------------------------ */

static int open_scan(struct iterator *iterator, const char *text)
{
	int error = 0;

	if (spare && spare_of == getpid()) {
		iterator->scan = spare;
		spare = NULL;
	} else {
		error = tl_scan_create(&iterator->scan, 0, 0);
	}
	if (error)
		return error;
	iterator->inside = true;
	Py_BEGIN_ALLOW_THREADS
	error = tl_scan_open(iterator->scan, AT_FDCWD, text);
	Py_END_ALLOW_THREADS
	iterator->inside = false;
	return error;
}

static PyObject *scandir(PyObject *module, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "path", NULL };
	PyObject *path = NULL, *owner, *current = NULL;
	struct iterator *iterator;
	const char *text;
	size_t bytes;

	(void)module;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &path))
		return NULL;
	if (!path || path == Py_None)
		path = current = PyUnicode_FromString(".");
	iterator = path ? iterator_create(type_of_scans, path, &text, &owner) : NULL;
	Py_XDECREF(current);
	if (!iterator) {
		Py_XDECREF(owner);
		return NULL;
	}
	bytes = strlen(text);
	iterator->text = PyMem_Malloc(bytes + 1 + TL_SCAN_ENTRY_MAX);
	if (!iterator->text)
		return iterator_return(iterator, owner, -ENOMEM);
	memcpy(iterator->text, text, bytes);
	if (bytes && text[bytes - 1] != '/')
		iterator->text[bytes++] = '/';
	iterator->folder_bytes = bytes;
	return iterator_return(iterator, owner, open_scan(iterator, text));
}

static PyObject *scan_next(PyObject *self)
{
	struct iterator *iterator = (struct iterator *)self;
	struct tl_scan *scan = iterator->scan;
	PyObject *paths[2] = { iterator->path, NULL };
	const struct tl_scan_entry *entry;
	struct tl_walk_entry found;
	int result;

	if (!scan || iterator_use(iterator))
		return NULL;
	iterator->inside = true;
	Py_BEGIN_ALLOW_THREADS
	result = tl_scan_next(scan, &entry);
	Py_END_ALLOW_THREADS
	iterator->inside = false;
	if (result != 1)
		iterator_end(iterator);
	if (result < 0)
		return tlpy_raise_result(result, "getdents64", paths);
	if (!result)
		return NULL;
	memcpy(iterator->text + iterator->folder_bytes, tl_scan_name(entry), entry->name_bytes);
	found = (struct tl_walk_entry){
		.error = entry->error,
		.depth = 1,
		.name_bytes = entry->name_bytes,
		.path_bytes = iterator->folder_bytes + entry->name_bytes,
		.path = iterator->text,
		.name = iterator->text + iterator->folder_bytes,
		.attributes = entry,
	};
	return tlpy_entry_create(&found, "entry", iterator->as_bytes);
}

/* ---- A tree ---------------------------------------------------------------------------------- */

static const char *const kinds[] = {
	[TL_WALK_ENTRY] = "entry", [TL_WALK_LEFT] = "left", [TL_WALK_CYCLE] = "cycle",
	[TL_WALK_UNREADABLE] = "unreadable",
};

static int take_order(const char *order, unsigned int *flags)
{
	if (!order)
		return 0;
	if (!strcmp(order, "name"))
		*flags |= TL_WALK_BY_NAME;
	else if (!strcmp(order, "inode"))
		*flags |= TL_WALK_BY_INODE;
	else {
		PyErr_Format(PyExc_ValueError, "order is 'name', 'inode' or None, not '%s'",
			     order);
		return -1;
	}
	return 0;
}

static int take_descriptors(int given, unsigned int *descriptors)
{
	if (given < 0 || given == 1 || given == 2) {
		PyErr_Format(PyExc_ValueError, "descriptors=%d: it is 3 or more, or 0 for 64",
			     given);
		return -1;
	}
	*descriptors = (unsigned int)given;
	return 0;
}

static PyObject *scantree(PyObject *module, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "top", "order", "breadth_first", "leave", "one_device",
				 "follow_symlinks", "descriptors", NULL };
	int breadth = 0, leave = 0, one_device = 0, follow = 0, given = 0, error;
	unsigned int flags = TL_WALK_FOLLOW_ROOT, descriptors;
	struct iterator *iterator;
	PyObject *top, *owner;
	const char *order = NULL, *text;

	(void)module;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|$zppppi", names, &top, &order, &breadth,
					 &leave, &one_device, &follow, &given) ||
	    take_order(order, &flags) || take_descriptors(given, &descriptors))
		return NULL;
	if (leave && breadth) {
		PyErr_SetString(PyExc_ValueError, "leave is for walks that are depth first");
		return NULL;
	}
	flags |= (breadth ? TL_WALK_BREADTH_FIRST : 0) | (leave ? TL_WALK_LEAVE : 0) |
		 (one_device ? TL_WALK_ONE_DEVICE : 0) | (follow ? TL_WALK_FOLLOW : 0);
	iterator = iterator_create(type_of_trees, top, &text, &owner);
	if (!iterator) {
		Py_XDECREF(owner);
		return NULL;
	}
	Py_BEGIN_ALLOW_THREADS
	error = tl_walk_create(&iterator->walk, AT_FDCWD, text, 0, flags, descriptors);
	Py_END_ALLOW_THREADS
	return iterator_return(iterator, owner, error);
}

static PyObject *tree_next(PyObject *self)
{
	struct iterator *iterator = (struct iterator *)self;
	const struct tl_walk_entry *entry;
	int result;

	if (!iterator->walk || iterator_use(iterator))
		return NULL;
	iterator->inside = true;
	Py_BEGIN_ALLOW_THREADS
	result = tl_walk_next(iterator->walk, &entry);
	Py_END_ALLOW_THREADS
	iterator->inside = false;
	if (result == 1)
		return tlpy_entry_create(entry, kinds[entry->kind], iterator->as_bytes);
	iterator_end(iterator);
	return result ? PyErr_NoMemory() : NULL;
}

static PyObject *tree_skip(PyObject *self, PyObject *unused)
{
	struct iterator *iterator = (struct iterator *)self;

	(void)unused;
	if (iterator_use(iterator))
		return NULL;
	if (iterator->walk)
		tl_walk_skip(iterator->walk);
	Py_RETURN_NONE;
}

/* ---- Set-up ---------------------------------------------------------------------------------- */

#define CLOSES \
	{ "close", iterator_close, METH_NOARGS, "close($self, /)\n--\n\nEnds the iterator." }, \
	{ "__enter__", iterator_enter, METH_NOARGS, NULL }, \
	{ "__exit__", iterator_close, METH_VARARGS, NULL }

static PyMethodDef scan_methods[] = { CLOSES, { NULL, NULL, 0, NULL } };
static PyMethodDef tree_methods[] = {
	{ "skip", tree_skip, METH_NOARGS,
	  "skip($self, /)\n--\n\nLeaves out what is in the folder that came last." },
	CLOSES, { NULL, NULL, 0, NULL },
};

static PyType_Slot scan_slots[] = {
	{ Py_tp_doc, "An iterator over the entries of a folder, which scandir() makes." },
	{ Py_tp_dealloc, iterator_dealloc },
	{ Py_tp_iter, PyObject_SelfIter },
	{ Py_tp_iternext, scan_next },
	{ Py_tp_methods, scan_methods },
	{ 0, NULL },
};

static PyType_Slot tree_slots[] = {
	{ Py_tp_doc, "An iterator over the entries of a tree, which scantree() makes." },
	{ Py_tp_dealloc, iterator_dealloc },
	{ Py_tp_iter, PyObject_SelfIter },
	{ Py_tp_iternext, tree_next },
	{ Py_tp_methods, tree_methods },
	{ 0, NULL },
};

#define SPEC(type, its_slots) { \
	.name = type, \
	.basicsize = sizeof(struct iterator), \
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE | \
		 Py_TPFLAGS_DISALLOW_INSTANTIATION, \
	.slots = its_slots, \
}

static PyType_Spec scan_spec = SPEC("libtrapless.Scan", scan_slots);
static PyType_Spec tree_spec = SPEC("libtrapless.Tree", tree_slots);

static PyMethodDef methods[] = {
	{ "scandir", (PyCFunction)(void (*)(void))scandir, METH_VARARGS | METH_KEYWORDS,
	  "scandir(path='.')\n--\n\n"
	  "os.scandir(), whose entries know their attributes: stat() of an entry makes no call, "
	  "unless it follows a link." },
	{ "scantree", (PyCFunction)(void (*)(void))scantree, METH_VARARGS | METH_KEYWORDS,
	  "scantree(top, *, order=None, breadth_first=False, leave=False, one_device=False, "
	  "follow_symlinks=False, descriptors=0)\n--\n\n"
	  "An iterator over all entries of a tree with their attributes, the top first.\n"
	  "A top that is absent raises its error; other errors come as entries.\n\n"
	  "Entries answer what those of scandir() answer, and have `depth` (0 is the\n"
	  "top), `kind` and `error`:\n\n"
	  "'entry'       A file or a folder; what is in a folder follows it. `error` is\n"
	  "              None, or why there are no attributes: stat() raises it, too.\n"
	  "'unreadable'  A folder, which has come before, could not be opened or read to\n"
	  "              its end: `error` says why.\n"
	  "'cycle'       A folder that is its own ancestor, by a bind mount or a link that\n"
	  "              was followed. It is not entered.\n"
	  "'left'        With `leave`: a folder once more, after everything in it.\n\n"
	  "skip() of the iterator leaves out what is in the folder that came last.\n\n"
	  "order            How the entries of a folder come: by 'name', by 'inode' (a disk\n"
	  "                 reads files faster so), or None, as the folder has them.\n"
	  "breadth_first    All entries of a depth come before those of the next.\n"
	  "leave            Folders come once more, as 'left'. Not with breadth_first.\n"
	  "one_device       No folder of another file system than the top's is entered.\n"
	  "follow_symlinks  Links are followed; one that leads nowhere comes as a link. The\n"
	  "                 top is followed in any case.\n"
	  "descriptors      So many folders are open at once, 3 or more; 0 means 64." },
	{ NULL, NULL, 0, NULL },
};

int tlpy_scandir_setup(PyObject *module)
{
	type_of_scans = (PyTypeObject *)PyType_FromSpec(&scan_spec);
	type_of_trees = (PyTypeObject *)PyType_FromSpec(&tree_spec);
	return type_of_scans && type_of_trees ? PyModule_AddFunctions(module, methods) : -1;
}
