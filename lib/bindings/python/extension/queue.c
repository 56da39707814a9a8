// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * A batch of the library, and the calls and the memory in its slots. It owns when a call enters the
 * ring, when it gets its result and when its memory is given back; calls.c owns which arguments
 * each call has, and batch.c what the types are.
 */
#include "extension.h"

#include <errno.h>
#include <string.h>

static uint64_t last_id;

/* ---- What may be used now -------------------------------------------------------------------- */

PyObject *tlpy_raise_error(int error, const char *what)
{
	static PyObject *none[2];

	return tlpy_raise_result(-error, what, none);
}

/* Says why no object of the library could be made, and what helps; `otherwise` for other errors. */
static const char *cause(int error, const char *otherwise)
{
	switch (error) {
	case ENODEV:
		return "the module is not loaded (" TL_DEVICE " is missing): load it, or let the "
		       "library make the calls (backend=None, TRAPLESS_BACKEND=auto)";
	case EACCES:
		return "this process may not open " TL_DEVICE;
	case EMFILE:
	case ENFILE:
		return "no descriptor is left: raise the limit, ulimit -n";
	case ENOMEM:
		return "no memory is left, or the limit of locked memory is reached: ulimit -l";
	case EAGAIN:
		return "no further thread may be started: raise the limit, ulimit -u";
	default:
		return otherwise;
	}
}

PyObject *tlpy_raise_unmade(int error, const char *otherwise)
{
	if (error == ENOENT) /* it would look as if a file of the program's were absent */
		error = ENODEV;
	return tlpy_raise_error(error, cause(error, otherwise));
}

PyObject *tlpy_raise_failure(int error)
{
	const char *what = TLPY_LOST;

	if (error == EPERM)
		what = "this is the child of a fork: use Files in an event loop that began here";
	return tlpy_raise_error(error, cause(error, what));
}

struct tl_batch *tlpy_queue_use(struct queue *queue, int in_child)
{
	if (!queue->batch || queue->closing) {
		PyErr_SetString(PyExc_ValueError, "the batch is closed");
		return NULL;
	}
	/* The library's object reads as zeros in the child of a fork. */
	if (!queue->batch->requests) {
		tlpy_raise_error(in_child, "a batch belongs to the process that made it");
		return NULL;
	}
	if (queue->busy || queue->inside) {
		PyErr_SetString(PyExc_RuntimeError, "a flush is under way: await it first");
		return NULL;
	}
	return queue->batch;
}

/* ---- Slots ----------------------------------------------------------------------------------- */

/* Takes the slots' calls and memory away. Memory is chained, to be freed when all is in order. */
static struct kept *empty_slots(struct queue *queue)
{
	struct kept *chain = NULL, *next;

	for (uint32_t i = 0; i < queue->used; i++) {
		struct slot *slot = &queue->slots[i];

		for (struct kept *kept = slot->kept; kept; kept = next) {
			next = kept->next;
			kept->next = chain;
			chain = kept;
		}
		slot->kept = NULL;
		slot->end = -1;
		slot->call->dropped = !slot->call->done;
		Py_CLEAR(slot->call); /* it has no finaliser, and runs no code of Python */
	}
	queue->used = 0;
	return chain;
}

static void settle(struct call *call, const struct tl_batch *batch, uint32_t slot)
{
	call->value = tl_batch_result(batch, slot);
	call->done = true;
}

void tlpy_queue_settle(struct queue *queue)
{
	struct tl_batch *batch = queue->batch;
	bool over = batch->requests && !tl_batch_queued(batch);

	if (!over && (!batch->requests || batch->program))
		return;
	for (uint32_t i = 0; i < queue->used; i++)
		if (!queue->slots[i].call->done && tl_batch_done(batch, i))
			settle(queue->slots[i].call, batch, i);
	if (over)
		tlpy_kept_free(empty_slots(queue));
}

PyObject *tlpy_queue_give_up(struct draft *draft)
{
	tlpy_draft_free(draft);
	return NULL;
}

int tlpy_queue_slot_of(struct queue *queue, struct call *call)
{
	if (call->done || call->dropped || call->queue != queue->id) {
		PyErr_Format(PyExc_ValueError, call->done || call->dropped ?
			     "%R is not queued in this batch" : "%R is queued in another batch",
			     call);
		return -1;
	}
	return (int)call->slot;
}

static PyObject *raise_full(struct draft *draft)
{
	char spare[32], said[128];
	PyObject *error;

	PyOS_snprintf(said, sizeof(said), "%u calls are queued: flush them before %s",
		      draft->queue->entries, tlpy_name_of(draft->nr, spare, sizeof(spare)));
	error = tlpy_error_with(EAGAIN, said);
	if (error)
		PyErr_SetObject((PyObject *)Py_TYPE(error), error);
	Py_XDECREF(error);
	return tlpy_queue_give_up(draft);
}

PyObject *tlpy_queue_add(struct draft *draft)
{
	struct queue *queue = draft->queue;
	const struct argument *a = draft->arguments;
	struct tl_batch *batch;
	struct call *call;
	uint32_t nr = draft->nr;
	int slot;

	for (int i = 0; i < ARGUMENTS_MAX; i++)
		nr |= a[i].source << 2 * i;
	call = tlpy_call_create(draft);
	if (!call)
		return tlpy_queue_give_up(draft);
	/* From here on no code of Python runs until all is in its place. */
	batch = tlpy_queue_use(queue, EAGAIN);
	slot = !batch ? -1 : tl_batch_add(batch, nr, a[0].word, a[1].word, a[2].word, a[3].word,
					  a[4].word, a[5].word);
	if (slot < 0) {
		Py_DECREF(call);
		return batch ? raise_full(draft) : tlpy_queue_give_up(draft);
	}
	call->slot = (uint32_t)slot;
	Py_INCREF((PyObject *)call);
	queue->slots[slot] = (struct slot){ call, draft->kept, -1 };
	queue->used = (uint32_t)slot + 1;
	draft->kept = NULL;
	Py_CLEAR(draft->paths[0]);
	Py_CLEAR(draft->paths[1]);
	return (PyObject *)call;
}

/* ---- Set-up and teardown --------------------------------------------------------------------- */

static int backend_flags(PyObject *backend)
{
	long found;

	if (!backend || Py_IsNone(backend))
		return 0;
	found = PyLong_AsLong(backend);
	if (found == TL_BACKEND_PLAIN)
		return TL_PLAIN;
	if (found == TL_BACKEND_MODULE)
		return TL_MODULE;
	if (!PyErr_Occurred())
		PyErr_Format(PyExc_ValueError, "%R is no backend", backend);
	return -1;
}

int tlpy_queue_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
	static char *names[] = { "entries", "backend", "unordered", NULL };
	struct queue *queue = (struct queue *)self;
	unsigned int entries = 32;
	PyObject *number = NULL, *backend = NULL;
	int unordered = 0, flags, error;
	int64_t found = 0;
	char what[128];

	if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O$Op", names, &number, &backend,
					 &unordered))
		return -1;
	flags = backend_flags(backend);
	if (flags < 0 || (number && tlpy_int(number, "number of calls", &found)))
		return -1;
	if (queue->batch || queue->id) {
		PyErr_SetString(PyExc_RuntimeError, "this batch is made already");
		return -1;
	}
	entries = number ? (unsigned int)found : entries;
	error = tl_batch_create(&queue->batch, entries,
				(unsigned int)flags | (unordered ? TL_UNORDERED : 0));
	if (error) {
		PyOS_snprintf(what, sizeof(what), "a batch of %d calls%s", (int)entries,
			      error == -EINVAL ? ": there may be 1 to 4096" : "");
		tlpy_raise_unmade(-error, what);
		return -1;
	}
	queue->entries = (uint32_t)(queue->batch->end - queue->batch->requests);
	queue->slots = PyMem_Calloc(queue->entries, sizeof(*queue->slots));
	queue->unordered = unordered;
	queue->id = ++last_id;
	if (queue->slots)
		return 0;
	tl_batch_destroy(queue->batch);
	queue->batch = NULL;
	PyErr_NoMemory();
	return -1;
}

/* Frees everything. Python code that the memory's owners then run finds the queue closed. */
static void queue_release(struct queue *queue)
{
	struct tl_batch *batch = queue->batch;
	struct slot *slots = queue->slots;
	struct kept *kept;

	if (!batch)
		return;
	kept = empty_slots(queue);
	queue->batch = NULL;
	queue->slots = NULL;
	tl_batch_destroy(batch);
	PyMem_Free(slots);
	tlpy_kept_free(kept);
}

void tlpy_queue_release_if_closed(struct queue *queue)
{
	if (queue->closing && !queue->flushing && !queue->busy)
		queue_release(queue);
}

PyObject *tlpy_queue_close(PyObject *self, PyObject *unused)
{
	struct queue *queue = (struct queue *)self;

	(void)unused;
	queue->closing = true;
	tlpy_queue_release_if_closed(queue);
	return Py_NewRef(Py_None);
}

int tlpy_queue_traverse(PyObject *self, visitproc visit, void *arg)
{
	struct queue *queue = (struct queue *)self;

	Py_VISIT(Py_TYPE(self));
	for (uint32_t i = 0; i < queue->used; i++) {
		for (struct kept *kept = queue->slots[i].kept; kept; kept = kept->next) {
			Py_VISIT(kept->view.obj);
			Py_VISIT(kept->object);
		}
	}
	return 0;
}

int tlpy_queue_clear(PyObject *self)
{
	struct queue *queue = (struct queue *)self;

	if (!queue->flushing)
		queue_release(queue);
	return 0;
}

void tlpy_queue_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);

	PyObject_GC_UnTrack(self);
	queue_release((struct queue *)self);
	release(self);
	Py_DECREF(type);
}
