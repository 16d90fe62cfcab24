"""The options that describe a job: a spec file, --set, and an option for each key of the spec."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from orchestrator import config, errors, jobs, specs
from orchestrator.cli import output
from orchestrator.controller.submission import job_scripts
from orchestrator.text import escaping
from orchestrator.toml import documents, schema

if typing.TYPE_CHECKING:
    from orchestrator import sweeps
    from orchestrator.controller.reproduction import stored_specs


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobOptions:
    """What the command line says about a job."""

    #: The spec or batch file, and the program after `--`.
    words: list[str]
    #: Of --set.
    settings: tuple[str, ...]
    #: Key of the spec -> value.
    flags: Mapping[str, object]

    @property
    def batch_file(self) -> Path | None:
        if not self.words or self.words == _program() or self.words[0].endswith(".toml"):
            return None
        from orchestrator.rendering import batch_file

        path = Path(self.words[0])
        return path if batch_file.is_batch_file(path) else None

    def with_snapshot(self, snapshot: bool | None) -> JobOptions:
        """Return the options with --snapshot or --no-snapshot; None: neither is given."""
        if snapshot is None:
            return self
        return dataclasses.replace(self, flags={**self.flags, "code.snapshot": snapshot})


class _JobDeclaration:
    """SPEC, --set, the options of specs.FLAGS and `-- COMMAND`."""

    def parameters(self, name: str) -> list[click.Parameter]:
        words = "[SCRIPT | SPEC] [-- COMMAND...]"
        settings = click.Option(
            ["--set", "settings"],
            multiple=True,
            metavar="KEY=VALUE",
            help="Set a key of the spec: --set resources.nodes=2. Can be repeated.",
        )
        argument = click.Argument(["words"], nargs=-1, metavar=words)
        return [argument, settings, *map(_flag_option, specs.FLAGS)]

    def value(self, name: str, values: Mapping[str, Any]) -> JobOptions:
        flags = {flag.key: values[flag.parameter] for flag in specs.FLAGS}
        return JobOptions(
            words=list(values["words"]),
            settings=values["settings"],
            flags={key: value for key, value in flags.items() if value not in (None, ())},
        )


#: The declaration of a parameter that is a JobOptions.
job: Any = _JobDeclaration()


def _flag_option(flag: specs.Flag) -> click.Option:
    names, kind = [f"--{name}" for name in flag.names], flag.kind
    type_: Any = {int: click.INT, bool: None}.get(kind, click.STRING)
    if kind is bool:
        names = [f"--{flag.names[0]}/--no-{flag.names[0]}"]
    elif schema.is_choice(kind):
        type_ = click.Choice(typing.get_args(kind))
    multiple = typing.get_origin(kind) in (tuple, Mapping)
    return click.Option(
        [*names, flag.parameter],
        type=type_,
        default=None,
        multiple=multiple,
        metavar=flag.metavar,
        help=f"{flag.help} Can be repeated." if multiple else flag.help,
    )


def request(job: JobOptions, configuration: config.Configuration) -> job_scripts.Request:
    """Return the job that the options describe. Raises SpecError with all problems."""
    if job.batch_file is not None:
        return _batch_request(job.batch_file, job, configuration)
    path, program = _split(job.words)
    if path is None and not job.flags and not job.settings and not program:
        raise click.UsageError(
            "name a script or a spec: orchestrator submit train.py, orchestrator submit job.toml"
        )
    spec = specs.load(path, job.settings, job.flags, program, environ=os.environ)
    if path is None and job.words[: len(job.words) - len(_program())]:
        _check_script(Path(job.words[0]), spec.chdir)
    return job_scripts.Request(
        spec=config.with_profile(spec, configuration.profile),
        source=str(path) if path else shlex.join(["flags", *program]),
        argv=sys.argv,
    )


def request_like(
    job: JobOptions,
    stored: stored_specs.StoredSpec,
    configuration: config.Configuration,
    *,
    snapshot: bool | None,
) -> job_scripts.Request:
    """Return a job like a stored one, changed by the options; it has the same snapshot, if any.

    snapshot: --snapshot or --no-snapshot. Raises SpecError with all problems.
    """
    from orchestrator.specs import writing

    program = _program()
    if words := job.words[: len(job.words) - len(program)]:
        raise click.UsageError(
            f"--like runs the program of {stored.name}: remove {shlex.join(words)}, or write "
            "arguments after `--`"
        )
    if stored.spec.dependency is not None:
        output.note(
            f"Without the dependency of {stored.name}: --dependency {stored.spec.dependency}"
        )
    old = dataclasses.replace(stored.spec, dependency=None)
    job = dataclasses.replace(job.with_snapshot(snapshot), words=program)
    if (chdir := job.flags.get("job.chdir")) is not None:
        # In `request` the current folder is the one of the submission.
        job = dataclasses.replace(
            job, flags={**job.flags, "job.chdir": os.path.abspath(str(chdir))}
        )
    elif not stored.folder.is_dir() and old.code.tree is not None:
        old = dataclasses.replace(old, chdir=None)
    document = writing.of_spec(old, f"job {stored.name}")
    try:
        document = writing.with_more_arguments(document, program)
    except writing.ArgumentsError as error:
        raise click.UsageError(f"-- {shlex.join(program)}: {error}") from error
    if old.launch.batch_file is not None:
        spec = _batch_spec_like(job, stored, document, configuration)
    else:
        folder = stored.folder if stored.folder.is_dir() else None
        spec = specs.load(
            None, job.settings, job.flags, environ=os.environ, folder=folder, stored=document
        )
        spec = config.with_profile(spec, configuration.profile)
    if old.code.tree is not None and spec.code.snapshot and not snapshot:
        kept = {name: getattr(old.code, name) for name in jobs.SET_BY_US}
        spec = dataclasses.replace(spec, code=dataclasses.replace(spec.code, **kept))
    return job_scripts.Request(spec=spec, source=stored.source, argv=sys.argv)


def _batch_spec_like(
    job: JobOptions,
    stored: stored_specs.StoredSpec,
    document: documents.Document,
    configuration: config.Configuration,
) -> jobs.JobSpec:
    from orchestrator.rendering import batch_file
    from orchestrator.specs import sbatch_options

    path = Path(str(stored.spec.launch.batch_file))
    try:
        batch = batch_file.read(path, runs_dir=configuration.runs_dir)
    except errors.SpecError:
        batch = None
    if batch is None or batch.text.removesuffix("\n") not in stored.script:
        what = "has changed since" if path.exists() else "does not exist any more, but did when"
        raise errors.ConflictError(
            f"{path} {what} {stored.name} was submitted: `orchestrator resubmit {stored.name}` "
            f"runs the script as it was, `orchestrator submit {shlex.quote(str(path))}` as it is"
        )
    spec = specs.load(
        None,
        job.settings,
        job.flags,
        environ=os.environ,
        batch=batch.document,
        stored=documents.without(document, ("sbatch",)),
    )
    spec = config.with_profile(spec, configuration.profile)
    given = specs.keys_given(job.settings, job.flags, os.environ)
    new = batch_file.command_line(batch, spec, given, configuration.profile)
    # A key that another one has replaced, as mem_per_cpu replaces mem, is not set any more.
    unset = {f"resources.{key}" for key, value in vars(spec.resources).items() if value is None}
    kept = {
        name: value
        for name, value in stored.spec.sbatch.items()
        if name != "dependency" and sbatch_options.OWN_KEYS.get(name) not in unset
    }
    return dataclasses.replace(spec, sbatch={**kept, **new})


def save(job: JobOptions, path: Path) -> None:
    """Write the job that the options describe as a spec. UsageError if the file exists."""
    from orchestrator.specs import writing

    if job.batch_file is not None:
        raise click.UsageError("--save-spec: a batch file describes its job itself")
    if path.suffix != ".toml":
        raise click.UsageError(f"--save-spec: name a file that ends in .toml (got {path})")
    if (shown := escaping.visible(str(path))) != str(path):
        raise click.UsageError(f"--save-spec: {shown}: no control character is allowed in its name")
    # Without the variables of this shell, which are a layer of each submission.
    file, program = _split(job.words)
    document, problems = specs.read(file, job.settings, job.flags, program)
    spec = specs.build(document, problems, Path())
    document = documents.with_value(document, ("job", "name"), spec.name, "")
    try:
        with path.open("x", encoding="utf-8") as out:
            out.write(writing.text(document, [f"orchestrator submit {shlex.quote(str(path))}"]))
    except FileExistsError:
        raise click.UsageError(f"--save-spec: {path} exists: choose another name") from None
    except OSError as error:
        raise click.UsageError(f"--save-spec: {path}: {error.strerror}") from error
    output.note(f"Wrote {path}")


def sweep(job: JobOptions, configuration: config.Configuration) -> tuple[sweeps.Sweep, str]:
    """Return the sweep that the options describe, checked completely, and the path of its file."""
    from orchestrator import sweeps

    path, program = _split(job.words)
    if path is None:
        raise click.UsageError("name a spec file that has a table [sweep]: sweep.toml")
    loaded = sweeps.load(
        path, job.settings, job.flags, program, profile=configuration.profile, environ=os.environ
    )
    return loaded, str(path)


def is_sweep(job: JobOptions) -> bool:
    """Return whether the named file has a table [sweep]."""
    if not job.words or job.words == _program() or job.batch_file is not None:
        return False
    path, _ = _split(job.words)
    return path is not None and "sweep" in specs.read(path)[0].data


def print_command_line(request: job_scripts.Request) -> None:
    """Print the options of a batch file's job that are not in the script."""
    if request.spec.launch.batch_file is not None and request.spec.sbatch:
        from orchestrator.rendering import batch_file

        output.note(f"On sbatch's command line: {batch_file.described(request.spec.sbatch)}")


def _batch_request(
    path: Path, job: JobOptions, configuration: config.Configuration
) -> job_scripts.Request:
    from orchestrator.rendering import batch_file

    batch = batch_file.read(path, runs_dir=configuration.runs_dir)
    for note in batch.notes:
        output.note(note)
    spec = specs.load(
        None, job.settings, job.flags, job.words[1:], environ=os.environ, batch=batch.document
    )
    spec = config.with_profile(spec, configuration.profile)
    given = specs.keys_given(job.settings, job.flags, os.environ)
    options = batch_file.command_line(batch, spec, given, configuration.profile)
    return job_scripts.Request(
        spec=dataclasses.replace(spec, sbatch=options), source=str(path), argv=sys.argv
    )


def _split(words: list[str]) -> tuple[Path | None, list[str]]:
    """Return the spec file, and the program: a script instead of the file, or that after `--`."""
    program = _program()
    if "--" in sys.argv[1:] and not program:
        raise click.UsageError("no program after `--`")
    # click drops the `--`.
    before = words[: len(words) - len(program)]
    if len(before) > 1:
        raise click.UsageError(
            f"at most one script or spec is allowed, got {shlex.join(before)}; write a program "
            "and its arguments after `--`"
        )
    path = Path(before[0]) if before else None
    if path is not None and path.suffix not in (".py", ".sh", ".toml") and _is_program(path):
        name = before[0] if "/" in before[0] else f"./{before[0]}"
        command = shlex.join(["orchestrator", "submit", "--", name, *program])
        raise click.UsageError(f"{path} is a program, neither a script nor a spec: {command}")
    if path is None or path.suffix not in (".py", ".sh"):
        return path, program
    return None, [*([] if path.suffix == ".py" else ["bash"]), before[0], *program]


def _check_script(path: Path, chdir: str | None) -> None:
    """Raise UsageError unless the script is in the folder in which the job starts."""
    at = Path(chdir or "") / path
    if at.is_dir():
        raise click.UsageError(f"{path} is a folder, not a script")
    if not at.is_file():
        why = ", the folder of the job" if chdir else ""
        raise click.UsageError(f"{path}: no such script{_closest(path, at.parent.absolute(), why)}")


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _closest(path: Path, folder: Path, why: str) -> str:
    """Return where a script was looked for, and the closest name there."""
    try:
        scripts = (each for each in folder.iterdir() if each.suffix == path.suffix)
        names = [each.name for each in scripts if each.is_file()]
    except OSError:
        names = []
    near = schema.did_you_mean(path.name, names)
    return f" in {folder}{why}" + (f". Did you mean {path.with_name(near)}?" if near else "")


def _program() -> list[str]:
    arguments = sys.argv[1:]
    return arguments[arguments.index("--") + 1 :] if "--" in arguments else []
