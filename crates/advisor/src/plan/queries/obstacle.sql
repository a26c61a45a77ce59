select root, oid, 'obstacle', json_build_object('what', what, 'is_for_columns', is_for_columns) from (
  -- Its row type is part of something else.
  select r.root, r.oid, 'its row type is used by ' || pg_describe_object(d.classid, d.objid, d.objsubid) as what,
    d.classid = 'pg_class'::regclass as is_for_columns
  from r
  join pg_type t on t.oid = r.reltype
  join pg_depend d on d.refclassid = 'pg_type'::regclass and d.refobjid in (t.oid, t.typarray)
    and not (d.classid = 'pg_type'::regclass and d.objid = t.typarray and d.deptype = 'i')
  union all
  select r.root, r.oid, 'its row type has grants of its own', false
  from r join pg_type t on t.oid = r.reltype where t.typacl is not null
  union all
  -- Whatever depends on it that no query here knows.
  select r.root, r.oid, pg_describe_object(d.classid, d.objid, d.objsubid) || ' depends on it, which cannot be carried over', false
  from r
  join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid
  where case d.classid
    when 'pg_class'::regclass then not exists (select from pg_class c where c.oid = d.objid
      and (c.relkind = 't' or c.relkind in ('i', 'I') and exists (select from pg_index x where x.indexrelid = c.oid
          and x.indrelid = r.oid)
        or c.relkind = 'S' and d.deptype in ('a', 'i')
        or exists (select from pg_inherits h where h.inhrelid = c.oid and h.inhparent = r.oid)))
      and d.objid <> r.oid
    when 'pg_type'::regclass then d.objid <> r.reltype
    when 'pg_attrdef'::regclass then not exists (select from pg_attrdef a where a.oid = d.objid and a.adrelid = r.oid)
    when 'pg_constraint'::regclass then not exists (select from pg_constraint k where k.oid = d.objid
      and r.oid in (k.conrelid, k.confrelid))
    when 'pg_trigger'::regclass then not exists (select from pg_trigger g where g.oid = d.objid
      and (g.tgrelid = r.oid or g.tgisinternal))
    when 'pg_rewrite'::regclass then false
    when 'pg_policy'::regclass then false
    when 'pg_publication_rel'::regclass then false
    when 'pg_statistic_ext'::regclass then not exists (select from pg_statistic_ext s where s.oid = d.objid
      and s.stxrelid = r.oid)
    when 'pg_proc'::regclass then not exists (select from pg_proc p where p.oid = d.objid and p.prosqlbody is not null
      and p.prokind in ('f', 'p'))
    else true end
  union all
  -- The sequence of an identity column is made anew, and others use it.
  select r.root, r.oid, pg_describe_object(u.classid, u.objid, u.objsubid) || ' uses the sequence of an identity column', false
  from r
  join pg_depend d on d.refclassid = 'pg_class'::regclass and d.refobjid = r.oid and d.classid = 'pg_class'::regclass
    and d.deptype = 'i' and d.refobjsubid > 0
  join pg_class s on s.oid = d.objid and s.relkind = 'S'
  join pg_depend u on u.refclassid = 'pg_class'::regclass and u.refobjid = s.oid
    and u.classid <> 'pg_type'::regclass
  union all
  select r.root, r.oid, pg_describe_object(d.classid, d.objid, d.objsubid) || ' depends on extension ' || quote_ident(e.extname), false
  from r
  join pg_depend i on i.refclassid = 'pg_class'::regclass and i.refobjid = r.oid and i.deptype in ('a', 'i', 'n')
  join pg_depend d on d.classid = i.classid and d.objid = i.objid and d.refclassid = 'pg_extension'::regclass
    and d.deptype in ('x', 'e')
  join pg_extension e on e.oid = d.refobjid
  union all
  select r.root, r.oid, 'a subscription replicates into it', false
  from r join pg_subscription_rel s on s.srrelid = r.oid
  union all
  select r.root, r.oid, 'triggers of foreign keys are disabled', false
  from r where exists (select from pg_trigger g where g.tgrelid = r.oid and g.tgisinternal and g.tgenabled <> 'O'
    and g.tgconstraint <> 0)
  union all
  select r.root, r.oid, 'foreign keys refer to the partitioned table that it is part of', false
  from r where exists (select from pg_constraint k where k.confrelid = r.oid and k.contype = 'f' and k.conparentid <> 0
    and exists (select from pg_constraint above where above.oid = k.conparentid and above.confrelid <> r.oid))
  union all
  select r.root, r.oid, 'an online rewrite has begun: trigger ' || quote_ident(g.tgname), true
  from r join pg_trigger g on g.tgrelid = r.oid and g.tgname like 'pgshrink\_%'
) found
group by root, oid, what, is_for_columns
order by root, oid, what
