"""/metrics for Prometheus, and the token of a scraper, which has no browser to open a link in."""

from __future__ import annotations

import hmac
import os
import secrets
from pathlib import Path

from starlette import datastructures, requests, responses

from orchestrator import errors, files
from orchestrator.controller.monitoring import collecting
from orchestrator.monitoring import text_format
from orchestrator.web import site
from orchestrator.web.access import security

ADDRESS = "/metrics"
#: Longer than any token of ours.
_MAX_BYTES = 4096


def show(request: requests.Request) -> responses.Response:
    """Answer with all metrics in Prometheus's text format."""
    text = collecting.text(site.of(request).context)
    headers = {"content-type": text_format.CONTENT_TYPE}
    return responses.Response(text.encode(), headers=headers)


class ScraperGuard:
    """Lets a request for /metrics with the token pass without the cookie; others meet `guard`.

    All other checks of security.Guard apply to both.
    """

    def __init__(
        self, guard: security.Application, application: security.Application, token: str
    ) -> None:
        self._guard = guard
        self._scraped = security.Guard(application, None)
        self._token = token

    async def __call__(
        self, scope: security.Scope, receive: security.Receive, send: security.Send
    ) -> None:
        is_scraper = scope["type"] == "http" and scope["path"] == ADDRESS and self._has_token(scope)
        await (self._scraped if is_scraper else self._guard)(scope, receive, send)

    def _has_token(self, scope: security.Scope) -> bool:
        given = datastructures.Headers(raw=list(scope["headers"])).getlist("authorization")
        expected = f"Bearer {self._token}"
        return len(given) == 1 and hmac.compare_digest(given[0].encode(), expected.encode())


def token_of(path: Path) -> str:
    """Return the token in a file that only the user can read; a new file gets a new token.

    Raises OrchestratorError.
    """
    try:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            token = _stored(path)
        else:
            token = secrets.token_urlsafe(32)
            with open(handle, "w", encoding="ascii") as file:
                file.write(f"{token}\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise errors.OrchestratorError(f"cannot use {path}: {reason}") from error
    if not token.isascii() or len(token) < 16:
        raise errors.OrchestratorError(
            f"{path} has no token of at least 16 characters; remove it, and it is created again"
        )
    return token


def _stored(path: Path) -> str:
    with files.open_regular(path) as file:
        status = os.fstat(file.fileno())
        if status.st_uid != os.geteuid():
            raise errors.OrchestratorError(
                f"{path} belongs to another user, who knows the token: name a new file"
            )
        if status.st_mode & 0o077:
            raise errors.OrchestratorError(f"other users can read the token: chmod 600 {path}")
        return file.read(_MAX_BYTES).decode().strip()
