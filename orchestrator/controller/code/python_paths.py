"""Folders from which the job's Python would import the original code instead of the snapshot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

from orchestrator import files, jobs
from orchestrator.code import imports
from orchestrator.specs import programs

#: A finder of setuptools lists each package.
_FILE_BYTES = 4 * 1024 * 1024
_SITE_PACKAGES = ("lib*/python3*/site-packages", "lib/python3*/dist-packages")


def inside(spec: jobs.JobSpec, environ: Mapping[str, str], folder: Path, root: Path) -> list[str]:
    """Return the folders of the copy that have to come first on PYTHONPATH, relative to `root`.

    They are on PYTHONPATH, or editable installs in the job's Python environment. Python is not
    started. folder: the job's working directory. root: without symbolic links.
    """
    paths = [*_python_path(spec, environ)]
    if spec.container.runtime == "none":
        for site_packages in _site_packages(spec, environ, folder):
            paths += _editable(site_packages)
    return imports.inside((os.path.realpath(path) for path in paths), str(root))


def _python_path(spec: jobs.JobSpec, environ: Mapping[str, str]) -> Iterator[str]:
    texts = [(spec.environment.variables or {}).get("PYTHONPATH", "")]
    if spec.environment.export == "all":
        texts.append(environ.get("PYTHONPATH", ""))
    for text in texts:
        # Relative folders are those of the copy anyway.
        yield from (path for path in text.split(os.pathsep) if os.path.isabs(path))


def _site_packages(spec: jobs.JobSpec, environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    for prefix in _prefixes(spec, environ, folder):
        for pattern in _SITE_PACKAGES:
            yield from sorted(prefix.glob(pattern))


def _prefixes(spec: jobs.JobSpec, environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    """Yield the folders of the Python environment that the job uses."""
    program = programs.python_program(spec.launch)
    venv, conda = spec.environment.venv, spec.environment.conda
    if program is not None and "/" in (program.interpreter or ""):
        python: Path | None = folder / (program.interpreter or "")
    elif venv is not None:
        yield folder / venv
        return
    elif conda is not None:
        yield from _conda_prefixes(conda, environ, folder)
        return
    else:
        found = shutil.which("python3", path=environ.get("PATH", os.defpath))
        python = None if found is None else folder / found
    if python is None:
        return
    yield python.parent.parent
    if not (python.parent.parent / "pyvenv.cfg").exists():
        yield Path(os.path.realpath(python)).parent.parent
        yield Path("/usr/local")
        yield Path(environ.get("HOME") or "/nonexistent", ".local")


def _conda_prefixes(conda: str, environ: Mapping[str, str], folder: Path) -> Iterator[Path]:
    if "/" in conda:
        yield folder / conda
        return
    home = Path(environ.get("HOME") or "/nonexistent")
    bases = [home / ".conda"]
    if executable := environ.get("CONDA_EXE"):
        bases.append(Path(executable).parent.parent)
    bases += [Path(path) for path in environ.get("CONDA_ENVS_PATH", "").split(":") if path]
    for base in bases:
        yield base / "envs" / conda
        yield base / conda


def _editable(site_packages: Path) -> Iterator[str]:
    """Yield the folders from which editable installs are imported."""
    located: set[str] = set()
    for path in sorted(site_packages.glob("*.pth")):
        located.update(imports.of_pth(_text(path)))
    for path in sorted(site_packages.glob("__editable__*.py")):
        located.update(imports.of_finder(_text(path)))
    yield from sorted(located)
    for path in sorted(site_packages.glob("*.dist-info/direct_url.json")):
        project = imports.of_direct_url(_text(path))
        # Other build tools have finders of their own: the project's layout tells.
        if project is not None and not any(imports.inside(located, project)):
            sources = os.path.join(project, "src")
            yield sources if os.path.isdir(sources) else project


def _text(path: Path) -> str:
    try:
        return files.read_text(path, limit_bytes=_FILE_BYTES, errors="replace")
    except OSError:
        return ""
