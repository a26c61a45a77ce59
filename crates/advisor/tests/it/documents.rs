//! Keys of documents as columns, and columns that say nothing, on real servers.

use crate::collected::snapshot;
use pgshrink_advisor::edit::{Edit, ExtractedColumn, Extraction, Removal};
use pgshrink_advisor::rules::{Candidate, constant, documents};
use pgshrink_advisor::snapshot::{Snapshot, Table};
use pgshrink_testkit::{Cluster, Rng, Seed, Server};

fn table<'s>(snapshot: &'s Snapshot, name: &str) -> &'s Table {
    snapshot.tables.iter().find(|of| of.name == name).unwrap()
}

fn extraction(candidate: &Candidate) -> &Extraction {
    match candidate.edits.as_slice() {
        [Edit::Extract(extraction)] => extraction,
        other => panic!("{other:?}"),
    }
}

fn removal(candidate: &Candidate) -> &Removal {
    match candidate.edits.as_slice() {
        [Edit::Remove(removal)] => removal,
        other => panic!("{other:?}"),
    }
}

/// The value of an expression in each row of `t`, as it is stored; None for NULL.
fn stored(cluster: &Cluster, expression: &str) -> Vec<Option<Vec<u8>>> {
    cluster
        .sql(&format!("drop table if exists u; create table u as select {expression} as c from t order by ctid; checkpoint"))
        .unwrap();
    let nulls = cluster.sql("select c is null from u order by ctid").unwrap();
    let stored = crate::images::stored(cluster, "u");
    nulls.lines().zip(stored).map(|(is_null, image)| (is_null == "f").then_some(image)).collect()
}

/// A document with the keys that all have, and some that only a few have.
fn document(rng: &mut Rng, n: usize) -> String {
    let word = |rng: &mut Rng| format!("{:x}", rng.bits() >> rng.below(60));
    let mut members = vec![
        format!("\"name\": \"{} it's\"", word(rng)),
        format!("\"count\": {}", rng.below(100_000)),
        format!("\"at\": {}", 1_700_000_000_000usize + n),
        format!("\"is it\": {}", rng.chance(50)),
        format!("\"amount\": {}.{:02}", rng.below(1000), rng.below(100)),
        format!("\"sometimes another\": {}", if rng.chance(50) { "1" } else { "\"one\"" }),
        format!("\"null\": {}", if rng.chance(10) { "null" } else { "1" }),
        format!("\"list\": [1, {{\"a\": {}}}]", rng.below(9)),
    ];
    let id = rng.bits();
    members.push(format!("\"id\": \"{:08x}-0000-4000-8000-{:012x}\"", id as u32, id >> 32));
    if rng.chance(97) {
        members.push(format!("\"nearly\": {}", rng.below(500) as i64 - 250));
    }
    if rng.chance(20) {
        members.push(format!("\"rare\": \"{}\"", word(rng)));
    }
    format!("{{{}}}", members.join(", "))
}

/// The columns that come out of [`document`]. The table has a column `name` already.
const COLUMNS: [(&str, &str); 6] = [
    ("amount", "numeric"),
    ("at", "bigint"),
    ("count", "integer"),
    ("id", "uuid"),
    ("is it", "boolean"),
    ("nearly", "integer"),
];

/// Documents that the columns do not take, or would give back differently.
const MISFITS: [&str; 13] = [
    "[]",
    "1",
    "\"x\"",
    "null",
    "{\"count\": \"1\"}",
    "{\"count\": 1.5}",
    "{\"count\": 1e300}",
    "{\"id\": \"x\"}",
    "{\"at\": null}",
    "{\"is it\": 0}",
    "{\"amount\": {}}",
    "{\"count\": 12345678901}",
    "{\"id\": 1}",
];

#[test]
fn keys_become_columns_with_the_bytes_that_a_server_stores() {
    let mut rng = Seed::from_env_or_time().rng();
    Server::each("keys of documents", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let rows: Vec<String> = (0..600)
            .map(|n| match n % 50 {
                7 => "(null)".to_owned(),
                _ => format!("('{}')", document(&mut rng, n).replace('\'', "''")),
            })
            .collect();
        cluster
            .psql()
            .input(format!(
                "create table t (\"Doc\" jsonb, name int); insert into t values {}",
                rows.join(", ")
            ))
            .run()
            .unwrap();
        let seen = snapshot(&cluster, None);
        let [candidate] = documents::candidates(&seen, table(&seen, "t")).try_into().unwrap();
        let extraction = extraction(&candidate);
        let found: Vec<_> =
            extraction.added.iter().map(|added| (&*added.layout.name, &*added.type_name)).collect();
        assert_eq!(found, COLUMNS);
        assert!(!candidate.is_recommended);
        let proof = candidate.finding.proof.as_deref().unwrap();
        assert_eq!(cluster.sql(proof).unwrap(), "0");
        for misfit in MISFITS {
            let sql = format!("begin; insert into t values ('{misfit}'); {proof}; rollback");
            assert_eq!(cluster.sql(&sql).unwrap(), "1", "{misfit}");
        }
        let fits = format!(
            "begin; insert into t values ('{{}}'), ('{{\"other\": null}}'), (null); {proof}; rollback"
        );
        assert_eq!(cluster.sql(&fits).unwrap(), "0");
        for added in &extraction.added {
            assert_eq!(stored(&cluster, &added.expression), added.images, "{}", added.expression);
        }
        assert_eq!(stored(&cluster, &extraction.rest_expression), extraction.rest);
        // Nothing is lost: the document can be put together again.
        let pair = |added: &ExtractedColumn| format!("'{}', {}", added.layout.name, added.expression);
        let columns: Vec<String> = extraction.added.iter().map(pair).collect();
        let whole = format!(
            "{} || jsonb_strip_nulls(jsonb_build_object({}))",
            extraction.rest_expression,
            columns.join(", ")
        );
        let differ = format!("select count(*) from t where ({whole}) is distinct from \"Doc\"");
        assert_eq!(cluster.sql(&differ).unwrap(), "0");
    });
}

#[test]
fn documents_without_common_keys_or_with_indexes_stay_as_they_are() {
    Server::each("documents as they are", &[15], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        let value = "jsonb_build_object('a', n, 'long key', n)";
        cluster
            .sql(&format!(
                "create table gin (d jsonb); insert into gin select {value} from generate_series(1, 500) n; create index on gin using gin (d);
                 create table expression (d jsonb); insert into expression select {value} from generate_series(1, 500) n;
                 create index on expression ((d ->> 'a'));
                 create table generated (d jsonb, a text generated always as (d ->> 'a') stored);
                 insert into generated select {value} from generate_series(1, 500) n;
                 create table arrays (d jsonb); insert into arrays select '[1, 2]' from generate_series(1, 500) n;
                 create table mixed (d jsonb);
                 insert into mixed select case when n = 5 then '1' else {value} end from generate_series(1, 500) n;
                 create table few (d jsonb); insert into few select {value} from generate_series(1, 99) n;
                 create table rare (d jsonb);
                 insert into rare select jsonb_build_object('k' || n % 3, n) from generate_series(1, 500) n;
                 create table plain (d json); insert into plain select {value} from generate_series(1, 500) n"
            ))
            .unwrap();
        let seen = snapshot(&cluster, Some(1000));
        for of in &seen.tables {
            assert_eq!(documents::candidates(&seen, of), [], "{}", of.name);
        }
        let whole = snapshot(&cluster, None);
        assert_eq!(documents::candidates(&whole, table(&whole, "few")).len(), 1);
    });
}

#[test]
fn columns_with_one_value_are_found_and_the_proof_counts_the_others() {
    Server::each("constant columns", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "Asia/Tokyo").start().unwrap();
        cluster
            .sql(
                "create table t (id int primary key, always text not null, nearly timestamptz not null, often int not null,
                   empty text, \"it's\" text not null, used int not null, doc json, flag boolean not null default false);
                 insert into t select n, 'the ''same'' \\value', case when n = 17 then now() else '2020-01-01' end, n % 100 / 99,
                   null, 'x', 1, '{}', false from generate_series(1, 3000) n;
                 create index on t (id) where used = 1;
                 create table keyless (a int, nearly int not null);
                 insert into keyless select n, n / 3000 from generate_series(1, 3000) n",
            )
            .unwrap();
        let seen = snapshot(&cluster, None);
        let found = constant::candidates(&seen, table(&seen, "t"));
        let columns: Vec<_> = found.iter().map(|of| of.finding.object.part.as_deref().unwrap()).collect();
        assert_eq!(columns, ["always", "nearly", "it's", "flag"]);
        let exceptions: Vec<_> =
            found.iter().map(|of| (removal(of).exceptions, removal(of).exception_row_bytes)).collect();
        // The key, padding, and a timestamp.
        assert_eq!(exceptions, [(0, 0), (1, 24 + 16), (0, 0), (0, 0)]);
        assert!(found.iter().all(|of| !of.is_recommended));
        for candidate in &found {
            let proof = candidate.finding.proof.as_deref().unwrap();
            assert_eq!(cluster.sql(proof).unwrap(), "0", "{proof}");
        }
        let others = "update t set always = upper(always), nearly = now(), \"it's\" = '', flag = true where id % 100 = 0";
        for candidate in &found {
            let proof = candidate.finding.proof.as_deref().unwrap();
            assert_eq!(cluster.sql(&format!("begin; {others}; {proof}; rollback")).unwrap(), "1", "{proof}");
        }
        assert_eq!(constant::candidates(&seen, table(&seen, "keyless")), []);
    });
}
