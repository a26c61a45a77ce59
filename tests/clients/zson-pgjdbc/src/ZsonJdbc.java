import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.sql.Array;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Statement;
import java.sql.Types;
import java.util.Arrays;
import java.util.Properties;
import org.postgresql.PGConnection;
import org.postgresql.util.PGobject;
import pgshrink.Zson;

/** What zson columns return and take in pgjdbc: the same as jsonb columns. */
public final class ZsonJdbc {
    private static final String[] DOCUMENTS = {
        "{\"a\": 1, \"b\": [null, true, \"xä€😀\"], \"c\": {\"d\": 1.5}}", "[]", "\"text\"", "12", null, "null", "{}"
    };
    private static final String TABLE = "zson_" + Long.toHexString(System.nanoTime() ^ ProcessHandle.current().pid());
    private static final String ASKED = "SELECT doc, was FROM " + TABLE + " ORDER BY id";

    private final Checks checks = new Checks();

    public static void main(String[] arguments) throws Exception {
        System.exit(new ZsonJdbc().run());
    }

    private int run() throws SQLException {
        Properties recipe = new Properties();
        recipe.setProperty("datatype.zson", "pgshrink.Zson");
        try (Connection connection = open(recipe)) {
            execute(connection, "CREATE TABLE " + TABLE + " (id int, doc zson('drivers'), was jsonb)");
            checks.check("written_as_types_other_and_as_pgobject", () -> writes(connection));
            checks.check("read_as_jsonb_is_with_the_recipe", () -> reads(connection));
            checks.check("batches", () -> batches(connection));
            checks.check("arrays", () -> arrays(connection));
            checks.check("operators_with_parameters", () -> operators(connection));
            checks.check("an_updatable_result_set", () -> updatable(connection));
            checks.check("copy", () -> copy(connection));
        }
        checks.check("read_in_binary_mode", () -> {
            Properties binary = new Properties(recipe);
            binary.setProperty("prepareThreshold", "-1");
            try (Connection connection = open(binary)) {
                reads(connection);
            }
        });
        checks.check("read_in_simple_mode", () -> {
            Properties simple = new Properties(recipe);
            simple.setProperty("preferQueryMode", "simple");
            try (Connection connection = open(simple)) {
                reads(connection);
                operators(connection);
            }
        });
        checks.check("registered_on_a_connection", () -> {
            try (Connection connection = open(new Properties())) {
                connection.unwrap(PGConnection.class).addDataType("zson", Zson.class);
                reads(connection);
            }
        });
        checks.check("texts_need_no_recipe", this::plain);
        try (Connection connection = open(new Properties())) {
            execute(connection, "DROP TABLE " + TABLE);
        }
        return checks.exitCode();
    }

    /** Every way that writes a jsonb writes a zson. */
    private static void writes(Connection connection) throws SQLException {
        String insert = "INSERT INTO " + TABLE + " VALUES (?, ?, ?)";
        for (String way : new String[] {"other", "jsonb", "zson"}) {
            execute(connection, "TRUNCATE " + TABLE);
            try (PreparedStatement statement = connection.prepareStatement(insert)) {
                // More often than pgjdbc's threshold for a statement that the server keeps.
                for (int round = 0; round < 2; round++) {
                    for (int n = 0; n < DOCUMENTS.length; n++) {
                        statement.setInt(1, round * DOCUMENTS.length + n);
                        set(statement, 2, way, DOCUMENTS[n]);
                        set(statement, 3, way.equals("zson") ? "jsonb" : way, DOCUMENTS[n]);
                        Checks.equal("rows", 1, statement.executeUpdate());
                    }
                }
            }
            same(connection, 2 * DOCUMENTS.length);
        }
        execute(connection, "DELETE FROM " + TABLE + " WHERE id >= " + DOCUMENTS.length);
    }

    private static void set(PreparedStatement statement, int index, String way, String document) throws SQLException {
        if (way.equals("other")) {
            statement.setObject(index, document, Types.OTHER);
        } else {
            statement.setObject(index, object(way, document));
        }
    }

    private static PGobject object(String type, String document) throws SQLException {
        PGobject object = new PGobject();
        object.setType(type);
        object.setValue(document);
        return object;
    }

    /** Both columns hold the documents in turn, by every getter. */
    private static void same(Connection connection, int rows) throws SQLException {
        try (PreparedStatement statement = connection.prepareStatement(ASKED);
                ResultSet result = statement.executeQuery()) {
            int n = 0;
            for (; result.next(); n++) {
                String document = DOCUMENTS[n % DOCUMENTS.length];
                Checks.equal("getString", document, result.getString("doc"));
                Checks.equal("getString", result.getString("was"), result.getString("doc"));
                Checks.equal("getObject", result.getObject("was"), result.getObject("doc"));
                Checks.equal("getObject as PGobject", result.getObject("was", PGobject.class), result.getObject("doc", PGobject.class));
                Checks.equal("wasNull", document == null, result.wasNull());
                if (document != null) {
                    PGobject found = (PGobject) result.getObject("doc");
                    Checks.equal("getType", "jsonb", found.getType());
                    Checks.equal("getValue", document, found.getValue());
                    Checks.that("getBytes", Arrays.equals(result.getBytes("was"), result.getBytes("doc")));
                }
            }
            Checks.equal("rows", rows, n);
        }
    }

    private static void reads(Connection connection) throws SQLException {
        for (int times = 0; times < 7; times++) {
            same(connection, DOCUMENTS.length);
        }
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(ASKED)) {
            ResultSetMetaData columns = result.getMetaData();
            Checks.equal("JDBC type", columns.getColumnType(2), columns.getColumnType(1));
            Checks.equal("name of the type", "zson", columns.getColumnTypeName(1));
        }
    }

    private static void batches(Connection connection) throws SQLException {
        execute(connection, "TRUNCATE " + TABLE);
        connection.setAutoCommit(false);
        try (PreparedStatement statement = connection.prepareStatement("INSERT INTO " + TABLE + " VALUES (?, ?, ?)")) {
            for (int n = 0; n < 50 * DOCUMENTS.length; n++) {
                String document = DOCUMENTS[n % DOCUMENTS.length];
                statement.setInt(1, n);
                statement.setObject(2, document, Types.OTHER);
                statement.setObject(3, object("jsonb", document));
                statement.addBatch();
            }
            for (int count : statement.executeBatch()) {
                Checks.equal("rows of a batch's member", 1, count);
            }
        }
        connection.commit();
        connection.setAutoCommit(true);
        same(connection, 50 * DOCUMENTS.length);
        execute(connection, "DELETE FROM " + TABLE + " WHERE id >= " + DOCUMENTS.length);
    }

    private static void arrays(Connection connection) throws SQLException {
        String asked = "SELECT array_agg(doc ORDER BY id), array_agg(was ORDER BY id), ARRAY[]::zson[], NULL::zson FROM " + TABLE;
        try (Statement statement = connection.createStatement(); ResultSet result = statement.executeQuery(asked)) {
            Checks.that("a row", result.next());
            Object[] docs = values(result.getArray(1));
            Object[] was = values(result.getArray(2));
            // pgjdbc makes strings of a jsonb array's elements, of every other type's it makes what getObject returns.
            for (int n = 0; n < was.length; n++) {
                Checks.equal("element", was[n], docs[n] == null ? null : docs[n].toString());
            }
            Checks.equal("elements", DOCUMENTS.length, docs.length);
            Checks.equal("an empty array", 0, values(result.getArray(3)).length);
            Checks.equal("null", null, result.getObject(4));
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT (?::zson[])[2] ->> 'a'")) {
            statement.setArray(1, connection.createArrayOf("zson", new Object[] {"[1]", "{\"a\": \"b\"}"}));
            Checks.equal("createArrayOf", "b", only(statement));
        }
    }

    private static Object[] values(Array array) throws SQLException {
        return (Object[]) array.getArray();
    }

    private static void operators(Connection connection) throws SQLException {
        // pgjdbc's own escape: ?? is the operator ?.
        String asked = "SELECT count(*) FROM " + TABLE + " WHERE doc @> ? AND doc ?? ? AND doc->'c'->>'d' = ? AND doc = ?";
        try (PreparedStatement statement = connection.prepareStatement(asked)) {
            statement.setObject(1, object("jsonb", "{\"a\": 1}"));
            statement.setString(2, "b");
            statement.setString(3, "1.5");
            statement.setObject(4, DOCUMENTS[0], Types.OTHER);
            Checks.equal("rows", "1", only(statement));
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT doc FROM " + TABLE + " WHERE id = 0");
                ResultSet result = statement.executeQuery()) {
            Checks.that("a row", result.next());
            // What was read is a parameter again.
            try (PreparedStatement again = connection.prepareStatement("SELECT count(*) FROM " + TABLE + " WHERE doc = ?")) {
                again.setObject(1, result.getObject(1));
                Checks.equal("rows", "1", only(again));
            }
        }
    }

    private static void updatable(Connection connection) throws SQLException {
        execute(connection, "CREATE TABLE " + TABLE + "_keyed (id int PRIMARY KEY, doc zson('drivers'))");
        execute(connection, "INSERT INTO " + TABLE + "_keyed VALUES (1, '{\"a\": 1}')");
        try (Statement statement = connection.createStatement(ResultSet.TYPE_FORWARD_ONLY, ResultSet.CONCUR_UPDATABLE);
                ResultSet result = statement.executeQuery("SELECT id, doc FROM " + TABLE + "_keyed")) {
            Checks.that("a row", result.next());
            result.updateObject("doc", object("jsonb", "{\"a\": 2}"));
            result.updateRow();
        }
        try (PreparedStatement statement = connection.prepareStatement("SELECT doc FROM " + TABLE + "_keyed")) {
            Checks.equal("what was updated", "{\"a\": 2}", only(statement));
        }
        execute(connection, "DROP TABLE " + TABLE + "_keyed");
    }

    private static void copy(Connection connection) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        PGConnection api = connection.unwrap(PGConnection.class);
        api.getCopyAPI().copyOut("COPY (SELECT id, doc, was FROM " + TABLE + " ORDER BY id) TO STDOUT", out);
        execute(connection, "TRUNCATE " + TABLE);
        api.getCopyAPI().copyIn("COPY " + TABLE + " FROM STDIN", new ByteArrayInputStream(out.toByteArray()));
        same(connection, DOCUMENTS.length);
        Checks.that("copied in UTF-8", out.toString(StandardCharsets.UTF_8).contains("€"));
    }

    /** Without the recipe only the name of the object's type differs. */
    private void plain() throws SQLException {
        try (Connection connection = open(new Properties());
                Statement statement = connection.createStatement();
                ResultSet result = statement.executeQuery(ASKED)) {
            for (String document : DOCUMENTS) {
                Checks.that("a row", result.next());
                Checks.equal("getString", document, result.getString("doc"));
                if (document != null) {
                    PGobject object = (PGobject) result.getObject("doc");
                    Checks.equal("getType", "zson", object.getType());
                    Checks.equal("getValue", document, object.getValue());
                }
            }
        }
    }

    private static Connection open(Properties more) throws SQLException {
        Properties properties = new Properties();
        more.stringPropertyNames().forEach(name -> properties.setProperty(name, more.getProperty(name)));
        properties.setProperty("user", JdbcDriver.env("PGUSER", "postgres"));
        properties.setProperty("password", JdbcDriver.PASSWORD);
        properties.setProperty("sslmode", JdbcDriver.SSLMODE);
        String url = "jdbc:postgresql://" + JdbcDriver.env("PGHOST", "127.0.0.1") + ":" + JdbcDriver.env("PGPORT", "5432") + "/"
                + JdbcDriver.env("PGDATABASE", "postgres");
        return DriverManager.getConnection(url, properties);
    }

    private static void execute(Connection connection, String sql) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.execute(sql);
        }
    }

    private static String only(PreparedStatement statement) throws SQLException {
        try (ResultSet result = statement.executeQuery()) {
            Checks.that("a row", result.next());
            return result.getString(1);
        }
    }
}
