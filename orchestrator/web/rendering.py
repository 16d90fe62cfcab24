"""Pages from templates, and the files that pages load."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import hashlib
import mimetypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe

from orchestrator.rows import row_values
from orchestrator.text import escaping

_TEMPLATES, _STATIC = (Path(__file__).parent / name for name in ("templates", "static"))
#: How a state is shown; every page also has its word.
_KINDS = {
    **dict.fromkeys(("RUNNING", "COMPLETING", "CONFIGURING", "STAGE_OUT"), "running"),
    **dict.fromkeys(("PENDING", "SUBMITTING", "SUSPENDED", "NOT_SUBMITTED"), "waiting"),
    "COMPLETED": "completed",
    **dict.fromkeys(("CANCELLED", "PREEMPTED", "REVOKED"), "stopped"),
    **dict.fromkeys(("SUBMIT_UNKNOWN", "UNKNOWN"), "unknown"),
}


def state_kind(state: str) -> str:
    """Return the class of a state in style.css; failures are all that is not listed."""
    return _KINDS.get(state, "failed")


@dataclasses.dataclass(frozen=True, kw_only=True)
class StaticFile:
    content: bytes
    media_type: str


@functools.cache
def static_files() -> Mapping[str, StaticFile]:
    """Return the files that pages load, by name."""
    return {path.name: _static_file(path) for path in sorted(_STATIC.iterdir())}


def _static_file(path: Path) -> StaticFile:
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    if path.suffix == ".js":
        # The system's table may have another type, which browsers refuse for modules.
        media_type = "text/javascript"
    return StaticFile(content=_shipped(path), media_type=media_type)


@functools.cache
def version() -> str:
    """Return a digest of templates and files, which changes with each upgrade."""
    digest = hashlib.sha256()
    for path in sorted([*_TEMPLATES.iterdir(), *_STATIC.iterdir()]):
        digest.update(path.name.encode() + b"\0" + _shipped(path))
    return digest.hexdigest()[:12]


def _shipped(path: Path) -> bytes:
    return path.read_bytes()


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        finalize=_shown,
    )
    environment.filters.update(
        time=time_element,
        elapsed=row_values.elapsed,
        number=row_values.number,
        kind=state_kind,
    )
    environment.tests["time_value"] = lambda value: isinstance(value, datetime.datetime)
    environment.globals.update(version=version())
    return environment


def _shown(value: Any) -> Any:
    """Return what a template prints: control and reordering characters become visible."""
    if value is None:
        return ""
    return escaping.lines(value) if type(value) is str else value


def time_element(at: datetime.datetime | None) -> markupsafe.Markup:
    """Return a <time>: in UTC, until app.js shows it in the viewer's zone."""
    if at is None:
        return markupsafe.Markup("")
    utc = at.astimezone(datetime.UTC)
    stamp, text = f"{utc:%Y-%m-%dT%H:%M:%S}Z", f"{utc:%Y-%m-%d %H:%M:%S} UTC"
    return markupsafe.Markup('<time datetime="{}">{}</time>').format(stamp, text)


def render(template: str, **values: Any) -> str:
    """Return the text of a template; values are escaped unless they are Markup."""
    return _environment().get_template(template).render(values)
