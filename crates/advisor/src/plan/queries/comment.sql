select r.root, r.oid, 'comment', json_build_object('sql', format('COMMENT ON %s IS %L', o.target, d.description),
  'column', o.col)
from r
join lateral (
  select 'pg_class'::regclass as class, r.oid as oid, 0 as sub, r.word || ' ' || r.q as target, null as col, 0 as place
  union all
  select 'pg_class'::regclass, r.oid, a.attnum, format('COLUMN %s.%I', r.q, a.attname), a.attname, 1
  from pg_attribute a where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  union all
  select 'pg_type'::regclass, r.reltype, 0, 'TYPE ' || r.q, null, 2
  union all
  select 'pg_class'::regclass, i.oid, 0, format('INDEX %I.%I', r.nspname, i.relname), null, 3
  from pg_index x join pg_class i on i.oid = x.indexrelid where x.indrelid = r.oid
  union all
  select 'pg_constraint'::regclass, k.oid, 0, format('CONSTRAINT %I ON %s', k.conname, r.q), null, 4
  from pg_constraint k where k.conrelid = r.oid
  union all
  select 'pg_trigger'::regclass, g.oid, 0, format('TRIGGER %I ON %s', g.tgname, r.q), null, 5
  from pg_trigger g where g.tgrelid = r.oid and not g.tgisinternal
  union all
  select 'pg_rewrite'::regclass, w.oid, 0, format('RULE %I ON %s', w.rulename, r.q), null, 6
  from pg_rewrite w where w.ev_class = r.oid
  union all
  select 'pg_policy'::regclass, p.oid, 0, format('POLICY %I ON %s', p.polname, r.q), null, 7
  from pg_policy p where p.polrelid = r.oid
  union all
  select 'pg_statistic_ext'::regclass, s.oid, 0, format('STATISTICS %I.%I', n.nspname, s.stxname), null, 8
  from pg_statistic_ext s join pg_namespace n on n.oid = s.stxnamespace where s.stxrelid = r.oid
  union all
  select 'pg_class'::regclass, s.oid, 0, format('SEQUENCE %I.%I', n.nspname, s.relname), null, 9
  from pg_depend e
  join pg_class s on s.oid = e.objid and s.relkind = 'S'
  join pg_namespace n on n.oid = s.relnamespace
  where e.refclassid = 'pg_class'::regclass and e.refobjid = r.oid and e.classid = 'pg_class'::regclass and e.deptype = 'i'
) o on true
join pg_description d on d.classoid = o.class and d.objoid = o.oid and d.objsubid = o.sub
order by r.root, r.depth, r.oid, o.place, o.sub, o.target
