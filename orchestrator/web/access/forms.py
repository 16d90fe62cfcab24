"""Forms that change something: a browser can send only what this server has shown to it.

Each form has a token for one browser, one use and one content: the action and its jobs. Without it
a POST is refused, also from a page that got past the checks of security.py.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import urllib.parse
from typing import NamedTuple

from starlette import exceptions, requests, responses

#: 1,000 jobs have room in it.
_MAX_BODY_BYTES = 64 * 1024


class HiddenFields(NamedTuple):
    """What a form sends beside what it is about."""

    #: a second request with the same number is the first one again
    number: str
    token: str


class Forms:
    """Makes the hidden fields of forms, and checks those that browsers send."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def hidden_fields(self, session: str, content: str) -> HiddenFields:
        """Return the hidden fields of a new form for one browser."""
        number = secrets.token_urlsafe(16)
        return HiddenFields(number, self._token(session, number, content))

    def confirm(self, session: str | None, sent: HiddenFields, content: str) -> None:
        """Raise HTTPException unless the form with this content was shown to this browser."""
        is_known = session is not None and hmac.compare_digest(
            sent.token.encode(), self._token(session, sent.number, content).encode()
        )
        if not is_known:
            message = "This form is not valid any more. Go back, reload the page and try again."
            raise exceptions.HTTPException(403, message)

    def _token(self, session: str, number: str, content: str) -> str:
        message = json.dumps([session, number, content]).encode()
        return hmac.new(self._key, message, hashlib.sha256).hexdigest()


def session_of(request: requests.Request) -> str | None:
    """Return the secret of the browser, if it has one from this server."""
    return request.cookies.get(_cookie_name(request))


def with_session(
    request: requests.Request, response: responses.Response, session: str, *, is_secure: bool
) -> None:
    """Let the browser keep its secret until it is closed."""
    response.set_cookie(
        _cookie_name(request), session, httponly=True, samesite="strict", secure=is_secure
    )


def _cookie_name(request: requests.Request) -> str:
    # Browsers send the cookies of localhost to all its ports.
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"orchestrator-forms-{port if port.isdecimal() else 0}"


async def fields_of(request: requests.Request) -> dict[str, str]:
    """Return the fields of a form. Raises HTTPException if it is too large or of another type."""
    if request.headers.get("content-type") != "application/x-www-form-urlencoded":
        raise exceptions.HTTPException(415, "This is not a form.")
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MAX_BODY_BYTES:
            raise exceptions.HTTPException(413, "This form is too large.")
    return dict(urllib.parse.parse_qsl(body.decode("ascii", errors="replace")))
