"""A host that its cloud will take away."""

import json
from collections.abc import Callable

from discovery.notices import gce
from tests.discovery.metadata import Metadata
from tests.e2e.conftest import MNIST
from tests.e2e.job import Job


def test_workers_of_a_host_with_notice_leave_with_a_checkpoint_of_their_last_step(start: Callable[..., Job]) -> None:
    cloud = Metadata("gce")
    cloud.bodies[gce.PREEMPTED] = "FALSE"
    asked = ("preemption.cloud=gce", f"preemption.endpoint={cloud.url}", "preemption.period_s=0.2")
    job = start(MNIST, "epochs=1000", "batch.per_worker=32", *asked, launcher="horovodrun")
    job.wait_step(30)
    cloud.bodies[gce.PREEMPTED] = "TRUE"
    noticed = job.wait(lambda r: r.event == "PreemptionNoticed")
    assert noticed.get("reason") == "Google preempts this instance"
    assert job.finish() != 0
    cloud.close()
    steps = [int(r.get("step")) for r in job.of("Progressed")]
    assert max(int(r.get("step")) for r in job.of("CheckpointWritten")) >= max(steps), job.transcript()
    assert not job.of("WorkerLost"), job.transcript()
    posted = json.loads((job.run_dir.notices / "localhost.json").read_text())
    assert (posted["host"], posted["in_s"]) == ("localhost", 30.0)
