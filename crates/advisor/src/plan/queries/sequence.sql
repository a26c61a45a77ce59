select r.root, r.oid, 'sequence', json_build_object(
  'column', a.attname, 'schema', n.nspname, 'name', s.relname, 'is_identity', d.deptype = 'i',
  'has_grants', s.relacl is not null,
  'options', format('START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s %s', q.seqstart, q.seqincrement,
    q.seqmin, q.seqmax, q.seqcache, case when q.seqcycle then 'CYCLE' else 'NO CYCLE' end))
from r
join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.refobjsubid > 0
  and d.classid = 'pg_class'::regclass and d.deptype in ('a', 'i')
join pg_class s on s.oid = d.objid and s.relkind = 'S'
join pg_namespace n on n.oid = s.relnamespace
join pg_sequence q on q.seqrelid = s.oid
join pg_attribute a on a.attrelid = r.oid and a.attnum = d.refobjsubid
order by r.root, r.depth, r.oid, a.attnum, s.oid
