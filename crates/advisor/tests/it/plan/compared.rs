//! What the tests of plans have in common: a table's snapshot through psql, scripts through psql, and what is compared.

use pgshrink_advisor::finding::Step;
use pgshrink_advisor::plan::queries;
use pgshrink_advisor::snapshot::definition::Definition;
use pgshrink_advisor::snapshot::{Column, Table};
use pgshrink_testkit::{Cluster, Error, ServerBinaries};
use std::collections::BTreeMap;

/// Of the rich schema: the table that is written anew.
pub const ORDER: &str = "shop.\"order\"";
/// It, and what reads it.
pub const RELATIONS: [&str; 10] = [
    ORDER,
    "shop.open_orders",
    "shop.totals",
    "shop.on_totals",
    "shop.positional",
    "shop.joined",
    "shop.clashing",
    "shop.summary",
    "shop.on_summary",
    "shop.item",
];

/// A cluster on which logical decoding works.
pub fn cluster(server: &ServerBinaries) -> Cluster {
    Cluster::builder().server(server).conf("wal_level", "logical").start().unwrap()
}

/// Runs the schema, with the lines that are for this server.
pub fn load(cluster: &Cluster, sql: &str, major: u32) {
    let marked = |line: &str| match line.strip_prefix("{18}") {
        Some(rest) if major >= 18 => Some(rest.to_owned()),
        Some(_) => None,
        None => Some(line.to_owned()),
    };
    let sql: Vec<String> = sql.lines().filter_map(marked).collect();
    cluster.sql(&sql.join("\n")).unwrap();
}

/// Definitions of tables, by the queries that the product runs.
pub fn definitions(cluster: &Cluster, oids: &[u32]) -> BTreeMap<u32, Definition> {
    let mut all = BTreeMap::new();
    for query in queries::all(oids) {
        let script = format!("{};\n{query};", queries::SETUP);
        // Names may have line breaks; control characters do not occur in JSON.
        let psql = cluster.psql().arg("-R").arg("\u{1e}").arg("-F").arg("\u{1f}");
        let found = psql.sql(&script).unwrap();
        for row in found.split(['\u{1e}', '\n']).filter(|row| row.matches('\u{1f}').count() == 3) {
            let fields: Vec<&str> = row.split('\u{1f}').collect();
            let [root, oid, part, json] = fields.try_into().unwrap();
            Definition::take(&mut all, (root.parse().unwrap(), oid.parse().unwrap(), part, json)).unwrap();
        }
    }
    all
}

/// The snapshot of a table, as far as a plan reads it. The definition goes through JSON, as in a file.
pub fn table(cluster: &Cluster, name: &str) -> Table {
    let found = cluster
        .sql(&format!(
            "select c.oid || ' ' || json_build_array(n.nspname, c.relname) from pg_class c
             join pg_namespace n on n.oid = relnamespace where c.oid = $t${name}$t$::regclass"
        ))
        .unwrap();
    let (oid, names) = found.split_once(' ').unwrap();
    let oid: u32 = oid.parse().unwrap();
    let [schema, name]: [String; 2] = serde_json::from_str(names).unwrap();
    let columns = cluster
        .sql(&format!(
            "select coalesce(json_agg(json_build_array(attname, attisdropped) order by attnum), '[]')
             from pg_attribute where attrelid = {oid} and attnum > 0"
        ))
        .unwrap();
    let columns: Vec<(String, bool)> = serde_json::from_str(&columns).unwrap();
    let columns = columns
        .into_iter()
        .map(|(name, is_dropped)| Column { name, is_dropped, ..Column::default() })
        .collect();
    let definition = definitions(cluster, &[oid]).remove(&oid).unwrap();
    let text = serde_json::to_string(&definition).unwrap();
    assert_eq!(serde_json::from_str::<Definition>(&text).unwrap(), definition, "the file says the same");
    Table { oid, schema, name, columns, definition: Some(definition), ..Table::default() }
}

/// Runs one step, each statement alone and all in one session.
pub fn run(cluster: &Cluster, step: &Step) -> Result<String, Error> {
    cluster.sql(&step.statements.join("\n"))
}

/// Runs steps, which have to work.
pub fn run_all(cluster: &Cluster, steps: &[Step]) {
    for step in steps {
        if let Err(error) = run(cluster, step) {
            panic!("{}: {error}\n{}", step.title, step.statements.join("\n"));
        }
    }
}

/// `pg_dump --schema-only`, without what depends on the order in which things were made: entries by their names, columns sorted.
pub fn dump(cluster: &Cluster) -> BTreeMap<String, String> {
    let mut command = cluster.command("pg_dump");
    command.args(["--schema-only", "-d", &cluster.conninfo_unix("postgres")]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let mut entries: BTreeMap<String, String> = BTreeMap::new();
    for entry in text.split("\n--\n-- Name: ").skip(1) {
        let (head, body) = entry.split_once("\n--\n").unwrap();
        let body: Vec<&str> = body
            .lines()
            .filter(|line| !line.starts_with("\\unrestrict") && !line.starts_with("SET default_"))
            .collect();
        let body = body.join("\n").replace("\n--\n-- PostgreSQL database dump complete\n--", "");
        let body = if head.contains("; Type: TABLE;") { sorted_columns(&body) } else { body };
        entries.entry(head.to_owned()).or_default().push_str(body.trim());
    }
    entries
}

/// A `CREATE TABLE` with its columns sorted, line by line.
fn sorted_columns(body: &str) -> String {
    let Some((head, rest)) = body.split_once("(\n") else { return body.to_owned() };
    let Some((columns, tail)) = rest.split_once("\n)") else { return body.to_owned() };
    // Columns' names may have line breaks in them.
    let mut columns: Vec<&str> = columns.split(",\n    ").map(str::trim).collect();
    columns.sort_unstable();
    // Settings of columns are statements behind, in the order of columns.
    let (end, settings) = tail.split_once(';').unwrap_or((tail, ""));
    let mut settings: Vec<&str> = settings.split(";\n").map(str::trim).collect();
    settings.sort_unstable();
    format!("{head}(\n{}\n){end};{}", columns.join(",\n"), settings.join(";\n"))
}

/// What `pg_dump` does not show, by name: validity, inheritance, states, bindings, values of sequences.
pub const CATALOGS: &str = "
select 'class', n.nspname, c.relname, c.relkind, c.relpersistence, c.relispartition, c.relispopulated, c.relreplident,
  c.relrowsecurity, c.relforcerowsecurity, pg_get_userbyid(c.relowner), array(select unnest(c.reloptions) order by 1)::text,
  (select array(select unnest(t.reloptions) order by 1)::text from pg_class t where t.oid = c.reltoastrelid),
  coalesce((select string_agg(x::text, ',' order by x::text) from unnest(coalesce(c.relacl,
    acldefault(case c.relkind when 'S' then 's' else 'r' end::\"char\", c.relowner))) x), '')
from pg_class c join pg_namespace n on n.oid = c.relnamespace where {mine} order by 1, 2, 3;
select 'column', n.nspname, c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity,
  a.attgenerated, a.attstorage, a.attcompression, nullif(a.attstattarget, -1), a.attislocal, a.attinhcount, array(select o from unnest(a.attoptions) o where o !~ '^pg_')::text,
  (select string_agg(x::text, ',' order by x::text) from unnest(a.attacl) x), a.attcollation::regcollation,
  pg_get_expr(d.adbin, d.adrelid), col_description(c.oid, a.attnum)
from pg_class c join pg_namespace n on n.oid = c.relnamespace join pg_attribute a on a.attrelid = c.oid
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
where {mine} and a.attnum > 0 and not a.attisdropped and c.relkind not in ('i', 'I') order by 1, 2, 3, 4;
select 'index', x.indexrelid::regclass, x.indrelid::regclass, pg_get_indexdef(x.indexrelid), x.indisvalid, x.indisready,
  x.indisclustered, x.indisreplident, x.indisprimary, x.indimmediate, x.indisexclusion, c.reltablespace,
  (select h.inhparent::regclass from pg_inherits h where h.inhrelid = x.indexrelid),
  (select string_agg(a.attnum || ' ' || a.attstattarget, ',') from pg_attribute a where a.attrelid = c.oid and a.attstattarget > 0),
  obj_description(c.oid, 'pg_class')
from pg_index x join pg_class c on c.oid = x.indexrelid join pg_namespace n on n.oid = c.relnamespace where {mine}
order by 2::text;
select 'constraint', k.conrelid::regclass, k.conname, k.contype, pg_get_constraintdef(k.oid), k.convalidated, k.condeferrable,
  k.condeferred, k.conislocal, k.coninhcount,
  -- Of a constraint that comes from a parent it depends on whether the partition was attached, and nothing depends on it.
  case when k.conparentid = 0 then k.connoinherit end, k.conindid::regclass, k.confrelid::regclass,
  (select p.conrelid::regclass || ' ' || p.conname from pg_constraint p where p.oid = k.conparentid), obj_description(k.oid, 'pg_constraint'),
  to_jsonb(k) ->> 'conenforced'
from pg_constraint k join pg_class c on c.oid = k.conrelid join pg_namespace n on n.oid = c.relnamespace
where {mine} order by 2::text, 3;
select 'trigger', g.tgrelid::regclass, g.tgname, g.tgenabled, pg_get_triggerdef(g.oid), g.tgparentid <> 0, obj_description(g.oid, 'pg_trigger')
from pg_trigger g join pg_class c on c.oid = g.tgrelid join pg_namespace n on n.oid = c.relnamespace
where {mine} and not g.tgisinternal order by 2::text, 3;
select 'trigger of a key', g.tgrelid::regclass, g.tgconstrrelid::regclass, g.tgfoid::regproc, g.tgenabled, g.tgdeferrable,
  g.tginitdeferred, (select conname from pg_constraint k where k.oid = g.tgconstraint)
from pg_trigger g join pg_class c on c.oid = g.tgrelid join pg_namespace n on n.oid = c.relnamespace
where {mine} and g.tgisinternal order by 2::text, 3::text, 4::text, 8;
select 'rule', w.ev_class::regclass, w.rulename, w.ev_enabled, w.ev_type, w.is_instead, obj_description(w.oid, 'pg_rewrite'),
  -- A list of columns behind an alias is in the new order: of such views the rows are compared.
  case when c.relname !~ '^(positional|clashing)' then pg_get_ruledef(w.oid) end
from pg_rewrite w join pg_class c on c.oid = w.ev_class join pg_namespace n on n.oid = c.relnamespace where {mine} order by 2::text, 3;
select 'uses', w.ev_class::regclass, w.rulename, d.refobjid::regclass, a.attname
from pg_rewrite w join pg_class c on c.oid = w.ev_class join pg_namespace n on n.oid = c.relnamespace
join pg_depend d on d.classid = 'pg_rewrite'::regclass and d.objid = w.oid and d.refclassid = 'pg_class'::regclass
left join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid and a.attnum > 0
where {mine} group by 1, 2, 3, 4, 5 order by 2::text, 3, 4::text, 5;
select 'policy', p.polrelid::regclass, p.polname, p.polcmd, p.polpermissive, p.polroles::regrole[]::text, pg_get_expr(p.polqual, p.polrelid),
  pg_get_expr(p.polwithcheck, p.polrelid), obj_description(p.oid, 'pg_policy') from pg_policy p order by 2::text, 3;
select 'function', p.oid::regprocedure, pg_get_userbyid(p.proowner), p.proacl::text, pg_get_functiondef(p.oid),
  (select string_agg(distinct d.refobjid::regclass::text || '.' || coalesce(a.attname, ''), ',') from pg_depend d left join pg_attribute a
    on a.attrelid = d.refobjid and a.attnum = d.refobjsubid where d.objid = p.oid and d.refclassid = 'pg_class'::regclass)
from pg_proc p join pg_namespace n on n.oid = p.pronamespace where {in_schemas} order by 2::text;
select 'statistics', n.nspname, s.stxname, s.stxrelid::regclass, s.stxkind, (select string_agg(a.attname, ',' order by a.attname)
  from pg_attribute a where a.attrelid = s.stxrelid and a.attnum = any (s.stxkeys)), pg_get_statisticsobjdef_expressions(s.oid), nullif(s.stxstattarget, -1),
  pg_get_userbyid(s.stxowner), obj_description(s.oid, 'pg_statistic_ext')
from pg_statistic_ext s join pg_namespace n on n.oid = s.stxnamespace where s.stxname !~ '_old' order by 2, 3;
select 'publication', p.pubname, r.prrelid::regclass, pg_get_expr(r.prqual, r.prrelid), (select string_agg(a.attname, ',' order by a.attname)
  from pg_attribute a where a.attrelid = r.prrelid and a.attnum = any (r.prattrs))
from pg_publication_rel r join pg_publication p on p.oid = r.prpubid order by 2, 3::text;
select 'inherits', h.inhrelid::regclass, h.inhparent::regclass, h.inhseqno, pg_get_expr(c.relpartbound, c.oid) from pg_inherits h
join pg_class c on c.oid = h.inhrelid where c.relkind <> 'i' order by 2::text, 4;
select 'owned', d.objid::regclass, d.refobjid::regclass, a.attname, d.deptype from pg_depend d join pg_class s on s.oid = d.objid and s.relkind = 'S'
join pg_attribute a on a.attrelid = d.refobjid and a.attnum = d.refobjsubid where d.classid = 'pg_class'::regclass
and d.refclassid = 'pg_class'::regclass order by 2::text;
select 'sequence', schemaname, sequencename, data_type, start_value, min_value, max_value, increment_by, cycle, cache_size, last_value
from pg_sequences where sequencename !~ '_old' order by 2, 3;
select 'type comment', t.typname, obj_description(t.oid, 'pg_type') from pg_type t where obj_description(t.oid, 'pg_type') is not null
and t.typtype = 'c' order by 2;";

/// All of [`CATALOGS`], for everything but the old table and what is a rewrite's own.
pub fn catalogs(cluster: &Cluster) -> Vec<String> {
    let in_schemas = "n.nspname !~ '^pg_' and n.nspname <> 'information_schema'";
    let mine = format!("{in_schemas} and c.relname !~ '_old[0-9]*$' and c.relkind <> 't'");
    let sql = CATALOGS.replace("{in_schemas}", in_schemas).replace("{mine}", &mine);
    let found = cluster.sql(&format!("set search_path = ''; {sql}")).unwrap();
    found.lines().map(str::to_owned).collect()
}

/// Rows of a relation by column name, whatever the order of either.
pub fn rows(cluster: &Cluster, relation: &str) -> String {
    cluster.sql(&format!("select count(*), md5(string_agg(r::jsonb::text, ',' order by r::jsonb::text)) from (select to_jsonb(t) r from {relation} t) x")).unwrap()
}

/// The first lines that differ.
pub fn assert_same(before: &[String], after: &[String], what: &str) {
    let gone: Vec<_> = before.iter().filter(|line| !after.contains(line)).take(8).collect();
    let come: Vec<_> = after.iter().filter(|line| !before.contains(line)).take(8).collect();
    assert!(gone.is_empty() && come.is_empty(), "{what}\nbefore: {gone:#?}\nafter: {come:#?}");
}

/// The same of dumps.
pub fn assert_same_dump(
    before: &BTreeMap<String, String>,
    after: &BTreeMap<String, String>,
    skipped: &[&str],
) {
    let is_compared = |head: &&String| !skipped.iter().any(|name| head.contains(name));
    for head in before.keys().chain(after.keys()).filter(is_compared) {
        assert_eq!(before.get(head), after.get(head), "{head}");
    }
}
