"""A run's metrics for Prometheus, as a view of its directory.

Whoever serves them needs the run directory and nothing of the job: `elastic run` does so from a
thread of its own when `metrics.port` is set; under any other launcher, and for a run that has ended,
`elastic metrics RUN_DIR` does. So the address stays the same while rank 0 moves from host to host, and no
agent or worker carries a server.

Names follow Prometheus' conventions: base units in the name, `_total` for what only grows, moments as
timestamps (`time() - elastic_checkpoint_timestamp_seconds` is its age), a phase or cause as a label.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from elastic.errors import ConfigError
from elastic.heartbeats import Heartbeat
from elastic.rundir import RunDir
from elastic.views.load import Following, check
from elastic.views.pauses import Phase
from elastic.views.state import SILENT_S, State, state_of
from elastic.views.worlds import ENDS


class JobCollector:
    """Folds the run anew at each scrape.

    Args:
        run: the directory.
    """

    def __init__(self, run: Following) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._most: dict[tuple[str, ...], float] = {}

    def describe(self) -> list[Metric]:
        """Return nothing: the registry need not look at the run to know its names."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now; what only grows never goes back."""
        with self._lock:
            run = self._run.look()
            found = list(families(state_of(run, time.time()), run.beats))
            for family in found:
                if isinstance(family, CounterMetricFamily):
                    family.samples = [s._replace(value=self._grown(s)) for s in family.samples]
        yield from found

    def _grown(self, sample: Any) -> float:
        """Return a counter's value: a fact may later move a moment from one phase to another."""
        key = (sample.name, *sorted(sample.labels.values()))
        self._most[key] = max(sample.value, self._most.get(key, 0.0))
        return self._most[key]


def families(state: State, beats: Sequence[Heartbeat]) -> Iterator[Metric]:
    """Yield every metric of a run."""
    s = state.summary
    yield _gauge("elastic_job_running", "1 while the job has not ended.", float(state.silent_s is not None))
    status = GaugeMetricFamily("elastic_job_status", "1 for the status that holds.", labels=["job", "status"])
    for name in ("running", *ENDS.values()):
        status.add_metric([state.job, name], float(s.status == name))
    yield status
    yield _gauge("elastic_epoch", "Epochs completed.", s.epochs)
    yield _gauge("elastic_epochs_goal", "Epochs to be completed.", state.epochs)
    yield _gauge("elastic_step", "Optimizer steps completed; goes back when steps are lost.", s.steps)
    yield _counter("elastic_steps", "Optimizer steps done, those done again included.", s.steps + s.lost_steps)
    yield _counter("elastic_steps_redone", "Steps done that had been done before.", s.lost_steps)
    yield _gauge("elastic_samples", "Samples used by completed steps.", s.samples_seen)
    heard = state.silent_s is not None and state.silent_s <= SILENT_S
    yield _gauge("elastic_samples_per_second", "Pace of the last second.", state.samples_per_s if heard else 0.0)
    yield _gauge("elastic_heard_timestamp_seconds", "The last sign of life of the whole run.", state.heard)
    yield _gauge("elastic_world_size_workers", "Workers of the newest world.", state.size)
    yield _gauge("elastic_world_generation", "Number of the newest world.", state.generation)
    lost = CounterMetricFamily("elastic_workers_lost", "Workers lost, by cause.", labels=["cause"])
    for cause, count in state.lost.items():
        lost.add_metric([cause], count)
    yield lost
    healed = CounterMetricFamily("elastic_recoveries", "Interruptions that are over, by cause.", labels=["cause"])
    for cause in dict.fromkeys(r.cause for r in state.recoveries):
        healed.add_metric([cause], sum(r.over for r in state.recoveries if r.cause == cause))
    yield healed
    spent = CounterMetricFamily("elastic_time_seconds", "Where the run's time went.", labels=["phase"])
    for phase in Phase:
        spent.add_metric([phase.value], state.seconds.get(phase.value, 0.0))
    yield spent
    yield _gauge("elastic_goodput_ratio", "Share of the run's time in which training went forward.", s.goodput)
    yield from _checkpoints(state)
    standbys = GaugeMetricFamily("elastic_standbys", "Warm processes of all hosts.", labels=["state"])
    standbys.add_metric(["ready"], state.standbys)
    standbys.add_metric(["warming"], state.warming)
    yield standbys
    yield from _workers(state, beats)
    last = GaugeMetricFamily("elastic_epoch_metric", "A metric of the last epoch, such as loss.", labels=["name"])
    for name, value in s.metrics.items():
        last.add_metric([name], value)
    yield last


def _checkpoints(state: State) -> Iterator[Metric]:
    yield _counter("elastic_checkpoints", "Checkpoints written.", state.checkpoints)
    yield _counter("elastic_checkpoint_failures", "Checkpoints that could not be written.", state.checkpoints_failed)
    c = state.checkpoint
    if c is not None:
        yield _gauge("elastic_checkpoint_timestamp_seconds", "When the newest checkpoint was written.", c.time)
        yield _gauge("elastic_checkpoint_duration_seconds", "How long it took to write.", c.took_s)
        yield _gauge("elastic_checkpoint_blocked_seconds", "How long training stood still for it.", c.blocked_s)
        yield _gauge("elastic_checkpoint_size_bytes", "Its size.", c.size_bytes)
        yield _gauge("elastic_checkpoint_step", "The step that it holds.", c.step)


def _workers(state: State, beats: Sequence[Heartbeat]) -> Iterator[Metric]:
    labels = ["rank", "host", "slot"]
    heard = GaugeMetricFamily("elastic_worker_heartbeat_timestamp_seconds", "Last sign of life.", labels=labels)
    step = GaugeMetricFamily("elastic_worker_step_seconds", "One step, median of recent ones.", labels=labels)
    own = GaugeMetricFamily(
        "elastic_worker_own_seconds", "Of a step, without waiting for peers, median.", labels=labels
    )
    slow = GaugeMetricFamily("elastic_worker_straggles", "1 for a worker that holds the others up.", labels=labels)
    straggling = {m.rank for m in state.members if m.straggles}
    for b in beats:
        if state.silent_s is None or b.worker_pid == 0:
            continue
        at = [str(b.rank), b.host, str(b.slot)]
        heard.add_metric(at, b.time - b.silent_s)
        step.add_metric(at, b.step_s)
        own.add_metric(at, b.own_s)
        slow.add_metric(at, float(b.rank in straggling))
    yield from (heard, step, own, slow)


def _gauge(name: str, text: str, value: float, **labels: str) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels))
    family.add_metric(list(labels.values()), value)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def serve(run_dir: Path, address: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve a run's metrics from a thread; return the port and what ends it.

    Raises:
        ConfigError: when nothing can listen there.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobCollector(Following(run_dir)))  # type: ignore[arg-type]
    try:
        server, thread = start_http_server(port, address, registry)
    except OSError as error:
        what = error.strerror or error
        raise ConfigError(f"metrics: cannot listen on {address}:{port}: {what}; choose another metrics.port") from None

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return server.server_port, close


def serve_until_told(run_dir: Path, address: str, port: int) -> None:
    """Serve until Ctrl-C.

    Raises:
        ConfigError: when `run_dir` is no run directory, or nothing can listen there.
    """
    check(RunDir(run_dir))
    found, close = serve(run_dir, address, port)
    print(f"http://{address}:{found}/metrics", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    finally:
        close()
