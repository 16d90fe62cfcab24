"""A batch script of the user's -> the same script with our prologue behind its directives.

The file itself is run, byte for byte, by its own interpreter, from the run folder: nothing in it
can meet our shell. Why so and not within our shell: docs/design.md, "Batch files".
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

#: The template that is rendered; a user's own says {% extends "orchestrator/batch.sbatch.j2" %}.
TEMPLATE = "batch.sbatch.j2"
#: slurmctld's default max_script_size (man slurm.conf).
_LARGEST_BYTES = 4 * 1024 * 1024
#: Options whose values the database shows before Slurm does; only those in the usual form.
_SHOWN = ("partition", "account", "qos", "time", "nodes")
#: What a site's profile gives to jobs that leave it open.
_PROFILE = ("partition", "account", "qos")
#: Keys of a spec that can be laid over a batch file: each is an option of sbatch, or ours alone.
_TABLES = ("job.", "resources.", "metrics.", "sbatch.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchFile:
    """A batch file, read and found fit to be followed."""

    path: pathlib.Path
    text: str
    #: what its own #SBATCH lines ask for
    options: tuple[batch_options.Option, ...]
    #: what they say of name, logs, folder and comment, as the lowest layer of a spec
    document: documents.Document
    #: what is not done as the file says it, a sentence each
    notes: tuple[str, ...] = ()
    #: the file's error log cannot be followed: ours goes onto sbatch's command line
    own_error_log: bool = False


def is_batch_file(path: pathlib.Path) -> bool:
    """Tell whether a word of the command line names a batch file: by its suffix or its lines."""
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
    """Read a batch file; SpecError with all that keeps it from being followed."""
    source = str(path)
    text = read_text(path)
    options = batch_options.read(text, source)
    origin = documents.Origin(source=source)
    document = documents.Document(origins={(): origin})
    notes: list[str] = []
    own_error_log = False

    def add(key: str, value: object, option: batch_options.Option | None) -> None:
        nonlocal document
        at = origin
        if option is not None:
            at = documents.Origin(source=source, line=option.line, text=option.text)
        table, _, name = key.partition(".")
        document = documents.merge(document, documents.leaf((table, name), value, at))

    add("launch.batch_file", str(path.absolute()), None)
    named = batch_options.last(options, "job-name")
    name = named.value if named and named.value else path.stem
    fitting = values.fitting_name(name)
    if fitting and values.form_error("name", name):
        notes.append(
            f"{source}{f':{named.line}' if named else ''}: the job's name {escaping.visible(name)} "
            f"is {fitting} here: letters, digits, dots, underscores and dashes"
        )
        name = fitting
    add("job.name", name, named)
    for name in ("chdir", "comment"):
        if (option := batch_options.last(options, name)) is not None:
            add(f"job.{name}", option.value or "", option)
    depends = batch_options.last(options, "dependency")
    readable = depends is not None and not dependency.split(depends.value)[1]
    if (
        depends
        and depends.value
        and readable
        and not values.form_error("dependency", depends.value)
    ):
        # sbatch reads it in the file; submit asks whether Slurm still knows the jobs.
        add("job.dependency", depends.value, depends)
    for name in ("output", "error"):
        option = batch_options.last(options, name)
        if option is None:
            continue
        misfit = checks.output_error(option.value or "")
        if not misfit:
            add(f"job.{name}", option.value, option)
            continue
        notes.append(
            f"{source}:{option.line}: --{name}={option.value} {misfit}: "
            f"{'the log' if name == 'output' else 'stderr'} goes to the run folder"
        )
        if name == "error":
            own_error_log = True
            folder = str(runs_dir).replace("%", "%%")
            add("job.error", f"{folder}/%x/%j.err", option)
    for name in _SHOWN:
        option = batch_options.last(options, name)
        key = sbatch_options.OWN_KEYS[name]
        if option is None or not option.value:
            continue
        if name == "nodes" and option.value.isascii() and option.value.isdecimal():
            add(key, int(option.value), option)
        elif name != "nodes" and not values.form_error(key.partition(".")[2], option.value):
            add(key, option.value, option)
    mode = batch_options.last(options, "open-mode")
    if mode is not None and not "append".startswith(mode.value or "?"):
        notes.append(f"{source}:{mode.line}: logs are always appended to, for requeues")
    return BatchFile(
        path=path,
        text=text,
        options=tuple(options),
        document=document,
        notes=tuple(notes),
        own_error_log=own_error_log,
    )


def read_text(path: pathlib.Path) -> str:
    """Return the text of a batch file; SpecError where sbatch or our shell could not take it."""
    line: int | None = None
    text = message = ""
    try:
        with files.open_regular(path) as file:
            content = file.read(_LARGEST_BYTES + 1)
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(10) + 1
        message = "is not UTF-8 text: write it as UTF-8"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        message = f"cannot be read: {getattr(error, 'strerror', None) or error}"
    for wrong, told in (
        ("\r\n", "ends as lines of DOS do, which sbatch refuses: run dos2unix on the file"),
        ("\0", "holds NUL, which sbatch refuses"),
    ):
        if not message and wrong in text:
            line, message = text[: text.index(wrong)].count("\n") + 1, told
    if not message and len(text.encode()) > _LARGEST_BYTES:
        message = "is larger than 4 MiB, more than slurmctld takes"
    if not message and not interpreter(text):
        line, message = 1, "must begin with #! and an interpreter, such as #!/bin/bash"
    if message:
        problem = errors.Problem(source=escaping.visible(str(path)), line=line, message=message)
        raise errors.SpecError([problem])
    return text


def interpreter(text: str) -> list[str]:
    """Return the words that the kernel puts before a script's path (man execve): one or two."""
    first = text.partition("\n")[0]
    if not first.startswith("#!"):
        return []
    return first[2:].strip(" \t").split(None, 1)


def command_line(
    batch: BatchFile, spec: jobs.JobSpec, given: Collection[str], profile: config.Profile
) -> dict[str, jobs.SbatchValue]:
    """Return the options that go onto sbatch's command line, where they win over the file's.

    `given` are the dotted keys of `spec` that the command line or a variable said. Raises
    SpecError for one that only a script of ours could follow.
    """
    foreign = sorted(key for key in given if not key.startswith(_TABLES))
    if foreign:
        told = "a batch file sets this up by itself: change the file, or write a spec"
        raise errors.SpecError(
            [errors.Problem(source="command line", key=key, message=told) for key in foreign]
        )
    asked = {option.name for option in batch.options}
    wanted = set(given)
    # The profile writes GPUs in one of two ways.
    if wanted & {"resources.gpus_per_node", "resources.gpu_type"}:
        wanted |= {"resources.gpus_per_node", "resources.gres"}
    found: dict[str, jobs.SbatchValue] = {}
    for name, value in directives.intended(spec, profile):
        key = sbatch_options.OWN_KEYS.get(name, f"sbatch.{name}")
        if (
            name == "open-mode"
            or (name == "error" and batch.own_error_log)
            or (name != "job-name" and key in wanted)
            or (name in _PROFILE and name not in asked)
        ):
            found[name] = True if value is None else value
    return found


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
    context = _context(spec, text, runs_dir=runs_dir, local=local)
    context["origin"] = origin
    renderer = templates.Templates(templates_dir, shared_folders=shared_folders)
    _, used = renderer.render(TEMPLATE, context)
    context["template_hash"] = hashed = templates.digest(used)
    context["user_templates"] = [source.name for source in used if source.users]
    script, _ = renderer.render(TEMPLATE, context)
    if directives.parse(script) != directives.parse(text):
        raise errors.TemplateError(
            "the script's #SBATCH lines are not those of the batch file: a template adds none; "
            "further options go onto the command line"
        )
    return templates.Script(text=script, template=TEMPLATE, template_hash=hashed)


def _context(
    spec: jobs.JobSpec, text: str, *, runs_dir: pathlib.Path, local: bool
) -> dict[str, object]:
    header = directives.header(text.split("\n"))
    return {
        "spec": spec,
        "local": local,
        "origin": templates.Origin(version="", spec=""),
        "template_name": TEMPLATE,
        "template_hash": "",
        "user_templates": [],
        "runs_dir": str(runs_dir),
        "directive_lines": [line for _, line in header if line.startswith("#SBATCH")],
        "interpreter": interpreter(text),
        # The end of the here-document ends the last line too.
        "batch_text": text.removesuffix("\n"),
        "is_batch_file": True,
        "delimiter": shell.delimiter("ORCHESTRATOR_BATCH_FILE_END", text),
    }


def options_of(spec: jobs.JobSpec) -> list[str]:
    """Return what of a stored spec goes onto sbatch's command line: nothing without batch file."""
    if spec.launch.batch_file is None:
        return []
    options = dict(spec.sbatch)
    if "dependency" in options:
        # Our own names become job IDs when sbatch is called.
        slurms, _ = dependency.split(str(options.pop("dependency")))
        options |= {"dependency": slurms} if slurms else {}
    return [
        f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()
    ]


def arguments_of(spec: jobs.JobSpec) -> list[str]:
    """Return what stands behind the script on sbatch's command line."""
    return [] if spec.launch.batch_file is None else [*spec.launch.program]


def described(options: Mapping[str, jobs.SbatchValue]) -> str:
    """Return options as a person writes them."""
    return " ".join(
        directives.quote((name, None if value is True else str(value)))
        for name, value in options.items()
    )
