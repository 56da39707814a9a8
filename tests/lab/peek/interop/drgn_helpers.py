# SPDX-License-Identifier: GPL-2.0-only
"""Calls drgn's helpers for Linux, inside drgn: a script for `drgn -c CORE`. It prints a JSON object
with each call and its error, which is empty where it has worked.

Each module of drgn.helpers.linux has a call here; test_peek_interop.py knows which may fail.
"""

import contextlib
import io
import itertools
import json

from drgn import stack_trace  # noqa: F401
from drgn.helpers.common import *  # noqa: F403
from drgn.helpers.linux import *  # noqa: F403
from drgn.helpers.linux.pid import find_task

CALLS = """
bitmap: bitmap_weight(prog['__cpu_online_mask'].bits, 64)
block: [disk_name(one) for one in for_each_disk()]
block: print_disks()
block: [part_name(one) for one in for_each_partition()]
block: nr_blockdev_pages()
boot: (kaslr_offset(), pgtable_l5_enabled())
bpf: (list(bpf_prog_for_each()), list(bpf_map_for_each()), list(bpf_link_for_each()))
bpf: list(bpf_btf_for_each())
cgroup: (cgroup_path(INIT.cgroups.dfl_cgrp), cgroup_name(INIT.cgroups.dfl_cgrp))
cgroup: first(css_for_each_descendant_pre(prog['cgrp_dfl_root'].cgrp.self.address_of_()))
cgroup: cgroup_get_from_path('/')
completion: completion_done(per_cpu(prog['cpuhp_state'], 0).done_up.address_of_())
cpumask: (num_online_cpus(), list(for_each_possible_cpu()), cpumask_to_cpulist(cpu_present_mask()))
device: [dev_name(one) for one in bus_for_each_dev(prog['pci_bus_type'].address_of_())]
device: first(class_for_each_device(prog['block_class'].address_of_()))
device: (list(for_each_registered_chrdev()), list(for_each_registered_blkdev()))
fs: print_mounts()
fs: (d_path(INIT.fs.pwd), path_lookup('/proc'))
fs: (list(for_each_file(INIT)), print_files(INIT), fget(INIT, 0))
fs: first(inode_for_each_page(path_lookup('/etc/passwd').dentry.d_inode))
hugetlb: [huge_page_size(one) for one in for_each_hstate()]
idr: first(idr_for_each(prog['prog_idr']))
ioport: first(for_each_resource(prog['iomem_resource']))
ipc: (list(for_each_sysv_shm()), list(for_each_sysv_msg_queue()), list(for_each_sysv_sem_array()))
irq: [irq_desc_action_names(one) for _, one in for_each_irq_desc()]
irq: gate_desc_func(prog['idt_table'][14])
kallsyms: load_vmlinux_kallsyms(prog)
kallsyms: load_module_kallsyms(prog)
kconfig: get_kconfig()
kernfs: kernfs_path(prog['cgrp_dfl_root'].cgrp.kn)
kthread: kthread_data(find_task(2))
list: first(list_for_each_entry('struct task_struct', INIT.tasks.address_of_(), 'tasks'))
list: validate_list(prog['modules'].address_of_())
locking: (mutex_owner(prog['cgroup_mutex'].address_of_()), rwsem_owner(INIT.mm.mmap_lock))
mapletree: first(mt_for_each(INIT.mm.mm_mt.address_of_()))
mm: (cmdline(INIT), environ(INIT), task_rss(INIT), task_vsize(INIT))
mm: first(for_each_vma(INIT.mm))
mm: vma_find(INIT.mm, INIT.mm.start_code)
mm: access_remote_vm(INIT.mm, INIT.mm.arg_start, 8)
mm: (first(for_each_page()), decode_page_flags(next(for_each_page())))
mm: (first(for_each_vmap_area()), find_vmap_area(INIT.stack))
mm: (totalram_pages(), vm_commit_limit(), vm_memory_committed())
mm: (virt_to_phys(INIT), phys_to_virt(0x1000), follow_phys(INIT.mm, INIT.mm.start_code))
mm: virt_to_page(INIT)
mm: list(for_each_memory_block())
mmzone: [low_wmark_pages(one.node_zones[0]) for one in for_each_online_pgdat()]
mmzone: first(for_each_present_section())
module: [one.name for one in for_each_module()]
module: (module_percpu_region(find_module('loop')), module_address_regions(find_module('loop')))
net: [netdev_name(one) for one in for_each_netdev(first(for_each_net())[0])]
net: netdev_get_by_name('lo')
net: netdev_ipv4_addrs(netdev_get_by_name('lo'))
net: first(neigh_table_for_each_neighbor(prog['arp_tbl'].nht))
nodemask: (list(for_each_online_node()), node_state(0, prog['N_ONLINE']))
panic: (panic_message(), panic_task())
panic: tainted()
pci: [pci_name(one) for one in for_each_pci_dev()]
pci: first(for_each_pci_root_bus())
percpu: (per_cpu(prog['runqueues'], 0).cpu, percpu_counter_sum(prog['vm_committed_as']))
pid: (find_task(1), len(list(for_each_task())), len(list(for_each_pid())))
plist: first(plist_for_each(prog['swap_active_head'].address_of_()))
printk: (len(get_dmesg()) > 1000, get_printk_records()[0])
rbtree: first(rbtree_inorder_for_each(prog['sysfs_root_kn'].dir.children.address_of_()))
resource: task_rlimits(INIT)
sched: (cpu_curr(0), idle_task(1), task_cpu(INIT), task_on_cpu(INIT), task_rq(INIT))
sched: (task_state_to_char(INIT), get_task_state(INIT), loadavg(), task_thread_info(INIT))
sched: task_since_last_arrival_ns(INIT)
sched: (list(rq_for_each_fair_task(cpu_rq(0))), list(rq_for_each_rt_task(cpu_rq(0))))
sched: task_group_name(prog['root_task_group'].address_of_())
signal: (list(sigpending_for_each(INIT.pending)), decode_sigset(INIT.blocked))
slab: print_slab_caches()
slab: (find_slab_cache('dentry'), slab_cache_usage(find_slab_cache('dentry')), slab_total_usage())
slab: first(slab_cache_for_each_allocated_object(find_slab_cache('pid'), 'struct pid'))
slab: (slab_object_info(INIT), identify_address(INIT))
stack: (kernel_stack_trace(INIT), str(stack_trace(1)))
stack: print_annotated_stack(stack_trace(INIT))
swap: (list(for_each_swap_info()), swap_total_usage(), total_swapcache_pages())
sysfs: (sysfs_listdir('kernel'), kobject_path(sysfs_lookup_kobject('kernel')))
tcp: sk_tcpstate
timekeeping: (uptime(), ktime_get_seconds(), ktime_get_real_seconds(), ktime_get_coarse_ns())
timer: first(timer_base_for_each(per_cpu(prog['timer_bases'], 0)[0]))
timer: first(hrtimer_clock_base_for_each(per_cpu(prog['hrtimer_bases'], 0).clock_base[0]))
user: (find_user(0), len(list(for_each_user())))
vmstat: (nr_free_pages(), global_node_page_state(prog['NR_FILE_PAGES']))
vmstat: (global_vm_event_state(prog['PGFAULT']), global_zone_page_state(prog['NR_FREE_PAGES']))
wait: list(waitqueue_for_each_task(INIT.signal.wait_chldexit.address_of_()))
xarray: first(xa_for_each(path_lookup('/etc/passwd').dentry.d_inode.i_data.i_pages.address_of_()))
common: print_dmesg()
"""


def first(several):
    return list(itertools.islice(several, 2))


INIT = find_task(1)
errors = {}
for line in CALLS.strip().splitlines():
    call = line.partition(": ")[2]
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            str(eval(call))
        errors[line] = ""
    except Exception as error:
        errors[line] = f"{type(error).__name__}: {error}"
print(json.dumps(errors))
