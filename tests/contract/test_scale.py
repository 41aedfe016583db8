"""Agents as real processes under Horovod's driver, over workers that train nothing: a lost one is replaced."""

from pathlib import Path

import pytest

from benchmarks.scale import reformed
from benchmarks.scale_cluster import Cluster

LIMIT_S = 60.0


@pytest.mark.chaos
def test_a_world_re_forms_after_a_loss(tmp_path: Path) -> None:
    with Cluster(tmp_path, 4, 2, LIMIT_S) as cluster:
        before = {mark.rank: mark for mark in cluster.wait_world(1)}
        cluster.wait_standby(before[3].host)
        at = max(mark.done for mark in before.values())
        cluster.kill(before[3])
        after = {mark.rank: mark for mark in cluster.wait_world(2)}
        found = reformed(tuple(after.values()), at, cluster.served, 0, cluster.cpu())
    assert [after[rank].pid == before[rank].pid for rank in range(4)] == [True, True, True, False]
    assert {mark.host for mark in after.values()} == {"h0", "h1"}
    assert after[3].told > 0 == after[3].lost
    assert found.asked > 4 * (6 + 9 + 4)  # at the least, if nobody had to be waited for
    assert found.total_s < LIMIT_S
