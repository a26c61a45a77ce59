"""zson columns return in Python what jsonb columns return, and take what those take.

| driver        | once per                             | call                                            |
|---------------|--------------------------------------|-------------------------------------------------|
| psycopg 3     | connection (a pool's `configure`)    | `register_psycopg(connection)`                  |
| psycopg 3     | async connection                     | `await register_psycopg_async(connection)`      |
| psycopg 2     | connection                           | `register_psycopg2(connection)`                 |
| asyncpg       | connection (a pool's `init`)         | `await register_asyncpg(connection)`            |
| SQLAlchemy 2  |                                      | `pgshrink_zson.sqlalchemy.Zson("profile")`      |
| Django        |                                      | `pgshrink_zson.django.ZsonField(profile=...)`   |

Nothing is imported before it is used. The type is found as a query of that connection finds it: the extension's schema
has to be on the search path.
"""

import json

__all__ = ["register_psycopg", "register_psycopg_async", "register_psycopg2", "register_asyncpg"]

_MISSING = "this database has no type zson on the search path: CREATE EXTENSION zson"


def register_psycopg(connection):
    """psycopg 3. Parameters are `Jsonb(...)`, as for jsonb."""
    from psycopg.types import TypeInfo

    _adapt(connection, TypeInfo.fetch(connection, "zson"))


async def register_psycopg_async(connection):
    """psycopg 3, async connections."""
    from psycopg.types import TypeInfo

    _adapt(connection, await TypeInfo.fetch(connection, "zson"))


def _adapt(connection, info):
    from psycopg.types.json import JsonbBinaryLoader, JsonbLoader

    if info is None:
        raise LookupError(_MISSING)
    # Arrays too.
    info.register(connection)
    connection.adapters.register_loader(info.oid, JsonbLoader)
    connection.adapters.register_loader(info.oid, JsonbBinaryLoader)


def register_psycopg2(connection):
    """psycopg 2. Parameters are `Json(...)`, as for jsonb."""
    from psycopg2.extras import register_json

    with connection.cursor() as cursor:
        cursor.execute("SELECT t.oid, t.typarray FROM pg_type t WHERE t.oid = to_regtype('zson')")
        found = cursor.fetchone()
    if found is None:
        raise LookupError(_MISSING)
    register_json(connection, oid=found[0], array_oid=found[1])


async def register_asyncpg(connection, *, encoder=json.dumps, decoder=json.loads):
    """asyncpg, `copy_records_to_table` included. Documents are Python values, not texts."""
    schema = await connection.fetchval(
        "SELECT n.nspname FROM pg_type t JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = to_regtype('zson')"
    )
    if schema is None:
        raise LookupError(_MISSING)
    # As jsonb's: a version of one byte, then the text.
    await connection.set_type_codec(
        "zson",
        schema=schema,
        encoder=lambda value: b"\x01" + encoder(value).encode(),
        decoder=lambda data: decoder(bytes(data[1:]).decode()),
        format="binary",
    )
