\echo Use "CREATE EXTENSION zson VERSION '1.1'" to load this file. \quit
-- For tests: what a database holds that had the original zson 1.1, with the original's names, signatures and
-- properties. Its functions are our library's; what they wrote, the tests write themselves.
CREATE TYPE zson;

CREATE TABLE zson_dict (dict_id serial NOT NULL, word_id integer NOT NULL, word text NOT NULL, PRIMARY KEY (dict_id, word_id));
SELECT pg_catalog.pg_extension_config_dump('zson_dict', '');

CREATE FUNCTION zson_learn(tables_and_columns text[][], max_examples int DEFAULT 10000, min_length int DEFAULT 2,
                           max_length int DEFAULT 128, min_count int DEFAULT 2) RETURNS text
  LANGUAGE plpgsql AS $$ BEGIN RAISE 'this is not the original'; END $$;
CREATE FUNCTION zson_extract_strings(x jsonb) RETURNS text[]
  LANGUAGE plpgsql AS $$ BEGIN RAISE 'this is not the original'; END $$;

CREATE FUNCTION zson_in(cstring) RETURNS zson AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE;
CREATE FUNCTION zson_out(zson) RETURNS cstring AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE;
CREATE TYPE zson (INTERNALLENGTH = -1, INPUT = zson_in, OUTPUT = zson_out, STORAGE = extended);

CREATE FUNCTION jsonb_to_zson(jsonb) RETURNS zson AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE;
CREATE FUNCTION zson_to_jsonb(zson) RETURNS jsonb AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE;
CREATE CAST (jsonb AS zson) WITH FUNCTION jsonb_to_zson(jsonb) AS ASSIGNMENT;
CREATE CAST (zson AS jsonb) WITH FUNCTION zson_to_jsonb(zson) AS IMPLICIT;
CREATE FUNCTION zson_info(zson) RETURNS cstring AS 'MODULE_PATHNAME' LANGUAGE C STRICT IMMUTABLE;
