// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Results of the engine as values of JavaScript: bytes, text, names, and attributes in the order of
 * Node's own Stats.
 */
#include "result.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

static double milliseconds(const struct statx_timestamp *time)
{
	return (double)time->tv_sec * 1e3 + (double)time->tv_nsec / 1e6;
}

/* In the order of Node's own Stats. */
static void put_attributes(double *field, const struct statx *x)
{
	const double values[] = {
		(double)makedev(x->stx_dev_major, x->stx_dev_minor), x->stx_mode, x->stx_nlink,
		x->stx_uid, x->stx_gid, (double)makedev(x->stx_rdev_major, x->stx_rdev_minor),
		x->stx_blksize, (double)x->stx_ino, (double)x->stx_size, (double)x->stx_blocks,
		milliseconds(&x->stx_atime), milliseconds(&x->stx_mtime),
		milliseconds(&x->stx_ctime),
		milliseconds(&x->stx_btime), /* 0 where the kernel knows none, as in Node */
	};

	memcpy(field, values, sizeof(values));
}

static int by_name(const void *a, const void *b)
{
	const struct dirent64 *const *one = a, *const *other = b;

	return strcmp((*one)->d_name, (*other)->d_name);
}

/* Adds a name and its type to the array. */
static bool put_name(napi_env env, napi_value array, uint32_t n, const struct dirent64 *entry)
{
	napi_value name, type;

	return napi_create_string_utf8(env, entry->d_name, NAPI_AUTO_LENGTH, &name) == napi_ok &&
	       napi_set_element(env, array, 2 * n, name) == napi_ok &&
	       napi_create_uint32(env, entry->d_type, &type) == napi_ok &&
	       napi_set_element(env, array, 2 * n + 1, type) == napi_ok;
}

/* [name, type, name, type, ...] without "." and "..", in the order of libuv: of the bytes */
static int names_of(napi_env env, const char *data, int64_t bytes, napi_value *value)
{
	const struct dirent64 **entries = malloc((size_t)bytes / 24 * sizeof(*entries) + 1);
	uint32_t n = 0, done = 0;
	napi_value array;

	if (!entries)
		return -ENOMEM;
	for (int64_t at = 0; at < bytes;) {
		const struct dirent64 *entry = (const void *)(data + at);

		at += entry->d_reclen;
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			entries[n++] = entry;
	}
	qsort(entries, n, sizeof(*entries), by_name);
	if (napi_create_array(env, &array) == napi_ok)
		while (done < n && put_name(env, array, done, entries[done]))
			done++;
	free(entries);
	if (done < n)
		return -ENOMEM;
	*value = array;
	return 0;
}

/* FIELDS numbers for each file: 0, the result, then the attributes. */
static int many_of(napi_env env, const struct tl_files_status *status, uint32_t n,
		   napi_value *value)
{
	napi_value buffer, array;
	double *field;

	if (napi_create_arraybuffer(env, n * FIELDS * sizeof(double), (void **)&field, &buffer) !=
		    napi_ok ||
	    napi_create_typedarray(env, napi_float64_array, n * FIELDS, buffer, 0, &array) !=
		    napi_ok)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++, field += FIELDS) {
		field[1] = (double)status[i].result;
		if (!status[i].result)
			put_attributes(field + 3, &status[i].x);
	}
	*value = array;
	return 0;
}

/* Copies what was read to the Buffer that it was read for. */
static int fill_target(napi_env env, const struct operation *operation,
		       const struct tl_files_result *result)
{
	napi_value buffer;
	size_t bytes;
	void *copy;

	if (napi_get_reference_value(env, operation->target, &buffer) != napi_ok ||
	    napi_get_buffer_info(env, buffer, &copy, &bytes) != napi_ok ||
	    bytes < (size_t)result->result)
		return -EFAULT;
	memcpy(copy, result->data, (size_t)result->result);
	return 0;
}

int tln_result_value(napi_env env, const struct operation *operation, double *field,
		     const struct tl_files_result *result, napi_value *value)
{
	napi_status status = napi_ok;

	*value = NULL;
	if (result->result < 0)
		return 0;
	switch (operation->kind) {
	case KIND_BUFFER:
		status = napi_create_buffer_copy(env, (size_t)result->result, result->data, NULL,
						 value);
		break;
	case KIND_TEXT:
		status = napi_create_string_utf8(env, result->data, (size_t)result->result, value);
		break;
	case KIND_ATTRIBUTES:
		field[2] = 1;
		put_attributes(field + 3, result->data);
		return 0;
	case KIND_NAMES:
		return names_of(env, result->data, result->result, value);
	case KIND_MANY:
		return many_of(env, result->data, (uint32_t)result->result, value);
	case KIND_TARGET:
		return fill_target(env, operation, result);
	default:
		return 0;
	}
	/* Buffers and strings have bounds of their own, which a file may exceed. */
	return status == napi_ok ? 0 : -EFBIG;
}
