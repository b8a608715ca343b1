#!/bin/bash
# compare.sh PEERS [rounds=3] [seconds=4]   Measures fencegate and the peers that a team would otherwise use,
# in one run.
#
# PEERS is a folder with servers.sh, peers/*.js, drive/ and package.json (tests/bench/README.md says the requirements);
# it is copied, never written to. What is missing on this machine is named before anything begins.
# FENCEGATE names the program (default: the release build). Only ratios inside one run mean anything.
set -euo pipefail
export LC_ALL=C # initdb fails if LANG names a locale that does not exist

missing=()
while read -r program package; do
    command -v "$program" >/dev/null || missing+=("$package")
done <<'END'
node nodejs
npm npm
make make
jq jq
g++ g++
redis-server redis-server
psql postgresql
END
compgen -G '/usr/lib/postgresql/*/bin/pgbench' >/dev/null || missing+=(postgresql)
/usr/bin/python3 -c 'import psycopg2' 2>/dev/null || missing+=(python3-psycopg2)
if ((${#missing[@]} > 0)); then
    echo "compare.sh needs Debian packages that are missing; as root: apt-get install ${missing[*]}" >&2
    exit 69
fi

peers_given=$(cd "${1:?usage: compare.sh PEERS [rounds] [seconds]}" && pwd)
rounds=${2:-3}
seconds=${3:-4}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$root/build/release
FENCEGATE=${FENCEGATE:-$(find "$build" -maxdepth 2 -type f -name fencegate -perm -u+x | head -1)}
[ -x "$FENCEGATE" ] || {
    echo "build fencegate first, or set FENCEGATE" >&2
    exit 69
}

work=$(mktemp -d "${TMPDIR:-/tmp}/fg-compare-XXXXXX")
chmod 755 "$work"
export RUN=$work/peers-run
results=$work/results.jsonl
peers=$work/peers
stacks=()

finish() {
    for pid in "${stacks[@]}"; do kill -TERM "$pid" 2>/dev/null || true; wait "$pid" 2>/dev/null || true; done
    [ ! -x "$peers/servers.sh" ] || (cd "$peers" && ./servers.sh stop all) >/dev/null 2>&1 || true
    [ -n "${KEEP:-}" ] || rm -rf "$work"
}
trap finish EXIT

cp -r "$peers_given" "$peers"
chmod -R u+w "$peers"
(cd "$peers" && { [ -d node_modules ] || npm ci --no-audit --no-fund; } && make -s) >"$work/peers-build.log" 2>&1 ||
    { tail -20 "$work/peers-build.log" >&2; exit 1; }
(cd "$peers" && ./servers.sh start redis pg svc)

# One stack keeps nothing on disk, as the peers' Redis;
# the other is what `fencegate dev` gives: each grant on disk before it counts.
for fsync in no always; do
    "$FENCEGATE" dev --data-dir "$work/$fsync" --http 127.0.0.1:0 --appendfsync "$fsync" >"$work/dev-$fsync.log" 2>&1 &
    stacks+=($!)
    for _ in $(seq 600); do
        [ -s "$work/$fsync/stack.json" ] && break
        kill -0 "${stacks[-1]}" 2>/dev/null || { cat "$work/dev-$fsync.log" >&2; exit 1; }
        sleep 0.1
    done
done

# Runs a command and stores the last JSON line of its output with the name and workload of its row.
measure() { # name workload clients command...
    local name=$1 workload=$2 clients=$3 line
    shift 3
    line=$("$@" 2>>"$work/errors.log" | grep '^{' | tail -1) || true
    /usr/bin/python3 - "$results" "$name" "$workload" "$clients" "$line" <<'END'
import json, sys
file, name, workload, clients, line = sys.argv[1:]
result = json.loads(line) if line else {"fatal": True}
if "work" in result:  # of fencegate bench
    assert result["good"], line
    (times,) = result["work"].values()
    result = {"ops_per_s": result["operations_per_s"], **times, "errors": result["errors"]}
with open(file, "a") as out:
    out.write(json.dumps({**result, "row": name, "workload": workload, "clients": int(clients)}) + "\n")
rate, p50, p99, errors = (result.get(key, "-") for key in ("ops_per_s", "p50_ms", "p99_ms", "errors"))
print(f"{name:28} {workload:5} {clients:>3}  {rate}/s  p50 {p50}  p99 {p99}  errors {errors}", flush=True)
END
}

fencegate() { # workload clients
    local workload=$1 clients=$2 fsync name stack
    for fsync in no always; do
        name=fencegate
        [ "$fsync" = no ] || name="fencegate (fsync $fsync)"
        stack=$work/$fsync/stack.json
        measure "$name" "$workload" "$clients" "$FENCEGATE" bench "$workload" --json --clients "$clients" \
            --time "${seconds}s" --url "$(jq -r .http "$stack")" --conninfo "$(jq -r .postgres.conninfo "$stack")"
    done
}

# Resets the peers' tables: their guarded writes need token 0 in all rows.
reset() {
    case $1 in
        W3 | W4) psql -qh 127.0.0.1 -p 24001 -U postgres -f "$peers/sql/reset.sql" >>"$work/reset.log" 2>&1 ;;
    esac
}

library() { # name workload clients
    reset "$2"
    measure "$1" "$2" "$3" env -C "$peers" node "peers/$1.js" "$2" "$3" "$seconds"
}

service() { # workload clients keys scenario
    reset "$1"
    measure "handmade ($4)" "$1" "$2" "$peers/drive/drive" --peer svc --workload "$1" --conns "$2" \
        --seconds "$seconds" --port 26001 --keys "$3" \
        --scenario "$peers/drive/scenarios/$4.txt"
}

pgbench_job() { # name workload script clients
    reset "$2"
    measure "$1" "$2" "$4" env -C "$peers" /usr/bin/python3 lib/ceiling.py pgbench "$1" "sql/$3.sql" "$4" "$seconds"
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for clients in 1 16 64; do
        fencegate pair "$clients"
        for name in redlock5 redlock4 redlock-universal redis-semaphore; do library "$name" W1 "$clients"; done
        service W1 "$clients" unique svc-pair
        fencegate job "$clients"
        fencegate sale "$clients"
        library redlock5 W3 "$clients"; library redis-semaphore W3 "$clients"
        service W3 "$clients" rows svc-job3; service W3 "$clients" rows svc-job1
        pgbench_job pgbench-rowlock W3 w3_rowlock "$clients"
        fencegate write "$clients"
        service W4 "$clients" rows svc-write
        pgbench_job pgbench-tx W4 w4_tx "$clients"
    done
    fencegate hot 32
    library redlock5 W2 32; library redis-semaphore W2 32; service W2 32 hot svc-pair
done

/usr/bin/python3 "$here/medians.py" "$results"
