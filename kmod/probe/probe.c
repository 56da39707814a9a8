// SPDX-License-Identifier: GPL-2.0-only
/*
 * Probes' table of contents: what the module parameter `probes` turns on, in which order, and off
 * in reverse. Owns the parameter, the map that observers find, and what is logged. While probes are
 * on they hold the module: thunks are its code.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kernel.h>
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

#include "compat/poke.h"
#include "probe/probe.h"
#include "probe/event.h"
#include "probe/patch.h"
#include "probe/signal.h"
#include "probe/site.h"
#include "probe/thunk.h"
#include "supervisor/supervisor.h"

struct tlk_probe_map tlk_probe_map = {
	.magic = { 'T', 'L', 'P', 'R', 'O', 'B', 'E', '1' },
	.size = sizeof(struct tlk_probe_map),
	.record_bytes = sizeof(struct tlk_probe_record),
};

static DEFINE_MUTEX(lock);	/* what is on, and everything below */
static unsigned int wanted;	/* by the parameter, before init */
static bool ready;
static const char *missing;

static char *events;
module_param(events, charp, 0600);
MODULE_PARM_DESC(events, "which events, a list: tracepoints, or symbol+0x10:name=di:0x18(si)");

static int find_and_insert(u32 what)
{
	struct tlk_sites *sites;
	const char *why = "";
	u8 **thunks;
	int error;

	sites = kvmalloc(sizeof(*sites), GFP_KERNEL);
	thunks = kvmalloc_array(TLK_SITES_MAX, sizeof(*thunks), GFP_KERNEL);
	error = sites && thunks ? tlk_sites_find(sites, what, &why) : -ENOMEM;
	if (!error)
		error = tlk_thunks_write(sites, what, thunks);
	if (!error)
		error = tlk_probes_insert(sites, thunks);
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

static int start_modes(u32 what)
{
	int error;

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
	error = find_and_insert(what);
	if (error) {
		tlk_probe_signals_stop();
		return error;
	}
	add_taint(TAINT_USER, LOCKDEP_STILL_OK);
	return 0;
}

static int stop_modes(void)
{
	u32 foreign = tlk_probes_remove();

	if (foreign) {
		pr_err("%u places with probes were changed by somebody else since; end that "
		       "(kprobes, live patches) and try again\n", foreign);
		return -EBUSY;
	}
	tlk_probe_signals_stop();
	tlk_probe_map.sites = 0;
	clear_records();
	return 0;
}

/* Interrupts cannot be told without modes: the last cli is on the way to user mode. */
static u32 with_needed(u32 what)
{
	if (what & TLK_PROBE_COUNTS)
		what |= TLK_PROBE_INTERRUPTS;
	if (what & TLK_PROBE_INTERRUPTS)
		what |= TLK_PROBE_MODES;
	return what;
}

static int change_modes(u32 what)
{
	const u32 on = tlk_probe_map.active & ~TLK_PROBE_EVENTS;
	int error = 0;

	if (what == on)
		return 0;
	if (on) {
		error = stop_modes();
		if (error)
			return error;
		WRITE_ONCE(tlk_probe_map.active, tlk_probe_map.active & ~on);
		module_put(THIS_MODULE);
	}
	if (!what)
		return 0;
	if (tlk_supervisor_is_offered()) {
		pr_err("no probes where supervisor mode is offered: its system calls would look "
		       "like user mode; load the module without supervisor=1\n");
		return -EBUSY;
	}
	__module_get(THIS_MODULE);
	error = start_modes(what);
	if (error) {
		module_put(THIS_MODULE);
		return error;
	}
	WRITE_ONCE(tlk_probe_map.active, tlk_probe_map.active | what);
	return 0;
}

/* The caller holds the lock of the module's parameters, too: `events` stays. */
static int start_events(void)
{
	struct tlk_event_map map;
	int error;

	__module_get(THIS_MODULE);
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

static void stop_events(void)
{
	WRITE_ONCE(tlk_probe_map.active, tlk_probe_map.active & ~TLK_PROBE_EVENTS);
	smp_store_mb(tlk_probe_map.rings, 0);
	tlk_event_stop();
	module_put(THIS_MODULE);
}

/* Events come first and go last, for to end them always works. */
static int change(u32 what)
{
	const u32 events_on = tlk_probe_map.active & TLK_PROBE_EVENTS;
	const u32 events_wanted = what & TLK_PROBE_EVENTS;
	int error = 0;

	if (events_wanted && !events_on)
		error = start_events();
	if (error)
		return error;
	error = change_modes(what & ~TLK_PROBE_EVENTS);
	if ((error ? events_wanted && !events_on : !events_wanted && events_on))
		stop_events();
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
		error = change(with_needed(what));
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

int __init tlk_probe_init(void)
{
	int error = 0;

	tlk_poke_init(&missing);
	tlk_probe_map.site = (unsigned long)tlk_probe_sites;
	tlk_probe_map.records = (unsigned long)(uintptr_t)&tlk_probe_cpu +
				offsetof(struct tlk_probe_cpu, record);
	kernel_param_lock(THIS_MODULE);
	mutex_lock(&lock);
	ready = true;
	if (wanted)
		error = change(with_needed(wanted));
	mutex_unlock(&lock);
	kernel_param_unlock(THIS_MODULE);
	return error;
}

/* Nothing is on: what is on holds the module. */
void tlk_probe_exit(void)
{
}
