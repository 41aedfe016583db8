"""Elastic PyTorch with torchft as its `train_ddp.py` shows it (private to the benchmarks).

`python -m benchmarks.torchft_worker FOLDER TIMEOUT_S` under torchrun, one replica group a worker: the network of
`benchmarks.torchrun_worker` on the same digits, batch 32 a worker; every committed step is a line
`time group size step` in FOLDER/steps.PID. Nothing is saved: a replica that comes back takes the others' state.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from benchmarks.torchrun_worker import batches, build


def main() -> None:
    folder, timeout = Path(sys.argv[1]), timedelta(seconds=float(sys.argv[2]))
    group = int(os.environ["REPLICA_GROUP_ID"])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    network = build()
    inner = torch.optim.Adam(network.parameters(), 1e-3)

    def load(state: dict[str, Any]) -> None:
        network.load_state_dict(state["model"])
        inner.load_state_dict(state["optimizer"])

    manager = Manager(
        pg=ProcessGroupGloo(timeout=timeout),
        min_replica_size=1,
        load_state_dict=load,
        state_dict=lambda: {"model": network.state_dict(), "optimizer": inner.state_dict()},
        replica_id=f"benchmark_{group}",
        timeout=timedelta(seconds=30),
        hostname="127.0.0.1",
    )
    parallel, optimizer = DistributedDataParallel(manager, network), Optimizer(manager, inner)
    loss = nn.CrossEntropyLoss()
    with (folder / f"steps.{os.getpid()}").open("a", buffering=1) as log:
        for x, y in batches(seed=1000 * os.getpid() + group):
            before = manager.current_step()
            optimizer.zero_grad()
            loss(parallel(x), y).backward()
            optimizer.step()
            if manager.current_step() > before:
                log.write(f"{time.time()} {group} {manager.num_participants()} {manager.current_step()}\n")


if __name__ == "__main__":
    main()
