"""docs/reference-python.md: the names of the Python API, from their docstrings.

`python -m tests.reference` writes the page.
"""

from __future__ import annotations

import inspect
import pathlib
from collections.abc import Iterator
from typing import Any

import orchestrator as orc
from orchestrator import errors, plugins

PAGE = pathlib.Path(__file__).parents[1] / "docs/reference-python.md"
_TITLE = """\
# Python reference

Written by `python -m tests.reference` from the code. How to use it: [python.md](howto/python.md), \
[plugins.md](howto/plugins.md)."""
#: The functions of the package, which are also methods of a session.
FUNCTIONS = ("submit", "render", "jobs", "job", "sweep")
CLASSES = ("Job", "Sweep", "Session", "Records")


def page() -> str:
    parts = [_TITLE, "## Functions\n\nEach is also a method of `Session`."]
    for name in FUNCTIONS:
        parts.append(_entry(f"orc.{name}", getattr(orc.api, name)))
    for name in CLASSES:
        parts += _class(f"orc.{name}", getattr(orc, name))
    parts.append("## Errors\n\nClasses of `orc.errors`.")
    parts.append("\n".join(_errors()))
    parts.append("## Plugins\n\nClasses of `orchestrator.plugins`.")
    parts += [_entry(f"plugins.{kind.__name__}", kind) for kind in plugin_kinds()]
    return "\n\n".join(parts) + "\n"


def plugin_kinds() -> list[type[plugins.Plugin]]:
    return plugins.Plugin.__subclasses__()


def members(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the public members that a class defines, in their order."""
    for name, member in vars(kind).items():
        if not name.startswith("_"):
            yield name, member


def _class(title: str, kind: type) -> Iterator[str]:
    yield f"## {title}\n\n{_text(kind)}"
    if kind is orc.Session:
        yield f"### {title}{_signature(kind)}\n\n{_text(kind.__init__)}"
    for name, member in members(kind):
        if kind is not orc.Session or name not in (*FUNCTIONS, "context"):
            yield _entry(f"{title}.{name}", member)


def _entry(title: str, member: Any) -> str:
    if isinstance(member, property):
        return f"### {title}\n\n{_text(member.fget)}"
    return f"### {title}{_signature(member)}\n\n{_text(member)}"


def _signature(member: Any) -> str:
    signature = inspect.signature(member)
    kept = [
        each.replace(annotation=inspect.Parameter.empty)
        for each in signature.parameters.values()
        if each.name != "self"
    ]
    return str(signature.replace(parameters=kept, return_annotation=inspect.Signature.empty))


def _text(member: Any) -> str:
    """Return a docstring, its sections as lists."""
    lines = (inspect.getdoc(member) or "").splitlines()
    text: list[str] = []
    in_section = False
    for line in lines:
        if line in ("Args:", "Raises:"):
            in_section = True
            text += [f"{line}", ""]
        elif in_section and line.startswith("    ") and not line.startswith("     "):
            name, _, rest = line.strip().partition(": ")
            text.append(f"- `{name}`: {rest}")
        elif in_section and line.startswith("     "):
            text[-1] += f" {line.strip()}"
        else:
            in_section = in_section and bool(line.strip() == "")
            text.append(line)
    return "\n".join(text)


def _errors() -> Iterator[str]:
    yield "| class | meaning |\n|---|---|"
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.OrchestratorError):
            yield f"| `{name}` | {(kind.__doc__ or '').splitlines()[0]} |"
