"""Workers that were given other data are told so, before a step waits for one that has none."""

import pytest

from elastic.errors import ConfigError
from elastic.worker.same_data import refuse_other_data


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        ([(0, 60, 10)], {}),
        ([(0, 60, 10), (0, 60, 10)], {}),
        ([(0, 60), (0, 61)], {1: "found 61 samples on this worker, rank 0 has 60 samples; every worker"}),
        ([(0, 60, 10), (0, 60, 0)], {1: "and 0 for validation on this worker, rank 0 has 60 samples and 10 for"}),
        # Those that hold the state go on, whatever the rank of the newcomer.
        ([(0, 61, 10), (1, 60, 10), (1, 60, 10)], {0: "rank 1 has 60 samples"}),
    ],
)
def test_whoever_sees_other_samples_than_those_that_train_is_refused(
    rows: list[tuple[int, ...]], odd: dict[int, str]
) -> None:
    for rank in range(len(rows)):
        if rank in odd:
            with pytest.raises(ConfigError, match=odd[rank]):
                refuse_other_data(rows, rank)
        else:
            refuse_other_data(rows, rank)
