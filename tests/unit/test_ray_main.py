"""How the driver on a Ray cluster is told to stop."""

import signal
import threading

import pytest

from elastic.launch.ray.main import told_to_stop


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_another_thread_gets_stops_the_job_while_the_main_thread_waits(number: int) -> None:
    stopped = threading.Event()
    before = signal.getsignal(number)

    def somebody_elses() -> None:
        signal.pthread_kill(threading.get_ident(), number)
        ended.wait(20.0)

    ended = threading.Event()
    other = threading.Thread(target=somebody_elses)

    def stop() -> None:
        stopped.set()
        ended.set()

    with told_to_stop(stop):
        other.start()
        other.join()  # as the driver waits: without a limit, in a lock
        assert stopped.is_set()
    assert signal.getsignal(number) is before
    assert "signals" not in {thread.name for thread in threading.enumerate()}


def test_another_signal_stops_nothing() -> None:
    stopped: list[bool] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with told_to_stop(lambda: stopped.append(True)):
            signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert stopped == []
