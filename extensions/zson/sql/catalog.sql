-- The type's other functions, casts, profiles, dictionaries and what works on them. Operators and operator classes: surface.sql.

CREATE FUNCTION zson_recv(internal, oid, integer) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_send(zson) RETURNS bytea
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_typmod_in(cstring[]) RETURNS integer
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL UNSAFE;
CREATE FUNCTION zson_typmod_out(integer) RETURNS cstring
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_subscript_handler(internal) RETURNS internal
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
-- What is compressed is not to be compressed again: EXTERNAL.
ALTER TYPE zson SET (RECEIVE = zson_recv, SEND = zson_send, TYPMOD_IN = zson_typmod_in,
  TYPMOD_OUT = zson_typmod_out, SUBSCRIPT = zson_subscript_handler, STORAGE = external);

CREATE FUNCTION jsonb_to_zson(jsonb, integer, boolean) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION json_to_zson(json, integer, boolean) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_to_json(zson) RETURNS json
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_coerce(zson, integer, boolean) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (jsonb AS zson) WITH FUNCTION jsonb_to_zson(jsonb, integer, boolean) AS ASSIGNMENT;
CREATE CAST (json AS zson) WITH FUNCTION json_to_zson(json, integer, boolean) AS ASSIGNMENT;
-- to_jsonb, row_to_json, jsonb_agg and their kind look for this one.
CREATE CAST (zson AS json) WITH FUNCTION zson_to_json(zson) AS ASSIGNMENT;
CREATE CAST (zson AS zson) WITH FUNCTION zson_coerce(zson, integer, boolean) AS IMPLICIT;

-- A profile is what columns share that are declared zson('its name'): a codec and a succession of dictionaries. Its
-- id is the columns' typmod. Profile 0 is that of columns declared zson.
CREATE SEQUENCE zson_profile_id AS integer MINVALUE 1;
CREATE TABLE zson_profile (
  id integer PRIMARY KEY,
  name text COLLATE "C" NOT NULL UNIQUE CHECK (octet_length(name) BETWEEN 1 AND 63),
  codec text COLLATE "C"
) WITH (user_catalog_table = true);
INSERT INTO zson_profile (id, name) VALUES (0, 'default');
COMMENT ON COLUMN zson_profile.codec IS 'what documents are written with, as zson_set_codec set it; null: what the dictionary was trained for, or zstd:3';

-- The bytes of a dictionary hold parts of documents. Only roles that may read every table see them; for others
-- they print as nothing, so that a dump by any role succeeds.
CREATE TYPE zson_dictionary_bytes;
CREATE FUNCTION zson_dictionary_bytes_in(cstring) RETURNS zson_dictionary_bytes
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_dictionary_bytes_out(zson_dictionary_bytes) RETURNS cstring
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE TYPE zson_dictionary_bytes (
  INPUT = zson_dictionary_bytes_in, OUTPUT = zson_dictionary_bytes_out,
  INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, STORAGE = external
);

CREATE SEQUENCE zson_dictionary_id AS integer MINVALUE 1;
CREATE TABLE zson_dictionary (
  id integer PRIMARY KEY,
  profile text COLLATE "C" NOT NULL,
  created timestamptz NOT NULL,
  codec text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  size integer NOT NULL,
  hash bytea NOT NULL,
  documents bigint NOT NULL,
  jsonb_bytes bigint NOT NULL,
  before_bytes bigint NOT NULL,
  after_bytes bigint NOT NULL,
  content zson_dictionary_bytes
) WITH (user_catalog_table = true);
CREATE INDEX zson_dictionary_profile ON zson_dictionary (profile, created, id);
COMMENT ON TABLE zson_dictionary IS 'dictionaries, immutable; the newest of a profile is what its columns are written with';
COMMENT ON COLUMN zson_dictionary.kind IS 'trained, documents, words, shapes, or none: that no dictionary was best';
COMMENT ON COLUMN zson_dictionary.documents IS 'documents it was measured on and not trained from';
COMMENT ON COLUMN zson_dictionary.jsonb_bytes IS 'their size as jsonb';
COMMENT ON COLUMN zson_dictionary.before_bytes IS 'their size with the dictionary before it';
COMMENT ON COLUMN zson_dictionary.after_bytes IS 'their size with this one';
COMMENT ON COLUMN zson_dictionary.content IS 'shown only to roles that may read every table: it holds parts of documents';
GRANT SELECT ON zson_profile, zson_dictionary TO PUBLIC;

-- Ids are local to a database: what a dump brings gets new ones, and what is there already stays.
CREATE FUNCTION zson_profile_load() RETURNS trigger AS 'MODULE_PATHNAME' LANGUAGE C;
CREATE FUNCTION zson_dictionary_load() RETURNS trigger AS 'MODULE_PATHNAME' LANGUAGE C;
CREATE FUNCTION zson_catalog_keep() RETURNS trigger AS 'MODULE_PATHNAME' LANGUAGE C;
REVOKE EXECUTE ON FUNCTION zson_profile_load(), zson_dictionary_load(), zson_catalog_keep() FROM PUBLIC;
CREATE TRIGGER zson_profile_load BEFORE INSERT ON zson_profile
  FOR EACH ROW EXECUTE FUNCTION zson_profile_load();
CREATE TRIGGER zson_profile_keep BEFORE UPDATE OR DELETE ON zson_profile
  FOR EACH ROW EXECUTE FUNCTION zson_catalog_keep();
CREATE TRIGGER zson_profile_keep_all BEFORE TRUNCATE ON zson_profile
  FOR EACH STATEMENT EXECUTE FUNCTION zson_catalog_keep();
CREATE TRIGGER zson_dictionary_load BEFORE INSERT ON zson_dictionary
  FOR EACH ROW EXECUTE FUNCTION zson_dictionary_load();
CREATE TRIGGER zson_dictionary_keep BEFORE UPDATE OR DELETE ON zson_dictionary
  FOR EACH ROW EXECUTE FUNCTION zson_catalog_keep();
CREATE TRIGGER zson_dictionary_keep_all BEFORE TRUNCATE ON zson_dictionary
  FOR EACH STATEMENT EXECUTE FUNCTION zson_catalog_keep();
-- Under logical replication too: a publication of all tables brings a publisher's rows.
ALTER TABLE zson_profile ENABLE ALWAYS TRIGGER zson_profile_load, ENABLE ALWAYS TRIGGER zson_profile_keep,
  ENABLE ALWAYS TRIGGER zson_profile_keep_all;
ALTER TABLE zson_dictionary ENABLE ALWAYS TRIGGER zson_dictionary_load, ENABLE ALWAYS TRIGGER zson_dictionary_keep,
  ENABLE ALWAYS TRIGGER zson_dictionary_keep_all;
SELECT pg_catalog.pg_extension_config_dump('zson_profile', '');
SELECT pg_catalog.pg_extension_config_dump('zson_dictionary', '');

-- Words of version 1.1, for the documents it wrote.
REVOKE ALL ON zson_dict FROM PUBLIC;
ALTER TABLE zson_dict SET (user_catalog_table = true);

CREATE FUNCTION zson_dictionary_use(dictionary integer, OUT written bigint, OUT misses bigint)
  AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION zson_dictionary_use(integer) IS 'documents written with a dictionary of shapes since the server started, and how many of them are unlike those it was learned from';
CREATE VIEW zson_dictionaries AS
  SELECT d.id, d.profile, d.codec, d.kind, d.size, d.created, d.documents, d.jsonb_bytes, d.before_bytes,
         d.after_bytes, pg_catalog.encode(d.hash, 'hex') AS hash,
         NOT EXISTS (SELECT FROM zson_dictionary n
                     WHERE n.profile = d.profile AND (n.created, n.id) > (d.created, d.id))
         AND EXISTS (SELECT FROM zson_profile p WHERE p.name = d.profile) AS current,
         u.written, u.misses
  FROM zson_dictionary d, LATERAL zson_dictionary_use(d.id) u;
GRANT SELECT ON zson_dictionaries TO PUBLIC;

CREATE OR REPLACE FUNCTION zson_extract_strings(x jsonb) RETURNS text[]
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_info(zson) RETURNS text
  AS 'MODULE_PATHNAME', 'zson_info_text' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_dictionary_ids(anyelement) RETURNS integer[]
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION zson_dictionary_ids(anyelement) IS 'ids of the dictionaries that a value needs, whatever it is made of; of version 1.1, negative';
CREATE FUNCTION zson_reencode(zson, profile text DEFAULT 'default') RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION zson_reencode(zson, text) IS 'the same document, written anew with what its profile writes now';

CREATE FUNCTION zson_is_current(zson, profile text DEFAULT 'default') RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
COMMENT ON FUNCTION zson_is_current(zson, text) IS 'whether a document is written as its profile writes now';

CREATE FUNCTION zson_set_codec(profile text, codec text) RETURNS void
  AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
CREATE OR REPLACE FUNCTION zson_learn(tables_and_columns text[], max_examples integer DEFAULT 10000, min_length integer DEFAULT 2,
                           max_length integer DEFAULT 128, min_count integer DEFAULT 2) RETURNS text
  AS 'MODULE_PATHNAME', 'zson_learn_strings' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION zson_learn(table_name text, column_name text) RETURNS text
  AS 'MODULE_PATHNAME', 'zson_learn_column' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE FUNCTION zson_learn(table_name text, column_name text, profile text, anew boolean DEFAULT false) RETURNS text
  AS 'MODULE_PATHNAME', 'zson_learn_profile' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION zson_learn(text, text, text, boolean) IS 'trains a profile, which it makes if it is new, on a column of any type of JSON; anew: keeps the result even if it saves nothing';
CREATE FUNCTION zson_drop_profile(profile text) RETURNS void
  AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
COMMENT ON FUNCTION zson_drop_profile(text) IS 'removes a profile that no column has';
CREATE FUNCTION zson_estimate(table_name text, column_name text,
    OUT codec text, OUT dictionary integer, OUT documents bigint, OUT jsonb_bytes bigint, OUT bytes bigint,
    OUT ratio double precision, OUT encode_ns double precision, OUT decode_ns double precision) RETURNS SETOF record
  AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE STRICT PARALLEL UNSAFE;
CREATE PROCEDURE zson_reencode(table_name text, column_name text, batch integer DEFAULT 1000,
                               pause_ms integer DEFAULT 0)
  AS 'MODULE_PATHNAME', 'zson_reencode_table' LANGUAGE C;
CREATE FUNCTION zson_vacuum_dictionaries(OUT id integer, OUT removed boolean, OUT reason text) RETURNS SETOF record
  AS 'MODULE_PATHNAME' LANGUAGE C VOLATILE PARALLEL UNSAFE;
REVOKE EXECUTE ON FUNCTION zson_set_codec(text, text), zson_learn(text[], integer, integer, integer, integer),
  zson_learn(text, text), zson_learn(text, text, text, boolean), zson_drop_profile(text),
  zson_vacuum_dictionaries() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION zson_set_codec(text, text), zson_learn(text[], integer, integer, integer, integer),
  zson_learn(text, text), zson_learn(text, text, text, boolean), zson_drop_profile(text),
  zson_vacuum_dictionaries() TO @extowner@;
-- A dump that the extension's owner restores copies rows into them; triggers check what comes and give it new ids.
GRANT INSERT ON zson_profile, zson_dictionary TO @extowner@;

-- What an index of version 1.1 is over is jsonb: `doc->>'k'` meant `doc::jsonb->>'k'`. Since zson has operators of its
-- own it does not, and such an index serves only what is written `doc::jsonb`. The statement makes the one that serves: the
-- cast goes where it is an operator's operand or a whole key. A function of jsonb still takes a zson by the cast, and what is cast
-- further was written so, hence these stay. No statement for a cast of something else than a column: only its author knows.
-- A partitioned index stands for those of the partitions.
CREATE VIEW zson_old_indexes AS
  SELECT i.indexrelid::pg_catalog.regclass AS index, i.indrelid::pg_catalog.regclass AS "table",
         CASE WHEN renewed.definition OPERATOR(pg_catalog.<>) whole.definition THEN renewed.definition END AS statement
  FROM pg_catalog.pg_index i
  JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) i.indexrelid
  LEFT JOIN pg_catalog.pg_tablespace s ON s.oid OPERATOR(pg_catalog.=) c.reltablespace
  LEFT JOIN pg_catalog.pg_constraint x ON x.conindid OPERATOR(pg_catalog.=) i.indexrelid AND x.contype OPERATOR(pg_catalog.=) 'x'::"char",
  LATERAL (SELECT pg_catalog.string_agg(pg_catalog.regexp_replace(pg_catalog.quote_ident(a.attname),
                    '([][\\^$.|?*+(){}])', '\\\1', 'g'), '|') AS names
           FROM pg_catalog.pg_attribute a
           JOIN pg_catalog.pg_type t ON t.oid OPERATOR(pg_catalog.=) a.atttypid
           WHERE a.attrelid OPERATOR(pg_catalog.=) i.indrelid
             AND 'zson'::pg_catalog.regtype OPERATOR(pg_catalog.=) ANY (ARRAY[t.oid, t.typbasetype])
          ) AS zson_columns,
  -- As pg_get_indexdef has it, but with the tablespace, with the partitions, and with the constraint.
  LATERAL (SELECT pg_catalog.replace(pg_catalog.pg_get_indexdef(i.indexrelid),
                    pg_catalog.concat(' INDEX ', pg_catalog.quote_ident(c.relname), ' ON ONLY '),
                    pg_catalog.concat(' INDEX ', pg_catalog.quote_ident(c.relname), ' ON ')) AS definition,
                  pg_catalog.concat(' TABLESPACE ', pg_catalog.quote_ident(s.spcname)) AS tablespace) AS plain,
  LATERAL (SELECT CASE
             WHEN x.oid IS NOT NULL THEN pg_catalog.concat('ALTER TABLE ', x.conrelid::pg_catalog.regclass, ' ADD CONSTRAINT ',
               pg_catalog.quote_ident(x.conname), ' ', pg_catalog.pg_get_constraintdef(x.oid))
             WHEN s.oid IS NULL THEN plain.definition
             WHEN i.indpred IS NULL THEN pg_catalog.concat(plain.definition, plain.tablespace)
             ELSE pg_catalog.regexp_replace(plain.definition, '^(([^''"]|''[^'']*''|"[^"]*")*)( WHERE .*)$',
               pg_catalog.concat('\1', pg_catalog.replace(plain.tablespace, '\', '\\'), '\3'))
           END AS definition) AS whole,
  LATERAL (SELECT COALESCE(
             pg_catalog.regexp_replace(pg_catalog.regexp_replace(pg_catalog.regexp_replace(pg_catalog.regexp_replace(
               whole.definition,
               pg_catalog.concat('(?<=[( ])\(\((', zson_columns.names, ')\)::jsonb\) jsonb_path_ops'), '\1 zson_path_ops', 'g'),
               pg_catalog.concat('(?<=[( ])\(\((', zson_columns.names, ')\)::jsonb\)(?=[,) ])'), '\1', 'g'),
               pg_catalog.concat('\((', zson_columns.names, ')\)::jsonb(?= )'), '\1', 'g'),
               pg_catalog.concat('(?<=[^,] )\((', zson_columns.names, ')\)::jsonb'), '\1', 'g'),
             whole.definition) AS definition) AS renewed
  WHERE NOT c.relispartition
    AND EXISTS (SELECT FROM pg_catalog.pg_depend d
                WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::pg_catalog.regclass
                  AND d.objid OPERATOR(pg_catalog.=) i.indexrelid
                  AND d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
                  AND d.refobjid OPERATOR(pg_catalog.=) 'zson_to_jsonb(zson)'::pg_catalog.regprocedure)
    AND (renewed.definition OPERATOR(pg_catalog.<>) whole.definition
         OR renewed.definition OPERATOR(pg_catalog.~) '\)(::zson)?\)::jsonb ');
GRANT SELECT ON zson_old_indexes TO PUBLIC;
COMMENT ON VIEW zson_old_indexes IS 'indexes over doc::jsonb, as version 1.1 made them, and the statement for one over doc';
