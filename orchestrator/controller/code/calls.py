"""Calls of git on our own store of snapshots, and what to do if one fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from orchestrator import errors
from orchestrator.code import git
from orchestrator.processes import process
from orchestrator.text import escaping

#: For one call: a cold tree on a busy file system takes minutes.
TIMEOUT_SECONDS = 1800.0
#: A file of a list; a larger difference is cut.
_LISTING_BYTES = 256 * 1024**2


class SnapshotError(errors.RunFolderError):
    """A snapshot cannot be taken or read now; the controller tries again."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Call:
    """Runs git on the store. It ends with this process."""

    store: Path
    environ: Mapping[str, str]
    root: Path | None = None
    index: Path | None = None
    version: str = ""
    excludes: Path | None = None
    limit_bytes: int = _LISTING_BYTES
    #: the folder that it writes, if not the store
    writes: Path | None = None

    def __call__(
        self,
        *arguments: str,
        stdin: bytes | IO[bytes] | None = None,
        is_cut: bool = False,
        is_complete: bool = False,
    ) -> str:
        """Return what a call prints; raises SnapshotError.

        is_cut: a long output is cut. is_complete: a warning (a folder is unreadable) is an error.
        """
        try:
            result = self.result(*arguments, stdin=stdin)
        except process.TooMuchOutputError as error:
            if is_cut:
                return error.output
            raise
        is_doubtful = is_complete and "warning: " in result.stderr
        if result.timed_out or result.returncode or is_doubtful:
            raise self.failed(arguments[0], result)
        return result.stdout

    def failed(self, command: str, result: process.Result) -> SnapshotError:
        """Return the error of a call that failed."""
        output = result.stderr.strip() or f"exit code {result.returncode}"
        if result.timed_out:
            output = f"no end after {TIMEOUT_SECONDS:.0f} s"
        text = git.failure(command, output, self.store, self.writes or self.store, self.root)
        return SnapshotError(escaping.visible(text))

    def result(self, *arguments: str, stdin: bytes | IO[bytes] | None = None) -> process.Result:
        """Return how a call ended; raises SnapshotError if git cannot be started."""
        settings = git.settings(self.version, excludes=self.excludes)
        environ = git.environment(self.store, self.environ, root=self.root, index=self.index)
        try:
            return process.run(
                ["git", *settings, *arguments],
                TIMEOUT_SECONDS,
                environ,
                die_with_parent=True,
                folder=None if self.root is None else str(self.root),
                stdin=stdin,
                max_output_bytes=self.limit_bytes,
                undecodable="surrogateescape",
            )
        except process.CommandNotFound as error:
            raise SnapshotError(
                f"{error}. Snapshots of code need git: install it, load its module, or submit with "
                "--no-snapshot"
            ) from error
