"""A database's URL as it may be shown: what is not known to be harmless is masked.

SQLAlchemy's own rendering ends a password at its first @, and shows all options.
"""

from __future__ import annotations

import re
import urllib.parse

_MASK = "***"
#: libpq's options that hold no secret (password, sslpassword, oauth_client_secret and scram keys
#: do), and psycopg's.
HARMLESS_OPTIONS = frozenset(
    "application_name channel_binding client_encoding connect_timeout dbname "
    "fallback_application_name gssdelegation gssencmode gsslib host hostaddr keepalives "
    "keepalives_count keepalives_idle keepalives_interval krbsrvname load_balance_hosts "
    "max_protocol_version min_protocol_version options passfile port prepare_threshold "
    "require_auth requirepeer requiressl service ssl_max_protocol_version "
    "ssl_min_protocol_version sslcert sslcertmode sslcompression sslcrl sslcrldir sslkey sslmode "
    "sslnegotiation sslrootcert sslsni target_session_attrs tcp_user_timeout user".split()
)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def without_password(url: str) -> str:
    """Return a database's URL as it may be shown."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        # The words of libpq's other form, or a mistake.
        return _MASK if url else ""
    # A password that was not encoded may hold any character, @ and ? too. A file has none.
    is_file = url.startswith("sqlite:")
    whole = url[scheme.end() :]
    userinfo, at, rest = ("", "", whole) if is_file else whole.rpartition("@")
    if "?" in userinfo:
        # Whether the last @ is one of a password or of an option cannot be told.
        name = re.match("[^:/?@]*", userinfo)
        return f"{scheme[0]}{name[0] if name else ''}{_MASK}"
    address, question, query = rest.partition("?")
    user, colon, _ = userinfo.partition(":")
    shown = f"{user}:{_MASK}@" if colon else f"{userinfo}{at}"
    if not at and not is_file:
        address = _without_odd_port(address)
    return f"{scheme[0]}{shown}{address}{question}{_shown_options(query)}"


def has_password(url: str) -> bool:
    """Tell whether a database's URL may hold a password."""
    return without_password(url) != url


def _without_odd_port(address: str) -> str:
    """Mask what stands where a port should: USER:PASSWORD whose @HOST was forgotten."""
    hosts = address.partition("/")[0]
    if hosts.startswith("[") or re.fullmatch(r"[^:]*(?::[0-9]*(?:,[^:]*)?)*", hosts):
        return address
    return f"{hosts.partition(':')[0]}:{_MASK}"


def _shown_options(query: str) -> str:
    """Mask from the first option on that may be a secret, for it may hold any character."""
    shown: list[str] = []
    for option in query.split("&"):
        key = urllib.parse.unquote_plus(option.partition("=")[0]).lower()
        if option and key not in HARMLESS_OPTIONS:
            return "&".join([*shown, _MASK])
        shown.append(option)
    return query
