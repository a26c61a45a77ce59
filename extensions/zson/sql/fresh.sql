-- The type, where there was none. from-1.1.sql does the same to the original's type.
CREATE TYPE zson;
CREATE FUNCTION zson_in(cstring, oid, integer) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_out(zson) RETURNS cstring
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
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
-- What is compressed is not to be compressed again: EXTERNAL. The category is jsonb's.
CREATE TYPE zson (
  INPUT = zson_in, OUTPUT = zson_out, RECEIVE = zson_recv, SEND = zson_send,
  TYPMOD_IN = zson_typmod_in, TYPMOD_OUT = zson_typmod_out, SUBSCRIPT = zson_subscript_handler,
  INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, STORAGE = external, CATEGORY = 'U'
);

CREATE FUNCTION jsonb_to_zson(jsonb) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_to_jsonb(zson) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS jsonb) WITH FUNCTION zson_to_jsonb(zson) AS IMPLICIT;

CREATE FUNCTION zson_extract_strings(x jsonb) RETURNS text[]
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- Where the original kept its words. Empty here: it is for restoring dumps of databases that had version 1.1.
CREATE TABLE zson_dict (
  dict_id serial NOT NULL,
  word_id integer NOT NULL,
  word text NOT NULL,
  PRIMARY KEY (dict_id, word_id)
);
