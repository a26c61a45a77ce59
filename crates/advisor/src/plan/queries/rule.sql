select r.root, r.oid, 'rule', json_build_object(
  'name', w.rulename, 'definition', pg_get_ruledef(w.oid), 'state', w.ev_enabled,
  'columns', (select coalesce(json_agg(distinct a.attname), '[]') from pg_depend d join pg_attribute a
    on a.attrelid = r.root and a.attnum = d.refobjsubid where d.classid = 'pg_rewrite'::regclass and d.objid = w.oid
      and d.refclassid = 'pg_class'::regclass and d.refobjid = r.root and d.refobjsubid > 0))
from r
join pg_rewrite w on w.ev_class = r.oid and w.rulename <> '_RETURN'
order by r.root, r.depth, r.oid, w.rulename
