/* SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT */
/*
 * An operation as addon.c numbers it, and its result as a value of JavaScript, which result.c
 * makes.
 */
#ifndef TRAPLESS_NODE_RESULT_H
#define TRAPLESS_NODE_RESULT_H

#define NAPI_VERSION 8
#include <node_api.h>
#include <trapless.h>

#define FIELDS 18u	/* numbers of one completion: id, result, whether attributes follow, they */

/* What the result of an operation becomes; KIND_TARGET: it is copied to a Buffer. */
enum kind {
	KIND_NUMBER, KIND_BUFFER, KIND_TEXT, KIND_ATTRIBUTES, KIND_NAMES, KIND_TARGET, KIND_MANY,
	KIND_DESCRIPTOR,
};

struct operation {
	enum kind kind;
	napi_ref target;		/* the Buffer that is read into, or NULL */
	void *source;			/* a copy of what is written, or NULL */
	struct tl_files_op *op;		/* NULL: the id is free */
};

/*
 * Makes the value of a result that is no number; of others *value is NULL. Attributes are written
 * to the completion's FIELDS numbers. Returns 0, or -errno where JavaScript cannot have the value.
 */
int tln_result_value(napi_env env, const struct operation *operation, double *field,
		     const struct tl_files_result *result, napi_value *value);

#endif /* TRAPLESS_NODE_RESULT_H */
