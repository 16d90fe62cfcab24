"""The help of each command, and the reference page that contains it."""

from __future__ import annotations

import click
from click import testing

from orchestrator import cli
from tests import reference

ALL = {context.command_path: command for command, context in reference.everything()}


def test_the_list_of_commands_has_the_first_sentence_of_each_help() -> None:
    for name, (_, text) in cli.COMMANDS.items():
        command = ALL[f"orchestrator {name}"]
        assert command.name == name
        assert command.get_short_help_str(limit=200) == text


def test_each_command_has_an_example_and_each_option_a_help() -> None:
    for path, command in ALL.items():
        # The commands of a group have their own examples.
        if path == "orchestrator" or not isinstance(command, click.Group):
            assert path in (command.help or "").partition("Example")[2], path
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{path} {parameter.opts[0]}"


def test_the_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text() == reference.page(), "python -m tests.reference writes it"


def test_a_command_that_does_not_exist() -> None:
    done = testing.CliRunner().invoke(cli.cli, ["submitt"], prog_name="orchestrator")
    assert (done.exit_code, done.output) == (
        2,
        "Usage: orchestrator [OPTIONS] COMMAND [ARGS]...\n"
        "Try 'orchestrator --help' for help.\n"
        "\nError: No such command 'submitt'.\n",
    )
