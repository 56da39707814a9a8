// SPDX-License-Identifier: GPL-2.0-only
/*
 * Compares the calling thread with another one. This file owns what "the same identity" means. The
 * queue and its workers decide what follows when it is not the same.
 *
 * Threads are born with the same struct cred, so one comparison of pointers is the usual case.
 * After a change of credentials that all threads made (glibc's setuid signals each to do so) the
 * structures differ and their contents do not: then every field that a permission check can read
 * is compared.
 *
 * Control groups are not compared. All threads of a process are in the same one unless it is a
 * threaded group. Then the worker, which does the work, is charged for it.
 */
#include <linux/audit.h>
#include <linux/cred.h>
#include <linux/sched.h>
#include <linux/string.h>

#include "compat/cred.h"
#include "compat/features.h"
#include "ring/identity.h"

static bool ids_equal(const struct cred *a, const struct cred *b)
{
	return uid_eq(a->uid, b->uid) && uid_eq(a->euid, b->euid) && uid_eq(a->suid, b->suid) &&
	       gid_eq(a->gid, b->gid) && gid_eq(a->egid, b->egid) && gid_eq(a->sgid, b->sgid) &&
	       cred_fscmp(a, b) == 0; /* fsuid, fsgid and supplementary groups */
}

static bool caps_equal(const struct cred *a, const struct cred *b)
{
	return a->securebits == b->securebits &&
	       !memcmp(&a->cap_inheritable, &b->cap_inheritable, sizeof(kernel_cap_t)) &&
	       !memcmp(&a->cap_permitted, &b->cap_permitted, sizeof(kernel_cap_t)) &&
	       !memcmp(&a->cap_effective, &b->cap_effective, sizeof(kernel_cap_t)) &&
	       !memcmp(&a->cap_bset, &b->cap_bset, sizeof(kernel_cap_t)) &&
	       !memcmp(&a->cap_ambient, &b->cap_ambient, sizeof(kernel_cap_t));
}

static bool creds_equal(const struct cred *a, const struct cred *b)
{
	if (a == b)
		return true;
	if (a->user_ns != b->user_ns)
		return false;
	return tlk_cred_keyrings_equal(a, b) && ids_equal(a, b) && caps_equal(a, b) &&
	       tlk_cred_security_equal(a, b);
}

static const void *current_domain(void)
{
	const void *const *domain = tlk_task_domain();

	return domain ? READ_ONCE(*domain) : NULL;
}

void tlk_identity_take(struct tlk_identity *identity)
{
	identity->cred = get_current_cred();
	identity->process = current->signal;
	identity->filter = tlk_filter_of(current);
	identity->files = current->files;
	identity->fs = current->fs;
	identity->namespaces = current->nsproxy;
	identity->protection_keys = tlk_protection_keys();
	identity->personality = current->personality;
	identity->login = audit_get_loginuid(current);
	identity->session = audit_get_sessionid(current);
	identity->domain = current_domain();
}

void tlk_identity_put(struct tlk_identity *identity)
{
	put_cred(identity->cred);
}

/* Is all that a thread changes only for itself the current thread's? */
static bool own_parts_equal(const struct tlk_identity *identity)
{
	return identity->process == current->signal && identity->files == current->files &&
	       identity->fs == current->fs && identity->namespaces == current->nsproxy &&
	       identity->protection_keys == tlk_protection_keys() &&
	       identity->personality == current->personality &&
	       uid_eq(identity->login, audit_get_loginuid(current)) &&
	       identity->session == audit_get_sessionid(current) &&
	       identity->domain == current_domain();
}

bool tlk_identity_is_current(const struct tlk_identity *identity)
{
	return own_parts_equal(identity) && identity->filter == tlk_filter_of(current) &&
	       creds_equal(identity->cred, current_cred());
}

bool tlk_identity_has_followed(const struct tlk_identity *identity, struct task_struct *thread)
{
	bool has;

	rcu_read_lock();
	has = own_parts_equal(identity) && tlk_filter_of(thread) == tlk_filter_of(current) &&
	      creds_equal(__task_cred(thread), current_cred());
	rcu_read_unlock();
	return has;
}
