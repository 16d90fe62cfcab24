"""The options that describe a job: a spec file, --set, and an option for each key of the spec."""

from __future__ import annotations

import dataclasses
import os
import shlex
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from orchestrator import config, specs
from orchestrator.cli import output
from orchestrator.controller.submission import render
from orchestrator.rendering import batch_file

if typing.TYPE_CHECKING:
    from orchestrator import sweeps

Command = Callable[..., Any]


def spec_options(command: Command) -> Command:
    """Add SPEC, --set, the options of specs.FLAGS and `-- COMMAND`."""
    for flag in reversed(specs.FLAGS):
        command = _flag_option(flag)(command)
    command = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Set a key of the spec: --set resources.nodes=2. Can be repeated.",
    )(command)
    return click.argument("words", nargs=-1, metavar="[SPEC.toml | FILE.sbatch] [-- COMMAND...]")(
        command
    )


def _flag_option(flag: specs.Flag) -> Callable[[Command], Command]:
    names = [f"--{name}" for name in (flag.name, *flag.aliases)]
    if flag.type is bool:
        names = [f"--{flag.name}/--no-{flag.name}"]
    kind = click.INT if flag.type is int else click.STRING
    return click.option(
        *names,
        flag.parameter,
        type=click.Choice(flag.choices) if flag.choices else None if flag.type is bool else kind,
        default=None,
        multiple=flag.multiple,
        metavar=flag.metavar or None,
        help=flag.help,
    )


def request(options: Mapping[str, object], configuration: config.Configuration) -> render.Request:
    """Return the job that the options describe. Raises SpecError with all problems."""
    words = list(_strings(options["words"]))
    flags, settings = _flags(options), _strings(options["settings"])
    if _names_batch_file(words):
        return _batch_request(Path(words[0]), words[1:], settings, flags, configuration)
    path, program = _split(words)
    if path is None and not flags and not program:
        raise click.UsageError(
            "name a spec file, or describe the job with options: "
            "orchestrator submit --name x --nodes 1 -- train.py"
        )
    spec = specs.load(path, settings, flags, program, environ=os.environ)
    return render.Request(
        spec=config.with_profile(spec, configuration.profile),
        source=str(path) if path else shlex.join(["flags", *program]),
        argv=sys.argv,
    )


def sweep(
    options: Mapping[str, object], configuration: config.Configuration
) -> tuple[sweeps.Sweep, str]:
    """Return the sweep that the options describe, checked completely, and the path of its file."""
    from orchestrator import sweeps

    path, program = _split(list(_strings(options["words"])))
    if path is None:
        raise click.UsageError("name a spec file that has a table [sweep]: sweep.toml")
    loaded = sweeps.load(
        path,
        _strings(options["settings"]),
        _flags(options),
        program,
        profile=configuration.profile,
        environ=os.environ,
    )
    return loaded, str(path)


def is_sweep(options: Mapping[str, object]) -> bool:
    """Return whether the named file has a table [sweep]."""
    words = list(_strings(options["words"]))
    if not words or words == _program() or _names_batch_file(words):
        return False
    path, _ = _split(words)
    return path is not None and "sweep" in specs.read(path)[0].data


def print_command_line(request: render.Request) -> None:
    """Print the options of a batch file's job that are not in the script."""
    if request.spec.launch.batch_file is not None and request.spec.sbatch:
        output.note(f"On sbatch's command line: {batch_file.described(request.spec.sbatch)}")


def _flags(options: Mapping[str, object]) -> dict[str, object]:
    values = {flag.key: options.get(flag.parameter) for flag in specs.FLAGS}
    return {key: value for key, value in values.items() if value is not None and value != ()}


def _names_batch_file(words: Sequence[str]) -> bool:
    return bool(words) and words != _program() and batch_file.is_batch_file(Path(words[0]))


def _batch_request(
    path: Path,
    arguments: list[str],
    settings: Sequence[str],
    flags: Mapping[str, object],
    configuration: config.Configuration,
) -> render.Request:
    batch = batch_file.read(path, runs_dir=configuration.runs_dir)
    for note in batch.notes:
        output.note(note)
    spec = specs.load(None, settings, flags, arguments, environ=os.environ, batch=batch.document)
    spec = config.with_profile(spec, configuration.profile)
    given = specs.keys_given(settings, flags, os.environ)
    options = batch_file.command_line(batch, spec, given, configuration.profile)
    return render.Request(
        spec=dataclasses.replace(spec, sbatch=options), source=str(path), argv=sys.argv
    )


def _split(words: list[str]) -> tuple[Path | None, list[str]]:
    """Return the spec file and the program after `--`."""
    program = _program()
    if "--" in sys.argv[1:] and not program:
        raise click.UsageError("no program after `--`")
    # click drops the `--`.
    before = words[: len(words) - len(program)]
    if len(before) > 1:
        raise click.UsageError(
            f"at most one spec file is allowed, got {shlex.join(before)}; write the program after "
            "`--`"
        )
    path = Path(before[0]) if before else None
    if path is not None and path.suffix in (".py", ".sh"):
        raise click.UsageError(
            f"{path} is not a spec file; write the program after `--`: -- {path}"
        )
    return path, program


def _program() -> list[str]:
    arguments = sys.argv[1:]
    return arguments[arguments.index("--") + 1 :] if "--" in arguments else []


def _strings(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple | list)
    return tuple(str(item) for item in value)
