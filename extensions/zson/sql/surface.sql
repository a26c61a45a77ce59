-- What jsonb can do, on zson: operators, casts, operator classes. Every function is the server's of jsonb behind
-- a view of the document, so this file only says which there are:
--
--   1. parts of a document and changed documents, which are jsonb: -> ->> #> #>> - #- ||
--   2. what a document holds: @> <@ ? ?| ?& @? @@
--   3. equality and order: = <> < <= > >=, with their btree and hash operator classes
--   4. GIN operator classes: zson_ops and zson_path_ops
--   5. casts to scalars
--
-- Attributes of operators are those of jsonb's. Where jsonb stands on both sides of an operator, zson may stand
-- on either side or on both: an unknown literal becomes a zson, a jsonb beside it needs no cast, and an index on
-- a zson column serves a jsonb on the other side. All else that takes jsonb works through the implicit cast to it.

-- 1. Parts of a document and changed documents.
CREATE FUNCTION zson_object_field(zson, text) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR -> (FUNCTION = zson_object_field, LEFTARG = zson, RIGHTARG = text);
CREATE FUNCTION zson_array_element(zson, integer) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR -> (FUNCTION = zson_array_element, LEFTARG = zson, RIGHTARG = integer);
CREATE FUNCTION zson_object_field_text(zson, text) RETURNS text
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR ->> (FUNCTION = zson_object_field_text, LEFTARG = zson, RIGHTARG = text);
CREATE FUNCTION zson_array_element_text(zson, integer) RETURNS text
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR ->> (FUNCTION = zson_array_element_text, LEFTARG = zson, RIGHTARG = integer);
CREATE FUNCTION zson_extract_path(zson, text[]) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR #> (FUNCTION = zson_extract_path, LEFTARG = zson, RIGHTARG = text[]);
CREATE FUNCTION zson_extract_path_text(zson, text[]) RETURNS text
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR #>> (FUNCTION = zson_extract_path_text, LEFTARG = zson, RIGHTARG = text[]);
CREATE FUNCTION zson_delete_key(zson, text) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR - (FUNCTION = zson_delete_key, LEFTARG = zson, RIGHTARG = text);
CREATE FUNCTION zson_delete_index(zson, integer) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR - (FUNCTION = zson_delete_index, LEFTARG = zson, RIGHTARG = integer);
CREATE FUNCTION zson_delete_keys(zson, text[]) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR - (FUNCTION = zson_delete_keys, LEFTARG = zson, RIGHTARG = text[]);
CREATE FUNCTION zson_delete_path(zson, text[]) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR #- (FUNCTION = zson_delete_path, LEFTARG = zson, RIGHTARG = text[]);
CREATE FUNCTION zson_concat(zson, zson) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR || (FUNCTION = zson_concat, LEFTARG = zson, RIGHTARG = zson);
CREATE FUNCTION zson_concat_jsonb(zson, jsonb) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR || (FUNCTION = zson_concat_jsonb, LEFTARG = zson, RIGHTARG = jsonb);
CREATE FUNCTION jsonb_concat_zson(jsonb, zson) RETURNS jsonb
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR || (FUNCTION = jsonb_concat_zson, LEFTARG = jsonb, RIGHTARG = zson);

-- What the planner puts in the place of `doc || patch` that is assigned to a zson. Stable, so that postgres_fdw sends it nowhere: the
-- integer is the number of a profile here.
CREATE FUNCTION zson_concat_assigned(zson, jsonb, integer) RETURNS zson
  AS 'MODULE_PATHNAME' LANGUAGE C STABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_assign_support(internal) RETURNS internal
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
ALTER FUNCTION jsonb_to_zson(jsonb, integer, boolean) SUPPORT zson_assign_support;

-- 2. What a document holds.
CREATE FUNCTION zson_contains(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR @> (
  FUNCTION = zson_contains, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = <@, RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_contains_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR @> (
  FUNCTION = zson_contains_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = <@, RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION jsonb_contains_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR @> (
  FUNCTION = jsonb_contains_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = <@, RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_contained(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <@ (
  FUNCTION = zson_contained, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = @>, RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_contained_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <@ (
  FUNCTION = zson_contained_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = @>, RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION jsonb_contained_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <@ (
  FUNCTION = jsonb_contained_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = @>, RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_exists(zson, text) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR ? (
  FUNCTION = zson_exists, LEFTARG = zson, RIGHTARG = text,
  RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_exists_any(zson, text[]) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR ?| (
  FUNCTION = zson_exists_any, LEFTARG = zson, RIGHTARG = text[],
  RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_exists_all(zson, text[]) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR ?& (
  FUNCTION = zson_exists_all, LEFTARG = zson, RIGHTARG = text[],
  RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_path_exists(zson, jsonpath) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR @? (
  FUNCTION = zson_path_exists, LEFTARG = zson, RIGHTARG = jsonpath,
  RESTRICT = matchingsel, JOIN = matchingjoinsel
);
CREATE FUNCTION zson_path_match(zson, jsonpath) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR @@ (
  FUNCTION = zson_path_match, LEFTARG = zson, RIGHTARG = jsonpath,
  RESTRICT = matchingsel, JOIN = matchingjoinsel
);

-- 3. Equality and order.
CREATE FUNCTION zson_eq(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR = (
  FUNCTION = zson_eq, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES
);
CREATE FUNCTION zson_eq_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR = (
  FUNCTION = zson_eq_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES
);
CREATE FUNCTION jsonb_eq_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR = (
  FUNCTION = jsonb_eq_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = =, NEGATOR = <>, RESTRICT = eqsel, JOIN = eqjoinsel, HASHES, MERGES
);
CREATE FUNCTION zson_ne(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <> (
  FUNCTION = zson_ne, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel
);
CREATE FUNCTION zson_ne_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <> (
  FUNCTION = zson_ne_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel
);
CREATE FUNCTION jsonb_ne_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <> (
  FUNCTION = jsonb_ne_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = <>, NEGATOR = =, RESTRICT = neqsel, JOIN = neqjoinsel
);
CREATE FUNCTION zson_lt(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR < (
  FUNCTION = zson_lt, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel
);
CREATE FUNCTION zson_lt_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR < (
  FUNCTION = zson_lt_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel
);
CREATE FUNCTION jsonb_lt_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR < (
  FUNCTION = jsonb_lt_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = >, NEGATOR = >=, RESTRICT = scalarltsel, JOIN = scalarltjoinsel
);
CREATE FUNCTION zson_le(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <= (
  FUNCTION = zson_le, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel
);
CREATE FUNCTION zson_le_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <= (
  FUNCTION = zson_le_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel
);
CREATE FUNCTION jsonb_le_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR <= (
  FUNCTION = jsonb_le_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = >=, NEGATOR = >, RESTRICT = scalarlesel, JOIN = scalarlejoinsel
);
CREATE FUNCTION zson_gt(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR > (
  FUNCTION = zson_gt, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel
);
CREATE FUNCTION zson_gt_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR > (
  FUNCTION = zson_gt_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel
);
CREATE FUNCTION jsonb_gt_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR > (
  FUNCTION = jsonb_gt_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = <, NEGATOR = <=, RESTRICT = scalargtsel, JOIN = scalargtjoinsel
);
CREATE FUNCTION zson_ge(zson, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR >= (
  FUNCTION = zson_ge, LEFTARG = zson, RIGHTARG = zson,
  COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel
);
CREATE FUNCTION zson_ge_jsonb(zson, jsonb) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR >= (
  FUNCTION = zson_ge_jsonb, LEFTARG = zson, RIGHTARG = jsonb,
  COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel
);
CREATE FUNCTION jsonb_ge_zson(jsonb, zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR >= (
  FUNCTION = jsonb_ge_zson, LEFTARG = jsonb, RIGHTARG = zson,
  COMMUTATOR = <=, NEGATOR = <, RESTRICT = scalargesel, JOIN = scalargejoinsel
);
CREATE FUNCTION zson_cmp(zson, zson) RETURNS integer
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_cmp_jsonb(zson, jsonb) RETURNS integer
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION jsonb_cmp_zson(jsonb, zson) RETURNS integer
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_sortsupport(internal) RETURNS void
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_hash(zson) RETURNS integer
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_hash_extended(zson, bigint) RETURNS bigint
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;

-- The families hold all four pairs of the two types, so that joins and indexes may mix them. No support
-- function 4: equal documents need not be stored alike, so btree must not deduplicate them.
CREATE OPERATOR FAMILY zson_ops USING btree;
CREATE OPERATOR CLASS zson_ops DEFAULT FOR TYPE zson USING btree FAMILY zson_ops AS
  OPERATOR 1 <, OPERATOR 2 <=, OPERATOR 3 =, OPERATOR 4 >=, OPERATOR 5 >,
  FUNCTION 1 zson_cmp(zson, zson), FUNCTION 2 zson_sortsupport(internal);
ALTER OPERATOR FAMILY zson_ops USING btree ADD
  OPERATOR 1 < (zson, jsonb), OPERATOR 2 <= (zson, jsonb), OPERATOR 3 = (zson, jsonb),
  OPERATOR 4 >= (zson, jsonb), OPERATOR 5 > (zson, jsonb),
  FUNCTION 1 (zson, jsonb) zson_cmp_jsonb(zson, jsonb),
  OPERATOR 1 < (jsonb, zson), OPERATOR 2 <= (jsonb, zson), OPERATOR 3 = (jsonb, zson),
  OPERATOR 4 >= (jsonb, zson), OPERATOR 5 > (jsonb, zson),
  FUNCTION 1 (jsonb, zson) jsonb_cmp_zson(jsonb, zson),
  OPERATOR 1 pg_catalog.< (jsonb, jsonb), OPERATOR 2 pg_catalog.<= (jsonb, jsonb), OPERATOR 3 pg_catalog.= (jsonb, jsonb),
  OPERATOR 4 pg_catalog.>= (jsonb, jsonb), OPERATOR 5 pg_catalog.> (jsonb, jsonb),
  FUNCTION 1 (jsonb, jsonb) pg_catalog.jsonb_cmp(jsonb, jsonb);

CREATE OPERATOR FAMILY zson_ops USING hash;
CREATE OPERATOR CLASS zson_ops DEFAULT FOR TYPE zson USING hash FAMILY zson_ops AS
  OPERATOR 1 =,
  FUNCTION 1 zson_hash(zson), FUNCTION 2 zson_hash_extended(zson, bigint);
ALTER OPERATOR FAMILY zson_ops USING hash ADD
  OPERATOR 1 = (zson, jsonb), OPERATOR 1 = (jsonb, zson), OPERATOR 1 pg_catalog.= (jsonb, jsonb),
  FUNCTION 1 (jsonb, jsonb) pg_catalog.jsonb_hash(jsonb),
  FUNCTION 2 (jsonb, jsonb) pg_catalog.jsonb_hash_extended(jsonb, bigint);

-- 4. GIN. Strategy numbers are jsonb's; 17 is our own, a jsonb on the right side.
CREATE FUNCTION zson_gin_extract(zson, internal, internal) RETURNS internal
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_gin_extract_query(zson, internal, smallint, internal, internal, internal, internal)
  RETURNS internal
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_gin_consistent(internal, smallint, zson, integer, internal, internal, internal, internal)
  RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_gin_triconsistent(internal, smallint, zson, integer, internal, internal, internal)
  RETURNS "char"
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_gin_extract_path(zson, internal, internal) RETURNS internal
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_gin_extract_query_path(zson, internal, smallint, internal, internal, internal, internal)
  RETURNS internal
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_gin_consistent_path(internal, smallint, zson, integer, internal, internal, internal, internal)
  RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE FUNCTION zson_gin_triconsistent_path(internal, smallint, zson, integer, internal, internal, internal)
  RETURNS "char"
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE OPERATOR CLASS zson_ops DEFAULT FOR TYPE zson USING gin AS
  OPERATOR 7 @> (zson, zson), OPERATOR 17 @> (zson, jsonb),
  OPERATOR 9 ? (zson, text), OPERATOR 10 ?| (zson, text[]), OPERATOR 11 ?& (zson, text[]),
  OPERATOR 15 @? (zson, jsonpath), OPERATOR 16 @@ (zson, jsonpath),
  FUNCTION 1 pg_catalog.gin_compare_jsonb(text, text),
  FUNCTION 2 zson_gin_extract(zson, internal, internal),
  FUNCTION 3 zson_gin_extract_query(zson, internal, smallint, internal, internal, internal, internal),
  FUNCTION 4 zson_gin_consistent(internal, smallint, zson, integer,
    internal, internal, internal, internal),
  FUNCTION 6 zson_gin_triconsistent(internal, smallint, zson, integer, internal, internal, internal),
  STORAGE text;
CREATE OPERATOR CLASS zson_path_ops FOR TYPE zson USING gin AS
  OPERATOR 7 @> (zson, zson), OPERATOR 17 @> (zson, jsonb),
  OPERATOR 15 @? (zson, jsonpath), OPERATOR 16 @@ (zson, jsonpath),
  FUNCTION 1 pg_catalog.btint4cmp(integer, integer),
  FUNCTION 2 zson_gin_extract_path(zson, internal, internal),
  FUNCTION 3 zson_gin_extract_query_path(zson, internal, smallint, internal, internal, internal, internal),
  FUNCTION 4 zson_gin_consistent_path(internal, smallint, zson, integer,
    internal, internal, internal, internal),
  FUNCTION 6 zson_gin_triconsistent_path(internal, smallint, zson, integer, internal, internal, internal),
  STORAGE integer;

-- 5. Casts to scalars.
CREATE FUNCTION zson_to_bool(zson) RETURNS boolean
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS boolean) WITH FUNCTION zson_to_bool(zson);
CREATE FUNCTION zson_to_numeric(zson) RETURNS numeric
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS numeric) WITH FUNCTION zson_to_numeric(zson);
CREATE FUNCTION zson_to_int2(zson) RETURNS smallint
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS smallint) WITH FUNCTION zson_to_int2(zson);
CREATE FUNCTION zson_to_int4(zson) RETURNS integer
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS integer) WITH FUNCTION zson_to_int4(zson);
CREATE FUNCTION zson_to_int8(zson) RETURNS bigint
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS bigint) WITH FUNCTION zson_to_int8(zson);
CREATE FUNCTION zson_to_float4(zson) RETURNS real
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS real) WITH FUNCTION zson_to_float4(zson);
CREATE FUNCTION zson_to_float8(zson) RETURNS double precision
  AS 'MODULE_PATHNAME' LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE;
CREATE CAST (zson AS double precision) WITH FUNCTION zson_to_float8(zson);

-- Reading a document is a decompression. Scans cost what they take, compared with the same scan of plain jsonb, at 75 of the planner's
-- operators for a dictionary and zstd, at half of that for lz4, at three times as much untrained (docs/operating/zson.md has the figures). One
-- number serves all. What reads a part of a document costs a little more than jsonb's: by shapes, which are the default where they are
-- best, it takes no longer. The functions that look only at what is stored, and those of indexes, cost what others do.
DO $$
DECLARE
  function pg_catalog.regprocedure;
BEGIN
  FOR function IN
    SELECT p.oid FROM pg_catalog.pg_proc p
    WHERE 'zson'::pg_catalog.regtype OPERATOR(pg_catalog.=) ANY (p.proargtypes::pg_catalog.oid[])
      AND p.prokind OPERATOR(pg_catalog.=) 'f'::"char"
      AND p.proname::pg_catalog.text OPERATOR(pg_catalog.<>) ALL ('{zson_info,zson_info_of_1_1,zson_is_current,zson_coerce}'::pg_catalog.text[])
      AND p.proname::pg_catalog.text OPERATOR(pg_catalog.!~~) 'zson\_gin%'
      AND EXISTS (SELECT FROM pg_catalog.pg_depend d
                  WHERE d.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
                    AND d.objid OPERATOR(pg_catalog.=) p.oid AND d.deptype OPERATOR(pg_catalog.=) 'e'::"char")
  LOOP
    EXECUTE pg_catalog.format('ALTER FUNCTION %s COST 75', function);
  END LOOP;
END
$$;
ALTER FUNCTION zson_object_field(zson, text) COST 5;
ALTER FUNCTION zson_object_field_text(zson, text) COST 5;
ALTER FUNCTION zson_array_element(zson, integer) COST 5;
ALTER FUNCTION zson_array_element_text(zson, integer) COST 5;
ALTER FUNCTION zson_extract_path(zson, text[]) COST 5;
ALTER FUNCTION zson_extract_path_text(zson, text[]) COST 5;
ALTER FUNCTION zson_exists(zson, text) COST 5;
ALTER FUNCTION zson_exists_any(zson, text[]) COST 5;
ALTER FUNCTION zson_exists_all(zson, text[]) COST 5;
ALTER FUNCTION zson_contains(zson, zson) COST 5;
ALTER FUNCTION zson_contains_jsonb(zson, jsonb) COST 5;
ALTER FUNCTION jsonb_contained_zson(jsonb, zson) COST 5;

-- After an update from 1.1: which of its indexes have to be made again. Nothing on a new extension.
DO $$
DECLARE
  old record;
BEGIN
  FOR old IN SELECT * FROM zson_old_indexes LOOP
    RAISE WARNING 'zson: index % serves only what is written with doc::jsonb', old.index
      USING DETAIL = 'Operators on zson are its own since version 2, so queries, and ON CONFLICT, no longer find it.',
            HINT = COALESCE(
              'Rename it, make it anew, and drop the old one (zson_old_indexes lists all): ' OPERATOR(pg_catalog.||) old.statement,
              'Make one without the cast to jsonb, and drop this one: how, the update cannot tell.');
  END LOOP;
END
$$;
