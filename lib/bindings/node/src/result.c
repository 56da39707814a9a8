// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * Results of the engine as values of JavaScript: bytes, text, names, and attributes in the order of
 * Node's own Stats.
 */
#include "result.h"

#include <dirent.h>
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
		milliseconds(x->stx_mask & STATX_BTIME ? &x->stx_btime : &x->stx_ctime),
	};

	memcpy(field, values, sizeof(values));
}

static int by_name(const void *a, const void *b)
{
	const struct dirent64 *const *one = a, *const *other = b;

	return strcmp((*one)->d_name, (*other)->d_name);
}

/* [name, type, name, type, ...] without "." and "..", in the order of libuv: of the bytes */
static napi_value names_of(napi_env env, const char *data, int64_t bytes)
{
	const struct dirent64 **entries = malloc((size_t)bytes / 24 * sizeof(*entries) + 1);
	napi_value array, value;
	uint32_t n = 0;

	napi_create_array(env, &array);
	for (int64_t at = 0; entries && at < bytes;) {
		const struct dirent64 *entry = (const void *)(data + at);

		at += entry->d_reclen;
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
			entries[n++] = entry;
	}
	if (entries)
		qsort(entries, n, sizeof(*entries), by_name);
	for (uint32_t i = 0; i < n; i++) {
		napi_create_string_utf8(env, entries[i]->d_name, NAPI_AUTO_LENGTH, &value);
		napi_set_element(env, array, 2 * i, value);
		napi_create_uint32(env, entries[i]->d_type, &value);
		napi_set_element(env, array, 2 * i + 1, value);
	}
	free(entries);
	return array;
}

/* FIELDS numbers for each file: 0, the result, then the attributes. */
static napi_value many_of(napi_env env, const struct tl_files_status *status, uint32_t n)
{
	napi_value buffer, array;
	double *field;

	napi_create_arraybuffer(env, n * FIELDS * sizeof(double), (void **)&field, &buffer);
	napi_create_typedarray(env, napi_float64_array, n * FIELDS, buffer, 0, &array);
	for (uint32_t i = 0; i < n; i++, field += FIELDS) {
		field[1] = (double)status[i].result;
		if (!status[i].result)
			put_attributes(field + 3, &status[i].x);
	}
	return array;
}

napi_value tln_result_value(napi_env env, const struct operation *operation, double *field,
			    const struct tl_files_result *result)
{
	napi_value value = NULL;
	size_t bytes = 0;
	void *copy;

	if (result->result < 0)
		return NULL;
	switch (operation->kind) {
	case KIND_BUFFER:
		napi_create_buffer_copy(env, (size_t)result->result, result->data, &copy, &value);
		return value;
	case KIND_TEXT:
		napi_create_string_utf8(env, result->data, (size_t)result->result, &value);
		return value;
	case KIND_ATTRIBUTES:
		field[2] = 1;
		put_attributes(field + 3, result->data);
		return NULL;
	case KIND_NAMES:
		return names_of(env, result->data, result->result);
	case KIND_MANY:
		return many_of(env, result->data, (uint32_t)result->result);
	case KIND_TARGET:
		napi_get_reference_value(env, operation->target, &value);
		if (value && napi_get_buffer_info(env, value, &copy, &bytes) == napi_ok &&
		    bytes >= (size_t)result->result)
			memcpy(copy, result->data, (size_t)result->result);
		return NULL;
	default:
		return NULL;
	}
}
