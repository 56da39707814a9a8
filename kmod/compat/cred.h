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

static inline const void *tlk_current_filter(void)
{
#ifdef CONFIG_SECCOMP_FILTER
	return READ_ONCE(current->seccomp.filter);
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

/* The most that the security modules of a kernel are known to keep in each task, bytes. */
#define TLK_TASK_SECURITY_MAX 128

/*
 * What security modules keep in tasks. TOMOYO alone decides by it: a thread's domain is there. The
 * others keep caches and what exec will need, which differ from thread to thread; so the bytes are
 * looked at only where TOMOYO is on. What does not fit is never the same: then workers refuse.
 */
static inline bool tlk_task_security_decides(void)
{
#ifdef CONFIG_SECURITY
	return tlk_task_security_bytes();
#else
	return false;
#endif
}

static inline void tlk_task_security_take(u8 *copy)
{
#ifdef CONFIG_SECURITY
	if (tlk_task_security_bytes() && tlk_task_security_bytes() <= TLK_TASK_SECURITY_MAX)
		memcpy(copy, current->security, tlk_task_security_bytes());
#endif
}

static inline bool tlk_task_security_is_current(const u8 *copy)
{
#ifdef CONFIG_SECURITY
	size_t bytes = tlk_task_security_bytes();

	return !bytes ||
	       (bytes <= TLK_TASK_SECURITY_MAX && !memcmp(copy, current->security, bytes));
#else
	return true;
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
