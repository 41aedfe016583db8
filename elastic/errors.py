"""What can go wrong, sorted by who must act, and the exit codes that tell a shell."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every `elastic` command."""

    GOAL_REACHED = 0
    FAILED = 1
    CONFIG = 2
    SLOT_LOST = 75  # a worker whose slot discovery took away, or that drained: restart elsewhere
    INTERRUPTED = 130
    TERMINATED = 143


class ElasticError(Exception):
    """The root of every error that this package raises on purpose."""


class ConfigError(ElasticError):
    """The user must change something before the job can start."""


class SampleError(ElasticError):
    """A sample cannot be read: the user must change the data or the code that reads it."""


class WorkerError(ElasticError):
    """A worker must be restarted in its slot."""


class HostError(ElasticError):
    """The work must go to another host."""


class JobError(ElasticError):
    """The whole job must stop; trying again as it is would fail again."""
