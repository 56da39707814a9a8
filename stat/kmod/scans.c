// SPDX-License-Identifier: GPL-2.0-only
/*
 * Recognises calls that ask for the attributes of names which the same process has read by
 * getdents64: those that TL_NR_SCANDIR would spare. A name is known by its process, its text and
 * its inode number, and it counts once. So descriptors that were duplicated and paths need not be
 * followed, and an equal name in another directory is told apart. It owns the set of names; its
 * functions are called for one call after the other, with interrupts off.
 */
#include <linux/types.h> /* dirent.h of 6.1 lacks it */
#include <linux/dirent.h>
#include <linux/hash.h>
#include <linux/limits.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <linux/string.h>
#include <linux/stringhash.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/ptrace.h>
#include <asm/stat.h>
#include <asm/unistd.h>

#include "owner.h"

#define SET_BITS 18
#define WAYS 8		/* places that a name may have; beyond them the oldest is forgotten */
#define CHUNK 64ul	/* bytes of a path that are read at once; none crosses a page */

static u64 *set;	/* 0: a place that is free */

int scans_begin(void)
{
	set = vzalloc(sizeof(*set) << SET_BITS);
	return set ? 0 : -ENOMEM;
}

void scans_end(void)
{
	vfree(set);
	set = NULL;
}

bool scans_concern(const struct pt_regs *regs)
{
	switch (regs->orig_ax) {
	case __NR_getdents64:
	case __NR_newfstatat:
	case __NR_statx:
	case __NR_stat:
	case __NR_lstat:
		return !is_call_of_32_bits(current);
	default:
		return false;
	}
}

static bool copy(void *to, unsigned long from, size_t bytes)
{
	unsigned long left;

	if (!access_ok((void __user *)from, bytes))
		return false;
	pagefault_disable();
	left = __copy_from_user_inatomic(to, (void __user *)from, bytes);
	pagefault_enable();
	return !left;
}

/* ---- The set ------------------------------------------------------------------------------- */

static u64 key_of(const char *name, size_t length, u64 inode)
{
	u64 text = full_name_hash((void *)(unsigned long)current->tgid, name, length);

	return hash_64(inode, 64) ^ (text << 32 | text) ?: 1;
}

static u64 *places_of(u64 key)
{
	return &set[hash_64(key, SET_BITS) & ~(WAYS - 1ul)];
}

static void add(u64 key)
{
	u64 *places = places_of(key), last = key;
	unsigned int i;

	/* The newest is first; what was there moves on, up to where `key` or a free place was. */
	for (i = 0; i < WAYS && last; i++) {
		swap(places[i], last);
		if (last == key)
			break;
	}
}

static bool take(u64 key)
{
	u64 *places = places_of(key);
	unsigned int i;

	for (i = 0; i < WAYS; i++)
		if (places[i] == key) {
			memmove(&places[i], &places[i + 1], (WAYS - 1 - i) * sizeof(*places));
			places[WAYS - 1] = 0;
			return true;
		}
	return false;
}

/* ---- Calls --------------------------------------------------------------------------------- */

static bool is_dots(const char *name)
{
	return !strcmp(name, ".") || !strcmp(name, "..");
}

static u64 add_names(unsigned long at, long bytes)
{
	const size_t before = offsetof(struct linux_dirent64, d_name);
	const unsigned long end = at + bytes;
	char text[NAME_MAX + 8];
	struct linux_dirent64 entry;
	u64 names = 0;

	for (; at < end; at += entry.d_reclen) {
		size_t room;

		if (!copy(&entry, at, before) || entry.d_reclen <= before)
			break;
		room = min_t(size_t, entry.d_reclen - before, sizeof(text));
		if (!copy(text, at + before, room))
			break;
		text[room - 1] = '\0';
		if (is_dots(text))
			continue;
		add(key_of(text, strlen(text), entry.d_ino));
		names++;
	}
	return names;
}

/* Reads the path at `from`. Returns its last name, or NULL. */
static const char *last_name(unsigned long from)
{
	static char path[PATH_MAX + CHUNK];
	size_t used = 0, chunk;

	do {
		chunk = CHUNK - (from + used) % CHUNK;
		if (!copy(path + used, from + used, chunk))
			return NULL;
		if (strnlen(path + used, chunk) < chunk)
			return kbasename(path);
		used += chunk;
	} while (used < PATH_MAX);
	return NULL;
}

static bool take_name(unsigned long path, unsigned long inode_at)
{
	const char *name = last_name(path);
	u64 inode;

	return name && *name && copy(&inode, inode_at, sizeof(inode)) &&
	       take(key_of(name, strlen(name), inode));
}

void scans_note(const struct pt_regs *regs, long result, u64 *names, u64 *name_stats)
{
	const size_t in_stat = offsetof(struct stat, st_ino);
	const size_t in_statx = offsetof(struct statx, stx_ino);

	switch (regs->orig_ax) {
	case __NR_getdents64:
		*names += add_names(regs->si, result);
		break;
	case __NR_newfstatat:
		*name_stats += take_name(regs->si, regs->dx + in_stat);
		break;
	case __NR_statx:
		*name_stats += take_name(regs->si, regs->r8 + in_statx);
		break;
	default:
		*name_stats += take_name(regs->di, regs->si + in_stat);
	}
}
