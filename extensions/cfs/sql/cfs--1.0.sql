\echo Use "CREATE EXTENSION cfs" to load this file. \quit

CREATE FUNCTION cfs_version() RETURNS text
LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'cfs_version_wrapper';
COMMENT ON FUNCTION cfs_version() IS 'version of the library';

CREATE FUNCTION cfs_setting_in_force(tablespace oid) RETURNS text
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_setting_in_force_wrapper';
COMMENT ON FUNCTION cfs_setting_in_force(oid) IS 'compression of new files and pages of a tablespace; null: it never had a setting';

CREATE FUNCTION cfs_segments(
    tablespace oid, file oid,
    OUT fork text, OUT segment integer, OUT form text, OUT virtual_bytes bigint, OUT disk_bytes bigint,
    OUT live_bytes bigint, OUT garbage_bytes bigint, OUT dictionaries integer)
RETURNS SETOF record
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_segments_wrapper';
COMMENT ON FUNCTION cfs_segments(oid, oid) IS 'files of a relation of this database, by its tablespace and filenode';

CREATE FUNCTION cfs_gc_file(tablespace oid, file oid) RETURNS bigint
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_gc_file_wrapper';
REVOKE ALL ON FUNCTION cfs_gc_file(oid, oid) FROM PUBLIC;

CREATE VIEW cfs_tablespaces AS
SELECT t.oid, t.spcname AS name, substr(l.label, length('compression=') + 1) AS compression,
       cfs_setting_in_force(t.oid) AS in_force
FROM pg_catalog.pg_tablespace t
LEFT JOIN pg_catalog.pg_shseclabel l
       ON l.objoid = t.oid AND l.classoid = 'pg_catalog.pg_tablespace'::pg_catalog.regclass AND l.provider = 'cfs'
WHERE l.label IS NOT NULL OR cfs_setting_in_force(t.oid) IS NOT NULL;
GRANT SELECT ON cfs_tablespaces TO PUBLIC;

-- Relations with a file of their own in a tablespace that has a setting.
CREATE VIEW cfs_relations AS
SELECT c.oid::pg_catalog.regclass AS relation, t.spcname AS tablespace,
       sum(s.virtual_bytes)::bigint AS virtual_bytes, sum(s.disk_bytes)::bigint AS disk_bytes,
       round(sum(s.virtual_bytes) / nullif(sum(s.disk_bytes), 0), 2) AS ratio,
       sum(s.garbage_bytes)::bigint AS garbage_bytes, max(s.dictionaries) AS dictionaries,
       count(*) FILTER (WHERE s.form = 'unreadable') AS unreadable
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_tablespace t ON t.oid = c.reltablespace
CROSS JOIN LATERAL cfs_segments(c.reltablespace, pg_catalog.pg_relation_filenode(c.oid)) s
WHERE cfs_setting_in_force(t.oid) IS NOT NULL
GROUP BY c.oid, t.spcname;
GRANT SELECT ON cfs_relations TO PUBLIC;

CREATE FUNCTION cfs_relation_size(relation regclass) RETURNS bigint
LANGUAGE sql STRICT VOLATILE
BEGIN ATOMIC
SELECT coalesce(sum(s.disk_bytes), 0)::bigint
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_database d ON d.datname = current_database()
CROSS JOIN LATERAL cfs_segments(coalesce(nullif(c.reltablespace, 0), d.dattablespace), pg_catalog.pg_relation_filenode(c.oid)) s
WHERE c.oid = relation AND s.form <> 'plain';
END;
COMMENT ON FUNCTION cfs_relation_size(regclass) IS 'bytes on disk of a relation''s compressed files; pg_relation_size is what they stand for';

CREATE FUNCTION cfs_compression_ratio(relation regclass) RETURNS double precision
LANGUAGE sql STRICT VOLATILE
BEGIN ATOMIC SELECT ratio::double precision FROM cfs_relations r WHERE r.relation = cfs_compression_ratio.relation; END;
COMMENT ON FUNCTION cfs_compression_ratio(regclass) IS 'virtual bytes for each byte on disk';

CREATE FUNCTION cfs_garbage_ratio(relation regclass) RETURNS double precision
LANGUAGE sql STRICT VOLATILE
BEGIN ATOMIC
SELECT garbage_bytes::double precision / nullif(disk_bytes, 0) FROM cfs_relations r WHERE r.relation = cfs_garbage_ratio.relation;
END;
COMMENT ON FUNCTION cfs_garbage_ratio(regclass) IS 'share of the bytes on disk that nothing refers to any more';

CREATE FUNCTION cfs_gc_relation(relation regclass) RETURNS bigint
LANGUAGE sql STRICT VOLATILE
BEGIN ATOMIC
SELECT cfs_gc_file(c.reltablespace, pg_catalog.pg_relation_filenode(c.oid)) FROM pg_catalog.pg_class c
WHERE c.oid = relation AND c.reltablespace <> 0;
END;
REVOKE ALL ON FUNCTION cfs_gc_relation(regclass) FROM PUBLIC;
COMMENT ON FUNCTION cfs_gc_relation(regclass) IS 'collects the garbage of a relation''s compressed files now; returns the bytes given back';

CREATE FUNCTION cfs_estimate(
    relation regclass, pages integer DEFAULT 1000,
    OUT compression text, OUT dictionary boolean, OUT measured_pages bigint, OUT virtual_bytes bigint,
    OUT disk_bytes bigint, OUT ratio double precision, OUT compress_mb_s double precision,
    OUT decompress_mb_s double precision)
RETURNS SETOF record
LANGUAGE c STRICT VOLATILE ROWS 10 COST 100000 AS 'MODULE_PATHNAME', 'cfs_estimate_wrapper';
COMMENT ON FUNCTION cfs_estimate(regclass, integer) IS
    'what each algorithm would make of a relation, measured on a sample of its pages; needs SELECT on the table';
