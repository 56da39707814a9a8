// SPDX-License-Identifier: GPL-2.0-only
/*
 * Flags win over the environment, the environment over what is loaded; a wish that cannot be
 * granted is an error, not a quiet change of plan.
 */
#include "lib_check.h"

/* A batch by plain calls gives a reason, with `word` in it unless that is NULL. */
static int create_for(unsigned int flags, enum tl_backend *backend, const char *word)
{
	struct tl_batch *batch;
	int result = tl_batch_create(&batch, 8, flags);
	const char *reason;

	if (!result) {
		*backend = tl_batch_backend(batch);
		reason = tl_batch_reason(batch);
		CHECK_EQ(!reason, *backend == TL_BACKEND_MODULE);
		if (word && reason && !strstr(reason, word))
			FAIL("there is no '%s' in the reason: %s", word, reason);
		tl_batch_destroy(batch);
	}
	return result;
}

static int create(unsigned int flags, enum tl_backend *backend)
{
	return create_for(flags, backend, NULL);
}

int main(void)
{
	enum tl_backend backend = TL_BACKEND_MODULE;
	bool loaded = !access(TL_DEVICE, R_OK | W_OK);
	struct tl_sched *sched;
	struct tl_psc *psc;

	unsetenv("TRAPLESS_BACKEND");
	CHECK_EQ(create_for(TL_PLAIN, &backend, "TL_PLAIN"), 0);
	CHECK_EQ(backend, TL_BACKEND_PLAIN);
	CHECK_EQ(create_for(0, &backend, "/dev/trapless"), 0);
	CHECK_EQ(backend, loaded ? TL_BACKEND_MODULE : TL_BACKEND_PLAIN);
	setenv("TRAPLESS_BACKEND", "plain", 1);
	CHECK_EQ(create_for(0, &backend, "TRAPLESS_BACKEND"), 0);
	CHECK_EQ(backend, TL_BACKEND_PLAIN);
	CHECK_EQ(tl_sched_create(&sched, NULL), 0);
	CHECK_EQ(tl_sched_backend(sched), TL_BACKEND_PLAIN);
	tl_sched_destroy(sched);
	CHECK_EQ(tl_psc_create(&psc, 8, 0, 0), 0);
	CHECK_EQ(tl_psc_backend(psc), TL_BACKEND_PLAIN);
	tl_psc_destroy(psc);
	setenv("TRAPLESS_BACKEND", "fast", 1);
	CHECK_EQ(create(0, &backend), -EINVAL);
	CHECK_EQ(create(TL_PLAIN, &backend), 0);
	setenv("TRAPLESS_BACKEND", "module", 1);
	if (!loaded) {
		CHECK_EQ(create(0, &backend), -errno);
		CHECK_EQ(create(TL_MODULE, &backend), -errno);
		return 0;
	}
	CHECK_EQ(create(0, &backend), 0);
	CHECK_EQ(backend, TL_BACKEND_MODULE);
	setenv("TRAPLESS_BACKEND", "plain", 1);
	CHECK_EQ(create(TL_MODULE, &backend), 0);
	CHECK_EQ(backend, TL_BACKEND_MODULE);
	return 0;
}
