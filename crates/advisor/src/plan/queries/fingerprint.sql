select root, root, 'fingerprint', to_json(md5(string_agg(line, E'\n' order by line collate "C"))) from (
  select r.root, concat_ws(' ', 'class', c.oid, quote_ident(c.relname), c.relnamespace, c.relowner, c.reloptions,
    c.relacl, c.relrowsecurity, c.relforcerowsecurity, c.relreplident, c.relpersistence, c.reltablespace,
    c.relispartition, c.relam, case when c.relkind in ('v', 'm') then md5(pg_get_viewdef(c.oid)) end) as line
  from r join pg_class c on c.oid = r.oid
  union all
  select r.root, concat_ws(' ', 'column', a.attrelid, a.attnum, quote_ident(a.attname), a.atttypid, a.atttypmod,
    a.attnotnull, a.attcollation, a.attstorage, a.attcompression, a.attidentity, a.attgenerated, a.attacl,
    array(select o from unnest(a.attoptions) o where o not like 'pg\_%'), a.attstattarget, a.attisdropped)
  from r join pg_attribute a on a.attrelid = r.oid and a.attnum > 0
  union all
  select r.root, concat_ws(' ', 'user', d.refclassid, d.refobjid, d.refobjsubid, d.classid, d.objid, d.objsubid, d.deptype)
  from r join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid
  where not (d.classid = 'pg_trigger'::regclass and exists (select from pg_trigger g where g.oid = d.objid
    and g.tgname like 'pgshrink\_%'))
  union all
  select r.root, concat_ws(' ', 'user of type', d.refobjid, d.classid, d.objid, d.objsubid, d.deptype)
  from r join pg_depend d on d.refclassid = 'pg_type'::regclass and d.refobjid = r.reltype and r.reltype <> 0
  union all
  select r.root, concat_ws(' ', 'constraint', k.oid, quote_ident(k.conname), k.convalidated, k.condeferrable,
    k.condeferred)
  from r join pg_constraint k on k.conrelid = r.oid
  union all
  select r.root, concat_ws(' ', 'reference', k.oid, quote_ident(k.conname), k.convalidated, k.condeferrable,
    k.condeferred)
  from r join pg_constraint k on k.confrelid = r.oid
  union all
  select r.root, concat_ws(' ', 'trigger', g.oid, quote_ident(g.tgname), g.tgenabled)
  from r join pg_trigger g on g.tgrelid = r.oid where g.tgname not like 'pgshrink\_%'
  union all
  select r.root, concat_ws(' ', 'index', i.indexrelid, quote_ident(c.relname), i.indisvalid, i.indisclustered,
    i.indisreplident, c.reloptions, c.reltablespace)
  from r join pg_index i on i.indrelid = r.oid join pg_class c on c.oid = i.indexrelid
  union all
  select r.root, concat_ws(' ', 'comment', d.objoid, d.objsubid, md5(d.description))
  from r join pg_description d on d.classoid = 'pg_class'::regclass and d.objoid = r.oid
  union all
  select r.root, concat_ws(' ', 'child', h.inhrelid, h.inhseqno) from r join pg_inherits h on h.inhparent = r.oid
  union all
  select r.root, concat_ws(' ', 'parent', h.inhparent, h.inhseqno) from r join pg_inherits h on h.inhrelid = r.oid
) lines
group by root
