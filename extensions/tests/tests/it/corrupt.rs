//! Damaged datums: an error that says so, never other data and never a crash.

use crate::databases::{Database, on_each_major, on_one_major};
use crate::documents::{DIFFERENT, table};

/// Documents of every codec as the bytes they are stored as, in `stored (id, was text, bytes bytea)`.
fn stored(database: &Database) {
    table(database, 1200);
    database.sql(
        "create cast (bytea as zson) without function; create cast (zson as bytea) without function;
        create table stored (id serial, what text, was text, bytes bytea)",
    );
    let keep = |what: &str, rows: &str| {
        database.sql(&format!(
            "insert into stored (what, was, bytes) select '{what}', doc::text, doc::bytea from t where {rows}"
        ));
    };
    database.sql("insert into t select 100000, d, d from (select '{\"a\": 1}'::jsonb as d) x");
    keep("raw", "id = 100000");
    keep("zstd without a dictionary", "id = 1");
    database.sql("select zson_learn('t', 'doc'); update t set doc = zson_reencode(doc)");
    keep("zstd with a dictionary", "id in (2, 3)");
    for codec in ["lz4", "none", "zstd:9"] {
        database.sql(&format!(
            "select zson_set_codec('default', '{codec}'); update t set doc = zson_reencode(doc)"
        ));
        keep(codec, "id = 4");
    }
    database.sql(
        "create function attempt(b bytea) returns text language plpgsql as $$
        begin return (b::zson)::jsonb::text; exception when others then return sqlstate; end $$;
        create function info(b bytea) returns text language plpgsql as $$
        begin return zson_info(b::zson); exception when others then return sqlstate; end $$",
    );
    assert_eq!(database.sql("select what from stored where attempt(bytes) <> was"), "");
}

#[test]
fn every_flipped_bit_and_every_cut_is_told_as_corruption() {
    on_each_major("corrupt datums", |database| {
        stored(database);
        let flipped = "select what, bit, attempt(set_bit(bytes, bit, 1 - get_bit(bytes, bit))) as said, was
            from stored, generate_series(0, length(bytes) * 8 - 1) bit";
        let wrong = format!(
            "select what, bit / 8, bit % 8, said from ({flipped}) x where said not in ('XX001', '0A000', was) limit 20"
        );
        assert_eq!(database.sql(&wrong), "", "of a flipped bit");
        // A payload may have bits that mean nothing. In the header, tag and check, damage could hide in them.
        let unnoticed = format!(
            "select what, string_agg(bit::text, ' ') from ({flipped}) x where said = was and bit < 40 group by what"
        );
        assert_eq!(database.sql(&unnoticed), "", "flipped bits go unnoticed");
        let cut = "select what, n, attempt(substr(bytes, 1, n)) as said from stored, generate_series(0, length(bytes) - 1) n";
        assert_eq!(
            database.sql(&format!("select * from ({cut}) x where said <> 'XX001' limit 20")),
            "",
            "of a cut datum"
        );
        let longer = "select what, attempt(bytes || '\\x00') from stored where attempt(bytes || '\\x00') not in ('XX001', was)";
        assert_eq!(database.sql(longer), "", "of a longer datum");
        assert_eq!(
            database
                .sql("select count(info(set_byte(bytes, n, 255))) > 0 from stored, generate_series(0, 4) n"),
            "t"
        );
        assert_eq!(database.sql(DIFFERENT), "0");
    });
}

#[test]
fn bytes_that_never_were_a_document_are_told_as_corruption() {
    on_one_major("noise", |database| {
        stored(database);
        let noise =
            "select n, attempt(substr(decode(md5(n::text) || md5((n * 7)::text), 'hex'), 1, n % 33)) as said
            from generate_series(1, 20000) n";
        let wrong = format!(
            "select said, count(*) from ({noise}) x where said not in ('XX001', '0A000') group by 1 limit 10"
        );
        assert_eq!(database.sql(&wrong), "");
        // Every first byte, in front of what claims to be as large as can be.
        let bombs = "select b, attempt(set_byte('\\x00ffffffffffffffffffffffffffffffffffffff'::bytea, 0, b)) as said from generate_series(0, 255) b";
        let wrong =
            format!("select said, count(*) from ({bombs}) x where said not in ('XX001', '0A000') group by 1");
        assert_eq!(database.sql(&wrong), "");
    });
}

#[test]
fn an_error_names_what_was_expected_and_found() {
    on_one_major("the words of errors", |database| {
        stored(database);
        let said = database.fails("XX001", "select (substr(bytes, 1, length(bytes) - 3)::zson)::text from stored where what = 'zstd with a dictionary' limit 1");
        assert!(said.to_lowercase().contains("dictionary") || said.to_lowercase().contains("zson"), "{said}");
        assert_eq!(database.sql("select 1"), "1");
    });
}
