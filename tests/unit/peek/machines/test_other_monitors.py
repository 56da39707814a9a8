# SPDX-License-Identifier: GPL-2.0-only
"""Machines of Firecracker, cloud-hypervisor and crosvm: processes that map memory as these do.

The monitors need KVM, so their place is taken by a process with their name, whose threads have the
names of theirs. Where each has its memory is from its source: Firecracker, src/vmm/src/vstate/
memory.rs and vcpu.rs; cloud-hypervisor, vmm/src/memory_manager.rs and cpu.rs; crosvm,
vm_memory/src/guest_memory.rs and src/crosvm/sys/linux/vcpu.rs.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.unit.peek.machines.made_up_monitors import started
from tests.unit.peek.toy_kernel import RELEASE
from trapless.peek import machines
from trapless.peek.kernel.memory import FOUR_GIB, GIB

MIB = 1 << 20
HIGH = 48 * MIB
PROCESS = textwrap.dedent(
    """
    import ctypes, mmap, os, sys, threading
    ram, how, low, high, thread = sys.argv[1:]
    low, high = int(low), int(high)
    sizes = [low, high] if high else [low]
    ANONYMOUS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000
    def memfd(name, length):
        descriptor = os.memfd_create(name)
        os.truncate(descriptor, length)
        return descriptor
    if how == "anonymous":
        views = [mmap.mmap(-1, size, flags=ANONYMOUS) for size in sizes]
    elif how == "one memfd":
        one = memfd("crosvm_guest", sum(sizes))
        views = [mmap.mmap(one, low, flags=mmap.MAP_SHARED)]
        views += [mmap.mmap(one, high, flags=mmap.MAP_SHARED, offset=low)] if high else []
    else:
        flags = mmap.MAP_SHARED if how == "shared" else mmap.MAP_PRIVATE
        views = [mmap.mmap(memfd("ch_ram", size), size, flags=flags | 0x4000) for size in sizes]
    data = open(ram, "rb").read()
    for at in range(0, len(data), 65536):
        block = data[at:at + 65536]
        if block.count(0) != len(block):
            views[0][at:at + len(block)] = block
    if high:
        views[1][:4] = b"high"
    def vcpu(number):
        ctypes.CDLL(None).prctl(15, f"{thread}{number}".encode())
        started.release()
        threading.Event().wait()
    started = threading.Semaphore(0)
    for number in range(2):
        threading.Thread(target=vcpu, args=[number], daemon=True).start()
        started.acquire()
    print("ready", flush=True)
    sys.stdin.read()
    """
)


@pytest.mark.parametrize(
    ("program", "how", "low", "high", "thread"),
    [
        ("firecracker", "anonymous", 3 * GIB, HIGH, "fc_vcpu "),
        ("firecracker", "anonymous", 0xD0000000, HIGH, "fc_vcpu "),
        ("firecracker", "anonymous", 64 * MIB, 0, "fc_vcpu "),
        ("cloud-hypervisor", "private", 3 * GIB, HIGH, "vcpu"),
        ("cloud-hypervisor", "shared", 3 * GIB, HIGH, "vcpu"),
        ("cloud-hypervisor", "anonymous", 3 * GIB, HIGH, "vcpu"),
        ("cloud-hypervisor", "private", 64 * MIB, 0, "vcpu"),
        ("crosvm", "one memfd", 0xD0000000, HIGH, "crosvm_vcpu"),
        ("crosvm", "one memfd", 2 * GIB, HIGH, "crosvm_vcpu"),
        ("crosvm", "one memfd", 64 * MIB, 0, "crosvm_vcpu"),
    ],
)
def test_machine_is_opened_by_its_pid(own_cache, toy, program, how, low, high, thread):
    with started(f"/usr/bin/{program}", PROCESS, toy, how, low, high, thread) as running:
        machine = machines.choose(pid=running.pid)
        assert isinstance(machine, machines.Process) and machine.kind == program
        emulator = machine.emulator()
        assert emulator is not None and len(emulator.threads) == 2
        with machine.open() as target:
            assert target.release.says(RELEASE)
            found = [(one.start, one.length) for one in target.memory.regions()]
            assert found == [(0, low)] + [(FOUR_GIB, high)] * bool(high)
            if high:
                assert target.memory.read(FOUR_GIB, 4) == b"high"
