"""What the benchmark on Ray makes of what it saw."""

from benchmarks import ray_train
from benchmarks.faults import PHASES, Recovery
from benchmarks.ray_recovery import Measured, NodeLoss, figures, table

KILL = Recovery(0.5, dict.fromkeys(PHASES, 0.1), 0)
OURS = Measured(
    kills=[KILL],
    losses=[NodeLoss(0.1, 0.5, 0.7)],
    joins=[0.3],
    blocked={"share": 0.004, "checkpoints": 40, "steps_between": 5.2, "written_s": 0.05},
)


def test_detection_is_shown_apart() -> None:
    lost = figures(OURS)["node_lost_s"]
    assert (lost["detected"]["median"], lost["formed"]["median"], lost["ours"]["median"]) == (0.1, 0.5, 0.7)


def test_the_table_has_ours_the_bound_and_the_peer() -> None:
    theirs = ray_train.Measured([17.0], [18.0], [19.0], 0.7, "Ray 2, PyTorch 2")
    text = table(figures(Measured(OURS.kills, OURS.losses, OURS.joins, OURS.blocked, theirs)))
    assert "| worker killed -> all train again, s | 0.50 (0.50 to 0.50) | <= 0.8 | 17.00 (17.00 to 17.00) |" in text
    assert "| checkpoint every 5 steps: time blocked | 0.40% | <= 1% | 70% |" in text
    assert "\nRay Train v2: Ray 2, PyTorch 2.\n" in text


def test_what_was_not_measured_is_no_figure() -> None:
    text = table(figures(Measured()))
    assert "| node killed -> the rest trains again, s | - | <= 8.0 | - |" in text
    assert "\nRay Train v2: not measured.\n" in text
