"""The `elastic` command. A worker's slot with a warm standby is served before anything slow is imported."""

import os
import sys


def main() -> None:
    """Entry point: `elastic ...` and `python -m elastic ...`."""
    if sys.argv[1:2] == ["worker"] and "HOROVOD_GLOO_RENDEZVOUS_ADDR" in os.environ and "--help" not in sys.argv:
        from elastic.agent.start import start_from_pool

        code = start_from_pool()
        if code is not None:
            leave(code)
    from elastic.cli import run_cli

    leave(run_cli())


def leave(code: int) -> None:
    """End this process now: nothing is left to tidy up, and a launcher may be waiting to freeze it."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
