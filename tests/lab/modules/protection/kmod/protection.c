// SPDX-License-Identifier: GPL-2.0-only
/*
 * A kernel module that says how the kernel is protected on the CPU of whoever reads: the bits of
 * CR4, MSR_IA32_S_CET, and whether a jump to a place without a mark (ENDBR) is really caught.
 *
 * Insert it and read /sys/module/protection/parameters/state, three hexadecimal numbers; remove it.
 * Outside a VM it does not load.
 */
#include <linux/cpufeature.h>
#include <linux/dmi.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/preempt.h>
#include <linux/static_call.h>
#include <asm/msr.h>

#define CR4_CET BIT_ULL(23)	/* older headers do not name it, nor the next */
#define S_CET_MSR 0x6a2

/*
 * The kernel's own test of the tracking: it jumps to such a place, whose address its handler of #CP
 * knows, and returns 0 if the handler was called. It has no mark itself, so it is called directly.
 */
static int no_selftest(void)
{
	return 1;
}

DEFINE_STATIC_CALL(selftest, no_selftest);

static int state_get(char *text, const struct kernel_param *parameter)
{
	u32 low = 0, high = 0;
	unsigned long cr4;
	bool caught;

	preempt_disable();
	asm volatile("mov %%cr4, %0" : "=r" (cr4));
	if (cr4 & CR4_CET)
		rdmsr(S_CET_MSR, low, high);
	caught = !static_call(selftest)();
	preempt_enable();
	return sysfs_emit(text, "%lx %llx %x\n", cr4, low | (u64)high << 32, caught);
}

static const struct kernel_param_ops state_ops = { .get = state_get };
module_param_cb(state, &state_ops, NULL, 0400);
MODULE_PARM_DESC(state, "of the CPU that reads it: CR4, S_CET, and 1 where a stray jump is caught");

static int __init protection_init(void)
{
	struct kprobe probe = { .symbol_name = "ibt_selftest" };

	if (!boot_cpu_has(X86_FEATURE_HYPERVISOR) &&
	    !dmi_match(DMI_BIOS_VENDOR, "The Bochs Project"))
		return -EPERM;
	if (!register_kprobe(&probe)) {
		static_call_update(selftest, (void *)probe.addr);
		unregister_kprobe(&probe);
	}
	return 0;
}

static void __exit protection_exit(void)
{
}

module_init(protection_init);
module_exit(protection_exit);
MODULE_DESCRIPTION("Says how the kernel is protected on this CPU, for tests");
MODULE_LICENSE("GPL");
