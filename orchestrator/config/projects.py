"""A project's `orchestrator.toml`: it describes jobs; other keys need the user's trust.

Whoever wrote a cloned repository, or can write to a folder above, controls the file. So an
allow-list names the keys that need no trust: none of them runs anything on this host, decides where
something is written, or sends anything to anybody.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator import errors, files
from orchestrator.config import file_schema, paths
from orchestrator.text import escaping
from orchestrator.toml import documents, schema
from orchestrator.toml.key_paths import KeyPath

_KEYS = frozenset({"profile", "profiles", "pattern", "pattern_files"})
_PROFILE_KEYS = frozenset(
    "account partition qos gres_style modules binds partitions alerts retry code".split()
)
#: Tables of a spec that `[retry.changes]` may change. Not environment: BASH_ENV runs a program.
_CHANGED_TABLES = ("job", "resources", "args")
_NOT_ALLOWED = "not allowed in a project's file"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """The nearest project's file, and whether it applies."""

    path: Path
    is_trusted: bool = False
    #: why the file was not read; "" if it was
    ignored: str = ""
    #: how to make it apply
    cure: str = ""

    @property
    def note(self) -> str:
        """A warning for the user about the file; "" if there is none."""
        return f"{self.ignored}. {_capitalized(self.cure)}." if self.ignored else ""

    @property
    def standing(self) -> str:
        """Return "trusted", "not trusted" or "not read"."""
        if self.ignored:
            return "not read"
        return "trusted" if self.is_trusted else "not trusted"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layer:
    project: Project
    document: documents.Document
    problems: Sequence[errors.Problem] = ()
    #: keys that need trust, dotted
    refused: Sequence[str] = ()
    #: how to set them
    advice: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Review:
    #: path and value of each key that needs trust
    settings: Sequence[tuple[KeyPath, object]]
    #: files of the project that the file names; they are trusted with it
    named: Sequence[Path]
    digest: str


class RefusedError(errors.ConfigurationError):
    """An untrusted project's file sets keys that need trust."""

    def __init__(self, problems: Sequence[errors.Problem], layer: Layer) -> None:
        super().__init__(problems)
        self.args = (f"{self}\n{layer.advice}",)
        self.path = layer.project.path
        self.refused = tuple(layer.refused)


def read(path: Path, environ: Mapping[str, str], shared_folders: Sequence[Path]) -> Layer:
    """Return the keys of a project's file that apply.

    path: absolute, its folder without symbolic links. shared_folders: of the user.
    """
    # Few folders have such a file, and `submit` loads this module.
    from orchestrator.config import trust

    recorded = trust.digests(environ, path)
    exposed = paths.exposure(path, shared_folders)
    if exposed is not None and not recorded:
        return _ignored(path, exposed, "")
    # The parsed bytes are the ones that are compared with the record.
    content, relative, problems = documents.read(path)
    document, path_problems = paths.with_absolute_paths(relative, path.parent, environ)
    if recorded and _is_recorded(path, content, document, recorded):
        document, unsafe = _with_absolute_commands(document, path.parent, shared_folders)
        return Layer(
            project=Project(path=path, is_trusted=True),
            document=document,
            problems=[*problems, *path_problems, *unsafe],
        )
    if exposed is not None:
        return _ignored(path, exposed, ", and it changed since you trusted it")
    refused = []
    for key, reason in needing_trust(document, path.parent):
        if schema.hint_at(file_schema.File, key) is None:
            continue  # reported as an unknown key
        refused.append(documents.dotted(key))
        problem = relative.problem(key, reason)
        # The line may contain a password or a webhook's URL.
        is_secret = key[0] in ("database", "notices")
        problems.append(dataclasses.replace(problem, text="") if is_secret else problem)
        # The whole table: [retry] without some of its keys would be reported as wrong.
        document = documents.without(document, key[:3])
    changed = ", which changed since you trusted it," if recorded else ""
    user_file = escaping.visible(str(paths.user_file(environ)))
    return Layer(
        project=Project(path=path),
        document=document,
        problems=[*problems, *(other for other in path_problems if other.key not in refused)],
        refused=refused,
        advice=f"A project's file may only describe jobs. Move these keys to {user_file}, or "
        f"review the file{changed} and run `{command(path)}`.",
    )


def refuse_changed(project: Project | None, environ: Mapping[str, str]) -> None:
    """Raise ConfigurationError if a trusted file changed since it was read."""
    if project is None or not project.is_trusted:
        return
    if not read(project.path, environ, ()).project.is_trusted:
        message = (
            "the file, or one that is trusted with it, changed since it was read. Review it, run "
            f"`{command(project.path)}`, then start the command again"
        )
        raise _error(project.path, message)


def _error(path: Path, message: str) -> errors.ConfigurationError:
    problem = errors.Problem(source=escaping.visible(str(path)), message=message)
    return errors.ConfigurationError([problem])


def review(path: Path, environ: Mapping[str, str]) -> Review:
    """Return what to review in a project's file, and the digest of all of it.

    Raises ConfigurationError if it cannot be read, is not TOML or names too much.
    """
    from orchestrator.config import trust

    content, document, problems = documents.read(path)
    if problems:
        raise errors.ConfigurationError(problems)
    document, _ = paths.with_absolute_paths(document, path.parent, environ)
    try:
        named = trust.file_digests(_named_files(document, path.parent))
    except trust.TooMuchError as exc:
        raise _error(path, str(exc)) from exc
    settings = [
        leaf
        for key, _ in needing_trust(document, path.parent)
        for leaf in _leaves(key, document.get(key))
    ]
    return Review(settings=settings, named=sorted(named), digest=trust.digest(path, content, named))


def needing_trust(document: documents.Document, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    """Yield each key of a project's file that needs trust, and the reason.

    document: with absolute paths. folder: of the file, without symbolic links.
    """
    for key, value in document.data.items():
        if key not in _KEYS and isinstance(value, Mapping) and value:
            # The tables in it have lines of their own.
            yield from (((key, name), _NOT_ALLOWED) for name in value)
        elif key not in _KEYS:
            yield (key,), _not_allowed(key)
    for text in _items(document.data.get("pattern_files")):
        if isinstance(text, str) and not _is_inside(text, folder):
            yield (
                ("pattern_files",),
                "is outside the project, which is not allowed in a project's file",
            )
            break
    for name, table in _pairs(document.data.get("profiles")):
        for key, value in _pairs(table):
            at = ("profiles", name, key)
            if key not in _PROFILE_KEYS:
                yield at, _not_allowed(key)
            elif key == "modules" and any(map(_is_module_path, _items(value))):
                yield at, "names a module by its path, not allowed in a project's file"
            elif key == "retry" and isinstance(value, Mapping):
                for cause, changes in _pairs(value.get("changes")):
                    for changed, _ in _pairs(changes):
                        if changed.partition(".")[0] not in _CHANGED_TABLES:
                            yield (*at, "changes", cause, changed), _NOT_ALLOWED


def _is_inside(text: str, folder: Path) -> bool:
    # TOML strings may contain NUL, which no path does.
    return "\0" not in text and Path(os.path.realpath(text)).is_relative_to(folder)


def _pairs(table: Any) -> list[tuple[str, Any]]:
    return list(table.items()) if isinstance(table, Mapping) else []


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _not_allowed(key: str) -> str:
    variable, _ = file_schema.variables().get(key, ("", None))
    return f"{_NOT_ALLOWED}; set the variable {variable} instead" if variable else _NOT_ALLOWED


def _is_module_path(module: object) -> bool:
    # A name is searched in MODULEPATH; a path runs the Tcl or Lua file that it leads to.
    text = str(module)
    return text.startswith(("/", ".", "~")) or ".." in text.split("/")


def _named_files(document: documents.Document, folder: Path) -> Iterator[Path]:
    """Yield the files and folders of the project that the file runs or reads."""
    commands = _command_files(document.data.get("notices"), folder)
    for text in (
        document.data.get("templates_dir"),
        *_items(document.data.get("pattern_files")),
        *(str(folder / word) for _, word in commands),
    ):
        if isinstance(text, str) and "\0" not in text:
            path = Path(os.path.normpath(text))
            real = Path(os.path.realpath(path))
            if path.is_relative_to(folder) or real.is_relative_to(folder):
                yield path


def _command_files(channels: Any, folder: Path) -> Iterator[tuple[KeyPath, str]]:
    """Yield each word of a channel's command that is a file, seen from the project's folder."""
    for name, channel in _pairs(channels):
        for index, word in enumerate(_items(dict(_pairs(channel)).get("command"))):
            if isinstance(word, str) and os.path.isfile(folder / word):
                yield ("notices", name, "command", index), word


def _with_absolute_commands(
    document: documents.Document, folder: Path, shared_folders: Sequence[Path]
) -> tuple[documents.Document, list[errors.Problem]]:
    """Return the document with the files of its commands as absolute paths.

    In another folder such a name would be another file than the one of the record. The problems are
    files that other users can change after they were compared with the record.
    """
    problems = []
    for key, word in list(_command_files(document.data.get("notices"), folder)):
        file = Path(os.path.normpath(folder / word))
        if not file.is_relative_to(folder) or (key[3] == 0 and "/" not in word):
            # Not in the record, or a program that is searched in PATH.
            continue
        if exposed := paths.exposure(file, shared_folders):
            message = f"runs {escaping.visible(str(file))}, which is not safe: {exposed}"
            message += f". {_capitalized(exposed.cure)}" if exposed.cure else ""
            problems.append(document.problem(key[:3], message))
        command = list(document.get(key[:3]))
        command[int(key[3])] = str(file)
        document = documents.with_value(document, key[:3], command, document.origin(key[:3]))
    return document, problems


def _is_recorded(
    path: Path, content: bytes, document: documents.Document, recorded: Container[str]
) -> bool:
    from orchestrator.config import trust

    try:
        named = trust.file_digests(_named_files(document, path.parent))
    except trust.TooMuchError:
        return False
    return trust.digest(path, content, named) in recorded


def _ignored(path: Path, exposed: files.Exposure, changed: str) -> Layer:
    advice = f"review the file and run `{command(path)}`"
    project = Project(
        path=path,
        ignored=f"{escaping.visible(str(path))} is not read: {exposed}{changed}",
        cure=f"{exposed.cure}, or {advice}" if exposed.cure else advice,
    )
    return Layer(project=project, document=documents.empty(str(path)))


def command(path: Path) -> str:
    """Return the command that trusts a project's file."""
    return f"orchestrator trust {escaping.visible(shlex.quote(str(path.parent)))}"


def _capitalized(text: str) -> str:
    return text[:1].upper() + text[1:]


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, object]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    else:
        yield path, value
