select r.root, r.oid, 'index', json_build_object(
  'name', i.relname, 'is_unique', x.indisunique, 'is_valid', x.indisvalid,
  'tail', substr(pg_get_indexdef(x.indexrelid), 1 + length(format('CREATE %sINDEX %I ON %s%s ',
    case when x.indisunique then 'UNIQUE ' else '' end, i.relname, case when i.relkind = 'I' then 'ONLY ' else '' end, r.q))),
  'tablespace', coalesce(ts.spcname, ''), 'is_clustered', x.indisclustered,
  'is_replica_identity', x.indisreplident, 'options', coalesce(i.reloptions, '{}'),
  'constraint', k.conname, 'constraint_type', k.contype,
  'is_period', coalesce((to_jsonb(k) ->> 'conperiod')::boolean, false),
  'constraint_tail', case when k.condeferrable then case when k.condeferred then
    ' DEFERRABLE INITIALLY DEFERRED' else ' DEFERRABLE' end else '' end,
  'constraint_definition', pg_get_constraintdef(k.oid),
  'columns', (select coalesce(json_agg(a.attname order by o.place), '[]')
    from unnest(x.indkey::int2[]) with ordinality o(number, place)
    join pg_attribute a on a.attrelid = r.oid and a.attnum = o.number where o.place <= x.indnkeyatts),
  'statistics', (select coalesce(json_agg(json_build_array(a.attnum, a.attstattarget) order by a.attnum), '[]')
    from pg_attribute a where a.attrelid = i.oid and a.attstattarget >= 0))
from r
join pg_index x on x.indrelid = r.oid
join pg_class i on i.oid = x.indexrelid
left join pg_tablespace ts on ts.oid = i.reltablespace
left join pg_constraint k on k.conindid = i.oid and k.conrelid = r.oid and k.contype in ('p', 'u', 'x')
order by r.root, r.depth, r.oid, x.indisprimary desc, i.relname
