"""Workers that were given other data are told so, before a step waits for one that has none."""

import pytest

from elastic.errors import ConfigError
from elastic.worker.training_state import refuse_other_data


@pytest.mark.parametrize(
    ("rows", "odd"),
    [
        ([(0, 60, 10, 0)], {}),
        ([(0, 60, 10, 0), (0, 60, 10, 0)], {}),
        ([(0, 60, 10, 0), (0, 61, 10, 0)], {1: "sees 61 samples and 10 for validation, rank 0 sees 60 and 10"}),
        ([(0, 60, 10, 0), (0, 60, 0, 0)], {1: "sees 60 samples and 0 for validation, rank 0 sees 60 and 10"}),
        # Those that hold the state go on, whatever the rank of the newcomer.
        ([(0, 61, 10, 0), (1, 60, 10, 3), (1, 60, 10, 3)], {0: "rank 1 sees 60 and 10"}),
    ],
)
def test_whoever_sees_other_samples_than_those_that_train_is_refused(
    rows: list[tuple[int, ...]], odd: dict[int, str]
) -> None:
    for rank in range(len(rows)):
        if rank in odd:
            with pytest.raises(ConfigError, match=f"data: this worker {odd[rank]}|{odd[rank]}"):
                refuse_other_data(rows, rank)
        else:
            refuse_other_data(rows, rank)
