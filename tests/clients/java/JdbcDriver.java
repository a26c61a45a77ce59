import java.io.InputStream;
import java.io.OutputStream;
import java.lang.reflect.Field;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import javax.net.ssl.SSLSocket;

/** What differs between the JDBC drivers: the URL and everything that plain JDBC has no call for. */
abstract class JdbcDriver {
    /** The parts of an ErrorResponse that JDBC itself does not show. Position counts from 1, 0 when absent. */
    record ErrorFields(String severity, String detail, String hint, String schema, String table, String constraint, int position) {}

    static final String PASSWORD = env("PGPASSWORD", "");
    static final String SSLMODE = env("PGSSLMODE", "prefer");
    static final String MODE = env("CLIENT_MODE", "");

    abstract String urlScheme();

    /** Driver properties for every connection; the environment's TLS settings are among them. */
    abstract Properties properties();

    abstract long copyIn(Connection connection, String sql, InputStream rows) throws Exception;

    abstract long copyOut(Connection connection, String sql, OutputStream rows) throws Exception;

    /** Starts COPY FROM STDIN, sends {@code rows} and ends it with CopyFail. */
    abstract void copyAborted(Connection connection, String sql, byte[] rows) throws Exception;

    abstract ErrorFields errorFields(SQLException error);

    /** Payloads of the notifications that arrive within the time; returns as soon as there is one. */
    abstract List<String> notifications(Connection connection, int timeoutMs) throws SQLException;

    /** Writes a new large object through the driver's own interface, reads it back and removes it. */
    abstract byte[] largeObjectRoundTrip(Connection connection, byte[] content) throws SQLException;

    /** The driver's query executor, whose socket tells whether TLS is in use: no public call does. */
    abstract Object queryExecutor(Connection connection);

    abstract String queryModeProperty();

    /** A connection that asks for binary results as often as the driver can. */
    abstract Connection openBinary() throws SQLException;

    /** Checks of this driver alone. */
    void extraChecks(Checks checks, Connection connection) {}

    final boolean encrypted(Connection connection) throws ReflectiveOperationException {
        Object executor = queryExecutor(connection);
        for (Class<?> type = executor.getClass(); type != null; type = type.getSuperclass()) {
            for (Field field : type.getDeclaredFields()) {
                if (field.getName().equals("pgStream")) {
                    field.setAccessible(true);
                    Object stream = field.get(executor);
                    return stream.getClass().getMethod("getSocket").invoke(stream) instanceof SSLSocket;
                }
            }
        }
        throw new NoSuchFieldException("pgStream in " + executor.getClass());
    }

    final Connection open() throws SQLException {
        return open(Map.of());
    }

    final Connection open(Map<String, String> overrides) throws SQLException {
        Properties properties = properties();
        properties.setProperty("user", env("PGUSER", "postgres"));
        properties.setProperty("password", PASSWORD);
        overrides.forEach(properties::setProperty);
        String host = env("PGHOST", "127.0.0.1");
        String url = "jdbc:" + urlScheme() + "://" + (host.contains(":") ? "[" + host + "]" : host) + ":"
                + env("PGPORT", "5432") + "/" + env("PGDATABASE", "postgres");
        return DriverManager.getConnection(url, properties);
    }

    static boolean tlsRequired() {
        return List.of("require", "verify-ca", "verify-full").contains(SSLMODE);
    }

    static String env(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null || value.isEmpty() ? otherwise : value;
    }
}
