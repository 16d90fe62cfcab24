"""The errors of PostgreSQL and its client library as messages that name the cause and the fix."""

from __future__ import annotations

import re

from orchestrator import errors

#: Beginnings of SQLSTATEs (postgresql.org/docs, appendix A), each with the error and its message.
_MESSAGES: tuple[tuple[tuple[str, ...], type[errors.DatabaseError], str], ...] = (
    (
        ("55P03", "57014", "40P01"),
        errors.DatabaseLockedError,
        "{name} is locked by another process for too long ({error}). "
        "pg_stat_activity shows which one; try again when it has ended.",
    ),
    (
        ("25P03",),
        errors.DatabaseLockedError,
        "{name} ended a transaction that was idle for too long: this process was stopped, or its "
        "connection was interrupted. Nothing of the transaction was stored. Try again.",
    ),
    (
        ("25006",),
        errors.DatabaseNotWritableError,
        "{name} is read-only ({error}). If this is a standby server, name the primary server, "
        "or add target_session_attrs=read-write to the URL.",
    ),
    (
        ("42501",),
        errors.DatabaseNotWritableError,
        "{name} denies this user a permission ({error}). Use a database of your own "
        "(createdb -O USER NAME), or a schema: CREATE SCHEMA AUTHORIZATION USER",
    ),
    (
        ("53100",),
        errors.DatabaseNotWritableError,
        "No space left for {name}. Nothing was stored. Free some space on the server.",
    ),
    (
        ("XX001", "XX002"),
        errors.DamageError,
        "{name} is damaged ({error}). Restore a backup.",
    ),
)
#: Of the connection, the end of the server or the session, and too many connections.
_UNREACHABLE = ("08", "57P", "53300")
#: Messages of libpq and the server before there is a session, which have no SQLSTATE. A server that
#: speaks another language gets the general message.
_REFUSED_CONNECTIONS = (
    (
        r"no password supplied|password authentication failed",
        "refuses the password. Put the right one into ~/.pgpass (chmod 600, a line "
        "HOST:PORT:DATABASE:USER:PASSWORD) or into the file that PGPASSFILE names",
    ),
    (
        r"no pg_hba\.conf entry|[Pp]eer authentication failed|Ident authentication failed",
        "does not accept this user from this host. Ask the administrator of the server for a line "
        "in pg_hba.conf",
    ),
    (
        r'role ".*" does not exist',
        "has no such user. Ask the administrator of the server: createuser NAME",
    ),
    (
        r'database ".*" does not exist',
        "does not exist. Create it, or ask the administrator of the server: createdb -O USER NAME",
    ),
    (
        r"too many clients|remaining connection slots|too many connections",
        "has no free connection. Try again later; each running command uses one",
    ),
    (
        r"starting up|shutting down|recovery mode",
        "is starting or shutting down. Try again in a minute",
    ),
    (
        r"certificate|SSL|GSS",
        "refuses an encrypted connection, or offers one that is not accepted. Check sslmode and "
        "sslrootcert in the URL",
    ),
)


def translate(error: Exception, name: str) -> errors.DatabaseError:
    """Return our error for one of psycopg; `name` is the database in messages."""
    text = _first_line(error)
    code = getattr(error, "sqlstate", None) or ""
    for codes, kind, message in _MESSAGES:
        if code in codes:
            return kind(message.format(name=name, error=text))
    if code and not code.startswith(_UNREACHABLE):
        return errors.DatabaseError(f"{name}: {text}")
    for pattern, fix in _REFUSED_CONNECTIONS:
        if re.search(pattern, text):
            return errors.DatabaseError(f"{name} {fix} ({text}).")
    return errors.DatabaseError(
        f"{name} cannot be reached ({text}). Check that the server is running, and the network."
    )


def _first_line(error: Exception) -> str:
    """Return the first line of a message without its usual prefix."""
    message = getattr(getattr(error, "diag", None), "message_primary", None)
    lines = [line.strip() for line in str(message or error).splitlines() if line.strip()]
    # With several addresses there is a line for each. Our messages replace the hints of libpq.
    lines = [line for line in lines if not line.startswith(("Is the server", "Multiple", "- "))]
    text = lines[0] if lines else type(error).__name__
    return re.sub(r"^.*?(?:FATAL|ERROR): +|^connection (?:is bad|failed): ", "", text).rstrip(".")
