"""What PostgreSQL and the way to it refuse, as plain sentences that name the cure."""

from __future__ import annotations

import re

from db import errors

#: By SQLSTATE (postgresql.org/docs, appendix A).
_LOCK_TIMEOUTS = ("55P03", "57014", "40P01")
_WRITER_STOPPED = "25P03"
_READ_ONLY = "25006"
_NO_RIGHT = "42501"
_DISK_FULL = "53100"
_TOO_MANY = "53300"
_CORRUPT = ("XX001", "XX002")
#: How libpq and the server word what happens before there is a session; no SQLSTATE comes with it.
#: A server that speaks another language ends at the last line.
_BEFORE_A_SESSION = (
    (
        r"no password supplied|password authentication failed",
        "refuses the password. Put the right one into ~/.pgpass (chmod 600, a line "
        "HOST:PORT:DATABASE:USER:PASSWORD) or into the file that PGPASSFILE names",
    ),
    (
        r"no pg_hba\.conf entry|[Pp]eer authentication failed|Ident authentication failed",
        "lets this user not in from this host. Ask who runs the server for a line in pg_hba.conf",
    ),
    (
        r'role ".*" does not exist',
        "knows no such user. Ask who runs the server: createuser NAME",
    ),
    (
        r'database ".*" does not exist',
        "is not there. Make it, or ask who runs the server: createdb -O USER NAME",
    ),
    (
        r"too many clients|remaining connection slots|too many connections",
        "has no connection left. Try again later; each command that runs holds one",
    ),
    (
        r"starting up|shutting down|recovery mode",
        "is being started or stopped. Try again in a minute",
    ),
    (
        r"certificate|SSL|GSS",
        "cannot be reached safely. sslmode and sslrootcert in the URL say what is asked of it",
    ),
)


def translate(error: Exception, place: str) -> errors.StoreError:
    """Return the plain error for one of psycopg's; `place` is the URL as people may see it."""
    told = _words(error)
    match getattr(error, "sqlstate", None):
        case None:
            return _away(told, place)
        case code if code in _LOCK_TIMEOUTS:
            return errors.LockedError(
                f"{place} is locked by another process for too long ({told}). "
                "pg_stat_activity shows which one; try again when it has ended."
            )
        case code if code == _WRITER_STOPPED:
            return errors.LockedError(
                f"{place} ended a transaction that was idle for too long: this process was "
                "stopped, or cut off. Nothing of it was stored; try again."
            )
        case code if code == _READ_ONLY:
            return errors.ReadOnlyError(
                f"{place} is read-only ({told}). On a standby server name the primary one, "
                "or put target_session_attrs=read-write into the URL."
            )
        case code if code == _NO_RIGHT:
            return errors.ReadOnlyError(
                f"{place} refuses this user a right ({told}). Use a database of your own "
                "(createdb -O USER NAME), or a schema: CREATE SCHEMA AUTHORIZATION USER"
            )
        case code if code == _DISK_FULL:
            return errors.DiskFullError(
                f"No space left for {place}. Nothing was stored; make room on the server."
            )
        case code if code == _TOO_MANY:
            return _away(told, place)
        case code if code in _CORRUPT:
            return errors.CorruptError(f"{place} is damaged ({told}). Restore a backup.")
        # 08: the connection; 57P: the server ends or was asked to end this session.
        case code if code.startswith(("08", "57P")):
            return _away(told, place)
    return errors.StoreError(f"{place}: {told}")


def _away(told: str, place: str) -> errors.StoreError:
    for pattern, cure in _BEFORE_A_SESSION:
        if re.search(pattern, told):
            return errors.UnreachableError(f"{place} {cure} ({told}).")
    return errors.UnreachableError(
        f"{place} cannot be reached ({told}). "
        "Look whether the server runs there, and at the network between."
    )


def _words(error: Exception) -> str:
    """Return the first line of what was told, less what every such line begins with."""
    diagnosis = getattr(getattr(error, "diag", None), "message_primary", None)
    lines = [line.strip() for line in str(diagnosis or error).splitlines() if line.strip()]
    # With several addresses each has a line; libpq's own hints are in the cures.
    told = [line for line in lines if not line.startswith(("Is the server", "Multiple", "- "))]
    text = (told or lines or [type(error).__name__])[0]
    return re.sub(r"^.*?(?:FATAL|ERROR): +|^connection (?:is bad|failed): ", "", text).rstrip(".")
