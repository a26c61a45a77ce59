select r.root, r.oid, 'policy', json_build_object(
  'name', p.polname, 'definition', format('CREATE POLICY %I ON %s AS %s FOR %s TO %s', p.polname, r.q,
    case when p.polpermissive then 'PERMISSIVE' else 'RESTRICTIVE' end,
    case p.polcmd when 'r' then 'SELECT' when 'a' then 'INSERT' when 'w' then 'UPDATE' when 'd' then 'DELETE' else 'ALL' end,
    (select string_agg(case when o = 0 then 'PUBLIC' else quote_ident(pg_get_userbyid(o)) end, ', ')
      from unnest(p.polroles) o))
    || coalesce(' USING (' || pg_get_expr(p.polqual, p.polrelid) || ')', '')
    || coalesce(' WITH CHECK (' || pg_get_expr(p.polwithcheck, p.polrelid) || ')', ''),
  'columns', (select coalesce(json_agg(distinct a.attname), '[]') from pg_depend d join pg_attribute a
    on a.attrelid = r.oid and a.attnum = d.refobjsubid where d.classid = 'pg_policy'::regclass and d.objid = p.oid
      and d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.refobjsubid > 0))
from r
join pg_policy p on p.polrelid = r.oid
order by r.root, r.depth, r.oid, p.polname
