"""Jinja templates -> scripts. A file in the user's folder replaces the shipped one of its name."""

from __future__ import annotations

import dataclasses
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
#: A wheel has templates/ inside the package, a checkout beside it.
TEMPLATES = next(
    folder for folder in (PACKAGE / "templates", PACKAGE.parent / "templates") if folder.is_dir()
)
#: slurmctld accepts scripts of 4 MiB, or more if max_script_size says so.
SCRIPT_LIMIT_BYTES = 64 * 1024 * 1024
_MAX_TEMPLATE_BYTES = 4 * 1024 * 1024
#: Shipped templates that were never run on a real system, and their names in the script's header.
NEVER_RUN = {
    "container/pyxis.sh.j2": "pyxis",
    "container/edf.sh.j2": "EDF",
    "environment/conda.sh.j2": "conda",
    "container/singularity.sh.j2": "singularity",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Origin:
    #: version of orchestrator
    version: str
    #: the spec's file, or "command line"
    spec: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script:
    text: str
    #: name of the template
    template: str
    #: 12 characters of the SHA-256 over all template files that were used
    template_hash: str


def render(
    template: str,
    context: Mapping[str, object],
    *,
    templates_dir: pathlib.Path | None = None,
    shared_folders: Sequence[pathlib.Path] = (),
    plugin_templates: Mapping[str, str] | None = None,
) -> Script:
    """Return the script; raises TemplateError.

    `plugin_templates` are texts by name. `templates_dir` is the user's folder. It is refused if
    others can change it, except below `shared_folders`.
    """
    loader = _Loader(templates_dir, shared_folders, plugin_templates or {})
    environment = sandbox.ImmutableSandboxedEnvironment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=_COMPILED,
    )
    environment.filters.update(sh=shell.quote, directive=directives.quote, comment=shell.one_line)
    header = {"template_name": template, "template_hash": "", "user_templates": [], "never_run": []}
    # The header lists the files that were used, and only rendering shows which these are.
    _render(environment, template, {**header, **context})
    used = sorted(loader.texts)
    digest = hashlib.sha256()
    for name in used:
        digest.update(f"{name}\0{loader.texts[name]}\0".encode())
    shipped = [name for name in used if name not in loader.user_templates]
    never_run = [part for name, part in NEVER_RUN.items() if name in shipped]
    header |= {
        "template_hash": digest.hexdigest()[:12],
        "user_templates": sorted(loader.user_templates),
        "never_run": [*never_run, *context.get("never_run", ())],  # type: ignore[misc]
    }
    text = _render(environment, template, {**context, **header})
    return Script(text=text, template=template, template_hash=digest.hexdigest()[:12])


def require_code(script: str) -> None:
    """Raise TemplateError if a script does not unpack the snapshot that its spec requests."""
    if "/code.tar" not in script:
        raise errors.TemplateError(
            "the templates do not unpack the snapshot of the code: include code.sh.j2 after "
            "prologue.sh.j2, and code_imports.sh.j2 after environment.sh.j2, or use --no-snapshot"
        )


def _render(environment: jinja2.Environment, name: str, context: Mapping[str, object]) -> str:
    try:
        return environment.get_template(name).render(context)
    except jinja2.TemplateSyntaxError as exc:
        raise errors.TemplateError(f"{exc.filename}:{exc.lineno}: {exc.message}") from exc
    except jinja2.TemplateNotFound as exc:
        raise errors.TemplateError(str(exc.message)) from exc
    except (jinja2.TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as exc:
        frames = traceback.extract_tb(exc.__traceback__)
        lines = [f"{f.filename}:{f.lineno}: " for f in frames if f.filename.endswith(".j2")]
        raise errors.TemplateError(
            f"{lines[-1] if lines else ''}{exc}. "
            "docs/howto/templates.md lists what a template may use."
        ) from exc


class _Loader(jinja2.BaseLoader):
    """Loads templates from the user's folder, else of plugins, else the shipped ones.

    `orchestrator/NAME` is always a shipped one.
    """

    def __init__(
        self,
        templates_dir: pathlib.Path | None,
        shared_folders: Sequence[pathlib.Path],
        plugin_templates: Mapping[str, str],
    ) -> None:
        self._templates_dir = templates_dir
        self._plugin_templates = plugin_templates
        self._shared_folders = shared_folders
        #: text of each template that was used, by name
        self.texts: dict[str, str] = {}
        #: names of those that are the user's
        self.user_templates: set[str] = set()

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        parts = jinja2.loaders.split_template_path(template)
        users = self._templates_dir.joinpath(*parts) if self._templates_dir else None
        if parts[0] == "orchestrator":
            path = TEMPLATES.joinpath(*parts[1:])
        elif users is not None and users.exists():
            path = users
            self.user_templates.add(template)
            # A template is code that runs with the user's rights.
            exposure = files.exposure(path.absolute(), shared_folders=self._shared_folders)
            if exposure is not None:
                raise errors.TemplateError(exposure.refusal(path, "templates_dir"))
        elif template in self._plugin_templates:
            self.texts[template] = self._plugin_templates[template]
            return self.texts[template], f"{template} (plugin)", lambda: True
        else:
            path = TEMPLATES.joinpath(*parts)
        try:
            text = files.read_text(path, limit_bytes=_MAX_TEMPLATE_BYTES)
        except (OSError, UnicodeDecodeError) as exc:
            raise jinja2.TemplateNotFound(template, f"cannot read template {path}: {exc}") from exc
        self.texts[template] = text
        return text, str(path), lambda: True


class _CompiledTemplates(jinja2.BytecodeCache):
    """Compiled templates by name and content: a sweep renders many scripts, at 20 ms each."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], types.CodeType] = {}

    def load_bytecode(self, bucket: bccache.Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: bccache.Bucket) -> None:
        assert bucket.code is not None, "Jinja dumps what it has compiled"
        self._codes[bucket.key, bucket.checksum] = bucket.code


_COMPILED = _CompiledTemplates()
