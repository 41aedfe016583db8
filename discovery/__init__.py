"""Where hosts come from, and which of them a launcher is told of. Knows nothing of `elastic`.

    sources -> trust -> merge -> gate -> damp -> the answer -> discover_hosts.sh -> the launcher

Theory of operation. A launcher such as Horovod's runs a script each second, while it holds the lock
of its driver, and takes every word of it at face value. So the script only prints a small file. A
daemon keeps that file: it asks the sources in threads of their own, and one function (`listing.decide`)
judges what they say, from a snapshot and the time alone. Each judgement is a decision with its reason.
"""
