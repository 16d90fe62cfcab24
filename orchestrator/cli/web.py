"""orchestrator web."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import click

from orchestrator import errors
from orchestrator.cli import commands, interrupts, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument, option

#: Of the user's computer, in the command that is printed.
_LOCAL_PORT = 8765


@commands.command(
    "web",
    "orchestrator web",
    "orchestrator web --port 8765",
    "orchestrator web export report/ --sweep digits-scaling",
    kind=commands.Group,
    invoke_without_command=True,
    subcommand_metavar="[export DIR ...]",
    changes="other",
    when=lambda given: given["allow_actions"],
)
def web(
    ctx: click.Context,
    socket_path: Path | None = option(
        "--socket",
        "Listen on this Unix socket. Default: orchestrator/web.sock in $XDG_RUNTIME_DIR.",
        click.Path(dir_okay=False, path_type=Path),
        metavar="PATH",
    ),
    port: int | None = option(
        "--port",
        "Listen on this port of the loopback interface instead; 0: a free one.",
        click.IntRange(min=0, max=65535),
    ),
    url: str | None = option(
        "--url",
        "Address at which a proxy that connects to the socket shows the pages, such as "
        "https://ondemand.example.org/pun/dev/orchestrator.",
        "URL",
    ),
    allow_actions: bool = option(
        "--allow-actions",
        "Let the pages cancel, hold, release, requeue and resubmit jobs, and submit points of "
        "sweeps again.",
    ),
    metrics_token: Path | None = option(
        "--metrics-token",
        "With --port: file with a token for /metrics, which Prometheus sends. It is created if it "
        "does not exist.",
        click.Path(dir_okay=False, path_type=Path),
        metavar="FILE",
    ),
) -> None:
    """Show jobs, their logs and curves as web pages.

    The server runs until Ctrl-C. It listens on a Unix socket that only you can open, and prints the
    ssh command that makes it visible on your computer. With --port it listens on the loopback
    interface: a link that works once gives your browser access, and connections of other users are
    closed.

    The pages show what the database and the logs contain. While a page is open, Slurm is asked as
    `status` does, at most once in the profile's poll_floor_seconds.
    """
    if ctx.invoked_subcommand is not None:
        return
    if port is not None and socket_path is not None:
        raise click.UsageError("--port and --socket cannot be combined")
    if port is not None and url is not None:
        raise click.UsageError("--port and --url cannot be combined")
    if metrics_token is not None and port is None:
        raise click.UsageError("--metrics-token needs --port: the socket needs no token")
    with _explained_imports():
        from orchestrator.web import app, live, monitoring, running_actions, server, site
        from orchestrator.web.access import proxied, security
    address = None if url is None else proxied.Address.parse(url)
    context = session.open_context(ctx, quiet=True)

    def report_unexpected(error: BaseException) -> str:
        return interrupts.report_unexpected(error, os.environ)

    pages = site.Site(
        context=context,
        live=live.Live(context),
        report_unexpected=report_unexpected,
        running_actions=running_actions.RunningActions(context, report_unexpected)
        if allow_actions
        else None,
        is_secure=address is not None and address.scheme == "https",
    )
    application = app.make(pages)
    if port is not None:
        listening = server.bind_port(port)
        actual = listening.getsockname()[1]
        tokens = security.Tokens(actual)

        def show_link() -> None:
            click.echo(f"  http://localhost:{actual}/?token={tokens.link}")

        def used() -> None:
            click.echo("The link was used. For another browser:")
            show_link()

        guard: security.Application = security.Guard(application, tokens, used)
        if metrics_token is not None:
            token = monitoring.token_of(metrics_token)
            guard = monitoring.ScraperGuard(guard, application, token)
        click.echo("On your computer, forward the port:")
        click.echo(f"  ssh -N -L {actual}:localhost:{actual} {_login()}")
        click.echo("and open this link, which works once:")
        show_link()
        asyncio.run(server.serve(guard, listening, None, running=pages.running, report=output.note))
        return
    path = (socket_path or server.default_socket(context.environ)).absolute()
    unix_socket = server.UnixSocket(path, is_default=socket_path is None)
    listening = unix_socket.bind()
    try:
        if address is None:
            click.echo("On your computer, forward the socket:")
            click.echo(f"  ssh -N -L {_LOCAL_PORT}:{unix_socket.path} {_login()}")
            click.echo(f"and open http://localhost:{_LOCAL_PORT}/")
            guard = security.Guard(application, None)
        else:
            click.echo(f"The proxy connects to {unix_socket.path}")
            click.echo(f"and open {address.origin}{address.path}/")
            guard = security.Guard(
                proxied.Proxied(application, address.path), None, address=address
            )
        asyncio.run(
            server.serve(guard, listening, unix_socket, running=pages.running, report=output.note)
        )
    finally:
        unix_socket.remove()


def _login() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"


@commands.command(
    "export",
    "orchestrator web export report/ --sweep digits-scaling",
    "orchestrator web export report/ 123 124",
    changes="nothing",
)
def export(
    ctx: click.Context,
    folder: Path = argument(type=value_types.OUTPUT_FOLDER, metavar="DIR", required=True),
    references: tuple[str, ...] = options.references,
    sweeps: tuple[str, ...] = options.sweeps,
) -> None:
    """Write the pages of jobs and sweeps as files, which need no server.

    Send the folder to a colleague, who opens DIR/index.html in a browser. It contains what the
    pages show: curves, settings, scripts, environments, and logs of up to 16 MiB. DIR must be
    empty, or an earlier export, which is replaced.
    """
    with _explained_imports():
        from orchestrator.web import app, exporting, live, selection, site
    from orchestrator.controller.session import selection as named
    from orchestrator.controller.sweeps import queries

    context = session.open_context(ctx, quiet=True)
    selected = named.jobs_and_sweeps(context, references, sweeps)
    jobs = sorted((job.row for job in selected), reverse=True)
    of_sweeps = list(dict.fromkeys(queries.find(context, sweep).row for sweep in sweeps))
    chosen = selection.Selection(jobs=jobs, sweeps=of_sweeps)
    pages = site.Site(
        context=context,
        live=live.Live(context),
        report_unexpected=lambda error: interrupts.report_unexpected(error, os.environ),
        selection=chosen,
    )
    number = exporting.export(app.make(pages), chosen, folder)
    click.echo(f"Wrote {output.count(number, 'page')}: open {folder / 'index.html'}")


web.add_command(export)


@contextlib.contextmanager
def _explained_imports() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise errors.OrchestratorError(
            f"The web pages need {error.name}, which is not installed. Install them: "
            "pip install 'orchestrator[web]'"
        ) from error
