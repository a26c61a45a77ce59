select r.root, r.oid, 'label', json_build_object('sql', format('SECURITY LABEL FOR %I ON %s IS %L', l.provider,
    case when a.attname is null then r.word || ' ' || r.q else format('COLUMN %s.%I', r.q, a.attname) end, l.label),
  'column', a.attname)
from r
join pg_seclabel l on l.classoid = 'pg_class'::regclass and l.objoid = r.oid
left join pg_attribute a on a.attrelid = r.oid and a.attnum = l.objsubid and l.objsubid > 0
order by r.root, r.depth, r.oid, l.objsubid, l.provider
