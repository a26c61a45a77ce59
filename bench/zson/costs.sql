-- What scans of zson take and what the planner thinks they take, both compared with the same scan of jsonb.
--
--   psql -X -d DATABASE -v source=TABLE -f bench/zson/costs.sql
--
-- TABLE has documents in a column `doc jsonb`. The database is one to throw away: profiles and dictionaries are made in it, as a dictionary is
-- used once it is committed. The role is a superuser: the processor time of the backend comes from /proc. Each statement runs once
-- unmeasured and then nine times, all forms in turn; figures are medians. `trained`, `zstd` and `lz4`
-- learnt from TABLE, the others did not; the codec of `trained` is what zson_learn chose.
\set ON_ERROR_STOP 1
\set QUIET 1
set max_parallel_workers_per_gather = 0; set jit = off; set client_min_messages = warning;
create schema costs;
set search_path = costs, public;
create table forms (form text, codec text, learns boolean);
insert into forms values
  ('trained', null, true), ('zstd', 'zstd:3', true), ('lz4', 'lz4', true), ('untrained', null, false), ('untrained_lz4', 'lz4', false);
create unlogged table form_jsonb (doc jsonb compression lz4);
insert into form_jsonb select doc from :source;
select format('create unlogged table form_%1$s (doc zson(%1$L))', form) from forms \gexec
select format('do $do$ begin perform zson_set_codec(%L, %L); end $do$', form, codec) from forms where codec is not null \gexec
select format('do $do$ begin perform zson_learn(''form_jsonb'', ''doc'', %L); end $do$', form) from forms where learns \gexec
select format('insert into form_%s select doc from form_jsonb', form) from forms \gexec
insert into forms values ('jsonb');
select format('vacuum analyze form_%s', form) from forms \gexec
select key as key from form_jsonb, jsonb_object_keys(doc) key group by key order by count(*) desc, key limit 1 \gset
select jsonb_build_object(:'key', doc->:'key') as part from form_jsonb where doc ? :'key' limit 1 \gset
create table queries (query text, sql text);
insert into queries values
  ('count(*)', 'select count(*) from %s'),
  ('doc->>key', format('select count(doc->>%L) from %%s', :'key')),
  ('doc @> part', format('select count(*) from %%s where doc @> %L', :'part')),
  ('doc::jsonb', 'select count(jsonb_typeof(doc::jsonb)) from %s'),
  ('doc::text', 'select sum(length(doc::text)) from %s'),
  ('jsonb_agg(doc)', 'select jsonb_agg(doc) is null from %s'),
  ('jsonb_agg(doc::jsonb)', 'select jsonb_agg(doc::jsonb) is null from %s');
create table found (query text, form text, ns numeric);
do $$
declare
  asked record;
  started bigint;
  ended bigint;
begin
  for round in 0..9 loop
    for asked in select * from queries, forms order by query, md5(form || round) loop
      -- Reading stat brings what schedstat says up to date.
      perform pg_read_file('/proc/self/stat');
      started := split_part(pg_read_file('/proc/self/schedstat'), ' ', 1);
      execute format(asked.sql, 'form_' || asked.form);
      perform pg_read_file('/proc/self/stat');
      ended := split_part(pg_read_file('/proc/self/schedstat'), ' ', 1);
      if round > 0 then insert into found values (asked.query, asked.form, ended - started); end if;
    end loop;
  end loop;
end $$;
create function planned(sql text) returns numeric language plpgsql as $$
declare plan json;
begin
  execute 'explain (format json) ' || sql into plan;
  return plan->0->'Plan'->>'Total Cost';
end $$;
\pset title 'the same scan of jsonb is 1'
with median as (
  select query, form, percentile_cont(0.5) within group (order by ns)::numeric as ns, planned(format(sql, 'form_' || form)) as cost
  from found join queries using (query) group by query, form, sql
)
select m.query, m.form, round(m.ns / (select count(*) from form_jsonb)) as "ns a document", round(m.ns / j.ns, 2) as "time",
  round(m.cost / j.cost, 2) as "planned", round(m.cost / j.cost / (m.ns / j.ns), 2) as "planned to time"
from median m join median j on j.query = m.query and j.form = 'jsonb' where m.form <> 'jsonb' order by m.query, m.form;
\pset title
drop schema costs cascade;
