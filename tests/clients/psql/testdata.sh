# Deterministic data; the same formulas stand in every client's program. Sourced by checks.sh.
COPY_ROWS=20000
COPY_COLUMNS="id int PRIMARY KEY, label text NOT NULL, note text, amount numeric(12,2) NOT NULL"
COPIED_MD5="SELECT md5(string_agg(id || '|' || label || '|' || coalesce(note, '') || '|' || amount, '' ORDER BY id)) FROM"
UNICODE="naïve Ünïcödé, жук, ☃, 🐘, 日本語"
JSON_QUERY="SELECT jsonb_build_object('id', i, 'name', 'user-' || (i * 7919 % 10007), 'tags', jsonb_build_array(i % 7, i % 11,
 md5(i::text)), 'note', CASE WHEN i % 5 = 0 THEN NULL ELSE '☃ ' || i END)::text AS doc, i FROM generate_series(1, 5000) AS i"

# copy_rows COUNT BAD_ROW: rows in COPY's text format, as the server writes them; BAD_ROW has letters for the integer (0: none).
copy_rows() {
    awk -v count="$1" -v bad="$2" 'BEGIN {
        for (id = 1; id <= count; id++) {
            note = id % 7 == 0 ? "\\N" : "tab\\there \\\\ back " id * 31 % 1009
            cents = id * 37 % 100003
            printf "%s%d\trow-%d-Ünï-☃\t%s\t%d.%02d\n", id == bad ? "bad" : "", id, id * 7919 % 10007, note, int(cents / 100), cents % 100
        }
    }'
}

# What COPIED_MD5 must say of a table with all the rows.
copied_md5() {
    awk 'BEGIN {
        for (id = 1; id <= '$COPY_ROWS'; id++) {
            note = id % 7 == 0 ? "" : "tab\there \\ back " id * 31 % 1009
            cents = id * 37 % 100003
            printf "%d|row-%d-Ünï-☃|%s|%d.%02d", id, id * 7919 % 10007, note, int(cents / 100), cents % 100
        }
    }' | md5_of
}

# noise BYTES: bytes that no codec can shrink (up to a few MB).
noise() {
    head -c "$1" <(seq 1 3000000 | gzip -9n)
}

# prose BYTES: at least so many bytes of text that shrinks well.
prose() {
    awk -v size="$1" -v text="$UNICODE" 'BEGIN {
        for (i = 0; written < size; i++) {
            line = "line " i ": " text
            written += length(line)
            print line
        }
    }'
}

md5_of() {
    md5sum | cut -d' ' -f1
}
