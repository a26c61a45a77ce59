select r.root, r.oid, 'elsewhere', json_build_object('kind', 'function', 'name', f.oid::regprocedure::text,
  'sql', pg_get_functiondef(f.oid), 'relation', 0, 'columns', u.columns)
from r
join lateral (
  select d.objid, coalesce(json_agg(distinct a.attname) filter (where a.attname is not null), '[]') as columns
  from pg_depend d
  left join pg_attribute a on a.attrelid = r.oid and a.attnum = d.refobjsubid and d.refobjsubid > 0
  where d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.classid = 'pg_proc'::regclass
  group by d.objid
) u on true
join pg_proc f on f.oid = u.objid and f.prosqlbody is not null and f.prokind in ('f', 'p')
union all
select r.root, r.oid, 'elsewhere', json_build_object('kind', 'policy', 'name', format('%I on %I.%I', p.polname, n.nspname, c.relname),
  'sql', format('ALTER POLICY %I ON %I.%I', p.polname, n.nspname, c.relname)
    || coalesce(' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')', '')
    || coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', ''),
  'relation', p.polrelid::bigint, 'columns', u.columns)
from r
join lateral (
  select d.objid, coalesce(json_agg(distinct a.attname) filter (where a.attname is not null), '[]') as columns
  from pg_depend d
  left join pg_attribute a on a.attrelid = r.oid and a.attnum = d.refobjsubid and d.refobjsubid > 0
  where d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.classid = 'pg_policy'::regclass
  group by d.objid
) u on true
join pg_policy p on p.oid = u.objid and p.polrelid <> r.oid
join pg_class c on c.oid = p.polrelid
join pg_namespace n on n.oid = c.relnamespace
union all
select r.root, r.oid, 'elsewhere', json_build_object('kind', 'rule', 'name', format('%I on %I.%I', w.rulename, n.nspname, c.relname),
  'sql', regexp_replace(pg_get_ruledef(w.oid), '^CREATE RULE', 'CREATE OR REPLACE RULE'),
  'relation', w.ev_class::bigint, 'columns', u.columns)
from r
join lateral (
  select d.objid, coalesce(json_agg(distinct a.attname) filter (where a.attname is not null), '[]') as columns
  from pg_depend d
  left join pg_attribute a on a.attrelid = r.oid and a.attnum = d.refobjsubid and d.refobjsubid > 0
  where d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.classid = 'pg_rewrite'::regclass
  group by d.objid
) u on true
join pg_rewrite w on w.oid = u.objid and w.rulename <> '_RETURN' and w.ev_class <> r.oid
join pg_class c on c.oid = w.ev_class
join pg_namespace n on n.oid = c.relnamespace
