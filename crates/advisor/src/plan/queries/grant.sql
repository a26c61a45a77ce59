select r.root, r.oid, 'grant', json_build_object(
  'on', acl.target, 'is_sequence', acl.target like 'SEQUENCE %', 'grantor', pg_get_userbyid(x.grantor),
  'is_owner', x.grantor = r.relowner,
  'grantee', case when x.grantee = 0 then 'PUBLIC' else quote_ident(pg_get_userbyid(x.grantee)) end,
  'is_grantable', x.is_grantable,
  'privileges', string_agg(x.privilege_type || acl.columns, ', ' order by x.privilege_type))
from r
join lateral (
  select 'TABLE ' || r.q as target, '' as columns, c.relacl as acl, 0 as place from pg_class c where c.oid = r.oid
  union all
  select 'TABLE ' || r.q, format(' (%I)', a.attname), a.attacl, a.attnum from pg_attribute a
  where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
  union all
  select format('SEQUENCE %I.%I', n.nspname, s.relname), '', s.relacl, 2000
  from pg_depend d
  join pg_class s on s.oid = d.objid and s.relkind = 'S'
  join pg_namespace n on n.oid = s.relnamespace
  where d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.classid = 'pg_class'::regclass and d.deptype = 'i'
) acl on acl.acl is not null
join lateral aclexplode(acl.acl) with ordinality x(grantor, grantee, privilege_type, is_grantable, place) on true
group by r.root, r.oid, r.depth, r.relowner, acl.target, acl.place, x.grantor, x.grantee, x.is_grantable
order by r.root, r.depth, r.oid, acl.place, x.grantor <> r.relowner, min(x.place)
