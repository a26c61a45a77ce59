select r.root, r.oid, 'statistics', json_build_object(
  'schema', n.nspname, 'name', s.stxname, 'definition', pg_get_statisticsobjdef(s.oid),
  'target', nullif(s.stxstattarget, -1), 'owner', pg_get_userbyid(s.stxowner))
from r
join pg_statistic_ext s on s.stxrelid = r.oid
join pg_namespace n on n.oid = s.stxnamespace
order by r.root, r.depth, r.oid, n.nspname, s.stxname
