"""Facts in plain words, for a terminal."""

from elastic.events import Record


def workers(count: int) -> str:
    """Return a number of workers in words."""
    return "1 worker" if count == 1 else f"{count} workers"


def words(record: Record) -> str | None:  # noqa: C901, PLR0912 - one case a fact
    """Return a line for a person, or None for a fact that needs none."""
    where = f"{record.host}[{record.slot}]"
    get = record.get
    match record.event:
        case "WorldFormed":
            if record.rank != 0:
                return None
            return f"world {record.generation}: {workers(get('size'))}, from step {get('step')}"
        case "WorkerLost":
            return f"worker {where} lost: {get('summary')}" if get("root_cause") else None
        case "WorkerLeft":
            return None if get("reason") == "goal" else f"worker {where} left: {get('reason')}"
        case "PreemptionNoticed":
            return f"host {record.host} will be taken away: {get('reason')}"
        case "SlotGaveUp":
            return f"slot {where} given up: {get('reason')}"
        case "HostsChanged":
            return "hosts changed: the next world is being made" if record.rank == 0 else None
        case "CheckpointRejected":
            return f"checkpoint {get('path')} rejected: {get('reason')}"
        case "CheckpointFailed":
            return f"checkpoint of step {get('step')} not written: {get('error')}"
        case "CheckpointLoaded":
            return f"going on from {get('path')} (step {get('step')})"
        case "StashLoaded":
            return f"worker {where} goes on from what its predecessor had put by (step {get('step')})"
        case "WorkerStraggled":
            own, peers = float(get("own_s")), float(get("peers_s"))
            who = f"rank {get('of_rank')} on {get('of_host')}"
            return f"{who} holds the others up: {own:.3f} s a step of its own, its peers {peers:.3f} s"
        case "WorkerCaughtUp":
            return f"rank {get('of_rank')} on {get('of_host')} keeps up again"
        case "WorkerFailed":
            return f"worker {where} failed: {get('summary')}"
        case "FactsLost":
            return f"{get('count')} facts could not be written: {get('error')}"
        case "JobStarted":
            return f"start {get('restarts') + 1} of the launcher" if get("restarts") else None
        case _:
            return None
