# SPDX-License-Identifier: GPL-2.0-only
"""Finds complaints in a kernel log: each with its context, as one text.

This file owns the patterns that begin a complaint and the rule by which it ends. lab.py and the
tests decide what a complaint means for a run.
"""

from __future__ import annotations

import re

CONTEXT_LINES_MAX = 200
"""Longest complaint, in lines of the log; what follows is in the log itself."""

# Level, time stamp and, with CONFIG_PRINTK_CALLER, the task or processor that printed the line.
_PREFIX = re.compile(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?)?")

# The first lines of complaints, as the kernel's sources print them.
_OPENERS = re.compile(
    "|".join(
        (
            r"WARNING: ",  # WARN_ON and lockdep
            r"(?:kernel )?BUG(?: at |: )",  # BUG_ON, KASAN, sleeping in atomic, page faults, ...
            r"BUG [\w-]+ \(.*\): ",  # SLUB's checks
            r"Oops(?:: |\b.*\[#\d+\])",
            r"Kernel panic - not syncing",
            r"(?:general protection fault|invalid opcode|divide error|double fault|int3|"
            r"stack segment|segment not present|invalid TSS|alignment check)\b.* \[#\d+\]",
            r"traps: (?:Missing ENDBR|PANIC)|Missing ENDBR: |PANIC: |PANIC at ",
            r"unchecked MSR access error: ",
            r"UBSAN: ",
            r"INFO: task .* blocked for more than ",
            r"INFO: (?:trying to register non-static key|suspicious RCU usage)",
            r"(?:rcu: )?INFO: rcu\w* (?:self-)?detected (?:expedited )?stall",
            r"INFO: lockdep is turned off",
            r"watchdog: (?:BUG: |.*hard LOCKUP)",
            r"kmemleak: \d+ new suspected memory leaks",
            r"unreferenced object 0x",
            r"(?:list_(?:add|del)|refcount_t:|kref) .*(?:corruption|saturated|underflow|overflow)",
            r"sysfs: cannot create duplicate filename",
            r"ODEBUG: ",
            r"note: .* exited with (?:preempt_count|irqs disabled)",
            r"kmem_cache_destroy .*: Slab cache still has objects",
            r"Fixing recursive fault but reboot is needed",
        )
    )
)

# Complaints that are framed by a line of equals signs and go on after the first stack trace.
_FRAMED = re.compile(r"BUG: (?:KASAN|KCSAN|KFENCE|KMSAN)|BUG [\w-]+ \(|UBSAN: ")
_FRAME = re.compile(r"={20,}$")
_RACE, _MODULE = "BUG: KCSAN: ", "[trapless]"
_OTHERS = re.compile(
    r"(?:(?<= asm_)|(?<= __x64_sys_)|(?<= exit_to_user_mode_)|(?<= held by )).*(?:\n.*\S.*)*"
)
# Complaints whose body is indented and that have no stack trace of the usual form.
_INDENTED = re.compile(r"unreferenced object |kmemleak: |note: |INFO: lockdep is turned off")
_END_MARK = re.compile(r"---\[ end ")
_TRACE_END = re.compile(r" *</TASK>$")
_AFTER_TRACE = re.compile(
    r" *</?(?:TASK|IRQ|NMI|#..)>|Modules linked in|CR2: |---\[ |\S+ ?\+0x|irq ev"
)


def splats(log: str) -> list[str]:
    """Every complaint in `log`, in order: its first line and the lines that belong to it. A data
    race of KCSAN is one only where the module has a part in it: the kernel has races of its own.
    """
    complaints: list[list[str]] = []
    current: list[str] | None = None
    for line in log.splitlines():
        text = _PREFIX.sub("", line.rstrip("\r"), count=1)
        if current is not None and _belongs(text, current):
            current.append(text)
            if _closes(text, current):
                current = None
        elif _OPENERS.match(text):
            current = [text]
            complaints.append(current)
        else:
            current = None
    texts = ["\n".join(lines).rstrip() for lines in complaints]
    return [text for text in texts if not text.startswith(_RACE) or _MODULE in _accesses(text)]


def _accesses(race: str) -> str:
    """The text of a race without the parts that vary: which task an interrupt with an access had
    interrupted, which had made (or left) the system call with an access, and the locks held."""
    return _OTHERS.sub("", race)


def _belongs(text: str, lines: list[str]) -> bool:
    """Whether `text` goes on with the complaint that `lines` began."""
    if len(lines) >= CONTEXT_LINES_MAX:
        return False
    if _INDENTED.match(lines[0]):
        return text.startswith(" ")
    if not _FRAMED.match(lines[0]) and any(_TRACE_END.match(line) for line in lines):
        return bool(_AFTER_TRACE.match(text))
    return True


def _closes(text: str, lines: list[str]) -> bool:
    """Whether `text` is the last line of the complaint."""
    return bool((_FRAME if _FRAMED.match(lines[0]) else _END_MARK).match(text))
