"""orchestrator agent, connect and setup: the commands for other hosts."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import sys
import typing

import click

from orchestrator import cli, errors
from orchestrator.cli import commands, output, session
from orchestrator.cli.commands import argument, option

if typing.TYPE_CHECKING:
    from orchestrator.controller.code import store as stores
    from orchestrator.controller.remote import transfer


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

    exit_code: object = 0
    command = agents.serve(0, 1, store, make_receiver, jobs_of)
    if command is not None:
        # This process is now the command.
        from orchestrator.controller.remote import arrival

        is_read_only = session.is_read_only(ctx)
        with arrival.entered(command, code, os.environ, is_read_only=is_read_only) as caller:
            of_agent = ["--read-only"] if is_read_only else []
            sys.argv = [sys.argv[0], *of_agent, *command.run.words]
            try:
                cli.main(caller)
            except SystemExit as end:
                exit_code = end.code
    # The client waits, and Python would take 10 ms to remove all objects.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    os._exit(exit_code if isinstance(exit_code, int) else 1)


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
            with connection.understood(remote.name):
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
        sent=installation.files_of(folder, os.environ),
        python=python,
        extras=extras or None,
        wheels_folder=folder,
    )
    for line in installation.report(remote, done):
        output.note(line)
    if done.problem:
        raise errors.OrchestratorError(done.problem)
