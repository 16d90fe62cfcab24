"""Each command says what it does, and shows an example."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click import testing

from orchestrator import cli


def commands(
    group: click.Group = cli.cli, before: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*before, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))


ALL = dict(commands())


def test_the_list_of_commands_has_the_first_sentence_of_each_help() -> None:
    for name, (_, text) in cli.COMMANDS.items():
        assert ALL[(name,)].get_short_help_str(limit=200) == text
        assert ALL[(name,)].name == name


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_each_command_has_help_and_an_example(words: tuple[str, ...]) -> None:
    done = testing.CliRunner().invoke(cli.cli, [*words, "--help"], prog_name="orchestrator")
    assert done.exit_code == 0
    assert f"Usage: orchestrator {' '.join(words)}" in done.output
    command = ALL[words]
    if not isinstance(command, click.Group):
        assert "Example" in done.output
        assert f"orchestrator {' '.join(words)}" in done.output.split("Example")[1]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{' '.join(words)} {parameter.opts[0]} has no help"


def test_a_command_that_does_not_exist() -> None:
    done = testing.CliRunner().invoke(cli.cli, ["submitt"], prog_name="orchestrator")
    assert (done.exit_code, done.output) == (
        2,
        "Usage: orchestrator [OPTIONS] COMMAND [ARGS]...\n"
        "Try 'orchestrator --help' for help.\n"
        "\nError: No such command 'submitt'.\n",
    )
