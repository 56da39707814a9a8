// SPDX-License-Identifier: GPL-2.0-only
/*
 * Turns on what the module parameter `probes` asks for, and off in reverse order. This file owns
 * the parameter, the map that observers find, and what is logged. It owns no probe. While probes
 * are on they hold the module, because thunks are its code.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/lockdep.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/mutex.h>
#include <linux/panic.h>
#include <linux/percpu.h>
#include <linux/printk.h>
#include <linux/security.h>
#include <linux/slab.h>
#include <linux/sysfs.h>
#include <asm/barrier.h>

#include "compat/assert.h"
#include "compat/poke.h"
#include "probe/event.h"
#include "probe/layout.h"
#include "probe/patch.h"
#include "probe/probe.h"
#include "probe/signal.h"
#include "probe/site.h"
#include "probe/thunk.h"

/* Observers find it by this name; nothing in the module refers to it from another file. */
extern struct tlk_probe_map tlk_probe_map;
struct tlk_probe_map tlk_probe_map = {
	.magic = { 'T', 'L', 'P', 'R', 'O', 'B', 'E', '1' },
	.size = sizeof(struct tlk_probe_map),
	.record_bytes = sizeof(struct tlk_probe_record),
};

static DEFINE_MUTEX(lock);	/* for what is on, and for all below and in the files of probes */
static unsigned int wanted;	/* by the parameter, before init */
static bool ready;
static bool supervisor_mode;	/* is offered */
static const char *missing;

static char *events;
module_param(events, charp, 0600);
MODULE_PARM_DESC(events, "which events, a list: tracepoints, or symbol+0x10:name=di:0x18(si)");

static int find_and_insert_locked(u32 what)
{
	struct tlk_sites *sites;
	const char *why = "";
	u8 **thunks;
	int error;

	lockdep_assert_held(&lock);
	sites = kvmalloc(sizeof(*sites), GFP_KERNEL);
	thunks = kvmalloc_array(TLK_SITES_MAX, sizeof(*thunks), GFP_KERNEL);
	tlk_kprobes_lock();	/* none comes until the code that was found is changed */
	error = sites && thunks ? tlk_sites_find(sites, what, &why) : -ENOMEM;
	if (!error)
		error = tlk_thunks_write(sites, what, thunks);
	if (!error)
		error = tlk_probes_insert(sites, thunks);
	tlk_kprobes_unlock();
	if (error == -EAGAIN)
		why = "somebody else has changed a place meanwhile; try again";
	if (!error) {
		tlk_probe_map.sites = sites->count;
		pr_notice("probes are in %u places of the kernel's code (%u left out)\n",
			  sites->count, sites->left_out);
	} else {
		pr_err("no probes in this kernel (error %d): %s\n", error, why);
	}
	kvfree(thunks);
	kvfree(sites);
	return error;
}

static void clear_records(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		memset(per_cpu_ptr(&tlk_probe_cpu, cpu), 0, sizeof(struct tlk_probe_cpu));
}

static int start_modes_locked(u32 what)
{
	int error;

	lockdep_assert_held(&lock);
	if (missing) {
		pr_err("no probes in this kernel: it has no %s\n", missing);
		return -EOPNOTSUPP;
	}
	if (security_locked_down(LOCKDOWN_KPROBES)) {
		pr_err("no probes: the kernel is locked down\n");
		return -EPERM;
	}
	clear_records();
	error = tlk_probe_signals_start();
	if (error)
		return error;
	error = find_and_insert_locked(what);
	if (error) {
		tlk_probe_signals_stop();
		return error;
	}
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
	return 0;
}

static int stop_modes_locked(void)
{
	u32 foreign;

	lockdep_assert_held(&lock);
	foreign = tlk_probes_remove();
	if (foreign) {
		pr_err("somebody else has changed %u places with probes since; end that (kprobes, "
		       "live patches) and try again\n", foreign);
		return -EBUSY;
	}
	tlk_probe_signals_stop();
	tlk_probe_map.sites = 0;
	clear_records();
	return 0;
}

/* Interrupts need modes: the last cli of a system call is on the way to user mode. */
static u32 with_needed(u32 what)
{
	if (what & TLK_PROBE_COUNTS)
		what |= TLK_PROBE_INTERRUPTS;
	if (what & TLK_PROBE_INTERRUPTS)
		what |= TLK_PROBE_MODES;
	return what;
}

static int change_modes_locked(u32 what)
{
	const u32 on = tlk_probe_map.active & ~TLK_PROBE_EVENTS;
	int error = 0;

	lockdep_assert_held(&lock);
	if (what == on)
		return 0;
	if (on) {
		error = stop_modes_locked();
		if (error)
			return error;
		WRITE_ONCE(tlk_probe_map.active, tlk_probe_map.active & ~on);
		module_put(THIS_MODULE);
	}
	if (!what)
		return 0;
	if (supervisor_mode) {
		pr_err("no probes where supervisor mode is offered: its system calls would look "
		       "like user mode; load the module without supervisor=1\n");
		return -EBUSY;
	}
	if (!try_module_get(THIS_MODULE))
		return -ENODEV;		/* the module is being removed; its parameters go later */
	error = start_modes_locked(what);
	if (error) {
		module_put(THIS_MODULE);
		return error;
	}
	WRITE_ONCE(tlk_probe_map.active, tlk_probe_map.active | what);
	return 0;
}

/* The lock of the module's parameters keeps `events` as it is. */
static int start_events_locked(void)
{
	struct tlk_event_map map;
	int error;

	lockdep_assert_held(&lock);
	tlk_assert_params_locked();
	if (!try_module_get(THIS_MODULE))
		return -ENODEV;
	error = tlk_event_start(events, &map);
	if (error) {
		module_put(THIS_MODULE);
		return error;
	}
	tlk_probe_map.cpus = nr_cpu_ids;
	tlk_probe_map.ring_events = map.ring_events;
	tlk_probe_map.event_bytes = map.event_bytes;
	tlk_probe_map.places = map.places;
	tlk_probe_map.place = map.place;
	smp_store_release(&tlk_probe_map.rings, map.rings);	/* the observer reads it first */
	WRITE_ONCE(tlk_probe_map.active, tlk_probe_map.active | TLK_PROBE_EVENTS);
	return 0;
}

static void stop_events_locked(void)
{
	lockdep_assert_held(&lock);
	WRITE_ONCE(tlk_probe_map.active, tlk_probe_map.active & ~TLK_PROBE_EVENTS);
	smp_store_mb(tlk_probe_map.rings, 0);
	tlk_event_stop();
	module_put(THIS_MODULE);
}

/* Events start first and stop last, because stopping them never fails. */
static int change_locked(u32 what)
{
	const u32 events_on = tlk_probe_map.active & TLK_PROBE_EVENTS;
	const u32 events_wanted = what & TLK_PROBE_EVENTS;
	int error = 0;

	lockdep_assert_held(&lock);
	if (events_wanted && !events_on)
		error = start_events_locked();
	if (error)
		return error;
	error = change_modes_locked(what & ~TLK_PROBE_EVENTS);
	if ((error ? events_wanted && !events_on : !events_wanted && events_on))
		stop_events_locked();
	return error;
}

static int set_probes(const char *text, const struct kernel_param *parameter)
{
	unsigned int what;
	int error;

	error = kstrtouint(text, 0, &what);
	if (error)
		return error;
	if (what & ~TLK_PROBE_ALL)
		return -EINVAL;
	mutex_lock(&lock);
	if (ready)
		error = change_locked(with_needed(what));
	else
		wanted = what;
	mutex_unlock(&lock);
	return error;
}

static int get_probes(char *text, const struct kernel_param *parameter)
{
	return sysfs_emit(text, "%u\n", READ_ONCE(tlk_probe_map.active));
}

static const struct kernel_param_ops probes_ops = {
	.set = set_probes,
	.get = get_probes,
};
module_param_cb(probes, &probes_ops, NULL, 0600);
MODULE_PARM_DESC(probes, "show observers: 1 user mode, 2 interrupts and who disabled them, "
			 "4 how often, 8 events; a sum (default: 0)");

int __init tlk_probe_init(bool supervisor_is_offered)
{
	int error = 0;

	supervisor_mode = supervisor_is_offered;
	tlk_poke_init(&missing);
	tlk_probe_map.site = (unsigned long)tlk_probe_sites;
	tlk_probe_map.records = (unsigned long)(uintptr_t)&tlk_probe_cpu +
				offsetof(struct tlk_probe_cpu, record);
	kernel_param_lock(THIS_MODULE);
	mutex_lock(&lock);
	if (wanted)
		error = change_locked(with_needed(wanted));
	ready = !error;		/* after a failure a writer of the parameter starts nothing */
	mutex_unlock(&lock);
	kernel_param_unlock(THIS_MODULE);
	return error;
}

bool tlk_probe_abandon(void)
{
	bool off;

	kernel_param_lock(THIS_MODULE);
	mutex_lock(&lock);
	off = !change_locked(0);
	ready = !off;
	mutex_unlock(&lock);
	kernel_param_unlock(THIS_MODULE);
	return off;
}

/* No probe is on: probes hold the module, and a module that is being removed starts none. */
void tlk_probe_exit(void)
{
	WARN_ON_ONCE(tlk_probe_map.active);
}
