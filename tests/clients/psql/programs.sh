# Checks of the programs beside psql: pg_dump, pgbench, and the replication clients. Sourced by checks.sh.
PROGRAM_CHECKS=(pg_dump_restored_is_the_same pgbench_all_protocols pg_recvlogical_sees_changes pg_receivewal_streams pg_basebackup_verifies)

pg_dump_restored_is_the_same() {
    local dumped=${SCHEMA}_dumped before
    not_newer_than pg_dump
    export PGOPTIONS="-c search_path=$dumped"
    sql <<SQL
CREATE SCHEMA $dumped;
CREATE TABLE owners (id int PRIMARY KEY, name text NOT NULL UNIQUE);
CREATE TABLE things (id bigserial PRIMARY KEY, owner int NOT NULL REFERENCES owners, note text, doc jsonb, blob bytea, at timestamptz, tags text[]);
CREATE INDEX things_by_owner ON things (owner, at);
CREATE VIEW owned AS SELECT o.name, count(*) AS things FROM owners AS o JOIN things AS t ON t.owner = o.id GROUP BY o.name;
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT \$1 * 2';
INSERT INTO owners SELECT i, 'owner ☃ ' || i FROM generate_series(1, 100) AS i;
INSERT INTO things (owner, note, doc, blob, at, tags) SELECT i % 100 + 1, CASE WHEN i % 3 = 0 THEN NULL ELSE E'a\\tb\\\\ ' || i END,
    jsonb_build_object('n', i, 's', md5(i::text)), decode(md5(i::text), 'hex'), TIMESTAMPTZ '2024-01-01 00:00:00+00' + i * interval '1 minute',
    ARRAY['x' || i % 7, NULL, 'ü'] FROM generate_series(1, 10000) AS i;
COMMENT ON TABLE things IS 'what they own';
SQL
    # A dump carries its own settings; the lines with a random key are new in every one.
    dump() {
        PGOPTIONS='' timeout --foreground "$SECONDS_MAX" pg_dump -n "$dumped" | sed '/^\\\(un\)\?restrict /d'
    }
    before=$(sql -c "SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM things AS t")
    dump >"$WORK/first.sql"
    [ "$(wc -l <"$WORK/first.sql")" -gt 10100 ] || fail "the dump has $(wc -l <"$WORK/first.sql") lines"
    PGOPTIONS="-c client_min_messages=warning" sql -c "DROP SCHEMA $dumped CASCADE"
    PGOPTIONS='' sql -f "$WORK/first.sql" >"$WORK/restore"
    equal "md5 of the rows" "$before" "$(sql -c "SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM things AS t")"
    dump >"$WORK/second.sql"
    cmp "$WORK/first.sql" "$WORK/second.sql"
    # Straight through a pipe, in the custom format.
    PGOPTIONS="-c client_min_messages=warning" timeout --foreground "$SECONDS_MAX" pg_dump -Fc -n "$dumped" >"$WORK/custom"
    PGOPTIONS="-c client_min_messages=warning" sql -c "DROP SCHEMA $dumped CASCADE"
    PGOPTIONS='' timeout --foreground "$SECONDS_MAX" pg_restore --exit-on-error -d "$PGDATABASE" "$WORK/custom"
    equal "md5 of the rows, pg_restore" "$before" "$(sql -c "SELECT md5(string_agg(t::text, '|' ORDER BY id)) FROM things AS t")"
    PGOPTIONS="-c client_min_messages=warning" sql -c "DROP SCHEMA $dumped CASCADE"
}

pgbench_all_protocols() {
    local mode transactions=0
    bench() {
        timeout --foreground "$SECONDS_MAX" pgbench -n "$@" >"$WORK/bench" 2>&1 || fail "pgbench $*: $(tail -n 3 "$WORK/bench")"
        grep -q "^number of failed transactions: 0 " "$WORK/bench" || fail "pgbench $*: $(grep failed "$WORK/bench")"
    }
    timeout --foreground "$SECONDS_MAX" pgbench -i -s 1 -q -n >"$WORK/bench" 2>&1 || fail "pgbench -i: $(tail -n 3 "$WORK/bench")"
    equal accounts 100000 "$(sql -c "SELECT count(*) FROM pgbench_accounts")"
    for mode in simple extended prepared; do
        bench -S -M "$mode" -c 2 -t 100
        bench -M "$mode" -c 2 -t 25
        transactions=$((transactions + 50))
    done
    equal "history rows" $transactions "$(sql -c "SELECT count(*) FROM pgbench_history")"
    equal "the balances agree" t "$(sql -c "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
        AND (SELECT sum(tbalance) FROM pgbench_tellers) = (SELECT sum(bbalance) FROM pgbench_branches)
        AND (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(bbalance) FROM pgbench_branches)")"
    printf '%s\n' '\startpipeline' 'SELECT 1;' 'SELECT repeat(md5(:client_id::text), 30) FROM generate_series(1, 20);' 'SELECT 2;' '\endpipeline' >"$WORK/pipeline.sql"
    bench -M extended -c 2 -t 50 -f "$WORK/pipeline.sql"
    sql -c "DROP TABLE pgbench_accounts, pgbench_branches, pgbench_history, pgbench_tellers"
}

may_replicate() {
    [ "$(sql -c "SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")" = t ] || skip "the role has no REPLICATION attribute"
}

pg_recvlogical_sees_changes() {
    local slot=$SCHEMA end
    [ "$(sql -c "SHOW wal_level")" = logical ] || skip "wal_level is not logical"
    may_replicate
    recvlogical() {
        PGOPTIONS='' timeout --foreground "$SECONDS_MAX" pg_recvlogical -d "$PGDATABASE" -S "$slot" "$@"
    }
    sql -c "CREATE TABLE decoded (id int PRIMARY KEY, note text)"
    recvlogical --create-slot -P test_decoding
    trap 'PGOPTIONS='' sql -c "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '"'$slot'"' AND NOT active"' EXIT
    sql -c "INSERT INTO decoded SELECT i, repeat('note ☃ ' || i, 5) FROM generate_series(1, 1000) AS i"
    end=$(sql -c "SELECT pg_current_wal_lsn()")
    recvlogical --start --endpos="$end" -o skip-empty-xacts=1 -o include-xids=0 -f - >"$WORK/changes"
    equal "changes of the table" 1000 "$(grep -c "^table $SCHEMA.decoded: INSERT: id\[integer\]:" "$WORK/changes")"
    equal "md5 of the changes" "$(for i in {1..1000}; do
        echo "table $SCHEMA.decoded: INSERT: id[integer]:$i note[text]:'note ☃ ${i}note ☃ ${i}note ☃ ${i}note ☃ ${i}note ☃ $i'"
    done | md5_of)" "$(grep "^table $SCHEMA.decoded: " "$WORK/changes" | md5_of)"
    recvlogical --drop-slot
    trap - EXIT
}

pg_receivewal_streams() {
    local end segment
    [ "${CLIENT_REPLICATION:-}" = 1 ] || skip "CLIENT_REPLICATION is not 1"
    may_replicate
    not_newer_than pg_receivewal
    mkdir -p "$WORK/wal"
    sql -c "CREATE TABLE written AS SELECT i, md5(i::text) FROM generate_series(1, 20000) AS i"
    end=$(sql -c "SELECT pg_current_wal_lsn()")
    # It stops once it has something behind the end.
    sql -c "CREATE TABLE written_later (i int)"
    PGOPTIONS='' timeout --foreground "$SECONDS_MAX" pg_receivewal -D "$WORK/wal" --endpos="$end" --no-loop --no-sync
    segment=$(ls "$WORK/wal" | sort | tail -n 1)
    [ -n "$segment" ] || fail "no WAL file"
    if command -v pg_waldump >/dev/null; then
        # Every record from the segment's start to the end asked for has its checksum right.
        mv "$WORK/wal/$segment" "$WORK/wal/${segment%.partial}"
        pg_waldump --quiet --end="$end" "$WORK/wal/${segment%.partial}"
    fi
}

pg_basebackup_verifies() {
    [ "${CLIENT_REPLICATION:-}" = 1 ] || skip "CLIENT_REPLICATION is not 1"
    may_replicate
    not_newer_than pg_basebackup
    PGOPTIONS='' timeout --foreground 60 pg_basebackup -D "$WORK/backup" -c fast -X stream --no-sync
    if command -v pg_verifybackup >/dev/null; then
        pg_verifybackup --quiet "$WORK/backup"
    fi
    [ -s "$WORK/backup/backup_manifest" ] || fail "no manifest"
}
