select r.root, r.oid, 'constraint', json_build_object(
  'name', k.conname, 'kind', k.contype, 'definition', pg_get_constraintdef(k.oid),
  'is_validated', k.convalidated, 'is_enforced', coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true),
  'is_inherited', k.coninhcount > 0, 'is_local', k.conislocal, 'has_parent', k.conparentid <> 0,
  'columns', (select coalesce(json_agg(a.attname order by a.attnum), '[]') from pg_attribute a
    where a.attrelid = k.conrelid and a.attnum = any (k.conkey)),
  'partner', case when k.confrelid <> 0 then (select format('%I.%I', n.nspname, c.relname) from pg_class c
    join pg_namespace n on n.oid = c.relnamespace where c.oid = k.confrelid) end,
  'partner_oid', k.confrelid::bigint)
from r
join pg_constraint k on k.conrelid = r.oid and k.contype in ('c', 'f', 'n')
order by r.root, r.depth, r.oid, k.contype, k.conname
