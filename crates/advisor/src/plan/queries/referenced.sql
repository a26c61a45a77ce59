select r.root, r.oid, 'referenced', json_build_object(
  'name', k.conname, 'table', format('%I.%I', n.nspname, c.relname), 'table_oid', c.oid::bigint,
  'is_partitioned', c.relkind = 'p', 'definition', pg_get_constraintdef(k.oid), 'is_validated', k.convalidated,
  'is_enforced', coalesce((to_jsonb(k) ->> 'conenforced')::boolean, true),
  'columns', (select coalesce(json_agg(a.attname order by a.attnum), '[]') from pg_attribute a
    where a.attrelid = k.confrelid and a.attnum = any (k.confkey)),
  'own_columns', (select coalesce(json_agg(a.attname order by a.attnum), '[]') from pg_attribute a
    where a.attrelid = k.conrelid and a.attnum = any (k.conkey)),
  'comment', obj_description(k.oid, 'pg_constraint'))
from r
join pg_constraint k on k.confrelid = r.oid and k.contype = 'f' and k.conparentid = 0 and k.conrelid <> r.oid
join pg_class c on c.oid = k.conrelid
join pg_namespace n on n.oid = c.relnamespace
order by r.root, r.depth, r.oid, c.oid, k.conname
