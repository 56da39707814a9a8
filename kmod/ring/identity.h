/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The identity on whose behalf a call is made: what has to be equal for one thread to make another
 * thread's request. This header owns the list of what is compared.
 */
#ifndef TLK_IDENTITY_H
#define TLK_IDENTITY_H

#include <linux/types.h>
#include <linux/uidgid.h>

#include "compat/features.h"

struct cred;
struct task_struct;

/*
 * `cred` is a reference. The other pointers are only compared and never followed: threads of one
 * process share them unless they were asked not to; other processes may share the memory alone.
 */
struct tlk_identity {
	const struct cred *cred;
	const void *process;		/* limits, signals, children */
	const void *filter;		/* seccomp */
	const void *files;
	const void *fs;			/* root, working directory, umask */
	const void *namespaces;
	tlk_keys protection_keys;	/* of user memory */
	unsigned int personality;
	kuid_t login;			/* audit's: who logged in, and in which session */
	unsigned int session;
	const void *domain;		/* TOMOYO's: it changes while `cred` stays */
};

void tlk_identity_take(struct tlk_identity *identity);	/* the current thread's */
void tlk_identity_put(struct tlk_identity *identity);

/*
 * Does this thread, which is of the identity's process, have the current thread's identity by now?
 * Threads can change for one another only their filters and, by Landlock, their credentials; all
 * else must be as it was.
 */
bool tlk_identity_has_followed(const struct tlk_identity *identity, struct task_struct *thread);

bool tlk_identity_is_current(const struct tlk_identity *identity);

#endif /* TLK_IDENTITY_H */
