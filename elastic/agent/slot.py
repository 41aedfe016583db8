"""The slot that the launcher gave to this agent, read from the environment once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elastic.route import address_towards, interface_of, interfaces
from elastic.rundir import RunDir


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one worker.

    Attributes:
        host: the launcher's name for this host.
        local_rank: which slot of the host.
        local_size: slots of the host when the agent was started.
        launcher: who started the agent.
        env: the variables that are the slot's own: HOROVOD_*, and the GPUs that the launcher gave to it.
        rendezvous: address and port of the launcher's; None without a launcher.
    """

    host: str
    local_rank: int
    local_size: int
    launcher: str
    env: dict[str, str]
    rendezvous: tuple[str, int] | None


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an agent is to do: a job, its configuration and where it keeps its files.

    Attributes:
        generation: the newest world that the run has had before; worlds go on counting from there.
    """

    job: Path
    config: dict[str, Any]
    run_dir: RunDir
    slot: Slot
    env: dict[str, str]
    generation: int = 0


def read_slot(environ: Mapping[str, str]) -> Slot:
    """Return the slot; one of its own when no launcher started this process."""
    env = {k: v for k, v in environ.items() if k.startswith("HOROVOD_") or k == "CUDA_VISIBLE_DEVICES"}
    address = env.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    return Slot(
        host=env.get("HOROVOD_HOSTNAME", "localhost"),
        local_rank=int(env.get("HOROVOD_LOCAL_RANK", "0")),
        local_size=int(env.get("HOROVOD_LOCAL_SIZE", "1")),
        launcher="none" if address is None else environ.get("ELASTIC_LAUNCHER", "horovodrun"),
        env=env if address is not None else {},
        rendezvous=(address, int(env["HOROVOD_GLOO_RENDEZVOUS_PORT"])) if address is not None else None,
    )


def without_launcher(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that a worker starts with: all but the slot, which comes with `Go`."""
    return {k: v for k, v in environ.items() if not k.startswith("HOROVOD_")}


def interface_for(slot: Slot, *, by_route: bool) -> str | None:
    """Return the interface on which this slot's worker talks to its peers; None to leave it as the launcher said.

    The launcher tells all hosts the same name, and this one may call its own otherwise.

    Args:
        by_route: what the launcher said is its own interface; otherwise it counts on each host that has it.
    """
    told = slot.env.get("HOROVOD_GLOO_IFACE")
    if slot.rendezvous is None or told is None:
        return None
    here = interfaces()
    if told in here and not (by_route and slot.launcher == "elastic run"):
        return None
    try:
        leading = interface_of(address_towards(slot.rendezvous[0]), here)
    except OSError:
        return None
    return leading if leading != told else None
