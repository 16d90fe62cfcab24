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
#: Options that a site's profile sets if the file does not.
_PROFILE = ("partition", "account", "qos")
#: Keys of a spec that can override a batch file: options of sbatch, or keys that only we use.
_TABLES = ("job.", "resources.", "metrics.", "sbatch.", "code.", "tracking.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchFile:
    path: pathlib.Path
    text: str
    #: names and values of the options in its #SBATCH lines
    options: Mapping[str, str | None]
    #: the values of its options that are keys of a spec, as the lowest layer of a spec
    document: documents.Document
    #: sentences on what is done differently from the file
    notes: tuple[str, ...] = ()


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
    options = {option.name: option for option in batch_options.read(text, source)}
    document = documents.with_value(
        documents.empty(source), ("launch", "batch_file"), str(path.absolute()), source
    )
    named = options.get("job-name")
    if named is None or not named.value:
        named = batch_options.Option(name="job-name", value=path.stem)
    notes: list[str] = []
    for option in {**options, "job-name": named}.values():
        value, note = _spec_value(option, runs_dir)
        origin = documents.Origin(source=source, line=option.line, text=option.text)
        if value is not None:
            key = tuple(sbatch_options.OWN_KEYS[option.name].split("."))
            document = documents.with_value(document, key, value, origin)
        if note:
            notes.append(f"{origin}: {note}")
    return BatchFile(
        path=path,
        text=text,
        options={option.name: option.value for option in options.values()},
        document=document,
        notes=tuple(notes),
    )


def _spec_value(
    option: batch_options.Option, runs_dir: pathlib.Path
) -> tuple[str | int | None, str]:
    """Return the value of an option's key in a spec, or None, and what is done differently."""
    value = option.value or ""
    key = sbatch_options.OWN_KEYS.get(option.name, "").partition(".")[2]
    match option.name:
        case "job-name":
            valid = values.fitting_name(value)
            if not valid or not values.form_error("name", value):
                return value, ""
            return valid, (
                f"the job's name {escaping.visible(value)} is {valid} here: letters, digits, dots, "
                "underscores and dashes"
            )
        case "chdir" | "comment":
            return value, ""
        case "output" | "error":
            problem = checks.output_error(value)
            if not problem:
                return value, ""
            note = f"--{option.name}={value} {problem}: "
            if option.name == "output":
                return None, note + "the log goes to the run folder"
            path = f"{str(runs_dir).replace('%', '%%')}/%x/%j.err"
            return path, note + "stderr goes to the run folder"
        case "nodes":
            return int(value) if value.isascii() and value.isdecimal() else None, ""
        case "open-mode" if not "append".startswith(value or "?"):
            return None, "logs are always opened in append mode, for requeues"
        # submit checks whether Slurm still has the jobs of a dependency.
        case "dependency" if dependency.split(value)[1]:
            return None, ""
        case "dependency" | "partition" | "account" | "qos" | "time":
            return (None if not value or values.form_error(key, value) else value), ""
    return None, ""


def read_text(path: pathlib.Path) -> str:
    """Return the text of a batch file; raises SpecError if sbatch or bash could not read it."""
    text, message, index = "", "", None
    try:
        content = files.read_bytes(path, limit_bytes=_MAX_BYTES)
        text = content.decode("utf-8")
    except files.TooLargeError:
        message = "is larger than 4 MiB, more than slurmctld accepts"
    except UnicodeDecodeError as exc:
        text, index = content[: exc.start].decode(), exc.start
        message = "is not UTF-8 text: write it as UTF-8"
    except (OSError, ValueError) as exc:  # ValueError: a NUL in the path
        message = f"cannot be read: {getattr(exc, 'strerror', None) or exc}"
    if not message and "\r\n" in text:
        index = text.index("\r\n")
        message = "has DOS line ends, which sbatch refuses: run dos2unix on the file"
    elif not message and "\0" in text:
        index, message = text.index("\0"), "contains NUL, which sbatch refuses"
    elif not message and not files.interpreter(text):
        index, message = 0, "must begin with #! and an interpreter, such as #!/bin/bash"
    if message:
        line = None if index is None else text.count("\n", 0, index) + 1
        source = escaping.visible(str(path))
        raise errors.SpecError([errors.Problem(source=source, line=line, message=message)])
    return text


def command_line(
    batch: BatchFile, spec: jobs.JobSpec, given: Collection[str], profile: config.Profile
) -> dict[str, jobs.SbatchValue]:
    """Return the options for sbatch's command line, which override those of the file.

    `given` are the dotted keys of `spec` that the command line or a variable set. Raises SpecError
    for keys that cannot override a batch file.
    """
    if foreign := sorted(
        key for key in given if not key.startswith(_TABLES) or key == "resources.gpu_vendor"
    ):
        message = "a batch file sets this up itself: change the file, or write a spec"
        raise errors.SpecError(
            [errors.Problem(source="command line", key=key, message=message) for key in foreign]
        )
    keys = set(given)
    error_log = batch.options.get("error", "%j") or ""
    # The profile decides which of the two options requests GPUs.
    if keys & {"resources.gpus_per_node", "resources.gpu_type"}:
        keys |= {"resources.gpus_per_node", "resources.gres"}
    options: dict[str, jobs.SbatchValue] = {}
    for name, value in directives.intended(spec, profile):
        key = sbatch_options.OWN_KEYS.get(name, f"sbatch.{name}")
        if (
            name == "open-mode"
            or (name == "error" and checks.output_error(error_log))
            or (name != "job-name" and key in keys)
            or (name in _PROFILE and name not in batch.options)
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
        "interpreter": files.interpreter(text),
        # The here-document's end marker also ends the last line.
        "batch_text": text.removesuffix("\n"),
        "is_batch_file": True,
        "delimiter": shell.delimiter("ORCHESTRATOR_BATCH_FILE_END", text),
    }
    script = templates.render(
        TEMPLATE, context, templates_dir=templates_dir, shared_folders=shared_folders
    )
    if spec.code.snapshot:
        templates.require_code(script.text)
    if directives.parse(script.text) != directives.parse(text):
        raise errors.TemplateError(
            "the script's #SBATCH lines are not those of the batch file: templates cannot add "
            "options, put them on the command line"
        )
    return script


def described(options: Mapping[str, jobs.SbatchValue]) -> str:
    """Return options as one would type them."""
    return " ".join(
        directives.quote((name, None if value is True else str(value)))
        for name, value in options.items()
    )
