// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The extension module libtrapless._ring. It owns the order in which its parts are set up, and
 * where it is refused.
 */
#include "extension.h"

/* Types and tables exist once in a process, so only one interpreter may have them. */
static int refuse_sub_interpreters(void)
{
	if (!PyInterpreterState_GetID(PyInterpreterState_Get()))
		return 0;
	PyErr_SetString(PyExc_ImportError,
			"libtrapless works in the main interpreter, not in sub-interpreters");
	return -1;
}

static int setup(PyObject *module)
{
	static PyObject *first;

	if (refuse_sub_interpreters())
		return -1;
	/* Imported once more, it is the same module: no two types are called Batch. */
	if (first)
		return PyDict_Update(PyModule_GetDict(module), PyModule_GetDict(first));
	if (tlpy_names_setup(module) || tlpy_call_setup(module) || tlpy_memory_setup(module) ||
	    tlpy_queue_setup(module) || tlpy_files_setup(module) ||
	    tlpy_folder_setup(module) || tlpy_direntry_setup(module) ||
	    tlpy_scandir_setup(module) || tlpy_engine_setup(module) ||
	    tlpy_descriptor_setup(module) || tlpy_status_setup())
		return -1;
	first = Py_NewRef(module);
	return 0;
}

static PyModuleDef_Slot slots[] = {
	{ Py_mod_exec, setup },
	{ 0, NULL },
};

static PyModuleDef definition = {
	PyModuleDef_HEAD_INIT,
	.m_name = "libtrapless._ring",
	.m_doc = "Batches of system calls: the C library inside an extension of Python.",
	.m_slots = slots,
};

PyMODINIT_FUNC PyInit__ring(void);
PyMODINIT_FUNC PyInit__ring(void)
{
	return PyModuleDef_Init(&definition);
}
