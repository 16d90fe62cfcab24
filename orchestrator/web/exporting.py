"""Pages as files that a browser opens without a server."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import dataclasses
import errno
import json
import os
import posixpath
import re
import urllib.parse
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from starlette import applications

from orchestrator import errors, files
from orchestrator.controller.metrics import curves
from orchestrator.web import rendering, rewriting
from orchestrator.web import selection as selections

#: Larger logs are not copied; their pages show the end.
MAX_LOG_BYTES = 16 * 1024 * 1024
#: In the folder: what belongs to the export, and whether all of it is written.
MARKER = "export.json"
_MARKER_LIMIT_BYTES = 16 * 1024 * 1024
#: of a file of an export
_NAME = re.compile(r"(?:(?:jobs|sweeps|static)/)?[\w-][\w.-]*", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Answer:
    """What the application answers."""

    status: int
    body: bytes = b""


class Folder:
    """The folder of an export, which says if it is not complete."""

    def __init__(self, path: Path) -> None:
        """Raise ConflictError if the folder contains something else."""
        self.path = path
        self._written: list[str] = []
        with _explained(path):
            path.mkdir(parents=True, exist_ok=True)
            names = set(os.listdir(path))
            self._old = _marked(path)
            if names and self._old is None:
                raise errors.ConflictError(
                    f"{path} is not empty and not an earlier export: name a new folder"
                )
            # A killed export has no first page.
            self._mark(self._old or [], is_complete=False)
            with contextlib.suppress(FileNotFoundError):
                (path / "index.html").unlink()

    def write(self, name: str, content: bytes) -> None:
        """Write a file, or replace it. Raises OrchestratorError if that is impossible."""
        with _explained(self.path):
            target = self._target(name)
            target.parent.mkdir(exist_ok=True)
            files.replace(target, content)
        self._written.append(name)

    def complete(self) -> None:
        """Remove what only the earlier export has, and mark the folder as complete."""
        with _explained(self.path):
            for name in {*(self._old or [])} - {*self._written}:
                with contextlib.suppress(FileNotFoundError):
                    self._target(name).unlink()
            for folder in {self._target(name).parent for name in self._written}:
                for draft in folder.glob(files.DRAFTS):
                    draft.unlink(missing_ok=True)
            self._mark(self._written, is_complete=True)

    def _target(self, name: str) -> Path:
        target = self.path / name
        # A colleague's export may contain links to other folders of the user.
        if target.parent != self.path and target.parent.is_symlink():
            raise NotADirectoryError(errno.ENOTDIR, "it is a link", str(target.parent))
        return target

    def _mark(self, names: Sequence[str], *, is_complete: bool) -> None:
        marker = {"orchestrator_export": 1, "complete": is_complete, "files": sorted(names)}
        files.replace(self.path / MARKER, f"{json.dumps(marker, indent=1)}\n".encode())


def _marked(folder: Path) -> list[str] | None:
    """Return the files of an earlier export; None: there is none."""
    try:
        text = files.read_text(folder / MARKER, limit_bytes=_MARKER_LIMIT_BYTES)
        marker = json.loads(text)
        names = marker["files"] if marker["orchestrator_export"] == 1 else None
    except (OSError, ValueError, LookupError, TypeError):
        return None
    if not isinstance(names, list):
        return None
    # The file may be a colleague's: nothing outside of the folder is removed.
    return [name for name in names if isinstance(name, str) and _NAME.fullmatch(name)]


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise errors.OrchestratorError(
            f"{error.filename or folder} cannot be written ({error.strerror}); name another folder"
        ) from error


def export(application: applications.Starlette, selection: selections.Selection, path: Path) -> int:
    """Write the pages of a selection into a folder; return the number of pages.

    Raises ConflictError if the folder contains something else, and OrchestratorError if it cannot
    be written.
    """
    folder = Folder(path)
    with asyncio.Runner() as runner:
        writer = _Writer(application, selection, folder, runner)
        for name in rendering.static_files():
            writer.want(f"/static/{rendering.version()}/{name}")
        for row in selection.sweeps:
            writer.want(f"/sweeps/{row}")
        for row in selection.jobs:
            writer.want(f"/jobs/{row}")
        # Last: without it the folder shows nothing.
        for url in ("/compare", "/sweeps", "/"):
            writer.want(url)
        number = writer.write_all()
    folder.complete()
    return number


class _Writer:
    def __init__(
        self,
        application: applications.Starlette,
        selection: selections.Selection,
        folder: Folder,
        runner: asyncio.Runner,
    ) -> None:
        self._application = application
        self._selection = selection
        self._folder = folder
        self._runner = runner
        #: address and name of what is not written yet
        self._waiting: collections.deque[tuple[str, str]] = collections.deque()
        #: names of files; those that do not exist have None
        self._names: dict[str, str | None] = {"index.html": "index.html"}
        self._fetched: dict[str, Answer] = {}
        at = rendering.time_element(application.state.site.context.clock.now())
        self._footer = f'<p class="soft">Written by <code>orchestrator web export</code> {at}</p>'

    def want(self, url: str) -> None:
        """Write a page after the others that were wanted, if it belongs to the selection."""
        name = self._selection.file_of(url)
        if name is not None and (name == "index.html" or name not in self._names):
            self._names[name] = name
            self._waiting.append((url, name))

    def write_all(self) -> int:
        """Write what is wanted, and what these pages lead to; return the number of pages."""
        pages = 0
        while self._waiting:
            url, name = self._waiting.popleft()
            answer = self._fetched.pop(name, None) or self._get(self._selection.url_of(url))
            content = answer.body
            if name.endswith(".html"):
                pages += 1
                content = self._rewritten(content.decode(), url, name).encode()
            self._folder.write(name, content)
        return pages

    def _rewritten(self, text: str, url: str, name: str) -> str:
        def link(target: str) -> str | None:
            absolute = urllib.parse.urljoin(url, target)
            target_name = self._file_of(absolute)
            if target_name is None:
                return None
            fragment = urllib.parse.urlsplit(absolute).fragment
            relative = posixpath.relpath(target_name, posixpath.dirname(name) or ".")
            return f"{relative}#{fragment}" if fragment else relative

        def charts(data_url: str) -> Mapping[str, object]:
            data: dict[str, Any] = {
                axis: json.loads(self._get(f"{data_url}&x={axis}").body) for axis in curves.AXES
            }
            has_curves = bool(data["step"]["figures"])
            tables = link(data_url.replace("/curves.json", "/curves")) if has_curves else None
            return {**data, "tables": tables}

        return rewriting.Rewriter(link, charts, self._footer).rewrite(text)

    def _file_of(self, url: str) -> str | None:
        """Return the file of an address; a page that is new is written next."""
        name = self._selection.file_of(url)
        if name is None or name in self._names:
            return name and self._names[name]
        self._names[name] = name
        if re.search(r"-(?:log|stderr|report)", name):
            # There may be no log, too much of it, or nothing to report.
            answer = self._get(self._selection.url_of(url))
            if answer.status != 200:
                self._names[name] = None
                return None
            self._fetched[name] = answer
        self._waiting.appendleft((url, name))
        return name

    def _get(self, url: str) -> Answer:
        return self._runner.run(_get(self._application, url))


async def _get(application: applications.Starlette, url: str) -> Answer:
    """Ask the application as a server would; 413 if the answer is too large."""
    parsed = urllib.parse.urlsplit(url)
    scope = {
        "type": "http",
        "method": "GET",
        "path": urllib.parse.unquote(parsed.path),
        "query_string": parsed.query.encode(),
        "headers": [],
    }
    status = 0
    body = b""

    requests: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    requests.put_nowait({"type": "http.request", "body": b"", "more_body": False})

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
            length = dict(message["headers"]).get(b"content-length", b"0")
            if int(length) > MAX_LOG_BYTES:
                raise _TooLargeError
        else:
            body += message.get("body", b"")

    try:
        await application(scope, requests.get, send)
    except _TooLargeError:
        return Answer(status=413)
    return Answer(status=status, body=body)


class _TooLargeError(Exception):
    """The answer is not exported."""
