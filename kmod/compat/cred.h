/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The parts of a thread's identity that only some kernels have: seccomp's filters, keyrings, and
 * what security modules keep in credentials. This header owns how they are read and compared;
 * identity.c owns what follows.
 */
#ifndef TLK_COMPAT_CRED_H
#define TLK_COMPAT_CRED_H

#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <linux/string.h>

#include "compat/symbols.h"

static inline const void *tlk_filter_of(struct task_struct *thread)
{
#ifdef CONFIG_SECCOMP_FILTER
	return READ_ONCE(thread->seccomp.filter);
#else
	return NULL;
#endif
}

static inline bool tlk_cred_keyrings_equal(const struct cred *a, const struct cred *b)
{
#ifdef CONFIG_KEYS
	return a->session_keyring == b->session_keyring && a->thread_keyring == b->thread_keyring &&
	       a->process_keyring == b->process_keyring &&
	       a->request_key_auth == b->request_key_auth;
#else
	return true;
#endif
}

/*
 * Where a security module keeps what it decides by in the current task, and not in its credentials;
 * NULL if none does. Only TOMOYO does: it is a pointer to the thread's domain, which is here only
 * compared. The others keep there caches and what exec will need.
 */
static inline const void *const *tlk_task_domain(void)
{
#ifdef CONFIG_SECURITY
	return tlk_tomoyo_domain();
#else
	return NULL;
#endif
}

/*
 * What security modules keep in credentials: labels, profiles, Landlock's domain. The bytes are
 * compared, since several modules have no number for theirs (security_cred_getsecid() answers 0).
 * A module that keeps caches or lists there makes equal credentials differ: then workers refuse.
 */
static inline bool tlk_cred_security_equal(const struct cred *a, const struct cred *b)
{
#ifdef CONFIG_SECURITY
	return !memcmp(a->security, b->security, tlk_cred_security_bytes());
#else
	return true;
#endif
}

#endif /* TLK_COMPAT_CRED_H */
