"""A project's `orchestrator.toml`: it says what a job is, and more only where the user trusts it.

Whoever wrote a cloned repository, or can write to a folder above, decides what the file says. So an
allow-list names the keys that count without trust; none of them makes anything run on this host by
itself, says where something is written, or sends anything to anybody.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, files
from orchestrator.config import file_schema, paths, trust
from orchestrator.text import escaping
from orchestrator.toml import documents, key_paths, schema

_KEYS = frozenset({"profile", "profiles", "pattern", "pattern_files"})
_PROFILE_KEYS = frozenset(
    {
        *("account", "partition", "qos", "gres_style", "modules", "binds"),
        *("partitions", "alerts", "retry"),
    }
)
#: Tables of a spec that `[retry.changes]` may change. Not environment: BASH_ENV runs what it names.
_CHANGED_TABLES = ("job", "resources", "args")
_NOT_ALLOWED = "not allowed in a project's file"

#: Path of a key that counts only in a trusted file, and why.
Finding = tuple[key_paths.KeyPath, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """The project's file that was found, and whether it counts."""

    path: Path
    is_trusted: bool = False
    #: why the file was not read; "" where it was read
    ignored: str = ""
    #: what makes it count all the same
    cure: str = ""

    @property
    def note(self) -> str:
        """Return what the user should be told about the file; "" for nothing."""
        cure = f"{self.cure[:1].upper()}{self.cure[1:]}"
        return f"{self.ignored}. {cure}." if self.ignored else ""

    @property
    def standing(self) -> str:
        """Return how the file counts, in words."""
        if self.ignored:
            return "not read"
        return "trusted" if self.is_trusted else "not trusted"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    """What a project's file adds to the configuration."""

    project: Project
    document: documents.Document
    problems: Sequence[errors.Problem] = ()
    #: keys that the file may not set, dotted
    refused: Sequence[str] = ()
    #: how these can be set all the same
    advice: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Review:
    """What a person should look at before trusting a project's file."""

    #: path and value of each key that counts only in a trusted file
    settings: Sequence[tuple[key_paths.KeyPath, object]]
    #: files of the project that the file names and that are trusted with it
    named: Sequence[Path]
    digest: str


class RefusedError(errors.ConfigurationError):
    """A project's file sets what only a trusted one may set."""

    def __init__(self, problems: Sequence[errors.Problem], layer: Layer) -> None:
        super().__init__(problems)
        self.args = (f"{self}\n{layer.advice}",)
        self.path = layer.project.path
        self.refused = tuple(layer.refused)


def read(path: Path, environ: Mapping[str, str], shared_folders: Sequence[Path]) -> Layer:
    """Return what a project's file says, as far as it counts.

    path: absolute, its folder without symbolic links.
    shared_folders: of the user; a project's file cannot name them.
    """
    recorded = trust.digests(environ, path)
    exposed = paths.exposed(path, shared_folders)
    empty = documents.Document(origins={(): documents.Origin(source=str(path))})
    if exposed is not None and not recorded:
        return Layer(project=_ignored(path, exposed, changed=False), document=empty)
    # The bytes that are compared with the record are the ones that are parsed.
    content, problems = documents.read_bytes(path)
    document = empty
    if not problems:
        document, problems = documents.parse_bytes(content, str(path))
    is_trusted = bool(recorded) and _digest(path, content, document, environ) in recorded
    project = Project(path=path, is_trusted=is_trusted)
    if is_trusted:
        document, wrong = paths.with_whole_paths(document, path.parent, environ)
        document, unsafe = _with_whole_commands(document, path.parent, shared_folders)
        return Layer(project=project, document=document, problems=[*problems, *wrong, *unsafe])
    if exposed is not None:
        return Layer(project=_ignored(path, exposed, changed=True), document=empty)
    whole, wrong = paths.with_whole_paths(document, path.parent, environ)
    refused = {
        key: why
        for key, why in needing_trust(whole, path.parent)
        if schema.hint_at(file_schema.File, key) is not None
    }
    for key, why in refused.items():
        problem = document.problem(key, why)
        # The line may hold a password, or the address by which anybody writes to a chat.
        is_secret = key[0] in ("database", "notices")
        problems.append(dataclasses.replace(problem, text="") if is_secret else problem)
        # The whole table: rules of [retry] without some of their keys would be told as wrong.
        whole = documents.without(whole, key[:3])
    told = [documents.dotted(key) for key in refused]
    problems += [problem for problem in wrong if problem.key not in told]
    since = ", which changed since you trusted it," if recorded else ""
    advice = (
        f"A project's file may only say what a job is. Move these keys to {_user_file(environ)}, "
        f"or review the file{since} and run `{command(path)}`."
    )
    return Layer(project=project, document=whole, problems=problems, refused=told, advice=advice)


def refuse_changed(project: Project | None, environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError where a file that was trusted when it was read is not any more."""
    if project is None or not project.is_trusted:
        return
    if not read(project.path, environ, ()).project.is_trusted:
        shown = escaping.visible(str(project.path))
        message = (
            "the file, or one that is trusted with it, changed since it was read. Review it, run "
            f"`{command(project.path)}`, then start the command again"
        )
        raise errors.ConfigurationError([errors.Problem(source=shown, message=message)])


def review(path: Path, environ: Mapping[str, str]) -> Review:
    """Return what to look at in a project's file, and the digest that stands for all of it.

    ConfigurationError where it cannot be read, is not TOML or names too much.
    """
    content, problems = documents.read_bytes(path)
    if problems:
        raise errors.ConfigurationError(problems)
    document, problems = documents.parse_bytes(content, str(path))
    if problems:
        raise errors.ConfigurationError(problems)
    whole, _ = paths.with_whole_paths(document, path.parent, environ)
    try:
        named = trust.named_files(_named(whole, path.parent))
    except trust.TooMuchError as exc:
        problem = errors.Problem(source=escaping.visible(str(path)), message=str(exc))
        raise errors.ConfigurationError([problem]) from exc
    settings = [
        leaf
        for key, _ in needing_trust(whole, path.parent)
        for leaf in _leaves(key, _value(whole.data, key))
    ]
    return Review(settings=settings, named=sorted(named), digest=trust.digest(path, content, named))


def needing_trust(document: documents.Document, folder: Path) -> Iterator[Finding]:
    """Give each key of a project's file that counts only where the file is trusted.

    document: its paths are absolute. folder: the file's, without symbolic links.
    """
    for key, value in document.data.items():
        if key not in _KEYS:
            # Of a table its own tables: their lines are known.
            names = list(value) if isinstance(value, Mapping) else []
            yield from (((key, name), _NOT_ALLOWED) for name in names)
            if not names:
                yield (key,), _not_allowed(key)
    given = document.data.get("pattern_files")
    for text in given if isinstance(given, list) else ():
        if isinstance(text, str) and not Path(os.path.realpath(text)).is_relative_to(folder):
            yield ("pattern_files",), "leads out of the project, not allowed in a project's file"
            break
    tables = document.data.get("profiles")
    for name, table in tables.items() if isinstance(tables, Mapping) else ():
        for key, value in table.items() if isinstance(table, Mapping) else ():
            at = ("profiles", name, key)
            if key not in _PROFILE_KEYS:
                yield at, _not_allowed(key)
            elif key == "modules" and any(map(_is_path, value if isinstance(value, list) else ())):
                yield at, "names a module by its path, not allowed in a project's file"
            elif key == "retry" and isinstance(value, Mapping):
                yield from _changes(value.get("changes"), (*at, "changes"))


def _not_allowed(key: str) -> str:
    if key not in file_schema.variable_hints():
        return _NOT_ALLOWED
    return f"{_NOT_ALLOWED}; the variable {file_schema.variable(key)} sets it too"


def _changes(causes: Any, at: key_paths.KeyPath) -> Iterator[Finding]:
    for cause, keys in causes.items() if isinstance(causes, Mapping) else ():
        for key in keys if isinstance(keys, Mapping) else ():
            if key.partition(".")[0] not in _CHANGED_TABLES:
                yield (*at, cause, key), _NOT_ALLOWED


def _is_path(module: object) -> bool:
    # A name is looked up in MODULEPATH; a path runs the Tcl or Lua that it leads to.
    text = str(module)
    return text.startswith(("/", ".", "~")) or ".." in text.split("/")


def _named(whole: documents.Document, folder: Path) -> Iterator[Path]:
    """Give what the file makes run or reads, as far as it belongs to the project."""
    given = whole.data.get("pattern_files")
    channels = whole.data.get("notices")
    texts: list[object] = [
        whole.data.get("templates_dir"),
        *(given if isinstance(given, list) else ()),
    ]
    texts += [str(folder / word) for _, word in _command_files(channels, folder)]
    for text in texts:
        if isinstance(text, str):
            path = Path(os.path.normpath(text))
            real = Path(os.path.realpath(path))
            if path.is_relative_to(folder) or real.is_relative_to(folder):
                yield path


def _command_files(channels: Any, folder: Path) -> Iterator[tuple[key_paths.KeyPath, str]]:
    """Give each word of a channel's command that is a file, seen from the project's folder."""
    for name, channel in channels.items() if isinstance(channels, Mapping) else ():
        command = channel.get("command") if isinstance(channel, Mapping) else None
        for place, word in enumerate(command if isinstance(command, list) else ()):
            if isinstance(word, str) and os.path.isfile(folder / word):
                yield ("notices", name, "command", place), word


def _with_whole_commands(
    document: documents.Document, folder: Path, shared_folders: Sequence[Path]
) -> tuple[documents.Document, list[errors.Problem]]:
    """Return the document with the files of its commands as absolute paths: those of the record.

    The command may be called in another folder, in which such a name is another file. With problems
    where others can change a file after it was compared with the record.
    """
    problems = []
    for key, word in list(_command_files(document.data.get("notices"), folder)):
        file = Path(os.path.normpath(folder / word))
        if not file.is_relative_to(folder) or (key[3] == 0 and "/" not in word):
            # Not in the record, or a program that is looked for in PATH.
            continue
        if exposed := paths.exposed(file, shared_folders):
            told = f"runs {escaping.visible(str(file))}, which is not safe: {exposed}"
            cure = f". {exposed.cure[:1].upper()}{exposed.cure[1:]}" if exposed.cure else ""
            problems.append(document.problem(key[:3], told + cure))
        command = list(_value(document.data, key[:3]))
        command[int(key[3])] = str(file)
        leaf = documents.leaf(tuple(map(str, key[:3])), command, document.origin(key[:3]))
        document = documents.merge(document, leaf)
    return document, problems


def _digest(
    path: Path, content: bytes, document: documents.Document, environ: Mapping[str, str]
) -> str | None:
    whole, _ = paths.with_whole_paths(document, path.parent, environ)
    try:
        return trust.digest(path, content, trust.named_files(_named(whole, path.parent)))
    except trust.TooMuchError:
        return None


def _ignored(path: Path, exposed: files.Exposure, *, changed: bool) -> Project:
    review = f"review the file and run `{command(path)}`"
    cure = f"{exposed.cure}, or {review}" if exposed.cure else review
    since = ", and it changed since you trusted it" if changed else ""
    ignored = f"{escaping.visible(str(path))} is not read: {exposed}{since}"
    return Project(path=path, ignored=ignored, cure=cure)


def command(path: Path) -> str:
    """Return the command that trusts a project's file."""
    return f"orchestrator trust {escaping.visible(shlex.quote(str(path.parent)))}"


def _user_file(environ: Mapping[str, str]) -> str:
    return escaping.visible(str(paths.user_file(environ)))


def _value(data: Any, path: key_paths.KeyPath) -> Any:
    for part in path:
        data = data[part]
    return data


def _leaves(path: key_paths.KeyPath, value: Any) -> Iterator[tuple[key_paths.KeyPath, object]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    else:
        yield path, value
