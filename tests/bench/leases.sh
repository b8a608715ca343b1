#!/bin/bash
# leases.sh [seconds=4]   Measures the lease path: own resources, one hot resource, and 16 clients with a node stopped or killed.
#
# Two gateways over five Redis nodes without fsync, all on this machine. LOAD and FENCEGATE name the programs (default: the release build).
# Prints one line per row; only ratios inside one run mean anything.
set -euo pipefail

seconds=${1:-4}
root=$(cd "$(dirname "$0")/../.." && pwd)
FENCEGATE=${FENCEGATE:-$root/build/release/fencegate}
LOAD=${LOAD:-$root/build/release/load}
work=$(mktemp -d "${TMPDIR:-/tmp}/fg-leases-XXXXXX")
chmod 755 "$work"
stack=''
finish() {
    [[ -z $stack ]] || { kill -TERM "$stack" && wait "$stack" || true; }
    rm -rf "$work"
}
trap finish EXIT

"$FENCEGATE" dev --data-dir "$work/stack" --http 127.0.0.1:0 --gateways 2 --appendfsync no >"$work/dev.log" 2>&1 &
stack=$!
for _ in $(seq 600); do
    [[ ! -s $work/stack/stack.json ]] || break
    kill -0 "$stack" 2>/dev/null || { cat "$work/dev.log" >&2; exit 1; }
    sleep 0.1
done
json=$work/stack/stack.json
mapfile -t gateways < <(jq -r '.gateways[].http' "$json")
both=${gateways[0]},${gateways[1]}

# row NAME ADDRESSES PROCESSES CLIENTS MODE: prints the sum of the rates and the worst p50 and p99.
row() {
    local name=$1 addresses=$2 processes=$3 clients=$4 mode=$5 p pids=()
    for ((p = 0; p < processes; p++)); do
        "$LOAD" --http "$addresses" --mode "$mode" --clients "$clients" --seconds "$seconds" --prefix shared- >"$work/load-$p" 2>&1 &
        pids+=($!)
    done
    for p in "${!pids[@]}"; do wait "${pids[$p]}" || { echo "a load process of '$name' had errors:"; head -n 1 "$work/load-$p"; } >&2; done
    cat "$work"/load-? | grep '^{' | jq -rs --arg name "$name" '
        [$name, (map(.pairs_per_s) | add | floor), (map(.p50_ms) | max), (map(.p99_ms) | max), (map(.errors + .overlaps + .tokens_fallen) | add)] | @tsv' |
        awk -F'\t' '{printf "%-44s %7d pairs/s  p50 %8.2f ms  p99 %8.2f ms  errors %d\n", $1, $2, $3, $4, $5}'
    rm -f "$work"/load-?
}

row "own resources, 1 client" "${gateways[0]}" 1 1 pair
row "own resources, 16 clients" "${gateways[0]}" 1 16 pair
row "own resources, 64 clients" "${gateways[0]}" 1 64 pair
row "one hot resource, 32 waiters" "${gateways[0]}" 1 32 hot
row "  in 4 processes" "${gateways[0]}" 4 8 hot
row "  over 2 gateways" "$both" 1 32 hot
row "  in 4 processes over 2 gateways" "$both" 4 8 hot
node=$(jq -r '.redis[4].pid' "$json")
kill -STOP "$node"
row "16 clients, one node stopped" "${gateways[0]}" 1 16 pair
kill -CONT "$node"
sleep 3
row "16 clients, all nodes again" "${gateways[0]}" 1 16 pair
kill -9 "$node"
row "16 clients, one node killed" "${gateways[0]}" 1 16 pair
