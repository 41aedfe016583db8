"""Elastic training under Ray Train v2, as its documentation shows it (private to the benchmarks).

`python -m benchmarks.ray_train_worker FOLDER [CHECKPOINT_STEPS]` is the driver: the network of
`elastic.examples.mnist` on the same digits, batch 32 a worker, one or two workers of one CPU. Every
step is a line `time rank size step` in FOLDER/steps.PID. A checkpoint is reported each
CHECKPOINT_STEPS steps, and loaded by every start; how long that took goes into FOLDER/reports.PID.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import torch
from torch import nn

from benchmarks.torchrun_worker import batches, build

SNAPSHOT_STEPS = 100


def train(config: dict[str, Any]) -> None:
    """Train without end."""
    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, size, folder = context.get_world_rank(), context.get_world_size(), Path(config["folder"])
    torch.manual_seed(1)
    network, step = build(), 0
    optimizer = torch.optim.Adam(network.parameters(), 1e-3)
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as found:
            loaded = torch.load(Path(found) / "snapshot.pt")
        network.load_state_dict(loaded["model"])
        optimizer.load_state_dict(loaded["optimizer"])
        step = loaded["step"]
    parallel = ray.train.torch.prepare_model(network)
    loss = nn.CrossEntropyLoss()
    log = (folder / f"steps.{os.getpid()}").open("a", buffering=1)
    reports = (folder / f"reports.{os.getpid()}").open("a", buffering=1)
    for x, y in batches(seed=1000 * os.getpid() + rank):
        optimizer.zero_grad()
        loss(parallel(x), y).backward()
        optimizer.step()
        step += 1
        log.write(f"{time.time()} {rank} {size} {step}\n")
        if step % config["checkpoint_steps"] == 0:
            begin = time.time()
            report(network, optimizer, step, rank)
            reports.write(f"{begin} {time.time() - begin}\n")


def report(network: nn.Module, optimizer: torch.optim.Optimizer, step: int, rank: int) -> None:
    """Report a checkpoint, which rank 0 writes."""
    with tempfile.TemporaryDirectory() as folder:
        found = None
        if rank == 0:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(state, Path(folder) / "snapshot.pt")
            found = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"step": step}, checkpoint=found)


def main() -> None:
    folder = Path(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else SNAPSHOT_STEPS
    ray.init(log_to_driver=False, logging_level="WARNING")
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"folder": str(folder), "checkpoint_steps": steps},
        scaling_config=ray.train.ScalingConfig(num_workers=(1, 2), elastic_resize_monitor_interval_s=1.0),
        run_config=ray.train.RunConfig(
            storage_path=str(folder / "storage"),
            failure_config=ray.train.FailureConfig(max_failures=-1),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=3),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
