"""Where configuration files may be, and the paths within them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import errors, files
from orchestrator.files import users
from orchestrator.text import escaping
from orchestrator.toml import documents, schema

PROJECT_FILE = "orchestrator.toml"
FILE = Path("orchestrator", "config.toml")
#: Keys that are folders.
PATHS = ("state_dir", "runs_dir", "templates_dir")
#: Keys that are lists of folders, and of files.
FOLDER_LISTS = ("shared_folders",)
FILES = ("pattern_files",)

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def user_file(environ: Mapping[str, str]) -> Path:
    """Return where the user's configuration file is."""
    return xdg(environ, "XDG_CONFIG_HOME", ".config") / FILE


def site_files(environ: Mapping[str, str]) -> list[Path]:
    """Return where the site's configuration files may be, the strongest first."""
    # XDG base directories: a path that is not absolute counts as unset.
    site = [text for text in environ.get("XDG_CONFIG_DIRS", "").split(":") if text.startswith("/")]
    return [Path(text) / FILE for text in site or ["/etc/xdg"]]


def project_file(cwd: Path) -> Path | None:
    """Return the nearest project's file, from `cwd` upwards to the git root; None without one."""
    # The folder's real path: trust is recorded for it, and relative paths start there.
    here = Path(os.path.realpath(cwd))
    folders = [here, *here.parents]
    root = next((place for place, path in enumerate(folders) if os.path.exists(path / ".git")), 0)
    project = (folder / PROJECT_FILE for folder in folders[: root + 1])
    return next((path for path in project if os.path.lexists(path)), None)


def exposed(path: Path, shared_folders: Sequence[Path]) -> files.Exposure | None:
    """Return how others can change what a file says; None where they cannot."""
    try:
        return files.exposure(path, shared_folders=shared_folders)
    except OSError as exc:
        return files.Exposure(path=path, reason=f"cannot be examined ({exc.strerror})")


def not_safe(
    path: Path, shared_folders: Sequence[Path], environ: Mapping[str, str]
) -> errors.Problem | None:
    """Return what is wrong with a file of the user or the site that others can change.

    Leaving the file out would change where state lies, and so is no answer.
    """
    found = exposed(path, shared_folders)
    if found is None:
        return None
    cure = found.cure or "ask its owner to take that right away"
    message = f"not safe to read: {found}. {cure[0].upper()}{cure[1:]}"
    if "shared_folders" in cure:
        is_users = path == user_file(environ)
        message += "; for this file itself only" if is_users else ", or by"
        message += " the variable ORCHESTRATOR_SHARED_FOLDERS"
        message += " does so" if is_users else ""
    return errors.Problem(source=escaping.visible(str(path)), message=message)


def home(environ: Mapping[str, str]) -> Path:
    """Return the home folder."""
    folder = environ.get("HOME", "")
    return Path(folder if folder.startswith("/") else users.home_folder())


def xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the XDG base directories; `default` is below the home folder."""
    folder = environ.get(variable, "")
    return Path(folder) if folder.startswith("/") else home(environ) / default


def with_whole_paths(
    document: documents.Document, base: Path, environ: Mapping[str, str]
) -> tuple[documents.Document, list[errors.Problem]]:
    """Return the document with its paths absolute, seen from the file's own folder."""
    problems = []
    for key in (*PATHS, *FOLDER_LISTS, *FILES):
        given = document.data.get(key)
        if isinstance(given, list) is (key in PATHS):
            continue
        paths: list[str] = []
        for text in given if isinstance(given, list) else [given]:
            if not isinstance(text, str):
                break
            path, told = _whole(text, base, environ, "file" if key in FILES else "folder")
            if told:
                problems.append(document.problem((key,), told))
            paths.append(path)
        else:
            value = paths[0] if key in PATHS else paths
            leaf = documents.leaf((key,), value, document.origin((key,)))
            document = documents.merge(document, leaf)
    return document, problems


def _whole(text: str, base: Path, environ: Mapping[str, str], kind: str) -> tuple[str, str]:
    """Return the absolute path, and what is wrong with it where something is."""
    missing = [name for name in _references(text) if not environ.get(name)]
    if not text or (text.startswith("~") and text[1:2] not in ("", "/")):
        return text, f"not a {kind} (got {schema.as_toml(text)})"
    if missing:
        return text, f"${missing[0]} is not set here"
    whole = _REFERENCE.sub(lambda found: environ[found[1] or found[2]], text)
    if whole.startswith("~"):
        whole = str(home(environ)) + whole[1:]
    return os.path.normpath(base / whole), ""


def _references(text: str) -> list[str]:
    return [found[1] or found[2] for found in _REFERENCE.finditer(text)]
