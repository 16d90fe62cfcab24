"""Where configuration files may be, and the paths within them."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Mapping
from pathlib import Path

from orchestrator import documents, errors, shapes

PROJECT_FILE = "orchestrator.toml"
FILE = Path("orchestrator", "config.toml")
#: Keys that are folders.
PATHS = ("state_dir", "runs_dir", "templates_dir")

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def candidates(environ: Mapping[str, str], cwd: Path) -> list[Path]:
    """Return where configuration files may be, the weakest first: site, user, project."""
    # XDG base directories: a path that is not absolute counts as unset.
    site = [text for text in environ.get("XDG_CONFIG_DIRS", "").split(":") if text.startswith("/")]
    paths = [Path(text) / FILE for text in reversed(site or ["/etc/xdg"])]
    paths.append(xdg(environ, "XDG_CONFIG_HOME", ".config") / FILE)
    # Upwards to the git root only: another user's file in /tmp must not rule ours.
    folders = [cwd, *cwd.parents]
    root = next((place for place, path in enumerate(folders) if os.path.exists(path / ".git")), 0)
    project = (folder / PROJECT_FILE for folder in folders[: root + 1])
    return [*paths, *[path for path in project if os.path.lexists(path)][:1]]


def home(environ: Mapping[str, str]) -> Path:
    """Return the home folder."""
    folder = environ.get("HOME", "")
    return Path(folder if folder.startswith("/") else pwd.getpwuid(os.getuid()).pw_dir)


def xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the XDG base directories; `default` is below the home folder."""
    folder = environ.get(variable, "")
    return Path(folder) if folder.startswith("/") else home(environ) / default


def with_whole_paths(
    document: documents.Document, base: Path, environ: Mapping[str, str]
) -> tuple[documents.Document, list[errors.Problem]]:
    """Return the document with its paths absolute, seen from the file's own folder."""
    problems = []
    for key in PATHS:
        text = document.data.get(key)
        if not isinstance(text, str):
            continue
        missing = [name for name in _references(text) if not environ.get(name)]
        if not text or (text.startswith("~") and text[1:2] not in ("", "/")):
            problems.append(document.problem((key,), f"not a folder (got {shapes.shown(text)})"))
        elif missing:
            problems.append(document.problem((key,), f"${missing[0]} is not set here"))
        else:
            whole = _REFERENCE.sub(lambda found: environ[found[1] or found[2]], text)
            if whole.startswith("~"):
                whole = str(home(environ)) + whole[1:]
            path = os.path.normpath(base / whole)
            leaf = documents.leaf((key,), path, document.origin((key,)))
            document = documents.merge(document, leaf)
    return document, problems


def _references(text: str) -> list[str]:
    return [found[1] or found[2] for found in _REFERENCE.finditer(text)]
