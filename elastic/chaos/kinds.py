"""The kinds of faults: what they are called, where they happen, how long they last."""

from enum import StrEnum


class Kind(StrEnum):
    """What is done to a job."""

    KILL = "kill"
    TERM = "term"
    STOP = "stop"
    RAISE = "raise"
    SEGFAULT = "segfault"
    ABORT = "abort"
    EXIT = "exit"
    HOLD_GIL = "hold_gil"
    SPIN = "spin"
    MEMORY = "memory"
    OOM = "oom"
    FDS = "fds"
    STDOUT_CHILD = "stdout_child"
    CLOCK = "clock"
    HOST_REMOVED = "host_removed"
    HOST_ADDED = "host_added"
    HOST_FLAPPING = "host_flapping"
    DISCOVERY_SLOW = "discovery_slow"
    DISCOVERY_FAILING = "discovery_failing"
    DISCOVERY_EMPTY = "discovery_empty"
    DISCOVERY_GARBAGE = "discovery_garbage"
    DISK_FULL = "disk_full"
    DISK_READ_ONLY = "disk_read_only"
    CHECKPOINT_TORN = "checkpoint_torn"
    CHECKPOINT_FLIPPED = "checkpoint_flipped"
    LINK_DOWN = "link_down"
    PARTITION = "partition"
    NET_DELAY = "net_delay"
    NET_LOSS = "net_loss"
    NET_RATE = "net_rate"
    HALF_OPEN = "half_open"
    DNS_FAILURE = "dns_failure"


SIGNALS = frozenset({Kind.KILL, Kind.TERM, Kind.STOP})  # for any process
IN_WORKER = frozenset(
    {
        Kind.RAISE,
        Kind.SEGFAULT,
        Kind.ABORT,
        Kind.EXIT,
        Kind.HOLD_GIL,
        Kind.SPIN,
        Kind.MEMORY,
        Kind.OOM,
        Kind.FDS,
        Kind.STDOUT_CHILD,
        Kind.CLOCK,
    }
)
DISK = frozenset({Kind.DISK_FULL, Kind.DISK_READ_ONLY})
NETWORK = frozenset(
    {
        Kind.LINK_DOWN,
        Kind.PARTITION,
        Kind.NET_DELAY,
        Kind.NET_LOSS,
        Kind.NET_RATE,
        Kind.HALF_OPEN,
        Kind.DNS_FAILURE,
    }
)

# Whoever suffers one of these is gone afterwards and must have been replaced.
FATAL = frozenset(
    {
        Kind.KILL,
        Kind.TERM,
        Kind.RAISE,
        Kind.SEGFAULT,
        Kind.ABORT,
        Kind.EXIT,
        Kind.HOLD_GIL,
        Kind.SPIN,
        Kind.OOM,
        Kind.STDOUT_CHILD,
    }
)

# How long a fault lasts, unless the plan says; the others last until they are cured.
LASTS_S = {
    Kind.HOLD_GIL: 600.0,
    Kind.SPIN: 600.0,
    Kind.STDOUT_CHILD: 60.0,
    Kind.MEMORY: 5.0,  # no longer than it takes to show
    Kind.CLOCK: 5.0,
    Kind.FDS: 5.0,
    Kind.HOST_REMOVED: 8.0,
    Kind.HOST_ADDED: 15.0,
    Kind.HOST_FLAPPING: 10.0,
    Kind.DISCOVERY_SLOW: 8.0,
    Kind.DISCOVERY_FAILING: 5.0,
    Kind.DISCOVERY_EMPTY: 5.0,
    Kind.DISCOVERY_GARBAGE: 5.0,
    Kind.DISK_FULL: 8.0,
    Kind.DISK_READ_ONLY: 8.0,
    **dict.fromkeys(NETWORK, 10.0),
    Kind.LINK_DOWN: 3.0,
}
STOPPED_S = 3.0  # an agent, a standby, the driver
AMOUNTS = {
    Kind.MEMORY: 256.0,
    Kind.OOM: 256.0,
    Kind.CLOCK: 3600.0,
    Kind.NET_DELAY: 0.1,
    Kind.NET_LOSS: 0.05,
    Kind.NET_RATE: 125e3,
}


def has_target(kind: Kind) -> bool:
    """Tell whether a kind of fault happens to certain processes, or to the hosts that they are on."""
    return kind in SIGNALS or kind in IN_WORKER or kind in NETWORK
