import java.io.InputStream;
import java.io.OutputStream;
import java.sql.Connection;
import java.sql.SQLException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.postgresql.PGConnection;
import org.postgresql.PGNotification;
import org.postgresql.copy.CopyIn;
import org.postgresql.jdbc.PgConnection;
import org.postgresql.largeobject.LargeObject;
import org.postgresql.largeobject.LargeObjectManager;
import org.postgresql.util.PSQLException;
import org.postgresql.util.ServerErrorMessage;

/** The stock PostgreSQL JDBC driver. {@code CLIENT_MODE} is a {@code preferQueryMode}: extended (default), simple, ... */
public final class PgjdbcClient extends JdbcDriver {
    public static void main(String[] arguments) throws Exception {
        System.exit(new JdbcChecks(new PgjdbcClient(), "pgjdbc").run());
    }

    @Override
    String urlScheme() {
        return "postgresql";
    }

    @Override
    Properties properties() {
        Properties properties = new Properties();
        properties.setProperty("sslmode", SSLMODE);
        String root = env("PGSSLROOTCERT", "");
        if (!root.isEmpty()) {
            properties.setProperty("sslrootcert", root);
        }
        properties.setProperty("ApplicationName", "pgjdbc checks");
        if (!MODE.isEmpty()) {
            properties.setProperty("preferQueryMode", MODE);
        }
        return properties;
    }

    @Override
    String queryModeProperty() {
        return "preferQueryMode";
    }

    @Override
    Connection openBinary() throws SQLException {
        // A negative threshold is the documented way to get binary results from the first execution on.
        return open(Map.of("prepareThreshold", "-1", "binaryTransfer", "true"));
    }

    @Override
    Object queryExecutor(Connection connection) {
        return ((PgConnection) connection).getQueryExecutor();
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
        ServerErrorMessage message = ((PSQLException) error).getServerErrorMessage();
        return new ErrorFields(message.getSeverity(), message.getDetail(), message.getHint(), message.getSchema(), message.getTable(),
                message.getConstraint(), message.getPosition());
    }

    @Override
    List<String> notifications(Connection connection, int timeoutMs) throws SQLException {
        List<String> payloads = new ArrayList<>();
        PGNotification[] arrived = api(connection).getNotifications(timeoutMs);
        for (PGNotification notification : arrived == null ? new PGNotification[0] : arrived) {
            payloads.add(notification.getParameter());
        }
        return payloads;
    }

    @Override
    byte[] largeObjectRoundTrip(Connection connection, byte[] content) throws SQLException {
        LargeObjectManager manager = api(connection).getLargeObjectAPI();
        long oid = manager.createLO();
        try (LargeObject object = manager.open(oid, LargeObjectManager.WRITE)) {
            object.write(content);
        }
        byte[] back;
        try (LargeObject object = manager.open(oid, LargeObjectManager.READ)) {
            Checks.equal("size", (long) content.length, object.size64());
            back = object.read(content.length);
        }
        manager.unlink(oid);
        return back;
    }

    private static PGConnection api(Connection connection) throws SQLException {
        return connection.unwrap(PGConnection.class);
    }
}
