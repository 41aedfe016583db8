#!/bin/sh
# Prints `host:slots` lines for `horovodrun --host-discovery-script`.
#
# Reads the hosts file named by ELASTIC_HOSTS_FILE, one `host:slots` a line; blank lines and text
# after # do not count. Without it, this machine with two slots. Horovod runs this each second while
# the job runs: editing the file adds and removes workers.
if [ -z "${ELASTIC_HOSTS_FILE:-}" ]; then
    echo "localhost:2"
    exit 0
fi
if [ ! -r "$ELASTIC_HOSTS_FILE" ]; then
    echo "discover_hosts.sh: cannot read ELASTIC_HOSTS_FILE=$ELASTIC_HOSTS_FILE" >&2
    exit 1
fi
while IFS= read -r line || [ -n "$line" ]; do
    line=${line%%#*}
    for host in $line; do # one word a line; splitting trims it
        echo "$host"
        break
    done
done < "$ELASTIC_HOSTS_FILE"
