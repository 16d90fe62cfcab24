"""Who may send a request, and what a browser may do with an answer.

The server listens on a Unix socket that only its user can open, or on a port of the loopback
interface. There processes/peers.py finds the connections of other users, and a browser needs a
cookie that it gets with a link that works once. What remains are requests that a foreign web page
makes in the user's own browser: for them are the checks of Host, Sec-Fetch-Site and Origin.
"""

from __future__ import annotations

import dataclasses
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http import cookies
from typing import Any, Protocol

from starlette import datastructures, responses

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Behind `ssh -L` the port is one of the user's computer.
_HOST = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::[0-9]{1,5})?", re.ASCII)
_METHODS = ("GET", "HEAD", "POST")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    # With no-referrer, browsers send `Origin: null` with a form.
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
#: Of pages: they contain the user's data, and change.
_NO_STORE = "no-store"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Refusal:
    status: int
    message: str


class Tokens:
    """Links that work once, and the cookie that a browser gets for one."""

    def __init__(self, port: int) -> None:
        #: Browsers send the cookies of localhost to all its ports: the name must differ.
        self.cookie_name = f"orchestrator-{port}"
        self._cookie = secrets.token_urlsafe(32)
        self._link = secrets.token_urlsafe(32)

    @property
    def link(self) -> str:
        """The token of the next link."""
        return self._link

    def use(self, token: str) -> str | None:
        """Return the Set-Cookie header for the token of the link, which is valid no more."""
        if not hmac.compare_digest(token.encode(), self._link.encode()):
            return None
        self._link = secrets.token_urlsafe(32)
        return f"{self.cookie_name}={self._cookie}; HttpOnly; SameSite=Strict; Path=/"

    def has_cookie(self, headers: Iterable[str]) -> bool:
        """Return whether Cookie headers have the cookie."""
        for text in headers:
            try:
                jar = cookies.SimpleCookie(text)
            except cookies.CookieError:
                continue
            if self.cookie_name in jar:
                value = jar[self.cookie_name].value
                return hmac.compare_digest(value.encode(), self._cookie.encode())
        return False


class Address(Protocol):
    """Where a proxy shows the server."""

    @property
    def host(self) -> str: ...

    @property
    def origin(self) -> str: ...


def refusal(
    method: str, headers: datastructures.Headers, address: Address | None = None
) -> Refusal | None:
    """Return why a request is refused; None: its page, or no page, may send it."""
    hosts = headers.getlist("host")
    is_ours = _HOST.fullmatch if address is None else address.host.__eq__
    if len(hosts) != 1 or not is_ours(hosts[0].lower()):
        # DNS rebinding: the name of a foreign page that leads to this server.
        names = "localhost or 127.0.0.1" if address is None else address.origin
        return Refusal(status=421, message=f"Open this server as {names}.")
    if method not in _METHODS:
        return Refusal(status=405, message=f"{method} is not supported.")
    site = headers.get("sec-fetch-site", "same-origin")
    is_navigation = method == "GET" and headers.get("sec-fetch-mode") == "navigate"
    is_top = headers.get("sec-fetch-dest") == "document"
    # Another port of localhost is "same-site", and may belong to someone else.
    if site not in ("same-origin", "none") and not (is_navigation and is_top):
        return Refusal(status=403, message="Another page sent this request.")
    if method == "POST" and headers.getlist("origin") != [
        f"http://{hosts[0]}" if address is None else address.origin
    ]:
        return Refusal(status=403, message="Another page sent this form.")
    return None


class Guard:
    """Wraps the application: it gets only permitted requests, and all answers get HEADERS."""

    def __init__(
        self,
        application: Application,
        tokens: Tokens | None,
        on_link_used: Callable[[], object] = lambda: None,
        address: Address | None = None,
    ) -> None:
        """Take None as tokens if only this user can connect; an address behind a proxy."""
        self._application = application
        self._tokens = tokens
        self._on_link_used = on_link_used
        self._address = address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = datastructures.MutableHeaders(raw=message["headers"])
                headers.update(HEADERS)
                headers.setdefault("cache-control", _NO_STORE)
                message = {**message, "headers": headers.raw}
            await send(message)

        answer = self._answer(scope)
        await (answer or self._application)(scope, receive, send_safely)

    def _answer(self, scope: Mapping[str, Any]) -> responses.Response | None:
        """Return the answer to a request that does not reach the application."""
        headers = datastructures.Headers(raw=list(scope["headers"]))
        if refused := refusal(scope["method"], headers, self._address):
            return _plain(refused)
        if self._tokens is None or self._tokens.has_cookie(headers.getlist("cookie")):
            return None
        query = datastructures.QueryParams(scope["query_string"])
        if scope["path"] == "/" and scope["method"] == "GET" and "token" in query:
            cookie = self._tokens.use(query["token"])
            if cookie is not None:
                self._on_link_used()
                # The address without the token: it would stay in the browser's history.
                return responses.RedirectResponse("./", 303, headers={"set-cookie": cookie})
            message = "This link was used, or is of an earlier server. "
        else:
            message = "This browser has no access. "
        return _plain(
            Refusal(
                status=401,
                message=f"{message}Open the newest link that `orchestrator web` printed.",
            )
        )


def _plain(refused: Refusal) -> responses.PlainTextResponse:
    return responses.PlainTextResponse(f"{refused.message}\n", refused.status)
