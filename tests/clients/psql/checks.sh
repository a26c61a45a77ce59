#!/usr/bin/env bash
# The checks of psql itself; those of pg_dump, pgbench and the replication programs are in programs.sh.
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
source "$HERE/harness.sh"
source "$HERE/testdata.sh"
source "$HERE/programs.sh"

connect_server_version() {
    local version
    version=$(sql -c "SHOW server_version_num")
    [ "$version" -ge 150000 ] || fail "server_version_num $version"
    # PGOPTIONS reached the server.
    equal search_path "$SCHEMA" "$(sql -c "SHOW search_path")"
}

wrong_password_28P01() {
    [ -n "${PGPASSWORD:-}" ] || skip "no PGPASSWORD: the server asks for none"
    # psql shows no SQLSTATE of a failed connection; the message is that of 28P01 alone.
    local status=0 said
    said=$(PGPASSWORD="not the password" sql -c "SELECT 1" 2>&1) || status=$?
    equal "exit code" 2 "$status"
    [[ $said == *"FATAL:  password authentication failed for user"* ]] || fail "psql said: $said"
}

tls_as_asked() {
    local info encrypted=no
    info=$(sql -c '\conninfo')
    [[ $info != *"SSL connection"* ]] || encrypted=yes
    case ${PGSSLMODE:-prefer} in
        require | verify-ca | verify-full) equal "TLS with sslmode=$PGSSLMODE" yes $encrypted ;;
        disable) equal "TLS with sslmode=disable" no $encrypted ;;
    esac
}

simple_query_types() {
    local found
    found=$(sql -P null=NULL -c "SELECT 42, (-9223372036854775808)::int8, 1.5::float8, true, DATE '2024-02-29', NULL::text; SELECT 'second'")
    equal rows $'42|-9223372036854775808|1.5|t|2024-02-29|NULL\nsecond' "$found"
}

prepare_execute_types() {
    # psql 15 has no command for the extended protocol's parameters but \gdesc, which is Parse and Describe.
    local found
    found=$(sql <<'SQL'
PREPARE typed (int4, int8, float8, numeric, bool, text, bytea, timestamptz, uuid, int4[]) AS SELECT $1, $2, $3, $4, $5, $6, $7, $8 AT TIME ZONE 'UTC', $9, $10;
EXECUTE typed (-7, 9223372036854775807, 3.141592653589793, 12345678901234567890.0123456789, false, 'it''s', '\x0001ff5c2700', '2024-02-29 12:34:56.789012+00', '0190b5a0-7f2e-7c4d-8e1f-0123456789ab', '{3,1,2}');
SELECT 1 AS number, 'x'::text AS words, now() AS instant \gdesc
SQL
    )
    equal rows '-7|9223372036854775807|3.141592653589793|12345678901234567890.0123456789|f|it'"'"'s|\x0001ff5c2700|2024-02-29 12:34:56.789012|0190b5a0-7f2e-7c4d-8e1f-0123456789ab|{3,1,2}
number|integer
words|text
instant|timestamp with time zone' "$found"
}

null_and_unicode() {
    local found
    found=$(sql -P null=NULL -v "text=$UNICODE" <<<"SELECT NULL::text, NULL::int4, :'text', length(:'text'), ''::text;")
    equal row "NULL|NULL|$UNICODE|${#UNICODE}|" "$found"
}

text_1mb_round_trip() {
    prose 1048576 >"$WORK/prose"
    sql -v "file=$WORK/prose" >"$WORK/back" <<'SQL'
\set content `cat "$WORK/prose"`
SELECT md5(:'content');
SELECT :'content';
SQL
    # The back quotes take the last line end away, psql puts one behind the value.
    equal "server's md5" "$(printf %s "$(<"$WORK/prose")" | md5_of)" "$(head -n 1 "$WORK/back")"
    equal "returned text" "$(md5_of <"$WORK/prose")" "$(tail -n +2 "$WORK/back" | md5_of)"
}

bytea_1mb_round_trip() {
    noise 1048576 >"$WORK/noise"
    equal "size of the noise" 1048576 "$(stat -c %s "$WORK/noise")"
    od -An -v -tx1 "$WORK/noise" | tr -d ' \n' >"$WORK/hex"
    sql >"$WORK/back" <<'SQL'
\set content `cat "$WORK/hex"`
SELECT md5(decode(:'content', 'hex'));
SELECT encode(decode(:'content', 'hex'), 'hex');
SQL
    equal "server's md5" "$(md5_of <"$WORK/noise")" "$(head -n 1 "$WORK/back")"
    equal "returned bytes" "$(md5_of <"$WORK/hex")" "$(tail -n +2 "$WORK/back" | tr -d '\n' | md5_of)"
}

prepared_reused_100() {
    local expected
    expected=$(for i in {1..100}; do echo "$((i * 3))|n$i"; done)
    equal rows "$expected" "$({
        echo 'PREPARE thrice (int4) AS SELECT $1 * 3, $$n$$ || $1;'
        for i in {1..100}; do echo "EXECUTE thrice ($i);"; done
    } | sql)"
}

results_to_files_and_variables() {
    sql >"$WORK/out" <<'SQL'
SELECT 6 * 7 AS answer, 'ä' AS letter \gset
\echo :answer :letter
SELECT i FROM generate_series(1, 3) AS i \g `echo $WORK`/three
SELECT i FROM generate_series(1, 5000) AS i \g |wc -l > $WORK/lines
SELECT format('SELECT %s * 2', i) FROM generate_series(1, 3) AS i \gexec
SQL
    equal "\\gset and \\gexec" $'42 ä\n2\n4\n6' "$(<"$WORK/out")"
    equal "\\g to a file" $'1\n2\n3' "$(<"$WORK/three")"
    equal "\\g to a program" 5000 "$(tr -d ' ' <"$WORK/lines")"
}

copy_in_out_20000() {
    copy_rows $COPY_ROWS 0 >"$WORK/rows"
    sql -c "CREATE TABLE copied ($COPY_COLUMNS)" -c "CREATE TABLE copied_again (LIKE copied)" -c "CREATE TABLE copied_binary (LIKE copied)"
    sql -c "\\copy copied FROM '$WORK/rows'"
    equal "server's md5 of the values" "$(copied_md5)" "$(sql -c "$COPIED_MD5 copied")"
    sql -c "\\copy (SELECT * FROM copied ORDER BY id) TO '$WORK/back'"
    cmp "$WORK/rows" "$WORK/back"
    sql -c "COPY copied TO STDOUT (FORMAT binary)" >"$WORK/binary"
    sql -c "COPY copied_binary FROM STDIN (FORMAT binary)" <"$WORK/binary"
    equal "server's md5 of the binary copy" "$(copied_md5)" "$(sql -c "$COPIED_MD5 copied_binary")"
    # Both directions at once, one psql into the other.
    sql -c "COPY copied TO STDOUT" | sql -c "COPY copied_again FROM STDIN"
    equal "server's md5 of the piped copy" "$(copied_md5)" "$(sql -c "$COPIED_MD5 copied_again")"
}

copy_in_bad_row_22P02() {
    local found
    copy_rows $COPY_ROWS $((COPY_ROWS / 2)) >"$WORK/bad"
    sql -c "CREATE TABLE copied_badly ($COPY_COLUMNS)"
    # \copy sets no LAST_ERROR_SQLSTATE; the verbose message has it. The session goes on.
    found=$(sql -v ON_ERROR_STOP=0 -v VERBOSITY=verbose 2>"$WORK/errors" <<SQL
\\copy copied_badly FROM '$WORK/bad'
SELECT count(*) FROM copied_badly;
SQL
    )
    equal "rows left" 0 "$found"
    has "$WORK/errors" "ERROR:  22P02: invalid input syntax for type integer: \"bad$((COPY_ROWS / 2))\""
    has "$WORK/errors" "COPY copied_badly, line $((COPY_ROWS / 2)), column id: \"bad$((COPY_ROWS / 2))\""
}

copy_in_aborted_by_client() {
    local psql
    sql -c "CREATE TABLE copied_partly ($COPY_COLUMNS)"
    mkfifo "$WORK/fifo"
    # An interrupt while psql waits for more rows is what makes it send CopyFail.
    psql -XqAt -v VERBOSITY=verbose -c "\\copy copied_partly FROM '$WORK/fifo'" 2>"$WORK/errors" &
    psql=$!
    exec 7>"$WORK/fifo"
    copy_rows 500 0 >&7
    sleep 0.3
    kill -INT "$psql"
    sleep 0.2
    exec 7>&-
    wait "$psql" || true
    has "$WORK/errors" "ERROR:  57014: COPY from stdin failed: canceled by user"
    equal "rows left" 0 "$(sql -c "SELECT count(*) FROM copied_partly")"
}

cursor_declare_fetch() {
    equal rows "$(seq 1 1000; echo 1000)" "$({
        echo 'BEGIN; DECLARE rows_of SCROLL CURSOR FOR SELECT i FROM generate_series(1, 1000) AS i;'
        for _ in {1..8}; do echo 'FETCH 150 FROM rows_of;'; done
        echo 'FETCH LAST FROM rows_of; CLOSE rows_of; COMMIT;'
    } | sql)"
}

driver_fetch_size() {
    equal "md5 of the rows" "$(seq 1 2000 | md5_of)" "$(sql -v FETCH_COUNT=97 -c "SELECT i FROM generate_series(1, 2000) AS i" | md5_of)"
}

large_object() {
    noise 300000 >"$WORK/object"
    sql >"$WORK/out" <<'SQL'
\set file `echo $WORK/object`
\lo_import :file
SELECT md5(lo_get(:LASTOID));
\set back `echo $WORK/object.back`
\lo_export :LASTOID :back
\lo_unlink :LASTOID
SQL
    grep -qx "$(md5_of <"$WORK/object")" "$WORK/out" || fail "server's md5: $(<"$WORK/out")"
    cmp "$WORK/object" "$WORK/object.back"
}

transaction_rollback() {
    equal counts $'1\n25P02\n0\n2' "$(sql -v ON_ERROR_STOP=0 2>/dev/null <<'SQL'
CREATE TABLE ledger (id int);
BEGIN;
INSERT INTO ledger VALUES (1);
SAVEPOINT point;
INSERT INTO ledger VALUES (2);
ROLLBACK TO SAVEPOINT point;
SELECT count(*) FROM ledger;
SELECT 1 / 0;
SELECT 1;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
SELECT count(*) FROM ledger;
\set ON_ERROR_ROLLBACK on
BEGIN;
INSERT INTO ledger VALUES (1);
SELECT 1 / 0;
INSERT INTO ledger VALUES (2);
COMMIT;
SELECT count(*) FROM ledger;
SQL
    )"
}

error_fields() {
    sql -v ON_ERROR_STOP=0 -v VERBOSITY=verbose >"$WORK/errors" 2>&1 <<'SQL'
CREATE TABLE unique_of (id int CONSTRAINT unique_of_once PRIMARY KEY);
INSERT INTO unique_of VALUES (1);
INSERT INTO unique_of VALUES (1);
SELECT 1, no_such_column;
DO $$ BEGIN RAISE EXCEPTION 'says no' USING ERRCODE = 'P0404', HINT = 'ask again', DETAIL = 'because'; END $$;
SQL
    local line
    while IFS= read -r line; do
        has "$WORK/errors" "$line"
    done <<LINES
ERROR:  23505: duplicate key value violates unique constraint "unique_of_once"
DETAIL:  Key (id)=(1) already exists.
SCHEMA NAME:  $SCHEMA
TABLE NAME:  unique_of
CONSTRAINT NAME:  unique_of_once
ERROR:  42703: column "no_such_column" does not exist
LINE 1: SELECT 1, no_such_column;
                  ^
ERROR:  P0404: says no
DETAIL:  because
HINT:  ask again
LINES
}

listen_notify_within_1s() {
    local sent line took=
    coproc LISTENER { exec psql -XqAt 2>&1; }
    # bash forgets the coprocess's descriptors once it has ended.
    local from=${LISTENER[0]} to=${LISTENER[1]}
    printf 'LISTEN %s;\n\\echo listening\n' "$SCHEMA" >&"$to"
    read -r -t 5 line <&"$from"
    equal "first line" listening "$line"
    sent=$(now_ms)
    sql -c "NOTIFY $SCHEMA, 'from the other ☃'"
    # psql looks for notifications after each command only.
    while [ $(($(now_ms) - sent)) -lt 2000 ]; do
        printf 'SELECT 1;\n' >&"$to"
        read -r -t 5 line <&"$from"
        if [ "$line" = 1 ] && read -r -t 0.1 line <&"$from"; then
            took=$(($(now_ms) - sent))
            break
        fi
    done
    printf '\\q\n' >&"$to"
    [ -n "$took" ] || fail "no notification"
    [[ $line == "Asynchronous notification \"$SCHEMA\" with payload \"from the other ☃\" received from server process with PID "* ]] || fail "psql said: $line"
    [ "$took" -le 1000 ] || fail "took $took ms, at most 1000"
}

notice_before_sleep_ends() {
    sql -c "DO \$\$ BEGIN RAISE NOTICE 'early bird'; PERFORM pg_sleep(2); END \$\$" 2>&1 | {
        local line arrived early
        IFS= read -r line
        arrived=$(now_ms)
        cat >"$WORK/rest"
        early=$(($(now_ms) - arrived))
        equal notice "NOTICE:  early bird" "$line"
        [ "$early" -ge 1000 ] || fail "arrived only $early ms before the end of a 2 s sleep"
    }
}

cancel_57014_within_3s() {
    local psql asked took running="SELECT count(*) FROM pg_stat_activity WHERE application_name = '$SCHEMA' AND state = 'active'"
    # The interrupt goes to psql, which sends the CancelRequest. Before its query runs it would end psql.
    PGAPPNAME=$SCHEMA psql -XqAt -v VERBOSITY=verbose -c "SELECT pg_sleep(60)" 2>"$WORK/errors" &
    psql=$!
    for _ in {1..100}; do
        [ "$(sql -c "$running")" = 0 ] || break
        sleep 0.05
    done
    asked=$(now_ms)
    kill -INT "$psql"
    while kill -0 "$psql" 2>/dev/null && [ $(($(now_ms) - asked)) -lt 5000 ]; do
        sleep 0.02
    done
    took=$(($(now_ms) - asked))
    kill "$psql" 2>/dev/null || true
    wait "$psql" || true
    has "$WORK/errors" "ERROR:  57014: canceling statement due to user request"
    [ "$took" -le 3000 ] || fail "took $took ms, at most 3000"
}

statement_timeout_57014() {
    equal SQLSTATE $'57014\nusable' "$(sql -v ON_ERROR_STOP=0 2>/dev/null <<'SQL'
SET statement_timeout = '150ms';
SELECT pg_sleep(30);
\echo :LAST_ERROR_SQLSTATE
SELECT 'usable';
SQL
    )"
}

short_queries_200() {
    equal rows "$(seq 1 200)" "$(for i in {1..200}; do echo "SELECT $i;"; done | sql)"
}

json_5000_rows_md5() {
    local server
    server=$(sql -c "SELECT md5(string_agg(doc || E'\\n', '' ORDER BY i)) FROM ($JSON_QUERY) AS documents")
    equal md5 "$server" "$(sql -c "SELECT doc FROM ($JSON_QUERY) AS documents ORDER BY i" | md5_of)"
}

compression_switched_by_set() {
    # The answers must be the same whatever it says. A server takes any text for a placeholder setting, and so shows what was
    # set. In a compressed session SHOW is what is in effect: of what was agreed, no level above it, and not what was refused.
    local query="SELECT repeat(md5(i::text), 20) FROM generate_series(1, 2000) AS i;" value expected
    local agreed=${CLIENT_COMPRESSION:-} shown
    expected=$(sql -c "$query" | md5_of)
    for value in off zstd:3 lz4 zlib:6 off zstd:1; do
        printf '%s\n' "SET pgshrink.compression = '$value';" "SHOW pgshrink.compression;" "$query"
    done >"$WORK/script"
    sql -f "$WORK/script" >"$WORK/out"
    equal "lines" $((6 * 2001)) "$(wc -l <"$WORK/out")"
    local first=1
    for value in off zstd:3 lz4 zlib:6 off zstd:1; do
        if [ -z "$agreed" ] || [ "$value" = off ]; then
            shown=$value
        elif [ "${value%%:*}" = "${agreed%%:*}" ]; then
            shown=$agreed
        fi
        equal "SHOW" "$shown" "$(sed -n "${first}p" "$WORK/out")"
        equal "md5 after SET to $value" "$expected" "$(sed -n "$((first + 1)),$((first + 2000))p" "$WORK/out" | md5_of)"
        first=$((first + 2001))
    done
    equal "in a transaction, rolled back" off "$(sql -c "SET pgshrink.compression = 'off'" -c "BEGIN" -c "SET LOCAL pgshrink.compression = 'zstd:3'" -c "ROLLBACK" -c "SHOW pgshrink.compression")"
}

clean_close() {
    local backend left
    backend=$(sql -c "SELECT pg_backend_pid()")
    for _ in {1..40}; do
        left=$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE pid = $backend")
        [ "$left" != 0 ] || return 0
        sleep 0.05
    done
    fail "the backend of a closed connection is still there"
}

export WORK
if ! said=$(sql -c "CREATE SCHEMA $SCHEMA" 2>&1); then
    echo "not ok connect_server_version: ${said//$'\n'/ }"
    rm -rf "$WORK"
    exit 1
fi
trap finish EXIT
export PGOPTIONS="${PGOPTIONS:-} -c search_path=$SCHEMA"
for name in connect_server_version wrong_password_28P01 tls_as_asked simple_query_types prepare_execute_types null_and_unicode \
    text_1mb_round_trip bytea_1mb_round_trip prepared_reused_100 results_to_files_and_variables copy_in_out_20000 copy_in_bad_row_22P02 \
    copy_in_aborted_by_client cursor_declare_fetch driver_fetch_size large_object transaction_rollback error_fields \
    listen_notify_within_1s notice_before_sleep_ends cancel_57014_within_3s statement_timeout_57014 short_queries_200 json_5000_rows_md5 \
    compression_switched_by_set clean_close "${PROGRAM_CHECKS[@]}"; do
    check "$name"
done
finish
trap - EXIT
exit $FAILED
