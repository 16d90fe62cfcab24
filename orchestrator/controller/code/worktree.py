"""The files of a working tree that belong to a snapshot."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import files
from orchestrator.code import contents, git
from orchestrator.controller.code import store as stores
from orchestrator.controller.submission import provenance
from orchestrator.processes import process
from orchestrator.text import escaping

#: Files with patterns to ignore are rarely larger than some KiB.
_PATTERNS_BYTES = 1024 * 1024
_TIMEOUT_SECONDS = 600.0
_LISTING_BYTES = 256 * 1024**2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Listing:
    """What a snapshot of a working tree consists of."""

    root: Path
    #: regular files and symbolic links
    found: tuple[contents.Found, ...]
    #: folders with a repository of their own: submodules with content, and others
    nested: tuple[str, ...]
    submodules_without_content: tuple[str, ...]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.found]


def root_of(folder: Path, home: Path) -> Path:
    """Return the top level of the repository that a folder belongs to, else the folder itself.

    A repository of the home folder is not meant: it has the user's settings. Both paths are without
    symbolic links.
    """
    # Not asked of git: core.worktree of the configuration could name any folder.
    for path in (folder, *folder.parents):
        if path == home:
            break
        if os.path.lexists(path / ".git"):
            return path
    return folder


def listing(store: stores.Store, root: Path, ignored: Sequence[Path] = ()) -> Listing:
    """Return the files that git tracks or does not ignore; raises SnapshotError.

    ignored: folders to ignore, wherever they are.
    In a folder without a repository, or with one that git refuses because another user owns it,
    only .gitignore files and the user's own patterns count.
    """
    tracked, excludes = _of_repository(store, root)
    patterns = store.folder / "indexes" / f"excludes.{os.getpid()}"
    sources = [path for path in (store.ignored_by_user(), excludes) if path is not None]
    try:
        lines = [git.pattern(os.path.relpath(p, root)) for p in ignored if p.is_relative_to(root)]
        patterns.write_bytes(b"\n".join([*map(_patterns, sources), *map(os.fsencode, lines)]))
        others = store.untracked(root, patterns)
    except OSError as error:
        raise stores.SnapshotError(git.not_written(store.folder, str(error.strerror))) from error
    finally:
        with contextlib.suppress(OSError):
            patterns.unlink(missing_ok=True)
    nested = [name.removesuffix("/") for name in others if name.endswith("/")]
    # A submodule is tracked, even if a pattern ignores its folder.
    nested += (
        name
        for name in tracked.submodules
        if name not in nested and os.path.lexists(root / name / ".git")
    )
    names = dict.fromkeys((*tracked.files, *(name for name in others if not name.endswith("/"))))
    within = tuple(f"{name}/" for name in nested)
    found = _found(root, [name for name in names if not name.startswith(within)])
    links = {each.name for each in found if each.target is not None}
    empty = (name for name in tracked.submodules if name not in nested and _is_empty(root / name))
    return Listing(
        root=root,
        # A tracked folder may have become a link.
        found=tuple(each for each in found if links.isdisjoint(_parents(each.name))),
        nested=tuple(nested),
        submodules_without_content=tuple(empty),
    )


def _of_repository(store: stores.Store, root: Path) -> tuple[git.Tracked, Path | None]:
    """Return what the repository of `root` tracks, and its file of patterns to ignore."""
    environ = {**git.of_others(store.environ, root), **provenance.READ_ONLY}

    def call(*arguments: str) -> str | None:
        words = ["git", *provenance.SWITCHED_OFF, *arguments]
        with contextlib.suppress(process.CommandNotFound):
            result = process.run(
                words,
                _TIMEOUT_SECONDS,
                environ,
                folder=str(root),
                max_output_bytes=_LISTING_BYTES,
                undecodable="surrogateescape",
            )
            if result.returncode == 0 and not result.timed_out:
                return result.stdout
        return None

    excludes = None
    listed = None
    if os.path.lexists(root / ".git"):
        listed = call("ls-files", "-z", "--stage")
    if listed is not None and (path := call("rev-parse", "--git-path", "info/exclude")):
        excludes = root / path.rstrip("\n")
    return git.tracked(listed or ""), excludes


def _patterns(path: Path) -> bytes:
    """Return the patterns in a file; none if it cannot be read."""
    try:
        return files.read_bytes(path, limit_bytes=_PATTERNS_BYTES)
    except OSError:
        return b""


def _is_empty(folder: Path) -> bool:
    try:
        return folder.is_dir() and not os.listdir(folder)
    except OSError:
        return False


def _parents(name: str) -> Iterator[str]:
    while name := name.rpartition("/")[0]:
        yield name


def _found(root: Path, names: list[str]) -> list[contents.Found]:
    found: list[contents.Found] = []
    has_lfs = any(
        b"filter=lfs" in _patterns(root / name)
        for name in names
        if name.rpartition("/")[2] == ".gitattributes"
    )
    for name in names:
        path = os.path.join(root, name)
        try:
            status = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            # Tracked, but removed from the tree.
            continue
        except OSError as error:
            shown = escaping.visible(path)
            raise stores.SnapshotError(f"cannot read {shown}: {error.strerror}") from error
        if stat.S_ISLNK(status.st_mode):
            target, leads = os.readlink(path), os.path.exists(path)
            if os.path.isabs(target):
                # /home/alice may be a link to where the root is.
                folder, base = os.path.split(target)
                target = os.path.join(os.path.realpath(folder), base)
            found.append(contents.Found(name=name, size_bytes=0, target=target, leads=leads))
        elif stat.S_ISREG(status.st_mode):
            size_bytes, head = status.st_size, b""
            if contents.needs_head(name, size_bytes, has_lfs=has_lfs):
                head = _head(path)
            is_readable = os.access(path, os.R_OK)
            found.append(
                contents.Found(name=name, size_bytes=size_bytes, is_readable=is_readable, head=head)
            )
    return found


def _head(path: str) -> bytes:
    try:
        with files.open_regular(Path(path)) as file:
            return file.read(contents.HEAD_BYTES)
    except OSError:
        return b""
