"""The options that describe a job: a spec file, --set, and an option for each key of the spec."""

from __future__ import annotations

import shlex
import sys
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from orchestrator import specs
from orchestrator.cli import output
from orchestrator.controller.submission import job_scripts, requests
from orchestrator.text import escaping
from orchestrator.toml import documents, schema


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

    def value(self, name: str, values: Mapping[str, Any]) -> requests.Description:
        flags = {flag.key: values[flag.parameter] for flag in specs.FLAGS}
        # click drops the `--`.
        arguments = sys.argv[1:]
        has_program = "--" in arguments
        program = arguments[arguments.index("--") + 1 :] if has_program else []
        words = list(values["words"])
        description = requests.Description(
            words=words[: len(words) - len(program)],
            arguments=program,
            settings=values["settings"],
            flags={key: value for key, value in flags.items() if value not in (None, ())},
            argv=sys.argv,
        )
        if has_program and not program and description.batch_file is None:
            raise click.UsageError("no program after `--`")
        return description


#: The declaration of a parameter that is a requests.Description.
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


def save(job: requests.Description, path: Path) -> None:
    """Write the job that the options describe as a spec. UsageError if the file exists."""
    from orchestrator.specs import writing

    if job.batch_file is not None:
        raise click.UsageError("--save-spec: a batch file describes its job itself")
    if path.suffix != ".toml":
        raise click.UsageError(f"--save-spec: name a file that ends in .toml (got {path})")
    if (shown := escaping.visible(str(path))) != str(path):
        raise click.UsageError(f"--save-spec: {shown}: no control character is allowed in its name")
    # Without the variables of this shell, which are a layer of each submission.
    file, program = job.split()
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


def print_command_line(request: job_scripts.Request) -> None:
    """Print the options of a batch file's job that are not in the script."""
    if request.spec.launch.batch_file is not None and request.spec.sbatch:
        from orchestrator.rendering import batch_file

        output.note(f"On sbatch's command line: {batch_file.described(request.spec.sbatch)}")
