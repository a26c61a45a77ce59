//! Tens of gigabytes of varied data: loaded, updated, collected, crashed on and read again.
//!
//! Each row has a checksum of what is in it, computed before it goes to the server's files, so that reading all rows
//! tells whether they are what was written; counts and sums of their numbers tell whether all of them are there.

use std::sync::Mutex;
use std::time::Instant;

use pgshrink_testkit::{Server, Stop};

use super::Compressed;

/// A table: its payload's type, what makes it of a row's number `i` and version `v`, and its second index.
struct Kind {
    name: &'static str,
    payload: &'static str,
    made_of: &'static str,
    index: &'static str,
}

const KINDS: [Kind; 6] = [
    Kind {
        name: "documents",
        payload: "jsonb",
        made_of: "jsonb_build_object('user', md5((i % 50000)::text), 'at', to_timestamp(1600000000 + i * 3 + v),
            'event', (array['login','purchase','refund','view','logout'])[1 + i % 5], 'amount', (i * 7919 % 100000) / 100.0,
            'tags', jsonb_build_array('t' || i % 13, 't' || i % 7), 'session', md5(i || '-' || v),
            'client', jsonb_build_object('ip', format('10.%s.%s.%s', i % 13, i % 251, i % 17), 'ok', i % 11 <> 0))",
        index: "using btree ((payload ->> 'user'))",
    },
    Kind {
        name: "lines",
        payload: "text",
        made_of: "format('%s web%s nginx[%s]: 10.%s.%s.%s \"GET /shop/item/%s?ref=%s HTTP/1.1\" %s %s \"Mozilla/5.0 (X11; Linux x86_64)\"',
            to_timestamp(1700000000 + i / 20), i % 9, 1000 + i % 31, i % 13, i * 7 % 251, i * 3 % 199, i * 7919 % 100003, i % 41 + v,
            (array[200,200,200,304,404])[1 + i % 5], i * 104729 % 65536)",
        index: "using brin (id, version)",
    },
    Kind {
        name: "measured",
        payload: "float8[]",
        made_of: "array[round(sin(i / 1000.0)::numeric, 3), i % 100, i / 7, random(), round((20 + cos(i / 500.0) + v)::numeric, 2), 0, 1013.25,
            round((i % 977) / 9.77, 1)]::float8[]",
        index: "using btree (version, id)",
    },
    Kind {
        name: "noise",
        payload: "bytea",
        made_of: "decode(md5(i || 'a' || v) || md5(i || 'b' || v) || md5(i || 'c' || v) || md5(i || 'd' || v) || md5(i || 'e' || v), 'hex')",
        index: "using hash (payload)",
    },
    Kind {
        name: "texts",
        payload: "text",
        made_of: "(select string_agg(md5((i + n * 3 + v)::text) || ' is what paragraph ' || n || ' says; ', '') from generate_series(1, 150) n)",
        index: "using btree (substr(payload, 1, 40))",
    },
    Kind {
        name: "orders",
        payload: "text",
        made_of: "concat_ws(';', 'DE' || lpad((i * 31 % 99991)::text, 8, '0'), date '2020-01-01' + (i % 2000)::int, (i * 17 % 5000) / 100.0, 'EUR',
            (array['open','paid','sent','returned'])[1 + (i + v) % 4], 'Warehouse ' || i % 12, v)",
        index: "using btree (payload)",
    },
];

/// Rows of a batch: a transaction each.
const BATCH: u64 = 20_000;

/// The size in gigabytes of what is loaded: `PGSHRINK_LARGE_GB`, or 30.
fn gigabytes() -> f64 {
    std::env::var("PGSHRINK_LARGE_GB").ok().and_then(|text| text.parse().ok()).unwrap_or(30.0)
}

/// Two sessions that take one table after the other.
fn on_each_table(work: impl Fn(&Kind) + Sync) {
    let left = Mutex::new(KINDS.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let next = left.lock().unwrap().next();
                    let Some(kind) = next else { break };
                    work(kind);
                }
            });
        }
    });
}

/// Loads a table up to a size with its indexes, which are made before the second half of it.
fn load(server: &Compressed, kind: &Kind, bytes: u64) {
    let Kind { name, payload, made_of, index } = kind;
    let size = || -> u64 { server.sql(&format!("select pg_total_relation_size('{name}')")).parse().unwrap() };
    server.sql(&format!(
        "create table {name} (id bigint, version int, payload {payload}, checked int) with (fillfactor = 90) tablespace fast;
        alter table {name} alter payload set storage external"
    ));
    let fill = |from: u64, rows: u64| {
        let batches = rows.div_ceil(BATCH);
        server.sql(&format!(
            "do $$ begin for b in 0..{batches} - 1 loop
            insert into {name} select i, 0, p, hashtext(p::text) from
                (select i, {made_of} as p from (select i, 0 as v from generate_series({from} + b * {BATCH}::bigint,
                {from} + (b + 1) * {BATCH}::bigint - 1) i) n offset 0) made;
            commit; end loop; end $$"
        ));
        from + batches * BATCH
    };
    let first = fill(0, BATCH);
    let row = size() / BATCH;
    let middle = fill(first, bytes / 2 / row.max(1));
    server.sql(&format!(
        "set maintenance_work_mem = '256MB'; alter table {name} add primary key (id) using index tablespace fast;
        create index {name}_second on {name} {index} tablespace fast"
    ));
    let row = size() / middle;
    fill(middle, bytes.saturating_sub(size()) / row.max(1));
}

/// What a table has: rows, the sum of their numbers, versions, and rows that are not what was written.
fn state(server: &Compressed, kind: &Kind) -> String {
    let name = kind.name;
    server.sql(&format!(
        "set max_parallel_workers_per_gather = 0;
        select count(*), sum(id), sum(version), count(*) filter (where hashtext(payload::text) <> checked) from {name}"
    ))
}

/// The same by an index scan, of every thousandth row.
fn is_found(server: &Compressed, kind: &Kind) {
    let name = kind.name;
    let missing = server.sql(&format!(
        "set enable_seqscan = off; set enable_bitmapscan = off;
        select count(*) from generate_series(0, (select max(id) from {name}), 1000) i
        left join lateral (select 1 as found from {name} where id = i and hashtext(payload::text) = checked) r on true where found is null"
    ));
    assert_eq!(missing, "0", "{name}");
}

/// Updates every third row, a part of the table in each transaction.
fn update(server: &Compressed, kind: &Kind, part: u64) -> Result<(), String> {
    let Kind { name, made_of, .. } = kind;
    let sql = format!(
        "do $$ declare last bigint; begin select max(id) into last from {name};
        for b in 0..last / {BATCH} loop if b % 2 = {part} then
            update {name} t set version = made.v, payload = p, checked = hashtext(p::text) from
                (select i, v, {made_of} as p from (select id as i, version + 1 as v from {name}
                 where id between b * {BATCH} and (b + 1) * {BATCH} - 1 and id % 3 = 0) n offset 0) made
                where id = i;
            commit; end if; end loop; end $$"
    );
    server.cluster.sql(&sql).map(drop).map_err(|error| error.to_string())
}

struct Clock(Instant);

impl Clock {
    fn lap(&mut self, server: &Compressed, what: &str) {
        let seconds = self.0.elapsed().as_secs();
        let sizes = server.sql(
            "select format('%s plain bytes, %s on disk, %s times smaller, %s dictionaries', sum(virtual_bytes), sum(disk_bytes),
            round(sum(virtual_bytes)::numeric / sum(disk_bytes), 2), sum(dictionaries)) from cfs_relations where tablespace = 'fast'",
        );
        println!("{what}: {seconds} s; {sizes}");
        self.0 = Instant::now();
    }
}

#[test]
#[ignore = "an hour, and tens of gigabytes: make soak"]
fn tens_of_gigabytes_of_varied_data_are_what_was_written_after_updates_and_crashes() {
    let test = "tens of gigabytes of varied data";
    Server::each_with_extensions(test, &[15], |binaries| {
        let settings = [("shared_buffers", "1GB"), ("checkpoint_timeout", "2min"), ("autovacuum", "on")];
        let server = Compressed::start(binaries, &settings);
        let bytes = (gigabytes() * f64::from(1 << 30)) as u64 / KINDS.len() as u64;
        let mut clock = Clock(Instant::now());
        on_each_table(|kind| load(&server, kind, bytes));
        server.sql("checkpoint");
        clock.lap(&server, "loaded");
        let before: Vec<String> = KINDS.iter().map(|kind| state(&server, kind)).collect();
        println!("{before:?}");
        assert!(before.iter().all(|state| state.ends_with("|0|0")), "{before:?}");
        clock.lap(&server, "read");
        on_each_table(|kind| update(&server, kind, 0).unwrap());
        clock.lap(&server, "updated half of every third row");
        // The server ends amid the other half.
        std::thread::scope(|scope| {
            let updates = scope.spawn(|| on_each_table(|kind| drop(update(&server, kind, 1))));
            std::thread::sleep(std::time::Duration::from_secs_f64(20.0 + gigabytes() * 2.0));
            server.cluster.stop(Stop::Immediate).unwrap();
            updates.join().unwrap();
        });
        server.cluster.start().unwrap();
        server.sql("select 1");
        clock.lap(&server, "updated more, ended, recovered");
        on_each_table(|kind| {
            is_found(&server, kind);
            server.sql(&format!("vacuum analyze {}", kind.name));
        });
        clock.lap(&server, "looked up, vacuumed");
        server.sql("create extension amcheck");
        for (kind, before) in KINDS.iter().zip(&before) {
            let state = state(&server, kind);
            let [before, after] = [before, &state].map(|state| state.split('|').collect::<Vec<_>>());
            assert!(before[..2] == after[..2] && after[3] == "0", "{}: {before:?}, {after:?}", kind.name);
            server.sql(&format!(
                "select bt_index_check(i.indexrelid, true) from pg_index i join pg_class c on c.oid = i.indexrelid
                join pg_am a on a.oid = c.relam where amname = 'btree' and indrelid = '{}'::regclass",
                kind.name
            ));
        }
        clock.lap(&server, "checked");
        let by_kind = server.sql(
            "select relation, virtual_bytes, disk_bytes, round(virtual_bytes::numeric / nullif(disk_bytes, 0), 2), garbage_bytes
            from cfs_relations where tablespace = 'fast' order by 2 desc",
        );
        println!("{by_kind}");
        assert!(!server.cluster.log().unwrap().contains("PANIC"));
    });
}
