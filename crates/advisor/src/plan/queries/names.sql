select r.root, r.oid, 'names', coalesce(n.names, '[]')
from r
left join (
  -- Once for all tables of a schema.
  select t.namespace, json_agg(t.name) as names
  from (
    select c.relnamespace, c.relname from pg_class c where c.relname ~ '_(old|new|log|state)[0-9]*$'
    union select s.stxnamespace, s.stxname from pg_statistic_ext s where s.stxname ~ '_(old|new|log|state)[0-9]*$'
    union select t.typnamespace, t.typname from pg_type t where t.typname ~ '_(old|new|log|state)[0-9]*$') t(namespace, name)
  group by t.namespace) n on n.namespace = r.relnamespace
where r.depth = 0
union all
select r.root, r.oid, 'event_trigger', to_json(e.evtname)
from r
join pg_event_trigger e on e.evtenabled <> 'D'
where r.depth = 0
