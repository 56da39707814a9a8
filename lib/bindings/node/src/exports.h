/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * The engine of a thread of Node, which addon.c starts and ends, and the functions of exports.c by
 * which JavaScript adds operations to it.
 */
#ifndef TRAPLESS_NODE_EXPORTS_H
#define TRAPLESS_NODE_EXPORTS_H

#include "descriptors.h"
#include "result.h"

#define GROUP 64u	/* completions that JavaScript gets by one call */

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
	struct descriptors open;
};

static inline struct engine *engine_of(napi_env env)
{
	void *engine = NULL;

	napi_get_instance_data(env, &engine);
	return engine;
}

/* Frees what the operation holds, and its id. */
void tln_operation_end(struct engine *engine, struct operation *operation);

napi_value tln_read_whole(napi_env env, napi_callback_info info);
napi_value tln_add_queries(napi_env env, napi_callback_info info);
napi_value tln_stat_many(napi_env env, napi_callback_info info);
napi_value tln_write_file(napi_env env, napi_callback_info info);
napi_value tln_make_call(napi_env env, napi_callback_info info);
napi_value tln_cancel(napi_env env, napi_callback_info info);
napi_value tln_submit(napi_env env, napi_callback_info info);

#endif /* TRAPLESS_NODE_EXPORTS_H */
