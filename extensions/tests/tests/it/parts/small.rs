//! Small documents, whose texts are written to the server's memory at once.

use super::{learn, stored_by};
use crate::databases::on_each_major;

/// Documents of 100 to 400 bytes with texts of every length, numbers that only the server can print, nulls and objects.
const DOCUMENTS: &str = "select i as id, jsonb_build_object('id', i, 's', left(text, i % 260), 'b', i % 2 = 0,
        'o', jsonb_build_object('x', i), 'n', case i % 5 when 0 then to_jsonb(i * 0.25) when 1 then '18446744073709551616' when 2 then '1e40'
            when 3 then 'null' else to_jsonb(i) end) as doc
    from generate_series(1, 1300) i, lateral (select string_agg(md5((i * 9 + k)::text) || 'é', '') as text from generate_series(1, 9) k) s";

#[test]
fn texts_of_small_documents_of_every_size_are_those_of_jsonb() {
    on_each_major("texts of small documents", |database| {
        database.sql(&format!(
            "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({DOCUMENTS}) d"
        ));
        learn(database, "t", "default");
        let stored = stored_by(database, "t", "shapes");
        assert!(stored > 1200, "{stored} of 1300");
        // The last that is small, of 236 bytes behind its header, and the next: sizes are multiples of four.
        let near =
            "select count(distinct pg_column_size(was)) from t where pg_column_size(was) in (240, 244)";
        assert_eq!(database.sql(near), "2");
        let wrong = "select count(*) from t, unnest(array['id', 's', 'b', 'o', 'n', 'none', '']) k where doc ->> k is distinct from was ->> k";
        assert_eq!(database.sql(wrong), "0");
        // More texts of a row than its memory has room for, and texts that are kept.
        let many = |of: &str| {
            let texts: Vec<_> =
                (0..60).map(|at| format!("{of} ->> '{}'", ["s", "n", "id"][at % 3])).collect();
            format!("concat({})", texts.join(", "))
        };
        assert_eq!(
            database.sql(&format!("select count(*) from t where {} <> {}", many("doc"), many("was"))),
            "0"
        );
        let kept = |of: &str| {
            format!(
                "select md5(string_agg({of} ->> 's', ',' order by {of} ->> 's', id)), md5(array_agg({of} ->> 'n' order by id)::text),
                    max({of} ->> 's'), count(distinct {of} ->> 's') from t"
            )
        };
        assert_eq!(database.sql(&kept("doc")), database.sql(&kept("was")));
    });
}
