"""Calls of git on our own store of snapshots: arguments, environment, and what is printed.

The store is a bare repository of our own. Each call names it, the working tree and the index, so
that git never looks for a repository in the tree: its configuration, hooks and attributes have no
effect. Sources: gitrepository-layout(5), gitattributes(5), git-config(1), git-update-index(1).
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

#: In info/attributes, which overrides each .gitattributes: bytes stay as they are in the tree, and
#: no filter runs.
ATTRIBUTES = (
    "* -filter -text -eol -ident -working-tree-encoding -export-ignore -export-subst !diff\n"
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
#: Options of `diff-tree`: a line for each file that differs, with its name in full.
STAT = ("--stat=1000,900", "--stat-graph-width=20", "--compact-summary")
#: What git prints about the folder that it writes (strerror(3), in English).
_FULL = ("No space left on device", "Disk quota exceeded", "Out of diskspace", "new index file")
_DENIED = ("Read-only file system", "insufficient permission", "Unable to create temporary file")
_UNREADABLE = re.compile(r"^warning: could not open directory '(.+?)/?': (.+)", re.MULTILINE)
_MAKE_READABLE = "Make it readable (chmod u+rx), or add it to .gitignore."
_NO_STORE = "not a git repository"
#: git ended by itself: it was neither killed nor too slow.
_BY_GIT = re.compile("^(?:error|fatal): ", re.MULTILINE)
_WRITING = re.compile("(?:unable to|could not|cannot|can't|failed to) (?:create|write|unlink)")
#: Commands that read nothing of the store, so that their failure does not show that it is damaged.
_NOT_READING = frozenset({"init", "update-index", "ls-files"})
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
        # References are files, whatever the default of git is.
        "GIT_DEFAULT_REF_FORMAT": "files",
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


def failure(command: str, output: str, store: Path, writes: Path, root: Path | None) -> str:
    """Return why a call failed, and how to fix it.

    output: what git printed, not empty. writes: the folder that the call writes. root: the working
    tree that the call reads, if any.
    """
    lines = output.splitlines()
    if full := [line for line in lines if any(word in line for word in _FULL)]:
        return (
            f"git {command} failed: {full[0]}. Free space on the disk of {writes}: `orchestrator "
            "usage --disk` shows what jobs need there."
        )
    if denied := [line for line in lines if any(word in line for word in _DENIED)]:
        return not_written(writes, f"git {command}: {denied[0]}")
    if folder := _UNREADABLE.search(output):
        return f"{root}/{folder[1]} cannot be read: {folder[2]}. {_MAKE_READABLE}"
    if _WRITING.search(output):
        # Without a reason.
        return f"git {command} failed: {lines[0]}. Is {writes} writable, and its disk not full?"
    if _NO_STORE in output or (command not in _NOT_READING and _BY_GIT.search(output)):
        return damaged(store, f"git {command}: {lines[0]}")
    return f"{root or writes}: git {command} failed: {lines[0]}"


def not_written(path: Path, why: str) -> str:
    """Return why a part of the store cannot be written, and how to fix it."""
    return f"cannot write {path}: {why}. Make it writable, or set state_dir to another folder."


def damaged(store: Path, why: str) -> str:
    """Return what is wrong with a store that cannot be read, and what to do."""
    return (
        f"the store of snapshots {store} is damaged ({why}). Move it away, and submit again: "
        f"`{shlex.join(['mv', str(store), f'{store}.damaged'])}`. Submitted jobs keep their code; "
        "`checkout` and `diff` no longer find the snapshots in it."
    )


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


def objects_of_tree(output: str) -> Iterator[str]:
    """Parse `ls-tree -r -t -z`: the IDs of the files and folders."""
    for entry in split(output):
        yield entry.partition("\t")[0].split()[2]


def object_size(line: str) -> tuple[str, int | None]:
    """Parse a line of `cat-file --batch-check`; the size is None if the object is missing."""
    name, kind, *size = line.split()
    return name, None if kind == "missing" else int(size[0])
