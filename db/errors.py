"""Errors of the database, whose messages name the cause and the fix."""

from __future__ import annotations

_SHOWN_CHARACTERS = 60


class StoreError(Exception):
    """The database cannot be used."""


class LockedError(StoreError):
    """Another process has locked the database for too long."""


class ReadOnlyError(StoreError):
    """The database or its folder cannot be written."""


class DiskFullError(StoreError):
    """The disk has no space for the database to grow."""


class CorruptError(StoreError):
    """The file is not a database, or a damaged one."""

    def __init__(self, message: str, *, problem: str = "") -> None:
        """`problem`: what is damaged, without the fix."""
        super().__init__(message)
        self.problem = problem or message


class DamagedValueError(CorruptError):
    """A stored value is not one that its column can hold."""

    def __init__(self, table: str, column: str, value: object, expected: str) -> None:
        super().__init__(f"{table}: {wrong_value(column, value, expected)}")
        self.table, self.column, self.value, self.expected = table, column, value, expected


class DamagedRowError(CorruptError):
    """A stored row is damaged; the message names it."""


class UnsafeFileSystemError(StoreError):
    """The file system does not keep several hosts from writing at once."""


class UnreachableError(StoreError):
    """The server does not answer, or refuses the connection."""


class NotEmptyError(StoreError):
    """The target of a copy has rows already."""


class NewerSchemaError(StoreError):
    """The database was written by a newer version."""


def wrong_value(column: str, value: object, expected: str) -> str:
    """Return a message about a value that a column cannot hold."""
    if value is None:
        return f"{column} is missing"
    text = repr(value)
    text = text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."
    if isinstance(value, bytes):
        text = f"{text}, bytes that are not UTF-8 text"
    return f"{column} is {text}, not {expected}"
