"""The page of all commands says what the commands say."""

from __future__ import annotations

import click
import pytest

from tests import reference

ALL = {context.command_path: command for command, context in reference.everything()}


def test_the_page_is_up_to_date() -> None:
    assert reference.PAGE.read_text() == reference.page(), "python -m tests.reference writes it"


@pytest.mark.parametrize("path", ALL)
def test_each_command_has_an_example(path: str) -> None:
    command = ALL[path]
    # A group has its commands' examples.
    if path == "orchestrator" or not isinstance(command, click.Group):
        assert path in (command.help or "").partition("Example")[2], f"{path} shows no example"
