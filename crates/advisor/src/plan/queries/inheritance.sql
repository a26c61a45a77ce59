select r.root, r.oid, case when h.inhrelid = r.oid then 'parent' else 'child' end, json_build_object(
  'table', format('%I.%I', n.nspname, c.relname),
  'is_partition', case when h.inhrelid = r.oid then c.relkind = 'p' else c.relispartition end,
  'has_default', exists (select from pg_partitioned_table p where p.partrelid = h.inhparent and p.partdefid <> 0
    and p.partdefid <> h.inhrelid))
from r
join pg_inherits h on r.oid in (h.inhrelid, h.inhparent)
join pg_class c on c.oid = case when h.inhrelid = r.oid then h.inhparent else h.inhrelid end
join pg_namespace n on n.oid = c.relnamespace
order by r.root, r.depth, r.oid, h.inhrelid = r.oid, h.inhseqno, n.nspname, c.relname
