"""Templates -> text: where their sources lie, and how they are rendered."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import pathlib
import traceback
import types
from collections.abc import Callable, Mapping, Sequence

import jinja2
from jinja2 import bccache, sandbox

from orchestrator import errors, files
from orchestrator.rendering import directives, shell

#: The package orchestrator.
PACKAGE = pathlib.Path(__file__).resolve().parent.parent
#: The wheel carries templates/ inside the package; a checkout has it alongside.
TEMPLATES = next(
    folder for folder in (PACKAGE / "templates", PACKAGE.parent / "templates") if folder.is_dir()
)
#: What is larger is no template that a person wrote.
_LIMIT_BYTES = 4 * 1024 * 1024


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a script comes from, for its first lines."""

    #: our version
    version: str
    #: what the spec was read from: a file, or the command line
    spec: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    """A template source that was used."""

    #: as templates name it
    name: str
    text: str
    #: it lies in the user's folder
    users: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    """A rendered script, and what it was made of."""

    text: str
    #: name of the template
    template: str
    #: 12 characters of the SHA-256 over all sources that went into it
    template_hash: str


class _Compiled(jinja2.BytecodeCache):
    """Compiled templates in memory, for all scripts of a process: compiling takes 20 ms a script.

    By Jinja's key and checksum, those of name, path and source: a changed file is compiled anew.
    """

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], types.CodeType] = {}

    def load_bytecode(self, bucket: bccache.Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: bccache.Bucket) -> None:
        assert bucket.code is not None, "Jinja dumps what it has compiled"
        self._codes[bucket.key, bucket.checksum] = bucket.code


@functools.cache
def _compiled() -> _Compiled:
    return _Compiled()


@functools.cache
def _last_used() -> dict[tuple[str, pathlib.Path | None], tuple[str, ...]]:
    """Return, by template and user's folder, the names of the sources that were used last."""
    return {}


@functools.cache
def _shipped(path: pathlib.Path) -> str:
    """Return the text of a template of ours: it belongs to the code that this process runs."""
    return path.read_text(encoding="utf-8")


class _Loader(jinja2.BaseLoader):
    """Templates of the user's folder, else ours; `orchestrator/NAME` is always ours."""

    def __init__(
        self, templates_dir: pathlib.Path | None, shared_folders: Sequence[pathlib.Path]
    ) -> None:
        self._templates_dir = templates_dir
        self._shared_folders = shared_folders
        self._read: dict[str, tuple[Source, str]] = {}
        self.used: dict[str, Source] = {}

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        source, path = self.read(template)
        self.used[template] = source
        return source.text, path, lambda: True

    def read(self, template: str) -> tuple[Source, str]:
        """Return a source, read once, and its path; raises jinja2.TemplateNotFound."""
        if template in self._read:
            return self._read[template]
        parts = jinja2.loaders.split_template_path(template)
        users = self._templates_dir.joinpath(*parts) if self._templates_dir else None
        if parts[0] == "orchestrator":
            path, is_users = TEMPLATES.joinpath(*parts[1:]), False
        elif users is not None and users.exists():
            path, is_users = users, True
            self._refuse_exposed(users)
        else:
            path, is_users = TEMPLATES.joinpath(*parts), False
        try:
            text = files.read_text(path, limit_bytes=_LIMIT_BYTES) if is_users else _shipped(path)
        except (OSError, UnicodeDecodeError) as exc:
            raise jinja2.TemplateNotFound(template, f"cannot read template {path}: {exc}") from exc
        self._read[template] = Source(name=template, text=text, users=is_users), str(path)
        return self._read[template]

    def _refuse_exposed(self, path: pathlib.Path) -> None:
        # A template is code that runs with the user's rights.
        found = files.exposure(path.absolute(), shared_folders=self._shared_folders)
        if found is not None:
            raise errors.TemplateError(found.refusal(path, "templates_dir"))


class Templates:
    """The templates that one script is made of, each read and compiled once."""

    def __init__(
        self,
        templates_dir: pathlib.Path | None,
        *,
        shared_folders: Sequence[pathlib.Path] = (),
    ) -> None:
        self._templates_dir = templates_dir
        self._loader = _Loader(templates_dir, shared_folders)
        self._environment = sandbox.ImmutableSandboxedEnvironment(
            loader=self._loader,
            undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            bytecode_cache=_compiled(),
        )
        self._environment.filters.update(
            sh=shell.quote, directive=directives.quote, comment=shell.one_line
        )

    def of_the_last(self, template: str) -> list[Source] | None:
        """Return, as they are now, the sources of the last script that this process rendered."""
        names = _last_used().get((template, self._templates_dir))
        try:
            return None if names is None else [self._loader.read(name)[0] for name in names]
        except (jinja2.TemplateNotFound, errors.TemplateError):
            # This script may do without it.
            return None

    def render(self, template: str, context: Mapping[str, object]) -> tuple[str, list[Source]]:
        """Return the text, and the sources that were used so far; raises TemplateError."""
        try:
            script = self._environment.get_template(template).render(context)
        except jinja2.TemplateSyntaxError as exc:
            raise errors.TemplateError(f"{exc.filename}:{exc.lineno}: {exc.message}") from exc
        except jinja2.TemplateNotFound as exc:
            raise errors.TemplateError(str(exc.message)) from exc
        except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as exc:
            frames = [
                frame
                for frame in traceback.extract_tb(exc.__traceback__)
                if frame.filename.endswith(".j2")
            ]
            where = f"{frames[-1].filename}:{frames[-1].lineno}: " if frames else ""
            raise errors.TemplateError(
                f"{where}{exc}. docs/howto/templates.md lists what a template may use."
            ) from exc
        used = self._loader.used
        names = _last_used()[template, self._templates_dir] = tuple(sorted(used))
        return script, [used[name] for name in names]


def digest(sources: Sequence[Source]) -> str:
    """Return 12 characters of the SHA-256 over sources."""
    total = hashlib.sha256()
    for source in sources:
        total.update(f"{source.name}\0{source.text}\0".encode())
    return total.hexdigest()[:12]
