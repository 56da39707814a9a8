// SPDX-License-Identifier: GPL-2.0-only
/*
 * Records events at any instruction at which the kernel lets a probe be placed: symbol[+offset],
 * and up to six values, each a register (`di`) or a word of memory (`0x10(di)`), with a name if one
 * is given (`file=di`). This file owns what such a word means.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errno.h>
#include <linux/kernel.h>
#include <linux/kprobes.h>
#include <linux/printk.h>
#include <linux/ptrace.h>
#include <linux/stddef.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "probe/event_write.h"

#define REGISTER(name) { #name, offsetof(struct pt_regs, name) }

static const struct {
	const char *name;
	u16 offset;
} registers[] = {
	REGISTER(ax), REGISTER(bx), REGISTER(cx), REGISTER(dx), REGISTER(si), REGISTER(di),
	REGISTER(bp), REGISTER(sp), REGISTER(ip), REGISTER(flags), REGISTER(r8), REGISTER(r9),
	REGISTER(r10), REGISTER(r11), REGISTER(r12), REGISTER(r13), REGISTER(r14), REGISTER(r15),
};

static u64 value_of(const struct tlk_event_operand *operand, const struct pt_regs *regs)
{
	u64 value = *(const u64 *)((const char *)regs + operand->reg);
	u64 word;

	if (!operand->is_memory)
		return value;
	/*
	 * Only the kernel's memory is read: reading the user's may sleep, and that memory is
	 * private.
	 */
	if (copy_from_kernel_nofault(&word, (const void *)(value + operand->distance),
				     sizeof(word)))
		return (u64)-EFAULT;
	return word;
}
NOKPROBE_SYMBOL(value_of);

static int on_hit(struct kprobe *probe, struct pt_regs *regs)
{
	struct tlk_event_source *source = container_of(probe, struct tlk_event_source, probe);
	u64 values[TLK_EVENT_VALUES];
	u32 i;

	for (i = 0; i < source->operand_count; i++)
		values[i] = value_of(&source->operands[i], regs);
	tlk_event_write_values(source->place, values, source->operand_count);
	return 0;
}
NOKPROBE_SYMBOL(on_hit);

static int register_parse(struct tlk_event_operand *operand, const char *name)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(registers); i++) {
		if (!strcmp(registers[i].name, name)) {
			operand->reg = registers[i].offset;
			return 0;
		}
	}
	return -EINVAL;
}

/* Parses [name=]REGISTER or [name=]DISTANCE(REGISTER), and cuts the text into pieces. */
static int operand_parse(struct tlk_event_operand *operand, char *text)
{
	char *equals = strchr(text, '=');
	char *opening, *closing;

	if (equals == text)
		return -EINVAL;
	if (equals)
		text = equals + 1;
	opening = strchr(text, '(');
	if (!opening)
		return register_parse(operand, text);
	closing = strchr(opening, ')');
	if (!closing || closing[1])
		return -EINVAL;
	*opening = '\0';
	*closing = '\0';
	operand->is_memory = true;
	if (*text && kstrtol(text, 0, &operand->distance))
		return -EINVAL;
	return register_parse(operand, opening + 1);
}

int tlk_event_kprobe_parse(struct tlk_event_source *source, const char *word)
{
	char text[TLK_EVENT_PLACE_BYTES];
	char *rest = text, *plus, *operand;

	if (strscpy(text, word, sizeof(text)) < 0)
		return -E2BIG;
	strscpy(source->symbol, strsep(&rest, ":"), sizeof(source->symbol));
	plus = strchr(source->symbol, '+');
	if (plus) {
		*plus = '\0';
		if (kstrtouint(plus + 1, 0, &source->probe.offset))
			return -EINVAL;
	}
	while ((operand = strsep(&rest, ":"))) {
		if (source->operand_count == TLK_EVENT_VALUES)
			return -E2BIG;
		if (operand_parse(&source->operands[source->operand_count++], operand))
			return -EINVAL;
	}
	return *source->symbol ? 0 : -EINVAL;
}

int tlk_event_kprobe_arm(struct tlk_event_source *source)
{
	source->probe.symbol_name = source->symbol;
	source->probe.pre_handler = on_hit;
	return register_kprobe(&source->probe);
}

/* Waits until its handler runs no more. */
void tlk_event_kprobe_disarm(struct tlk_event_source *source)
{
	unregister_kprobe(&source->probe);
	if (source->probe.nmissed)
		pr_warn("events: %s was reached %lu times inside other probes: not recorded\n",
			source->symbol, source->probe.nmissed);
}
