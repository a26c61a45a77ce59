//! Documents with long texts, which are compressed alone.

use super::{learn, stored_by};
use crate::databases::{Database, on_each_major};
use crate::documents::DIFFERENT;

/// Articles of 1 to 60 KB: a text that is long, some that may be, one that nothing makes shorter, and values beside them.
const DOCUMENTS: &str = "select i as id, jsonb_build_object('id', i, 'title', 'Article ' || i, 'body', left(text, 900 + i * i % 60000) || case when i % 4 = 0 then noise else '' end,
        'tags', jsonb_build_array('news', 'tag ' || i % 7), 'more', jsonb_build_array(i, left(text, i * 11), null, left(text, 3000)),
        'noise', case when i % 9 = 0 then left(noise, 2500) else 'none' end, 'rate', i * 0.25) as doc
    from generate_series(1, 400) i, lateral (select string_agg(
            (array['water ', 'house ', 'the ', 'of ', 'law ', 'paragraph ', 'section '])[1 + hashint4(i * 7919 + k) & 3 + k % 4] || k % 100, ' ') as text,
        string_agg(encode(sha256((i * 100000 + k)::text::bytea), 'base64'), '') filter (where k <= 400) as noise
    from generate_series(1, 5000) k) s";

/// Expressions of a document `D`.
const PARTS: [&str; 14] = [
    "D ->> 'title'",
    "D -> 'title'",
    "D ->> 'id'",
    "D ->> 'rate'",
    "D #>> '{tags,1}'",
    "D ->> 'body'",
    "D -> 'body'",
    "D ->> 'noise'",
    "D #>> '{more,1}'",
    "D -> 'more' ->> -1",
    "D -> 'more'",
    "(D @> '{\"tags\": [\"tag 3\"]}')::text",
    "(D -> 'more' ? left(W ->> 'body', 900))::text",
    "(D @> jsonb_build_object('body', W -> 'body', 'title', W -> 'title'))::text",
];

fn compare(database: &Database) {
    for part in PARTS {
        let of = |column: &str| format!("({})::text", part.replace('D', column).replace('W', "was"));
        let wrong = format!(
            "select count(*) from t where {} is distinct from {} or {} is null",
            of("doc"),
            of("was"),
            of("was")
        );
        assert_eq!(database.sql(&wrong), "0", "{part}");
    }
    assert_eq!(database.sql(DIFFERENT), "0");
}

#[test]
fn values_beside_long_texts_and_the_texts_are_those_of_jsonb() {
    on_each_major("long texts", |database| {
        database.sql(&format!(
            "create table t (id int primary key, was jsonb, doc zson); insert into t select id, doc, doc from ({DOCUMENTS}) d"
        ));
        learn(database, "t", "default");
        let stored = stored_by(database, "t", "shapes");
        assert!(stored > 300, "{stored} of 400");
        // Here, in TOAST, and in TOAST by slices.
        let sizes =
            "select count(*) filter (where size < 2000) > 20, count(*) filter (where size > 12288) > 20
            from t, pg_column_size(doc) size";
        assert_eq!(database.sql(sizes), "t|t");
        compare(database);
        for set in [
            "D || '{\"touched\": 1}'",
            "jsonb_set(D, '{more,1}', D -> 'body')",
            "D - 'noise' || '{\"noise\": \"x\"}'",
        ] {
            let of = |column: &str| set.replace('D', column);
            database.sql(&format!("update t set was = {}, doc = {}", of("was"), of("doc")));
            compare(database);
        }
    });
}
