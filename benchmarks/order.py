"""What does the order of an epoch cost? `python -m benchmarks.order [--json]`.

* order: `order.permute` asked for some millions of the positions of a 10^9-sample epoch, spread over
  all of it and taken in chunks: microseconds a sample, and the most memory this process ever had;
* feed: MNIST digits in batches of 64 through the whole pipeline (order, gather, prefetch), CPU
  microseconds a batch, the same with the order left out, and milliseconds until a new world has
  its first batch.
"""

import argparse
import resource
import time
from typing import Any

import numpy as np

from benchmarks.report import machine, spread, tell
from elastic.worker.order import cut, permute

SAMPLES = 10**9
ASKED, CHUNK = 4 * 2**20, 2**18
BATCH, BATCHES, ROUNDS = 64, 400, 7


def order() -> dict[str, Any]:
    stride = SAMPLES // ASKED
    times = []
    for first in range(0, ASKED, CHUNK):
        positions = np.arange(first, first + CHUNK, dtype=np.int64) * stride
        began = time.perf_counter()
        found = permute(positions, SAMPLES, 1, 0)
        times.append((time.perf_counter() - began) / CHUNK * 1e6)
        assert 0 <= found.min() <= found.max() < SAMPLES
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"samples": SAMPLES, "us_per_sample": spread(times), "peak_memory_mb": round(peak_mb, 1)}


def feed() -> dict[str, Any]:
    import tensorflow as tf

    from elastic.worker.data import Arrays
    from elastic.worker.feed import Feed

    n = 60_000
    feed = Feed(Arrays((np.zeros((n, 28, 28, 1), np.float32), np.zeros(n, np.int32))))

    @tf.function(autograph=False)
    def take(pieces: Any) -> Any:
        return next(pieces)

    part = cut(n, 0, BATCH, 0, 1)
    costs: dict[str, list[float]] = {"cpu_us_per_batch": [], "cpu_us_per_batch_unshuffled": [], "restart_ms": []}
    for epoch in range(ROUNDS):
        for shuffled in (True, False):
            began = time.perf_counter()
            pieces = feed.training(part, 1, epoch) if shuffled else feed.validation(0, n, BATCH)
            take(pieces)
            if shuffled and epoch:  # the first traces
                costs["restart_ms"].append((time.perf_counter() - began) * 1e3)
            cpu = time.process_time()
            for _ in range(BATCHES):
                take(pieces)
            spent = (time.process_time() - cpu) / BATCHES * 1e6
            costs["cpu_us_per_batch" + ("" if shuffled else "_unshuffled")].append(spent)
    return {"batch": BATCH, **{name: spread(values) for name, values in costs.items()}}


def table(result: dict[str, Any]) -> str:
    of_order, of_feed = result["order"], result["feed"]
    return "\n".join(
        [
            "| what | median | least | most |",
            "| --- | ---: | ---: | ---: |",
            _row("order of 10^9 samples, us a sample", of_order["us_per_sample"]),
            f"| its process, peak memory in MB | {of_order['peak_memory_mb']} | | |",
            _row(f"feed, batch of {BATCH} digits, CPU us", of_feed["cpu_us_per_batch"]),
            _row("the same without the order", of_feed["cpu_us_per_batch_unshuffled"]),
            _row("first batch of a new world, ms", of_feed["restart_ms"]),
        ]
    )


def _row(name: str, figures: dict[str, float]) -> str:
    return f"| {name} | {figures['median']} | {figures['min']} | {figures['max']} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    result = {"machine": machine(), "order": order(), "feed": feed()}
    tell(result, as_json=options.json, table=table(result))


if __name__ == "__main__":
    main()
