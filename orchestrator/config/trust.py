"""Which projects' files the user has reviewed and trusts, as `orchestrator trust` records it.

One file per project in $XDG_DATA_HOME/orchestrator/trusted: its name is the digest of what was
reviewed, its content is the path. Whatever changes is not trusted any more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from orchestrator import errors, files
from orchestrator.config import paths
from orchestrator.text import escaping

_FOLDER = Path("orchestrator", "trusted")
_DIGEST = re.compile(r"[0-9a-f]{64}")
#: PATH_MAX of Linux, and a newline
_LONGEST_PATH_BYTES = 4096 + 1
#: Templates are text that a person writes.
_LARGEST_BYTES = 4 * 1024 * 1024
_MOST_FILES = 1000


class TooMuchError(ValueError):
    """What the file names is too much to be reviewed."""


def folder(environ: Mapping[str, str]) -> Path:
    """Return where the records are."""
    return paths.xdg(environ, "XDG_DATA_HOME", ".local/share") / _FOLDER


def digest(path: Path, content: bytes, named: Mapping[Path, str]) -> str:
    """Return the digest of a project's file and of the files that it names.

    named: what named_files() returns.
    """
    parts = [str(path), _sha256(content), *([str(file), named[file]] for file in sorted(named))]
    return _sha256(json.dumps(parts).encode())


def named_files(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the digest of each file, those below folders too.

    A file that cannot be read has no digest but its error's name: when it can be read, it differs.
    Raises TooMuchError for a large file and for very many.
    """
    found: dict[Path, str] = {}
    for path in paths:
        for file in _below(path):
            if len(found) == _MOST_FILES:
                raise TooMuchError(f"names more than {_MOST_FILES} files")
            try:
                found[file] = _sha256(files.read_bytes(file, limit_bytes=_LARGEST_BYTES))
            except files.TooLargeError:
                shown = escaping.visible(str(file))
                raise TooMuchError(f"names a file larger than 4 MiB: {shown}") from None
            except (OSError, ValueError) as exc:
                found[file] = type(exc).__name__
    return found


def _below(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for number, (above, _, names) in enumerate(os.walk(path, followlinks=True)):
        if number == _MOST_FILES:
            raise TooMuchError(f"names a folder with more than {_MOST_FILES} folders")
        yield from (Path(above, name) for name in names)


def digests(environ: Mapping[str, str], path: Path) -> frozenset[str]:
    """Return what was recorded of a project's file; none where others can change the records."""
    return frozenset(name for name, recorded in _records(environ) if recorded == path)


def trusted_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the projects' files that were trusted, changed since or not."""
    return sorted({path for _, path in _records(environ)})


def record(environ: Mapping[str, str], path: Path, reviewed: str) -> None:
    """Trust a project's file with this digest, and with no earlier one.

    Raises OrchestratorError where it cannot be recorded.
    """
    records = folder(environ)
    new = records / f".{secrets.token_hex(8)}"
    try:
        files.make_private_folder(records, setting="XDG_DATA_HOME")
        try:
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "wb") as file:
                file.write(os.fsencode(path) + b"\n")
            os.replace(new, records / reviewed)
        finally:
            new.unlink(missing_ok=True)
        _remove(environ, path, keep=reviewed)
    except files.PrivateFolderError as exc:
        raise errors.OrchestratorError(str(exc.strerror)) from exc
    except OSError as exc:
        raise _cannot(records, exc) from exc


def remove(environ: Mapping[str, str], path: Path) -> bool:
    """Trust a project's file no longer; False where it was not trusted.

    Raises OrchestratorError where the records cannot be changed.
    """
    try:
        return _remove(environ, path)
    except OSError as exc:
        raise _cannot(folder(environ), exc) from exc


def _remove(environ: Mapping[str, str], path: Path, keep: str = "") -> bool:
    old = digests(environ, path) - {keep}
    for name in old:
        (folder(environ) / name).unlink(missing_ok=True)
    return bool(old)


def _records(environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield the digest and the path of each record that only the user and root can have made."""
    records = folder(environ)
    try:
        names = os.listdir(records)
    except OSError:
        return
    for name in filter(_DIGEST.fullmatch, names):
        # What is removed meanwhile, or cannot be read, is not trusted.
        with contextlib.suppress(OSError):
            if files.exposure(records / name) is None:
                content = files.read_bytes(records / name, limit_bytes=_LONGEST_PATH_BYTES)
                yield name, Path(os.fsdecode(content.removesuffix(b"\n")))


def _cannot(records: Path, exc: OSError) -> errors.OrchestratorError:
    return errors.OrchestratorError(
        f"the records in {escaping.visible(str(records))} cannot be written: "
        f"{exc.strerror or exc}; "
        "set XDG_DATA_HOME to a folder that is your own"
    )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
