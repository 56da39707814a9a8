// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The engine of tl_files.3 for Node, by Node-API. JavaScript numbers its operations; this file adds
 * them to the engine, waits for its descriptor in Node's own loop (libuv), and hands over what is
 * complete in groups. What an operation means to a program is the business of ../lib.
 *
 * The kernel never writes to memory of JavaScript, which a thread of Node may lose while a call
 * blocks: what is written is copied first, and what is read at the end.
 *
 * Each thread of Node that loads the addon has an engine of its own. It is used by that thread
 * alone. The loop is kept alive while operations are pending.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include "libuv.h"
#include "result.h"

#define GROUP 64u	/* completions that JavaScript gets by one call */
#define PATH_BYTES 4096u

struct engine {
	napi_env env;
	struct tl_files *files;
	void *poll;
	napi_ref complete;		/* the function of JavaScript that takes a group */
	napi_async_context context;
	double *group;			/* GROUP * FIELDS, shared with JavaScript */
	int32_t *queries;		/* id, kind, flags; shared with JavaScript */
	char *text;			/* the paths of queries */
	size_t text_bytes;
	struct operation *operations;	/* by id */
	uint32_t n;
};

static struct engine *engine_of(napi_env env)
{
	void *engine = NULL;

	napi_get_instance_data(env, &engine);
	return engine;
}

/* ---- Arguments --------------------------------------------------------------------------- */

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

static void give_back(struct engine *engine, struct operation *operation)
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
		give_back(engine, operation);
	}
	napi_create_int32(engine->env, result, &value);
	return value;
}

/* read(id, path, kind): the whole file or, with KIND_NAMES, the folder */
static napi_value read_whole(napi_env env, napi_callback_info info)
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

	napi_get_value_string_utf8(engine->env, value, NULL, 0, &bytes);
	if (bytes + 1 > engine->text_bytes) {
		grown = realloc(engine->text, 2 * bytes + 1);
		if (!grown)
			return false;
		engine->text = grown;
		engine->text_bytes = 2 * bytes + 1;
	}
	napi_get_value_string_utf8(engine->env, value, engine->text, bytes + 1, &bytes);
	return true;
}

/*
 * add(paths, n): begins n queries, whose paths end with a NUL each. A query that cannot begin gets
 * -errno in the place of its kind. Returns how many those are.
 */
static napi_value add_queries(napi_env env, napi_callback_info info)
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
static napi_value stat_many(napi_env env, napi_callback_info info)
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
static napi_value write_file(napi_env env, napi_callback_info info)
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

/*
 * call(id, number, kind, arguments...): a string is a path, a Buffer what is written or, with
 * KIND_TARGET, read, null the operation's own memory, any other value a number.
 */
static napi_value make_call(napi_env env, napi_callback_info info)
{
	struct engine *engine = engine_of(env);
	unsigned int strings = 0, rooms = 0;
	struct operation *operation;
	static char paths[2][PATH_BYTES];
	struct tl_request call = { 0 };
	napi_value argv[9];
	size_t argc = 9, bytes, paths_n = 0;
	napi_valuetype type;
	uint32_t id;
	bool buffer;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	id = (uint32_t)integer(env, argv[0]);
	operation = place_of(engine, id);
	call.nr = (uint32_t)integer(env, argv[1]);
	for (size_t i = 3; operation && i < argc && i < 9; i++) {
		napi_typeof(env, argv[i], &type);
		napi_is_buffer(env, argv[i], &buffer);
		if (type == napi_string) {
			if (paths_n == 2 || !path_of(env, argv[i], paths[paths_n]))
				return added(engine, operation, KIND_NUMBER, -ENAMETOOLONG);
			call.args[i - 3] = (uintptr_t)paths[paths_n++];
			strings |= 1u << (i - 3);
		} else if (type == napi_null) {
			rooms |= 1u << (i - 3);
		} else if (buffer && integer(env, argv[2]) == KIND_TARGET) {
			napi_create_reference(env, argv[i], 1, &operation->target);
			rooms |= 1u << (i - 3);
		} else if (buffer) {
			call.args[i - 3] = (uintptr_t)copy_of(env, operation, argv[i], &bytes);
			if (!call.args[i - 3])
				return added(engine, operation, KIND_NUMBER, -ENOMEM);
		} else {
			call.args[i - 3] = (uint64_t)integer(env, argv[i]);
		}
	}
	return added(engine, operation, (enum kind)integer(env, argv[2]),
		     operation ? tl_files_call(engine->files, &call, strings, rooms, id,
					       &operation->op)
			       : -ENOMEM);
}

static napi_value cancel(napi_env env, napi_callback_info info)
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

static napi_value submit(napi_env env, napi_callback_info info)
{
	napi_value value;

	(void)info;
	napi_create_int32(env, tl_files_submit(engine_of(env)->files), &value);
	return value;
}

/* ---- Completions ----------------------------------------------------------------------- */

/* Writes up to GROUP completions to the group and to `values`. Returns their number. */
static uint32_t take_group(struct engine *engine, napi_value values)
{
	struct tl_files_result result;
	uint32_t n = 0;

	while (n < GROUP && tl_files_next(engine->files, &result) == 1) {
		struct operation *operation = &engine->operations[result.user_data];
		double *field = &engine->group[n * FIELDS];
		napi_value value;

		field[0] = (double)result.user_data;
		field[1] = (double)result.result;
		value = tln_result_value(engine->env, operation, field, &result);
		if (value)
			napi_set_element(engine->env, values, n, value);
		give_back(engine, operation);
		tl_files_release(engine->files, result.op);
		n++;
	}
	if (!tl_files_pending(engine->files))
		uv_unref(engine->poll);
	return n;
}

static void ready(void *poll, int status, int events)
{
	struct engine *engine = *(void **)poll;
	napi_env env = engine->env;
	napi_handle_scope scope;
	uint32_t n = GROUP;

	(void)status;
	(void)events;
	while (n == GROUP) {
		napi_value argv[2], complete, global, result;

		napi_open_handle_scope(env, &scope);
		napi_create_array(env, &argv[1]);
		n = take_group(engine, argv[1]);
		if (n) {
			napi_create_uint32(env, n, &argv[0]);
			napi_get_reference_value(env, engine->complete, &complete);
			napi_get_global(env, &global);
			napi_make_callback(env, engine->context, global, complete, 2, argv,
					   &result);
		}
		napi_close_handle_scope(env, scope);
	}
}

/* ---- Beginning and end ------------------------------------------------------------------- */

/* Calls that block for ever do not delay the end: their memory stays until the process ends. */
static void end(void *data)
{
	struct engine *engine = data;

	uv_close(engine->poll, free);
	if (!tl_files_destroy(engine->files)) {
		for (uint32_t id = 0; id < engine->n; id++)
			free(engine->operations[id].source);
		free(engine->operations);
	}
	free(engine->text);
	free(engine);
}

/*
 * start(complete, queries, workers): returns the group that complete(n, values) finds filled in, or
 * -errno. add() finds queries in `queries`. 0 workers are as many as the library thinks good.
 */
static napi_value start(napi_env env, napi_callback_info info)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	napi_value argv[3], group, value;
	struct uv_loop_s *loop;
	unsigned int workers;
	size_t argc = 3;
	int result;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	workers = (unsigned int)integer(env, argv[2]);
	workers = workers ? workers : TL_FILES_WORKERS;
	result = engine ? tl_files_create(&engine->files, workers, 0) : -ENOMEM;
	if (result) {
		free(engine);
		napi_create_int32(env, result, &value);
		return value;
	}
	engine->env = env;
	napi_create_reference(env, argv[0], 1, &engine->complete);
	napi_create_string_utf8(env, "trapless", NAPI_AUTO_LENGTH, &value);
	napi_async_init(env, NULL, value, &engine->context);
	napi_create_arraybuffer(env, GROUP * FIELDS * sizeof(double), (void **)&engine->group,
				&group);
	napi_create_typedarray(env, napi_float64_array, GROUP * FIELDS, group, 0, &value);
	napi_get_typedarray_info(env, argv[1], NULL, NULL, (void **)&engine->queries, NULL, NULL);
	/* They hold the memory that is shared as long as the engine. */
	napi_create_reference(env, value, 1, &(napi_ref){ NULL });
	napi_create_reference(env, argv[1], 1, &(napi_ref){ NULL });
	/* The first word of a libuv handle is its user's. */
	engine->poll = malloc(uv_handle_size(UV_POLL));
	napi_get_uv_event_loop(env, &loop);
	uv_poll_init(loop, engine->poll, tl_files_fd(engine->files));
	*(void **)engine->poll = engine;
	uv_poll_start(engine->poll, UV_READABLE, ready);
	uv_unref(engine->poll);
	napi_set_instance_data(env, engine, NULL, NULL);
	napi_add_env_cleanup_hook(env, end, engine);
	return value;
}

NAPI_MODULE_INIT()
{
	static const struct { const char *name; napi_callback function; } functions[] = {
		{ "start", start },
		{ "read", read_whole },
		{ "add", add_queries },
		{ "stats", stat_many },
		{ "write", write_file },
		{ "call", make_call },
		{ "cancel", cancel },
		{ "submit", submit },
	};
	napi_value value;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH,
				     functions[i].function, NULL, &value);
		napi_set_named_property(env, exports, functions[i].name, value);
	}
	return exports;
}
