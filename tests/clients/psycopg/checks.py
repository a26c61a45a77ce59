"""psycopg 3 against a PostgreSQL server, whatever stands between. Connection data comes from libpq's environment."""

import datetime
import decimal
import os
import select
import signal
import sys
import threading
import time
import traceback
import uuid

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus

import testdata as data

SCHEMA = "client_psycopg_" + uuid.uuid4().hex[:8]
# psycopg does not read PGSSLMODE itself, libpq does; kept here for the TLS check alone.
SSLMODE = os.environ.get("PGSSLMODE", "prefer")
# A check that takes longer hangs: it fails by name and the next one goes on.
CHECK_SECONDS_MAX = 20
CHECKS = []


class Skip(Exception):
    """The server or the driver does not meet the check's precondition."""


def check(function):
    CHECKS.append(function)
    return function


def equal(what, expected, found):
    if expected != found:
        raise AssertionError(f"{what}: expected {brief(expected)}, found {brief(found)}")


def brief(value):
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:120]}... ({len(text)} characters)"


def connect(**options):
    return psycopg.connect(autocommit=True, application_name="psycopg checks", **options)


def on_schema():
    conn = connect()
    conn.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(SCHEMA)))
    return conn


def one(conn, query, *args, **options):
    return conn.execute(query, *args, **options).fetchone()


def fails(state, call):
    try:
        call()
    except psycopg.Error as error:
        equal("SQLSTATE", state, error.sqlstate)
        return error
    raise AssertionError(f"expected SQLSTATE {state}, found success")


@check
def connect_server_version(conn):
    if conn.info.server_version < 150_000:
        raise AssertionError(f"server_version {conn.info.server_version}")
    equal("server_version", str(conn.info.server_version), one(conn, "SHOW server_version_num")[0])


@check
def wrong_password_28P01(_conn):
    if not os.environ.get("PGPASSWORD"):
        raise Skip("no PGPASSWORD: the server asks for none")
    # An error while connecting carries the message only: libpq gives no result to read the SQLSTATE from.
    try:
        connect(password="not the password").close()
    except psycopg.OperationalError as error:
        if "password authentication failed" not in str(error):
            raise AssertionError(f"another error: {error}") from error
    else:
        raise AssertionError("a wrong password was accepted")


@check
def tls_as_asked(conn):
    required = SSLMODE in ("require", "verify-ca", "verify-full")
    if required or SSLMODE == "disable":
        equal(f"TLS with sslmode={SSLMODE}", required, bool(conn.pgconn.ssl_in_use))


@check
def simple_query_types(conn):
    # Several statements without parameters go as one simple query.
    cursor = conn.execute("SELECT 42, (-9223372036854775808)::int8, 1.5::float8, true, DATE '2024-02-29', NULL::text; SELECT 'second'")
    equal("first", (42, -(2**63), 1.5, True, datetime.date(2024, 2, 29), None), cursor.fetchone())
    equal("a second result", True, cursor.nextset())
    equal("second", ("second",), cursor.fetchone())


@check
def extended_query_types(conn):
    values = (
        -7,
        2**63 - 1,
        3.141592653589793,
        decimal.Decimal("12345678901234567890.0123456789"),
        False,
        "it's",
        b"\x00\x01\xff\\'\x00",
        datetime.datetime(2024, 2, 29, 12, 34, 56, 789012, tzinfo=datetime.timezone.utc),
        uuid.UUID("0190b5a0-7f2e-7c4d-8e1f-0123456789ab"),
        [3, 1, 2],
    )
    query = "SELECT %s::int4, %s::int8, %s::float8, %s::numeric, %s::bool, %s::text, %s::bytea, %s::timestamptz, %s::uuid, %s::int4[]"
    equal("row", values, one(conn, query, values))


@check
def null_and_unicode(conn):
    query = "SELECT %s::text, %s::int4, %s::text, length(%s::text), ''::text"
    equal("row", (None, None, data.UNICODE, len(data.UNICODE), ""), one(conn, query, (None, None, data.UNICODE, data.UNICODE)))


@check
def text_1mb_round_trip(conn):
    text = data.prose(data.MEBIBYTE)
    back, server = one(conn, "SELECT t, md5(t) FROM (SELECT %s::text AS t) AS one", (text,))
    equal("server's md5", data.md5(text), server)
    equal("returned text", text, back)


@check
def bytea_1mb_round_trip(conn):
    content = data.noise(data.MEBIBYTE)
    for binary in (False, True):
        cursor = conn.cursor(binary=binary)
        back, server = cursor.execute("SELECT b, md5(b) FROM (SELECT %b::bytea AS b) AS one", (content,)).fetchone()
        equal("server's md5", data.md5(content), server)
        equal("returned bytes", content, bytes(back))


@check
def prepared_reused_100(conn):
    for i in range(100):
        equal("row", (i * 3, f"n{i}"), one(conn, "SELECT %s::int4 * 3, 'n' || %s::int4", (i, i), prepare=True))
    equal("prepared statements", 1, one(conn, "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%* 3, ''n''%'")[0])


@check
def batch_pipeline(conn):
    if not psycopg.Pipeline.is_supported():
        raise Skip("this libpq has no pipeline mode")
    conn.execute("CREATE TABLE batched (id int PRIMARY KEY, label text)")
    with conn.pipeline() as pipeline:
        cursors = [conn.execute("INSERT INTO batched VALUES (%s, %s) RETURNING id", (i, f"label {i}")) for i in range(1000)]
        pipeline.sync()
        equal("rows returned", list(range(1000)), [cursor.fetchone()[0] for cursor in cursors])
    equal("sum", (499_500,), one(conn, "SELECT sum(id) FROM batched"))

    def duplicate():
        with conn.pipeline():
            for i in (2000, 5, 2001):
                conn.execute("INSERT INTO batched VALUES (%s, 'x')", (i,))

    fails("23505", duplicate)
    equal("rows of the failed pipeline", (0,), one(conn, "SELECT count(*) FROM batched WHERE id >= 2000"))


@check
def copy_in_out_20000(conn):
    conn.execute(f"CREATE TABLE copied ({data.COPY_COLUMNS})")
    rows = data.copy_rows(data.COPY_ROWS)
    cursor = conn.cursor()
    with cursor.copy("COPY copied FROM STDIN") as copy:
        for start in range(0, len(rows), 5000):
            copy.write(rows[start : start + 5000])
    equal("rows in", data.COPY_ROWS, cursor.rowcount)
    with cursor.copy("COPY (SELECT * FROM copied ORDER BY id) TO STDOUT") as copy:
        back = b"".join(copy)
    equal("md5 of COPY OUT", data.md5(rows), data.md5(back))
    equal("server's md5 of the values", data.copied_md5(), one(conn, data.COPIED_MD5 + "copied")[0])
    with cursor.copy("COPY copied TO STDOUT (FORMAT binary)") as copy:
        copy.set_types(["int4", "text", "text", "numeric"])
        total = sum(row[3] for row in copy.rows())
    equal("sum of a binary COPY", one(conn, "SELECT sum(amount) FROM copied")[0], total)


@check
def copy_in_bad_row_22P02(conn):
    conn.execute(f"CREATE TABLE copied_badly ({data.COPY_COLUMNS})")
    rows = data.copy_rows(data.COPY_ROWS, bad_row=data.COPY_ROWS // 2)

    def copy_rows():
        with conn.cursor().copy("COPY copied_badly FROM STDIN") as copy:
            for start in range(0, len(rows), 5000):
                copy.write(rows[start : start + 5000])

    fails("22P02", copy_rows)
    equal("rows left", (0,), one(conn, "SELECT count(*) FROM copied_badly"))


@check
def copy_in_aborted_by_client(conn):
    conn.execute(f"CREATE TABLE copied_partly ({data.COPY_COLUMNS})")
    cursor = conn.cursor()
    try:
        # Leaving the block by an exception is what makes psycopg send CopyFail.
        with cursor.copy("COPY copied_partly FROM STDIN") as copy:
            copy.write(data.copy_rows(500))
            raise InterruptedError
    except InterruptedError:
        pass  # psycopg 3.2 lets it through,
    except errors.QueryCanceled as error:
        equal("SQLSTATE", "57014", error.sqlstate)  # 3.1 the server's answer to it.
    equal("status", TransactionStatus.IDLE, conn.info.transaction_status)
    equal("rows left", (0,), one(conn, "SELECT count(*) FROM copied_partly"))


@check
def cursor_declare_fetch(conn):
    expected = [(i, data.md5(str(i))) for i in range(1, 1001)]
    with conn.transaction():
        conn.execute("DECLARE rows_of SCROLL CURSOR FOR SELECT i, md5(i::text) FROM generate_series(1, 1000) AS i")
        found = []
        while batch := conn.execute("FETCH 150 FROM rows_of").fetchall():
            found += batch
        equal("rows", expected, found)
        equal("backwards", expected[-1], one(conn, "FETCH LAST FROM rows_of"))
        conn.execute("CLOSE rows_of")


@check
def driver_fetch_size(conn):
    with conn.transaction(), conn.cursor("named") as cursor:
        cursor.itersize = 97
        cursor.execute("SELECT i FROM generate_series(1, 2000) AS i")
        equal("rows", list(range(1, 2001)), [row[0] for row in cursor])


@check
def large_object(conn):
    # psycopg 3 has no large object interface of its own.
    content = data.noise(300_000)
    with conn.transaction():
        oid = one(conn, "SELECT lo_from_bytea(0, %b)", (content,))[0]
        equal("content", content, one(conn, "SELECT lo_get(%s::oid)", (oid,))[0])
        descriptor = one(conn, "SELECT lo_open(%s::oid, x'60000'::int)", (oid,))[0]
        conn.execute("SELECT lowrite(%s, %b)", (descriptor, b"start"))
        equal("overwritten", b"start" + content[5:10], one(conn, "SELECT lo_get(%s::oid, 0, 10)", (oid,))[0])
        conn.execute("SELECT lo_unlink(%s::oid)", (oid,))


@check
def transaction_rollback(conn):
    conn.execute("CREATE TABLE ledger (id int)")
    try:
        with conn.transaction():
            conn.execute("INSERT INTO ledger VALUES (1)")
            with conn.transaction(force_rollback=True):
                conn.execute("INSERT INTO ledger VALUES (2)")
            equal("after the savepoint", (1,), one(conn, "SELECT count(*) FROM ledger"))
            raise InterruptedError
    except InterruptedError:
        pass
    equal("after the rollback", (0,), one(conn, "SELECT count(*) FROM ledger"))


@check
def error_fields(conn):
    conn.execute("CREATE TABLE unique_of (id int CONSTRAINT unique_of_once PRIMARY KEY)")
    conn.execute("INSERT INTO unique_of VALUES (1)")
    duplicate = fails("23505", lambda: conn.execute("INSERT INTO unique_of VALUES (1)"))
    equal("class", True, isinstance(duplicate, errors.UniqueViolation))
    diag = duplicate.diag
    found = (diag.severity_nonlocalized, diag.message_detail, diag.schema_name, diag.table_name, diag.constraint_name)
    equal("fields", ("ERROR", "Key (id)=(1) already exists.", SCHEMA, "unique_of", "unique_of_once"), found)
    unknown = fails("42703", lambda: conn.execute("SELECT 1, no_such_column"))
    equal("position", "11", unknown.diag.statement_position)
    raised = fails("P0404", lambda: conn.execute("DO $$ BEGIN RAISE EXCEPTION 'says no' USING ERRCODE = 'P0404', HINT = 'ask again', DETAIL = 'because'; END $$"))
    equal("hint and detail", ("ask again", "because"), (raised.diag.message_hint, raised.diag.message_detail))


@check
def listen_notify_within_1s(conn):
    arrived = []
    conn.add_notify_handler(arrived.append)
    conn.execute(f"LISTEN {SCHEMA}")
    with connect() as sender:
        sent = time.monotonic()
        sender.execute(f"NOTIFY {SCHEMA}, 'from the other ☃'")
        # Readable with nothing asked: the notification came by itself, not on the back of a query.
        readable = select.select([conn.fileno()], [], [], 2)[0]
        took = time.monotonic() - sent
    equal("readable", True, bool(readable))
    conn.execute(f"UNLISTEN {SCHEMA}")
    equal("notifications", [(SCHEMA, "from the other ☃")], [(n.channel, n.payload) for n in arrived])
    if took > 1:
        raise AssertionError(f"took {took:.3f} s, at most 1")


@check
def notice_before_sleep_ends(conn):
    arrived = []
    conn.add_notice_handler(lambda diag: arrived.append((diag.message_primary, time.monotonic())))
    conn.execute("DO $$ BEGIN RAISE NOTICE 'early bird'; PERFORM pg_sleep(2); END $$")
    ended = time.monotonic()
    equal("notices", ["early bird"], [message for message, _ in arrived])
    if ended - arrived[0][1] < 1:
        raise AssertionError(f"arrived only {ended - arrived[0][1]:.3f} s before the end of a 2 s sleep")


@check
def cancel_57014_within_3s(conn):
    asked = []

    def cancel():
        asked.append(time.monotonic())
        conn.cancel()

    timer = threading.Timer(0.3, cancel)
    timer.start()
    fails("57014", lambda: conn.execute("SELECT pg_sleep(60)"))
    took = time.monotonic() - asked[0]
    timer.join()
    if took > 3:
        raise AssertionError(f"took {took:.3f} s, at most 3")
    equal("usable after cancel", (1,), one(conn, "SELECT 1"))


@check
def statement_timeout_57014(conn):
    conn.execute("SET statement_timeout = '150ms'")
    try:
        fails("57014", lambda: conn.execute("SELECT pg_sleep(30)"))
    finally:
        conn.execute("RESET statement_timeout")


@check
def short_queries_200(conn):
    for i in range(200):
        equal("query", (i,), one(conn, f"SELECT {i}"))


@check
def json_5000_rows_md5(conn):
    documents = [row[0] for row in conn.execute(data.JSON_QUERY + " ORDER BY i")]
    equal("rows", 5000, len(documents))
    server = one(conn, f"SELECT md5(string_agg(doc, '' ORDER BY i)) FROM ({data.JSON_QUERY}) AS documents")[0]
    equal("md5", server, data.md5("".join(documents)))


@check
def binary_result(conn):
    cursor = conn.cursor(binary=True)
    cursor.execute(
        "SELECT i, i::int8 << 33, i / 8.0::float8, decode(md5(i::text), 'hex'), md5(i::text)::uuid, DATE '2000-01-01' + i"
        " FROM generate_series(%s::int4, 300) AS i",
        (1,),
    )
    equal("format of the column", 1, cursor.pgresult.fformat(1))
    for i, row in enumerate(cursor, start=1):
        digest = data.md5(str(i))
        day = datetime.date(2000, 1, 1) + datetime.timedelta(days=i)
        equal("row", (i, i << 33, i / 8.0, bytes.fromhex(digest), uuid.UUID(digest), day), row)
    equal("rows", 300, cursor.rowcount)


@check
def clean_close(conn):
    with connect() as closing:
        backend = one(closing, "SELECT pg_backend_pid()")[0]
    for _ in range(40):
        left = one(conn, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", (backend,))[0]
        if left == 0:
            return
        time.sleep(0.05)
    equal("backends left of a closed connection", 0, left)


def run(function):
    """One check on a connection of its own, so that one that fails cannot spoil the next."""
    start = time.monotonic()
    signal.alarm(CHECK_SECONDS_MAX)
    try:
        with on_schema() as conn:
            function(conn)
    except Skip as reason:
        print(f"skip {function.__name__}: {reason}", flush=True)
        passed = True
    except Exception as problem:  # noqa: BLE001 - whatever it is becomes the reason
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        print(f"not ok {function.__name__}: {reason}", flush=True)
        passed = False
        if os.environ.get("CLIENT_TRACE"):
            traceback.print_exc()
    else:
        print(f"ok {function.__name__}", flush=True)
        passed = True
    finally:
        signal.alarm(0)
    if os.environ.get("CLIENT_TRACE"):
        print(f"# {function.__name__} {(time.monotonic() - start) * 1000:.0f} ms", file=sys.stderr)
    return passed


def timed_out(_signal, _frame):
    raise TimeoutError(f"no end within {CHECK_SECONDS_MAX} s")


def main():
    signal.signal(signal.SIGALRM, timed_out)
    implementation = psycopg.pq.__impl__
    print(f"# psycopg {psycopg.__version__}, {implementation}, libpq {psycopg.pq.version()}", flush=True)
    try:
        with connect() as conn:
            conn.execute(f"CREATE SCHEMA {SCHEMA}")
    except psycopg.Error as problem:
        print(f"not ok connect_server_version: {' '.join(str(problem).split())}")
        return 1
    try:
        return 0 if all([run(function) for function in CHECKS]) else 1
    finally:
        with connect() as conn:
            conn.execute("SET client_min_messages = warning; SET lock_timeout = '5s'")
            conn.execute(f"DROP SCHEMA {SCHEMA} CASCADE")


if __name__ == "__main__":
    sys.exit(main())
