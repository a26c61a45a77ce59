select r.root, r.oid, 'publication', json_build_object('name', p.pubname, 'scope', 'table',
  'definition', r.q
    || case when r.relkind = 'p' or pr.prattrs is null then '' else ' (' || (select string_agg(quote_ident(a.attname), ', '
      order by o.place) from unnest(pr.prattrs::int2[]) with ordinality o(number, place)
      join pg_attribute a on a.attrelid = r.oid and a.attnum = o.number) || ')' end
    || coalesce(' WHERE (' || pg_get_expr(pr.prqual, pr.prrelid) || ')', ''),
  'columns', (select coalesce(json_agg(distinct a.attname), '[]') from pg_depend d join pg_attribute a
    on a.attrelid = r.oid and a.attnum = d.refobjsubid where d.classid = 'pg_publication_rel'::regclass and d.objid = pr.oid
      and d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.refobjsubid > 0))
from r
join pg_publication_rel pr on pr.prrelid = r.oid
join pg_publication p on p.oid = pr.prpubid
union all
select r.root, r.oid, 'publication', json_build_object('name', p.pubname, 'scope', 'all', 'definition', '',
  'columns', json_build_array())
from r
join pg_publication p on p.puballtables
  or exists (select from pg_publication_namespace pn where pn.pnpubid = p.oid and pn.pnnspid = r.relnamespace)
where r.depth = 0
