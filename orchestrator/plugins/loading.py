"""Find and load plugins by their names."""

from __future__ import annotations

import contextlib
import functools
import re
import sys
from collections.abc import Collection
from importlib import metadata
from typing import TypeVar

from orchestrator import errors
from orchestrator.plugins import records
from orchestrator.text import escaping
from orchestrator.toml import schema

_Kind = TypeVar("_Kind", bound=records.Plugin)


#: A launcher's template is a file of this name.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


class PluginError(errors.OrchestratorError):
    """A plugin cannot be used."""

    exit_code = 3


def installed(kind: type[records.Plugin]) -> list[str]:
    """Return the names of the installed plugins of a kind; nothing is imported."""
    return sorted(metadata.entry_points(group=kind.group).names)


def load(kind: type[_Kind], name: str) -> _Kind:
    """Return the plugin with this name; no other one is imported.

    Raises PluginError if there is none, if two packages offer it, if its name is a path, or if it
    cannot be imported.
    """
    entry_point = _entry_point(kind.group, name)
    if entry_point is None:
        raise PluginError(unknown(kind, name))
    shown = f"{kind.noun} {escaping.visible(name)!r} of {_distribution(entry_point)}"
    if not _NAME.fullmatch(name):
        raise PluginError(
            f"the {shown} has a name with other characters than letters, digits, . _ -"
        )
    try:
        # Scripts read the data of a command from stdout.
        with contextlib.redirect_stdout(sys.stderr):
            plugin = entry_point.load()
    except (Exception, SystemExit) as error:
        # sys.exit(0) would look like a command that has done its work.
        raise PluginError(
            f"the {shown} cannot be imported: {type(error).__name__}: "
            f"{escaping.visible(str(error))}. Repair or uninstall that package"
        ) from error
    if not isinstance(plugin, kind):
        raise PluginError(
            f"the {shown} is a {type(plugin).__name__}, not a plugins.{kind.__name__}: its "
            f"entry point {entry_point.value} is wrong"
        )
    return plugin


@functools.cache
def _entry_point(group: str, name: str) -> metadata.EntryPoint | None:
    # Cached: it reads the list of all installed packages.
    found = list(metadata.entry_points(group=group, name=name))
    owners = sorted({_distribution(each) for each in found})
    if len(owners) > 1:
        raise PluginError(
            f"{' and '.join(owners)} have an entry point {escaping.visible(name)!r} of {group} "
            "each: uninstall one of them"
        )
    return found[0] if found else None


def unknown(kind: type[records.Plugin], name: str, built_in: Collection[str] = ()) -> str:
    """Return the message that there is no plugin with this name, and what there is."""
    names = installed(kind)
    near = schema.did_you_mean(name, [*built_in, *names])
    question = f' Did you mean "{near}"?' if near else ""
    listed = ", ".join(names) or "none"
    return f"no {kind.noun} {schema.as_toml(name)}.{question} Installed plugins: {listed}"


def _distribution(entry_point: metadata.EntryPoint) -> str:
    owner = entry_point.dist
    return "an unknown package" if owner is None else f"{owner.name} {owner.version}"
