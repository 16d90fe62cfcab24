"""Calls of git on our own store of snapshots: arguments, environment, and what is printed.

The store is a bare repository of our own. Each call names it, the working tree and the index, so
that git never looks for a repository in the tree: its configuration, hooks and attributes have no
effect. Sources: gitrepository-layout(5), gitattributes(5), git-config(1), git-update-index(1).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

#: In info/attributes, which overrides each .gitattributes: bytes stay as they are in the tree, and
#: no filter runs.
ATTRIBUTES = (
    "* -filter -text -eol -ident -working-tree-encoding -export-ignore -export-subst !diff\n"
)
#: Settings of calls in a repository that may come from anywhere: nothing is executed.
SWITCHED_OFF = (
    *("-c", "core.fsmonitor="),
    *("-c", "core.hooksPath=/dev/null"),
    # Use the tree that the folder belongs to, not a bare repository inside it.
    *("-c", "safe.bareRepository=explicit"),
)
_SETTINGS = {
    **{"core.fileMode": "true", "core.symlinks": "true", "core.ignoreCase": "false"},
    **{"core.precomposeUnicode": "false", "core.protectHFS": "false", "core.protectNTFS": "false"},
    **{"core.fsmonitor": "", "core.hooksPath": "/dev/null", "core.untrackedCache": "false"},
    **{"core.preloadIndex": "true", "core.compression": "1", "gc.auto": "0"},
    # Trees are loose objects, which git does not bring to disk by default.
    **{"core.fsync": "committed", "core.fsyncMethod": "batch"},
    **{"core.quotePath": "false", "diff.renames": "false", "tar.umask": "0002"},
}
#: Larger files are written into one pack, smaller ones each into a file of its own. update-index
#: writes one pack for all files since git 2.37, before that one for each.
_IN_ONE_PACK = {
    "core.bigFileThreshold": "1",
    # "batch" moves the unfinished pack away after a link or an empty file (seen with git 2.39).
    "core.fsyncMethod": "fsync",
}
_ONE_PACK_SINCE = (2, 37)
_GITLINK = "160000"
_VERSION = re.compile(r"git version (\d+)\.(\d+)")
TREE_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


@dataclasses.dataclass(frozen=True, kw_only=True)
class File:
    """A file of a snapshot."""

    #: relative to the snapshot's root; bytes that are not UTF-8 are surrogates (os.fsdecode)
    path: str
    #: 100644, 100755 (executable) or 120000 (symbolic link)
    mode: str
    #: git's ID of the content
    object_id: str
    size_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tracked:
    """What the index of a repository lists."""

    files: tuple[str, ...]
    submodules: tuple[str, ...]


def environment(
    store: Path, environ: Mapping[str, str], *, root: Path | None = None, index: Path | None = None
) -> dict[str, str]:
    """Return the environment of a call: only the store's own configuration is read.

    root: the working tree. index: the index file.
    """
    own = {
        **_without_git(environ),
        "LC_ALL": "C",
        # For releases before 2.32, which do not know GIT_CONFIG_GLOBAL.
        "HOME": str(store),
        "XDG_CONFIG_HOME": str(store),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_LITERAL_PATHSPECS": "1",
        "GIT_DIR": str(store),
    }
    if root is not None:
        own["GIT_WORK_TREE"] = str(root)
    if index is not None:
        own["GIT_INDEX_FILE"] = str(index)
    return own


def of_user(store: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a call that reads the user's own configuration."""
    return {**_without_git(environ), "LC_ALL": "C", "GIT_DIR": str(store)}


def _without_git(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not name.startswith("GIT_")}


def of_others(environ: Mapping[str, str], root: Path) -> dict[str, str]:
    """Return the environment of a call in the repository of `root`, which may be hostile."""
    return {
        **_without_git(environ),
        "LC_ALL": "C",
        # Not core.worktree of its configuration.
        "GIT_WORK_TREE": str(root),
        "GIT_CEILING_DIRECTORIES": str(root.parent),
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_TERMINAL_PROMPT": "0",
    }


def settings(version: str = "", *, excludes: Path | None = None) -> list[str]:
    """Return the options before the name of a subcommand.

    version: of a call that adds many files, what `git --version` prints. excludes: a file with
    patterns to ignore.
    """
    pairs = dict(_SETTINGS)
    match = _VERSION.match(version)
    if match and (int(match[1]), int(match[2])) >= _ONE_PACK_SINCE:
        pairs |= _IN_ONE_PACK
    pairs["core.excludesFile"] = "" if excludes is None else str(excludes)
    return [word for key, value in pairs.items() for word in ("-c", f"{key}={value}")]


def pattern(relative: str) -> str:
    """Return a line of a file of patterns that ignores a folder, relative to the root."""
    return "/" + re.sub(r"([\\*?\[])", r"\\\1", relative) + "/"


def split(output: str) -> list[str]:
    """Return the parts of an output with -z."""
    return output.split("\0")[:-1]


def joined(names: Iterable[str]) -> bytes:
    """Return names for a command that reads them with -z."""
    return b"".join(name.encode("utf-8", "surrogateescape") + b"\0" for name in names)


def tracked(output: str) -> Tracked:
    """Parse `ls-files -z --stage`; a file in conflict is listed up to three times."""
    files: dict[str, None] = {}
    submodules: list[str] = []
    for entry in split(output):
        head, _, name = entry.partition("\t")
        if head.startswith(_GITLINK):
            submodules.append(name)
        else:
            files[name] = None
    return Tracked(files=tuple(files), submodules=tuple(submodules))


def files_of_tree(output: str) -> Iterator[File]:
    """Parse `ls-tree -r -z --long`; raises ValueError for a file whose content is missing."""
    for entry in split(output):
        head, _, path = entry.partition("\t")
        mode, _, object_id, size = head.split()
        yield File(path=path, mode=mode, object_id=object_id, size_bytes=int(size))
