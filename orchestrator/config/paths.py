"""Paths of configuration files, and paths written in them."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator import errors, files
from orchestrator.text import escaping
from orchestrator.toml import documents, schema

PROJECT_FILE = "orchestrator.toml"
_FILE = Path("orchestrator", "config.toml")
#: Keys whose value is a folder, a list of folders, a file, and a list of files.
FOLDERS = ("state_dir", "runs_dir", "templates_dir")
FOLDER_LISTS = ("shared_folders",)
FILES = ("metrics_file",)
FILE_LISTS = ("pattern_files",)

_REFERENCE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")


def user_file(environ: Mapping[str, str]) -> Path:
    return xdg(environ, "XDG_CONFIG_HOME", ".config") / _FILE


def site_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the paths of the site's configuration files, the strongest first."""
    # XDG base directories: a relative path counts as unset.
    folders = [text for text in environ.get("XDG_CONFIG_DIRS", "").split(":") if text[:1] == "/"]
    return [Path(text) / _FILE for text in folders or ["/etc/xdg"]]


def fabric_folders(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the folders of fabrics, beside the configuration files of user and site."""
    return tuple(path.with_name("fabrics") for path in (user_file(environ), *site_files(environ)))


def project_file(cwd: Path) -> Path | None:
    """Return the nearest project's file, from `cwd` upwards to the git root; None without one."""
    # The real path: trust is recorded for it, and relative paths start there.
    real = Path(os.path.realpath(cwd))
    folders = [real, *real.parents]
    root = next((n for n, folder in enumerate(folders) if os.path.exists(folder / ".git")), 0)
    candidates = (folder / PROJECT_FILE for folder in folders[: root + 1])
    return next((path for path in candidates if os.path.lexists(path)), None)


def exposure(path: Path, shared_folders: Sequence[Path]) -> files.Exposure | None:
    """Return how other users can change a file; None if they cannot."""
    try:
        return files.exposure(path, shared_folders=shared_folders)
    except OSError as exc:
        return files.Exposure(path=path, reason=f"cannot be examined ({exc.strerror})")


def exposure_problem(
    path: Path, shared_folders: Sequence[Path], environ: Mapping[str, str]
) -> errors.Problem | None:
    """Return the problem of a user's or site's file that other users can change.

    Ignoring the file would change where the state is.
    """
    exposed = exposure(path, shared_folders)
    if exposed is None:
        return None
    cure = exposed.cure or "ask its owner to remove that permission"
    message = f"not safe to read: {exposed}. {cure[0].upper()}{cure[1:]}"
    if "shared_folders" in cure and path == user_file(environ):
        message += "; for this file, set the variable ORCHESTRATOR_SHARED_FOLDERS instead"
    elif "shared_folders" in cure:
        message += ", or with the variable ORCHESTRATOR_SHARED_FOLDERS"
    return errors.Problem(source=escaping.visible(str(path)), message=message)


def home(environ: Mapping[str, str]) -> Path:
    folder = environ.get("HOME", "")
    return Path(folder if folder.startswith("/") else files.home_folder())


def xdg(environ: Mapping[str, str], variable: str, default: str) -> Path:
    """Return a folder of the XDG base directories; `default` is relative to the home folder."""
    folder = environ.get(variable, "")
    return Path(folder) if folder.startswith("/") else home(environ) / default


def with_absolute_paths(
    document: documents.Document, base: Path, environ: Mapping[str, str]
) -> tuple[documents.Document, list[errors.Problem]]:
    """Return the document with absolute paths; relative ones start in the file's folder `base`."""
    problems = []
    for key in (*FOLDERS, *FOLDER_LISTS, *FILES, *FILE_LISTS):
        value = document.data.get(key)
        is_single = key in FOLDERS or key in FILES
        texts = [value] if is_single else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            continue
        paths: list[str] = []
        for text in texts:
            kind = "file" if key in FILES or key in FILE_LISTS else "folder"
            path, error = _absolute(text, base, environ, kind)
            if error:
                problems.append(document.problem((key,), error))
            paths.append(path)
        new = paths[0] if is_single else paths
        document = documents.with_value(document, (key,), new, document.origin((key,)))
    return document, problems


def _absolute(text: str, base: Path, environ: Mapping[str, str], kind: str) -> tuple[str, str]:
    """Return the absolute path, and what is wrong with it or ""."""
    names = [match[1] or match[2] for match in _REFERENCE.finditer(text)]
    missing = [name for name in names if not environ.get(name)]
    if not text or (text.startswith("~") and text[1:2] not in ("", "/")):
        return text, f"not a {kind} (got {schema.as_toml(text)})"
    if missing:
        return text, f"${missing[0]} is not set here"
    expanded = _REFERENCE.sub(lambda match: environ[match[1] or match[2]], text)
    if expanded.startswith("~"):
        expanded = str(home(environ)) + expanded[1:]
    return os.path.normpath(base / expanded), ""
