"""The server behind a proxy, which shows it under another address: https://HOST/PATH."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Mapping

from starlette import datastructures, responses

from orchestrator import errors
from orchestrator.web.access import security

#: Attributes with addresses. Text and values in a page have no quotation marks: they are escaped.
_ADDRESSES = re.compile(rb'(\s(?:href|src|action|formaction|data-events|data-charts|data-root)=")/')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """Where browsers see the server."""

    scheme: str
    #: name, and port unless it is the usual one, as in the Host header
    host: str
    #: without a slash at the end
    path: str

    @classmethod
    def parse(cls, url: str) -> Address:
        """Raises OrchestratorError."""
        parsed = urllib.parse.urlsplit(url)
        is_plain = not (parsed.query or parsed.fragment or "@" in parsed.netloc)
        path = parsed.path.rstrip("/")
        is_path = re.fullmatch(r"(?:/[\w.~-]+)*", path, re.ASCII)
        is_host = re.fullmatch(r"[\w.-]+(?::\d{1,5})?", parsed.netloc, re.ASCII)
        if parsed.scheme not in ("http", "https") or not (is_plain and is_host and is_path):
            raise errors.OrchestratorError(
                f"{url!r} is not an address of a page: write https://HOST/PATH"
            )
        return cls(scheme=parsed.scheme, host=parsed.netloc.lower(), path=path)

    @property
    def origin(self) -> str:
        """Return scheme, host and port, as in the header Origin."""
        return f"{self.scheme}://{self.host}"


class Proxied:
    """Wraps an application whose addresses begin at /, for a proxy that shows it at a path."""

    def __init__(self, application: security.Application, path: str) -> None:
        self._application = application
        self._path = path
        self._prefix = path.encode()

    async def __call__(
        self, scope: security.Scope, receive: security.Receive, send: security.Send
    ) -> None:
        path = scope["path"]
        if path == self._path:
            await responses.RedirectResponse(f"{self._path}/", 303)(scope, receive, send)
            return
        # Some proxies remove the path themselves.
        if path.startswith(f"{self._path}/"):
            path = path.removeprefix(self._path)
            scope = {**scope, "path": path, "raw_path": path.encode()}
        started: security.Message = {}

        async def send_rewritten(message: security.Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._headers(message["headers"])}
                if _is_page(message["headers"]):
                    # Its length changes. Pages have one part.
                    started = message
                    return
            elif started:
                body = _ADDRESSES.sub(rb"\1" + self._prefix + b"/", message["body"])
                headers = datastructures.MutableHeaders(raw=list(started["headers"]))
                headers["content-length"] = str(len(body))
                await send({**started, "headers": headers.raw})
                started = {}
                message = {**message, "body": body}
            await send(message)

        await self._application(scope, receive, send_rewritten)

    def _headers(self, raw: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        headers = []
        for name, value in raw:
            if name == b"location" and value.startswith(b"/"):
                value = self._prefix + value
            elif name == b"set-cookie":
                value = value.replace(b"Path=/", b"Path=" + self._prefix + b"/")
            headers.append((name, value))
        return headers


def _is_page(raw: list[tuple[bytes, bytes]]) -> bool:
    headers: Mapping[str, str] = datastructures.Headers(raw=raw)
    return headers.get("content-type", "").startswith("text/html")
