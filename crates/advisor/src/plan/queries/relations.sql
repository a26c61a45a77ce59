with recursive reached(root, oid, depth) as (
  select o, o, 0 from unnest({oids}::oid[]) o
  union
  select r.root, w.ev_class, r.depth + 1
  from reached r
  join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid
    and d.classid = 'pg_rewrite'::regclass
  join pg_rewrite w on w.oid = d.objid and w.rulename = '_RETURN' and w.ev_class <> r.oid
  where r.depth < 100
), r as materialized (
  select x.root, c.oid, x.depth, c.relkind, c.relname, c.relowner, c.reltype, c.relnamespace, n.nspname,
    format('%I.%I', n.nspname, c.relname) as q,
    case c.relkind when 'v' then 'VIEW' when 'm' then 'MATERIALIZED VIEW' else 'TABLE' end as word
  from (select root, oid, max(depth) as depth from reached group by 1, 2) x
  join pg_class c on c.oid = x.oid
  join pg_namespace n on n.oid = c.relnamespace
)
