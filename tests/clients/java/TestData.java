import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.HexFormat;

/** Deterministic data; the same formulas stand in every client's program and in {@code README.md}. */
final class TestData {
    static final int COPY_ROWS = 20_000;
    static final int MEBIBYTE = 1 << 20;
    static final String UNICODE = "naïve Ünïcödé, жук, ☃, 🐘, 日本語";
    static final String COPY_TABLE_COLUMNS = "id int PRIMARY KEY, label text NOT NULL, note text, amount numeric(12,2) NOT NULL";
    static final String JSON_QUERY = "SELECT jsonb_build_object('id', i, 'name', 'user-' || (i * 7919 % 10007), 'tags', jsonb_build_array(i % 7, i % 11,"
            + " md5(i::text)), 'note', CASE WHEN i % 5 = 0 THEN NULL ELSE '☃ ' || i END)::text AS doc FROM generate_series(1, 5000) AS i";

    private TestData() {}

    /** One row in COPY's text format, in the very form in which the server writes it. */
    static String copyRow(int id) {
        String note = id % 7 == 0 ? "\\N" : "tab\\there \\\\ back " + id * 31 % 1009;
        int cents = (int) (id * 37L % 100_003);
        return id + "\trow-" + id * 7919L % 10_007 + "-Ünï-☃\t" + note + "\t" + cents / 100 + "." + (cents % 100 < 10 ? "0" : "") + cents % 100 + "\n";
    }

    /** Rows 1 to {@code count}; row {@code badRow} has letters where the integer belongs (0: none). */
    static byte[] copyRows(int count, int badRow) {
        StringBuilder rows = new StringBuilder();
        for (int id = 1; id <= count; id++) {
            rows.append(id == badRow ? "bad" : "").append(copyRow(id));
        }
        return rows.toString().getBytes(StandardCharsets.UTF_8);
    }

    /** Bytes that no codec can shrink, from a linear congruential generator. */
    static byte[] noise(int size) {
        byte[] bytes = new byte[size];
        int state = 12_345;
        for (int i = 0; i < size; i++) {
            state = state * 1_664_525 + 1_013_904_223;
            bytes[i] = (byte) (state >>> 24);
        }
        return bytes;
    }

    /** Text of at least {@code size} bytes that shrinks well. */
    static String prose(int size) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; text.length() < size; i++) {
            text.append("line ").append(i).append(": ").append(UNICODE).append('\n');
        }
        return text.toString();
    }

    static String md5(byte[] content) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("MD5").digest(content));
    }

    static String md5(String content) throws Exception {
        return md5(content.getBytes(StandardCharsets.UTF_8));
    }
}
