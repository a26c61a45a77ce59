import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.BatchUpdateException;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.SQLWarning;
import java.sql.Statement;
import java.sql.Types;
import java.util.Arrays;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/** The checks every JDBC driver must pass against a PostgreSQL server, whatever stands between. */
final class JdbcChecks {
    private final Checks checks = new Checks();
    private final JdbcDriver driver;
    private final String schema;
    private final Map<Connection, Statement> statements = new IdentityHashMap<>();
    private Connection main;

    JdbcChecks(JdbcDriver driver, String name) {
        this.driver = driver;
        this.schema = "client_" + name + "_" + UUID.randomUUID().toString().substring(0, 8);
    }

    int run() throws Exception {
        checks.check("connect_server_version", this::connect);
        if (main == null) {
            return 1;
        }
        execute("CREATE SCHEMA " + schema);
        execute("SET search_path = " + schema);
        try {
            runOnSchema();
        } finally {
            // A check that hung, or that lost the connection, must not keep the schema from going.
            try (Connection last = driver.open(); Statement drop = last.createStatement()) {
                if (!checks.hung()) {
                    main.close();
                }
                drop.execute("SET client_min_messages = warning");
                drop.execute("SET lock_timeout = '5s'");
                drop.execute("DROP SCHEMA " + schema + " CASCADE");
            }
        }
        return checks.exitCode();
    }

    private void runOnSchema() {
        checks.check("wrong_password_28P01", this::wrongPassword);
        checks.check("tls_as_asked", this::tls);
        checks.check("simple_query_types", this::simpleQuery);
        checks.check("extended_query_types", this::extendedQuery);
        checks.check("null_and_unicode", this::nullAndUnicode);
        checks.check("text_1mb_round_trip", this::bigText);
        checks.check("bytea_1mb_round_trip", this::bigBytes);
        checks.check("prepared_reused_100", this::preparedReused);
        checks.check("batch_pipeline", this::batch);
        checks.check("copy_in_out_20000", this::copyBothWays);
        checks.check("copy_in_bad_row_22P02", this::copyBadRow);
        checks.check("copy_in_aborted_by_client", this::copyAborted);
        checks.check("cursor_declare_fetch", this::cursor);
        checks.check("driver_fetch_size", this::fetchSize);
        checks.check("large_object", this::largeObject);
        checks.check("transaction_rollback", this::rollback);
        checks.check("error_fields", this::errorFields);
        checks.check("listen_notify_within_1s", this::listenNotify);
        checks.check("notice_before_sleep_ends", this::noticeEarly);
        checks.check("cancel_57014_within_3s", this::cancel);
        checks.check("statement_timeout_57014", this::statementTimeout);
        checks.check("short_queries_200", this::shortQueries);
        checks.check("json_5000_rows_md5", this::json);
        checks.check("binary_result", this::binaryResult);
        driver.extraChecks(checks, main);
        checks.check("clean_close", this::cleanClose);
    }

    private void connect() throws Exception {
        main = driver.open();
        String version = queryString(main, "SHOW server_version_num");
        Checks.that("server_version_num " + version + " is at least 150000", Integer.parseInt(version) >= 150_000);
        String shown = main.getMetaData().getDatabaseProductVersion();
        Checks.that("driver's version " + shown, !shown.isBlank());
    }

    private void wrongPassword() throws Exception {
        if (JdbcDriver.PASSWORD.isEmpty()) {
            throw new Checks.Skip("no PGPASSWORD: the server asks for none");
        }
        Checks.equal("SQLSTATE", "28P01", failure(() -> driver.open(Map.of("password", "not the password")).close()).getSQLState());
    }

    private void tls() throws Exception {
        boolean encrypted = driver.encrypted(main);
        if (JdbcDriver.tlsRequired() || JdbcDriver.SSLMODE.equals("disable")) {
            Checks.equal("TLS with sslmode=" + JdbcDriver.SSLMODE, JdbcDriver.tlsRequired(), encrypted);
        }
    }

    private void simpleQuery() throws Exception {
        try (Connection simple = driver.open(Map.of(driver.queryModeProperty(), "simple")); Statement statement = simple.createStatement()) {
            boolean first = statement.execute("SELECT 42, -9223372036854775808, 1.5::float8, true, DATE '2024-02-29', NULL::text; SELECT 'second'");
            Checks.that("a result", first);
            try (ResultSet row = statement.getResultSet()) {
                row.next();
                Checks.equal("int", 42, row.getInt(1));
                Checks.equal("bigint", Long.MIN_VALUE, row.getLong(2));
                Checks.equal("float8", 1.5, row.getDouble(3));
                Checks.equal("bool", true, row.getBoolean(4));
                Checks.equal("date", "2024-02-29", row.getString(5));
                Checks.equal("null", null, row.getString(6));
            }
            Checks.that("a second result in one simple query", statement.getMoreResults());
            try (ResultSet row = statement.getResultSet()) {
                row.next();
                Checks.equal("second", "second", row.getString(1));
            }
        }
    }

    private void extendedQuery() throws Exception {
        UUID uuid = UUID.fromString("0190b5a0-7f2e-7c4d-8e1f-0123456789ab");
        byte[] bytes = {0, 1, (byte) 0xff, '\\', '\'', 0};
        try (PreparedStatement query = main.prepareStatement("SELECT ?::int4, ?::int8, ?::float8, ?::numeric, ?::bool, ?::text, ?::bytea, ?::timestamptz, ?::uuid, ?::int4[]")) {
            query.setInt(1, -7);
            query.setLong(2, Long.MAX_VALUE);
            query.setDouble(3, Math.PI);
            query.setBigDecimal(4, new BigDecimal("12345678901234567890.0123456789"));
            query.setBoolean(5, false);
            query.setString(6, "it's");
            query.setBytes(7, bytes);
            query.setString(8, "2024-02-29 12:34:56.789012+00");
            query.setString(9, uuid.toString());
            query.setString(10, "{3,1,2}");
            try (ResultSet row = query.executeQuery()) {
                row.next();
                Checks.equal("int4", -7, row.getInt(1));
                Checks.equal("int8", Long.MAX_VALUE, row.getLong(2));
                Checks.equal("float8", Math.PI, row.getDouble(3));
                Checks.equal("numeric", new BigDecimal("12345678901234567890.0123456789"), row.getBigDecimal(4));
                Checks.equal("bool", false, row.getBoolean(5));
                Checks.equal("text", "it's", row.getString(6));
                Checks.that("bytea", Arrays.equals(bytes, row.getBytes(7)));
                Checks.equal("timestamptz", java.time.Instant.parse("2024-02-29T12:34:56.789012Z"), row.getTimestamp(8).toInstant());
                Checks.equal("uuid", uuid.toString(), row.getString(9));
                Array array = row.getArray(10);
                Checks.equal("int4[]", List.of(3, 1, 2), List.of((Object[]) array.getArray()));
            }
        }
    }

    private void nullAndUnicode() throws Exception {
        try (PreparedStatement query = main.prepareStatement("SELECT ?::text, ?::int4, ?::text, length(?::text), ''::text")) {
            query.setNull(1, Types.VARCHAR);
            query.setNull(2, Types.INTEGER);
            query.setString(3, TestData.UNICODE);
            query.setString(4, TestData.UNICODE);
            try (ResultSet row = query.executeQuery()) {
                row.next();
                Checks.equal("null text", null, row.getString(1));
                row.getInt(2);
                Checks.that("null int", row.wasNull());
                Checks.equal("unicode", TestData.UNICODE, row.getString(3));
                Checks.equal("characters", TestData.UNICODE.codePointCount(0, TestData.UNICODE.length()), row.getInt(4));
                Checks.equal("empty is not null", "", row.getString(5));
            }
        }
    }

    private void bigText() throws Exception {
        String text = TestData.prose(TestData.MEBIBYTE);
        try (PreparedStatement query = main.prepareStatement("SELECT t, md5(t) FROM (SELECT ?::text AS t) AS one")) {
            query.setString(1, text);
            try (ResultSet row = query.executeQuery()) {
                row.next();
                Checks.equal("server's md5", TestData.md5(text), row.getString(2));
                Checks.equal("returned text", text, row.getString(1));
            }
        }
    }

    private void bigBytes() throws Exception {
        byte[] bytes = TestData.noise(TestData.MEBIBYTE);
        try (PreparedStatement query = main.prepareStatement("SELECT b, md5(b) FROM (SELECT ?::bytea AS b) AS one")) {
            query.setBytes(1, bytes);
            try (ResultSet row = query.executeQuery()) {
                row.next();
                Checks.equal("server's md5", TestData.md5(bytes), row.getString(2));
                Checks.that("returned bytes", Arrays.equals(bytes, row.getBytes(1)));
            }
        }
    }

    private void preparedReused() throws Exception {
        try (PreparedStatement query = main.prepareStatement("SELECT ?::int4 * 3, 'n' || ?::int4")) {
            for (int i = 0; i < 100; i++) {
                query.setInt(1, i);
                query.setInt(2, i);
                try (ResultSet row = query.executeQuery()) {
                    row.next();
                    Checks.equal("product", i * 3, row.getInt(1));
                    Checks.equal("label", "n" + i, row.getString(2));
                }
            }
        }
    }

    private void batch() throws Exception {
        execute("CREATE TABLE batched (id int PRIMARY KEY, label text)");
        try (PreparedStatement insert = main.prepareStatement("INSERT INTO batched VALUES (?, ?)")) {
            for (int i = 0; i < 1000; i++) {
                insert.setInt(1, i);
                insert.setString(2, "label " + i);
                insert.addBatch();
            }
            Checks.equal("rows inserted", 1000, insert.executeBatch().length);
            Checks.equal("sum", 499_500L, Long.parseLong(queryString(main, "SELECT sum(id) FROM batched")));
            for (int id : new int[] {2000, 5, 2001}) {
                insert.setInt(1, id);
                insert.setString(2, "x");
                insert.addBatch();
            }
            SQLException error = failure(insert::executeBatch);
            Checks.that("BatchUpdateException, found " + error, error instanceof BatchUpdateException);
            Checks.equal("SQLSTATE in a batch", "23505", error.getSQLState());
        }
        Checks.equal("usable after a failed batch", "1", queryString(main, "SELECT 1"));
    }

    private void copyBothWays() throws Exception {
        execute("CREATE TABLE copied (" + TestData.COPY_TABLE_COLUMNS + ")");
        byte[] rows = TestData.copyRows(TestData.COPY_ROWS, 0);
        Checks.equal("rows in", (long) TestData.COPY_ROWS, driver.copyIn(main, "COPY copied FROM STDIN", new ByteArrayInputStream(rows)));
        ByteArrayOutputStream back = new ByteArrayOutputStream();
        Checks.equal("rows out", (long) TestData.COPY_ROWS, driver.copyOut(main, "COPY (SELECT * FROM copied ORDER BY id) TO STDOUT", back));
        Checks.equal("md5 of COPY OUT", TestData.md5(rows), TestData.md5(back.toByteArray()));
        String server = queryString(main, "SELECT md5(string_agg(id || '|' || label || '|' || coalesce(note, '') || '|' || amount, '' ORDER BY id)) FROM copied");
        StringBuilder joined = new StringBuilder();
        for (String line : new String(rows, StandardCharsets.UTF_8).split("\n")) {
            joined.append(line.replace("\t", "|").replace("\\N", "").replace("\\t", "\t").replace("\\\\", "\\"));
        }
        Checks.equal("server's md5 of the values", TestData.md5(joined.toString()), server);
    }

    private void copyBadRow() throws Exception {
        execute("CREATE TABLE copied_badly (" + TestData.COPY_TABLE_COLUMNS + ")");
        InputStream rows = new ByteArrayInputStream(TestData.copyRows(TestData.COPY_ROWS, TestData.COPY_ROWS / 2));
        Checks.equal("SQLSTATE", "22P02", failure(() -> driver.copyIn(main, "COPY copied_badly FROM STDIN", rows)).getSQLState());
        Checks.equal("rows left", "0", queryString(main, "SELECT count(*) FROM copied_badly"));
    }

    private void copyAborted() throws Exception {
        execute("CREATE TABLE copied_partly (" + TestData.COPY_TABLE_COLUMNS + ")");
        driver.copyAborted(main, "COPY copied_partly FROM STDIN", TestData.copyRows(500, 0));
        Checks.equal("rows left", "0", queryString(main, "SELECT count(*) FROM copied_partly"));
    }

    private void cursor() throws Exception {
        inTransaction(() -> {
            execute("DECLARE rows_of SCROLL CURSOR FOR SELECT i, md5(i::text) FROM generate_series(1, 1000) AS i");
            int next = 1;
            for (int fetched = 1; fetched > 0; ) {
                fetched = 0;
                try (ResultSet rows = statementOf(main).executeQuery("FETCH 150 FROM rows_of")) {
                    while (rows.next()) {
                        fetched++;
                        Checks.equal("row", next, rows.getInt(1));
                        Checks.equal("md5", TestData.md5(Integer.toString(next++)), rows.getString(2));
                    }
                }
            }
            Checks.equal("rows", 1001, next);
            Checks.equal("backwards", "1000", queryString(main, "FETCH LAST FROM rows_of"));
            execute("CLOSE rows_of");
        });
    }

    private void fetchSize() throws Exception {
        inTransaction(() -> {
            try (Statement statement = main.createStatement()) {
                statement.setFetchSize(97);
                try (ResultSet rows = statement.executeQuery("SELECT i FROM generate_series(1, 2000) AS i")) {
                    for (int i = 1; i <= 2000; i++) {
                        Checks.that("row " + i, rows.next());
                        Checks.equal("row", i, rows.getInt(1));
                    }
                    Checks.that("the end", !rows.next());
                }
            }
        });
    }

    private void largeObject() throws Exception {
        byte[] content = TestData.noise(300_000);
        inTransaction(() -> Checks.that("content", Arrays.equals(content, driver.largeObjectRoundTrip(main, content))));
    }

    private void rollback() throws Exception {
        execute("CREATE TABLE ledger (id int)");
        main.setAutoCommit(false);
        execute("INSERT INTO ledger VALUES (1)");
        java.sql.Savepoint point = main.setSavepoint("point");
        execute("INSERT INTO ledger VALUES (2)");
        main.rollback(point);
        Checks.equal("after the savepoint", "1", queryString(main, "SELECT count(*) FROM ledger"));
        main.rollback();
        main.setAutoCommit(true);
        Checks.equal("after the rollback", "0", queryString(main, "SELECT count(*) FROM ledger"));
    }

    private void errorFields() throws Exception {
        execute("CREATE TABLE unique_of (id int CONSTRAINT unique_of_once PRIMARY KEY)");
        execute("INSERT INTO unique_of VALUES (1)");
        SQLException duplicate = failure(() -> execute("INSERT INTO unique_of VALUES (1)"));
        JdbcDriver.ErrorFields fields = driver.errorFields(duplicate);
        Checks.equal("SQLSTATE", "23505", duplicate.getSQLState());
        Checks.equal("severity", "ERROR", fields.severity());
        Checks.equal("detail", "Key (id)=(1) already exists.", fields.detail());
        Checks.equal("schema", schema, fields.schema());
        Checks.equal("table", "unique_of", fields.table());
        Checks.equal("constraint", "unique_of_once", fields.constraint());
        SQLException unknown = failure(() -> queryString(main, "SELECT 1, no_such_column"));
        Checks.equal("SQLSTATE", "42703", unknown.getSQLState());
        Checks.equal("position", 11, driver.errorFields(unknown).position());
        SQLException raised = failure(() -> execute("DO $$ BEGIN RAISE EXCEPTION 'says no' USING ERRCODE = 'P0404', HINT = 'ask again', DETAIL = 'because'; END $$"));
        Checks.equal("SQLSTATE", "P0404", raised.getSQLState());
        Checks.equal("hint", "ask again", driver.errorFields(raised).hint());
        Checks.equal("detail", "because", driver.errorFields(raised).detail());
    }

    private void listenNotify() throws Exception {
        try (Connection sender = driver.open()) {
            execute("LISTEN " + schema);
            long sent = System.nanoTime();
            statementOf(sender).execute("NOTIFY " + schema + ", 'from the other ☃'");
            List<String> payloads = driver.notifications(main, 2000);
            long tookMs = (System.nanoTime() - sent) / 1_000_000;
            execute("UNLISTEN *");
            Checks.equal("payloads", List.of("from the other ☃"), payloads);
            Checks.that("took " + tookMs + " ms, at most 1000", tookMs <= 1000);
        }
    }

    private void noticeEarly() throws Exception {
        try (Statement statement = main.createStatement()) {
            CompletableFuture<Void> running = CompletableFuture.runAsync(() -> {
                try {
                    statement.execute("DO $$ BEGIN RAISE NOTICE 'early bird'; PERFORM pg_sleep(2); END $$");
                } catch (SQLException problem) {
                    throw new IllegalStateException(problem);
                }
            });
            SQLWarning warning = null;
            while (warning == null && !running.isDone()) {
                Thread.sleep(10);
                warning = statement.getWarnings();
            }
            boolean early = !running.isDone();
            running.get(10, TimeUnit.SECONDS);
            Checks.that("the notice arrived", warning != null);
            Checks.equal("notice", "early bird", warning.getMessage());
            Checks.that("it came before the statement ended", early);
        }
    }

    private void cancel() throws Exception {
        try (Statement statement = main.createStatement()) {
            CompletableFuture<SQLException> running = CompletableFuture.supplyAsync(() -> failure(() -> statement.execute("SELECT pg_sleep(60)")));
            Thread.sleep(300);
            long asked = System.nanoTime();
            statement.cancel();
            SQLException error = running.get(10, TimeUnit.SECONDS);
            long tookMs = (System.nanoTime() - asked) / 1_000_000;
            Checks.equal("SQLSTATE", "57014", error.getSQLState());
            Checks.that("took " + tookMs + " ms, at most 3000", tookMs <= 3000);
        }
        Checks.equal("usable after cancel", "1", queryString(main, "SELECT 1"));
    }

    private void statementTimeout() throws Exception {
        execute("SET statement_timeout = '150ms'");
        try {
            Checks.equal("SQLSTATE", "57014", failure(() -> execute("SELECT pg_sleep(30)")).getSQLState());
        } finally {
            execute("RESET statement_timeout");
        }
    }

    private void shortQueries() throws Exception {
        for (int i = 0; i < 200; i++) {
            Checks.equal("query", Integer.toString(i), queryString(main, "SELECT " + i));
        }
    }

    private void json() throws Exception {
        StringBuilder documents = new StringBuilder();
        int rows = 0;
        try (ResultSet result = statementOf(main).executeQuery(TestData.JSON_QUERY + " ORDER BY i")) {
            for (; result.next(); rows++) {
                documents.append(result.getString(1));
            }
        }
        Checks.equal("rows", 5000, rows);
        String server = queryString(main, "SELECT md5(string_agg(doc, '' ORDER BY i)) FROM (" + TestData.JSON_QUERY.replace("AS doc FROM", "AS doc, i FROM") + ") AS documents");
        Checks.equal("md5", server, TestData.md5(documents.toString()));
    }

    private void binaryResult() throws Exception {
        try (Connection binary = driver.openBinary();
                PreparedStatement query = binary.prepareStatement("SELECT i, i::int8 << 33, i / 8.0::float8, decode(md5(i::text), 'hex'), DATE '2000-01-01' + i FROM generate_series(?::int4, 300) AS i")) {
            for (int round = 0; round < 3; round++) {
                query.setInt(1, 1);
                try (ResultSet row = query.executeQuery()) {
                    for (int i = 1; i <= 300; i++) {
                        Checks.that("row " + i, row.next());
                        String md5 = TestData.md5(Integer.toString(i));
                        Checks.equal("int4", i, row.getInt(1));
                        Checks.equal("int8", (long) i << 33, row.getLong(2));
                        Checks.equal("float8", i / 8.0, row.getDouble(3));
                        Checks.equal("bytea", md5, java.util.HexFormat.of().formatHex(row.getBytes(4)));
                        Checks.equal("date", java.time.LocalDate.of(2000, 1, 1).plusDays(i).toString(), row.getString(5));
                    }
                }
            }
        }
    }

    private void cleanClose() throws Exception {
        String backend;
        try (Connection closing = driver.open()) {
            backend = queryString(closing, "SELECT pg_backend_pid()");
        }
        String left = "";
        for (int attempt = 0; attempt < 40; attempt++) {
            left = queryString(main, "SELECT count(*) FROM pg_stat_activity WHERE pid = " + backend);
            if (left.equals("0")) {
                return;
            }
            Thread.sleep(50);
        }
        Checks.equal("backends left of a closed connection", "0", left);
    }

    private void inTransaction(Checks.Body body) throws Exception {
        main.setAutoCommit(false);
        try {
            body.run();
            main.commit();
        } catch (Throwable problem) {
            main.rollback();
            throw problem;
        } finally {
            main.setAutoCommit(true);
        }
    }

    private void execute(String sql) throws SQLException {
        statementOf(main).execute(sql);
    }

    private String queryString(Connection connection, String sql) throws SQLException {
        try (ResultSet row = statementOf(connection).executeQuery(sql)) {
            Checks.that("a row from " + sql, row.next());
            return row.getString(1);
        }
    }

    /** One statement per connection for everything short: closing one costs two seconds of sleep in one of the drivers. */
    private Statement statementOf(Connection connection) throws SQLException {
        Statement statement = statements.get(connection);
        if (statement == null) {
            statement = connection.createStatement();
            statements.put(connection, statement);
        }
        return statement;
    }

    private static SQLException failure(Checks.Body body) {
        try {
            body.run();
        } catch (SQLException expected) {
            return expected;
        } catch (Exception other) {
            throw new AssertionError("expected an SQLException, found " + other, other);
        }
        throw new AssertionError("expected an SQLException, found success");
    }
}
