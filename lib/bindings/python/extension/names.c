// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The names of system calls, as the library's own table has them, and which of their arguments are
 * paths. It owns no behaviour.
 */
#include "extension.h"

#include <sys/syscall.h>

#define NAMES_MAX 1024

static PyObject *numbers;	/* a dict of names, which nobody changes once it is made */

/* Names as the program's constants have them: the same object comes again and again. */
#define RECENT 64
static struct recent {
	PyObject *name;
	uint32_t nr;
} recent[RECENT];

#define FIRST 1u
#define SECOND 2u
#define THIRD 4u
#define FOURTH 8u

static const uint8_t paths[NAMES_MAX] = {
	[SYS_acct] = FIRST, [SYS_chdir] = FIRST, [SYS_chroot] = FIRST, [SYS_execve] = FIRST,
	[SYS_getxattr] = FIRST, [SYS_lgetxattr] = FIRST, [SYS_listxattr] = FIRST,
	[SYS_llistxattr] = FIRST, [SYS_lremovexattr] = FIRST, [SYS_lsetxattr] = FIRST,
	[SYS_removexattr] = FIRST, [SYS_setxattr] = FIRST, [SYS_statfs] = FIRST,
	[SYS_swapoff] = FIRST, [SYS_swapon] = FIRST, [SYS_truncate] = FIRST, [SYS_umount2] = FIRST,
	[SYS_execveat] = SECOND, [SYS_faccessat] = SECOND, [SYS_faccessat2] = SECOND,
	[SYS_fchmodat] = SECOND, [SYS_fchownat] = SECOND, [SYS_inotify_add_watch] = SECOND,
	[SYS_mkdirat] = SECOND, [SYS_mknodat] = SECOND, [SYS_name_to_handle_at] = SECOND,
	[SYS_newfstatat] = SECOND, [SYS_openat] = SECOND, [SYS_openat2] = SECOND,
	[SYS_readlinkat] = SECOND, [SYS_statx] = SECOND, [SYS_unlinkat] = SECOND,
	[SYS_utimensat] = SECOND,
	[SYS_pivot_root] = FIRST | SECOND, [SYS_symlinkat] = FIRST | THIRD,
	[SYS_linkat] = SECOND | FOURTH, [SYS_renameat] = SECOND | FOURTH,
	[SYS_renameat2] = SECOND | FOURTH,
#ifdef SYS_open /* calls that arm64 has only by a folder, as openat */
	[SYS_access] = FIRST, [SYS_chmod] = FIRST, [SYS_chown] = FIRST, [SYS_creat] = FIRST,
	[SYS_lchown] = FIRST, [SYS_lstat] = FIRST, [SYS_mkdir] = FIRST, [SYS_mknod] = FIRST,
	[SYS_open] = FIRST, [SYS_readlink] = FIRST, [SYS_rmdir] = FIRST, [SYS_stat] = FIRST,
	[SYS_unlink] = FIRST, [SYS_utime] = FIRST, [SYS_utimes] = FIRST,
	[SYS_futimesat] = SECOND,
	[SYS_link] = FIRST | SECOND, [SYS_rename] = FIRST | SECOND, [SYS_symlink] = FIRST | SECOND,
#endif
	[452] = SECOND, /* fchmodat2, which older headers lack */
};

unsigned int tlpy_paths_of(uint32_t nr)
{
	return nr < NAMES_MAX ? paths[nr] : 0;
}

const char *tlpy_name_of(uint32_t nr, char *spare, size_t bytes)
{
	const char *name = NULL;

	nr &= TL_NR_MASK;
	if (nr == TL_NR_STORE)
		return "store";
	if (nr == TL_NR_INCREASE)
		return "increase";
	if (tl_call_get_class(nr, &name, NULL) >= 0 && name)
		return name;
	PyOS_snprintf(spare, bytes, "call %u", nr);
	return spare;
}

int tlpy_nr_of(PyObject *call, uint32_t *nr)
{
	struct recent *near;
	PyObject *found;
	uint64_t number;

	if (!PyUnicode_Check(call)) {
		if (tlpy_number(call, &number))
			return -1;
		if (number > UINT32_MAX) {
			PyErr_Format(PyExc_OverflowError, "%R is no number of a call", call);
			return -1;
		}
		*nr = (uint32_t)number;
		return 0;
	}
	near = &recent[((uintptr_t)call >> 4) % RECENT];
	if (near->name == call) {
		*nr = near->nr;
		return 0;
	}
	found = PyDict_GetItemWithError(numbers, call);
	if (!found) {
		if (!PyErr_Occurred())
			PyErr_Format(PyExc_ValueError, "no system call has the name %R", call);
		return -1;
	}
	*nr = (uint32_t)PyLong_AsUnsignedLong(found);
	if (PyUnicode_CheckExact(call)) {
		Py_XDECREF(near->name); /* exact text: that runs no code */
		near->name = Py_NewRef(call);
		near->nr = *nr;
	}
	return 0;
}

static PyObject *number(PyObject *module, PyObject *name)
{
	uint32_t nr;

	(void)module;
	if (!PyUnicode_Check(name))
		return PyErr_Format(PyExc_TypeError, "a call has a name, not %R", name);
	return tlpy_nr_of(name, &nr) ? NULL : PyLong_FromUnsignedLong(nr);
}

static PyMethodDef methods[] = {
	{ "number", number, METH_O,
	  "number(name, /)\n--\n\nThe number of a system call on this processor.\n\n"
	  ">>> number(\"openat2\")\n437\n" },
	{ NULL, NULL, 0, NULL },
};

int tlpy_names_setup(PyObject *module)
{
	numbers = PyDict_New();
	if (!numbers)
		return -1;
	for (uint32_t nr = 0; nr < NAMES_MAX; nr++) {
		const char *name = NULL;
		PyObject *value;
		int error;

		if (tl_call_get_class(nr, &name, NULL) < 0 || !name)
			continue;
		value = PyLong_FromUnsignedLong(nr);
		error = !value || PyDict_SetItemString(numbers, name, value);
		Py_XDECREF(value);
		if (error)
			return -1;
	}
	return PyModule_AddFunctions(module, methods);
}
