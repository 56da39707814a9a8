// SPDX-License-Identifier: GPL-2.0-only
/*
 * Changes and reads the kernel's code by the kernel's own functions, which are found once, when the
 * module is loaded. This file owns how a change is made. It does not choose what is changed;
 * probe/patch.c does. The functions are called through static calls, as those of symbols.c are and
 * for the same reasons.
 *
 * Code is changed as jump labels and optimised kprobes change it: a breakpoint first, then the
 * rest, then the first byte, and all CPUs see each step before the next. No CPU is stopped.
 *
 * QEMU's emulator (met in release 7.2) may keep a translation of the code as it was during the
 * change, if another CPU ran there just then: a breakpoint, or a jump, that is not in memory any
 * more. In an emulator all other CPUs are therefore stopped while code is changed; nothing else
 * interrupts them there.
 */
#include <linux/cpu.h>
#include <linux/init.h>
#include <linux/kallsyms.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/lockdep.h>
#include <linux/static_call.h>
#include <linux/stop_machine.h>
#include <linux/string.h>
#include <asm/cpufeature.h>
#include <asm/processor.h>
#if __has_include(<asm/cpuid/api.h>)
#include <asm/cpuid/api.h>	/* where cpuid() went */
#endif

#include "compat/poke.h"
#include "compat/symbols.h"

#define HYPERVISOR_LEAF 0x40000000

struct tlk_text tlk_text __ro_after_init;

static struct mutex *text_mutex __ro_after_init;
static struct mutex *kprobe_mutex __ro_after_init;
static bool is_emulator __ro_after_init;

struct change {
	struct tlk_patch *patches;
	u32 count;
	u8 stage;
	bool insert;
	bool alone;		/* no other CPU executes anything meanwhile */
};

static void *no_direct(void *at, const void *code, size_t length)
{
	return NULL;
}

static void no_poke(void *at, const void *code, size_t length, const void *meanwhile)
{
}

static void no_finish(void)
{
}

static void *no_copy(void *at, const void *code, size_t length)
{
	return NULL;
}

static int no_decode(struct insn *insn, const void *code, int length, enum insn_mode mode)
{
	return -ENOSYS;
}

static int no_stop(cpu_stop_fn_t function, void *data, const struct cpumask *cpus)
{
	return -ENOSYS;
}

static int no_lookup(unsigned long address, unsigned long *size, unsigned long *offset)
{
	return 0;
}

static struct kprobe *no_kprobe(void *at)
{
	return NULL;
}

TLK_CHECK_STAND_IN(text_poke_kgdb, no_direct);
TLK_CHECK_STAND_IN(text_poke_copy, no_copy);
TLK_CHECK_STAND_IN(stop_machine_cpuslocked, no_stop);
TLK_CHECK_STAND_IN(insn_decode, no_decode);
TLK_CHECK_STAND_IN(kallsyms_lookup_size_offset, no_lookup);
TLK_CHECK_STAND_IN(get_kprobe, no_kprobe);

DEFINE_STATIC_CALL(poke_direct, no_direct);
DEFINE_STATIC_CALL(poke, no_poke);
DEFINE_STATIC_CALL(poke_finish, no_finish);
DEFINE_STATIC_CALL(poke_copy, no_copy);
DEFINE_STATIC_CALL(stop_all, no_stop);
DEFINE_STATIC_CALL(decode, no_decode);
DEFINE_STATIC_CALL(function_lookup, no_lookup);
DEFINE_STATIC_CALL(kprobe_lookup, no_kprobe);

static __init void *find(const char *name, const char *later_name, const char **missing)
{
	void *address = tlk_symbol(name);

	if (!address && later_name)
		address = tlk_symbol(later_name);
	if (!address && !*missing)
		*missing = name;
	return address;
}

static __init bool runs_in_emulator(void)
{
	u32 signature[3], highest;

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR))
		return false;
	cpuid(HYPERVISOR_LEAF, &highest, &signature[0], &signature[1], &signature[2]);
	return !memcmp(signature, "TCGTCGTCGTCG", sizeof(signature));
}

#define FIND_CALL(call, name, later_name)				\
do {									\
	void *address = find(name, later_name, missing);		\
									\
	if (address)							\
		static_call_update(call, address);			\
} while (0)

int __init tlk_poke_init(const char **missing)
{
	*missing = NULL;
	/* This function asserts no lock: under stop_machine() another thread holds it. */
	FIND_CALL(poke_direct, "text_poke_kgdb", NULL);
	FIND_CALL(poke, "text_poke_queue", "smp_text_poke_batch_add");
	FIND_CALL(poke_finish, "text_poke_finish", "smp_text_poke_batch_finish");
	FIND_CALL(poke_copy, "text_poke_copy", NULL);
	FIND_CALL(stop_all, "stop_machine_cpuslocked", NULL);
	FIND_CALL(decode, "insn_decode", NULL);
	FIND_CALL(function_lookup, "kallsyms_lookup_size_offset", NULL);
	FIND_CALL(kprobe_lookup, "get_kprobe", NULL);
	kprobe_mutex = find("kprobe_mutex", NULL, missing);
	text_mutex = find("text_mutex", NULL, missing);
	tlk_text.start = find("_stext", NULL, missing);
	tlk_text.end = find("_etext", NULL, missing);
	tlk_text.jumps = find("__start___jump_table", NULL, missing);
	tlk_text.jumps_end = find("__stop___jump_table", NULL, missing);
	tlk_text.calls = find("__start_static_call_sites", NULL, missing);
	tlk_text.calls_end = find("__stop_static_call_sites", NULL, missing);
	if (*missing)
		return -ENOENT;
	is_emulator = runs_in_emulator();
	tlk_text.context_key = tlk_symbol("context_tracking_key");
	tlk_text.user_enter = tlk_symbol("__ct_user_enter");
	tlk_text.user_exit = tlk_symbol("__ct_user_exit");
	return 0;
}

/* In an emulator all other CPUs are stopped; elsewhere the kernel makes the changes together. */
static int change_all(void *data)
{
	const struct change *change = data;
	u32 i;

	for (i = 0; i < change->count; i++) {
		struct tlk_patch *patch = &change->patches[i];
		const void *code = change->insert ? patch->after : patch->before;

		if (patch->stage != change->stage || patch->is_in == change->insert)
			continue;
		if (change->alone || patch->stage == TLK_PATCH_DEAD)
			static_call(poke_direct)(patch->at, code, patch->length);
		else
			static_call(poke)(patch->at, code, patch->length, patch->meanwhile);
		patch->is_in = change->insert;
	}
	if (!change->alone)
		static_call(poke_finish)();
	return 0;
}

static void apply_locked(struct change *change)
{
	lockdep_assert_held(text_mutex);
	/* With one CPU the emulator has no other that could keep a translation. */
	change->alone = is_emulator && num_online_cpus() > 1;
	if (change->alone)
		static_call(stop_all)(change_all, change, NULL);
	else
		change_all(change);
}

/* Taken before the lock of CPUs and text_mutex, as the kernel does. */
void tlk_kprobes_lock(void)
{
	mutex_lock(kprobe_mutex);
}

void tlk_kprobes_unlock(void)
{
	mutex_unlock(kprobe_mutex);
}

bool tlk_kprobe_within(const u8 *at, size_t bytes)
{
	const u8 *end = at + bytes;

	lockdep_assert_held(kprobe_mutex);
	while (at < end && !static_call(kprobe_lookup)((void *)at))
		at++;
	return at < end;
}

/* A CPU that comes online holds the lock of CPUs when it takes text_mutex: so does this. */
static void text_lock(void)
{
	cpus_read_lock();
	mutex_lock(text_mutex);
}

static void text_unlock(void)
{
	mutex_unlock(text_mutex);
	cpus_read_unlock();
}

/*
 * Counts the places that must not be changed back: somebody else has changed them since, or a
 * kprobe has a copy of their code, even one that is off and leaves no trace in the code.
 */
static u32 count_foreign_locked(const struct tlk_patch *patches, u32 count)
{
	u32 foreign = 0;
	u32 i;

	lockdep_assert_held(text_mutex);
	for (i = 0; i < count; i++) {
		const struct tlk_patch *patch = &patches[i];

		if (patch->is_in && (memcmp(patch->at, patch->after, patch->length) ||
				     tlk_kprobe_within(patch->at, patch->length)))
			foreign++;
	}
	return foreign;
}

/* Of a prefix only the first byte is compared: an earlier change writes the second one. */
static bool are_as_before_locked(const struct tlk_patch *patches, u32 count)
{
	u32 i;

	lockdep_assert_held(text_mutex);
	for (i = 0; i < count; i++) {
		const struct tlk_patch *patch = &patches[i];

		if (memcmp(patch->at, patch->before,
			   patch->stage == TLK_PATCH_PREFIX ? 1 : patch->length))
			return false;
	}
	return true;
}

int tlk_patches_insert(struct tlk_patch *patches, u32 count)
{
	int error = 0;
	u8 stage;

	text_lock();
	if (!are_as_before_locked(patches, count))
		error = -EAGAIN;
	for (stage = 0; !error && stage < TLK_PATCH_STAGES; stage++)
		apply_locked(&(struct change){ patches, count, stage, .insert = true });
	text_unlock();
	return error;
}

static int do_nothing(void *unused)
{
	return 0;
}

u32 tlk_patches_remove(struct tlk_patch *patches, u32 count)
{
	u32 foreign;
	u8 stage;

	tlk_kprobes_lock();
	text_lock();
	foreign = count_foreign_locked(patches, count);
	for (stage = TLK_PATCH_STAGES; !foreign && stage > 0; stage--)
		apply_locked(&(struct change){ patches, count, stage - 1, .insert = false });
	/* An idle task may stand just behind a jump, and RCU does not wait for idle tasks. */
	if (!foreign)
		static_call(stop_all)(do_nothing, NULL, NULL);
	text_unlock();
	tlk_kprobes_unlock();
	return foreign;
}

void tlk_poke_dead(void *at, const void *code, size_t length)
{
	static_call(poke_copy)(at, code, length);
}

int tlk_decode(struct insn *insn, const void *code)
{
	return static_call(decode)(insn, code, MAX_INSN_SIZE, INSN_MODE_KERN);
}

bool tlk_function_at(unsigned long address, unsigned long *size, unsigned long *offset)
{
	return static_call(function_lookup)(address, size, offset);
}
