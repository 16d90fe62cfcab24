"""orchestrator config, doctor and trust."""

from __future__ import annotations

import os
import typing
from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator import config, errors
from orchestrator.cli import commands, output, session
from orchestrator.cli.arguments import options, value_types
from orchestrator.cli.commands import argument, option
from orchestrator.cli.output import Column, terminal
from orchestrator.config import channels, paths, projects
from orchestrator.config import trust as trust_records
from orchestrator.rows import row_values
from orchestrator.text import escaping
from orchestrator.toml import documents, key_paths, schema

if typing.TYPE_CHECKING:
    from orchestrator.controller.setup import site_checks

#: A probe that is pending for longer says more about the queue than about the node.
PROBE_TIMEOUT_SECONDS = 120.0
_CHECK_FIELDS = ("outcome", "found", "cure")
_CHECK_COLUMNS = (
    Column("check"),
    Column("outcome"),
    Column("found", "parts"),
    Column("cure", "parts"),
)
_CONFIG_COLUMNS = (Column("key"), Column("value", "parts"), Column("origin", "parts"))
_FABRIC_COLUMNS = (
    Column("name"),
    Column("summary", "parts"),
    Column("network"),
    Column("origin", "parts"),
)
_LINE_COLUMNS = (
    Column("kind"),
    Column("name", "parts"),
    Column("value", "parts"),
    Column("source", "parts"),
)
_TRUST_COLUMNS = (Column("path", "parts"), Column("state"))


config_commands = commands.Group(
    "config", help="Show the configuration, its origins and fabrics, or draft a profile."
)


@config_commands.command(
    "show", "orchestrator config show --origin", changes="nothing", prints=("config",)
)
def show(
    ctx: click.Context,
    origin: bool = option(
        "--origin", "Also show where each value comes from: file, variable or option."
    ),
    form: str = options.form,
) -> None:
    """Show all keys of the configuration and their values.

    Command line > ORCHESTRATOR_* > project orchestrator.toml > user > site > defaults. With
    --origin the last row is the project's file and whether it is trusted.
    """
    configuration = session.configuration_of(ctx)
    rows = [
        row_values.fields_of(item, ("key", "value", "origin")) for item in configuration.origins
    ]
    if origin and (project := configuration.project):
        rows.append({"key": "project_file", "value": project.path, "origin": project.standing})
    columns = _CONFIG_COLUMNS if origin else _CONFIG_COLUMNS[:2]
    output.print_rows("config", rows, columns, form)


@config_commands.command(
    "init",
    "orchestrator config init --print",
    changes="other",
    when=lambda given: not given["print_"],
)
def init(print_: bool = option("--print", "Print the draft instead of writing a file.")) -> None:
    """Draft a profile for this cluster.

    The draft is based on sinfo, scontrol show config and your accounts. It is written to your user
    configuration file, unless that exists.
    """
    from orchestrator.controller.setup import profile_draft
    from orchestrator.slurm import failures

    try:
        text = profile_draft.draft(profile_draft.query(session.client(), os.environ))
    except failures.MissingCommandError as exc:
        advice = "Without Slurm no profile is needed: jobs run on this machine."
        raise errors.SlurmError(f"{exc} {advice}") from exc
    if print_:
        terminal.print_exactly(text)
        return
    path = paths.user_file(os.environ)
    profile_draft.write(path, text, config.shared_folders(os.environ))
    output.note(f"Wrote {path}. Review it, then run: orchestrator doctor")


@config_commands.command(
    "fabrics",
    "orchestrator config fabrics",
    "orchestrator config fabrics olivia",
    changes="nothing",
    prints=("fabrics", "fabric_lines"),
)
def list_fabrics(
    ctx: click.Context,
    form: str = options.form,
    name: str | None = argument(metavar="[FABRIC]", required=False),
) -> None:
    """List fabrics: what NCCL, RCCL and gloo need for the network between nodes.

    With FABRIC, a name or the path of a file, show its lines and where each is from. A job gets
    them with environment.fabric, or with `fabric` in the profile.
    """
    from orchestrator import fabrics

    configuration = session.configuration_of(ctx)
    folders = configuration.fabric_folders
    if name is None:
        names = fabrics.names(folders)
    else:
        names = [os.path.abspath(name) if fabrics.is_path(name) else name]
    try:
        found = [fabrics.load(each, folders, configuration.shared_folders) for each in names]
    except errors.SpecError as exc:
        raise errors.ConfigurationError(exc.problems) from exc
    if name is not None:
        lines = [
            {"kind": kind, "name": key, "value": line.value, "source": found[0].source_of(line)}
            for kind, key, line in found[0].lines()
        ]
        output.print_rows("fabric_lines", lines, _LINE_COLUMNS, form)
        return
    rows = [
        {**row_values.fields_of(each, ("name", "summary", "origin")), "network": each.network.value}
        for each in found
    ]
    output.print_rows("fabrics", rows, _FABRIC_COLUMNS, form)


@commands.command(
    "doctor",
    "orchestrator doctor",
    "orchestrator doctor --job --gpus-per-node 1",
    "orchestrator doctor --host mill",
    changes="other",
    when=lambda given: given["with_job"],
    prints=("checks",),
)
def doctor(
    ctx: click.Context,
    with_job: bool = option("--job", "Also check a compute node with a job."),
    partition: str | None = option("--partition", "Partition of that job.", "NAME"),
    gpus_per_node: int | None = option(
        "--gpus-per-node", "GPUs per node of that job.", click.IntRange(min=1)
    ),
    timeout: float = option(
        "--timeout",
        "Cancel that job after this time.",
        value_types.seconds(least=1),
        metavar="SECONDS",
        default=PROBE_TIMEOUT_SECONDS,
    ),
    host: str | None = option(
        "--host", "Check instead what `orchestrator --host NAME` needs of this host.", "NAME"
    ),
    form: str = options.form,
) -> None:
    """Check this machine and the configuration.

    Each problem is shown with its fix. --job submits a job of at most one minute, three with a
    fabric. It checks on a compute node that runs_dir is visible, the clock is right and the lines
    of the fabric take effect, and finds its container runtime, GPU driver and torch. --host checks
    ssh, start-up files, Python, orchestrator, Slurm's commands and the clock of a host, in one call
    of ssh; orchestrator need not be installed there. Exit code 1 if a check fails; warnings do not
    count.
    """
    if host is not None:
        options.refuse({"--host: not with --job": with_job})
        from orchestrator.controller.hosts import checks as host_checks
        from orchestrator.controller.remote import connection

        remote = connection.remote(host, session.configuration_of(ctx, with_project=False))
        _print_checks(list(host_checks.examine(remote, os.environ)), form)
        return
    from orchestrator.controller.setup import node_checks, site_checks

    refused: list[site_checks.Check] = []
    try:
        configuration = session.configuration_of(ctx)
    except config.ProjectRefusedError as exc:
        refused = [site_checks.project_refused(exc)]
        configuration = session.configuration_of(ctx, with_project=False)
    checks = [*site_checks.examine(configuration, session.client()), *refused]
    if with_job:
        context = session.open_context(ctx)
        request = node_checks.request(
            configuration, partition=partition, gpus_per_node=gpus_per_node
        )
        try:
            checks += node_checks.run(context, request, timeout_seconds=timeout)
        except errors.SlurmError as exc:
            fix = "fix what Slurm reports, or try another --partition"
            checks.append(site_checks.bad("compute node", str(exc), fix))
    _print_checks(checks, form)


def _print_checks(checks: Sequence[site_checks.Check], form: str) -> None:
    """Print checks. Raises OrchestratorError if one of them failed."""
    from orchestrator.controller.setup import site_checks

    rows = [{"check": check.name, **row_values.fields_of(check, _CHECK_FIELDS)} for check in checks]
    output.print_rows("checks", rows, _CHECK_COLUMNS, form)
    failed = sum(check.outcome == site_checks.BAD for check in checks)
    if failed:
        raise errors.OrchestratorError(f"{failed} of {len(checks)} checks failed")


@commands.command(
    "trust",
    "orchestrator trust .",
    "orchestrator trust --list",
    "orchestrator trust --remove .",
    changes="other",
    when=lambda given: not given["list_"],
    prints=("trusted",),
)
def trust(
    list_: bool = option("--list", "List trusted files."),
    remove: bool = option("--remove", "Stop trusting the file in DIR."),
    form: str | None = options.optional_form,
    folder: str | None = argument(metavar="[DIR]", required=False),
) -> None:
    """Trust a project's orchestrator.toml after you have reviewed it.

    The settings that require trust are printed. A file that is not trusted may only describe jobs:
    account, partition, modules, binds, limits and patterns. A trusted file in DIR may set any key,
    even if other users can write it. Trust ends when the file changes, or when
    a template, pattern file or command that it names changes.
    """
    if (list_ and (remove or folder is not None)) or (not list_ and folder is None):
        raise click.UsageError("name the folder of an orchestrator.toml, or use --list")
    if list_:
        rows = [
            {"path": path, "state": _trust_state(path)}
            for path in trust_records.trusted_files(os.environ)
        ]
        output.print_rows("trusted", rows, _TRUST_COLUMNS, form or output.default_format())
        return
    options.refuse_format(form, {"trust DIR": True})
    path = Path(os.path.realpath(str(folder)), paths.PROJECT_FILE)
    shown_path = escaping.visible(str(path))
    if remove:
        if not trust_records.remove(os.environ, path):
            raise errors.NotFoundError(f"{shown_path} was not trusted")
        output.note(f"{shown_path} is no longer trusted")
        return
    review = projects.review(path, os.environ)
    for key, value in review.settings:
        click.echo(f"{documents.dotted(key)} = {_shown_value(key, value)}")
    for file in review.named:
        click.echo(f"# also trusted: {escaping.visible(str(file))}")
    trust_records.record(os.environ, path, review.digest)
    settings = "with these settings" if review.settings else "(no setting requires trust)"
    output.note(f"Trusted {shown_path} {settings}. Any change to it ends the trust.")


def _trust_state(path: Path) -> str:
    try:
        review = projects.review(path, os.environ)
    except errors.ConfigurationError:
        return "cannot be read"
    return "trusted" if review.digest in trust_records.digests(os.environ, path) else "changed"


def _shown_value(key: key_paths.KeyPath, value: object) -> str:
    if isinstance(value, str):
        if key == ("database",):
            value = config.without_password(value)
        elif key[0] == "notices" and key[-1] == "url":
            value = channels.shown_url(value)
    return schema.as_toml(value, max_characters=None)
