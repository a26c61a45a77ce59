//! Learning, estimating, profiles, the background worker.

use std::time::Duration;

use pgshrink_testkit::{Cluster, Server, wait_until};

use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, NEED_DICTIONARY, records, records_of, table, trained_table};

#[test]
fn an_estimate_of_a_jsonb_column_needs_no_adoption() {
    on_each_major("estimates", |database| {
        database.sql(&format!("create table plain as select id, doc from ({}) r", records(1500)));
        let lines = "select codec, dictionary, documents, jsonb_bytes, bytes, ratio, encode_ns, decode_ns
            from zson_estimate('plain', 'doc')";
        let estimate = database.sql(lines);
        for codec in ["zstd", "lz4", "none"] {
            assert!(estimate.lines().any(|line| line.starts_with(codec)), "{codec}\n{estimate}");
        }
        let best = "select max(ratio) > 3, min(bytes) > 0, min(encode_ns) >= 0, bool_and(documents > 0) from zson_estimate('plain', 'doc')";
        assert_eq!(database.sql(best), "t|t|t|t", "{estimate}");
        assert_eq!(database.sql("select count(*) from zson_dictionaries"), "0", "an estimate left something");
        database.sql("create table none (doc jsonb)");
        let _ = database.psql().sql("select * from zson_estimate('none', 'doc')");
        database.fails("42P01", "select * from zson_estimate('nowhere', 'doc')");
        database.fails("42703", "select * from zson_estimate('plain', 'nothing')");
    });
}

#[test]
fn an_estimate_is_what_the_table_then_has() {
    on_one_major("estimates come true", |database| {
        table(database, 2000);
        database.sql("create table estimate as select codec, ratio from zson_estimate('t', 'doc')");
        database.sql("select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)");
        assert_eq!(database.sql("select kind, codec from zson_dictionaries"), "shapes|shapes:3");
        let promised: f64 =
            database.sql("select ratio from estimate where codec = 'shapes:3'").parse().unwrap();
        let kept: f64 = database
            .sql("select sum(pg_column_size(was))::float8 / sum(pg_column_size(doc)) from t")
            .parse()
            .unwrap();
        assert!((promised / kept - 1.0).abs() < 0.15, "promised {promised}, is {kept}");
    });
}

#[test]
fn learning_says_what_is_wrong_with_its_arguments() {
    on_one_major("arguments of zson_learn", |database| {
        table(database, 300);
        database.sql("create table \"Odd \"\"name\" (\"a \"\"col\" zson); insert into \"Odd \"\"name\" select doc from t");
        database.fails("42P01", "select zson_learn('nowhere', 'doc')");
        database.fails("42703", "select zson_learn('t', 'nothing')");
        database.fails("42P01", "select zson_learn('{{nowhere,doc}}')");
        for (sql, why) in [
            ("select zson_learn('t', 'id')", "a column of another type"),
            ("select zson_learn('{{t}}')", "a table without a column"),
            ("select zson_learn('{t,doc,more}')", "a list that is no list of pairs"),
            ("select zson_learn('t; drop table t', 'doc')", "another statement"),
        ] {
            assert!(database.psql().sql(sql).is_err(), "{why}");
        }
        assert_eq!(database.sql("select zson_learn(null::text[]) is null"), "t");
        database.sql("select zson_learn('public.t', 'doc')");
        database.sql("select zson_learn('{{public.t,doc},{t,was}}')");
        assert_eq!(database.sql("select count(*) from t"), "300");
    });
}

#[test]
fn each_profile_has_its_own_dictionary_and_codec() {
    on_each_major("profiles", |database| {
        database.sql("create table p (id int, a zson('one'), b zson('two'), c zson, was jsonb)");
        for (first, shape) in [(0, "service"), (10_000, "other")] {
            let rows = records_of(shape, 1000);
            database.sql(&format!("insert into p select id + {first}, doc, doc, doc, doc from ({rows}) r"));
        }
        database.sql(
            "select zson_set_codec('two', 'lz4'); select zson_learn('p', 'a'); select zson_learn('p', 'b')",
        );
        for column in ["a", "b", "c"] {
            database.sql(&format!("call zson_reencode('p', '{column}')"));
        }
        let used = |column: &str| {
            database.sql(&format!(
                "select string_agg(distinct u::text, ' ') from p, unnest(zson_dictionary_ids({column})) u"
            ))
        };
        let current = |profile: &str| {
            database.sql(&format!("select id from zson_dictionaries where profile = '{profile}' and current"))
        };
        assert_eq!((used("a"), used("b"), used("c")), (current("one"), current("two"), String::new()));
        assert_eq!(
            database.sql("select count(*) from p where a <> was or b <> was or c <> was or a <> b"),
            "0"
        );
        assert!(database.sql("select zson_info(b) from p limit 1").contains("lz4"));
        // From one column to another, a document is written as its new column's are.
        database.sql("update p set a = b, c = a");
        // A column that is declared zson takes a document as it is.
        assert_eq!((used("a"), used("c")), (current("one"), current("one")));
        assert_eq!(database.sql("select count(*) from p where a <> was or c <> was"), "0");
        database.sql(
            "create table q (like p); insert into q select * from p; create table r as select a, b from p",
        );
        let declared = "select string_agg(format_type(atttypid, atttypmod), ' ' order by attrelid::regclass::text, attnum)
            from pg_attribute where attrelid in ('q'::regclass, 'r'::regclass) and atttypid = 'zson'::regtype";
        let declared = database.sql(declared);
        assert_eq!(declared.matches("one").count(), 2, "{declared}");
        assert_eq!(database.sql("select count(*) from q where a <> was or b <> was or c <> was"), "0");
        database.fails("22023", "create table bad (doc zson('a', 'b'))");
    });
}

#[test]
fn more_dictionaries_than_the_cache_holds_are_read_in_turns() {
    on_one_major("a small cache", |database| {
        let mut columns = String::from("id int, was jsonb");
        for n in 0..12 {
            columns.push_str(&format!(", c{n} zson('profile-{n}')"));
        }
        database.sql(&format!("create table many ({columns})"));
        database.sql(&format!("insert into many (id, was) select id, doc from ({}) r", records(600)));
        for n in 0..12 {
            database.sql(&format!("update many set c{n} = was; select zson_learn('many', 'c{n}'); call zson_reencode('many', 'c{n}')"));
        }
        let wrong: Vec<String> = (0..12).map(|n| format!("c{n} <> was or c{n}->>'id' <> id::text")).collect();
        let wrong =
            format!("set zson.cache_size = '1MB'; select count(*) from many where {}", wrong.join(" or "));
        assert_eq!(database.sql(&wrong), "0");
    });
}

#[test]
fn a_background_worker_trains_and_brings_old_documents_along() {
    Server::each_with_extensions("the background worker", &[15, 18], |server| {
        let builder = Cluster::builder().server(server).conf("shared_preload_libraries", "zson");
        let cluster: &Cluster =
            Box::leak(Box::new(builder.conf("zson.auto_learn_interval", "1s").start().unwrap()));
        let database = Database::beside(cluster, "");
        database.sql("create extension zson");
        table(&database, 1500);
        std::thread::sleep(Duration::from_secs(2));
        assert_eq!(
            database.sql("select count(*) from zson_dictionaries"),
            "0",
            "it is on without being asked"
        );
        cluster.set_conf("zson.auto_learn_databases", &database.name).unwrap();
        cluster.reload().unwrap();
        wait_until(Duration::from_secs(60), "the worker to write every document anew", || {
            database.sql(NEED_DICTIONARY) == "1500"
        })
        .unwrap();
        assert_eq!(database.sql(DIFFERENT), "0");
        let first = database.sql("select count(*) from zson_dictionaries");
        // What is alike needs no new dictionary, what is not does.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(database.sql("select count(*) from zson_dictionaries"), first);
        database.sql(&format!(
            "insert into t select id + 10000, doc, doc from ({}) r",
            records_of("other", 3000)
        ));
        wait_until(Duration::from_secs(60), "a second dictionary", || {
            database.sql("select count(*) from zson_dictionaries") != first
        })
        .unwrap();
        database.sql("create table locked (doc zson); insert into locked select doc from t limit 100");
        cluster.set_conf("zson.auto_learn_databases", "").unwrap();
        cluster.reload().unwrap();
        assert_eq!(database.sql(DIFFERENT), "0");
        assert!(
            !cluster.log().unwrap().contains("PANIC")
                && !cluster.log().unwrap().contains("was terminated by signal")
        );
        cluster.stop(pgshrink_testkit::Stop::Fast).unwrap();
    });
}

#[test]
fn documents_unlike_their_dictionary_bring_the_next_round_forward() {
    Server::each_with_extensions("an early round", &[15, 18], |server| {
        let builder = Cluster::builder().server(server).conf("shared_preload_libraries", "zson");
        // Early is after a quarter of it.
        let cluster: &Cluster =
            Box::leak(Box::new(builder.conf("zson.auto_learn_interval", "80s").start().unwrap()));
        let database = Database::beside(cluster, "");
        database.sql("create extension zson");
        table(&database, 1500);
        database.sql("select zson_learn('t', 'doc')");
        cluster.set_conf("zson.auto_learn_databases", &database.name).unwrap();
        cluster.reload().unwrap();
        wait_until(Duration::from_secs(60), "the first round", || database.sql(NEED_DICTIONARY) == "1500")
            .unwrap();
        let dictionaries = "select count(*) from zson_dictionaries";
        let before = database.sql(dictionaries);
        let other = records_of("other", 3000);
        database.sql(&format!("insert into t select id + 10000, doc, doc from ({other}) r"));
        let begun = std::time::Instant::now();
        assert_eq!(database.sql("select misses > 2000 from zson_dictionaries where current"), "t");
        wait_until(Duration::from_secs(60), "an early round", || database.sql(dictionaries) != before)
            .unwrap();
        assert!(begun.elapsed() < Duration::from_secs(60), "that round was not early");
        assert!(!cluster.log().unwrap().contains("FATAL"));
        cluster.stop(pgshrink_testkit::Stop::Fast).unwrap();
    });
}

#[test]
fn a_profile_goes_back_to_the_dictionary_that_it_had() {
    on_one_major("a dictionary for the second time", |database| {
        let rows = |member: &str| {
            format!(
                "select jsonb_build_object('id', g, 'kind', 'kind' || g % 9, {member}) from generate_series(1, 1000) g"
            )
        };
        let (old, new) = (rows("'at', 'at ' || g % 60"), rows("'customer', 'Jane Secretperson ' || g % 3"));
        let learn = "select zson_learn('ev', 'doc', 'ev', anew => true)";
        let hashes = "select string_agg(md5(hash::text), ' ' order by created, id) from zson_dictionary";
        database.sql(&format!("create table ev (doc zson('ev')); insert into ev {old}"));
        database.sql(learn);
        database.sql(&format!("truncate ev; insert into ev {new}"));
        database.sql(learn);
        database.sql(&format!("truncate ev; insert into ev {old}"));
        assert!(database.sql(learn).contains("a new dictionary of"));
        let found = database.sql(hashes);
        let [first, second, third] = found.split(' ').collect::<Vec<_>>()[..] else { panic!("{found}") };
        assert!(first == third && first != second, "{found}");
        // Whoever is in the documents of the second one can be erased.
        database.sql("call zson_reencode('ev', 'doc')");
        database.sql("vacuum full ev");
        database.sql("analyze ev");
        database.sql("select zson_vacuum_dictionaries()");
        assert_eq!(database.sql("select id, current from zson_dictionaries"), "3|t");
        // There is nothing to change any more.
        assert!(database.sql(learn).contains("is not changed: training came to the dictionary that it has"));
        assert_eq!(database.sql("select id, current from zson_dictionaries"), "3|t");
    });
}

#[test]
fn a_dump_keeps_a_dictionary_that_a_profile_went_back_to() {
    on_one_major("the same dictionary twice in a dump", |database| {
        database.sql(&format!("create table ev (id int, doc zson('ev')); insert into ev {}", records(600)));
        let learn = "select zson_learn('ev', 'doc', 'ev', anew => true)";
        database.sql(learn);
        let other = records_of("other", 600);
        database.sql(&format!("create table kept as table ev; truncate ev; insert into ev {other}"));
        database.sql(learn);
        database.sql("truncate ev; insert into ev table kept");
        database.sql(learn);
        let all = "select profile, hash, current from zson_dictionaries order by id";
        assert_eq!(database.sql("select count(*), count(distinct hash) from zson_dictionary"), "3|2");
        let dump = database.run("pg_dump", &["-d", &database.name]).unwrap();
        let restored = Database::empty(database.cluster.server());
        restored.sql(&dump);
        assert_eq!(restored.sql(all), database.sql(all));
        // The rows of a dump that is loaded twice come in once.
        let data = database.run("pg_dump", &["--data-only", "-d", &database.name]).unwrap();
        restored.sql(&data);
        assert_eq!(restored.sql(all), database.sql(all));
    });
}

#[test]
fn only_who_owns_a_table_learns_from_it() {
    on_one_major("learning without rights", |database| {
        trained_table(database, 500);
        database.role("learner");
        database.sql("grant execute on function zson_learn(text, text), zson_learn(text[], int, int, int, int) to learner");
        assert!(database.psql().user("learner").sql("select zson_learn('t', 'doc')").is_err());
        assert!(database.psql().user("learner").sql("select zson_learn('{{t,doc}}')").is_err());
        assert!(database.psql().user("learner").sql("select * from zson_estimate('t', 'doc')").is_err());
        assert!(database.psql().user("learner").sql("call zson_reencode('t', 'doc')").is_err());
    });
}

#[test]
fn writing_in_the_transaction_that_learnt_warns_once_and_a_commit_in_between_does_not() {
    on_one_major("learning and converting", |database| {
        database.sql(&format!("create table e as select id, doc from ({}) r", records(1000)));
        let said = |script: &str| {
            let mut psql = database.psql().arg("-c").arg(script).command();
            let output = psql.output().unwrap();
            assert!(output.status.success(), "{script}");
            String::from_utf8_lossy(&output.stderr).into_owned()
        };
        let without = "select count(*) from e where zson_info(doc) like '%dictionary = none%'";
        let (learn, convert, back) = (
            "select zson_learn('e', 'doc', 'e');",
            "alter table e alter column doc type zson('e');",
            "alter table e alter column doc type jsonb;",
        );
        let warned = said(&format!("begin; {learn} {convert} commit"));
        let warning = "WARNING:  zson: documents of profile \"e\" are written without the dictionary that this transaction created";
        assert_eq!(warned.matches("WARNING").count(), 1, "{warned}");
        assert!(warned.contains(warning) && warned.contains("HINT:  COMMIT between"), "{warned}");
        assert_eq!(database.sql(without), "1000");
        let quiet = said(&format!("begin; {back} commit; begin; {convert} commit"));
        assert!(!quiet.contains("WARNING"), "{quiet}");
        assert_eq!(database.sql(without), "0");
    });
}
