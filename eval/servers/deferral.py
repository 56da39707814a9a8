# SPDX-License-Identifier: GPL-2.0-only
"""Says which calls of an event loop could wait for a later one, and what that would save at most.

This file owns the rule of each call, the replay of recorded calls under a policy, and the
arithmetic of the bound. part_aggregate.py records the calls. aggregate.md gives the reasons at
length.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

WAITS = ("epoll_wait", "epoll_pwait", "epoll_pwait2", "poll", "ppoll", "select", "pselect6")
"""Calls that may sleep: nothing waits longer than until the next one."""

MAKERS = (
    "accept", "accept4", "dup", "dup2", "dup3", "epoll_create1", "eventfd2", "fcntl", "openat",
    "pipe2", "recvmsg", "signalfd4", "socket", "socketpair", "timerfd_create",
)  # fmt: skip
"""Calls that may make a descriptor; an earlier close decides its number."""

UNSEEN = (
    "clock_gettime", "fstat", "getpeername", "getpid", "getsockname", "getsockopt", "gettimeofday",
    "lseek", "newfstatat", "pread64", "read", "recvfrom", "statx",
)  # fmt: skip
"""Calls whose order with calls on other descriptors no other process can see."""

STRICT, LOOSE = "strict", "loose"
POLICIES = (STRICT, LOOSE)

EPOLL_CHANGES = ("0x2", "0x3")  # EPOLL_CTL_DEL, EPOLL_CTL_MOD
SWITCHES = (("0x6", "0x1"), ("0x6", "0x3"))  # SOL_TCP with TCP_NODELAY, with TCP_CORK


@dataclass(frozen=True)
class Rule:
    """When a call may wait: under the policies in `by`, and why not under the others."""

    by: tuple[str, ...]
    reason: str


RULES: Mapping[str, Rule] = {
    "close": Rule(
        POLICIES,
        "of a socket, or a file that was only read, it does not fail; the next call that makes a "
        "descriptor must not overtake it",
    ),
    "epoll_ctl": Rule(
        POLICIES,
        "a change or removal of a descriptor that is in the set does not fail, and only waits show "
        "it; an addition can fail",
    ),
    "setsockopt": Rule(
        POLICIES, "TCP_NODELAY and TCP_CORK of a TCP socket do not fail; of others nobody knows"
    ),
    "shutdown": Rule(
        (LOOSE,), "it fails where the peer has reset the connection, and no later call says so"
    ),
    **{
        name: Rule(
            (LOOSE,),
            "a short or refused write would have to be completed from a copy, which is lost with "
            "the process, after the program was told that all was written",
        )
        for name in ("sendfile", "sendmsg", "sendto", "write", "writev")
    },
}
"""A call that is not listed gives a result that the program uses at once."""


@dataclass(frozen=True)
class Call:
    """One call as strace recorded it, with its first three arguments."""

    name: str
    arguments: tuple[str, ...]
    result: str

    @classmethod
    def of(cls, words: str) -> Call:
        """
        >>> Call.of("epoll_ctl 0x8 0x1 0x3 0").descriptor
        '0x3'
        """
        name, *arguments, result = words.split()
        return cls(name, tuple(arguments), result)

    @property
    def descriptor(self) -> str:
        """The descriptor that it works on."""
        return self.arguments[2 if self.name == "epoll_ctl" else 0]

    def may_wait(self, policy: str) -> bool:
        """Whether its rule lets it wait."""
        rule = RULES.get(self.name)
        if rule is None or policy not in rule.by:
            return False
        if policy == LOOSE:
            return True
        if self.name == "epoll_ctl":
            return self.arguments[1] in EPOLL_CHANGES
        return self.name != "setsockopt" or self.arguments[1:3] in SWITCHES

    def must_follow(self, waiting: Sequence[Call], policy: str) -> bool:
        """Whether calls that wait must be made before this one, or together with it."""
        if not waiting:
            return False
        if self.name in WAITS:
            return True
        if policy == LOOSE:
            return False
        if any(self.descriptor == one.descriptor for one in waiting):
            return True
        if self.name in MAKERS and any(one.name == "close" for one in waiting):
            return True
        return self.name not in UNSEEN


@dataclass
class Replay:
    """The result of a policy for recorded calls: how many wait, and the batches by size."""

    deferred: Counter[str] = field(default_factory=Counter)
    batches: Counter[int] = field(default_factory=Counter)


def replay(windows: Sequence[Sequence[Call]], policy: str) -> Replay:
    """Make each call that may wait part of the first crossing that it must not miss. The calls of
    a window end with a wait."""
    found = Replay()
    for window in windows:
        waiting: list[Call] = []
        for call in window:
            if call.may_wait(policy):
                found.deferred[call.name] += 1
                waiting.append(call)
            elif call.must_follow(waiting, policy):
                found.batches[len(waiting) + 1] += 1
                waiting = []
        if waiting:
            found.batches[len(waiting)] += 1
    return found


@dataclass(frozen=True)
class Costs:
    """Instructions of a call that does nothing, plain and in a batch of so many."""

    plain: Mapping[int, float]
    batch: Mapping[int, float]

    def saved(self, calls: int) -> float:
        """The saving of a batch of `calls`; nothing where plain calls are cheaper. Between two
        counted sizes, the saving per call of the larger one is taken, so that the bound holds."""
        size = min((n for n in self.batch if n >= calls), default=max(self.batch))
        return max(0.0, calls * (self.plain[size] - self.batch[size]))


@dataclass(frozen=True)
class Bound:
    """The most that waiting calls save of a request's instructions."""

    calls: float
    deferred: float
    saved: float
    of: float

    @property
    def share(self) -> float:
        return self.saved / self.of


def bound(
    windows: Sequence[Sequence[Call]],
    policy: str,
    costs: Costs,
    requests: int,
    instructions: float,
) -> Bound:
    """Of recorded calls for `requests` requests, which take so many instructions without strace.

    The library's own instructions are left out, so that no library saves more.
    """
    replayed = replay(windows, policy)
    deferred = sum(replayed.deferred.values())
    saved = sum(times * costs.saved(size) for size, times in replayed.batches.items())
    return Bound(
        sum(map(len, windows)) / requests,
        deferred / requests,
        saved / requests,
        instructions / requests,
    )


def windows(calls: Sequence[Call]) -> Iterator[tuple[Call, ...]]:
    """The calls of a thread, divided behind each wait."""
    window: list[Call] = []
    for call in calls:
        window.append(call)
        if call.name in WAITS:
            yield tuple(window)
            window = []
    if window:
        yield tuple(window)
