"""What zson columns return and take in Python's drivers: the same as jsonb columns. Connection data comes from libpq's environment."""

import asyncio
import os
import sys
import traceback
import uuid

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
from psycopg.types.json import Jsonb

import pgshrink_zson

DOCUMENTS = [{"a": 1, "b": [None, True, "x\u00e4\u20ac"], "c": {"d": 1.5}}, [], "text", 12, None, {}]
TABLE = "zson_" + uuid.uuid4().hex[:8]
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def same(found, expected, what):
    if found != expected or type(found) is not type(expected):
        raise AssertionError(f"{what}: expected {expected!r}, found {found!r}")


def of_both(rows, what):
    """Each row: a zson, and the jsonb beside it."""
    rows = list(rows)
    same(len(rows), len(DOCUMENTS), what)
    for (zson, jsonb), document in zip(rows, DOCUMENTS):
        same(zson, jsonb, what)
        same(zson, document, what)


ASKED = f"SELECT doc, was FROM {TABLE} ORDER BY id"


def fresh(execute):
    execute(f"DROP TABLE IF EXISTS {TABLE}")
    execute(f"CREATE TABLE {TABLE} (id int, doc zson('drivers'), was jsonb)")


@check
def psycopg3():
    with psycopg.connect("", autocommit=True) as connection:
        pgshrink_zson.register_psycopg(connection)
        fresh(connection.execute)
        with connection.cursor() as cursor:
            cursor.executemany(
                f"INSERT INTO {TABLE} VALUES (%s, %s, %s)",
                [(n, Jsonb(document), Jsonb(document)) for n, document in enumerate(DOCUMENTS)],
            )
        for binary in (False, True):
            with connection.cursor(binary=binary) as cursor:
                of_both(cursor.execute(ASKED).fetchall(), f"binary {binary}")
                array = cursor.execute(f"SELECT array_agg(doc ORDER BY id) FROM {TABLE}").fetchone()[0]
                same(array, DOCUMENTS, "array")
        found = connection.execute(f"SELECT id FROM {TABLE} WHERE doc @> %s", [Jsonb({"a": 1})]).fetchall()
        same(found, [(0,)], "operator")
        with connection.cursor() as cursor, cursor.copy(f"COPY {TABLE} FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "jsonb", "jsonb"])
            copy.write_row((100, Jsonb({"by": "copy"}), None))
        same(connection.execute(f"SELECT doc FROM {TABLE} WHERE id = 100").fetchone()[0], {"by": "copy"}, "copy")


@check
def psycopg3_async():
    async def run():
        connection = await psycopg.AsyncConnection.connect("", autocommit=True)
        async with connection:
            await pgshrink_zson.register_psycopg_async(connection)
            cursor = await connection.execute("SELECT '{\"a\": 1}'::zson, NULL::zson")
            same(await cursor.fetchone(), ({"a": 1}, None), "async")

    asyncio.run(run())


@check
def psycopg2_():
    connection = psycopg2.connect("")
    connection.autocommit = True
    pgshrink_zson.register_psycopg2(connection)
    with connection.cursor() as cursor:
        fresh(cursor.execute)
        for n, document in enumerate(DOCUMENTS):
            wrapped = psycopg2.extras.Json(document)
            cursor.execute(f"INSERT INTO {TABLE} VALUES (%s, %s, %s)", (n, wrapped, wrapped))
        cursor.execute(ASKED)
        of_both(cursor.fetchall(), "rows")
        cursor.execute(f"SELECT array_agg(doc ORDER BY id) FROM {TABLE}")
        same(cursor.fetchone()[0], DOCUMENTS, "array")
        cursor.execute(f"SELECT doc FROM {TABLE} WHERE doc @> %s", (psycopg2.extras.Json({"a": 1}),))
        same(cursor.fetchall(), [(DOCUMENTS[0],)], "operator")
    connection.close()


@check
def asyncpg_():
    async def run():
        connection = await asyncpg.connect()
        await pgshrink_zson.register_asyncpg(connection)
        await connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        await connection.execute(f"CREATE TABLE {TABLE} (id int, doc zson('drivers'))")
        await connection.copy_records_to_table(TABLE, records=list(enumerate(DOCUMENTS)))
        rows = await connection.fetch(f"SELECT doc, doc::text AS text, id FROM {TABLE} ORDER BY id")
        for row, document in zip(rows, DOCUMENTS, strict=True):
            same(row["doc"], document, "copy_records_to_table")
        await connection.execute(f"INSERT INTO {TABLE} VALUES ($1, $2)", 100, {"by": ["insert"]})
        same(await connection.fetchval(f"SELECT doc FROM {TABLE} WHERE id = 100"), {"by": ["insert"]}, "insert")
        same(await connection.fetchval("SELECT NULL::zson"), None, "null")
        same(await connection.fetchval(f"SELECT array_agg(doc ORDER BY id) FROM {TABLE} WHERE id < 3"), DOCUMENTS[:3], "array")
        found = await connection.fetchval(f"SELECT id FROM {TABLE} WHERE doc @> $1::zson", {"by": ["insert"]})
        same(found, 100, "operator")
        await connection.close()

    asyncio.run(run())


@check
def sqlalchemy_():
    import sqlalchemy as sa
    from pgshrink_zson.sqlalchemy import Zson

    for driver in ("psycopg", "psycopg2"):
        engine = sa.create_engine(f"postgresql+{driver}://")
        metadata = sa.MetaData()
        table = sa.Table(TABLE, metadata, sa.Column("id", sa.Integer, primary_key=True), sa.Column("doc", Zson("drivers")))
        with engine.begin() as connection:
            metadata.drop_all(connection)
            metadata.create_all(connection)
            declared = "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(:t) AND attname = 'doc'"
            same(connection.execute(sa.text(declared), {"t": TABLE}).scalar(), "zson('drivers')", driver)
            kept = [document for document in DOCUMENTS if document is not None]
            connection.execute(table.insert(), [{"id": n, "doc": document} for n, document in enumerate(kept)])
            rows = connection.execute(sa.select(table.c.doc).order_by(table.c.id)).scalars().all()
            same(rows, kept, driver)
            found = connection.execute(sa.select(table.c.id).where(table.c.doc["c"]["d"].astext == "1.5")).scalars().all()
            same(found, [0], f"{driver}: path")
            found = connection.execute(sa.select(table.c.id).where(table.c.doc.contains({"a": 1}))).scalars().all()
            same(found, [0], f"{driver}: contains")
            metadata.drop_all(connection)
        engine.dispose()


@check
def django_():
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "HOST": os.environ["PGHOST"],
                "PORT": os.environ["PGPORT"],
                "USER": os.environ["PGUSER"],
                "PASSWORD": os.environ.get("PGPASSWORD", ""),
                "NAME": os.environ["PGDATABASE"],
            }
        },
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    )
    django.setup()
    from django.db import connection, models
    from pgshrink_zson.django import ZsonField

    class Event(models.Model):
        doc = ZsonField(profile="drivers", null=True)

        class Meta:
            app_label = "checks"
            db_table = TABLE

    with connection.cursor() as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {TABLE}")
    with connection.schema_editor() as editor:
        editor.create_model(Event)
    kept = [document for document in DOCUMENTS if document is not None]
    for document in kept:
        Event.objects.create(doc=document)
    same([event.doc for event in Event.objects.order_by("id")], kept, "rows")
    same(Event.objects.filter(doc__c__d=1.5).count(), 1, "key lookup")
    same(Event.objects.filter(doc__contains={"a": 1}).count(), 1, "contains")
    same(Event.objects.filter(doc__has_key="b").count(), 1, "has_key")
    same(Event.objects.values_list("doc__a", flat=True).order_by("id")[0], 1, "values_list")
    same(Event.objects.filter(doc={}).count(), 1, "equality")
    same(Event._meta.get_field("doc").deconstruct()[3]["profile"], "drivers", "migration")


def main():
    failed = False
    for function in CHECKS:
        name = function.__name__.strip("_")
        try:
            function()
            print(f"ok {name}", flush=True)
        except Exception as error:  # noqa: BLE001: each check reports its own
            failed = True
            print(f"not ok {name}: {type(error).__name__}: {error}", flush=True)
            if os.environ.get("CLIENT_TRACE"):
                traceback.print_exc()
    with psycopg.connect("", autocommit=True) as connection:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
    sys.exit(failed)


main()
