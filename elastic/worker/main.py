"""The worker process: what an agent starts, `python -m elastic.worker.main CHANNEL_FD PULSE_FD`."""

import faulthandler
import logging
import os
import socket
import sys
import traceback
from pathlib import Path

from elastic.channel import Channel, Failed, Finished, Phase, Prepare, Pulse
from elastic.errors import ConfigError, ExitCode


def main() -> int:
    """Prepare the job, wait for a slot, train; return the exit code."""
    channel = Channel(socket.socket(fileno=int(sys.argv[1])))
    pulse = Pulse(int(sys.argv[2]))
    pulse.heartbeat()
    message = channel.expect(Prepare)
    if not isinstance(message, Prepare):
        return ExitCode.TERMINATED
    faulthandler.enable()
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    step = 0
    try:
        from elastic.worker.context import from_prepare, set_current

        context = from_prepare(message, channel, pulse)
        context.start_heartbeat()
        set_current(context)
        from elastic.worker.devices import configure

        configure()
        from elastic.worker.job import run_job

        run_job(Path(message.job), context.config)
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except ConfigError as error:
        channel.send(Failed(str(error), str(error), step, config=True))
        return ExitCode.CONFIG
    except BaseException as error:  # noqa: BLE001 - the edge: whatever ended the worker is told to the agent
        step = pulse.read().step
        channel.send(Failed(_summary(error), _traceback(error), step))
        return ExitCode.FAILED
    channel.send(Finished())
    pulse.enter(Phase.ENDING)
    return ExitCode.GOAL_REACHED


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
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # TensorFlow's and Horovod's threads have nothing left to say
