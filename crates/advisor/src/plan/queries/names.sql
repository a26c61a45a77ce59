select r.root, r.oid, 'names', (select coalesce(json_agg(c.relname), '[]') from (
    select c.relname from pg_class c where c.relnamespace = r.relnamespace and c.relname ~ '_(old|new|log|state)[0-9]*$'
    union select s.stxname from pg_statistic_ext s where s.stxnamespace = r.relnamespace
      and s.stxname ~ '_(old|new|log|state)[0-9]*$'
    union select t.typname from pg_type t where t.typnamespace = r.relnamespace
      and t.typname ~ '_(old|new|log|state)[0-9]*$') c)
from r
where r.depth = 0
union all
select r.root, r.oid, 'event_trigger', to_json(e.evtname)
from r
join pg_event_trigger e on e.evtenabled <> 'D'
where r.depth = 0
