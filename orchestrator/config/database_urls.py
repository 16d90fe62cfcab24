"""Database URLs for display: everything that may be secret is masked.

SQLAlchemy's own rendering ends a password at its first @ and shows all options.
"""

from __future__ import annotations

import re
import urllib.parse

_MASK = "***"
#: Options of libpq and psycopg without secrets (password, sslpassword, oauth_client_secret and the
#: scram keys are secret).
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
    """Return a database's URL for display."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        # libpq's form of key=value words, or a mistake.
        return _MASK if url else ""
    # A password that was not encoded may contain any character, also @ and ?. A file has none.
    is_file = url.startswith("sqlite:")
    rest = url[scheme.end() :]
    userinfo, at, rest = ("", "", rest) if is_file else rest.rpartition("@")
    user, colon, _ = userinfo.partition(":")
    if "?" in userinfo:
        # The last @ may belong to a password or to an option.
        return f"{scheme[0]}{re.split('[:/?@]', userinfo)[0]}{_MASK}"
    address, question, query = rest.partition("?")
    hosts = address.partition("/")[0]
    is_plain = hosts.startswith("[") or re.fullmatch(r"[^:]*(?::[0-9]*(?:,[^:]*)?)*", hosts)
    if not at and not is_file and not is_plain:
        # USER:PASSWORD without @HOST looks like a host with an odd port.
        address = f"{hosts.partition(':')[0]}:{_MASK}"
    credentials = f"{user}:{_MASK}@" if colon else f"{userinfo}{at}"
    return f"{scheme[0]}{credentials}{address}{question}{_shown_options(query)}"


def has_password(url: str) -> bool:
    """Return whether a database's URL may contain a password."""
    return without_password(url) != url


def _shown_options(query: str) -> str:
    """Mask everything from the first option that may be secret: it may contain any character."""
    shown: list[str] = []
    for option in query.split("&"):
        key = urllib.parse.unquote_plus(option.partition("=")[0]).lower()
        if option and key not in HARMLESS_OPTIONS:
            return "&".join([*shown, _MASK])
        shown.append(option)
    return query
