"""The page on hosts and the manifests beside it say what the code takes."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from discovery.config import read
from elastic.jobfile import load

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "discovery" / "HOSTS.md").read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SNIPPETS = [(language, text) for language, text in FENCE.findall(PAGE)]
BASH = shutil.which("bash") or "bash"


@pytest.mark.parametrize("text", [t for kind, t in SNIPPETS if kind == "yaml"], ids=lambda t: t.splitlines()[0])
def test_configurations_are_valid(text: str, tmp_path: Path) -> None:
    (tmp_path / "discovery.yaml").write_text(text)
    assert read(tmp_path / "discovery.yaml").sources


@pytest.mark.parametrize("text", [t for kind, t in SNIPPETS if kind == "sh"])
def test_shell_snippets_parse_and_name_files_that_exist(text: str) -> None:
    subprocess.run([BASH, "-n"], input=text, text=True, check=True)
    assert [n for n in re.findall(r"\b(?:configs|discovery)/[\w./]+", text) if not (ROOT / n).exists()] == []


@pytest.mark.parametrize("name", re.findall(r"\]\(([^)#:]+)\)", PAGE))
def test_links_lead_somewhere(name: str) -> None:
    assert (ROOT / "discovery" / name).exists()


@pytest.mark.parametrize("manifest", sorted((ROOT / "configs" / "kubernetes").glob("*.yaml")), ids=lambda p: p.name)
def test_manifests_are_objects_of_one_namespace(manifest: Path) -> None:
    objects = list(yaml.safe_load_all(manifest.read_text(encoding="utf-8")))
    assert all({"apiVersion", "kind", "metadata"} <= set(o) for o in objects)
    assert {o["metadata"]["namespace"] for o in objects} == {"train"}


def test_the_job_of_the_manifest_is_one_and_selects_the_workers(tmp_path: Path) -> None:
    launcher = list(yaml.safe_load_all((ROOT / "configs/kubernetes/launcher.yaml").read_text(encoding="utf-8")))
    workers = list(yaml.safe_load_all((ROOT / "configs/kubernetes/workers.yaml").read_text(encoding="utf-8")))
    job = next(o for o in launcher if o["kind"] == "ConfigMap")["data"]["job.yaml"]
    (tmp_path / "job.yaml").write_text(job)
    config = load(tmp_path / "job.yaml")
    assert config.discovery is not None
    asked = config.discovery.sources[0].kubernetes
    assert asked is not None
    assert asked.selector is not None
    key, _, value = asked.selector.partition("=")
    template = next(o for o in workers if o["kind"] == "StatefulSet")["spec"]["template"]
    assert template["metadata"]["labels"][key] == value
    assert asked.slots_annotation in template["metadata"]["annotations"]


def test_the_batch_script_parses_and_its_settings_are_valid(tmp_path: Path) -> None:
    script = ROOT / "configs" / "slurm" / "elastic.sbatch"
    subprocess.run([BASH, "-n", str(script)], check=True)
    sets = re.findall(r"--set ['\"]([^'\"]+)['\"]", script.read_text(encoding="utf-8"))
    config = load(ROOT / "configs" / "mnist.yaml", [s.replace("$SLURM_JOB_NUM_NODES", "2") for s in sets])
    assert config.discovery is not None
    assert config.discovery.sources[0].slurm is not None
    assert config.workers.first == 2


def test_the_batch_script_drains_and_queues_again_when_its_time_is_over(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    slow = 'trap "echo drained >> calls; exit 143" TERM\necho "$1" >> calls\nwhile :; do sleep 0.05; done\n'
    for name, body in (("elastic", slow), ("scontrol", 'echo "scontrol $*" >> calls\n')):
        (tmp_path / name).write_text(f"#!/bin/bash\n{body}")
        (tmp_path / name).chmod(0o755)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2"}
    script = ROOT / "configs" / "slurm" / "elastic.sbatch"
    with subprocess.Popen([BASH, str(script), "job.yaml"], cwd=tmp_path, env=env) as running:
        while not (calls.exists() and "run" in calls.read_text()):
            assert running.poll() is None
        running.send_signal(10)  # SIGUSR1
        assert running.wait(20) == 143
    assert calls.read_text().split("\n")[:3] == ["run", "drained", "scontrol requeue 7"]
