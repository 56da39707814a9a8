// SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
/*
 * The engine of tl_files.3 for Node, by Node-API. JavaScript numbers its operations, and exports.c
 * The engine of tl_files.3 for Node, by Node-API. JavaScript numbers its operations, and exports.c
 * (libuv), and hands over what is complete in groups. What an operation means to a program is the
 * business of ../lib.
 *
 * The kernel never writes to memory of JavaScript, which a thread of Node may lose while a call
 * blocks: what is written is copied first, and what is read at the end.
 *
 * Each thread of Node that loads the addon has an engine of its own. It is used by that thread
 * alone. The loop is kept alive while operations are pending.
 */
#include "exports.h"
#include "libuv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- Completions ----------------------------------------------------------------------- */

/* Returns 0, or -errno where JavaScript cannot have the result. */
static int put_value(struct engine *engine, const struct operation *operation, double *field,
		     const struct tl_files_result *result, napi_value values, uint32_t n)
{
	napi_value value, exception;
	int error;

	if (operation->kind == KIND_DESCRIPTOR && result->result >= 0 &&
	    !tln_descriptors_add(&engine->open, (int)result->result)) {
		close((int)result->result);
		return -ENOMEM;
	}
	error = tln_result_value(engine->env, operation, field, result, &value);
	if (!error && value && napi_set_element(engine->env, values, n, value) != napi_ok)
		error = -ENOMEM;
	/* An exception that waits would make the calls for all other results fail. */
	if (error)
		napi_get_and_clear_last_exception(engine->env, &exception);
	return error;
}

/* Writes up to GROUP completions to the group and to `values`. Returns their number. */
static uint32_t take_group(struct engine *engine, napi_value values)
{
	struct tl_files_result result;
	uint32_t n = 0;

	while (n < GROUP && tl_files_next(engine->files, &result) == 1) {
		struct operation *operation = &engine->operations[result.user_data];
		double *field = &engine->group[n * FIELDS];
		int error;

		field[0] = (double)result.user_data;
		field[1] = (double)result.result;
		error = put_value(engine, operation, field, &result, values, n);
		if (error)
			field[1] = error;
		tln_operation_end(engine, operation);
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
		napi_value argv[2], complete, global;

		if (napi_open_handle_scope(env, &scope) != napi_ok)
			return;
		/* Without an array the results are taken all the same, and their memory is free. */
		if (napi_create_array(env, &argv[1]) != napi_ok)
			argv[1] = NULL;
		n = take_group(engine, argv[1]);
		if (n && napi_create_uint32(env, n, &argv[0]) == napi_ok &&
		    napi_get_reference_value(env, engine->complete, &complete) == napi_ok &&
		    napi_get_global(env, &global) == napi_ok)
			napi_make_callback(env, engine->context, global, complete, 2, argv, NULL);
		napi_close_handle_scope(env, scope);
	}
}

/* ---- Beginning and end ------------------------------------------------------------------- */

/* Calls that block for ever do not delay the end: their memory stays until the process ends. */
static void end(void *data)
{
	struct engine *engine = data;

	if (engine->poll)
		uv_close(engine->poll, free);
	if (!tl_files_destroy(engine->files)) {
		for (uint32_t id = 0; id < engine->n; id++)
			free(engine->operations[id].source);
		free(engine->operations);
	}
	tln_descriptors_close(&engine->open);
	if (engine->context)
		napi_async_destroy(engine->env, engine->context);
	free(engine->text);
	free(engine);
}

/* Waits for the engine's descriptor in Node's loop. Returns 0 or -errno. */
static int start_poll(struct engine *engine)
{
	struct uv_loop_s *loop;
	int error = -ENOMEM;
	void *poll;

	if (napi_get_uv_event_loop(engine->env, &loop) != napi_ok)
		return error;
	poll = malloc(uv_handle_size(UV_POLL));
	if (poll)
		error = uv_poll_init(loop, poll, tl_files_fd(engine->files));
	if (error) {
		free(poll);
		return error;
	}
	engine->poll = poll;
	/* The first word of a libuv handle is its user's. */
	*(void **)poll = engine;
	error = uv_poll_start(poll, UV_READABLE, ready);
	uv_unref(poll);
	return error;
}

/* Gives the engine what it shares with JavaScript; *value is the group. Returns success. */
static bool share(struct engine *engine, napi_value complete, napi_value queries,
		  napi_value *value)
{
	napi_env env = engine->env;
	napi_value name, group;

	/* The references hold the memory that is shared as long as the engine. */
	return napi_create_reference(env, complete, 1, &engine->complete) == napi_ok &&
	       napi_create_string_utf8(env, "trapless", NAPI_AUTO_LENGTH, &name) == napi_ok &&
	       napi_async_init(env, NULL, name, &engine->context) == napi_ok &&
	       napi_create_arraybuffer(env, GROUP * FIELDS * sizeof(double),
				       (void **)&engine->group, &group) == napi_ok &&
	       napi_create_typedarray(env, napi_float64_array, GROUP * FIELDS, group, 0, value) ==
		       napi_ok &&
	       napi_get_typedarray_info(env, queries, NULL, NULL, (void **)&engine->queries, NULL,
					NULL) == napi_ok &&
	       napi_create_reference(env, *value, 1, &(napi_ref){ NULL }) == napi_ok &&
	       napi_create_reference(env, queries, 1, &(napi_ref){ NULL }) == napi_ok;
}

/*
 * start(complete, queries, workers): returns the group that complete(n, values) finds filled in, or
 * -errno. add() finds queries in `queries`. 0 workers are as many as the library thinks good.
 */
static napi_value start(napi_env env, napi_callback_info info)
{
	struct engine *engine = calloc(1, sizeof(*engine));
	napi_value argv[3], value;
	uint32_t workers = 0;
	size_t argc = 3;
	int result;

	napi_get_cb_info(env, info, &argc, argv, NULL, NULL);
	napi_get_value_uint32(env, argv[2], &workers);
	workers = workers ? workers : TL_FILES_WORKERS;
	result = engine ? tl_files_create(&engine->files, workers, 0) : -ENOMEM;
	if (result) {
		free(engine);
		napi_create_int32(env, result, &value);
		return value;
	}
	engine->env = env;
	result = share(engine, argv[0], argv[1], &value) ? start_poll(engine) : -ENOMEM;
	if (!result && (napi_set_instance_data(env, engine, NULL, NULL) != napi_ok ||
			napi_add_env_cleanup_hook(env, end, engine) != napi_ok))
		result = -ENOMEM;
	if (result) {
		end(engine);
		napi_create_int32(env, result, &value);
	}
	return value;
}

NAPI_MODULE_INIT()
{
	static const struct { const char *name; napi_callback function; } functions[] = {
		{ "start", start },
		{ "read", tln_read_whole },
		{ "add", tln_add_queries },
		{ "stats", tln_stat_many },
		{ "write", tln_write_file },
		{ "call", tln_make_call },
		{ "cancel", tln_cancel },
		{ "submit", tln_submit },
	};
	napi_value value;

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (napi_create_function(env, functions[i].name, NAPI_AUTO_LENGTH,
					 functions[i].function, NULL, &value) != napi_ok ||
		    napi_set_named_property(env, exports, functions[i].name, value) != napi_ok)
			return NULL;
	return exports;
}
