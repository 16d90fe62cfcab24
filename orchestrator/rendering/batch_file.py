"""A user's batch file -> the same script with a prologue after its directives.

The file itself is run byte for byte by its own interpreter, from the run folder, so that nothing in
it can interfere with the prologue's shell (docs/design.md, "Batch files").
"""

from __future__ import annotations

import dataclasses
import pathlib
import re
import typing
from collections.abc import Collection, Mapping, Sequence

from orchestrator import errors, files, jobs
from orchestrator.jobs import dependency
from orchestrator.rendering import batch_options, directives, shell, templates
from orchestrator.specs import checks, sbatch_options
from orchestrator.text import escaping
from orchestrator.toml import documents, values

if typing.TYPE_CHECKING:
    from orchestrator import config

TEMPLATE = "batch.sbatch.j2"
#: slurmctld's default max_script_size (man slurm.conf).
_MAX_BYTES = 4 * 1024 * 1024
#: Options that the database shows before Slurm does.
_SHOWN = ("partition", "account", "qos", "time", "nodes")
#: Options that a site's profile sets if the file does not.
_PROFILE = ("partition", "account", "qos")
#: Keys of a spec that can override a batch file: options of sbatch, or keys that only we use.
_TABLES = ("job.", "resources.", "metrics.", "sbatch.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchFile:
    """A valid batch file."""

    path: pathlib.Path
    text: str
    #: of its own #SBATCH lines
    options: tuple[batch_options.Option, ...]
    #: the values of its options that are keys of a spec, as the lowest layer of a spec
    document: documents.Document
    #: sentences on what is done differently from the file
    notes: tuple[str, ...] = ()
    #: its error log is replaced by one in the run folder, on sbatch's command line
    own_error_log: bool = False


def is_batch_file(path: pathlib.Path) -> bool:
    """Return whether a path is a batch file: by its suffix or its #SBATCH lines."""
    if path.suffix in (".sbatch", ".slurm"):
        return True
    if path.suffix == ".toml":
        return False
    try:
        with files.open_regular(path) as file:
            head = file.read(64 * 1024)
    except (OSError, ValueError):
        return False
    return head.startswith(b"#!") and re.search(rb"^#SBATCH\b", head, re.MULTILINE) is not None


def read(path: pathlib.Path, *, runs_dir: pathlib.Path) -> BatchFile:
    """Read a batch file; raises SpecError with all problems."""
    source = str(path)
    text = read_text(path)
    options = batch_options.read(text, source)
    by_name = {option.name: option for option in options}
    document = documents.empty(source)
    document = documents.with_value(
        document, ("launch", "batch_file"), str(path.absolute()), source
    )
    notes: list[str] = []

    def add(key: str, value: object, name: str) -> None:
        nonlocal document
        origin = documents.Origin(source=source)
        if option := by_name.get(name):
            origin = documents.Origin(source=source, line=option.line, text=option.text)
        document = documents.with_value(document, tuple(key.split(".")), value, origin)

    def value_of(name: str) -> str:
        return (by_name[name].value or "") if name in by_name else ""

    job_name = value_of("job-name") or path.stem
    valid_name = values.fitting_name(job_name)
    if valid_name and values.form_error("name", job_name):
        line = f":{by_name['job-name'].line}" if value_of("job-name") else ""
        notes.append(
            f"{source}{line}: the job's name {escaping.visible(job_name)} is {valid_name} here: "
            "letters, digits, dots, underscores and dashes"
        )
        job_name = valid_name
    add("job.name", job_name, "job-name")
    for name in ("chdir", "comment"):
        if name in by_name:
            add(f"job.{name}", value_of(name), name)
    depends = value_of("dependency")
    # submit checks whether Slurm still has these jobs.
    has_only_job_ids = not dependency.split(depends)[1]
    if depends and has_only_job_ids and not values.form_error("dependency", depends):
        add("job.dependency", depends, "dependency")
    own_error_log = False
    for name in ("output", "error"):
        if name not in by_name:
            continue
        problem = checks.output_error(value_of(name))
        if not problem:
            add(f"job.{name}", value_of(name), name)
            continue
        log = "the log" if name == "output" else "stderr"
        notes.append(
            f"{source}:{by_name[name].line}: --{name}={value_of(name)} {problem}: "
            f"{log} goes to the run folder"
        )
        if name == "error":
            own_error_log = True
            add("job.error", f"{str(runs_dir).replace('%', '%%')}/%x/%j.err", name)
    for name in _SHOWN:
        key, value = sbatch_options.OWN_KEYS[name], value_of(name)
        if name == "nodes":
            if value.isascii() and value.isdecimal():
                add(key, int(value), name)
        elif value and not values.form_error(key.partition(".")[2], value):
            add(key, value, name)
    if "open-mode" in by_name and not "append".startswith(value_of("open-mode") or "?"):
        line = f":{by_name['open-mode'].line}"
        notes.append(f"{source}{line}: logs are always opened in append mode, for requeues")
    return BatchFile(
        path=path,
        text=text,
        options=tuple(options),
        document=document,
        notes=tuple(notes),
        own_error_log=own_error_log,
    )


def read_text(path: pathlib.Path) -> str:
    """Return the text of a batch file; raises SpecError if sbatch or bash could not read it."""
    line: int | None = None
    text = message = ""
    try:
        with files.open_regular(path) as file:
            content = file.read(_MAX_BYTES + 1)
        text = content.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = content[: exc.start].count(10) + 1
        message = "is not UTF-8 text: write it as UTF-8"
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        message = f"cannot be read: {getattr(exc, 'strerror', None) or exc}"
    for characters, problem in (
        ("\r\n", "has DOS line ends, which sbatch refuses: run dos2unix on the file"),
        ("\0", "contains NUL, which sbatch refuses"),
    ):
        if not message and characters in text:
            line, message = text[: text.index(characters)].count("\n") + 1, problem
    if not message and len(text.encode()) > _MAX_BYTES:
        message = "is larger than 4 MiB, more than slurmctld accepts"
    if not message and not interpreter(text):
        line, message = 1, "must begin with #! and an interpreter, such as #!/bin/bash"
    if message:
        source = escaping.visible(str(path))
        raise errors.SpecError([errors.Problem(source=source, line=line, message=message)])
    return text


def interpreter(text: str) -> list[str]:
    """Return the words that the kernel puts before a script's path (man execve): one or two."""
    first = text.partition("\n")[0]
    return first[2:].strip(" \t").split(None, 1) if first.startswith("#!") else []


def command_line(
    batch: BatchFile, spec: jobs.JobSpec, given: Collection[str], profile: config.Profile
) -> dict[str, jobs.SbatchValue]:
    """Return the options for sbatch's command line, which override those of the file.

    `given` are the dotted keys of `spec` that the command line or a variable set. Raises SpecError
    for keys that cannot override a batch file.
    """
    if foreign := sorted(key for key in given if not key.startswith(_TABLES)):
        message = "a batch file sets this up itself: change the file, or write a spec"
        raise errors.SpecError(
            [errors.Problem(source="command line", key=key, message=message) for key in foreign]
        )
    in_file = {option.name for option in batch.options}
    keys = set(given)
    # The profile decides which of the two options requests GPUs.
    if keys & {"resources.gpus_per_node", "resources.gpu_type"}:
        keys |= {"resources.gpus_per_node", "resources.gres"}
    options: dict[str, jobs.SbatchValue] = {}
    for name, value in directives.intended(spec, profile):
        key = sbatch_options.OWN_KEYS.get(name, f"sbatch.{name}")
        if (
            name == "open-mode"
            or (name == "error" and batch.own_error_log)
            or (name != "job-name" and key in keys)
            or (name in _PROFILE and name not in in_file)
        ):
            options[name] = True if value is None else value
    return options


def render(
    spec: jobs.JobSpec,
    text: str,
    *,
    runs_dir: pathlib.Path,
    templates_dir: pathlib.Path | None = None,
    shared_folders: Sequence[pathlib.Path] = (),
    local: bool = False,
    origin: templates.Origin,
) -> templates.Script:
    """Return the script that runs a batch file, `local` without Slurm; raises TemplateError."""
    header = directives.header(text.split("\n"))
    context = {
        "spec": spec,
        "local": local,
        "origin": origin,
        "runs_dir": str(runs_dir),
        "directive_lines": [line for _, line in header if line.startswith("#SBATCH")],
        "interpreter": interpreter(text),
        # The here-document's end marker also ends the last line.
        "batch_text": text.removesuffix("\n"),
        "is_batch_file": True,
        "delimiter": shell.delimiter("ORCHESTRATOR_BATCH_FILE_END", text),
    }
    script = templates.render(
        TEMPLATE, context, templates_dir=templates_dir, shared_folders=shared_folders
    )
    if directives.parse(script.text) != directives.parse(text):
        raise errors.TemplateError(
            "the script's #SBATCH lines are not those of the batch file: templates cannot add "
            "options, put them on the command line"
        )
    return script


def options_of(spec: jobs.JobSpec) -> list[str]:
    """Return a stored spec's options for sbatch's command line; none without batch file."""
    if spec.launch.batch_file is None:
        return []
    options = dict(spec.sbatch)
    if "dependency" in options:
        # Names of our own jobs become job IDs when sbatch is called.
        of_slurm, _ = dependency.split(str(options.pop("dependency")))
        options |= {"dependency": of_slurm} if of_slurm else {}
    return [f"--{key}" if value is True else f"--{key}={value}" for key, value in options.items()]


def arguments_of(spec: jobs.JobSpec) -> list[str]:
    """Return the script's arguments on sbatch's command line."""
    return [] if spec.launch.batch_file is None else [*spec.launch.program]


def described(options: Mapping[str, jobs.SbatchValue]) -> str:
    """Return options as one would type them."""
    return " ".join(
        directives.quote((name, None if value is True else str(value)))
        for name, value in options.items()
    )
