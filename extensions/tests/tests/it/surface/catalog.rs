//! What the server's catalog says that jsonb has, zson has too.

use super::outcomes;
use crate::databases::on_each_major;

/// For each operator of jsonb, each way to put zson in place of at least one jsonb.
const OPERATORS: &str = "
    with wanted as (
        select o.*, l.type as l, r.type as r
        from pg_operator o,
            unnest(array[o.oprleft, case when o.oprleft = 'jsonb'::regtype then 'zson'::regtype end]) l(type),
            unnest(array[o.oprright, case when o.oprright = 'jsonb'::regtype then 'zson'::regtype end]) r(type)
        where l.type is not null and r.type is not null and 'jsonb'::regtype in (o.oprleft, o.oprright) and o.oprnamespace = 'pg_catalog'::regnamespace
            and 'zson'::regtype in (l.type, r.type)
    )
    select count(z.oid), count(*),
        string_agg(format('%s(%s,%s)', w.oprname, w.l::regtype, w.r::regtype), ' ') filter (where z.oid is null)
    from wanted w
    left join pg_operator wc on wc.oid = w.oprcom
    left join pg_operator wn on wn.oid = w.oprnegate
    left join pg_operator z on z.oprname = w.oprname and z.oprleft = w.l and z.oprright = w.r
        and (z.oprresult, z.oprcanhash, z.oprcanmerge, z.oprrest, z.oprjoin)
            = (w.oprresult, w.oprcanhash, w.oprcanmerge, w.oprrest, w.oprjoin)
        and (select c.oprname from pg_operator c where c.oid = z.oprcom and c.oprleft = w.r and c.oprright = w.l)
            is not distinct from wc.oprname
        and (select n.oprname from pg_operator n where n.oid = z.oprnegate and n.oprleft = w.l and n.oprright = w.r)
            is not distinct from wn.oprname
        and exists (select from pg_proc p where p.oid = z.oprcode and p.proisstrict and p.provolatile = 'i' and p.proparallel = 's')";

#[test]
fn every_operator_of_jsonb_has_its_like_with_zson_on_either_side() {
    on_each_major("operators", |database| {
        let found = database.sql(OPERATORS);
        // 15 with one jsonb, and 9 with two of them, which zson replaces in three ways.
        assert_eq!(found, "42|42|", "missing or different");
    });
}

#[test]
fn every_operator_class_of_jsonb_has_its_like() {
    on_each_major("operator classes", |database| {
        let missing = database.sql(
            "select a.amname, j.opcname from pg_opclass j join pg_am a on a.oid = j.opcmethod
            where j.opcintype = 'jsonb'::regtype and not exists (
                select from pg_opclass z where z.opcintype = 'zson'::regtype and z.opcmethod = j.opcmethod
                    and z.opcname = replace(j.opcname, 'jsonb', 'zson') and z.opcdefault = j.opcdefault
                    and z.opckeytype = j.opckeytype and amvalidate(z.oid)
                    and not exists (
                        select from pg_amproc p where p.amprocfamily = j.opcfamily and not exists (
                            select from pg_amproc q where q.amprocfamily = z.opcfamily and q.amprocnum = p.amprocnum
                                and q.amproclefttype = 'zson'::regtype))
                    and not exists (
                        select from pg_amop p join pg_operator o on o.oid = p.amopopr
                        where p.amopfamily = j.opcfamily and not exists (
                            select from pg_amop q join pg_operator m on m.oid = q.amopopr
                            where q.amopfamily = z.opcfamily and q.amopstrategy = p.amopstrategy and m.oprname = o.oprname
                                and q.amoplefttype = 'zson'::regtype)))",
        );
        assert_eq!(missing, "");
        // Documents that are equal may be stored differently: btree must not take one for the other.
        let deduplicates =
            "select count(*) from pg_amproc p join pg_opclass c on c.opcfamily = p.amprocfamily
            join pg_am a on a.oid = c.opcmethod
            where c.opcintype = 'zson'::regtype and a.amname = 'btree' and p.amprocnum = 4";
        assert_eq!(database.sql(deduplicates), "0");
    });
}

#[test]
fn every_cast_of_jsonb_has_its_like() {
    on_each_major("casts", |database| {
        let missing = database.sql(
            "select j.casttarget::regtype from pg_cast j
            where j.castsource = 'jsonb'::regtype and j.casttarget <> 'zson'::regtype and not exists (
                select from pg_cast z where z.castsource = 'zson'::regtype and z.casttarget = j.casttarget
                    and z.castcontext = j.castcontext)
            union all
            select j.castsource::regtype from pg_cast j
            where j.casttarget = 'jsonb'::regtype and j.castsource <> 'zson'::regtype and not exists (
                select from pg_cast z where z.casttarget = 'zson'::regtype and z.castsource = j.castsource
                    and z.castcontext = j.castcontext)",
        );
        assert_eq!(missing, "");
        outcomes(database);
        for (document, wanted) in [
            ("12.50", ["numeric", "int2", "int4", "int8", "float4", "float8"].as_slice()),
            ("true", &["bool", "int4"]),
            ("{}", &["int4", "json", "text"]),
        ] {
            for to in wanted {
                let of = |from: &str| {
                    database.sql(&format!("select outcome($$select '{document}'::{from}::{to}$$)"))
                };
                assert_eq!(of("zson"), of("jsonb"), "{document} to {to}");
            }
        }
    });
}

/// Every function of the server with a jsonb argument, called with a zson instead: each must be found, and be one.
/// What takes or returns `internal` or `cstring` is not called from SQL.
const FUNCTIONS: &str = "
    do $do$
    declare
        f record;
        arguments text;
        query text;
        tried int := 0;
    begin
        for f in
            select p.oid::regprocedure as name, p.proname, p.prorettype, p.proargtypes::oid[] as types, p.provariadic
            from pg_proc p
            where 'jsonb'::regtype = any (p.proargtypes::oid[]) and p.pronamespace = 'pg_catalog'::regnamespace
                and not p.proargtypes::oid[] && array['internal'::regtype::oid, 'cstring'::regtype::oid]
                and p.proname not in ('jsonb_out', 'jsonb_send')
        loop
            select string_agg(case when f.provariadic <> 0 and n = cardinality(f.types) then 'variadic ' else '' end || case t
                when 'jsonb'::regtype then 'null::zson'
                when 'anyelement'::regtype then 'null::pg_type'
                else format('null::%s', t::regtype) end, ', ' order by n)
            into arguments from unnest(f.types) with ordinality u(t, n);
            query := format('explain select * from pg_catalog.%I(%s)', f.proname, arguments)
                || case when f.prorettype = 'record'::regtype and f.proname like 'jsonb_to_record%' then ' as x (a int)' else '' end;
            begin
                execute query;
            exception when others then
                raise '%: % for %', query, sqlerrm, f.name;
            end;
            tried := tried + 1;
        end loop;
        assert tried > 60, tried;
    end $do$";

#[test]
fn every_function_of_jsonb_takes_a_zson() {
    on_each_major("functions", |database| drop(database.sql(FUNCTIONS)));
}
