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
    OUT live_bytes bigint, OUT garbage_bytes bigint, OUT dictionaries integer, OUT key_id text)
RETURNS SETOF record
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_segments_wrapper';
COMMENT ON FUNCTION cfs_segments(oid, oid) IS 'files of a relation of this database, by its tablespace and filenode';

CREATE FUNCTION cfs_rotate_key() RETURNS bigint
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'cfs_rotate_key_wrapper';
REVOKE ALL ON FUNCTION cfs_rotate_key() FROM PUBLIC;
COMMENT ON FUNCTION cfs_rotate_key() IS 'makes the key that cfs.key_command or cfs.key_file gives now the master key of all encrypted files; returns their number';

CREATE FUNCTION cfs_known_keys(OUT id text, OUT is_current boolean) RETURNS SETOF record
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'cfs_known_keys_wrapper';
COMMENT ON FUNCTION cfs_known_keys() IS 'ids of the master keys that the server has';

CREATE FUNCTION cfs_gc_file(tablespace oid, file oid) RETURNS integer
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_gc_file_wrapper';
REVOKE ALL ON FUNCTION cfs_gc_file(oid, oid) FROM PUBLIC;

CREATE VIEW cfs_tablespaces AS
SELECT t.oid, t.spcname AS name, split_part(substr(l.label, length('compression=') + 1), ',', 1) AS compression,
       l.label LIKE '%, encryption=on' AS encryption, cfs_setting_in_force(t.oid) AS in_force
FROM pg_catalog.pg_tablespace t
LEFT JOIN pg_catalog.pg_shseclabel l
       ON l.objoid = t.oid AND l.classoid = 'pg_catalog.pg_tablespace'::pg_catalog.regclass AND l.provider = 'cfs'
WHERE l.label IS NOT NULL OR cfs_setting_in_force(t.oid) IS NOT NULL;
GRANT SELECT ON cfs_tablespaces TO PUBLIC;

-- Settings of tables, and conversion.
CREATE FUNCTION cfs_set(relation regclass, compression text) RETURNS void
LANGUAGE c VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cfs_set_wrapper';
COMMENT ON FUNCTION cfs_set(regclass, text) IS
    'sets the compression of a table or materialized view, with indexes, TOAST table and partitions; null: it has none of its own';

CREATE FUNCTION cfs_compress_relation(relation regclass, compression text DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cfs_compress_relation_wrapper';
COMMENT ON FUNCTION cfs_compress_relation(regclass, text) IS
    'compresses a table in the background, while it is used; returns the bytes that are to be converted';

CREATE FUNCTION cfs_decompress_relation(relation regclass) RETURNS bigint
LANGUAGE c STRICT VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cfs_decompress_relation_wrapper';
COMMENT ON FUNCTION cfs_decompress_relation(regclass) IS
    'makes a table plain in the background, while it is used; returns the bytes that are to be converted';

CREATE FUNCTION cfs_cancel(relation regclass) RETURNS bigint
LANGUAGE c STRICT VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cfs_cancel_wrapper';
COMMENT ON FUNCTION cfs_cancel(regclass) IS
    'cancels a conversion that is under way: files go back to the form that they had; returns their number';

CREATE FUNCTION cfs_wait(relation regclass, timeout interval DEFAULT NULL) RETURNS boolean
LANGUAGE c VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cfs_wait_wrapper';
COMMENT ON FUNCTION cfs_wait(regclass, interval) IS
    'waits until all files of a table have the form that its setting says; false: the time was over before';

CREATE FUNCTION cfs_compress_database(name name, compression text DEFAULT 'zstd:1') RETURNS void
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_compress_database_wrapper';
COMMENT ON FUNCTION cfs_compress_database(name, text) IS
    'compresses the tables of a database in the background, and those that are made later';

CREATE FUNCTION cfs_decompress_database(name name) RETURNS void
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_decompress_database_wrapper';
COMMENT ON FUNCTION cfs_decompress_database(name) IS 'makes the tables of a database plain in the background';

CREATE FUNCTION cfs_members(
    relations oid[], OUT relation oid, OUT table_oid oid, OUT setting text, OUT source text) RETURNS SETOF record
LANGUAGE c STRICT VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cfs_members_wrapper';
COMMENT ON FUNCTION cfs_members(oid[]) IS 'the table that each relation follows, the setting in force, and what it comes from';

CREATE FUNCTION cfs_container_files(OUT tablespace oid, OUT file oid) RETURNS SETOF record
LANGUAGE c STRICT VOLATILE SET search_path = pg_catalog, pg_temp AS 'MODULE_PATHNAME', 'cfs_container_files_wrapper';
COMMENT ON FUNCTION cfs_container_files() IS 'files of this database that are compressed, by their tablespace and filenode';

CREATE FUNCTION cfs_progress_rows(
    OUT pid integer, OUT database oid, OUT tablespace oid, OUT file oid, OUT path text, OUT fork text,
    OUT segment integer, OUT direction text, OUT state text, OUT pages bigint, OUT pages_done bigint,
    OUT bytes_written bigint, OUT started double precision, OUT copying_since double precision, OUT waits_for text)
RETURNS SETOF record
LANGUAGE c STRICT VOLATILE ROWS 10 AS 'MODULE_PATHNAME', 'cfs_progress_rows_wrapper';

CREATE VIEW cfs_progress AS
SELECT p.pid, d.datname AS database, t.spcname AS tablespace,
       CASE WHEN d.datname = current_database() THEN pg_catalog.pg_filenode_relation(
           CASE WHEN p.tablespace = d.dattablespace THEN 0 ELSE p.tablespace END, p.file) END AS relation,
       p.path, p.fork, p.segment, p.direction, p.state, p.pages, p.pages_done, p.pages * 8192 AS bytes_before,
       p.bytes_written,
       (p.pages_done * 8192 / greatest(extract(epoch FROM clock_timestamp()) - p.copying_since, 0.001))::bigint AS rate,
       pg_catalog.to_timestamp(p.started) AS started, p.waits_for
FROM cfs_progress_rows() p
LEFT JOIN pg_catalog.pg_database d ON d.oid = p.database
LEFT JOIN pg_catalog.pg_tablespace t ON t.oid = p.tablespace;
COMMENT ON VIEW cfs_progress IS 'files that are being compressed or decompressed';
REVOKE ALL ON FUNCTION cfs_progress_rows() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cfs_progress_rows() TO pg_monitor;
GRANT SELECT ON cfs_progress TO pg_monitor;

-- Where a relation's files are. Null: it has none of its own.
CREATE VIEW cfs_places AS
SELECT c.oid, pg_catalog.pg_relation_filenode(c.oid) AS file,
       coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_database d ON d.datname = current_database();
GRANT SELECT ON cfs_places TO PUBLIC;

-- Relations with a file of their own in a tablespace that has a setting, and those with compressed files elsewhere.
CREATE VIEW cfs_relations AS
WITH found AS MATERIALIZED (
    SELECT c.oid, c.reltablespace AS tablespace, pg_catalog.pg_relation_filenode(c.oid) AS file
    FROM pg_catalog.pg_class c
    WHERE c.reltablespace IN (SELECT t.oid FROM pg_catalog.pg_tablespace t WHERE cfs_setting_in_force(t.oid) IS NOT NULL)
      AND c.relkind IN ('r', 'i', 't', 'm', 'S')
    UNION
    SELECT c.oid, f.tablespace, f.file
    FROM cfs_container_files() f
    JOIN pg_catalog.pg_database d ON d.datname = current_database()
    JOIN pg_catalog.pg_class c ON c.relfilenode = f.file
                              AND c.reltablespace = CASE WHEN f.tablespace = d.dattablespace THEN 0 ELSE f.tablespace END
)
SELECT c.oid::pg_catalog.regclass AS relation, t.spcname AS tablespace,
       sum(s.virtual_bytes)::bigint AS virtual_bytes, sum(s.disk_bytes)::bigint AS disk_bytes,
       round(sum(s.virtual_bytes) / nullif(sum(s.disk_bytes), 0), 2) AS ratio,
       sum(s.garbage_bytes)::bigint AS garbage_bytes, max(s.dictionaries) AS dictionaries,
       count(*) FILTER (WHERE s.form = 'unreadable') AS unreadable,
       -- Visibility maps and the empty images of unlogged relations are plain everywhere.
       count(*) FILTER (WHERE s.key_id IS NULL AND s.fork NOT IN ('vm', 'init')) = 0 AS encrypted,
       m.setting, m.source AS set_by
FROM found c
JOIN pg_catalog.pg_tablespace t ON t.oid = c.tablespace
CROSS JOIN LATERAL cfs_segments(c.tablespace, c.file) s
LEFT JOIN cfs_members((SELECT pg_catalog.array_agg(f.oid) FROM found f)) m ON m.relation = c.oid
GROUP BY c.oid, t.spcname, m.setting, m.source;
GRANT SELECT ON cfs_relations TO PUBLIC;

CREATE FUNCTION cfs_relation_size(relation regclass) RETURNS bigint
LANGUAGE sql STRICT VOLATILE
BEGIN ATOMIC
SELECT coalesce(
    (SELECT sum(s.disk_bytes) FROM cfs_segments(p.tablespace, p.file) s WHERE p.oid >= 16384),
    -- Catalogs, which never are compressed, and what has no files.
    (SELECT sum(pg_catalog.pg_relation_size(p.oid, fork)) FROM unnest(ARRAY['main', 'fsm', 'vm', 'init']) fork),
    0)::bigint
FROM cfs_places p
WHERE p.oid = relation;
END;
COMMENT ON FUNCTION cfs_relation_size(regclass) IS
    'bytes on disk of all forks of a relation; pg_relation_size is what they stand for. Null: there is no such relation';

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

CREATE FUNCTION cfs_fragmentation(relation regclass) RETURNS double precision
LANGUAGE sql STRICT VOLATILE
BEGIN ATOMIC
SELECT greatest(1 - sum(s.live_bytes)::double precision / nullif(sum(s.disk_bytes), 0), 0)
FROM cfs_places p
CROSS JOIN LATERAL cfs_segments(p.tablespace, p.file) s
WHERE p.oid = relation AND s.form = 'compressed';
END;
COMMENT ON FUNCTION cfs_fragmentation(regclass) IS 'share of the bytes on disk that has no page in it: garbage, and space kept for reuse';

-- Collection. Who may run it: superusers, and who maintains tables (pg_maintain, from PostgreSQL 17 on).
CREATE FUNCTION cfs_gc_relation(relation regclass) RETURNS integer
LANGUAGE sql STRICT VOLATILE
BEGIN ATOMIC
SELECT sum(CASE WHEN p.oid < 16384 THEN 0 ELSE coalesce(cfs_gc_file(p.tablespace, p.file), 0) END)::integer
FROM cfs_places p
WHERE p.oid = relation OR p.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(relation) t);
END;
REVOKE ALL ON FUNCTION cfs_gc_relation(regclass) FROM PUBLIC;
COMMENT ON FUNCTION cfs_gc_relation(regclass) IS 'collects the garbage of the compressed files of a relation, or of its partitions, now; returns the number of files that had some. Null: there is no such relation';

CREATE FUNCTION cfs_start_gc(n_workers integer) RETURNS integer
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_start_gc_wrapper';
REVOKE ALL ON FUNCTION cfs_start_gc(integer) FROM PUBLIC;
COMMENT ON FUNCTION cfs_start_gc(integer) IS 'starts workers that collect all compressed files once, and waits for them; returns the number started';

CREATE FUNCTION cfs_enable_gc(enabled boolean) RETURNS boolean
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_enable_gc_wrapper';
REVOKE ALL ON FUNCTION cfs_enable_gc(boolean) FROM PUBLIC;
COMMENT ON FUNCTION cfs_enable_gc(boolean) IS 'switches collection in the background until the server restarts; returns whether it was on';

DO $$
BEGIN
    IF current_setting('server_version_num')::integer >= 170000 THEN
        GRANT EXECUTE ON FUNCTION cfs_gc_file(oid, oid), cfs_gc_relation(regclass), cfs_start_gc(integer) TO pg_maintain;
    END IF;
END
$$;

CREATE FUNCTION cfs_gc_activity_scanned_files() RETURNS bigint
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_gc_activity_scanned_files_wrapper';
COMMENT ON FUNCTION cfs_gc_activity_scanned_files() IS 'files that collectors have looked at since the server started';
CREATE FUNCTION cfs_gc_activity_processed_files() RETURNS bigint
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_gc_activity_processed_files_wrapper';
COMMENT ON FUNCTION cfs_gc_activity_processed_files() IS 'files that collectors have collected since the server started';
CREATE FUNCTION cfs_gc_activity_processed_pages() RETURNS bigint
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_gc_activity_processed_pages_wrapper';
COMMENT ON FUNCTION cfs_gc_activity_processed_pages() IS 'pages that collectors have moved since the server started';
CREATE FUNCTION cfs_gc_activity_processed_bytes() RETURNS bigint
LANGUAGE c STRICT VOLATILE AS 'MODULE_PATHNAME', 'cfs_gc_activity_processed_bytes_wrapper';
COMMENT ON FUNCTION cfs_gc_activity_processed_bytes() IS 'bytes that collectors have moved since the server started';

CREATE FUNCTION cfs_gc_progress_rows(
    OUT pid integer, OUT database oid, OUT tablespace oid, OUT file oid, OUT fork text, OUT segment integer,
    OUT path text, OUT phase text, OUT bytes_total bigint, OUT bytes_done bigint, OUT pages_moved bigint,
    OUT bytes_moved bigint, OUT bytes_freed bigint, OUT commits bigint, OUT started double precision,
    OUT rate bigint, OUT waited_ms double precision)
RETURNS SETOF record
LANGUAGE c STRICT VOLATILE ROWS 2 AS 'MODULE_PATHNAME', 'cfs_gc_progress_rows_wrapper';

CREATE VIEW cfs_gc_progress AS
SELECT p.pid, d.datname AS database, t.spcname AS tablespace,
       CASE WHEN d.datname = current_database() THEN pg_catalog.pg_filenode_relation(p.tablespace, p.file) END AS relation,
       p.path, p.fork, p.segment, p.phase, p.bytes_total, p.bytes_done, p.pages_moved, p.bytes_moved, p.bytes_freed,
       p.commits, pg_catalog.to_timestamp(p.started) AS started, p.rate, p.waited_ms
FROM cfs_gc_progress_rows() p
LEFT JOIN pg_catalog.pg_database d ON d.oid = p.database
LEFT JOIN pg_catalog.pg_tablespace t ON t.oid = p.tablespace;
COMMENT ON VIEW cfs_gc_progress IS 'garbage collectors, and the files that they work on';

CREATE FUNCTION cfs_stat_gc_rows(
    OUT tablespace oid, OUT files_scanned bigint, OUT files_collected bigint, OUT pages_moved bigint,
    OUT bytes_moved bigint, OUT bytes_freed bigint, OUT commits bigint, OUT worked_ms double precision,
    OUT waited_ms double precision, OUT damaged_pages bigint, OUT bytes_moved_by_writers bigint,
    OUT commits_by_writers bigint, OUT errors bigint, OUT last_error text, OUT last_error_at double precision,
    OUT stats_since double precision)
RETURNS SETOF record
LANGUAGE c STRICT VOLATILE ROWS 5 AS 'MODULE_PATHNAME', 'cfs_stat_gc_rows_wrapper';

CREATE VIEW cfs_stat_gc AS
SELECT t.spcname AS tablespace, s.files_scanned, s.files_collected, s.pages_moved, s.bytes_moved, s.bytes_freed, s.commits,
       s.worked_ms, s.waited_ms, s.damaged_pages, s.bytes_moved_by_writers, s.commits_by_writers, s.errors, s.last_error,
       pg_catalog.to_timestamp(s.last_error_at) AS last_error_at, pg_catalog.to_timestamp(s.stats_since) AS stats_since
FROM cfs_stat_gc_rows() s
JOIN pg_catalog.pg_tablespace t ON t.oid = s.tablespace;
COMMENT ON VIEW cfs_stat_gc IS 'what collection of garbage has done since the server started, by tablespace';

-- They name files of all databases.
REVOKE ALL ON FUNCTION cfs_gc_progress_rows(), cfs_stat_gc_rows() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION cfs_gc_progress_rows(), cfs_stat_gc_rows() TO pg_monitor;
GRANT SELECT ON cfs_gc_progress, cfs_stat_gc TO pg_monitor;

CREATE FUNCTION cfs_estimate(
    relation regclass, pages integer DEFAULT 1000,
    OUT compression text, OUT dictionary boolean, OUT measured_pages bigint, OUT virtual_bytes bigint,
    OUT disk_bytes bigint, OUT ratio double precision, OUT compress_mb_s double precision,
    OUT decompress_mb_s double precision)
RETURNS SETOF record
LANGUAGE c STRICT VOLATILE ROWS 10 COST 100000 AS 'MODULE_PATHNAME', 'cfs_estimate_wrapper';
COMMENT ON FUNCTION cfs_estimate(regclass, integer) IS
    'what each algorithm would make of a relation, measured on a sample of its pages; needs SELECT on the table';
