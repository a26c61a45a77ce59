select r.root, r.oid, 'trigger', json_build_object(
  'name', g.tgname, 'definition', pg_get_triggerdef(g.oid), 'state', g.tgenabled,
  'has_parent', g.tgparentid <> 0,
  'columns', (select coalesce(json_agg(distinct a.attname), '[]') from pg_depend d join pg_attribute a
    on a.attrelid = r.oid and a.attnum = d.refobjsubid where d.classid = 'pg_trigger'::regclass and d.objid = g.oid
      and d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.refobjsubid > 0))
from r
join pg_trigger g on g.tgrelid = r.oid and not g.tgisinternal and g.tgname not like 'pgshrink\_%'
order by r.root, r.depth, r.oid, g.tgname
