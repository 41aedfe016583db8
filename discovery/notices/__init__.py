"""A cloud's notice that it will take a host away, as the host itself can hear it.

The metadata server that tells of it answers only on the host itself. So a `Watcher` runs there, tells
who runs the workers of that host, and posts the notice in a folder that the daemon of the launcher's
host reads (see `posted`): the host leaves the list before its deadline.
"""
