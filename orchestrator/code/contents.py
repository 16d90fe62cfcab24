"""Checks of the files of a snapshot before it is taken, and of paths that it has to contain."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

from orchestrator import errors, jobs
from orchestrator.text import escaping, nouns

DEFAULT_MAX_FILE_MB = 50
MAX_FILES = 100_000
MAX_TOTAL_BYTES = 2 * 10**9
#: Bytes of a file that HEAD checks need.
HEAD_BYTES = 100
#: Pointers of Git LFS are shorter (git-lfs, docs/spec.md).
_POINTER_BYTES = 1024
_POINTER = b"version https://git-lfs.github.com/spec/"
#: Problems of one kind that are listed.
_LISTED = 20
_MB = 10**6
_UNREADABLE = (
    "you may not read it: run chmod u+r, or add it to .gitignore (and `git rm --cached` it if git "
    "tracks it)"
)

_SECRET_NAMES = frozenset({".env", ".netrc", ".pypirc", ".pgpass", ".git-credentials"})
_TEMPLATE_SUFFIXES = (".example", ".sample", ".template")
#: Files that may hold a private key: their first line decides.
_KEY_NAMES = re.compile(r".*\.(?:pem|key|ppk)|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?", re.IGNORECASE)
_KEY_STORE = re.compile(r".*\.(?:p12|pfx)", re.IGNORECASE)
_KEY_HEAD = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY|PuTTY-User-Key-File")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Found:
    """A file or symbolic link in the working tree."""

    #: relative to the root
    name: str
    size_bytes: int
    #: of a symbolic link; absolute ones lead through no other link before their last part
    target: str | None = None
    #: of a symbolic link: whether it leads to something
    leads: bool = True
    is_readable: bool = True
    #: the first HEAD_BYTES, if needs_head()
    head: bytes = b""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    allow: tuple[str, ...] = ()
    max_file_mb: int = DEFAULT_MAX_FILE_MB

    @classmethod
    def of(cls, code: jobs.Code) -> Settings:
        largest = DEFAULT_MAX_FILE_MB if code.max_file_mb is None else code.max_file_mb
        return cls(allow=code.allow, max_file_mb=largest)

    def allows(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.allow)


def needs_head(name: str, size_bytes: int, *, has_lfs: bool) -> bool:
    """Return whether the first bytes of a file decide about it.

    has_lfs: a .gitattributes of the tree names Git LFS.
    """
    is_pointer = has_lfs and len(_POINTER) < size_bytes <= _POINTER_BYTES
    return is_pointer or _KEY_NAMES.fullmatch(name.rpartition("/")[2]) is not None


def problems(
    found: Sequence[Found],
    names: Names,
    empty_submodules: Sequence[str],
    settings: Settings,
    root: str,
) -> list[errors.Problem]:
    """Return what must not or cannot be part of a snapshot, each with its fix."""
    relevant = [each for each in found if not settings.allows(each.name)]
    kinds = (
        ((each.name, _UNREADABLE) for each in found if not each.is_readable),
        _secrets(relevant),
        _links(relevant, names, root),
        _too_large(relevant, settings),
        _pointers(relevant),
        (
            (name, "submodule without content: run `git submodule update --init`, or `git rm` it")
            for name in empty_submodules
            if not settings.allows(name)
        ),
        _totals(found, root),
    )
    return [problem for kind in kinds for problem in _problems(list(kind))]


def _problems(kind: Sequence[tuple[str, str]]) -> Iterator[errors.Problem]:
    for name, message in kind[:_LISTED]:
        yield errors.Problem(source=escaping.visible(name), message=message)
    if further := kind[_LISTED:]:
        yield errors.Problem(
            source=escaping.visible(further[0][0]),
            message=f"the same, and {nouns.count(len(further) - 1, 'more file')}",
        )


def _accept(name: str) -> str:
    # "?" matches any character: nothing needs to be escaped, neither for TOML nor as a pattern.
    pattern = "".join("?" if c in '[*?"\\' or not c.isprintable() else c for c in name)
    return f'accept it with code.allow = ["{pattern}"]'


def _secrets(found: Sequence[Found]) -> Iterator[tuple[str, str]]:
    for each in found:
        if each.target is None and (what := _secret(each)):
            yield (
                each.name,
                f"looks like {what}: add it to .gitignore, or {_accept(each.name)}",
            )


def _secret(found: Found) -> str:
    base = found.name.rpartition("/")[2]
    if base in _SECRET_NAMES or (
        base.startswith(".env.") and not base.endswith(_TEMPLATE_SUFFIXES)
    ):
        return "a file with secrets"
    if _KEY_STORE.fullmatch(base) or (_KEY_NAMES.fullmatch(base) and _KEY_HEAD.match(found.head)):
        return "a private key"
    return ""


def _links(found: Sequence[Found], names: Names, root: str) -> Iterator[tuple[str, str]]:
    for each in found:
        if each.target is None or not each.leads:
            continue
        folder = os.path.dirname(each.name)
        if each.target.startswith("/"):
            path = os.path.relpath(each.target, root)
            if path in names:
                relative = escaping.visible(os.path.relpath(path, folder or "."))
                yield (
                    each.name,
                    f"links to {escaping.visible(each.target)}, which you edit, not to its copy in "
                    f"the snapshot: link to {relative}, add the link to .gitignore, or "
                    f"{_accept(each.name)}",
                )
            continue
        path = os.path.normpath(os.path.join(folder, each.target))
        if path not in names:
            absolute = escaping.visible(os.path.normpath(os.path.join(root, path)))
            yield (
                each.name,
                f"links to {escaping.visible(each.target)}, which is not part of the snapshot: "
                f"link to {absolute}, or {_accept(each.name)}",
            )


def _too_large(found: Sequence[Found], settings: Settings) -> Iterator[tuple[str, str]]:
    limit_bytes = settings.max_file_mb * _MB
    large = [each for each in found if each.size_bytes > limit_bytes]
    for each in sorted(large, key=lambda each: (-each.size_bytes, each.name)):
        yield (
            each.name,
            f"{each.size_bytes / _MB:.0f} MB, more than code.max_file_mb = {settings.max_file_mb}: "
            f"add it to .gitignore and name its absolute path in the spec, or {_accept(each.name)}",
        )


def _pointers(found: Sequence[Found]) -> Iterator[tuple[str, str]]:
    for each in found:
        if each.head.startswith(_POINTER):
            yield (
                each.name,
                "is a pointer of Git LFS without the content: run `git lfs pull`, or "
                f"{_accept(each.name)}",
            )


def _totals(found: Sequence[Found], root: str) -> Iterator[tuple[str, str]]:
    total_bytes = sum(each.size_bytes for each in found)
    if len(found) <= MAX_FILES and total_bytes <= MAX_TOTAL_BYTES:
        return
    files, sizes = Counter[str](), Counter[str]()
    for each in found:
        folder = each.name.partition("/")[0] if "/" in each.name else "."
        files[folder] += 1
        sizes[folder] += each.size_bytes
    largest = files.most_common(3) if len(found) > MAX_FILES else sizes.most_common(3)
    shown = ", ".join(
        f"{escaping.visible(folder)} ({files[folder]} files, {sizes[folder] / _MB:.0f} MB)"
        for folder, _ in largest
    )
    yield (
        root,
        f"{len(found)} files with {total_bytes / _MB:.0f} MB are more than a snapshot may have "
        f"({MAX_FILES} files, {MAX_TOTAL_BYTES / _MB:.0f} MB). Most are in {shown}: add data to "
        ".gitignore",
    )


class Names:
    """The paths of a snapshot: its files, links and folders."""

    def __init__(self, files: Iterator[str]) -> None:
        self._files = set(files)
        folders = {"."}
        for name in self._files:
            while name := name.rpartition("/")[0]:
                if name in folders:
                    break
                folders.add(name)
        self._folders = folders

    def __contains__(self, path: object) -> bool:
        """Return whether a normalized relative path is in the snapshot, or below a file of it.

        Below a file: the file is a link to a folder.
        """
        if path in self._folders:
            return True
        parts = PurePosixPath(str(path)).parts
        return any("/".join(parts[:n]) in self._files for n in range(1, len(parts) + 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Named:
    """A path that a spec names."""

    #: dotted
    key: str
    path: str
    #: the job cannot run without it
    is_required: bool


def named_paths(spec: jobs.JobSpec, program: str | None) -> Iterator[Named]:
    """Yield the paths that a spec names. program: the file of the program, if it is one."""
    environment, launch = spec.environment, spec.launch
    conda, image = environment.conda or "", spec.container.image or ""
    required = {
        "launch.script" if launch.script else "launch.program": program,
        "environment.venv": environment.venv,
        "environment.conda": conda if "/" in conda else None,
        "environment.secrets_file": environment.secrets_file,
        "container.image": image if "://" not in image else None,
    }
    for key, path in required.items():
        if path:
            yield Named(key=key, path=path, is_required=True)
    tasks: Sequence[Mapping[str, jobs.ArgumentValue]] = spec.array.tasks or ()
    for name, value in itertools.chain(spec.args.items(), *(task.items() for task in tasks)):
        for word in value if isinstance(value, tuple) else (value,):
            if isinstance(word, str):
                yield Named(key=f"args.{name}", path=word, is_required=False)
    for key, words in (("program", launch.program), ("command", (launch.command or "").split())):
        for word in words:
            if word != program and not word.startswith("-"):
                yield Named(key=f"launch.{key}", path=word, is_required=False)
    if spec.retry.checkpoint_dir:
        yield Named(key="retry.checkpoint_dir", path=spec.retry.checkpoint_dir, is_required=False)


def missing(named: Named, absolute: str) -> str:
    """Return what is wrong with a path that exists, but is not part of the snapshot."""
    return (
        f"{escaping.visible(named.path)} is not part of the snapshot (git ignores it, or it is "
        f"outside): write {escaping.visible(absolute)}"
    )


def not_the_copy(named: Named, relative: str) -> str:
    """Return what is wrong with an absolute path of a program that is part of the snapshot."""
    return (
        f"{escaping.visible(named.path)} is the file that you edit, not its copy in the snapshot: "
        f"write {escaping.visible(relative)}"
    )
