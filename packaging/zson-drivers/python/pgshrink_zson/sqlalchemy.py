"""SQLAlchemy: `Column(Zson("events"))`, with jsonb's operators, on psycopg, psycopg2 and asyncpg alike."""

from sqlalchemy import cast
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import TypeDecorator


class Zson(TypeDecorator):
    """A zson column of a profile; without one, of the database's default profile."""

    impl = JSONB
    cache_ok = True

    def __init__(self, profile=None):
        super().__init__()
        self.profile = profile

    def column_expression(self, column):
        # The driver then sees a jsonb, and needs no registration.
        return cast(column, JSONB)


@compiles(Zson, "postgresql")
def _declare(element, compiler, **_):
    return "zson" if element.profile is None else "zson('%s')" % element.profile.replace("'", "''")
