"""Stock `horovodrun`, nothing changed, but for what its child processes import again.

Horovod starts a Python process for each slot and, every second, for the discovery script, by
`multiprocessing`'s spawn, which imports the parent's main module. pip's `horovodrun` script imports
the whole launcher there, a fifth of a second of CPU time each time: a fifth of a core for as long as a
job runs, taken from training. Here the main module imports nothing until it is the main one.
"""

if __name__ == "__main__":
    import sys

    from horovod.runner.launch import run_commandline

    from elastic.launch.tolerant import tolerant

    sys.stdout, sys.stderr = tolerant(1), tolerant(2)  # its log may lie on a full disk
    sys.argv[0] = "horovodrun"
    sys.exit(run_commandline())
