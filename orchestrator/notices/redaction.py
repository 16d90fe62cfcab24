"""Masks secrets in what a receiver answers, which may repeat what it was sent."""

from __future__ import annotations

import base64
import html
import re
import urllib.parse
from collections.abc import Callable, Iterable, Iterator

_MASK = "***"
#: Shorter parts of a path are words ("services", "webhooks"), and name no secret.
_LONGEST_WORD = 8
#: A value in a query of such a length may be a key.
_SHORTEST_VALUE = 5


def of_url(url: str) -> Callable[[str], str]:
    """Return what masks a webhook's address, and whatever of it lets others write there."""
    return masking(_parts(url))


def _parts(url: str) -> Iterator[str]:
    parts = urllib.parse.urlsplit(url)
    userinfo, at, host = parts.netloc.rpartition("@")
    path = urllib.parse.urlunsplit(("", "", parts.path, parts.query, parts.fragment))
    yield from (url, f"{parts.scheme}://{host}{path}", f"{host}{path}")
    if at:
        user, _, password = userinfo.partition(":")
        plain = f"{urllib.parse.unquote(user)}:{urllib.parse.unquote(password)}"
        yield from (userinfo, plain, password or user)
    yield from (path, parts.path, parts.query, parts.fragment)
    yield from (word for word in parts.path.split("/") if len(word) > _LONGEST_WORD)
    for field in parts.query.split("&"):
        value = field.rpartition("=")[2]
        if len(value) >= _SHORTEST_VALUE:
            yield value


def masking(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return what masks these words: plain, quoted for a URL, JSON or HTML, and as base64."""
    forms = {form for secret in secrets if len(secret) > 1 for form in _forms(secret)}
    longest_first = sorted((re.escape(form) for form in forms if len(form) > 1), key=len)[::-1]
    if not longest_first:
        return lambda text: text
    # The digits of %2f and %2F mean the same.
    pattern = re.compile("|".join(longest_first), re.IGNORECASE)
    return lambda text: pattern.sub(_MASK, text)


def _forms(secret: str) -> Iterator[str]:
    for text in (secret, urllib.parse.unquote(secret), urllib.parse.unquote_plus(secret)):
        yield text
        yield urllib.parse.quote(text)
        yield urllib.parse.quote(text, safe="")
        yield urllib.parse.quote_plus(text)
        yield text.replace("/", "\\/")
        yield html.escape(text)
        for encoded in (base64.b64encode, base64.urlsafe_b64encode):
            yield encoded(text.encode(errors="replace")).decode().rstrip("=")
