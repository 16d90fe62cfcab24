"""The types of columns that both databases need a word for."""

import datetime
from collections.abc import Callable

import sqlalchemy as sa


class UtcDateTime(sa.types.TypeDecorator[datetime.datetime]):
    """An aware moment: stored in UTC, read back in UTC. SQLite's text sorts by time."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(
        self, value: datetime.datetime | None, dialect: sa.Dialect
    ) -> datetime.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without zone cannot be stored: {value}")
        return value.astimezone(datetime.UTC)

    def process_result_value(
        self, value: datetime.datetime | None, dialect: sa.Dialect
    ) -> datetime.datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            return value.replace(tzinfo=datetime.UTC)
        return value.astimezone(datetime.UTC)


class Words(sa.types.TypeDecorator[str]):
    """Any text: PostgreSQL takes no NUL, so there it becomes the sign for what cannot be shown."""

    impl = sa.Text
    cache_ok = True

    def bind_processor(self, dialect: sa.Dialect) -> Callable[[str | None], str | None] | None:
        return _without_nul if dialect.name == "postgresql" else None


def _without_nul(text: str | None) -> str | None:
    return text.replace("\0", "\ufffd") if text else text


#: SQLite numbers rows by itself only in a column that is plain INTEGER.
BigKey = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
