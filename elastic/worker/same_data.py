"""All workers of a world work on the same data, or the steps of some would wait for others' that never come."""

from collections.abc import Sequence

from elastic.errors import ConfigError


def refuse_other_data(rows: Sequence[tuple[int, ...]], rank: int) -> None:
    """See that a worker has as many samples as those that hold the state, or as rank 0 where none does.

    Args:
        rows: of each rank, whether it holds a state, then how many samples it has in each of its sources.
        rank: of this worker.

    Raises:
        ConfigError: when it has not.
    """
    leader = max(range(len(rows)), key=lambda r: (rows[r][0], -r))
    mine, expected = rows[rank][1:], rows[leader][1:]
    if mine != expected:
        raise ConfigError(
            f"data: found {_words(mine)} on this worker, rank {leader} has {_words(expected)}; "
            "every worker must be given the same data"
        )


def _words(counts: Sequence[int]) -> str:
    samples, *validation = counts
    return f"{samples} samples" + "".join(f" and {n} for validation" for n in validation)
