"""One validation of an epoch, as callbacks and the agent see it."""

from typing import Any

import horovod.tensorflow as hvd

from elastic.channel import Phase
from elastic.worker.elements_feed import ElementsFeed
from elastic.worker.feed import Feed
from elastic.worker.parts import Parts, plain_logs


def evaluate(parts: Parts, feed: Feed | ElementsFeed, step: int) -> dict[str, Any]:
    """Return the metrics of all of a feed's samples, over all workers, after so many steps of training."""
    p, validation = parts, parts.steps.validation
    p.pulse.enter(Phase.VALIDATING)
    validation.begin(step)
    p.callbacks.call("on_test_begin")
    total = p.config.batch.total(hvd.size())
    index = 0
    for run in validation.runs(len(feed.source)):
        batch = validation.batch_size(total, p.config.batch.micro)
        batches = feed.validation(run.low, run.high, batch)
        validation.begin_run(run)
        with feed.named():
            for _ in range(-(-(run.high - run.low) // batch)):
                p.pulse.enter(Phase.VALIDATING)
                p.callbacks.call("on_test_batch_begin", index)
                validation.batch(batches)
                p.callbacks.call("on_test_batch_end", index)
                index += 1
        validation.end_run(run)
    p.pulse.enter(Phase.SYNCING)
    validation.join()
    p.pulse.enter(Phase.USER)
    logs = plain_logs(p.model.get_metrics_result())
    p.callbacks.call("on_test_end", logs)
    return logs
