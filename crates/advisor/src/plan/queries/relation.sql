select r.root, r.oid, 'relation', json_build_object(
  'kind', r.relkind, 'schema', r.nspname, 'name', r.relname, 'owner', pg_get_userbyid(r.relowner),
  'depth', r.depth, 'persistence', c.relpersistence, 'access_method', coalesce(am.amname, ''),
  'tablespace', coalesce(ts.spcname, ''), 'options', coalesce(c.reloptions, '{}'),
  'toast_options', coalesce(toast.reloptions, '{}'), 'has_row_security', c.relrowsecurity,
  'forces_row_security', c.relforcerowsecurity, 'replica_identity', c.relreplident,
  'is_populated', c.relispopulated, 'has_grants', c.relacl is not null,
  'bound', pg_get_expr(c.relpartbound, c.oid),
  'bound_check', case when c.relispartition then pg_get_partition_constraintdef(c.oid) end,
  'of_type', case when c.reloftype <> 0 then c.reloftype::regtype::text end,
  'query', case when r.relkind in ('v', 'm') then pg_get_viewdef(c.oid) end,
  'extension', (select e.extname from pg_depend d join pg_extension e on e.oid = d.refobjid
    where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.objsubid = 0
      and d.refclassid = 'pg_extension'::regclass and d.deptype = 'e'))
from r
join pg_class c on c.oid = r.oid
left join pg_am am on am.oid = c.relam
left join pg_tablespace ts on ts.oid = c.reltablespace
left join pg_class toast on toast.oid = c.reltoastrelid
order by r.root, r.depth, r.oid
