"""The requests of other computers on this host: STATE_DIR/requests, one folder for each.

Whoever makes the file `claim`, by a hard link, decides what the request is for ever: a keeper that
runs it, or the tombstone of one that was never run. A hard link is atomic on NFS too, so it does
not matter which login node the next connection reaches.

    claim            the keeper's process, or that the request was never run; its time is the
                     keeper's sign of life
    output.OFFSET    a part of the spool: what the command printed, as messages of framing.py
    exit             the exit code, when all output is in the spool
    control          lines from the client for the keeper
    client           its time is the client's sign of life
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, files
from orchestrator.local import processes
from orchestrator.remote import messages

#: The keeper's and the client's signs of life come at least so often.
BEAT_SECONDS = 10.0
#: A keeper on another host without a sign of life for so long is gone. NFS clients may see a time
#: that is a minute old (man nfs, acregmax).
_LOST_SECONDS = 180.0
#: Requests that ended are removed after this time, and the oldest beyond this number.
_KEPT_SECONDS = 7 * 24 * 3600.0
_KEPT_REQUESTS = 1000
_SILENT_SECONDS = 24 * 3600.0
_MAX_FILE_BYTES = 1024 * 1024
#: Wakes a keeper.
WAKE = signal.SIGUSR1
#: A part of the spool, which is removed when the client has it.
SEGMENT_BYTES = 8 * 1024**2


class Request:
    """The folder of one request."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def id(self) -> str:
        return self.folder.name

    def claim(self, content: Mapping[str, Any], *, is_durable: bool) -> bool:
        """Make the claim, if there is none; return whether this is now the claim.

        is_durable: it is on disk.
        """
        draft = self.folder / f".claim.{os.urandom(4).hex()}"
        files.replace(draft, json.dumps(content).encode(), durable=is_durable)
        try:
            with contextlib.suppress(OSError):
                os.link(draft, self.folder / "claim")
            # The answer of an NFS server may be lost: the number of links shows what happened.
            is_made = os.stat(draft).st_nlink > 1
        finally:
            draft.unlink()
        if is_made and is_durable:
            files.sync(self.folder)
            files.sync(self.folder.parent)
        return is_made

    def claimed(self) -> dict[str, Any] | None:
        """Return the claim; None without one."""
        return self._read("claim")

    def end(self, code: int, *, is_durable: bool) -> None:
        """Store the exit code."""
        files.replace(self.folder / "exit", json.dumps({"code": code}).encode(), durable=is_durable)

    def exit_code(self) -> int | None:
        """Return the exit code; None if it did not end."""
        code = (self._read("exit") or {}).get("code")
        return code if type(code) is int else None

    def standing(self) -> messages.Standing | None:
        """Return what became of the request; None if nobody has claimed it."""
        claim = self.claimed()
        if claim is None:
            return None
        if claim.get("never"):
            return "never"
        if self.exit_code() is not None:
            return "ended"
        # It may have ended since.
        if self._is_kept(claim) or self.exit_code() is not None:
            return "running" if self.exit_code() is None else "ended"
        return "lost"

    def _is_kept(self, claim: Mapping[str, Any]) -> bool:
        if (keeper := _keeper_of(claim)) is None:
            return False
        if claim["host"] == socket.gethostname() and keeper.boot_id == processes.boot_id():
            return keeper.is_alive()
        # By the clock of the file system, whatever the clocks of the hosts show.
        probe = self.folder / f".now.{os.urandom(4).hex()}"
        try:
            probe.touch()
            now = probe.stat().st_mtime
            return now - (self.folder / "claim").stat().st_mtime < _LOST_SECONDS
        except OSError:
            return False
        finally:
            probe.unlink(missing_ok=True)

    def control(self, line: str) -> None:
        """Pass a line to the keeper, and wake it if it runs on this host."""
        with (self.folder / "control").open("a") as file:
            file.write(f"{line}\n")
        claim = self.claimed() or {}
        keeper = _keeper_of(claim)
        if keeper is not None and claim["host"] == socket.gethostname() and keeper.is_alive():
            processes.send(keeper.pid, WAKE)

    def controls(self, offset: int) -> tuple[list[str], int]:
        """Return the complete lines from `offset` on, and the offset after them."""
        try:
            text = files.read_bytes(self.folder / "control", limit_bytes=_MAX_FILE_BYTES)[offset:]
        except OSError:
            return [], offset
        whole = text[: text.rfind(b"\n") + 1]
        return whole.decode(errors="replace").splitlines(), offset + len(whole)

    def beat(self, name: str) -> None:
        """Give a sign of life: of the keeper in `claim`, of the client in `client`."""
        with contextlib.suppress(OSError):
            if name == "client":
                (self.folder / name).touch()
            else:
                os.utime(self.folder / name)

    @property
    def is_removed(self) -> bool:
        """Whether the folder is gone, with all that its command could still tell."""
        return not self.folder.exists()

    def last_beat(self, name: str) -> float:
        """Return the time of the last sign of life, by the clock of the file system; 0: none."""
        try:
            return (self.folder / name).stat().st_mtime
        except OSError:
            return 0.0

    def segments(self) -> list[tuple[int, Path]]:
        """Return the parts of the spool in order, each with the offset of its first byte."""
        found = []
        for path in self.folder.glob("output.*"):
            with contextlib.suppress(ValueError):
                found.append((int(path.name.partition(".")[2]), path))
        return sorted(found)

    def segment(self, offset: int) -> Path:
        """Return the part of the spool that begins at `offset`."""
        return self.folder / f"output.{offset:020d}"

    def output(self, offset: int, limit_bytes: int) -> bytes:
        """Return at most `limit_bytes` of the spool from `offset` on.

        Raises OrchestratorError if that part was removed.
        """
        segments = self.segments()
        containing = [(start, path) for start, path in segments if start <= offset]
        if not containing:
            if segments:
                raise errors.OrchestratorError(f"output of request {self.id} was removed")
            return b""
        start, path = containing[-1]
        with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
            file.seek(offset - start)
            return file.read(limit_bytes)
        return b""

    def drop_output(self, offset: int) -> None:
        """Remove the parts of the spool that end before `offset`."""
        segments = self.segments()
        for (_, path), (following, _) in itertools.pairwise(segments):
            if following <= offset:
                path.unlink(missing_ok=True)

    @property
    def copy(self) -> Path:
        """Where the command's copy of the client's working tree is, while it runs."""
        return self.folder / "tree"

    def remove_copy(self) -> None:
        """Remove the copy of the client's working tree."""
        shutil.rmtree(self.copy, ignore_errors=True)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _read(self, name: str) -> dict[str, Any] | None:
        with contextlib.suppress(FileNotFoundError):
            content = files.read_bytes(self.folder / name, limit_bytes=_MAX_FILE_BYTES)
            try:
                stored = json.loads(content)
            except (ValueError, RecursionError):
                # Damaged, for example when the host crashed: it is there, and says nothing.
                stored = {}
            return stored if isinstance(stored, dict) else {}
        return None


def _keeper_of(claim: Mapping[str, Any]) -> processes.Identity | None:
    """Return the process that runs a request; None: none was to, or the claim is damaged."""
    match claim:
        case {
            "host": str(),
            "pid": int(pid),
            "start_ticks": int(start_ticks),
            "boot_id": str(boot_id),
        } if pid > 0:
            return processes.Identity(pid=pid, start_ticks=start_ticks, boot_id=boot_id)
    return None


class Requests:
    """All requests on this host."""

    def __init__(self, state_dir: Path, shared_folders: Sequence[Path]) -> None:
        self.folder = state_dir / "requests"
        self._shared_folders = shared_folders

    def make(self) -> None:
        """Create the folder. Raises OrchestratorError."""
        try:
            files.make_private_folder(
                self.folder, shared_folders=self._shared_folders, setting="state_dir"
            )
        except files.PrivateFolderError as error:
            raise errors.OrchestratorError(str(error.strerror)) from error
        except OSError as error:
            raise errors.OrchestratorError(
                f"cannot write {self.folder}: {error.strerror}. Make it writable, or set state_dir "
                "to another folder."
            ) from error

    def store_id(self) -> str:
        """Return the ID of this folder, which is made at the first call."""
        path = self.folder / "id"
        draft = self.folder / f".id.{os.urandom(4).hex()}"
        if not path.exists():
            files.replace(draft, os.urandom(16).hex().encode(), durable=True)
            try:
                with contextlib.suppress(FileExistsError):
                    os.link(draft, path)
            finally:
                draft.unlink()
        return files.read_text(path, limit_bytes=_MAX_FILE_BYTES)

    def find(self, request: str) -> Request:
        """Return a request, which need not exist."""
        return Request(self.folder / request)

    def open(self, request: str) -> Request:
        """Return a request; its folder exists. Raises OrchestratorError if others can change it."""
        folder = self.folder / request
        folder.mkdir(mode=0o700, exist_ok=True)
        if exposed := files.exposure(folder, shared_folders=self._shared_folders):
            raise errors.OrchestratorError(exposed.refusal(folder, "state_dir"))
        return Request(folder)

    def settled(self, request: str) -> messages.Standing:
        """Return what became of a request; one that nobody has claimed can never run afterwards."""
        opened = self.open(request)
        while (standing := opened.standing()) is None:
            opened.claim({"never": True}, is_durable=True)
        return standing


def remove_old(folder: Path) -> None:
    """Remove requests of STATE_DIR/requests that ended long ago."""
    now = time.time()
    for number, (at, request) in enumerate(sorted(_ended(folder), reverse=True)):
        if number >= _KEPT_REQUESTS or now - at > _KEPT_SECONDS:
            Request(request).remove()


def _ended(folder: Path) -> Iterator[tuple[float, Path]]:
    """Yield the requests that ended, or show no sign of life for a day, with the time of that."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError, StopIteration):
                if entry.is_dir(follow_symlinks=False):
                    request = Path(entry.path)
                    marks = [request / "exit", request / "claim", request]
                    at = next(mark.stat().st_mtime for mark in marks if mark.exists())
                    if marks[0].exists() or time.time() - at > _SILENT_SECONDS:
                        yield at, request
