"""The worker process: what an agent starts, `python -m elastic.worker.main CHANNEL_FD PULSE_FD AGENT_PID`."""

import faulthandler
import logging
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from elastic.channel import Channel, Failed, Finished, Phase, Prepare, Pulse
from elastic.deeds import FOLDER_VARIABLE
from elastic.errors import ConfigError, ExitCode
from elastic.worker import process

if TYPE_CHECKING:
    from elastic.worker.deeds import Deeds


def main() -> int:
    """Prepare the job, wait for a slot, train; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the agent speaks for the terminal
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    channel, pulse, agent = Channel(socket.socket(fileno=int(sys.argv[1]))), Pulse(int(sys.argv[2])), int(sys.argv[3])
    process.die_with_parent(agent)
    message = channel.expect(Prepare)
    if message is None:
        return ExitCode.TERMINATED
    if message.standby:
        process.be_polite()
    deeds = _deeds(os.environ.get(FOLDER_VARIABLE))
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    try:
        _work(message, channel, pulse, deeds)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
        if code == ExitCode.GOAL_REACHED:
            channel.send(Finished())
        return code
    except ConfigError as error:
        channel.send(Failed(str(error), str(error), pulse.read().step, config=True))
        return ExitCode.CONFIG
    except BaseException as error:  # noqa: BLE001 - the edge: whatever ended the worker is told to the agent
        channel.send(Failed(_summary(error), _traceback(error), pulse.read().step))
        return ExitCode.FAILED
    channel.send(Finished())
    pulse.enter(Phase.ENDING)
    return ExitCode.GOAL_REACHED


def _deeds(folder: str | None) -> "Deeds | None":
    """Listen for deeds where `elastic chaos` has started the job (see `elastic.deeds`), and nowhere else."""
    if folder is None:
        return None
    from elastic.worker.deeds import Deeds

    deeds = Deeds(Path(folder))
    deeds.listen()
    return deeds


def _work(message: Prepare, channel: Channel, pulse: Pulse, deeds: "Deeds | None") -> None:
    from elastic.worker.context import from_prepare, set_current

    context = from_prepare(message, channel, pulse)
    context.start_heartbeat()
    set_current(context)
    signal.signal(signal.SIGTERM, lambda *_: context.drain())
    from elastic.worker.devices import configure
    from elastic.worker.job import run_job

    configure(context)
    if deeds is not None:
        context.callbacks = (deeds.callback(),)
    run_job(Path(message.job), context.config)
    if context.go is None:
        raise ConfigError(f"{message.job}: the script ended without calling elastic.fit")


def _summary(error: BaseException) -> str:
    return traceback.format_exception_only(error)[-1].strip()


def _traceback(error: BaseException) -> str:
    """Return the traceback from the user's code on, without the frames that led there."""
    here = str(Path(__file__).resolve().parent)
    tb = error.__traceback__
    while (
        tb is not None
        and tb.tb_next is not None
        and (
            tb.tb_frame.f_code.co_filename.startswith(here)
            or "runpy" in tb.tb_frame.f_code.co_filename
            or "importlib" in tb.tb_frame.f_code.co_filename
        )
    ):
        tb = tb.tb_next
    return "".join(traceback.format_exception(type(error), error, tb)).rstrip()


if __name__ == "__main__":
    ended = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended)  # TensorFlow's and Horovod's threads have nothing left to say
