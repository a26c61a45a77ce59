# Shared by the clients' run scripts: sourced, with HERE set to the client's own folder.
# A run script defines probe, build and checks; dispatch picks one by the argument.
set -euo pipefail

# need COMMAND PACKAGE [TEST]: COMMAND is there (and TEST succeeds), or PACKAGE is named and the exit code is 3.
MISSING=()
need() {
    if ! command -v "$1" >/dev/null 2>&1 || { [ -n "${3:-}" ] && ! eval "$3" >/dev/null 2>&1; }; then
        MISSING+=("$2")
    fi
}

probed() {
    if [ ${#MISSING[@]} -gt 0 ]; then
        echo "missing: apt-get install --no-install-recommends ${MISSING[*]}"
        exit 3
    fi
}

# fresh OUTPUT INPUT...: OUTPUT exists and no INPUT is newer.
fresh() {
    local output=$1 input
    shift
    [ -e "$output" ] || return 1
    for input in "$@"; do
        [ ! "$input" -nt "$output" ] || return 1
    done
}

dispatch() {
    case "${1:-}" in
        --probe)
            probe
            probed
            echo "ready"
            ;;
        --build)
            probe
            probed
            build_once
            ;;
        "")
            probe
            probed
            build_once
            # Anything that hangs is a failure with a name, not a harness that waits for ever.
            local status=0
            checks || status=$?
            if [ "$status" -eq 124 ] || [ "$status" -eq 137 ]; then
                echo "not ok timeout: no end within ${CLIENT_TIMEOUT:-120} s"
            fi
            exit "$status"
            ;;
        *)
            echo "usage: run [--probe | --build]; connection data comes from PGHOST PGPORT PGUSER PGPASSWORD PGDATABASE PGSSLMODE PGSSLROOTCERT" >&2
            exit 2
            ;;
    esac
}

# Several tests may start one client at the same time: only one of them builds.
build_once() {
    mkdir -p "$HERE/build"
    exec 9>"$HERE/build/lock"
    flock 9
    build 9>&-
    exec 9>&-
}

limited() {
    timeout --kill-after=5 "${CLIENT_TIMEOUT:-120}" "$@"
}
