-- What version 1.1 of the original has, brought to where fresh.sql begins. Documents it wrote stay as they are and
-- are read by the words of zson_dict; what is written from now on is version 2's.
-- The input function keeps its one declared argument: a type's cannot be changed. The server passes it three.
ALTER FUNCTION zson_in(cstring) PARALLEL SAFE;
ALTER FUNCTION zson_out(zson) PARALLEL SAFE;
ALTER FUNCTION jsonb_to_zson(jsonb) PARALLEL SAFE;
ALTER FUNCTION zson_to_jsonb(zson) PARALLEL SAFE;
-- Columns that exist, for what is written to them from now on.
DO $$
DECLARE
  place record;
BEGIN
  FOR place IN
    SELECT a.attrelid::pg_catalog.regclass AS relation, a.attname
    FROM pg_catalog.pg_attribute a
    JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) a.attrelid
    WHERE a.atttypid OPERATOR(pg_catalog.=) 'zson'::pg_catalog.regtype AND NOT a.attisdropped
      AND c.relkind OPERATOR(pg_catalog.=) ANY ('{r,p,m}'::"char"[]) AND a.attnum OPERATOR(pg_catalog.>) 0
      AND NOT pg_catalog.pg_is_other_temp_schema(c.relnamespace)
  LOOP
    EXECUTE pg_catalog.format('ALTER %s %s ALTER COLUMN %I SET STORAGE EXTERNAL',
      CASE (SELECT relkind FROM pg_catalog.pg_class WHERE oid OPERATOR(pg_catalog.=) place.relation)
        WHEN 'm' THEN 'MATERIALIZED VIEW' ELSE 'TABLE' END, place.relation, place.attname);
  END LOOP;
END
$$;
-- Its result was a cstring. A view that calls it keeps it, under another name.
DO $$
BEGIN
  IF EXISTS (SELECT FROM pg_catalog.pg_depend
             WHERE refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::pg_catalog.regclass
               AND refobjid OPERATOR(pg_catalog.=) 'zson_info(zson)'::pg_catalog.regprocedure
               AND deptype OPERATOR(pg_catalog.=) 'n'::"char") THEN
    ALTER FUNCTION zson_info(zson) RENAME TO zson_info_of_1_1;
  ELSE
    DROP FUNCTION zson_info(zson);
  END IF;
END
$$;
DROP CAST (jsonb AS zson);
-- A dump carries documents as text, and a new database has no use for the words.
ALTER EXTENSION zson DROP TABLE zson_dict;
ALTER EXTENSION zson ADD TABLE zson_dict;
