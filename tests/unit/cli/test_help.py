"""The help of each command, and the pages with all commands and all keys."""

from __future__ import annotations

import sys

import click
import pytest

from orchestrator import cli
from tests import json_output, keys, reference

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


def test_the_pages_are_up_to_date() -> None:
    for page in (reference, keys, json_output):
        assert page.PAGE.read_text() == page.page(), "python -m tests.reference writes it"


def test_each_key_has_a_meaning() -> None:
    tables = [table for _, tables in keys.chapters() for table in tables]
    without = [(table.title, key.name) for table in tables for key in table.keys if not key.meaning]
    assert without == []


@pytest.mark.parametrize(
    ("words", "usage", "error"),
    [
        (["sumbit"], "", "No such command 'sumbit'. Did you mean 'submit'?"),
        (["zzz"], "", "No such command 'zzz'."),
        (
            ["init"],
            "",
            "No such command 'init'. To write a spec: submit train.py --save-spec train.toml. "
            "To write a profile of a cluster: config init.",
        ),
        (["sweep", "init"], "sweep", "No such command 'init'."),
        (["sweep", "sumbit"], "sweep", "No such command 'sumbit'. Did you mean 'submit'?"),
        (["notices", "lst"], "notices", "No such command 'lst'. Did you mean 'list'?"),
        (["submit", "--weit"], "submit", "No such option '--weit'. Did you mean '--wait'?"),
        (["db", "check", "--josn"], "db check", "No such option '--josn'. Did you mean '--json'?"),
        (["status", "--zzz"], "status", "No such option '--zzz'."),
    ],
)
def test_a_command_or_option_that_does_not_exist(
    words: list[str],
    usage: str,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = f"orchestrator {usage}".rstrip()
    monkeypatch.setattr(sys, "argv", ["orchestrator", *words])
    assert cli.run() == 2
    printed = capsys.readouterr()
    first, *_, last = printed.err.splitlines()
    assert printed.out == ""
    assert first.startswith(f"Usage: {path} [OPTIONS]")
    assert last == f"Error: {error}"
