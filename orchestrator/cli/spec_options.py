"""The options by which a job is described: a spec file, --set, a flag for every key."""

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
    """Add SPEC, --set, the flags of specs.FLAGS and `-- COMMAND`."""
    for flag in reversed(specs.FLAGS):
        command = flag_option(flag)(command)
    command = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change one key of the spec: --set resources.nodes=2. May be repeated.",
    )(command)
    return click.argument("words", nargs=-1, metavar="[SPEC.toml | FILE.sbatch] [-- COMMAND...]")(
        command
    )


def flag_option(flag: specs.Flag) -> Callable[[Command], Command]:
    """Return the click option of one key of the spec."""
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
    """Return what was asked for, checked; raises SpecError with all problems."""
    words = list(_strings(options["words"]))
    flags, settings = _flags(options), _strings(options["settings"])
    if words and words != _behind() and batch_file.is_batch_file(Path(words[0])):
        return _batch_request(Path(words[0]), words[1:], settings, flags, configuration)
    path, program = _split(words)
    if path is None and not flags and not program:
        raise click.UsageError(
            "name a spec file, or describe the job by flags: "
            "orchestrator submit --name x --nodes 1 -- train.py"
        )
    spec = specs.load(path, settings, flags, program, environ=os.environ)
    return render.Request(
        spec=config.with_profile(spec, configuration.profile),
        source=str(path) if path else shlex.join(["flags", *program]),
        argv=sys.argv,
    )


def _flags(options: Mapping[str, object]) -> dict[str, object]:
    return {
        flag.key: value
        for flag in specs.FLAGS
        if (value := options.get(flag.parameter)) is not None and value != ()
    }


def sweep(
    options: Mapping[str, object], configuration: config.Configuration
) -> tuple[sweeps.Sweep, str]:
    """Return the sweep that was asked for, checked wholly, and the file that it stands in."""
    from orchestrator import sweeps

    path, program = _split(list(_strings(options["words"])))
    if path is None:
        raise click.UsageError("name the file of a spec with a table [sweep]: sweep.toml")
    found = sweeps.load(
        path,
        _strings(options["settings"]),
        _flags(options),
        program,
        profile=configuration.profile,
        environ=os.environ,
    )
    return found, str(path)


def is_sweep(options: Mapping[str, object]) -> bool:
    """Tell whether the file that is named holds a sweep."""
    words = list(_strings(options["words"]))
    if not words or words == _behind() or batch_file.is_batch_file(Path(words[0])):
        return False
    path, _ = _split(words)
    return path is not None and "sweep" in specs.read(path)[0].data


def _batch_request(
    path: Path,
    arguments: list[str],
    settings: Sequence[str],
    flags: Mapping[str, object],
    configuration: config.Configuration,
) -> render.Request:
    batch = batch_file.read(path, runs_dir=configuration.runs_dir)
    for note in batch.notes:
        output.say(note)
    spec = specs.load(None, settings, flags, arguments, environ=os.environ, batch=batch.document)
    spec = config.with_profile(spec, configuration.profile)
    given = specs.keys_given(settings, flags, os.environ)
    options = batch_file.command_line(batch, spec, given, configuration.profile)
    return render.Request(
        spec=dataclasses.replace(spec, sbatch=options), source=str(path), argv=sys.argv
    )


def tell_command_line(request: render.Request) -> None:
    """Say what of a batch file's options does not stand in the script."""
    if request.spec.launch.batch_file is not None and request.spec.sbatch:
        output.say(f"On sbatch's command line: {batch_file.described(request.spec.sbatch)}")


def _split(words: list[str]) -> tuple[Path | None, list[str]]:
    """Return the spec file and the program behind `--`.

    click drops the `--` itself, so a first word counts as a spec file only when it ends in .toml
    and stood before it.
    """
    behind = _behind()
    if "--" in sys.argv[1:] and not behind:
        raise click.UsageError("nothing stands behind `--`; name the program to run there")
    before = words[: len(words) - len(behind)] if behind else words
    if len(before) > 1:
        raise click.UsageError(
            f"one spec file at most, got {shlex.join(before)}; put the program behind `--`"
        )
    path = Path(before[0]) if before else None
    if path is not None and path.suffix in (".py", ".sh"):
        raise click.UsageError(f"{path} is no spec file; put the program behind `--`: -- {path}")
    return path, behind


def _behind() -> list[str]:
    arguments = sys.argv[1:]
    return arguments[arguments.index("--") + 1 :] if "--" in arguments else []


def _strings(value: object) -> tuple[str, ...]:
    assert isinstance(value, tuple | list)
    return tuple(str(item) for item in value)
