/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounts for pages that the kernel holds for a user, as io_uring does for its rings: against
 * RLIMIT_MEMLOCK, summed over all of the user's processes. This header owns which of the kernel's
 * counts are meant.
 */
#ifndef TLK_COMPAT_ACCOUNT_H
#define TLK_COMPAT_ACCOUNT_H

#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>

/* Who was charged. `user` is a reference, or NULL where no limit holds (CAP_IPC_LOCK). */
struct tlk_account {
	struct user_struct *user;
	struct mm_struct *mm;		/* whose VmPin shows the pages; the owner pins it */
	unsigned long pages;
};

static inline bool tlk_account_fits(struct user_struct *user, unsigned long pages)
{
	const unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	long locked = atomic_long_read(&user->locked_vm);

	/* Processes of one user race here: the sum is checked and raised as one. */
	do {
		if ((unsigned long)locked + pages > limit)
			return false;
	} while (!atomic_long_try_cmpxchg(&user->locked_vm, &locked, locked + pages));
	return true;
}

/* Charges the current user and process; false if the user's limit does not allow it. */
static inline bool tlk_account_charge(struct tlk_account *account, unsigned long pages)
{
	struct user_struct *user = NULL;

	if (!capable(CAP_IPC_LOCK)) {
		user = get_uid(current_user());
		if (!tlk_account_fits(user, pages)) {
			free_uid(user);
			return false;
		}
	}
	atomic64_add(pages, &current->mm->pinned_vm);
	*account = (struct tlk_account){ .user = user, .mm = current->mm, .pages = pages };
	return true;
}

/* Whoever calls this: the user and the process that were charged get it back. */
static inline void tlk_account_uncharge(const struct tlk_account *account)
{
	atomic64_sub(account->pages, &account->mm->pinned_vm);
	if (!account->user)
		return;
	atomic_long_sub(account->pages, &account->user->locked_vm);
	free_uid(account->user);
}

#endif /* TLK_COMPAT_ACCOUNT_H */
