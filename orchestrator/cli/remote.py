"""orchestrator --host, agent, connect and setup."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import secrets
import shutil
import signal
import sys
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import click

from orchestrator import cli, errors
from orchestrator.cli import commands, output, session
from orchestrator.cli.commands import argument, option
from orchestrator.remote import command_lines, messages

if typing.TYPE_CHECKING:
    from orchestrator.controller.code import store as stores
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
        request=secrets.token_hex(16),
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


@commands.command("agent", "ssh login1 orchestrator agent --stdio", changes="nothing")
def agent(
    ctx: click.Context,
    _stdio: bool = option("--stdio", "Speak on stdin and stdout.", required=True),
) -> None:
    """Answer `orchestrator --host` of another computer.

    ssh starts it; it is not for people. It runs the commands that the other computer sends as this
    user, each exactly once, and ends with the connection. `orchestrator --read-only agent --stdio`
    runs only commands that change nothing.
    """
    from orchestrator.controller.remote import agent as agents
    from orchestrator.controller.remote import requests

    configuration = session.configuration_of(ctx, with_project=False)
    store = requests.Requests(configuration.state_dir, configuration.shared_folders)

    def code() -> stores.Store:
        from orchestrator.controller.code import store as stores

        return stores.of_configuration(configuration, os.environ)

    def make_receiver() -> transfer.Receiver:
        from orchestrator.controller.remote import transfer

        return transfer.Receiver(code())

    def jobs_of(request: str) -> list[str]:
        from orchestrator.controller.remote import effects

        return effects.jobs_of(configuration, request)

    command = agents.serve(0, 1, store, make_receiver, jobs_of)
    if command is not None:
        # This process is now the command; it ends with SystemExit.
        from orchestrator.controller.remote import arrival

        with arrival.entered(command, code(), os.environ) as caller:
            of_agent = ["--read-only"] if session.is_read_only(ctx) else []
            sys.argv = [sys.argv[0], *of_agent, *command.run.words]
            cli.main(caller)


@commands.command("connect", "orchestrator connect mill", changes="nothing")
def connect(ctx: click.Context, name: str = argument(metavar="NAME")) -> None:
    """Keep a connection to a host open for later calls with --host.

    ssh asks for passwords and codes once, here. Until Ctrl-C, or the end of the connection, calls
    of `orchestrator --host NAME` in other terminals use it. It is meant for computers whose ssh
    cannot share a connection (ControlMaster), and for hosts that allow one session for each login.
    """
    from orchestrator.controller.remote import channel as channels
    from orchestrator.controller.remote import client, connection, sharing

    configuration = session.configuration_of(ctx, with_project=False)
    remote = connection.remote(name, configuration)
    path = sharing.path_of(remote.name, os.environ)
    with (
        sharing.listening(path) as server,
        connection.connect_by_ssh(remote, os.environ) as opened,
        client.Signals() as signals,
    ):
        output.note(f"Connected to {opened.greeting.host}; Ctrl-C ends the connection.")
        proxy = sharing.Proxy(
            server,
            opened.channel,
            opened.greeting,
            is_stopped=lambda: signal.SIGINT in signals.received(),
        )
        try:
            proxy.serve(signals.descriptor)
        except channels.ClosedError:
            raise client.LinkLostError(
                f"the connection to {remote.name} broke; call `orchestrator connect {name}` again"
            ) from None
    output.note("Connection closed.")


@commands.command(
    "setup",
    "orchestrator setup --host mill",
    "orchestrator setup --host mill --extra web",
    changes="other",
)
def setup(
    ctx: click.Context,
    host: str = option("--host", "Install it on this host.", "NAME", required=True),
    python: str | None = option(
        "--python", "Python there, 3.11 or newer. Default: the best one that is found.", "PATH"
    ),
    wheels: str | None = option(
        "--wheels",
        "Send the packages in DIR along, for a host without access to a package index.",
        "DIR",
    ),
    extras: tuple[str, ...] = option(
        "--extra",
        "Also install what an extra needs: web, tui, postgres, ... Default: those of the last "
        "installation.",
        "NAME",
        multiple=True,
    ),
) -> None:
    """Install or upgrade orchestrator on a host, without root.

    The version that runs here is installed into a virtual environment in ~/.local/share there, and
    a link in ~/.local/bin starts it; start-up files need not be changed. pip on the host downloads
    the dependencies. It is one call of ssh.
    """
    from orchestrator.controller.hosts import installation
    from orchestrator.controller.remote import connection

    remote = connection.remote(host, session.configuration_of(ctx, with_project=False))
    folder = None if wheels is None else pathlib.Path(wheels)
    done = installation.install(
        remote,
        os.environ,
        files=installation.files_of(folder, os.environ),
        python=python,
        extras=extras or None,
        wheels_folder=folder,
    )
    for line in installation.report(remote, done):
        output.note(line)
    if done.problem:
        raise errors.OrchestratorError(done.problem)
