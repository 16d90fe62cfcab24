"""Masks secrets in the reply of a receiver, which may repeat what it was sent."""

from __future__ import annotations

import base64
import html
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

_MASK = "***"
#: Shorter parts of a path are words ("services", "webhooks").
_MAX_WORD_CHARACTERS = 8
#: Shorter values of a query are no secrets.
_MIN_VALUE_CHARACTERS = 5


def mask_url(url: str) -> Callable[[str], str]:
    """Return a function that masks a webhook's URL and the secret parts of it."""
    parts = urllib.parse.urlsplit(url)
    userinfo, _, host = parts.netloc.rpartition("@")
    path = urllib.parse.urlunsplit(("", "", parts.path, parts.query, parts.fragment))
    secrets = [url, f"{parts.scheme}://{host}{path}", f"{host}{path}"]
    if userinfo:
        user, _, password = userinfo.partition(":")
        plain = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password)}"
        secrets += [userinfo, plain, password or user]
    secrets += [path, parts.path, parts.query, parts.fragment]
    secrets += [word for word in parts.path.split("/") if len(word) > _MAX_WORD_CHARACTERS]
    query_values = [field.rpartition("=")[2] for field in parts.query.split("&")]
    secrets += [value for value in query_values if len(value) >= _MIN_VALUE_CHARACTERS]
    return mask(secrets)


def mask(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that masks these texts: plain, quoted for a URL, JSON or HTML, base64."""
    forms = {form for secret in secrets if len(secret) > 1 for form in _forms(secret)}
    longest_first = sorted((re.escape(form) for form in forms if len(form) > 1), key=len)[::-1]
    if not longest_first:
        return lambda text: text
    # %2f and %2F mean the same.
    pattern = re.compile("|".join(longest_first), re.IGNORECASE)
    return lambda text: pattern.sub(_MASK, text)


def _forms(secret: str) -> Iterator[str]:
    for text in (secret, urllib.parse.unquote(secret), urllib.parse.unquote_plus(secret)):
        yield from (text, urllib.parse.quote(text), urllib.parse.quote(text, safe=""))
        yield from (urllib.parse.quote_plus(text), text.replace("/", "\\/"), html.escape(text))
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(text.encode(errors="replace")).decode().rstrip("=")
