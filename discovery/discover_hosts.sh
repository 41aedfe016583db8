#!/bin/sh
# Prints `host:slots` lines for `horovodrun --host-discovery-script`, within milliseconds, whatever
# happens to where the hosts come from: it only prints the last answer of the daemon `elastic-discover`,
# which it starts if none runs. Horovod runs this each second while it holds its driver's lock.
#
#   ELASTIC_DISCOVERY    a YAML file that says where hosts come from; or
#   ELASTIC_HOSTS_FILE   a hosts file: host, host:slots or host slots=N a line. Editing it adds and removes workers.
#
# With neither it is this machine with two slots. Exit code 1: something must be changed before
# there can be an answer; standard error says what.
umask 077
config=${ELASTIC_DISCOVERY:-${ELASTIC_HOSTS_FILE:-}}
if [ -z "$config" ]; then
    echo "localhost:2"
    exit 0
fi
case $config in /*) ;; *) config=$PWD/$config ;; esac
case $config in */../*)
    echo "discover_hosts.sh: $config: name it without '..'" >&2
    exit 1
    ;;
esac

# The same place as in place.py.
if [ -n "${XDG_RUNTIME_DIR:-}" ] && [ -d "$XDG_RUNTIME_DIR" ] && [ -w "$XDG_RUNTIME_DIR" ]; then
    base=$XDG_RUNTIME_DIR/elastic-discovery
else
    base=/tmp/elastic-discovery-$(id -u)
fi
place=$base$config
if [ ! -d "$base" ]; then mkdir -m 700 "$base" 2> /dev/null; fi # before the question whose it is
if [ -L "$base" ] || [ ! -O "$base" ]; then
    echo "discover_hosts.sh: $base is not yours; remove it, or set XDG_RUNTIME_DIR" >&2
    exit 1
fi

start_daemon() {
    # At most once in 5 s: one that ends at once is not tried each second.
    tried=0
    if [ -r "$place/tried" ]; then read -r tried < "$place/tried"; fi
    if [ $((now - tried)) -lt 5 ] && [ "$now" -ge "$tried" ]; then return; fi
    mkdir -p "$place" || exit 1
    echo "$now" > "$place/tried"
    if [ -n "${ELASTIC_DISCOVERY:-}" ]; then set -- --config "$config"; else set -- --hosts "$config"; fi
    if [ -n "${ELASTIC_DISCOVERY_LOG:-}" ]; then set -- "$@" --log "$ELASTIC_DISCOVERY_LOG"; fi
    here=$(cd "$(dirname "$0")/.." && pwd)
    for python in "${ELASTIC_PYTHON:-}" "$here/.venv/bin/python" "$here/../../../bin/python" python3; do
        if [ -x "$python" ] || [ "$python" = python3 ]; then break; fi
    done
    # From /, to hold no folder of the user's; it leaves this session by itself.
    (cd / && exec "$python" -c '
import sys
root, place, *words = sys.argv[1:]
sys.path.insert(0, root)
try:
    from discovery.cli import main
except ImportError as error:
    with open(place + "/problem", "w") as file:
        print(f"discover_hosts.sh: {sys.executable} lacks what discovery needs: {error}; set ELASTIC_PYTHON", file=file)
    sys.exit(1)
sys.exit(main(words))
' "$here" "$place" --daemon "$@") < /dev/null >> "$place/daemon.log" 2>&1 &
}

now=$(date +%s)
{ true > "$place/asked"; } 2> /dev/null
written=0 keep=0
if [ -r "$place/answer" ]; then read -r written keep < "$place/answer"; fi
age=$((now - written))
if [ "$age" -gt 10 ] || [ "$age" -lt -10 ]; then start_daemon; fi
if [ "$written" -gt 0 ] && [ "$age" -le "$keep" ]; then
    {
        read -r _
        if IFS= read -r first; then
            printf '%s\n' "$first"
            cat
            exit 0
        fi
    } < "$place/answer"
    if [ -r "$place/problem" ]; then cat "$place/problem" >&2; fi
    exit 0
fi
if [ -r "$place/problem" ]; then
    cat "$place/problem" >&2
    exit 1
fi
