-- What version 1.1 of the original has, where there was nothing: from here on both ways are one, in catalog.sql.
CREATE TYPE zson;
CREATE FUNCTION zson_in(cstring, oid, integer) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_out(zson) RETURNS cstring
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE TYPE zson (
  INPUT = zson_in, OUTPUT = zson_out, INTERNALLENGTH = VARIABLE, ALIGNMENT = int4, CATEGORY = 'U'
);

CREATE FUNCTION jsonb_to_zson(jsonb) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_to_jsonb(zson) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS jsonb) WITH FUNCTION zson_to_jsonb(zson) AS IMPLICIT;

-- Where the original kept its words. Empty here: it is for restoring dumps of databases that had version 1.1.
CREATE TABLE zson_dict (
  dict_id serial NOT NULL,
  word_id integer NOT NULL,
  word text NOT NULL,
  PRIMARY KEY (dict_id, word_id)
);
