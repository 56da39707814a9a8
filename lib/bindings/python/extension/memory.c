// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Memory that programs of calls look at: a word of any buffer, and struct stat. It owns where a
 * word may stand, and the names of the fields.
 */
#include "extension.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>
#include <sys/stat.h>

PyTypeObject *tlpy_word_type, *tlpy_stat_type;

/* ---- Word ----------------------------------------------------------------------------------- */

bool tlpy_word_is_inside(const struct word *word, Py_ssize_t bytes)
{
	if (word->offset >= 0 && word->offset <= bytes - word->bits / 8)
		return true;
	PyErr_Format(PyExc_ValueError, "a word of %d bits at %zd is not in a buffer of %zd bytes",
		     word->bits, word->offset, bytes);
	return false;
}

static PyObject *word_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "buffer", "offset", "bits", NULL };
	allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
	struct word *word = (struct word *)allocate(type, 0);
	PyObject *buffer;
	Py_buffer view;
	bool inside;

	if (!word)
		return NULL;
	word->bits = 64;
	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|ni:Word", names, &buffer, &word->offset,
					 &word->bits))
		goto failed;
	if (word->bits != 32 && word->bits != 64) {
		PyErr_Format(PyExc_ValueError, "a word has 32 or 64 bits, not %d", word->bits);
		goto failed;
	}
	if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE))
		goto failed;
	inside = tlpy_word_is_inside(word, view.len);
	PyBuffer_Release(&view);
	if (!inside)
		goto failed;
	word->buffer = Py_NewRef(buffer);
	return (PyObject *)word;

failed:
	Py_DECREF(word);
	return NULL;
}

static PyObject *word_value(PyObject *self, void *unused)
{
	struct word *word = (struct word *)self;
	uint64_t value = 0;
	Py_buffer view;
	bool inside;

	(void)unused;
	if (PyObject_GetBuffer(word->buffer, &view, PyBUF_SIMPLE))
		return NULL;
	inside = tlpy_word_is_inside(word, view.len);
	if (inside)
		memcpy(&value, (char *)view.buf + word->offset, (size_t)word->bits / 8);
	PyBuffer_Release(&view);
	return inside ? PyLong_FromUnsignedLongLong(value) : NULL;
}

static int word_traverse(PyObject *self, visitproc visit, void *arg)
{
	Py_VISIT(Py_TYPE(self));
	Py_VISIT(((struct word *)self)->buffer);
	return 0;
}

static int word_clear(PyObject *self)
{
	Py_CLEAR(((struct word *)self)->buffer);
	return 0;
}

static void word_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(self);
	word_clear(self);
	release(self);
	Py_DECREF(type);
}

static PyObject *word_repr(PyObject *self)
{
	struct word *word = (struct word *)self;

	return PyUnicode_FromFormat("Word(%R, %zd, %d)", word->buffer, word->offset, word->bits);
}

static PyMemberDef word_members[] = {
	{ "buffer", T_OBJECT_EX, offsetof(struct word, buffer), READONLY, "The memory." },
	{ "offset", T_PYSSIZET, offsetof(struct word, offset), READONLY, "Where in it, in bytes." },
	{ "bits", T_INT, offsetof(struct word, bits), READONLY, "32 or 64." },
	{ NULL, 0, 0, 0, NULL },
};

static PyGetSetDef word_getters[] = {
	{ "value", word_value, NULL, "What is there now.", NULL },
	{ NULL, NULL, NULL, NULL, NULL },
};

static PyType_Slot word_slots[] = {
	{ Py_tp_doc, "Word(buffer, offset=0, bits=64)\n--\n\n"
		     "Bits of memory that are read when the call is made, not when it is queued." },
	{ Py_tp_new, word_new },
	{ Py_tp_dealloc, word_dealloc },
	{ Py_tp_traverse, word_traverse },
	{ Py_tp_clear, word_clear },
	{ Py_tp_repr, word_repr },
	{ Py_tp_members, word_members },
	{ Py_tp_getset, word_getters },
	{ 0, NULL },
};

static PyType_Spec word_spec = {
	.name = "libtrapless.Word",
	.basicsize = sizeof(struct word),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
	.slots = word_slots,
};

/* ---- Stat ----------------------------------------------------------------------------------- */

struct stat_buffer {
	PyObject_HEAD
	PyObject *weak;
	struct stat stat;
};

static int stat_view(PyObject *self, Py_buffer *view, int flags)
{
	struct stat_buffer *buffer = (struct stat_buffer *)self;

	return PyBuffer_FillInfo(view, self, &buffer->stat, sizeof(buffer->stat), 0, flags);
}

static void stat_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	if (((struct stat_buffer *)self)->weak)
		PyObject_ClearWeakRefs(self);
	release(self);
	Py_DECREF(type);
}

static PyObject *stat_repr(PyObject *self)
{
	const struct stat *stat = &((struct stat_buffer *)self)->stat;

	return PyUnicode_FromFormat("<Stat st_ino=%llu st_size=%lld>",
				    (unsigned long long)stat->st_ino, (long long)stat->st_size);
}

#define FIELD(name, field, type) \
	{ name, type, offsetof(struct stat_buffer, stat.field), READONLY, NULL }

#ifdef __x86_64__
#define STAT_BYTES 144
#define COUNT_OF_LINKS T_ULONG
#define BLOCK_BYTES T_LONG
#else /* arm64 */
#define STAT_BYTES 128
#define COUNT_OF_LINKS T_UINT
#define BLOCK_BYTES T_INT
#endif

_Static_assert(sizeof(struct stat) == STAT_BYTES && sizeof(dev_t) == 8 && sizeof(mode_t) == 4 &&
	       sizeof(nlink_t) == (COUNT_OF_LINKS == T_UINT ? 4 : 8) &&
	       sizeof(blksize_t) == (BLOCK_BYTES == T_INT ? 4 : 8), "struct stat");

static PyMemberDef stat_members[] = {
	FIELD("st_dev", st_dev, T_ULONG),
	FIELD("st_ino", st_ino, T_ULONG),
	FIELD("st_nlink", st_nlink, COUNT_OF_LINKS),
	FIELD("st_mode", st_mode, T_UINT),
	FIELD("st_uid", st_uid, T_UINT),
	FIELD("st_gid", st_gid, T_UINT),
	FIELD("st_rdev", st_rdev, T_ULONG),
	FIELD("st_size", st_size, T_LONG),
	FIELD("st_blksize", st_blksize, BLOCK_BYTES),
	FIELD("st_blocks", st_blocks, T_LONG),
	FIELD("st_atime", st_atim.tv_sec, T_LONG),
	FIELD("st_atime_ns", st_atim.tv_nsec, T_LONG),
	FIELD("st_mtime", st_mtim.tv_sec, T_LONG),
	FIELD("st_mtime_ns", st_mtim.tv_nsec, T_LONG),
	FIELD("st_ctime", st_ctim.tv_sec, T_LONG),
	FIELD("st_ctime_ns", st_ctim.tv_nsec, T_LONG),
	{ "__weaklistoffset__", T_PYSSIZET, offsetof(struct stat_buffer, weak), READONLY, NULL },
	{ NULL, 0, 0, 0, NULL },
};

static PyType_Slot stat_slots[] = {
	{ Py_tp_doc, "Stat()\n--\n\n"
		     "struct stat, which fstat and its kin write. Times are seconds and "
		     "nanoseconds." },
	{ Py_tp_dealloc, stat_dealloc },
	{ Py_tp_repr, stat_repr },
	{ Py_tp_members, stat_members },
	{ Py_bf_getbuffer, stat_view },
	{ 0, NULL },
};

static PyType_Spec stat_spec = {
	.name = "libtrapless.Stat",
	.basicsize = sizeof(struct stat_buffer),
	.flags = Py_TPFLAGS_DEFAULT,
	.slots = stat_slots,
};

int tlpy_memory_setup(PyObject *module)
{
	tlpy_word_type = (PyTypeObject *)PyType_FromSpec(&word_spec);
	tlpy_stat_type = (PyTypeObject *)PyType_FromSpec(&stat_spec);
	if (!tlpy_word_type || !tlpy_stat_type || PyModule_AddType(module, tlpy_word_type))
		return -1;
	return PyModule_AddType(module, tlpy_stat_type);
}
