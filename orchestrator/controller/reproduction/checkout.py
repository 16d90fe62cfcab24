"""The code of a job in a folder, and the commands that run it again."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any

from orchestrator import errors, jobs, reproduction
from orchestrator.controller.code import store as stores
from orchestrator.controller.reproduction import stored_specs
from orchestrator.controller.session import contexts
from orchestrator.specs import sbatch_options, writing
from orchestrator.text import escaping
from orchestrator.toml import schema


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedOut:
    #: number of files, and their size
    summary: str
    #: the spec; None: the job has a batch file, which is in the folder
    spec_file: Path | None
    #: that run it again
    commands: tuple[str, ...]
    #: sentences on what may differ
    notes: tuple[str, ...] = ()


def checkout(
    context: contexts.Context, stored: stored_specs.StoredSpec, folder: Path
) -> CheckedOut:
    """Write the snapshot of a job into a new or empty folder, and its spec beside it.

    Raises NotFoundError if the job has no snapshot or it is no longer stored, SnapshotError.
    """
    folder = Path(os.path.abspath(context.folder / folder))
    if (shown := escaping.visible(str(folder))) != str(folder):
        raise stores.SnapshotError(f"{shown}: its name is not printable: name another folder")
    code = stored.spec.code
    if code.tree is None:
        raise errors.NotFoundError(_without_snapshot(stored, folder))
    store = stores.of(context)
    if not store.has(code.tree):
        raise errors.NotFoundError(f"the snapshot of {stored.name} is no longer stored")
    at = folder / (code.folder or ".")
    if stored.spec.launch.batch_file is not None:
        spec_file, text = None, ""
        commands, notes = _batch_commands(stored, folder, at)
    else:
        spec_file = folder.with_name(f"{folder.name}.toml")
        commands = (f"cd {_word(at)}", f"orchestrator submit {_word(spec_file)}")
        document = writing.of_spec(_moved(context, stored, folder), stored.name)
        text = writing.text(document, commands, f"job {escaping.visible(stored.name)}")
        notes = ()
        if os.path.lexists(spec_file):
            name = escaping.visible(str(spec_file))
            raise stores.SnapshotError(f"{name}, the file for the spec, exists: name a new folder")
    store.extract(code.tree, folder)
    if spec_file is not None:
        try:
            with spec_file.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise stores.SnapshotError(f"cannot write {spec_file}: {error.strerror}") from error
    if stored.is_part:
        resubmit = shlex.join(["orchestrator", "resubmit", stored.name])
        notes += (f"This submits the whole array; `{resubmit}` runs only {stored.name}.",)
    return CheckedOut(
        summary=store.summary(code.tree), spec_file=spec_file, commands=commands, notes=notes
    )


def _word(path: Path) -> str:
    return shlex.quote(os.path.normpath(path))


def _moved(
    context: contexts.Context, stored: stored_specs.StoredSpec, folder: Path
) -> jobs.JobSpec:
    """Return the spec of a job that starts in the folder and imports from it."""
    spec, start = stored.spec, stored_specs.working_folder(stored)
    environment = spec.environment
    if spec.code.python_paths:
        variables = environment.variables or {}
        later = variables.get("PYTHONPATH")
        if later is None and environment.export == "all":
            later = context.environ.get("PYTHONPATH")
        paths = [os.path.normpath(folder / path) for path in spec.code.python_paths]
        joined = os.pathsep.join([*paths, *([later] if later else [])])
        environment = dataclasses.replace(
            environment, variables={**variables, "PYTHONPATH": joined}
        )
    return dataclasses.replace(
        spec,
        chdir=None,
        dependency=None,
        code=jobs.Code(),
        environment=environment,
        # Folders for logs are often ignored by git, and not in the copy.
        output=None if spec.output is None else str(start / spec.output),
        error=None if spec.error is None else str(start / spec.error),
    )


def _batch_commands(
    stored: stored_specs.StoredSpec, folder: Path, at: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands that submit a batch file, and what may differ."""
    spec, notes = stored.spec, []
    file = Path(str(spec.launch.batch_file))
    root = Path(str(spec.code.root))
    shown = str(file)
    resolved = Path(os.path.realpath(file))
    if resolved.is_relative_to(root):
        shown = os.path.relpath(folder / resolved.relative_to(root), at)
    else:
        notes.append(
            f"{file} is outside of the snapshot and may have changed since: "
            f"`orchestrator show {stored.name} --script` prints the script that ran."
        )
    words = ["orchestrator", "submit", shown if "/" in shown else f"./{shown}"]
    for name, value in spec.sbatch.items():
        key = sbatch_options.OWN_KEYS.get(name, f"sbatch.{name}")
        if name not in ("dependency", "chdir", *sbatch_options.REFUSED):
            text = schema.as_toml(value) if isinstance(value, bool) else str(value)
            words += ["--set", f"{key}={text}"]
    words += ["--", *spec.launch.program] if spec.launch.program else []
    return (f"cd {_word(at)}", shlex.join(words)), tuple(notes)


def _without_snapshot(stored: stored_specs.StoredSpec, folder: Path) -> str:
    provenance: dict[str, Any] = stored.provenance
    version = reproduction.CodeVersion.of(stored.spec.code, provenance)
    if version.commit is None:
        return (
            f"{stored.name} has no snapshot, and git knows no commit of {stored.folder}: its code "
            "is not recorded. `orchestrator submit --snapshot` records it."
        )
    start = shlex.quote(str(stored.folder))
    lines = [
        f"{stored.name} has no snapshot: it ran what was in {stored.folder}, {version.text}.",
        "These commands restore its tracked files and run them:",
        f"  git -C {start} worktree add --detach {_word(folder)} {shlex.quote(version.commit)}",
    ]
    if version.diff:
        lines.append(f"  orchestrator show {stored.name} --diff | git -C {_word(folder)} apply")
    lines.append(f"  orchestrator submit --like {stored.name} --chdir {_word(folder)}")
    return "\n".join(lines)
