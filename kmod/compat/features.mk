# SPDX-License-Identifier: GPL-2.0-only
#
# What the build asks of the kernel: which parts of the module its configuration allows, and what
# its headers have. This file owns these questions, as features and never as version numbers; Kbuild
# owns the list of objects.

# Supervisor mode follows threads by preemption notifiers and tracepoints, in places where a
# real-time kernel's locks may not be taken. On other kernels the module answers that it is not
# there.
ifeq ($(CONFIG_X86),y)
ifeq ($(CONFIG_PREEMPT_NOTIFIERS)$(CONFIG_TRACEPOINTS)$(CONFIG_PREEMPT_RT),yy)
TLK_SUPERVISOR := y
endif
endif

# Probes go to places of the kernel's code that jump labels and paravirtual calls leave, and to a
# tracepoint.
ifeq ($(CONFIG_JUMP_LABEL)$(CONFIG_HAVE_STATIC_CALL_INLINE)$(CONFIG_TRACEPOINTS),yyy)
TLK_PROBES := y
endif

# KCSAN would report each count of a branch (TLK_COVERAGE) that two processors make at once.
ifeq ($(CONFIG_KCSAN),y)
TLK_MARKED_COUNTS := -fprofile-update=atomic
endif

# $(call has,WORD,HEADER,NAME) is -DTLK_HAS_NAME where the kernel's header has the word.
has = $(if $(shell grep -sw $(1) $(srctree)/$(2)),-DTLK_HAS_$(3))

TLK_FEATURES := $(call has,vm_flags_set,include/linux/mm.h,VM_FLAGS_SET)
TLK_FEATURES += $(call has,throttle_disk,include/linux/sched.h,THROTTLE_DISK)
TLK_FEATURES += $(call has,UNWIND_HINT_EMPTY,arch/x86/include/asm/unwind_hints.h,UNWIND_HINT_EMPTY)
TLK_FEATURES += $(if $(wildcard $(srctree)/include/linux/annotate.h),-DTLK_HAS_ANNOTATE)
TLK_FEATURES += $(call has,file_mnt_idmap,include/linux/fs.h,FILE_MNT_IDMAP)
TLK_FEATURES += $(call has,group_dead,include/trace/events/sched.h,GROUP_DEAD)
TLK_FEATURES += $(call has,FILLDIR_FLAG_NOINTR,include/linux/fs.h,DIR_CONTEXT_COUNT)
