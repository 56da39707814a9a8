/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Accounts for pages that the kernel holds for a user, as io_uring does for its rings: against
 * RLIMIT_MEMLOCK, summed over all of the user's processes. This header owns which of the kernel's
 * counts are meant.
 */
#ifndef TLK_COMPAT_MEMLOCK_H
#define TLK_COMPAT_MEMLOCK_H

#include <linux/atomic.h>
#include <linux/capability.h>
#include <linux/cred.h>
#include <linux/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/user.h>

/*
 * The user and the process that were charged. `cred` holds the user, or is NULL where no limit
 * holds (CAP_IPC_LOCK). A reference to the user itself could not be dropped everywhere: some stable
 * kernels do not export free_uid(), among them the one that Debian 12 was released with.
 */
struct tlk_memlock {
	const struct cred *cred;
	struct mm_struct *mm;		/* whose VmPin shows the pages; the owner pins it */
	unsigned long pages;
};

static inline bool tlk_memlock_fits(struct user_struct *user, unsigned long pages)
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
static inline bool tlk_memlock_charge(struct tlk_memlock *account, unsigned long pages)
{
	const struct cred *cred = NULL;

	if (!capable(CAP_IPC_LOCK)) {
		if (!tlk_memlock_fits(current_user(), pages))
			return false;
		cred = get_current_cred();
	}
	atomic64_add(pages, &current->mm->pinned_vm);
	*account = (struct tlk_memlock){ .cred = cred, .mm = current->mm, .pages = pages };
	return true;
}

/* Any thread may call this. The user and the process that were charged get the pages back. */
static inline void tlk_memlock_uncharge(const struct tlk_memlock *account)
{
	atomic64_sub(account->pages, &account->mm->pinned_vm);
	if (!account->cred)
		return;
	atomic_long_sub(account->pages, &account->cred->user->locked_vm);
	put_cred(account->cred);
}

#endif /* TLK_COMPAT_MEMLOCK_H */
