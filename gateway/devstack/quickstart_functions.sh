# shellcheck shell=bash disable=SC2154
# The functions of gateway/quickstart, which sources this file. They share `root`, the folder of the tree; `once`,
# `always_build`, `data` and `http`, the arguments; `version`, that of this tree;
# `program`, the installed program of that version, or empty; `log`, the log of the build;
# `dev`, the process id of the stack; `output`, a file with its output.

usage() {
    cat <<'TEXT'
usage: gateway/quickstart [--once] [--build] [--data-dir DIR] [--http ADDR:PORT]
  --once            end after the example and delete its data, which is in a temporary folder
  --build           build even if a fencegate of this version is in the PATH
  --data-dir DIR    where the stack keeps its data; default var/dev
  --http ADDR:PORT  where the gateway listens; default 127.0.0.1:8080, or any free port if that one is in use
TEXT
}

# Sets `once`, `always_build`, `data` and `http`.
read_arguments() {
    once=no
    always_build=no
    data=
    http=
    while (($# > 0)); do
        case $1 in
            --once) once=yes ;;
            --build) always_build=yes ;;
            --data-dir | --http)
                if (($# < 2)); then
                    usage >&2
                    exit 64
                fi
                if [[ $1 == --http ]]; then http=$2; else data=$2; fi
                shift
                ;;
            -h | --help)
                usage
                exit 0
                ;;
            *)
                usage >&2
                exit 64
                ;;
        esac
        shift
    done
}

# Stops the stack and removes temporary files at exit, however the script ends.
clean_up_at_exit() {
    dev=
    temporary_folder=
    output=$(mktemp)
    trap clean_up EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
}

clean_up() {
    trap '' INT TERM
    if [[ -n $dev ]] && kill -0 "$dev" 2>/dev/null; then
        kill -TERM "$dev" 2>/dev/null || true
        wait "$dev" 2>/dev/null || true
    fi
    rm -f "$output"
    if [[ -n $temporary_folder ]]; then rm -rf "$temporary_folder"; fi
}

# Sets `version`, and `program` to the fencegate in the PATH if it has this version; else `program` is empty.
find_installed() {
    version=$(sed -nE 's/^project\(fencegate VERSION ([0-9.]+) .*/\1/p' "$root/CMakeLists.txt")
    program=$(type -P fencegate || true)
    if [[ $always_build == yes || -z $program ||
        $("$program" --version 2>/dev/null) != "fencegate $version" ]]; then
        program=
    fi
}

# Reads ninja's output and writes it to the log. Prints at most once in `progress_interval` seconds, with the next file
# that is finished, how many files are built, how many a minute, and the time left by that rate.
progress_interval=15
show_progress() {
    local line built_files all_files elapsed next_at started_at=
    while IFS= read -r line; do
        printf '%s\n' "$line" >>"$log"
        # ninja counts what it does before the first file as 0.
        [[ $line =~ ^\[([1-9][0-9]*)/([0-9]+)\]\  ]] || continue
        built_files=${BASH_REMATCH[1]} all_files=${BASH_REMATCH[2]}
        if [[ -z $started_at ]]; then started_at=$SECONDS next_at=$((SECONDS + progress_interval)); fi
        ((SECONDS >= next_at)) || continue
        elapsed=$((SECONDS - started_at)) next_at=$((SECONDS + progress_interval))
        printf '  %d of %d files, %d a minute, about %s left\n' "$built_files" "$all_files" \
            $((built_files * 60 / elapsed)) "$(show_duration $(((all_files - built_files) * elapsed / built_files)))"
    done
}

# show_duration SECONDS: prints it rounded up: in minutes, or below a minute and a half in tens of seconds.
show_duration() {
    if (($1 > 90)); then echo "$((($1 + 59) / 60)) min"; else echo "$((($1 + 9) / 10 * 10)) s"; fi
}

run_cmake() {
    (cd "$root" && cmake --preset release &&
        NINJA_STATUS='[%f/%t] ' cmake --build --preset release --target fencegate -j "$(nproc)") 2>&1
}

build_fencegate() {
    mkdir -p "$root/build"
    log=$root/build/quickstart.log
    : >"$log"
    if ! run_cmake | show_progress; then
        tail -n 40 "$log" >&2
        echo "The build failed; the complete log is build/quickstart.log" >&2
        exit 1
    fi
}

# If this script runs as root, PostgreSQL runs as another user, which may not have the right to enter the folder
# of this tree (for example /root).
can_postgres_enter() {
    ((EUID != 0)) && return 0
    local user=postgres
    id "$user" >/dev/null 2>&1 || user=nobody
    setpriv --reuid "$user" --regid "$(id -g "$user")" --init-groups test -x "$1"
}

# Sets `data` and `http` if no argument has set them.
set_defaults() {
    if [[ $once == yes && -z $data ]]; then
        temporary_folder=$(mktemp -d /var/tmp/fencegate-XXXXXX)
        chmod 755 "$temporary_folder"
        data=$temporary_folder/data
    elif [[ -z $data ]]; then
        data=$root/var/dev
        can_postgres_enter "$root" || data=/var/tmp/fencegate-dev
    fi
    if [[ -z $http ]]; then
        http=127.0.0.1:8080
        if (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null; then http=127.0.0.1:0; fi
    fi
}

start_stack() {
    # setsid: Ctrl-C reaches only this script, which then stops the stack.
    # setpriv: the stack gets SIGTERM if this script is killed.
    setsid setpriv --pdeathsig TERM "${program:-$root/build/release/fencegate}" dev --data-dir "$data" --http "$http" \
        >"$output" 2>&1 &
    dev=$!
    until grep -q '^Ready after' "$output"; do
        if ! kill -0 "$dev" 2>/dev/null; then
            cat "$output" >&2
            echo "The stack did not start." >&2
            exit 1
        fi
        sleep 0.1
    done
    cat "$output"
}

show_examples() {
    local url
    url=$(jq -r .http "$data/stack.json")
    cat <<TEXT

The stack runs until Ctrl-C. Examples:
  curl -s $url/v1/leases -d '{"resource": "inventory/sku-2", "ttl_ms": 30000}' -H 'Content-Type: application/json' |
    tee lease.json | jq
  jq '{lease_id, return: "rows", operations: [
      {update: "inventory", where: {sku: "sku-2", stock: {gte: 1}}, add: {stock: -1}, expect_rows: 1}]}' lease.json |
    curl -s $url/v1/writes -d @- -H 'Content-Type: application/json' | jq
  curl -s -X DELETE $url/v1/leases/\$(jq -r .lease_id lease.json)
  curl -s '$url/v1/history?resource=inventory%2Fsku-2' | jq
  curl -s $url/v1/nodes | jq
  $(grep -o 'psql .*' "$output")
TEXT
}
