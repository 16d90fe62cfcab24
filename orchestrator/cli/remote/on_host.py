"""orchestrator --host NAME COMMAND. Apart from the commands, which it does not need."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import click

from orchestrator.cli import output, session
from orchestrator.remote import command_lines, messages

if typing.TYPE_CHECKING:
    from orchestrator.controller.remote import transfer

#: Variables that decide how output looks.
_VARIABLES = ("TERM", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TZ")
#: Jobs get the others too, if they are in the environment of a submission.
_ONLY_TO_READ = ("TZ",)


def run_on_host(ctx: click.Context, options: Mapping[str, Any], words: Sequence[str]) -> int:
    """Run a command line on the host of --host, and return its exit code.

    options: of the group, with `host`. words: from the command on.
    """
    # Few commands are called with --host, and help is to need no more than click.
    from orchestrator.controller.remote import client, connection, pending

    configuration = session.configuration_of(ctx, with_project=False)
    remote = connection.remote(options["host"], configuration)
    if reason := command_lines.refusal(words, remote.name, remote.address):
        raise click.UsageError(f"--host: {reason}")
    given = {"profile": remote.host.profile, **options}
    of_group = [
        word
        for name in ("profile", "runs_dir", "state_dir")
        if (value := given.get(name)) is not None
        for word in (f"--{name.replace('_', '-')}", value)
    ]
    of_group += ["--read-only"] if options["read_only"] else []
    changes = command_lines.changes(words)
    working_tree: messages.WorkingTree | None = None
    tree: transfer.Tree | None = None
    if (carrying := command_lines.carrying(words)) is not None:
        from orchestrator.controller.remote import departure

        words = carrying
        working_tree, tree = departure.of(session.open_context(ctx, with_project=False))
    run = messages.Run(
        request=os.urandom(16).hex(),
        words=[*of_group, *words],
        terminal=_terminal(),
        variables=_variables(os.environ, changes=changes),
        changes=changes,
        folder=remote.host.folder,
        tree=working_tree,
        # Until then this client connects again.
        grace_seconds=remote.host.reconnect_seconds + int(messages.SILENT_SECONDS),
    )
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    caller = client.Client(
        remote=remote,
        pending=pending.Folder(configuration.state_dir, remote.name, configuration.shared_folders),
        environ=os.environ,
        report=output.note,
        activity=session.progress,
        size=shutil.get_terminal_size,
    )
    if command_lines.shows_pages(words):
        from orchestrator.controller.remote import forwarding

        # The server's own messages are for people on the host.
        run = dataclasses.replace(run, terminal=dataclasses.replace(run.terminal, stdout=False))
        with forwarding.Pages(_descriptors(), remote, os.environ, output.note) as pages:
            return caller.run(run, pages)
    return caller.run(run, client.Output(_descriptors()), tree)


def _terminal() -> messages.Terminal:
    columns, lines = shutil.get_terminal_size()
    streams = (sys.__stdout__, sys.__stderr__)
    stdout, stderr = (stream is not None and stream.isatty() for stream in streams)
    return messages.Terminal(stdout=stdout, stderr=stderr, columns=columns, lines=lines)


def _descriptors() -> dict[int, int]:
    streams = {1: sys.__stdout__, 2: sys.__stderr__}
    return {number: number for number, stream in streams.items() if stream is not None}


def _variables(environ: Mapping[str, str], *, changes: bool) -> dict[str, str]:
    names = [name for name in _VARIABLES if not (changes and name in _ONLY_TO_READ)]
    return {name: environ[name] for name in names if name in environ}
