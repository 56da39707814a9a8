// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The flush of a batch: it makes what is queued, by the library's flush, until nothing is left, a
 * program has made its steps, or a signal's handler raises an exception. It runs without the
 * interpreter's lock. queue.c owns the slots and gives the calls their results.
 */
#include "extension.h"

#include <errno.h>

static void jump_to_the_end(struct queue *queue)
{
	struct tl_batch *batch = queue->batch;

	for (uint32_t i = 0; i < queue->used; i++)
		if (queue->slots[i].end >= 0)
			tl_batch_jump(batch, i, (enum tl_condition)queue->slots[i].end,
				      tl_batch_next(batch));
}

PyObject *tlpy_queue_at(struct queue *queue)
{
	unsigned int slot = tl_batch_at(queue->batch);

	if (!tl_batch_queued(queue->batch) || slot >= queue->used)
		return Py_NewRef(Py_None);
	return Py_NewRef((PyObject *)queue->slots[slot].call);
}

static void raise_time(struct queue *queue, unsigned long long steps)
{
	PyObject *at = tlpy_queue_at(queue);
	PyObject *text = PyUnicode_FromFormat("the program has made %llu steps and stands at %R; "
					      "another flush goes on", steps, at);
	PyObject *error = text ? PyObject_CallFunction(PyExc_OSError, "iN", ETIME, text) : NULL;

	if (error)
		PyErr_SetObject(PyExc_OSError, error);
	Py_XDECREF(error);
	Py_DECREF(at);
}

/* Makes what is queued. Returns 0, or -1 with an exception: then the rest stays queued. */
static int flush_all(struct queue *queue, unsigned long long steps)
{
	struct tl_batch *batch = queue->batch;
	int made;

	jump_to_the_end(queue);
	for (;;) {
		queue->inside = true;
		Py_BEGIN_ALLOW_THREADS
		made = tl_batch_flush_steps(batch, steps);
		Py_END_ALLOW_THREADS
		queue->inside = false;
		tlpy_queue_settle(queue);
		if (made == -ETIME) {
			raise_time(queue, steps);
			return -1;
		}
		if (made < 0 && made != -EINTR) {
			tlpy_raise_error(-made, TLPY_LOST);
			return -1;
		}
		if (!tl_batch_queued(batch))
			return 0;
		if (PyErr_CheckSignals())
			return -1;
		/* The handler may have made the rest, or queued more. */
		if (!tl_batch_queued(batch))
			return 0;
	}
}

/* Does the work of both flushes: the caller knows that the batch may be flushed. */
static PyObject *flush(struct queue *queue, uint64_t steps)
{
	uint32_t queued = tl_batch_queued(queue->batch);
	int error;

	Py_INCREF((PyObject *)queue);
	queue->flushing++;
	error = queued ? flush_all(queue, steps) : 0;
	queue->flushing--;
	queue->busy = queue->busy && queue->flushing;
	tlpy_queue_release_if_closed(queue);
	Py_DECREF((PyObject *)queue);
	return error ? NULL : PyLong_FromUnsignedLong(queued);
}

PyObject *tlpy_queue_flush(PyObject *self, PyObject *const *args, Py_ssize_t given,
			   PyObject *names)
{
	static const char *const known[] = { "steps" };
	uint64_t steps = TL_STEPS_DEFAULT;
	PyObject *out[1];

	if (tlpy_parse("flush", args, given, names, known, 1, 0, 1, out) ||
	    (out[0] && tlpy_number(out[0], &steps)))
		return NULL;
	return tlpy_queue_use((struct queue *)self, EPERM) ?
		       flush((struct queue *)self, steps) : NULL;
}

/* The flush of an AsyncBatch, by its thread: `busy` has announced it, and close() waits for it. */
PyObject *tlpy_queue_flush_busy(PyObject *self, PyObject *number)
{
	struct queue *queue = (struct queue *)self;
	uint64_t steps;

	if (tlpy_number(number, &steps))
		return NULL;
	if (!queue->batch || queue->inside) {
		PyErr_SetString(PyExc_RuntimeError, "another flush is under way");
		return NULL;
	}
	return flush(queue, steps);
}
