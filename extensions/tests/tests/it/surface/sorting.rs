//! The order of documents is jsonb's, however a sort finds it: keys, kept documents, in memory, on disk.

use pgshrink_testkit::Server;

use crate::databases::{Database, MAJORS};

/// Random documents in groups: anything, records that begin alike, numbers of all sizes, strings that begin alike.
const DOCUMENTS: &str = "
    create function scalar() returns jsonb language sql volatile as $$
        select case (random() * 5)::int
            when 0 then 'null'::jsonb
            when 1 then to_jsonb(random() < 0.5)
            when 2 then to_jsonb((array['a', 'b', 'ab', 'B', 'é', '', 'a b', 'abcdefg', 'abcdefh', 'Z', 'z'])[1 + (random() * 10)::int])
            else to_jsonb((array[0, 1, -1, 1.0, 1.00, 10000, 9999, -9999.5, 1e30, -1e-30, 1e-700, 1e-701, -1e1000, 123456789.123,
                123456789.124, 0.1, 0.10, 12345678, 12345679, 99999999, -10000])[1 + (random() * 20)::int]::numeric)
        end $$;
    create function random_document(depth int) returns jsonb language plpgsql volatile as $$
    declare r jsonb; n int := case when depth > 0 then (random() * 3)::int else 0 end;
    begin
        case (random() * 4)::int
            when 0, 1 then return scalar();
            when 2 then
                r := '[]';
                for i in 1..n loop r := r || jsonb_build_array(random_document(depth - 1)); end loop;
            else
                r := '{}';
                for i in 1..n loop
                    r := r || jsonb_build_object((array['a', 'b', 'id', 'é', 'B'])[1 + (random() * 4)::int], random_document(depth - 1));
                end loop;
        end case;
        return r;
    end $$;
    create table s (kind int, id int, j jsonb, z zson);
    insert into s (kind, id, j)
        select kind, i, case kind % 6
            when 0 then random_document(3)
            when 1 then jsonb_build_object('k', scalar(), 'l', random_document(1), 'm', random_document(1))
            when 2 then jsonb_build_object('id', case when random() < 0.7 then '1' else scalar() end, 'c',
                case when random() < 0.8 then '\"x\"' else random_document(1) end, 'z', (random() * 100000)::int)
            when 3 then to_jsonb(((random() - 0.5) * 10 ^ (random() * 30 - 10))::numeric)
            when 4 then jsonb_build_object('s', left('prefix ' || md5(random()::text), (random() * 20)::int), 't', random())
            else jsonb_build_array('same', '{}', random_document(1), scalar())
        end
        from generate_series(1, 30) kind, generate_series(1, 300) i;
    update s set z = j;
    analyze s";

const ICU: &str = "locale_provider icu icu_locale 'en-US' locale 'C'";

#[test]
fn documents_sort_as_jsonb_sorts_them() {
    Server::each_with_extensions("sorting", &MAJORS, |server| {
        // Collations that are those of bytes, and one that is not; the fetched servers are built without ICU.
        let other = if server.major == 15 { ICU } else { "lc_collate 'C.UTF-8' lc_ctype 'C.UTF-8'" };
        for locale in ["lc_collate 'C' lc_ctype 'C'", other] {
            let options = format!("template template0 encoding utf8 {locale}");
            let database = Database::made_with(server, &options);
            database.sql(&format!("create extension zson; {DOCUMENTS}"));
            sorts_alike(&database);
        }
    });
}

fn sorts_alike(database: &Database) {
    for work_mem in ["64kB", "64MB"] {
        for order in ["", "desc", "nulls first"] {
            let of = |column: &str| {
                database.sql(&format!(
                    "set work_mem = '{work_mem}'; set enable_hashagg = off;
                    select md5(string_agg(kind || '.' || id, ' ')) from (select kind, id from s order by {column} {order}, kind, id offset 0) s"
                ))
            };
            assert_eq!(of("z"), of("j"), "with {work_mem}, {order}");
        }
    }
    // Each kind by itself, so that every document of the sort has the shape of the first.
    let kinds = "select string_agg(kind::text, ' ') from (
            select kind, array_agg(id order by z, id) z, array_agg(id order by j, id) j from s group by kind) s
        where z <> j";
    assert_eq!(database.sql(kinds), "", "kinds of documents that sort otherwise");
    let comparisons = "select count(*) from s a join s b on a.id = b.id and a.kind % 4 = 0
        where sign(jsonb_cmp(a.j, b.j)) <> all (array[sign(zson_cmp(a.z, b.z)), sign(zson_cmp_jsonb(a.z, b.j)), sign(jsonb_cmp_zson(a.j, b.z))])
            or (a.j < b.j, a.j <= b.j, a.j = b.j, a.j <> b.j, a.j >= b.j, a.j > b.j)
                <> (a.z < b.z, a.z <= b.z, a.z = b.z, a.z <> b.z, a.z >= b.z, a.z > b.z)";
    assert_eq!(database.sql(comparisons), "0");
    let hashes = "select count(*) from s
        where zson_hash(z) <> jsonb_hash(j) or zson_hash_extended(z, 7) <> jsonb_hash_extended(j, 7)";
    assert_eq!(database.sql(hashes), "0");
    let indexed = "create index on s (z); set enable_seqscan = off; set enable_bitmapscan = off;
        select count(*) from s a where not exists (select from s b where b.z = a.z and b.id = a.id)";
    assert_eq!(database.sql(indexed), "0");
}
