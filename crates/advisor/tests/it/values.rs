//! Types that are proposed: proved, carried out, and compared on real servers.

use crate::collected::snapshot;
use pgshrink_advisor::edit::{Edit, Retype};
use pgshrink_advisor::rules::{Candidate, types};
use pgshrink_advisor::snapshot::Snapshot;
use pgshrink_testkit::{Cluster, Server};

/// A column whose type changes.
struct Case {
    /// Its type now, and what else is in its definition.
    definition: &'static str,
    /// A value for row `n`.
    value: &'static str,
    /// Its type then.
    to: &'static str,
    /// The old text from the new value, in SQL. Empty: the server prints the same.
    back: &'static str,
    /// Values of the old type, in SQL, that the new one does not take, or would give back as something else.
    misfits: &'static [&'static str],
}

const ODD: [&str; 14] = [
    "''",
    "' '",
    "'x'",
    "'NaN'",
    "'infinity'",
    "'0'",
    "'-0'",
    "E'a\\nb'",
    "'{'",
    "'\u{e9}\u{1f600}'",
    "'::'",
    "repeat('a', 9999)",
    "E'\\\\'",
    "'1e999'",
];

// tidy: long, a table of cases
fn cases() -> Vec<Case> {
    let case = |definition, value, to, back, misfits| Case { definition, value, to, back, misfits };
    vec![
        case("text not null", "md5(n::text)::uuid::text", "uuid", "", &[
            "'0123456789abcdef0123456789abcdef'", "upper(gen_random_uuid()::text)", "'{01234567-89ab-cdef-0123-456789abcdef}'",
            "gen_random_uuid()::text || E'\\n'",
        ]),
        case("char(40) default gen_random_uuid()", "md5(n::text)::uuid::text", "uuid", "rpad(c::text, 40)", &["'x'"]),
        case("varchar(64)", "encode(sha256(n::text::bytea), 'hex')", "bytea", "encode(c, 'hex')", &[
            "upper(encode(sha256('1'), 'hex'))", "left(encode(sha256('1'), 'hex'), 62)", "repeat('g', 64)",
        ]),
        case("text", "upper(md5(n::text))", "bytea", "upper(encode(c, 'hex'))", &["md5('1')", "upper(md5('1')) || E'\\n'"]),
        case(
            "text",
            "encode(substr(sha256(n::text::bytea), 1, 20 + n % 11), 'base64')",
            "bytea",
            "replace(encode(c, 'base64'), E'\\n', '')",
            &["'ab=='", "'abc'", "encode(sha256('1') || sha256('2'), 'base64')", "'YWJj YWJj'", "'aG=='", "'aGk'"],
        ),
        case("text", "concat_ws('.', n % 256, n % 7, 200, n % 99)", "inet", "", &[
            "'1.2.3.4/32'", "'01.2.3.4'", "'1.2.3'", "'1.2.3.256'", "'10.0.0.1:80'", "'localhost'", "'0:0:0:0:0:0:0:1'", "'1::2::3'",
            "':::'", "'1:2:3:4:5:6:7:8:9'", "'1:2:3:4:5:6:7::'", "'::1/129'", "'fe80::1%eth0'", "'2001:DB8::1'", "'1.2.3.4/33'",
            "'12345::'", "'::ffff:1.2.3.4.5'", "'1:2:3:4:5:6:1.2.3.4'", "'1.2.3.4/08'", "'::1/128'", "'1:'", "':1'", "'1::2:3:4:5:6:7:8'",
        ]),
        case(
            "text",
            "format('%s', case n % 5 when 0 then concat_ws('.', n % 256, 0, 0, 1) when 1 then regexp_replace(md5(n::text), '(....)(?!$)', '\\1:', 'g')
             when 2 then '::ffff:10.0.0.' || n % 256 when 3 then 'fe80:0:0:1:2:3:0:' || to_hex(n + 4096)
             else '10.' || n % 256 || '.0.0/16' end::inet)",
            "inet",
            "",
            &["'2001:db8:0:0::1'", "'unknown'", "'2001:db8::0001'", "'1:0:2:3:4:5:6::'"],
        ),
        case("varchar", "('x' || substr(md5(n::text), 1, 12))::bit(48)::bigint::text", "bigint", "", &["'007'", "'+1'", "'1e3'", "'9223372036854775807'", "'12 '"]),
        case("text", "(substr(md5(n::text), 1, 12)::macaddr)::text", "macaddr", "", &[
            "'08-00-2b-01-02-03'", "'08:00:2B:01:02:03'", "'08002b010203'", "'08:00:2b:01:02'", "'08:00:2b:01:02:03:04'",
        ]),
        case("text", "(n * 7919 % 1000000 + 100000)::text", "integer", "", &["'0170123456'", "'-01'", "'1.0'", "'4294967296'", "'2147483648'"]),
        case("text", "(date '2020-01-01' + n % 3000)::text", "date", "", &[
            "'2023-02-29'", "'1900-02-29'", "'0044-03-15 BC'", "'2023-1-1'", "'0000-01-01'", "'12023-01-01'", "'2023-04-31'", "'2023-13-01'",
            "'2023-01-01 '",
        ]),
        case("text", "(timestamp '1999-12-31 23:00:00.5' + n * interval '10001.25 s')::text", "timestamp without time zone", "", &[
            "'2023-01-01T00:00:00'", "'2023-01-01 24:00:00'", "'2023-01-01 00:00:60'", "'2023-01-01 00:00:00.50'", "'2023-01-01'",
            "'2023-01-01 00:00:00+00'",
        ]),
        case("text", "(timestamptz '1999-12-31 23:00:00.5+00' + n * interval '10001 s')::text", "timestamp with time zone", "", &[
            "'2023-01-01 00:00:00+01'", "'2023-01-01 00:00:00'", "'2023-01-01 00:00:00Z'",
        ]),
        case("text", "(n::float8 / 7919)::text", "double precision", "", &["'0.10'", "'1e5'", "'0.3000000000000000000001'", "'-0.0'"]),
        case("text", "(n * 1000003 % 1000000007 + 0.50)::text || '000000'", "numeric", "", &["'01.5'", "'1.'", "'.5'", "'-0.00'", "'1e5'"]),
        case("text not null default 'pending'", "(array['pending','delivered','it''s \\lost'])[n % 3 + 1]", "public.t_c_enum", "", &[
            "'Pending'", "'pending '",
        ]),
        case("varchar(5)", "(array['true','false'])[n % 2 + 1]", "boolean", "c::text", &["'True'", "'null'", "'t'"]),
        case("char(1) default 'N'", "(array['Y','N'])[n % 2 + 1]", "boolean", "case when c then 'Y' when not c then 'N' end", &["'y'", "' '"]),
        case("char(20)", "'name ' || n", "text", "rpad(c, 20)", &[]),
        case("bigint", "n * 7919 % 1000003", "integer", "", &["5000000000", "-536870912", "(-9223372036854775807 - 1)"]),
        case("int", "n * 7919 % 1003 - 500", "smallint", "", &["8192", "-2147483648", "100000"]),
        case("bigint default -1", "n % 17", "smallint", "", &["8192"]),
        case("numeric(9, 0)", "n * 7919 % 1000003 * 100", "integer", "", &[]),
        case("numeric(18) default 0", "n * 1000000007::bigint", "bigint", "", &[]),
        case("numeric", "n * 1000000007::bigint", "bigint", "", &[
            "1.5", "'NaN'", "'infinity'", "1e30", "-1e200", "1.0", "1000000000000000000", "0.00",
        ]),
        case("timestamptz", "timestamptz '2020-01-01 00:00:00+00' + (n % 999) * interval '24 h'", "date", "to_char(c, 'YYYY-MM-DD 00:00:00+00')", &[
            "'infinity'", "'-infinity'", "'2020-01-01 00:00:00+01'", "'2020-01-01 00:00:00.000001+00'", "'0044-03-15 00:00:00+00 BC'",
            "'12020-01-01 00:00:00+00'",
        ]),
        case("timestamp default '2020-01-01'", "timestamp '2020-01-01' + (n % 999) * interval '1 day'", "date", "to_char(c, 'YYYY-MM-DD 00:00:00')", &[
            "'infinity'", "'2020-01-01 12:00:00'", "'4713-01-01 00:00:00 BC'", "'294276-12-31 00:00:00'",
        ]),
        case("timetz", "(time '10:00' + n * interval '1.5 s')::text::timetz at time zone interval '-3:30'", "time without time zone", "c::text || '-03:30'", &[
            "'10:00:00+00'", "'10:00:00+03:30'", "'24:00:00-03:30'",
        ]),
    ]
}

fn retype(candidate: &Candidate) -> &Retype {
    match candidate.edits.as_slice() {
        [Edit::Retype(retype)] => retype,
        other => panic!("{other:?}"),
    }
}

/// Candidates of a table's column.
pub fn found(snapshot: &Snapshot, table: &str, column: &str) -> Option<Candidate> {
    let table = snapshot.tables.iter().find(|of| of.name == table).unwrap();
    let all = types::candidates(snapshot, table);
    let mut all = all.into_iter().filter(|of| of.finding.object.part.as_deref() == Some(column));
    let first = all.next();
    assert!(all.next().is_none(), "one for each column");
    first
}

fn count(cluster: &Cluster, sql: &str) -> usize {
    cluster.sql(sql).unwrap_or_else(|error| panic!("{sql}: {error}")).trim().parse().unwrap()
}

fn run(cluster: &Cluster, statements: &[String]) {
    for statement in statements {
        cluster.sql(statement).unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
}

/// Rows' stored data behind their headers, NULLs left out; of a table of one column.
fn images(cluster: &Cluster, table: &str) -> Vec<Vec<u8>> {
    crate::images::stored(cluster, table)
}

#[test]
fn each_type_is_proved_carried_out_and_gives_the_same_texts_back() {
    Server::each("types", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        for case in cases() {
            let what = format!("{} {} to {}", case.definition, case.value, case.to);
            let value = match case.definition.contains("not null") {
                true => case.value.to_owned(),
                false => format!("case when n % 11 > 0 then {} end", case.value),
            };
            cluster
                .sql(&format!(
                    "drop table if exists t, u; drop type if exists t_c_enum; create table t (n int, c {});
                     insert into t select n, {value} from generate_series(1, 2000) n; create index on t (c)",
                    case.definition
                ))
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            let seen = snapshot(&cluster, Some(3));
            let candidate = found(&seen, "t", "c").unwrap_or_else(|| panic!("{what}: nothing found"));
            let retype = retype(&candidate);
            assert_eq!(retype.type_name, case.to, "{what}");
            let proof = candidate.finding.proof.as_deref().unwrap();
            assert_eq!(proof, retype.proof);
            assert_eq!(count(&cluster, proof), 0, "{what}: {proof}");
            // What the sample did not show.
            let is_text = ["text", "varchar", "char"].iter().any(|name| case.definition.starts_with(name));
            let odd =
                if is_text && case.to != "text" && !case.definition.contains('(') { &ODD[..] } else { &[] };
            let misfits: Vec<&str> = case.misfits.iter().chain(odd).copied().collect();
            let script = misfits.iter().map(|misfit| {
                format!("begin; alter table t alter c drop not null; insert into t values (0, {misfit}); {proof}; rollback;\n")
            });
            let counts =
                cluster.sql(&script.collect::<String>()).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(counts.lines().count(), misfits.len());
            for (misfit, count) in misfits.iter().zip(counts.lines()) {
                let is_whole_number = ["integer", "bigint", "numeric", "double precision"].contains(&case.to);
                let fits = *misfit == "'0'" && is_whole_number || *misfit == "'::'" && case.to == "inet";
                assert_eq!(count == "0", fits, "{what}, {misfit}: {proof}");
            }
            let before = cluster.sql("select n, format('%s', c) from t order by n").unwrap();
            run(&cluster, &candidate.finding.sql);
            let back = if case.back.is_empty() { "format('%s', c)" } else { case.back };
            let after = cluster.sql(&format!("select n, {back} from t order by n")).unwrap();
            assert_eq!(before, after, "{what}");
            let kind = "select format_type(atttypid, atttypmod) from pg_attribute where attrelid = 't'::regclass and attname = 'c'";
            let kind = cluster.sql(kind).unwrap();
            assert!(case.to.ends_with(kind.trim()), "{what}: {kind}");
            let default =
                "alter table t alter c drop not null; insert into t (n) values (0) returning c is not null or not exists (select from pg_attrdef
                where adrelid = 't'::regclass)";
            assert_eq!(cluster.sql(default).unwrap().trim(), "t", "{what}: the default is still there");
            if case.to.ends_with("_enum") {
                continue;
            }
            cluster
                .sql("delete from t where n = 0; create table u as select c from t order by ctid; checkpoint")
                .unwrap();
            let stored = images(&cluster, "u");
            for (image, stored) in retype.images.iter().zip(&stored) {
                assert_eq!(image.as_deref().unwrap_or_default(), stored, "{what}");
            }
            assert!(retype.images.len() > 200, "{what}");
        }
    });
}

// tidy: long, a table of cases
#[test]
fn columns_that_only_look_like_it_are_left_alone() {
    Server::each("negatives", &[15], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        let columns = [
            ("text", "left(md5(n::text), 20 + n % 3 * 2)"),
            ("text", "case when n % 50 = 0 then upper(md5(n::text)) else md5(n::text) end"),
            ("text", "upper(md5(n::text)::uuid::text)"),
            (
                "text",
                "case when n = 77 then upper(md5(n::text)::uuid::text) else md5(n::text)::uuid::text end",
            ),
            ("text", "case when n = 77 then '' else md5(n::text)::uuid::text end"),
            ("text", "'0170' || lpad((n * 7919 % 1000000)::text, 6, '0')"),
            ("text", "lpad(n::text, 16, '0')"),
            ("text", "lpad(n::text, 3, '0')"),
            ("text", "case when n = 77 then 'NaN' else n || '.12345678' end"),
            ("text", "case when n = 77 then 'infinity' else (date '2020-01-01' + n)::text end"),
            ("text", "case when n = 77 then '0044-03-15 BC' else (date '2020-01-01' + n)::text end"),
            (
                "text",
                "to_char(timestamp '2020-01-01' + n * interval '1 h', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')",
            ),
            ("text", "'0:0:0:0:0:0:0:' || to_hex(n)"),
            ("text", "'10.0.0.' || n % 256 || ':80'"),
            ("text", "replace(substr(md5(n::text), 1, 12)::macaddr::text, ':', '-')"),
            ("text", "upper(substr(md5(n::text), 1, 12)::macaddr::text)"),
            ("text", "(array['N', 'S', 'E', ''])[n % 4 + 1]"),
            ("text", "'N'"),
            ("text", "(array['yes', 'no', ''])[n % 3 + 1]"),
            ("text", "(array['de', 'fr', 'us'])[n % 3 + 1]"),
            ("text", "'word' || n % 100 || 'and'"),
            ("text", "repeat((array['abcd', 'word', 'text'])[n % 3 + 1], 5 + n % 97)"),
            ("text", "'Name ' || n"),
            ("text[]", "array[md5(n::text)::uuid::text]"),
            ("bigint", "n + 1000000000000"),
            ("bigint", "n * 10"),
            ("bigint", "1700000000 + n * 7919 % 1000003"),
            ("int", "n * 7919 % 10007"),
            ("numeric(9, 2)", "n"),
            ("numeric", "case when n = 77 then 0.5 else n end"),
            ("numeric", "case when n = 77 then 'NaN'::numeric else n end"),
            ("numeric(30)", "n * 1e20"),
            ("timestamptz", "timestamptz '2020-01-01 00:00:00 Europe/Berlin' + n * interval '24 h'"),
            ("timestamptz", "case when n = 77 then 'infinity' else timestamptz '2020-01-01 00:00:00+00' end"),
            ("timestamp", "timestamp '2020-01-01' + n * interval '1 h'"),
            ("timestamp", "case when n = 77 then timestamp '0044-01-01 BC' else '2020-01-01' end"),
            ("timetz", "case when n = 77 then timetz '10:00+01' else '10:00+02' end"),
            ("json", "json_build_object('a', n)"),
            ("char(4)", "lpad(n::text, 4, '0')"),
            ("double precision", "n"),
            ("bytea", "sha256('a')"),
            ("text default ''", "md5(n::text)::uuid::text"),
            ("text collate \"C\" default 'none'", "md5(n::text)"),
            ("text", "null"),
        ];
        let definitions: Vec<_> =
            columns.iter().enumerate().map(|(at, (kind, _))| format!("c{at} {kind}")).collect();
        let values: Vec<_> = columns.iter().map(|(_, value)| *value).collect();
        cluster
            .sql(&format!(
                "create table t ({}, id bigint, \"orderId\" bigint, item_no bigint, s bigserial, i bigint generated always as identity);
                 insert into t select {}, n % 9, n % 9, n % 9 from generate_series(1, 1200) n;
                 create table few (c text); insert into few select gen_random_uuid() from generate_series(1, 99)",
                definitions.join(", "),
                values.join(", ")
            ))
            .unwrap();
        for blocks in [None, Some(1000)] {
            let seen = snapshot(&cluster, blocks);
            let table = seen.tables.iter().find(|of| of.name == "t").unwrap();
            let all = types::candidates(&seen, table);
            let names: Vec<_> = all.iter().map(|of| (&of.finding.id, &of.finding.title)).collect();
            assert!(names.is_empty(), "{names:?}");
            assert_eq!(
                found(&seen, "few", "c").is_some(),
                blocks.is_none(),
                "99 values are a whole table, or too few"
            );
        }
    });
}

#[test]
fn a_shorter_integer_is_proposed_where_no_product_of_two_values_is_out_of_range() {
    Server::each("products", &[15], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        cluster
            .sql(
                "create table t (small bigint, large bigint);
                 insert into t select 46340 - n * 7 % 1009, 46341 - n * 7 % 1009 from generate_series(0, 2000) n",
            )
            .unwrap();
        let seen = snapshot(&cluster, None);
        for (column, is_recommended) in [("small", true), ("large", false)] {
            let candidate = found(&seen, "t", column).unwrap();
            assert_eq!(candidate.is_recommended, is_recommended, "{column}");
            let product = format!("select max({column}::integer * {column}::integer) > 0 from t");
            assert_eq!(cluster.sql(&product).is_ok(), is_recommended, "{column}");
        }
    });
}

#[test]
fn what_depends_on_a_column_changes_with_it_or_keeps_it_as_it_is() {
    Server::each("partners", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        let uuid = "md5(n::text)::uuid::text";
        cluster
            .sql(&format!(
                "create schema \"Odd \"\"schema\";
                 create table \"Odd \"\"schema\".\"Order\" (\"Id\" text primary key, parent text references \"Odd \"\"schema\".\"Order\");
                 insert into \"Odd \"\"schema\".\"Order\" select {uuid}, {uuid} from generate_series(1, 500) n;
                 create table line (\"order\" text default null, n int, token char(36) not null,
                   constraint \"of order\" foreign key (\"order\") references \"Odd \"\"schema\".\"Order\" on delete cascade deferrable);
                 insert into line select {uuid}, n, {uuid} from generate_series(1, 500) n;
                 create table g (a text, b text generated always as (upper(a)) stored, c text, d text, e text, f text, g text);
                 insert into g (a, c, d, e, f, g) select {uuid}, {uuid}, {uuid}, {uuid}, {uuid}, {uuid} from generate_series(1, 500) n;
                 create index on g (lower(c)); create index on g (d text_pattern_ops); create index on g ((1)) where e > 'a';
                 create index on g (f collate \"POSIX\"); create index on g using brin (g);"
            ))
            .unwrap();
        let seen = snapshot(&cluster, None);
        for column in ["a", "b", "c", "d", "e", "f", "g"] {
            assert_eq!(found(&seen, "g", column), None, "{column}");
        }
        let order = found(&seen, "Order", "Id").unwrap();
        let reason = &order.finding.reason;
        assert!(reason.contains("public.line.\"order\"") && reason.contains(".parent"), "{reason}");
        assert!(!order.is_recommended && found(&seen, "line", "token").is_some());
        let same = found(&seen, "line", "order").unwrap();
        assert_eq!(same.finding.sql.len(), order.finding.sql.len());
        let proof = order.finding.proof.as_deref().unwrap();
        assert_eq!(count(&cluster, proof), 0);
        let broken = format!(
            "begin; insert into line values (null, 1, 'x'); set constraints all deferred;
            insert into line values ('odd', 1, 'x'), ('odder', 1, 'y'); {proof}; rollback"
        );
        assert_eq!(count(&cluster, &broken), 2, "partners are proved too");
        let before =
            cluster.sql("select md5(string_agg(\"order\"::text || n, ',' order by n)) from line").unwrap();
        run(&cluster, &order.finding.sql);
        assert_eq!(
            cluster.sql("select md5(string_agg(\"order\"::text || n, ',' order by n)) from line").unwrap(),
            before
        );
        let keys = "select count(*) from pg_constraint where contype = 'f' and convalidated and
            (confdeltype = 'c' and condeferrable) = (conname = 'of order')";
        assert_eq!(count(&cluster, keys), 2, "both foreign keys are back as they were");
        let types = "select string_agg(distinct atttypid::regtype::text, ' ') from pg_attribute
            where attrelid >= 16384 and attname in ('Id', 'parent', 'order')";
        assert_eq!(cluster.sql(types).unwrap().trim(), "uuid");
        // Without a partner that was not seen, or a foreign key that is not known, nothing is said.
        let mut partial = seen.clone();
        partial.tables.retain(|table| table.name != "line");
        assert_eq!(found(&partial, "Order", "Id"), None);
        partial = seen.clone();
        partial
            .tables
            .iter_mut()
            .flat_map(|table| &mut table.foreign_keys)
            .for_each(|key| key.definition.clear());
        assert_eq!(found(&partial, "Order", "Id"), None);
        assert!(found(&partial, "line", "token").is_some());
    });
}

#[test]
fn partitions_change_with_their_table_and_keys_of_partitions_never() {
    Server::each("partitions", &[15, 18], |server| {
        let cluster = Cluster::builder().server(server).conf("timezone", "UTC").start().unwrap();
        cluster
            .sql(
                "create table p (k text, c text, b bigint) partition by hash (k);
                 create table p0 partition of p for values with (modulus 2, remainder 0);
                 create table p1 partition of p for values with (modulus 2, remainder 1);
                 insert into p select gen_random_uuid(), gen_random_uuid(), n % 10 from generate_series(1, 2000) n;
                 create table parent (c text); create table child () inherits (parent);
                 insert into parent select gen_random_uuid() from generate_series(1, 200);
                 insert into child select gen_random_uuid() from generate_series(1, 200);
                 create domain code as text check (length(value) = 36); create table d (c code);
                 create table collated (c char(30) collate \"C\" default 'none'); insert into collated select 'name ' || n from generate_series(1, 200) n;
                 insert into d select gen_random_uuid() from generate_series(1, 200)",
            )
            .unwrap();
        let seen = snapshot(&cluster, None);
        assert_eq!((found(&seen, "p0", "k"), found(&seen, "p0", "b")), (None, None));
        assert_eq!((found(&seen, "parent", "c"), found(&seen, "child", "c")), (None, None));
        let mut unknown = seen.clone();
        unknown.tables.iter_mut().for_each(|table| table.partition_key = None);
        assert_eq!(found(&unknown, "p0", "c"), None);
        let candidate = found(&seen, "p1", "c").unwrap();
        assert!(
            candidate.finding.sql[0].starts_with("ALTER TABLE public.p ALTER"),
            "{:?}",
            candidate.finding.sql
        );
        let proof = candidate.finding.proof.as_deref().unwrap();
        assert_eq!(
            count(
                &cluster,
                &format!("begin; insert into p0 select k, 'x' from p0 limit 1; {proof}; rollback")
            ),
            1
        );
        let domain = found(&seen, "d", "c").unwrap();
        assert!(!domain.is_recommended && domain.finding.risks.iter().any(|risk| risk.contains("code")));
        let collated = found(&seen, "collated", "c").unwrap();
        for candidate in [&candidate, &domain, &collated] {
            assert_eq!(count(&cluster, candidate.finding.proof.as_deref().unwrap()), 0);
            run(&cluster, &candidate.finding.sql);
        }
        let types =
            "select string_agg(distinct attrelid::regclass::text, ' ') from pg_attribute where attname = 'c'
            and atttypid = 'uuid'::regtype";
        assert_eq!(cluster.sql(types).unwrap().trim(), "d p p0 p1");
        let collation =
            "insert into collated default values; select collation for (c), c from collated where c = 'none'";
        assert_eq!(cluster.sql(collation).unwrap(), "\"C\"|none", "the collation and the default stay");
    });
}

#[test]
fn documents_become_jsonb_where_that_is_smaller() {
    Server::each("documents in text", &[16, 18], |server| {
        let cluster = Cluster::builder().server(server).start().unwrap();
        // Many blanks and long numbers are what jsonb saves.
        let document =
            "'{ \"name\" :  \"x' || n || '\" ,      \"value\"   :     100000000000000000000000000000000 }'";
        for kind in ["text", "json"] {
            cluster
                .sql(&format!(
                    "drop table if exists t, u; create table t (n int, c {kind});
                     insert into t select n, ({document})::{kind} from generate_series(1, 500) n"
                ))
                .unwrap();
            let seen = snapshot(&cluster, None);
            let candidate = found(&seen, "t", "c").unwrap();
            let proof = candidate.finding.proof.as_deref().unwrap();
            assert_eq!(count(&cluster, proof), 0);
            let misfits: &[&str] = if kind == "text" {
                &ODD
            } else {
                &["'{\"a\": \"\\u0000\"}'", "'[1e999999]'", "'\"\\ud800\"'"]
            };
            for misfit in misfits {
                let sql = format!("begin; insert into t values (0, {misfit}); {proof}; rollback");
                assert_eq!(count(&cluster, &sql), 1, "{misfit}");
            }
            let before = cluster.sql("select c::jsonb from t order by n").unwrap();
            run(&cluster, &candidate.finding.sql);
            assert_eq!(cluster.sql("select c from t order by n").unwrap(), before);
            cluster.sql("create table u as select c from t order by n; checkpoint").unwrap();
            let stored: Vec<_> = images(&cluster, "u").into_iter().map(Some).collect();
            assert_eq!(retype(&candidate).images, stored);
        }
    });
}
