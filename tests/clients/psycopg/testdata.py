"""Deterministic data; the same formulas stand in every client's program."""

import hashlib

COPY_ROWS = 20_000
MEBIBYTE = 1 << 20
UNICODE = "naïve Ünïcödé, жук, ☃, 🐘, 日本語"
COPY_COLUMNS = "id int PRIMARY KEY, label text NOT NULL, note text, amount numeric(12,2) NOT NULL"
COPIED_MD5 = "SELECT md5(string_agg(id || '|' || label || '|' || coalesce(note, '') || '|' || amount, '' ORDER BY id)) FROM "
JSON_QUERY = (
    "SELECT jsonb_build_object('id', i, 'name', 'user-' || (i * 7919 % 10007), 'tags', jsonb_build_array(i % 7, i % 11,"
    " md5(i::text)), 'note', CASE WHEN i % 5 = 0 THEN NULL ELSE '☃ ' || i END)::text AS doc, i FROM generate_series(1, 5000) AS i"
)


def copy_values(row_id):
    note = None if row_id % 7 == 0 else f"tab\there \\ back {row_id * 31 % 1009}"
    cents = row_id * 37 % 100_003
    return row_id, f"row-{row_id * 7919 % 10_007}-Ünï-☃", note, f"{cents // 100}.{cents % 100:02}"


def copy_row(row_id):
    """One row in COPY's text format, in the very form in which the server writes it."""
    _, label, note, amount = copy_values(row_id)
    escaped = r"\N" if note is None else note.replace("\\", "\\\\").replace("\t", "\\t")
    return f"{row_id}\t{label}\t{escaped}\t{amount}\n"


def copy_rows(count, bad_row=0):
    """Rows 1 to count; bad_row has letters where the integer belongs (0: none)."""
    return "".join(("bad" if i == bad_row else "") + copy_row(i) for i in range(1, count + 1)).encode()


def copied_md5():
    """What COPIED_MD5 must say of a table with all the rows."""
    parts = (f"{i}|{label}|{note or ''}|{amount}" for i, label, note, amount in map(copy_values, range(1, COPY_ROWS + 1)))
    return md5("".join(parts))


def noise(size):
    """Bytes that no codec can shrink: a chain of hashes."""
    blocks, digest = [], b"noise"
    for _ in range((size + 63) // 64):
        digest = hashlib.sha512(digest).digest()
        blocks.append(digest)
    return b"".join(blocks)[:size]


def prose(size):
    """Text of at least size characters that shrinks well."""
    line = "line {}: " + UNICODE + "\n"
    return "".join(line.format(i) for i in range(size // len(UNICODE) + 1))


def md5(content):
    return hashlib.md5(content if isinstance(content, bytes) else content.encode()).hexdigest()
