-- A table with everything that can belong to one. `{18}` begins a line for PostgreSQL 18 and newer.
CREATE ROLE app_owner; CREATE ROLE reader; CREATE ROLE writer; CREATE ROLE granter; CREATE ROLE "Odd ""Role";
CREATE SCHEMA shop AUTHORIZATION app_owner; CREATE SCHEMA "Odd ""Schema";
GRANT USAGE ON SCHEMA shop, "Odd ""Schema" TO PUBLIC;
GRANT CREATE ON SCHEMA shop TO app_owner;
ALTER DEFAULT PRIVILEGES IN SCHEMA shop GRANT SELECT ON TABLES TO "Odd ""Role";
CREATE COLLATION shop.german FROM "C";
CREATE TYPE shop.state AS ENUM ('new', 'paid', 'sent');
CREATE DOMAIN shop.money AS numeric(12,2) CHECK (value >= 0);
CREATE TABLE shop.customer (id int PRIMARY KEY, name text NOT NULL);
CREATE TABLE shop.region (code char(2), part int, PRIMARY KEY (code, part));
INSERT INTO shop.customer SELECT n, 'customer ' || n FROM generate_series(1, 50) n;
INSERT INTO shop.region SELECT c, n FROM unnest(array['de','fr']) c, generate_series(1, 3) n;
CREATE SEQUENCE shop.order_number START 1000;
CREATE FUNCTION shop.stamp() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN NEW.touched := coalesce(NEW.touched, 0) + 1; RETURN NEW; END $f$;
CREATE FUNCTION shop.nothing() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RETURN NULL; END $f$;
CREATE TABLE shop.audit (order_id bigint, what text);
CREATE FUNCTION shop.log() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $pgshrink$ BEGIN
  INSERT INTO shop.audit VALUES (coalesce(NEW.id, OLD.id), TG_OP); RETURN NULL; END $pgshrink$;

CREATE TABLE shop."order" (
  is_open boolean DEFAULT true,
  id bigint GENERATED ALWAYS AS IDENTITY (START WITH 7 INCREMENT BY 3 CACHE 5),
  gone_1 int,
  flag "char" NOT NULL DEFAULT 'x',
  customer_id int NOT NULL,
  number bigint NOT NULL DEFAULT nextval('shop.order_number'),
  region_code char(2), region_part smallint,
  "Odd ""column
name" text DEFAULT E'it''s \\ "odd"',
  price shop.money NOT NULL,
  state shop.state DEFAULT 'new',
  gone_2 text,
  touched int DEFAULT 0,
  name varchar(40) COLLATE shop.german,
  document jsonb,
  payload bytea,
  gross numeric GENERATED ALWAYS AS (price * 1.19) STORED,
  serial_no serial,
  parent_id bigint,
  tags text[],
  during int4range,
  small smallint NOT NULL DEFAULT 1,
  hex text NOT NULL DEFAULT '00000000-0000-0000-0000-000000000000',
  at timestamptz DEFAULT '2026-01-02 03:04:05+00',
{18}  doubled int GENERATED ALWAYS AS (small * 2) VIRTUAL,
  CONSTRAINT "order pk" PRIMARY KEY (id) WITH (fillfactor = 80),
  CONSTRAINT number_once UNIQUE (number),
  CONSTRAINT serial_once UNIQUE (serial_no) DEFERRABLE INITIALLY DEFERRED,
  CONSTRAINT named_check CHECK (touched >= 0),
  CONSTRAINT no_child CHECK (small > 0) NO INHERIT,
  CONSTRAINT to_customer FOREIGN KEY (customer_id) REFERENCES shop.customer ON DELETE CASCADE,
  CONSTRAINT to_region FOREIGN KEY (region_code, region_part) REFERENCES shop.region MATCH FULL ON UPDATE CASCADE DEFERRABLE,
  CONSTRAINT to_parent FOREIGN KEY (parent_id) REFERENCES shop."order" ON DELETE SET NULL,
  CONSTRAINT apart EXCLUDE USING gist (during WITH &&) WITH (fillfactor = 70)
) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.3, toast.autovacuum_enabled = false);
ALTER TABLE shop."order" OWNER TO app_owner;
ALTER SEQUENCE shop.order_number OWNER TO app_owner;
ALTER SEQUENCE shop.order_number OWNED BY shop."order".number;
INSERT INTO shop."order" (customer_id, price, name, document, payload, region_code, region_part, tags, during, "Odd ""column
name", is_open, state, at, gone_1, gone_2, hex)
SELECT 1 + n % 50, n * 1.5, case when n % 3 > 0 then 'näme ' || n end, jsonb_build_object('n', n, 'text', repeat('abc ', n % 900)),
  case when n % 5 = 0 then decode(repeat(md5(n::text), 200), 'hex') end, case when n % 2 = 0 then 'de' end,
  case when n % 2 = 0 then 1 + n % 3 end, array['a', n::text], int4range(n * 10, n * 10 + 5), case when n % 7 > 0 then E'a\nb' || n end,
  n % 2 = 0, (array['new','paid','sent'])[1 + n % 3]::shop.state, timestamptz '2026-01-01' + n * interval '1 min', n, 'gone', gen_random_uuid()
FROM generate_series(1, 700) n;
UPDATE shop."order" SET parent_id = 7 WHERE id > 7 AND id % 2 = 0;
ALTER TABLE shop."order" DROP gone_1, DROP gone_2;
ALTER TABLE shop."order" ADD CONSTRAINT later CHECK (price < 100) NOT VALID;
ALTER TABLE shop."order" ADD late int NOT NULL DEFAULT 42;
{18}ALTER TABLE shop."order" ADD CONSTRAINT "must be there" NOT NULL state NO INHERIT;
{18}ALTER TABLE shop."order" ADD CONSTRAINT lax CHECK (price < 5) NOT ENFORCED;
{18}ALTER TABLE shop."order" ADD CONSTRAINT maybe_null NOT NULL name NOT VALID;
ALTER TABLE shop."order" ALTER document SET STORAGE external, ALTER payload SET COMPRESSION pglz, ALTER name SET STATISTICS 500,
  ALTER tags SET (n_distinct = -0.5), ALTER customer_id SET STATISTICS 0;
CREATE INDEX by_name ON shop."order" USING btree (name COLLATE "C" text_pattern_ops DESC NULLS LAST) INCLUDE (price) WITH (fillfactor = 60) WHERE is_open;
CREATE INDEX "odd "" index" ON shop."order" (lower("Odd ""column
name"), (price + 1));
ALTER INDEX shop."odd "" index" ALTER COLUMN 2 SET STATISTICS 77;
CREATE UNIQUE INDEX for_identity ON shop."order" (small, number, id);
ALTER TABLE shop."order" ALTER small SET NOT NULL;
CREATE UNIQUE INDEX nulls_once ON shop."order" (serial_no, parent_id) NULLS NOT DISTINCT;
CREATE INDEX of_document ON shop."order" USING gin (document jsonb_path_ops);
CREATE INDEX of_time ON shop."order" USING brin (at) WITH (pages_per_range = 16);
CREATE INDEX of_customer ON shop."order" USING hash (customer_id);
CREATE INDEX a_very_long_name_of_an_index_that_takes_all_the_bytes_there_are_ ON shop."order" (state);
ALTER TABLE shop."order" REPLICA IDENTITY USING INDEX for_identity;
ALTER TABLE shop."order" CLUSTER ON "order pk";
CREATE TABLE shop.item (id int PRIMARY KEY, order_id bigint, number bigint,
  CONSTRAINT of_order FOREIGN KEY (order_id) REFERENCES shop."order" (id) ON DELETE CASCADE ON UPDATE CASCADE,
  CONSTRAINT of_number FOREIGN KEY (number) REFERENCES shop."order" (number) DEFERRABLE INITIALLY DEFERRED);
INSERT INTO shop.item SELECT n, 7 + 3 * n, 1000 + n FROM generate_series(0, 60) n;
ALTER TABLE shop.item ADD CONSTRAINT not_yet FOREIGN KEY (id) REFERENCES shop."order" (id) NOT VALID;
CREATE TABLE shop.parts (id int, order_id bigint REFERENCES shop."order" (id)) PARTITION BY RANGE (id);
CREATE TABLE shop.parts_1 PARTITION OF shop.parts FOR VALUES FROM (0) TO (100);
INSERT INTO shop.parts VALUES (1, 7), (2, 10);
CREATE TRIGGER stamp BEFORE UPDATE OF price, name ON shop."order" FOR EACH ROW WHEN (OLD.price IS DISTINCT FROM NEW.price) EXECUTE FUNCTION shop.stamp();
CREATE TRIGGER log AFTER INSERT OR DELETE ON shop."order" FOR EACH ROW EXECUTE FUNCTION shop.log();
CREATE TRIGGER disabled AFTER UPDATE ON shop."order" EXECUTE FUNCTION shop.nothing();
CREATE TRIGGER replicas AFTER UPDATE ON shop."order" EXECUTE FUNCTION shop.nothing();
CREATE TRIGGER always AFTER UPDATE ON shop."order" REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION shop.nothing('a''b', '1');
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON shop."order" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION shop.nothing();
ALTER TABLE shop."order" DISABLE TRIGGER disabled, ENABLE REPLICA TRIGGER replicas, ENABLE ALWAYS TRIGGER always;
CREATE RULE protect AS ON DELETE TO shop."order" WHERE OLD.id = 10 DO INSTEAD (INSERT INTO shop.audit VALUES (OLD.id, 'kept'); SELECT 1);
CREATE RULE asleep AS ON UPDATE TO shop."order" DO ALSO NOTIFY changed;
ALTER TABLE shop."order" DISABLE RULE asleep;
ALTER TABLE shop."order" ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY mine ON shop."order" AS PERMISSIVE FOR SELECT TO reader, "Odd ""Role" USING (id % 2 = 1 OR EXISTS (SELECT FROM shop.customer c WHERE c.id = customer_id AND c.name = current_user));
CREATE POLICY write ON shop."order" FOR ALL TO writer USING (true) WITH CHECK (price < 10000);
CREATE POLICY strict ON shop."order" AS RESTRICTIVE FOR UPDATE TO PUBLIC USING (small < 100);
CREATE POLICY owners ON shop."order" TO app_owner USING (true);
ALTER TABLE shop.audit ENABLE ROW LEVEL SECURITY;
CREATE POLICY all_of_it ON shop.audit TO app_owner USING (true);
CREATE POLICY by_order ON shop.audit FOR SELECT TO reader USING (EXISTS (SELECT FROM shop."order" o WHERE o.id = order_id AND o.is_open));
GRANT SELECT ON shop.audit TO reader; GRANT ALL ON shop.audit TO app_owner;
CREATE STATISTICS shop.together (ndistinct, dependencies, mcv) ON region_code, region_part, state FROM shop."order";
CREATE STATISTICS "Odd ""Schema".expressions ON lower(name), (price * 2) FROM shop."order";
ALTER STATISTICS shop.together SET STATISTICS 321; ALTER STATISTICS shop.together OWNER TO app_owner;
REVOKE ALL ON shop."order" FROM "Odd ""Role";
GRANT SELECT, INSERT, UPDATE ON shop."order" TO granter WITH GRANT OPTION;
GRANT SELECT (id, price), UPDATE (price) ON shop."order" TO "Odd ""Role";
GRANT SELECT, INSERT, UPDATE, DELETE ON shop."order" TO writer;
GRANT USAGE ON SEQUENCE shop.order_id_seq TO writer;
GRANT USAGE ON SEQUENCE shop.order_number, shop.order_serial_no_seq TO writer;
GRANT SELECT (name) ON shop."order" TO PUBLIC;
GRANT USAGE ON SCHEMA shop TO granter; GRANT SELECT ON shop.customer TO PUBLIC;
SET ROLE granter; GRANT SELECT ON shop."order" TO reader; GRANT UPDATE (name) ON shop."order" TO reader; RESET ROLE;
REVOKE TRUNCATE ON shop."order" FROM app_owner;
COMMENT ON TABLE shop."order" IS E'all ''orders''\n\\ and $pgshrink$';
COMMENT ON COLUMN shop."order".price IS 'net'; COMMENT ON COLUMN shop."order"."Odd ""column
name" IS 'odd';
COMMENT ON CONSTRAINT "order pk" ON shop."order" IS 'key'; COMMENT ON CONSTRAINT to_customer ON shop."order" IS 'fk';
COMMENT ON CONSTRAINT named_check ON shop."order" IS 'check'; COMMENT ON CONSTRAINT later ON shop."order" IS 'later';
COMMENT ON CONSTRAINT of_order ON shop.item IS 'from outside'; COMMENT ON TRIGGER stamp ON shop."order" IS 'stamp';
COMMENT ON RULE protect ON shop."order" IS 'rule'; COMMENT ON POLICY mine ON shop."order" IS 'policy';
COMMENT ON INDEX shop."odd "" index" IS 'index'; COMMENT ON STATISTICS shop.together IS 'stats';
COMMENT ON SEQUENCE shop.order_id_seq IS 'identity'; COMMENT ON TYPE shop."order" IS 'row type';
CREATE VIEW shop.open_orders WITH (security_barrier = true) AS SELECT * FROM shop."order" WHERE is_open WITH LOCAL CHECK OPTION;
CREATE VIEW shop.totals AS SELECT o.customer_id, c.name, sum(o.price) AS total, o.id FROM shop."order" o JOIN shop.customer c ON c.id = o.customer_id GROUP BY o.id, c.name;
CREATE VIEW shop.on_totals (who, how_much) WITH (security_invoker = true) AS SELECT name, total FROM shop.totals;
CREATE VIEW shop.positional AS SELECT p.a, p.b, p.c, p.d FROM shop."order" AS p(a, b, c, d) JOIN shop.customer AS q(a, z) ON p.d = q.a;
CREATE VIEW shop.joined AS SELECT * FROM shop."order" JOIN (SELECT id, what AS name2 FROM shop.audit a(id, what)) x USING (id);
CREATE VIEW shop.clashing AS SELECT o.id, o.name, i.number AS i_number, p.id AS p_id, p.number AS p_number
  FROM shop."order" o FULL JOIN shop.item i USING (id, number) LEFT JOIN shop."order" p ON p.id = o.parent_id;
ALTER VIEW shop.open_orders OWNER TO app_owner; ALTER VIEW shop.open_orders ALTER customer_id SET DEFAULT 3;
GRANT SELECT, INSERT ON shop.open_orders TO writer; GRANT SELECT (id) ON shop.open_orders TO reader;
COMMENT ON VIEW shop.totals IS 'view'; COMMENT ON COLUMN shop.totals.total IS 'view column';
CREATE TRIGGER instead INSTEAD OF INSERT ON shop.totals FOR EACH ROW EXECUTE FUNCTION shop.nothing();
CREATE RULE on_view AS ON DELETE TO shop.on_totals DO INSTEAD DELETE FROM shop."order" WHERE price = OLD.how_much;
CREATE MATERIALIZED VIEW shop.summary WITH (fillfactor = 90) AS SELECT state, count(*) AS orders, max(name) AS last FROM shop."order" GROUP BY state;
CREATE UNIQUE INDEX summary_state ON shop.summary (state); COMMENT ON MATERIALIZED VIEW shop.summary IS 'copy';
ALTER MATERIALIZED VIEW shop.summary OWNER TO app_owner; GRANT SELECT ON shop.summary TO reader;
ALTER MATERIALIZED VIEW shop.summary CLUSTER ON summary_state; ALTER MATERIALIZED VIEW shop.summary ALTER last SET STATISTICS 33;
CREATE VIEW shop.on_summary AS SELECT state, orders FROM shop.summary; GRANT SELECT ON shop.on_summary TO PUBLIC;
CREATE MATERIALIZED VIEW shop.unfilled AS SELECT * FROM shop.on_summary WITH NO DATA;
CREATE FUNCTION shop.count_open(at_least numeric) RETURNS bigint LANGUAGE sql STABLE BEGIN ATOMIC SELECT count(*) FROM shop."order" WHERE is_open AND price >= at_least; END;
ALTER FUNCTION shop.count_open OWNER TO app_owner; REVOKE ALL ON FUNCTION shop.count_open FROM PUBLIC; GRANT EXECUTE ON FUNCTION shop.count_open TO writer;
CREATE PROCEDURE shop.add_order(c int) LANGUAGE sql BEGIN ATOMIC INSERT INTO shop."order" (customer_id, price, name) VALUES (c, 1, 'added'); DELETE FROM shop.audit; END;
CREATE PUBLICATION pub FOR TABLE shop."order" (id, small, number, price, state) WHERE (small > 0 AND number > 0), TABLE shop.item;
CREATE PUBLICATION second FOR TABLE shop."order" WITH (publish = 'insert');
-- Its neighbours.
CREATE TABLE shop.bystander (id int PRIMARY KEY, order_copy text);
ANALYZE;
