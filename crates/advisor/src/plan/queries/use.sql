select r.root, v.oid, 'use', json_build_object('table', r.oid::bigint, 'columns',
  coalesce(json_agg(distinct a.attname) filter (where a.attname is not null), '[]'))
from r
join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.classid = 'pg_rewrite'::regclass
join pg_rewrite w on w.oid = d.objid and w.rulename = '_RETURN'
join r v on v.root = r.root and v.oid = w.ev_class and v.oid <> r.oid
left join pg_attribute a on a.attrelid = r.oid and a.attnum = d.refobjsubid and d.refobjsubid > 0
group by r.root, v.oid, r.oid
order by 1, 2, r.oid
