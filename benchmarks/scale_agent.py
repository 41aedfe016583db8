"""A real agent over workers that train nothing (private to `benchmarks.scale`).

`python -m benchmarks.scale_agent CONFIG RUN_DIR` in a slot's environment; CONFIG is the resolved configuration as JSON.
"""

import json
import sys
from pathlib import Path

from elastic.agent.start import start

if __name__ == "__main__":
    config, run_dir = Path(sys.argv[1]), Path(sys.argv[2])
    sys.exit(start(config, "scale", json.loads(config.read_text()), "", run_dir, worker="benchmarks.scale_worker"))
