import com.amazon.redshift.RedshiftConnection;
import com.amazon.redshift.RedshiftNotification;
import com.amazon.redshift.copy.CopyIn;
import com.amazon.redshift.jdbc.RedshiftConnectionImpl;
import com.amazon.redshift.util.RedshiftException;
import com.amazon.redshift.util.ServerErrorMessage;
import java.io.InputStream;
import java.io.OutputStream;
import java.sql.Connection;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.sql.Statement;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;

/**
 * Amazon's Redshift JDBC driver: a peer of the part 2 dialect that nobody here wrote. {@code CLIENT_MODE} is its
 * {@code compression} property, sent as it stands: {@code lz4:1} (default) or {@code off}. It decodes lz4 alone and never
 * compresses what it sends. {@code CLIENT_EXPECT_COMPRESSION} = 1 or 0 makes its presence, or absence, a check.
 */
public final class RedshiftClient extends JdbcDriver {
    private static final String COMPRESSION = MODE.isEmpty() ? "lz4:1" : MODE;
    private static final String EXPECTED = env("CLIENT_EXPECT_COMPRESSION", "");

    public static void main(String[] arguments) throws Exception {
        System.exit(new JdbcChecks(new RedshiftClient(), "redshift").run());
    }

    @Override
    String urlScheme() {
        return "redshift";
    }

    @Override
    Properties properties() {
        Properties properties = new Properties();
        properties.setProperty("compression", COMPRESSION);
        // The driver knows no TLS, TLS with any certificate (by a factory), verify-ca and verify-full; "prefer" becomes the first.
        String root = env("PGSSLROOTCERT", "");
        if (SSLMODE.startsWith("verify")) {
            properties.setProperty("sslmode", SSLMODE);
            if (!root.isEmpty()) {
                properties.setProperty("sslrootcert", root);
            }
        } else if (SSLMODE.equals("require")) {
            properties.setProperty("ssl", "true");
            properties.setProperty("sslfactory", "com.amazon.redshift.ssl.NonValidatingFactory");
        } else {
            properties.setProperty("ssl", "false");
        }
        properties.setProperty("ApplicationName", "redshift checks");
        return properties;
    }

    @Override
    String queryModeProperty() {
        return "preferquerymode";
    }

    @Override
    Connection openBinary() throws SQLException {
        return open(Map.of("preparethreshold", "-1", "binarytransfer", "true"));
    }

    @Override
    Object queryExecutor(Connection connection) {
        return ((RedshiftConnectionImpl) connection).getQueryExecutor();
    }

    @Override
    long copyIn(Connection connection, String sql, InputStream rows) throws Exception {
        return api(connection).getCopyAPI().copyIn(sql, rows);
    }

    @Override
    long copyOut(Connection connection, String sql, OutputStream rows) throws Exception {
        return api(connection).getCopyAPI().copyOut(sql, rows);
    }

    @Override
    void copyAborted(Connection connection, String sql, byte[] rows) throws Exception {
        CopyIn copy = api(connection).getCopyAPI().copyIn(sql);
        copy.writeToCopy(rows, 0, rows.length);
        copy.flushCopy();
        copy.cancelCopy();
    }

    @Override
    ErrorFields errorFields(SQLException error) {
        ServerErrorMessage message = ((RedshiftException) error).getServerErrorMessage();
        return new ErrorFields(message.getSeverity(), message.getDetail(), message.getHint(), message.getSchema(), message.getTable(),
                message.getConstraint(), message.getPosition());
    }

    @Override
    List<String> notifications(Connection connection, int timeoutMs) throws SQLException {
        List<String> payloads = new ArrayList<>();
        RedshiftNotification[] arrived = api(connection).getNotifications(timeoutMs);
        for (RedshiftNotification notification : arrived == null ? new RedshiftNotification[0] : arrived) {
            payloads.add(notification.getParameter());
        }
        return payloads;
    }

    /** The driver kept pgjdbc's large object interface but drops the answers to the function calls it is made of; SQL remains. */
    @Override
    byte[] largeObjectRoundTrip(Connection connection, byte[] content) throws SQLException {
        try (PreparedStatement create = connection.prepareStatement("SELECT lo_from_bytea(0, ?)")) {
            create.setBytes(1, content);
            try (ResultSet oid = create.executeQuery(); Statement read = connection.createStatement()) {
                oid.next();
                try (ResultSet back = read.executeQuery("SELECT lo_get(o), lo_unlink(o) FROM (SELECT " + oid.getLong(1) + "::oid AS o) AS object")) {
                    back.next();
                    return back.getBytes(1);
                }
            }
        }
    }

    @Override
    void extraChecks(Checks checks, Connection connection) {
        checks.check("compression_is_as_expected", () -> compressionAsExpected(checks, connection));
    }

    /** Reads a result that shrinks well and compares its size with what the driver took from the socket. */
    private void compressionAsExpected(Checks checks, Connection connection) throws SQLException {
        long before = api(connection).getBytesReadFromStream();
        long values = 0;
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT i, repeat('abcdefgh', 50) FROM generate_series(1, 5000) AS i")) {
            while (rows.next()) {
                values += rows.getString(1).length() + rows.getString(2).length();
            }
        }
        long wire = api(connection).getBytesReadFromStream() - before;
        boolean active = wire < values;
        checks.note("compression=" + COMPRESSION + ": " + (active ? "active" : "not active") + ", " + values + " bytes of values in " + wire + " bytes read");
        if (!EXPECTED.isEmpty()) {
            Checks.equal("compression active", EXPECTED.equals("1"), active);
        }
    }

    private static RedshiftConnection api(Connection connection) throws SQLException {
        return connection.unwrap(RedshiftConnection.class);
    }
}
