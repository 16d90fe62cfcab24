"""What commands declare: which JSON they print, and whether they change something."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from orchestrator import errors
from orchestrator.cli import commands, top
from orchestrator.controller.session import stores
from orchestrator.rows.contract import kinds
from tests import builders, reference

ALL = {
    context.command_path.removeprefix("orchestrator "): command
    for command, context in reference.everything()
}


def test_each_command_declares_what_it_changes() -> None:
    silent = [
        path
        for path, command in ALL.items()
        if commands.effects_of(command) is None and not isinstance(command, click.Group)
    ]
    assert silent == []


def test_the_list_of_commands_that_change_nothing_is_up_to_date() -> None:
    written = reference.READING.read_text()
    assert written == reference.reading(), "python -m tests.reference writes it"


def test_each_command_with_json_declares_its_kinds() -> None:
    for path, command in ALL.items():
        has_json = any("--json" in parameter.opts for parameter in command.params)
        effects = commands.effects_of(command)
        assert has_json == bool(effects and effects.prints), path


def test_each_kind_has_a_type_and_each_type_a_command() -> None:
    declared = [commands.effects_of(command) for command in ALL.values()]
    printed = {kind for effects in declared if effects for kind in effects.prints}
    assert printed == set(kinds.KINDS)


def test_the_screen_acts_on_no_job_in_read_only_mode(tmp_path: Path, database_file: Path) -> None:
    with stores.Store(database_file) as store:
        context = builders.make_context(tmp_path, store, is_read_only=True)
        with pytest.raises(errors.ConflictError, match="--read-only"):
            top._act(context, "cancel", [])
