# SPDX-License-Identifier: GPL-2.0-only
"""Names the types of the kernel's variables that BTF leaves out.

BTF has the types of per-CPU variables only, and before 6.0 of none. Owns the types of variables
that drgn's helpers, volatility's plug-ins and people ask for. A kernel may lack some.
"""

from __future__ import annotations

import re

from trapless.peek.kernel.btf import Btf

_NAMES = {
    "unsigned long": (
        "_etext _text max_low_pfn min_low_pfn page_offset_base sysctl_overcommit_kbytes "
        "tainted_mask vmalloc_base vmemmap_base"
    ),
    "struct list_head": (
        "bpf_kallsyms ftrace_mod_maps modules net_namespace_list pci_root_buses slab_caches "
        "super_blocks tty_drivers vmap_area_list"
    ),
    "int": (
        "cap_last_cap hugetlb_max_hstate nr_irqs nr_threads num_registered_fb "
        "sysctl_overcommit_ratio"
    ),
    "struct idr": "btf_idr link_idr map_idr prog_idr",
    "unsigned int": (
        "log_buf_len nr_cpu_ids nr_node_ids nr_swapfiles nr_vmap_nodes vmap_zone_size"
    ),
    "struct cpumask": "__cpu_online_mask __cpu_possible_mask __cpu_present_mask",
    "struct kset *": "bus_kset class_kset module_kset slab_kset",
    "atomic_long_t": "_totalram_pages nr_swap_pages",
    "struct bus_type": "memory_subsys pci_bus_type",
    "atomic_long_t [NR_VM_NODE_STAT_ITEMS]": "vm_node_stat",
    "atomic_long_t [NR_VM_ZONE_STAT_ITEMS]": "vm_zone_stat",
    "atomic_t": "panic_cpu",
    "char *": "log_buf saved_command_line",
    "char *[9]": "task_state_array",
    "char [512]": "linux_banner",
    "gate_desc [256]": "idt_table",
    "long": "total_swap_pages",
    "nodemask_t [NR_NODE_STATES]": "node_states",
    "note_buf_t *": "crash_notes",
    "struct atomic_notifier_head": "keyboard_notifier_list",
    "struct blk_major_name *[255]": "major_names",
    "struct cgroup_root": "cgrp_dfl_root",
    "struct char_device_struct *[255]": "chrdevs",
    "struct class": "block_class",
    "struct cpuhp_cpu_state": "cpuhp_state",
    "struct dentry_operations": "sockfs_dentry_operations",
    "struct fb_info *[32]": "registered_fb",
    "struct file_operations": "socket_file_ops",
    "struct ftrace_ops": "ftrace_list_end",
    "struct ftrace_ops *": "ftrace_ops_list",
    "struct hlist_head [128]": "uidhash_table",
    "struct hrtimer_cpu_base": "hrtimer_bases",
    "struct hstate [2]": "hstates",
    "struct ipc_namespace": "init_ipc_ns",
    "struct irq_stack *": "hardirq_stack_ptr irq_stack_ptr",
    "struct kernfs_node *": "sysfs_root_kn",
    "struct kmem_cache *": "task_struct_cachep",
    "struct kobj_map *": "cdev_map",
    "struct maple_tree": "sparse_irqs",
    "struct mem_section **": "mem_section",
    "struct memblock": "memblock",
    "struct mm_struct": "init_mm",
    "struct mod_tree_root": "mod_tree",
    "struct mutex": "cgroup_mutex",
    "struct neigh_table": "arp_tbl nd_tbl",
    "struct net": "init_net",
    "struct percpu_counter": "vm_committed_as",
    "struct pglist_data *[1024]": "node_data",
    "struct pid_namespace": "init_pid_ns",
    "struct plist_head": "swap_active_head",
    "struct printk_ringbuffer *": "prb",
    "struct rb_root": "vmap_area_root",
    "struct resource": "iomem_resource",
    "struct rq": "runqueues",
    "struct super_block *": "blockdev_superblock",
    "struct swap_info_struct *[23]": "swap_info",
    "struct taint_flag [18]": "taint_flags",
    "struct task_group": "root_task_group",
    "struct task_struct": "init_task",
    "struct timer_base [2]": "timer_bases",
    "struct tk_data": "tk_core",
    "struct uts_namespace": "init_uts_ns",
    "struct vm_event_state": "vm_event_states",
    "struct vmap_node *": "vmap_nodes",
    "struct xarray": "irq_desc_tree",
    "u64": "jiffies_64",
    "unsigned long [3]": "avenrun",
    "unsigned long [8192]": "__per_cpu_offset",
}
VARIABLES = {name: type_ for type_, names in _NAMES.items() for name in names.split()}
"""The type of each variable, as C declares it. A number of elements may be a constant's name."""
_CONSTANT = re.compile(r"\[([A-Z_]+)\]")


def with_values(text: str, btf: Btf) -> str:
    """The text of a type, with this kernel's value in the place of a constant's name; LookupError
    where the kernel has no such constant."""

    def value(match: re.Match[str]) -> str:
        constant = btf.enumerator(match[1])
        if constant is None:
            raise LookupError(f"the target's kernel has no {match[1]}")
        return f"[{constant[1]}]"

    return _CONSTANT.sub(value, text)
