#!/usr/bin/env bash
# A Ray cluster of two nodes on one machine, each in a network namespace of its own, with a token; a job through it.
#
#   sudo tests/acceptance/two_namespaces.sh [COMMAND...]
#
# COMMAND is run by `attn-sched submit`, from the second node against the first one's dashboard; {shared} in it becomes a
# folder that both nodes see. Without one, a tiny training with two sampling processes. Afterwards it must be that both
# nodes have done work of the job, and that a wrong token was refused. The exit status is 0 if all of it holds.
#
# Needs root, iproute2 and util-linux, and the project's virtual environment (or PYTHON=/path/to/python). Other variables:
# HEAD_CPUS and WORKER_CPUS (1 each, so that two workers do not fit on one node), KEEP=1 to keep logs and results.
# Processes are ended by their ids, which the namespaces know; what a run that was killed has left is removed first.
set -euo pipefail

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
PYTHON="${PYTHON:-$ROOT/.venv/bin/python}"
BIN="$(dirname "$PYTHON")"
DIR=/tmp/attn-two # short: Ray's sockets lie below it
HEAD=attn-head WORKER=attn-worker
HEAD_IP=10.77.31.1 WORKER_IP=10.77.31.2
DASHBOARD="http://$HEAD_IP:8265"

fail() {
    echo "two_namespaces: $*" >&2
    exit 1
}

# All processes of both namespaces, asked and then made to end; then the namespaces, and with them the link.
clean() {
    local name pid signal
    for signal in TERM KILL; do
        for name in "$WORKER" "$HEAD"; do
            for pid in $(ip netns pids "$name" 2>/dev/null); do
                kill "-$signal" "$pid" 2>/dev/null || true # it may have ended by itself
            done
        done
        for _ in $(seq 50); do
            [ -z "$(ip netns pids "$WORKER" 2>/dev/null)$(ip netns pids "$HEAD" 2>/dev/null)" ] && break
            sleep 0.1
        done
    done
    for name in "$WORKER" "$HEAD"; do
        if [ -e "/run/netns/$name" ]; then ip netns del "$name"; fi
    done
}

finish() {
    local status=$?
    trap - EXIT
    set +e
    clean
    if [ "$status" -ne 0 ] && [ -d "$DIR" ]; then
        tail -n 15 "$DIR"/*.log >&2
    fi
    if [ "${KEEP:-0}" = 1 ]; then echo "logs and results are in $DIR"; else rm -rf "$DIR"; fi
    exit "$status"
}

# on NAMESPACE COMMAND...: with the token and nothing else of this shell's environment.
on() {
    local name=$1
    shift
    ip netns exec "$name" env -i PATH="$BIN:/usr/sbin:/usr/bin:/sbin:/bin" HOME="${HOME:-/root}" LANG=C.UTF-8 \
        OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0 RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$DIR/token" "$@"
}

# start NAMESPACE ADDRESS CPUS OPTIONS...: a node, with a /tmp of its own as on a machine of its own.
start() {
    local name=$1 address=$2 cpus=$3
    shift 3
    mkdir "$DIR/$name"
    on "$name" unshare --mount sh -c 'mount --make-rprivate / && mount --bind "$0" "$1" && shift && exec "$@"' \
        "$DIR/$name" "$DIR/node" "$BIN/ray" start --block --disable-usage-stats --node-ip-address="$address" \
        --num-cpus="$cpus" --object-store-memory=200000000 --temp-dir="$DIR/node" "$@" >"$DIR/$name.log" 2>&1 &
}

nodes() {
    on "$HEAD" "$PYTHON" "$ROOT/tests/acceptance/nodes_used.py" "$DASHBOARD" "$@"
}

[ "$(id -u)" -eq 0 ] || fail "needs root, for network namespaces"
for program in ip unshare mount; do
    command -v "$program" >/dev/null || fail "needs $program"
done
[ -x "$BIN/ray" ] || fail "no Ray beside $PYTHON; expected PYTHON=... of an environment that has it"

clean
rm -rf "$DIR"
trap finish EXIT
trap 'exit 130' INT TERM
(umask 077 && mkdir "$DIR" && "$PYTHON" -c 'import secrets; print(secrets.token_hex(32))' >"$DIR/token" && echo no >"$DIR/wrong")
mkdir "$DIR/shared" "$DIR/node"

ip netns add "$HEAD"
ip netns add "$WORKER"
ip link add attn-h netns "$HEAD" type veth peer name attn-w netns "$WORKER"
ip -n "$HEAD" addr add "$HEAD_IP/24" dev attn-h
ip -n "$WORKER" addr add "$WORKER_IP/24" dev attn-w
for name in "$HEAD" "$WORKER"; do
    ip -n "$name" link set lo up
done
ip -n "$HEAD" link set attn-h up
ip -n "$WORKER" link set attn-w up

echo "starting two nodes, $HEAD_IP and $WORKER_IP"
start "$HEAD" "$HEAD_IP" "${HEAD_CPUS:-1}" --head --port=6379 --dashboard-host="$HEAD_IP"
nodes --wait 1
start "$WORKER" "$WORKER_IP" "${WORKER_CPUS:-1}" --address="$HEAD_IP:6379"
nodes --wait 2

cd "$ROOT"
if [ $# -gt 0 ]; then
    command=("${@//\{shared\}/$DIR/shared}")
else
    mapfile -t options < <("$PYTHON" -c "
from tests.training.tiny_run import arguments
print('\n'.join(arguments('--out', '$DIR/shared/run', '--set', 'ppo.runners=2')))")
    command=(attn-sched "${options[@]}")
fi
submit=("$PYTHON" -m attn_sched.cli submit --address "$DASHBOARD")

status=0
on "$WORKER" "${submit[@]}" --token-file "$DIR/wrong" -- true || status=$?
[ "$status" -eq 2 ] || fail "a wrong token was not refused: exit status $status"
on "$WORKER" "${submit[@]}" --token-file "$DIR/token" -- "${command[@]}"
nodes --worked "$HEAD_IP" "$WORKER_IP"
if [ $# -eq 0 ]; then
    ls "$DIR"/shared/run/best/*.safetensors
fi
echo "both nodes worked for the job"
