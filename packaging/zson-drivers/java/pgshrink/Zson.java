package pgshrink;

import java.sql.SQLException;
import org.postgresql.util.PGobject;

/**
 * What {@code getObject} of a zson column returns from pgjdbc: the object of a jsonb column. It calls itself jsonb, so code that looks
 * at {@code getType()} takes it for one, and so does the server when the object is written back.
 *
 * <p>Add {@code datatype.zson=pgshrink.Zson} to the connection's URL or properties, or call {@code addDataType("zson", Zson.class)} of
 * {@code org.postgresql.PGConnection}. Where the extension's schema is not on the search path, pgjdbc names the type with its schema:
 * {@code datatype."tools"."zson"=pgshrink.Zson}.
 */
public final class Zson extends PGobject {
    private static final long serialVersionUID = 1;

    /** pgjdbc makes one for each value that it reads, names the column's type, and then calls this. */
    @Override
    public void setValue(String value) throws SQLException {
        setType("jsonb");
        super.setValue(value);
    }
}
