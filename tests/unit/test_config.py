import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elastic.config import Batch, Config, Data
from elastic.errors import ConfigError
from elastic.jobfile import dump, load, merge, parse_overrides

MINIMAL = "model: jobs:model\ndata: bundled\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Write a YAML job into an otherwise empty working directory that has one module, `jobs`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "jobs.py").write_text("def model(): ...\n")

    def write(text: str) -> Path:
        path = tmp_path / "digits.yaml"
        path.write_text(text)
        return path

    return write


def test_a_full_job_is_read_as_written(job: Callable[[str], Path]) -> None:
    config = load(
        job(
            "name: mnist\nmodel: jobs:model\nmodel_args: {width: 3}\ndata: {source: bundled, prepare: 'jobs:prepare'}\n"
            "epochs: 5\nbatch: {global: 256}\ndrop_last: true\nlearning_rate: {scale: linear, warmup_steps: 20}\n"
            "workers: {min: 2, max: 4, start: 3}\ncommit: {steps: 10}\ncheckpoint: {keep: 2}\nhosts: [a:2, b]\n"
        )
    )
    assert (config.name, config.model, config.model_args) == ("mnist", "jobs:model", {"width": 3})
    assert config.data == Data(source="bundled", prepare="jobs:prepare")
    assert (config.epochs, config.batch, config.drop_last) == (5, Batch(global_=256), True)
    assert (config.learning_rate.scale, config.learning_rate.warmup_steps) == ("linear", 20)
    assert (config.workers.min, config.workers.max, config.workers.first) == (2, 4, 3)
    assert (config.commit.steps, config.checkpoint.keep, config.hosts) == (10, 2, ("a:2", "b"))


def test_a_job_without_a_name_is_called_like_its_file(job: Callable[[str], Path]) -> None:
    assert load(job(MINIMAL)).name == "digits"


def test_short_forms_mean_their_long_ones(job: Callable[[str], Path]) -> None:
    config = load(job(MINIMAL + "batch: 128\n"))
    assert config.data == Data(source="bundled")
    assert config.batch == Batch(per_worker=128)


@pytest.mark.parametrize(
    ("batch", "size", "total"), [(Batch(per_worker=32), 3, 96), (Batch(global_=100), 3, 100), (Batch(global_=7), 1, 7)]
)
def test_a_step_has_the_batch_of_all_workers(batch: Batch, size: int, total: int) -> None:
    assert batch.total(size) == total


def test_pieces_may_be_limited_whatever_the_batch(job: Callable[[str], Path]) -> None:
    assert load(job(MINIMAL), ["batch.micro=8"]).batch == Batch(global_=256, micro=8)
    assert load(job(MINIMAL + "batch: {global: 64}\n"), ["batch.micro=8"]).batch == Batch(global_=64, micro=8)


@pytest.mark.parametrize(
    ("sets", "expected"),
    [
        (["batch.per_worker=8"], "batch.global, as the samples of a step must not depend on the number of workers"),
        (["learning_rate.scale=linear"], "learning_rate.scale 'none' instead of 'linear'"),
        (["compression=fp16"], "compression 'none' instead of 'fp16'"),
        (["shards=2", "workers.max=3"], "shards of at least workers.max, found 2 for 3 workers"),
    ],
)
def test_deterministic_mode_says_what_it_needs(job: Callable[[str], Path], sets: list[str], expected: str) -> None:
    assert load(job(MINIMAL), ["deterministic=true"]).deterministic
    assert load(job(MINIMAL), sets).deterministic is False
    with pytest.raises(ConfigError) as caught:
        load(job(MINIMAL), ["deterministic=true", *sets])
    assert expected in str(caught.value)


def test_training_starts_with_as_many_workers_as_may_be(job: Callable[[str], Path]) -> None:
    assert load(job(MINIMAL + "workers: {min: 1, max: 6}\n")).workers.first == 6


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("epocs: 3\n", ["epocs: unknown key", "did you mean 'epochs'?"]),
        ("workers: {mim: 1}\n", ["workers.mim: unknown key", "did you mean 'min'?"]),
        ("batch: {globl: 64}\n", ["batch.globl: unknown key", "did you mean 'global'?"]),
        ("network: {xyzzy: 1}\n", ["network.xyzzy: unknown key", "gloo_timeout_s", "interfaces"]),
        ("epochs: many\n", ["epochs: found 'many'", "integer"]),
        ("epochs: 0\n", ["epochs: found 0", "greater than or equal to 1"]),
        ("compression: zip\n", ["compression: found 'zip'", "'none' or 'fp16'"]),
        ("workers: {min: 3, max: 2}\n", ["workers", "min 3", "max 2", "min <= start <= max"]),
        ("workers: {min: 1, max: 2, start: 3}\n", ["workers", "start 3", "min <= start <= max"]),
        ("batch: {per_worker: 1, global: 2}\n", ["batch", "exactly one of 'per_worker' and 'global'"]),
        ("batch: {}\n", ["batch", "exactly one of 'per_worker' and 'global'"]),
        ("name: a/b\n", ["name: found 'a/b'"]),
        ("callbacks: jobs.callbacks\n", ["callbacks: found 'jobs.callbacks'", "'module:function'"]),
        ("data: nonsense\n", ["data.source: found 'nonsense'", "'bundled'", "fashion_mnist"]),
        (
            "data: records/*\n",
            ["data: found", "is a path", "'parse: module:function'", "'image_size: [height, width]'"],
        ),
        ("data: {source: a.tfrecord, parse: 'jobs:f', image_size: [2, 2]}\n", ["data: found", "expected either"]),
        ("data: {source: a/, image_size: [2, 0]}\n", ["data.image_size.1: found 0", "greater than 0"]),
        ("data: {source: mnist, parse: 'jobs:f'}\n", ["data: found", "brings its samples whole"]),
        ("data: {source: 'jobs:f', validation: a/}\n", ["data: found", "brings its samples whole"]),
        ("data: {source: a/, image_size: [2, 2], prepare: 'jobs:f'}\n", ["data: found", "'prepare' is for arrays"]),
        ("data: {source: bundled, prepare: jobs}\n", ["data.prepare: found 'jobs'", "'module:function'"]),
    ],
)
def test_an_error_names_the_key_what_was_found_and_what_was_expected(
    job: Callable[[str], Path], text: str, expected: list[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        load(job("model: jobs:model\n" + ("" if text.startswith("data") else "data: bundled\n") + text))
    assert "digits.yaml: " in str(error.value)
    assert [part for part in expected if part not in str(error.value)] == []


def test_every_problem_is_reported_one_a_line(job: Callable[[str], Path]) -> None:
    with pytest.raises(ConfigError) as error:
        load(job(MINIMAL + "epocs: 3\nseed: x\n"))
    assert len(str(error.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("data: bundled\n", "model: missing"),
        ("model: jobs:model\n", "data: missing"),
        ("model: nowhere:model\ndata: bundled\n", "model: found 'nowhere:model', but there is no module 'nowhere'"),
        ("model: jobs.sub:model\ndata: bundled\n", "there is no module 'jobs.sub'"),
        (MINIMAL + "callbacks: nowhere:make\n", "callbacks: found 'nowhere:make'"),
        ("model: jobs:model\ndata: nowhere:load\n", "data.source: found 'nowhere:load'"),
        ("model: jobs:model\ndata: {source: bundled, prepare: 'nowhere:f'}\n", "data.prepare: found 'nowhere:f'"),
        ("model: jobs:model\ndata: lost.npz\n", "data.source: no such file: lost.npz"),
        ("model: jobs:model\ndata: {source: bundled, map: 'nowhere:f'}\n", "data.map: found 'nowhere:f'"),
        ("model: jobs:model\ndata: {source: a/x-0, parse: 'jobs:f'}\n", "data.source: no such file: a/x-0"),
        ("model: jobs:model\ndata: {source: jobs.*, parse: 'nowhere:f'}\n", "data.parse: found 'nowhere:f'"),
        ("model: jobs:model\ndata: {source: a/, image_size: [2, 2]}\n", "data.source: no such folder: a/"),
        (
            "model: jobs:model\ndata: {source: ./, validation: b/, image_size: [2, 2]}\n",
            "data.validation: no such folder: b/",
        ),
        ("- a\n", "found a list, expected keys and values"),
        ("a: [1\n", "not YAML"),
    ],
)
def test_what_a_job_names_must_exist_before_it_starts(job: Callable[[str], Path], text: str, expected: str) -> None:
    with pytest.raises(ConfigError, match=expected.replace("[", r"\[").replace(".", r"\.")):
        load(job(text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: .jobs:model\ndata: bundled\n", "model: found '.jobs:model': expected 'module:function'"),
        ("model: jobs..sub:model\ndata: bundled\n", "model: found 'jobs..sub:model': expected 'module:function'"),
        ("model: jobs:model\ndata: ':load'\n", "data.source: found ':load': expected 'module:function'"),
        ("model: broken.sub:model\ndata: bundled\n", "model: found 'broken.sub:model', but module 'broken.sub' cannot"),
        ("model: lacking.sub:model\ndata: bundled\n", "'lacking.sub' cannot be imported: No module named 'nowhere'"),
    ],
)
def test_a_reference_that_no_import_accepts_is_the_users_error(
    job: Callable[[str], Path], text: str, expected: str, tmp_path: Path
) -> None:
    for package, line in (("broken", "raise ImportError('no licence')"), ("lacking", "import nowhere")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(line)
    with pytest.raises(ConfigError) as error:
        load(job(text))
    assert expected in str(error.value)


def test_an_npz_file_that_exists_is_accepted(job: Callable[[str], Path], tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x_train=np.zeros(1))
    assert load(job("model: jobs:model\ndata: mine.npz\n")).data == Data(source="mine.npz")


def test_a_job_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: no such file"):
        load(tmp_path / "absent.yaml")


def test_a_script_needs_neither_model_nor_data(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("epochs: int = 7  # never read as YAML\n")
    assert load(script, ["epochs=2"]) == Config(name="train", epochs=2)


def test_a_script_that_is_not_python_is_refused_before_anything_starts(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import keras\nmodel = (\n")
    with pytest.raises(ConfigError, match=r"train\.py, line 2: not Python"):
        load(script)


def test_a_script_takes_options_from_a_file_beside_it(tmp_path: Path) -> None:
    script, extra = tmp_path / "train.py", tmp_path / "options.yaml"
    script.touch()
    extra.write_text("epochs: 3\nseed: 7\n")
    assert load(script, ["epochs=4"], extra) == Config(name="train", epochs=4, seed=7)


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([], {}),
        (["epochs=3"], {"epochs": 3}),
        (["a.b.c=x", "a.b.d=[1, 2]"], {"a": {"b": {"c": "x", "d": [1, 2]}}}),
        (["epochs=3", "epochs=4"], {"epochs": 4}),
        (["data.source=keras=x"], {"data": {"source": "keras=x"}}),
        (["commit.steps="], {"commit": {"steps": None}}),
    ],
)
def test_overrides_nest_by_their_dots(pairs: list[str], expected: dict[str, Any]) -> None:
    assert parse_overrides(pairs) == expected


@pytest.mark.parametrize("pairs", [["epochs"], ["=3"], ["epochs=[1"], ["a=1", "a.b=2"]])
def test_a_bad_override_is_named(pairs: list[str]) -> None:
    with pytest.raises(ConfigError) as error:
        parse_overrides(pairs)
    assert f"--set {pairs[-1]}" in str(error.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("-2E+3", -2000.0),
        (".5e1", 5.0),
        ("1.e2", 100.0),
        ("1e3", 1000.0),
        ("3", 3),
        ("08", "08"),
        ("1e", "1e"),
        ("e3", "e3"),
        ("1e-3x", "1e-3x"),
        ("'1e-3'", "1e-3"),
    ],
)
def test_a_number_in_scientific_notation_is_a_number(job: Callable[[str], Path], text: str, expected: Any) -> None:
    found = parse_overrides([f"model_args.a={text}"])["model_args"]["a"]
    read = load(job(f"{MINIMAL}model_args: {{a: {text}}}\n")).model_args["a"]
    assert (found, type(found)) == (read, type(read)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"w": {"min": 1, "max": 2}}, {"w": {"max": 3}}, {"w": {"min": 1, "max": 3}}),
        ({"data": "bundled"}, {"data": {"prepare": "m:f"}}, {"data": {"source": "bundled", "prepare": "m:f"}}),
        (
            {"data": {"source": "a.npz", "prepare": "m:f"}},
            {"data": "b.npz"},
            {"data": {"source": "b.npz", "prepare": "m:f"}},
        ),
        ({"batch": 32}, {"batch": {"global": 64}}, {"batch": {"global": 64}}),
        ({"batch": {"global": 64}}, {"batch": {"per_worker": 8}}, {"batch": {"per_worker": 8}}),
        ({"batch": {"global": 64}}, {"batch": 8}, {"batch": 8}),
        (
            {"batch": {"global": 64, "micro": 8}},
            {"batch": {"per_worker": 16}},
            {"batch": {"per_worker": 16, "micro": 8}},
        ),
        ({"batch": 32}, {"batch": {"micro": 8}}, {"batch": {"per_worker": 32, "micro": 8}}),
        ({"hosts": ["a"]}, {"hosts": ["b"]}, {"hosts": ["b"]}),
    ],
)
def test_overrides_are_laid_on_the_file_key_by_key(
    base: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert merge(base, over) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"data": {"kind": "a"}}, {"data": "b"}),
        ({"data": "a"}, {"data": {"kind": "b"}}),
        ({"batch": 1}, {"batch": {"size": 2}}),
    ],
)
def test_a_model_argument_that_happens_to_be_called_like_a_section_is_replaced_as_any_other(old: Any, new: Any) -> None:
    assert merge({"model_args": old}, {"model_args": new}) == {"model_args": new}


def test_a_model_argument_that_happens_to_be_called_batch_is_merged_as_any_other() -> None:
    base = {"model_args": {"batch": {"global": 1, "size": 2}}}
    assert merge(base, {"model_args": {"batch": {"global": 3}}}) == {"model_args": {"batch": {"global": 3, "size": 2}}}


def test_merging_leaves_its_arguments_alone() -> None:
    base, over = {"w": {"min": 1}}, {"w": {"max": 2}}
    merge(base, over)
    assert (base, over) == ({"w": {"min": 1}}, {"w": {"max": 2}})


def test_overrides_win_over_the_file(job: Callable[[str], Path]) -> None:
    config = load(job(MINIMAL + "epochs: 3\nbatch: {per_worker: 8}\n"), ["epochs=9", "batch.global=64"])
    assert (config.epochs, config.batch) == (9, Batch(global_=64))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "batch: {global: 64}\nhosts: [a:2, b:2]\nnetwork: {cooldown_s: [1, 2], interfaces: eth0}\n",
        "model_args: {lr: 0.1, deep: {list: [1, 2]}}\nworkers: {min: 1, max: 3, start: 2}\ntensorboard: false\n",
        "data: {source: bundled, map: jobs:flip}\n",
        "data: {source: ./, image_size: [2, 3]}\n",
        "name: '007'\ncallbacks: jobs:callbacks\ncommit: {steps: 3}\ncheckpoint: {enabled: false}\n",
        "model_args: {activation: null}\n",
        "model_args: {rate: 1e-3, tiny: 1e-30, version: '1e-3', name: '1e3'}\n",
    ],
)
def test_a_dumped_configuration_loads_as_the_same(job: Callable[[str], Path], text: str, tmp_path: Path) -> None:
    config = load(job(MINIMAL + text))
    (tmp_path / "again.yaml").write_text(dump(config))
    assert load(tmp_path / "again.yaml") == config


def test_a_dump_has_the_keys_that_users_write() -> None:
    text = dump(Config(batch=Batch(global_=64)))
    assert "  global: 64\n" in text
    assert "global_" not in text


def test_half_a_budget_takes_the_other_half_from_its_default() -> None:
    config = Config.model_validate({"restart": {"crash": {"limit": 9}, "hang": {"window_s": 7}}})
    assert (config.restart.crash.limit, config.restart.crash.window_s) == (9, 60)
    assert (config.restart.hang.limit, config.restart.hang.window_s) == (3, 7)
