"""Records of the projects' files that the user reviewed and trusts (`orchestrator trust`).

One file per project in $XDG_DATA_HOME/orchestrator/trusted: its name is the digest of what was
reviewed, its content is the path. Any change ends the trust.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orchestrator import errors, files
from orchestrator.config import paths
from orchestrator.text import escaping

_DIGEST = re.compile(r"[0-9a-f]{64}")
#: PATH_MAX of Linux, and a newline
_MAX_PATH_BYTES = 4096 + 1
#: Templates are text that a person writes.
_MAX_FILE_BYTES = 4 * 1024 * 1024
_MAX_FILES = 1000


class TooMuchError(ValueError):
    """The file names more than a person can review."""


def folder(environ: Mapping[str, str]) -> Path:
    return paths.xdg(environ, "XDG_DATA_HOME", ".local/share") / "orchestrator" / "trusted"


def digest(path: Path, content: bytes, named: Mapping[Path, str]) -> str:
    """Return the digest of a project's file and of file_digests() of the files that it names."""
    parts = [str(path), _sha256(content), *([str(file), named[file]] for file in sorted(named))]
    return _sha256(json.dumps(parts).encode())


def file_digests(files_and_folders: Iterable[Path]) -> dict[Path, str]:
    """Return the digest of each file, also of those below folders.

    An unreadable file has the name of its error instead: once readable, it differs. Raises
    TooMuchError for a large file and for too many files.
    """
    digests: dict[Path, str] = {}
    for path in files_and_folders:
        for file in _files_below(path):
            if len(digests) == _MAX_FILES:
                raise TooMuchError(f"names more than {_MAX_FILES} files")
            try:
                digests[file] = _sha256(files.read_bytes(file, limit_bytes=_MAX_FILE_BYTES))
            except files.TooLargeError:
                name = escaping.visible(str(file))
                raise TooMuchError(f"names a file larger than 4 MiB: {name}") from None
            except (OSError, ValueError) as exc:
                digests[file] = type(exc).__name__
    return digests


def _files_below(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for number, (above, _, names) in enumerate(os.walk(path, followlinks=True)):
        if number == _MAX_FILES:
            raise TooMuchError(f"names a folder with more than {_MAX_FILES} folders")
        yield from (Path(above, name) for name in names)


def digests(environ: Mapping[str, str], path: Path) -> frozenset[str]:
    """Return the recorded digests of a project's file."""
    return frozenset(name for name, recorded in _records(environ) if recorded == path)


def trusted_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the trusted projects' files, also those that changed since."""
    return sorted({path for _, path in _records(environ)})


def record(environ: Mapping[str, str], path: Path, reviewed: str) -> None:
    """Trust a project's file with the digest `reviewed`, and with no earlier one.

    Raises OrchestratorError if it cannot be recorded.
    """
    records = folder(environ)
    try:
        files.make_private_folder(records, setting="XDG_DATA_HOME")
        files.replace(records / reviewed, os.fsencode(path) + b"\n")
    except files.PrivateFolderError as exc:
        raise errors.OrchestratorError(str(exc.strerror)) from exc
    except OSError as exc:
        raise _write_error(records, exc) from exc
    remove(environ, path, keep=reviewed)


def remove(environ: Mapping[str, str], path: Path, *, keep: str = "") -> bool:
    """Delete the records of a project's file, except `keep`; return whether there were any.

    Raises OrchestratorError if the records cannot be changed.
    """
    old = digests(environ, path) - {keep}
    try:
        for name in old:
            (folder(environ) / name).unlink(missing_ok=True)
    except OSError as exc:
        raise _write_error(folder(environ), exc) from exc
    return bool(old)


def _records(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield digest and path of each record that only the user and root can have made."""
    records = folder(environ)
    try:
        names = os.listdir(records)
    except OSError:
        return
    for name in filter(_DIGEST.fullmatch, names):
        # A record that disappears or cannot be read is not trusted.
        with contextlib.suppress(OSError):
            if files.exposure(records / name) is None:
                content = files.read_bytes(records / name, limit_bytes=_MAX_PATH_BYTES)
                yield name, Path(os.fsdecode(content.removesuffix(b"\n")))


def _write_error(records: Path, exc: OSError) -> errors.OrchestratorError:
    return errors.OrchestratorError(
        f"the records in {escaping.visible(str(records))} cannot be written: "
        f"{exc.strerror or exc}; set XDG_DATA_HOME to your own folder"
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
