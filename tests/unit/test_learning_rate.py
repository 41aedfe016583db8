import pytest

from elastic.config import LearningRate
from elastic.worker.learning_rate import scale


@pytest.mark.parametrize(
    ("policy", "warmup", "size", "step", "expected"),
    [
        ("none", 0, 8, 0, 1.0),
        ("none", 10, 8, 5, 1.0),
        ("linear", 0, 8, 0, 8.0),
        ("linear", 0, 1, 0, 1.0),
        ("sqrt", 0, 9, 0, 3.0),
        ("linear", 10, 5, 0, 1.0),  # warm-up begins at the rate for one worker
        ("linear", 10, 5, 5, 3.0),
        ("linear", 10, 5, 9, 4.6),
        ("linear", 10, 5, 10, 5.0),
        ("linear", 10, 5, 10_000, 5.0),
        ("sqrt", 4, 16, 2, 2.5),
        ("linear", 10, 1, 5, 1.0),
    ],
)
def test_the_rate_follows_size_and_step(policy: str, warmup: int, size: int, step: int, expected: float) -> None:
    assert scale(LearningRate(scale=policy, warmup_steps=warmup), size, step) == pytest.approx(expected)
