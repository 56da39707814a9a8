// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The functions by which JavaScript adds operations to its engine: their arguments, and the copies
 * that an operation keeps until it is complete.
 */
#include "exports.h"
#include "libuv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define PATH_BYTES 4096u

static int64_t integer(napi_env env, napi_value value)
{
	int64_t number = 0;

	napi_get_value_int64(env, value, &number);
	return number;
}

/* Copies a path. Returns whether it fits; JavaScript has looked for NUL bytes. */
static bool path_of(napi_env env, napi_value value, char path[PATH_BYTES])
{
	size_t bytes = 0;

	return napi_get_value_string_utf8(env, value, path, PATH_BYTES, &bytes) == napi_ok &&
	       bytes < PATH_BYTES - 1;
}

/* The place of an operation's id. JavaScript gives ids from 0 on and uses free ones again. */
static struct operation *place_of(struct engine *engine, uint32_t id)
{
	struct operation *grown;
	uint32_t n = engine->n ? engine->n : 256;

	while (n <= id)
		n *= 2;
	if (n != engine->n) {
		grown = realloc(engine->operations, n * sizeof(*grown));
		if (!grown)
			return NULL;
		memset(grown + engine->n, 0, (n - engine->n) * sizeof(*grown));
		engine->operations = grown;
		engine->n = n;
	}
	return &engine->operations[id];
}

void tln_operation_end(struct engine *engine, struct operation *operation)
{
	if (operation->target)
		napi_delete_reference(engine->env, operation->target);
	free(operation->source);
	memset(operation, 0, sizeof(*operation));
}

static napi_value added(struct engine *engine, struct operation *operation, enum kind kind,
			int result)
{
	napi_value value;

	if (!operation)
		result = -ENOMEM;
	if (!result) {
		operation->kind = kind;
		if (tl_files_pending(engine->files) == 1)
			uv_ref(engine->poll);
	} else if (operation) {
		tln_operation_end(engine, operation);
	}
	napi_create_int32(engine->env, result, &value);
	return value;
}

/* read(id, path, kind): the whole file or, with KIND_NAMES, the folder */
napi_value tln_read_whole(napi_env env, napi_callback_info info)
{
	struct engine *engine = engine_of(env);
	struct operation *operation;
	char path[PATH_BYTES];
	napi_value argv[3];
	size_t argc = 3;
	enum kind kind;
	uint32_t id;
	int result;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	id = (uint32_t)integer(env, argv[0]);
	kind = (enum kind)integer(env, argv[2]);
	operation = place_of(engine, id);
	if (!operation || !path_of(env, argv[1], path))
		return added(engine, operation, KIND_NUMBER, -ENAMETOOLONG);
	if (kind == KIND_NAMES)
		result = tl_files_list(engine->files, AT_FDCWD, path, id, &operation->op);
	else
		result = tl_files_read(engine->files, AT_FDCWD, path, id, &operation->op);
	return added(engine, operation, kind, result);
}

static int begin_query(struct engine *engine, uint32_t id, enum kind kind, const char *path,
		       int flags)
{
	struct operation *operation = place_of(engine, id);
	struct tl_request call;
	int result;

	if (!operation)
		return -ENOMEM;
	call = TL_REQUEST(SYS_statx, AT_FDCWD, path, flags, STATX_BASIC_STATS | STATX_BTIME);
	if (kind == KIND_ATTRIBUTES)
		result = tl_files_call(engine->files, &call, 1u << 1, 1u << 4, id, &operation->op);
	else if (kind == KIND_NAMES)
		result = tl_files_list(engine->files, AT_FDCWD, path, id, &operation->op);
	else
		result = tl_files_read(engine->files, AT_FDCWD, path, id, &operation->op);
	if (!result)
		operation->kind = kind;
	return result;
}

/* Copies a string of any length. Returns false where memory is short. */
static bool copy_text(struct engine *engine, napi_value value)
{
	size_t bytes = 0;
	char *grown;

	if (napi_get_value_string_utf8(engine->env, value, NULL, 0, &bytes) != napi_ok)
		return false;
	if (bytes + 1 > engine->text_bytes) {
		grown = realloc(engine->text, 2 * bytes + 1);
		if (!grown)
			return false;
		engine->text = grown;
		engine->text_bytes = 2 * bytes + 1;
	}
	return napi_get_value_string_utf8(engine->env, value, engine->text, bytes + 1, &bytes) ==
	       napi_ok;
}

/*
 * add(paths, n): begins n queries, whose paths end with a NUL each. A query that cannot begin gets
 * -errno in the place of its kind. Returns how many those are.
 */
napi_value tln_add_queries(napi_env env, napi_callback_info info)
{
	struct engine *engine = engine_of(env);
	bool idle = !tl_files_pending(engine->files), copied;
	uint32_t n, failures = 0;
	napi_value argv[2], value;
	const char *path;
	size_t argc = 2;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	n = (uint32_t)integer(env, argv[1]);
	copied = copy_text(engine, argv[0]);
	path = engine->text;
	for (uint32_t i = 0; i < n; i++) {
		int32_t *query = &engine->queries[3 * i];
		int result = !copied ? -ENOMEM :
			     begin_query(engine, (uint32_t)query[0], (enum kind)query[1], path,
					 query[2]);

		if (copied)
			path += strlen(path) + 1;
		if (!result)
			continue;
		query[1] = result;
		failures++;
	}
	if (idle && tl_files_pending(engine->files))
		uv_ref(engine->poll);
	napi_create_uint32(env, failures, &value);
	return value;
}

/* stats(id, paths, n, flags): the attributes of many files, FIELDS numbers each */
napi_value tln_stat_many(napi_env env, napi_callback_info info)
{
	struct engine *engine = engine_of(env);
	struct operation *operation;
	const char **paths, *path;
	napi_value argv[4];
	size_t argc = 4;
	uint32_t id, n;
	int result = -ENOMEM;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	id = (uint32_t)integer(env, argv[0]);
	n = (uint32_t)integer(env, argv[2]);
	operation = place_of(engine, id);
	paths = malloc(n * sizeof(*paths));
	if (operation && paths && copy_text(engine, argv[1])) {
		path = engine->text;
		for (uint32_t i = 0; i < n; i++, path += strlen(path) + 1)
			paths[i] = path;
		result = tl_files_stat(engine->files, AT_FDCWD, paths, n,
				       (int)integer(env, argv[3]), STATX_BASIC_STATS | STATX_BTIME,
				       id, &operation->op);
	}
	free(paths);
	return added(engine, operation, KIND_MANY, result);
}

/* A copy of a Buffer's bytes, which the operation keeps. */
static void *copy_of(napi_env env, struct operation *operation, napi_value value, size_t *bytes)
{
	void *data = NULL;

	if (napi_get_buffer_info(env, value, &data, bytes) != napi_ok)
		return NULL;
	operation->source = malloc(*bytes ? *bytes : 1);
	return operation->source ? memcpy(operation->source, data, *bytes) : NULL;
}

/* write(id, path, buffer, open flags, mode, flags) */
napi_value tln_write_file(napi_env env, napi_callback_info info)
{
	struct engine *engine = engine_of(env);
	struct operation *operation;
	char path[PATH_BYTES];
	napi_value argv[6];
	size_t argc = 6, bytes = 0;
	uint32_t id;
	void *data;
	int result;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	id = (uint32_t)integer(env, argv[0]);
	operation = place_of(engine, id);
	if (!operation || !path_of(env, argv[1], path))
		return added(engine, operation, KIND_NUMBER, -ENAMETOOLONG);
	data = copy_of(env, operation, argv[2], &bytes);
	if (!data)
		return added(engine, operation, KIND_NUMBER, -ENOMEM);
	result = tl_files_write(engine->files, AT_FDCWD, path, data, bytes,
				(int)integer(env, argv[3]), (mode_t)integer(env, argv[4]),
				(unsigned int)integer(env, argv[5]), id, &operation->op);
	return added(engine, operation, KIND_NUMBER, result);
}

/* The strings of a call, and which of its arguments they and the operation's memory are. */
struct arguments {
	char paths[2][PATH_BYTES];
	unsigned int paths_n, strings, rooms;
};

/* Returns 0 or -errno. */
static int put_argument(napi_env env, struct operation *operation, bool reads, napi_value value,
			struct arguments *arguments, unsigned int i, __u64 *word)
{
	napi_valuetype type = napi_undefined;
	bool buffer = false;
	size_t bytes;

	napi_typeof(env, value, &type);
	napi_is_buffer(env, value, &buffer);
	if (type == napi_string) {
		char *path = arguments->paths[arguments->paths_n];

		if (arguments->paths_n == 2 || !path_of(env, value, path))
			return -ENAMETOOLONG;
		arguments->paths_n++;
		arguments->strings |= 1u << i;
		*word = (uintptr_t)path;
	} else if (type == napi_null) {
		arguments->rooms |= 1u << i;
	} else if (buffer && reads) {
		arguments->rooms |= 1u << i;
		if (napi_create_reference(env, value, 1, &operation->target) != napi_ok)
			return -ENOMEM;
	} else if (buffer) {
		*word = (uintptr_t)copy_of(env, operation, value, &bytes);
		if (!*word)
			return -ENOMEM;
	} else {
		*word = (uint64_t)integer(env, value);
	}
	return 0;
}

/*
 * call(id, number, kind, arguments...): a string is a path, a Buffer what is written or, with
 * KIND_TARGET, read, null the operation's own memory, any other value a number.
 */
napi_value tln_make_call(napi_env env, napi_callback_info info)
{
	struct engine *engine = engine_of(env);
	struct tl_request call = { 0 };
	struct operation *operation;
	struct arguments arguments;
	napi_value argv[9];
	size_t argc = 9;
	enum kind kind;
	int result = 0;
	uint32_t id;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	id = (uint32_t)integer(env, argv[0]);
	call.nr = (uint32_t)integer(env, argv[1]);
	kind = (enum kind)integer(env, argv[2]);
	operation = place_of(engine, id);
	arguments.paths_n = arguments.strings = arguments.rooms = 0;
	for (unsigned int i = 0; operation && !result && i + 3 < argc && i < 6; i++)
		result = put_argument(env, operation, kind == KIND_TARGET, argv[i + 3], &arguments,
				      i, &call.args[i]);
	if (operation && !result)
		result = tl_files_call(engine->files, &call, arguments.strings, arguments.rooms, id,
				       &operation->op);
	/* It is closed whatever happens now, and its number may be another file's then. */
	if (operation && !result && call.nr == SYS_close)
		tln_descriptors_remove(&engine->open, (int)call.args[0]);
	return added(engine, operation, kind, result);
}

napi_value tln_cancel(napi_env env, napi_callback_info info)
{
	struct engine *engine = engine_of(env);
	napi_value argv[1];
	size_t argc = 1;
	uint32_t id;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	id = (uint32_t)integer(env, argv[0]);
	if (id < engine->n && engine->operations[id].op)
		tl_files_cancel(engine->files, engine->operations[id].op);
	return NULL;
}

napi_value tln_submit(napi_env env, napi_callback_info info)
{
	napi_value value;

	(void)info;
	napi_create_int32(env, tl_files_submit(engine_of(env)->files), &value);
	return value;
}
