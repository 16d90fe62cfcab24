"""From what a user gives, a file, changes of its keys and arguments, to the job to submit."""

from __future__ import annotations

import dataclasses
import os
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from orchestrator import config, errors, jobs, specs
from orchestrator.controller.submission import job_scripts
from orchestrator.toml import documents, schema

if typing.TYPE_CHECKING:
    from orchestrator import sweeps
    from orchestrator.controller.reproduction import stored_specs
    from orchestrator.controller.session import contexts

#: Is called with notes for the user.
Report = Callable[[str], None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Description:
    """What describes a job or a sweep."""

    #: a spec, a batch file or a program, and nothing more; none: the arguments are the program
    words: Sequence[str] = ()
    #: the keys of a spec, instead of a file; with `words` these name its script, which must exist
    mapping: Mapping[str, object] | None = None
    #: what follows `--` on the command line
    arguments: Sequence[str] = ()
    #: of --set, or path and value of a key
    settings: Sequence[specs.Setting] = ()
    #: dotted key of the spec -> value
    flags: Mapping[str, object] = dataclasses.field(default_factory=dict)
    #: where relative paths start
    folder: Path = Path()
    #: the command line of this process
    argv: Sequence[str] = ()

    @property
    def batch_file(self) -> Path | None:
        if not self.words or self.words[0].endswith(".toml"):
            return None
        from orchestrator.rendering import batch_file

        path = self.folder / self.words[0]
        return path if batch_file.is_batch_file(path) else None

    @property
    def document(self) -> documents.Document | None:
        return None if self.mapping is None else documents.of(self.mapping, self.mapping_source)

    @property
    def mapping_source(self) -> str:
        """What messages call the keys that are not from a file."""
        return "spec"

    def with_snapshot(self, snapshot: bool | None) -> Description:
        """Return the description with --snapshot or --no-snapshot; None: neither is given."""
        if snapshot is None:
            return self
        return dataclasses.replace(self, flags={**self.flags, "code.snapshot": snapshot})

    def split(self) -> tuple[Path | None, list[str]]:
        """Return the spec file, and the program: a script instead of the file, or the arguments.

        Raises RequestError if there are several files, or a program that is no script.
        """
        words, arguments = self.words, self.arguments
        if self.mapping is not None:
            return None, [*arguments]
        if len(words) > 1:
            raise errors.RequestError(
                f"at most one script or spec is allowed, got {shlex.join(words)}; write a program "
                "and its arguments after `--`"
            )
        path = self.folder / words[0] if words else None
        if path is not None and path.suffix not in (".py", ".sh", ".toml") and _is_program(path):
            name = words[0] if "/" in words[0] else f"./{words[0]}"
            command = shlex.join(["orchestrator", "submit", "--", name, *arguments])
            raise errors.RequestError(
                f"{path} is a program, neither a script nor a spec: {command}"
            )
        if path is None or path.suffix not in (".py", ".sh"):
            return path, [*arguments]
        return None, [*([] if path.suffix == ".py" else ["bash"]), words[0], *arguments]


def request(
    described: Description, configuration: config.Configuration, report: Report
) -> job_scripts.Request:
    """Return the job that is described. Raises SpecError with all problems, and RequestError."""
    if described.batch_file is not None:
        return _batch_request(described.batch_file, described, configuration, report)
    path, program = described.split()
    is_empty = not described.flags and not described.settings and not program
    if path is None and described.mapping is None and is_empty:
        raise errors.RequestError(
            "name a script or a spec: orchestrator submit train.py, orchestrator submit job.toml"
        )
    spec = specs.load(
        path,
        described.settings,
        described.flags,
        program,
        environ=os.environ,
        folder=described.folder,
        stored=described.document,
    )
    if path is None and described.words:
        _check_script(Path(described.words[0]), described.folder, spec.chdir)
    source = str(path) if path else shlex.join(["flags", *program])
    return job_scripts.Request(
        spec=config.with_profile(spec, configuration.profile),
        source=source if described.mapping is None else described.mapping_source,
        argv=described.argv,
    )


def sweep(described: Description, configuration: config.Configuration) -> tuple[sweeps.Sweep, str]:
    """Return the sweep that is described, checked completely, and the path of its file."""
    from orchestrator import sweeps

    path, program = described.split()
    if path is None and described.mapping is None:
        raise errors.RequestError("name a spec file that has a table [sweep]: sweep.toml")
    loaded = sweeps.load(
        path,
        described.settings,
        described.flags,
        program,
        profile=configuration.profile,
        environ=os.environ,
        folder=described.folder,
        stored=described.document,
    )
    return loaded, described.mapping_source if path is None else str(path)


def is_sweep(described: Description) -> bool:
    """Return whether the named file has a table [sweep]."""
    if not described.words or described.batch_file is not None:
        return False
    path, _ = described.split()
    return path is not None and "sweep" in specs.read(path)[0].data


def like(
    context: contexts.Context,
    tasks: Sequence[jobs.Job],
    described: Description,
    snapshot: bool | None,
) -> tuple[contexts.Context, job_scripts.Request]:
    """Return a job like these tasks of a submission, changed as described.

    It has the same snapshot, if any; snapshot: --snapshot or --no-snapshot. The context is in the
    folder in which they were submitted. Raises SpecError with all problems, RequestError, and
    ConflictError if that folder is gone.
    """
    from orchestrator.controller.reproduction import stored_specs

    stored = stored_specs.find(context, tasks)
    request = _request_like(described, stored, context, snapshot)
    if stored.folder.is_dir():
        return dataclasses.replace(context, folder=stored.folder), request
    if request.spec.code.tree is None and "job.chdir" not in described.flags:
        raise errors.ConflictError(
            f"{stored.folder}, where {stored.name} was submitted, does not exist: create it, or "
            "name another folder with --chdir. Nothing was submitted."
        )
    return context, request


def _request_like(
    described: Description,
    stored: stored_specs.StoredSpec,
    context: contexts.Context,
    snapshot: bool | None,
) -> job_scripts.Request:
    from orchestrator.specs import writing

    profile = context.profile
    if described.words or described.mapping is not None:
        given = shlex.join(described.words) or "the spec"
        raise errors.RequestError(
            f"--like runs the program of {stored.name}: remove {given}, or write arguments after "
            "`--`"
        )
    if stored.spec.dependency is not None:
        context.reporter.info(
            f"Without the dependency of {stored.name}: --dependency {stored.spec.dependency}"
        )
    old = dataclasses.replace(stored.spec, dependency=None)
    described = described.with_snapshot(snapshot)
    if (chdir := described.flags.get("job.chdir")) is not None:
        # In request() the folder is the one of the submission.
        chdir = os.path.abspath(described.folder / str(chdir))
        described = dataclasses.replace(described, flags={**described.flags, "job.chdir": chdir})
    elif not stored.folder.is_dir() and old.code.tree is not None:
        old = dataclasses.replace(old, chdir=None)
    document = writing.of_spec(old, f"job {stored.name}")
    try:
        document = writing.with_more_arguments(document, described.arguments)
    except writing.ArgumentsError as error:
        words = shlex.join(described.arguments)
        raise errors.RequestError(f"-- {words}: {error}") from error
    if old.launch.batch_file is not None:
        spec = _batch_spec_like(described, stored, document, context.configuration)
    else:
        folder = stored.folder if stored.folder.is_dir() else None
        spec = specs.load(
            None,
            described.settings,
            described.flags,
            environ=os.environ,
            folder=folder,
            stored=document,
        )
        spec = config.with_profile(spec, profile)
    if old.code.tree is not None and spec.code.snapshot and not snapshot:
        kept = {name: getattr(old.code, name) for name in jobs.SET_BY_US}
        spec = dataclasses.replace(spec, code=dataclasses.replace(spec.code, **kept))
    return job_scripts.Request(spec=spec, source=stored.source, argv=described.argv)


def _batch_spec_like(
    described: Description,
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
        described.settings,
        described.flags,
        environ=os.environ,
        batch=batch.document,
        stored=documents.without(document, ("sbatch",)),
    )
    spec = config.with_profile(spec, configuration.profile)
    given = specs.keys_given(described.settings, described.flags, os.environ)
    new = batch_file.command_line(batch, spec, given, configuration.profile)
    # A key that another one has replaced, as mem_per_cpu replaces mem, is not set any more.
    unset = {f"resources.{key}" for key, value in vars(spec.resources).items() if value is None}
    kept = {
        name: value
        for name, value in stored.spec.sbatch.items()
        if name != "dependency" and sbatch_options.OWN_KEYS.get(name) not in unset
    }
    return dataclasses.replace(spec, sbatch={**kept, **new})


def _batch_request(
    path: Path, described: Description, configuration: config.Configuration, report: Report
) -> job_scripts.Request:
    from orchestrator.rendering import batch_file

    batch = batch_file.read(path, runs_dir=configuration.runs_dir)
    for note in batch.notes:
        report(note)
    spec = specs.load(
        None,
        described.settings,
        described.flags,
        [*described.words[1:], *described.arguments],
        environ=os.environ,
        folder=described.folder,
        batch=batch.document,
    )
    spec = config.with_profile(spec, configuration.profile)
    given = specs.keys_given(described.settings, described.flags, os.environ)
    options = batch_file.command_line(batch, spec, given, configuration.profile)
    return job_scripts.Request(
        spec=dataclasses.replace(spec, sbatch=options), source=str(path), argv=described.argv
    )


def _check_script(path: Path, folder: Path, chdir: str | None) -> None:
    """Raise RequestError unless the script is in the folder in which the job starts."""
    at = folder / (chdir or "") / path
    if at.is_dir():
        raise errors.RequestError(f"{path} is a folder, not a script")
    if not at.is_file():
        why = ", the folder of the job" if chdir else ""
        near = _closest(path, at.parent.absolute(), why)
        raise errors.RequestError(f"{path}: no such script{near}")


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
