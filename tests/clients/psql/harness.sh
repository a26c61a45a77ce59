# Runs named checks one after another and prints one line for each; sourced by checks.sh.
# A check is a function of that name, run in a subshell: it ends by fail, skip, or by a command that fails.
set -uo pipefail
export LC_ALL=C.UTF-8
# Nothing of the user's own set-up may change what the programs print or how they connect.
export PSQLRC=/dev/null PGCLIENTENCODING=UTF8 PGTZ=UTC
# A program that takes longer hangs.
SECONDS_MAX=20
SCHEMA=client_psql_$(od -An -N4 -tx4 /dev/urandom | tr -d ' ')
WORK=$(mktemp -d)
FAILED=0
export PGPASSFILE=$WORK/no-password-file

sql() {
    timeout --foreground "$SECONDS_MAX" psql -XqAt -v ON_ERROR_STOP=1 "$@"
}

# The first reason stands: what fails after it, on the way out of subshells, only follows from it.
fail() {
    [ -s "$WORK/reason" ] || echo "$*" >"$WORK/reason"
    exit 1
}

skip() {
    echo "$*" >"$WORK/reason"
    exit 77
}

equal() {
    if [ "$2" != "$3" ]; then
        fail "$1: expected $(brief "$2"), found $(brief "$3")"
    fi
}

# has FILE TEXT: some line has the text in it.
has() {
    grep -qF -- "$2" "$1" || fail "no line with \"$2\" in: $(<"$1")"
}

# The programs of a major refuse to dump or stream from a newer server.
not_newer_than() {
    local server program
    server=$(($(sql -c "SHOW server_version_num") / 10000))
    program=$("$1" --version | sed 's/.* \([0-9]*\)[.a-z].*/\1/; s/ .*//')
    [ "$server" -le "$program" ] || skip "$1 $program takes no server of major $server"
}

brief() {
    if [ ${#1} -le 120 ]; then
        printf %s "$1"
    else
        printf '%s... (%s characters)' "${1:0:120}" ${#1}
    fi
}

now_ms() {
    echo $((${EPOCHREALTIME/./} / 1000))
}

check() {
    local status=0 start
    start=$(now_ms)
    : >"$WORK/reason"
    # Not in an || list: bash would ignore set -e in all of it.
    (
        set -eE
        trap 'fail "line $LINENO: $BASH_COMMAND: exit code $?: $(tail -n 3 "$WORK/output")"' ERR
        "$1"
    ) >"$WORK/output" 2>&1
    status=$?
    case $status in
        0) echo "ok $1" ;;
        77) echo "skip $1: $(<"$WORK/reason")" ;;
        *)
            FAILED=1
            [ -s "$WORK/reason" ] || cp "$WORK/output" "$WORK/reason"
            echo "not ok $1: $(tr -s '\n\t ' ' ' <"$WORK/reason")"
            if [ -n "${CLIENT_TRACE:-}" ]; then
                cat "$WORK/output" >&2
            fi
            ;;
    esac
    if [ -n "${CLIENT_TRACE:-}" ]; then
        echo "# $1 $(($(now_ms) - start)) ms" >&2
    fi
}

finish() {
    # Only this run's own children: a check that failed half way may have left one.
    local child
    for child in $(jobs -p); do
        kill "$child" 2>/dev/null
    done
    PGOPTIONS="-c client_min_messages=warning -c lock_timeout=5s" sql -c "DROP SCHEMA IF EXISTS $SCHEMA, ${SCHEMA}_dumped CASCADE" || FAILED=1
    rm -rf "$WORK"
}
