"""What `elastic run` shows of what a launcher prints."""

from pathlib import Path

import pytest

from elastic.launch.screen import Screen
from elastic.rundir import RunDir


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        ("[0]<stdout>:loss: [1]", "loss: [1]\n"),
        ("[0 red-1a2b3c4d[2]]<stdout>:loss: [1]", "loss: [1]\n"),
        ("[1]<stdout>:twice", ""),
        ("[10 red-1a2b3c4d[2]]<stdout>:twice", ""),
        ("[0 red-1a2b3c4d[2]]<stderr>:a warning", ""),
        ("elastic: a word of the launcher's own", ""),
    ],
)
def test_what_rank_0_prints_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], printed: str, shown: str
) -> None:
    Screen(RunDir(tmp_path)).printed(printed)
    assert capsys.readouterr().out == shown
