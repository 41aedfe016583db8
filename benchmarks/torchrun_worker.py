"""Elastic PyTorch as its documentation shows it (private to the benchmarks).

`torchrun ... -m benchmarks.torchrun_worker FOLDER`: the network of `elastic.examples.mnist` on the same
digits, batch 32 a worker, DistributedDataParallel on Gloo; every step is a line `time rank size step` in
FOLDER/steps.N, N being torchrun's count of restarts. Rank 0 saves a snapshot each SNAPSHOT_STEPS steps,
and every start loads it, as in pytorch/examples, distributed/ddp-tutorial-series/multigpu_torchrun.py.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.digits import data

BATCH = 32
SNAPSHOT_STEPS = 100


def build() -> nn.Module:
    """Return the network; inputs (1, 28, 28), outputs 10 logits."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 13 * 13, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def batches(seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield shuffled batches without end, from memory."""
    pixels, labels = data(times=1)
    x = torch.from_numpy(pixels).float().div(255).unsqueeze(1)
    y = torch.from_numpy(labels).long()
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(x), generator=generator)
        for rows in order.split(BATCH)[: len(x) // BATCH]:
            yield x[rows], y[rows]


def main() -> None:
    folder, restarts = Path(sys.argv[1]), os.environ["TORCHELASTIC_RESTART_COUNT"]
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(1)
    network, step = build(), 0
    snapshot = folder / "snapshot.pt"
    loaded = torch.load(snapshot) if snapshot.exists() else None
    if loaded:
        network.load_state_dict(loaded["model"])
        step = loaded["step"]
    parallel = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(parallel.parameters(), 1e-3)
    if loaded:
        optimizer.load_state_dict(loaded["optimizer"])
    loss = nn.CrossEntropyLoss()
    with (folder / f"steps.{restarts}").open("a", buffering=1) as log:
        for x, y in batches(seed=1000 * int(restarts) + rank):
            optimizer.zero_grad()
            loss(parallel(x), y).backward()
            optimizer.step()
            step += 1
            log.write(f"{time.time()} {rank} {size} {step}\n")
            if rank == 0 and step % SNAPSHOT_STEPS == 0:
                fresh = snapshot.with_suffix(".new")
                torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, fresh)
                fresh.replace(snapshot)  # a kill in the middle leaves the one before


if __name__ == "__main__":
    main()
