select r.root, r.oid, 'column', json_build_object(
  'number', a.attnum, 'name', a.attname, 'type', format_type(a.atttypid, a.atttypmod),
  'type_schema', tn.nspname,
  'collation', case when a.attcollation <> 0 and a.attcollation <> t.typcollation then
    format('%I.%I', cn.nspname, co.collname) end,
  'storage', case when a.attstorage <> t.typstorage then case a.attstorage when 'p' then 'PLAIN'
    when 'm' then 'MAIN' when 'e' then 'EXTERNAL' else 'EXTENDED' end end,
  'compression', case a.attcompression when 'p' then 'pglz' when 'l' then 'lz4' end,
  'is_not_null', a.attnotnull, 'default', pg_get_expr(ad.adbin, ad.adrelid), 'generated', a.attgenerated,
  'identity', a.attidentity, 'statistics', nullif(a.attstattarget, -1),
  -- Some servers stamp columns with options of their own (`pg_attver`), which nobody can set.
  'options', array(select o from unnest(a.attoptions) o where o not like 'pg\_%'), 'is_inherited', a.attinhcount > 0, 'is_local', a.attislocal,
  'has_own_not_null', exists (select from pg_constraint k where k.conrelid = r.oid and k.contype = 'n'
    and a.attnum = any (k.conkey)))
from r
join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
join pg_type t on t.oid = a.atttypid
join pg_namespace tn on tn.oid = t.typnamespace
left join pg_collation co on co.oid = a.attcollation
left join pg_namespace cn on cn.oid = co.collnamespace
left join pg_attrdef ad on ad.adrelid = a.attrelid and ad.adnum = a.attnum
order by r.root, r.depth, r.oid, a.attnum
