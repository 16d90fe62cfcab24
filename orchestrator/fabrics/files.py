"""Finds and reads fabrics: files of the user, of the site, and the shipped ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator import errors
from orchestrator.config import paths
from orchestrator.fabrics import records
from orchestrator.text import escaping
from orchestrator.toml import documents, key_paths, schema, values

_SHIPPED = Path(__file__).with_name("shipped")
_SUFFIX = ".toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
#: A variable, or nothing, before the rest of the path.
_BIND = re.compile(r"(?:\$([A-Za-z_][A-Za-z0-9_]*))?(.*)", re.DOTALL)
_PROBLEM_KEY = "environment.fabric"


def is_path(fabric: str) -> bool:
    """Return whether `environment.fabric` is the path of a file, not a name."""
    return "/" in fabric


def names(folders: Sequence[Path]) -> list[str]:
    """Return the names of the fabrics in the folders of user and site, and of the shipped ones."""
    found = {
        path.stem
        for folder in (*folders, _SHIPPED)
        for path in folder.glob(f"*{_SUFFIX}")
        if _NAME.fullmatch(path.stem)
    }
    return sorted(found)


def load(
    fabric: str, folders: Sequence[Path], shared_folders: Sequence[Path] = ()
) -> records.Fabric:
    """Return the fabric with this name, or in the file with this absolute path.

    folders: of the user and the site, the strongest first. shared_folders: that other users may
    change, accepted by the user.

    Raises SpecError if there is none, if other users can change its file, or if it is wrong.
    """
    if is_path(fabric):
        candidates = [Path(fabric)]
    else:
        candidates = [folder / f"{fabric}{_SUFFIX}" for folder in (*folders, _SHIPPED)]
    # Path.exists() raises an error for a long name.
    path = next((path for path in candidates if os.path.exists(path)), None)
    if path is None and is_path(fabric):
        raise _error(f"no such file: {schema.unquoted(fabric)}")
    if path is None or not (is_path(fabric) or _NAME.fullmatch(fabric)):
        known = names(folders)
        near = schema.did_you_mean(fabric, known)
        question = f' Did you mean "{near}"?' if near else ""
        listed = ", ".join(known)
        raise _error(f"no fabric {schema.as_toml(fabric)}.{question} Fabrics: {listed}")
    is_shipped = path.parent == _SHIPPED
    if not is_shipped:
        # Variables such as LD_PRELOAD run code.
        exposure = paths.exposure(path.absolute(), shared_folders)
        if exposure is not None:
            cure = exposure.cure or "use a file of your own"
            raise _error(
                f"{escaping.visible(str(path))} is not used: {exposure}, so others could change "
                f"what your jobs run. {cure[:1].upper()}{cure[1:]}"
            )
    _, document, problems = documents.read(path)
    record, wrong = schema.build(document, records.File)
    wrong |= dict(documents.forbidden_characters(document))
    for at, message in _findings(record):
        wrong.setdefault(at, message)
    problems += [document.problem(at, message) for at, message in wrong.items()]
    if problems:
        raise errors.SpecError(problems)
    origin = "shipped" if is_shipped else str(path)
    return records.Fabric(**vars(record), name=path.stem, origin=origin)


def variable_and_rest(bind: str) -> tuple[str, str]:
    """Return the variable at the beginning of a bind, or "", and what follows it."""
    match = _BIND.fullmatch(bind)
    assert match is not None, "both parts may be empty"
    return match[1] or "", match[2]


def host_path(folder: str, binds: Sequence[records.Line]) -> str | None:
    """Return the host's path of a folder in the container; it may begin with a variable."""
    for bind in binds:
        source, _, rest = bind.value.partition(":")
        target = rest.partition(":")[0] or source
        if folder == target or folder.startswith(f"{target}/"):
            return source + folder.removeprefix(target)
    return None


def _error(message: str) -> errors.SpecError:
    problem = errors.Problem(source="", key=_PROBLEM_KEY, message=message)
    return errors.SpecError([problem])


def _findings(fabric: records.File) -> Iterator[tuple[key_paths.KeyPath, str]]:
    for name, line in fabric.variables.items():
        if error := values.variable_name_error(name):
            yield ("variables", name), error
        elif not line.value:
            yield ("variables", name, "value"), "is missing"
    for index, line in enumerate(fabric.containers.binds):
        variable, rest = variable_and_rest(line.value)
        # A variable stands for an absolute path.
        bind = f"/variable{rest}" if variable else rest
        if not values.is_bind(bind) or (variable and ":" not in rest):
            message = (
                'must be "/host/path" or "/host/path:/path/inside", optionally followed by ":ro"; '
                'with both parts it may begin with a variable: "$EBROOTNCCL/lib:/opt/nccl"'
            )
            yield ("containers", "binds", index, "value"), message
    for index, folder in enumerate(fabric.containers.library_path):
        if not folder.value.startswith("/") or ":" in folder.value:
            message = f"must be one absolute path (got {schema.as_toml(folder.value)})"
            yield ("containers", "library_path", index, "value"), message
    for name in fabric.libraries:
        if "/" in name or not name:
            yield ("libraries", name), 'must be the name of a file, such as "libnccl-net.so"'
