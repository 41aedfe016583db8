"""The README's snippets work, and its tables say what the code says."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from elastic.chaos.kinds import Kind
from elastic.chaos.plan import load_plan
from elastic.config import Budget, Config, Data
from elastic.errors import ExitCode
from elastic.jobfile import load
from tests.readme import FENCE, README, ROOT, blocks, marks, sections

ROW = re.compile(r"^\| `([a-z_.]+)` \| (.+?) \| .+ \|$", re.MULTILINE)


def snippets(language: str) -> list[str]:
    return [text for found, text in FENCE.findall(README) if found == language]


def file_name(snippet: str) -> str:
    """Return the name in a snippet's first line, such as `# my_job.py`."""
    first = snippet.partition("\n")[0]
    assert first.startswith("# "), f"a snippet begins with its file's name, found {first!r}"
    return first.removeprefix("# ")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory that holds the README's files."""
    for snippet in [*snippets("python"), *snippets("yaml")]:
        (tmp_path / file_name(snippet)).write_text(snippet)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_there_are_snippets_to_check() -> None:
    assert {file_name(s) for s in snippets("python")} == {"my_job.py", "my_script.py", "on_ray.py"}
    assert {file_name(s) for s in snippets("yaml")} == {"my_job.yaml"}


def test_the_first_commands_are_the_two_that_matter() -> None:
    first = snippets("sh")[0].splitlines()
    assert first == ["pip install uv && uv run elastic run configs/mnist.yaml", "pip install uv && uv run pytest"]


@pytest.mark.parametrize("snippet", snippets("python"), ids=file_name)
def test_python_snippets_compile(snippet: str) -> None:
    compile(snippet, file_name(snippet), "exec")


@pytest.mark.parametrize("snippet", snippets("yaml"), ids=file_name)
def test_yaml_snippets_are_jobs(snippet: str, folder: Path) -> None:
    assert load(folder / file_name(snippet)).model is not None


@pytest.mark.parametrize("shell", snippets("sh"))
def test_shell_snippets_parse_and_name_files_that_exist(shell: str) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    subprocess.run([bash, "-n"], input=shell, text=True, check=True)
    named = re.findall(r"\b(?:configs|discovery|packages|\.ci)/[\w./]+|\brequirements\.txt", shell)
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_block_is_a_command_a_file_or_what_is_shown() -> None:
    assert {language for language, _ in FENCE.findall(README)} == {"sh", "python", "yaml", "text"}
    assert {len(m.reason.split()) >= 2 for _, text in sections() for m in marks(text)} == {True}


def test_every_mark_stands_beside_a_command_that_it_fits() -> None:
    used = {(c.section, c.mark) for block in blocks() for c in block.commands if c.mark is not None}
    written = {(section, mark) for section, text in sections() for mark in marks(text)}
    assert written == used


def test_a_mark_holds_for_its_section_and_a_block_alone() -> None:
    page = """## One
<!-- not run: a cluster is needed -->

```sh
a
```

```sh
b x  # c
```

## Two
<!-- not run (x): takes an hour -->

```sh
b x
b y
```
Then `uv run x`, `uv run z`, or `uv run --no-sync`.
"""
    found = [(c.line, c.mark.reason if c.mark else "") for block in blocks(page) for c in block.commands]
    assert found == [
        ("a", "a cluster is needed"),
        ("b x  # c", ""),
        ("b x", "takes an hour"),
        ("b y", ""),
        ("uv run x", "takes an hour"),
        ("uv run z", ""),
    ]
    assert [block.script for block in blocks(page)] == ["", "b x  # c", "b y", "", "uv run z"]


@pytest.mark.parametrize("line", sorted(set(re.findall(r"python -m (benchmarks\.\w+[^`\n]*)", README))))
def test_benchmarks_that_are_named_exist_with_their_options(line: str) -> None:
    module, *words = line.partition("#")[0].split()
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
    assert [w for w in words if w.startswith("--") and f'"{w}"' not in source] == []


def test_the_plan_of_faults_that_is_shown_is_one(tmp_path: Path) -> None:
    (shown,) = [text for language, text in FENCE.findall(README) if language == "text" and text.startswith("job: ")]
    (tmp_path / "plan.yaml").write_text(shown)
    assert len(load_plan(tmp_path / "plan.yaml").faults) == 4


def test_the_augmentation_that_is_shown_is_one_of_tensorflow() -> None:
    import tensorflow as tf

    (shown,) = [text for language, text in FENCE.findall(README) if text.startswith("def flip")]
    names: dict[str, Any] = {"tf": tf}
    exec(shown, names)
    x, y = names["flip"]((1, 2), tf.reshape(tf.range(4), (1, 4, 1)), 7)
    assert (sorted(x.numpy().ravel()), y) == ([0, 1, 2, 3], 7)


@pytest.mark.parametrize("name", re.findall(r"\]\(([^)#:]+)\)", README))
def test_linked_files_exist(name: str) -> None:
    assert (ROOT / name).exists()


def test_links_within_the_page_have_their_heading() -> None:
    headings = re.findall(r"^## (.+)$", README, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", README)) <= anchors


@pytest.mark.e2e
@pytest.mark.parametrize(
    "command",
    [["-m", "elastic", "worker", "my_job.yaml", "--run-dir", "run"], ["my_script.py"]],
    ids=["functions", "script"],
)
def test_your_own_model_trains_in_one_process(folder: Path, command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "epoch 3/3" in done.stdout
    assert (folder / ("model.keras" if command == ["my_script.py"] else "run/summary.json")).exists()


def keys(section: BaseModel, before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the default of every key; a budget counts as one."""
    for name, field in type(section).model_fields.items():
        key, value = before + (field.alias or name), getattr(section, name)
        if key == "data":
            yield from ((f"data.{inner}", ...) for inner in Data.model_fields)
        elif isinstance(value, BaseModel) and not isinstance(value, Budget):
            yield from keys(value, f"{key}.")
        else:
            yield key, value


def test_every_key_of_the_configuration_is_in_the_table_and_no_other() -> None:
    table = [key for key, _ in ROW.findall(README)]
    assert table == [key for key, _ in keys(Config())]


def shown(value: Any) -> Any:
    return value.model_dump() if isinstance(value, BaseModel) else list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(("key", "default"), [(k, d) for k, d in keys(Config()) if d is not ... and k != "name"])
def test_defaults_are_those_of_the_code(key: str, default: Any) -> None:
    cell = dict(ROW.findall(README))[key]
    if default is None:
        assert cell in ("none", "required")
    else:
        assert yaml.safe_load(cell.strip("`")) == shown(default)


def test_every_kind_of_fault_is_in_the_table_and_no_other() -> None:
    table = README.partition("| kind | what happens |")[2].partition("\n\n")[0]
    assert {name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])} == set(Kind)


def test_every_exit_code_is_explained() -> None:
    table = README.partition("| exit code | meaning |")[2].partition("\n\n")[0]
    numbers = {int(n) for line in table.splitlines()[2:] for n in re.findall(r"\d+", line.split("|")[1])}
    assert numbers == {int(code) for code in ExitCode}
