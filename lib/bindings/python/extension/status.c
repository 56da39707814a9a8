// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Attributes of files as Python has them: os.stat_result. Who asks for them is the business of
 * files.c and engine.c.
 */
#include "extension.h"

#define STAT_FIELDS 19
#define NS_OF_SECOND 1000000000LL
#define SECONDS_MAX (INT64_MAX / NS_OF_SECOND)

static PyTypeObject *stat_result;

/* The latest result. Files of a tree share most of their fields: their objects serve again. */
static struct latest {
	struct stat stat;
	PyObject *result;
} latest;

/* Puts the object of the latest result if it has the same value, and else a new one. */
static void set_number(PyObject *result, int i, unsigned long long word, unsigned long long before)
{
	PyObject *number;

	if (latest.result && word == before)
		number = Py_XNewRef(PyStructSequence_GetItem(latest.result, i));
	else
		number = PyLong_FromUnsignedLongLong(word);
	PyStructSequence_SetItem(result, i, number);
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* A time in nanoseconds. From the year 2262 on, and before 1677, that is more than 64 bits. */
static PyObject *nanoseconds(struct timespec time)
{
	PyObject *seconds, *factor, *product, *rest, *sum;

	if (time.tv_sec > -SECONDS_MAX && time.tv_sec < SECONDS_MAX)
		return PyLong_FromLongLong((long long)time.tv_sec * NS_OF_SECOND + time.tv_nsec);
	seconds = PyLong_FromLongLong(time.tv_sec);
	factor = PyLong_FromLongLong(NS_OF_SECOND);
	rest = PyLong_FromLongLong(time.tv_nsec);
	product = seconds && factor ? PyNumber_Multiply(seconds, factor) : NULL;
	sum = product && rest ? PyNumber_Add(product, rest) : NULL;
	Py_XDECREF(seconds);
	Py_XDECREF(factor);
	Py_XDECREF(rest);
	Py_XDECREF(product);
	return sum;
}

/* Puts the three forms of time i: seconds, the same with a fraction, nanoseconds. */
static void set_time(PyObject *result, int i, struct timespec time)
{
	PyStructSequence_SetItem(result, 7 + i, PyLong_FromLongLong(time.tv_sec));
	PyStructSequence_SetItem(result, 10 + i, PyFloat_FromDouble((double)time.tv_sec +
								     1e-9 * (double)time.tv_nsec));
	PyStructSequence_SetItem(result, 13 + i, nanoseconds(time));
}

static void set_times(PyObject *result, const struct timespec *times, const struct timespec *before)
{
	for (int i = 0; i < 3; i++) {
		PyObject *from = NULL;
		int at = i;

		if (latest.result && same_time(times[i], before[i])) {
			from = latest.result;
		} else if (i && same_time(times[i], times[i - 1])) {
			from = result;
			at = i - 1;
		}
		if (!from) {
			set_time(result, i, times[i]);
			continue;
		}
		for (int form = 7; form <= 13; form += 3)
			PyStructSequence_SetItem(result, form + i, Py_XNewRef(
				PyStructSequence_GetItem(from, form + at)));
	}
}

#define WORDS_OF(s) { \
	(s)->st_mode, (s)->st_ino, (s)->st_dev, (s)->st_nlink, (s)->st_uid, (s)->st_gid, \
	(unsigned long long)(s)->st_size }
#define TIMES_OF(s) { (s)->st_atim, (s)->st_mtim, (s)->st_ctim }

/* No code of Python runs in here: numbers are no objects that the garbage collector tracks. */
static void set_fields(PyObject *result, const struct stat *stat)
{
	const unsigned long long words[] = WORDS_OF(stat), before[] = WORDS_OF(&latest.stat);
	const struct timespec times[] = TIMES_OF(stat), times_before[] = TIMES_OF(&latest.stat);

	for (int i = 0; i < 7; i++)
		set_number(result, i, words[i], before[i]);
	set_times(result, times, times_before);
	set_number(result, 16, (unsigned long long)stat->st_blksize,
		   (unsigned long long)latest.stat.st_blksize);
	set_number(result, 17, (unsigned long long)stat->st_blocks,
		   (unsigned long long)latest.stat.st_blocks);
	set_number(result, 18, stat->st_rdev, latest.stat.st_rdev);
}

/* An os.stat_result: its first 19 fields have stood since Python 3.3. */
PyObject *tlpy_stat_object(const struct stat *stat)
{
	PyObject *result = PyStructSequence_New(stat_result), *old;

	if (!result)
		return NULL;
	old = latest.result;
	set_fields(result, stat);
	if (PyErr_Occurred()) {
		Py_DECREF(result);
		return NULL;
	}
	latest.stat = *stat;
	latest.result = Py_NewRef(result);
	Py_XDECREF(old);
	return result;
}

int tlpy_status_setup(void)
{
	PyObject *os = PyImport_ImportModule("os");
	PyObject *type = os ? PyObject_GetAttrString(os, "stat_result") : NULL;
	PyObject *fields = type ? PyObject_GetAttrString(type, "n_fields") : NULL;
	bool known = fields && PyLong_AsLong(fields) >= STAT_FIELDS;

	Py_XDECREF(os);
	Py_XDECREF(fields);
	if (!known) {
		if (!PyErr_Occurred())
			PyErr_SetString(PyExc_ImportError, "os.stat_result has too few fields");
		return -1;
	}
	stat_result = (PyTypeObject *)type;
	return 0;
}
