"""doctor: what a site or a user gets wrong, each with its cure."""

from __future__ import annotations

import dataclasses
import datetime
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orchestrator
from orchestrator import config, errors, files
from orchestrator.config import projects
from orchestrator.controller.service import health
from orchestrator.controller.session import stores
from orchestrator.controller.submission import render
from orchestrator.local import slots
from orchestrator.slurm.client import Client
from orchestrator.text import escaping

OK, WARNING, BAD = "ok", "warning", "bad"
_PROJECT_FILE = "project file"
COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "srun")
#: Of a damaged database so many rows are named.
_MOST_PROBLEMS = 5


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    #: ok, warning or bad
    outcome: str
    #: what was found
    found: str
    #: what to do about it; "" when nothing
    cure: str = ""


def examine(configuration: config.Configuration, client: Client) -> Iterator[Check]:
    """Yield the checks in the order in which things build on one another."""
    yield Check(name="orchestrator", outcome=OK, found=orchestrator.__version__)
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if render.is_local(configuration, os.environ):
        yield _machine(configuration, missing)
        yield from localhost(socket.getaddrinfo)
    elif missing:
        yield Check(
            name="slurm commands",
            outcome=BAD,
            found=f"not on PATH: {', '.join(missing)}",
            cure="work on a login node, or load the module that brings Slurm",
        )
    else:
        yield Check(name="slurm commands", outcome=OK, found="all on PATH")
        yield from _slurm(client)
    yield _folder(
        configuration,
        "runs_dir",
        configuration.runs_dir,
        "set runs_dir to a folder on a shared file system that you can write",
    )
    yield _folder(
        configuration,
        "state_dir",
        configuration.state_dir,
        "set state_dir to a folder on a local disk that you can write",
    )
    if configuration.templates_dir is not None:
        yield _templates(configuration, configuration.templates_dir)
    yield from _database(configuration)
    yield from _controller(configuration)
    yield from _notices(configuration)
    yield _container()
    if configuration.project is not None:
        yield _project(configuration.project)


def _project(project: config.Project) -> Check:
    if project.ignored:
        return Check(name=_PROJECT_FILE, outcome=WARNING, found=project.ignored, cure=project.cure)
    found = f"{escaping.visible(str(project.path))}, {project.standing}"
    return Check(name=_PROJECT_FILE, outcome=OK, found=found)


def project_refused(error: config.ProjectRefusedError) -> Check:
    """Return what to say of a project's file that every other command refuses."""
    return Check(
        name=_PROJECT_FILE,
        outcome=BAD,
        found=f"{escaping.visible(str(error.path))} is refused: it sets {', '.join(error.refused)}",
        cure="move these to your own configuration, or review the file and run "
        f"`{projects.command(error.path)}`",
    )


def _machine(configuration: config.Configuration, missing: Sequence[str]) -> Check:
    available = slots.find(os.environ, count=configuration.profile.local_slots)
    count = len(available.devices)
    many = "" if count == 1 else "s"
    found = f"jobs run on this machine: {count} {'GPU' if available.are_gpus else 'at a time'}"
    found += f"{many}" if available.are_gpus else ", no GPU"
    if configuration.profile.scheduler == "local":
        return Check(name="scheduler", outcome=OK, found=found)
    return Check(
        name="scheduler",
        outcome=WARNING,
        found=f"{found}; not on PATH: {', '.join(missing)}",
        cure="for a cluster: work on a login node, or load the module that brings Slurm",
    )


def localhost(resolve: Callable[[str, None], object]) -> Iterator[Check]:
    """Yield a check where the name `localhost` has no address, else nothing.

    Seen in a root that debootstrap made: `torchrun --standalone` waits four minutes for it.
    """
    try:
        resolve("localhost", None)
    except OSError as exc:
        yield Check(
            name="localhost",
            outcome=BAD,
            found=f"has no address ({exc.strerror}), and torchrun --standalone needs one",
            cure="as root: echo '127.0.0.1 localhost' >> /etc/hosts",
        )


def _slurm(client: Client) -> Iterator[Check]:
    try:
        facts = client.config()
    except errors.SlurmError as exc:
        yield Check(
            name="slurmctld",
            outcome=BAD,
            found=str(exc),
            cure="wait or ask your administrators; stored jobs are safe and shown as stale",
        )
        return
    yield Check(
        name="slurmctld",
        outcome=OK,
        found=f"cluster {facts.cluster_name}, Slurm {facts.slurm_version}",
    )
    if not facts.accounting:
        yield Check(
            name="accounting",
            outcome=WARNING,
            found="this cluster keeps no accounts (accounting_storage/none)",
            cure="nothing to do: ends are told by squeue and by the scripts' exit records",
        )
        return
    try:
        client.accounting_ping()
    except errors.SlurmError as exc:
        yield Check(
            name="accounting",
            outcome=WARNING,
            found=str(exc),
            cure="states come from squeue meanwhile; exit codes are filled in when sacct answers",
        )
        return
    yield Check(name="accounting", outcome=OK, found="sacct answers")


def _exposed(configuration: config.Configuration, name: str, path: Path) -> Check | None:
    """Return what to do where another user can change a folder; None where nobody can."""
    try:
        found = files.exposure(path, shared_folders=configuration.shared_folders)
    except OSError as exc:
        return Check(
            name=name,
            outcome=BAD,
            found=f"{path}: {exc.filename} cannot be examined ({exc.strerror})",
            cure=f"set {name} to a folder that you can read",
        )
    if found is None:
        return None
    return Check(name=name, outcome=BAD, found=f"{path}: {found}", cure=found.advice(name))


def _templates(configuration: config.Configuration, path: Path) -> Check:
    exposed = _exposed(configuration, "templates_dir", path)
    return exposed or Check(name="templates_dir", outcome=OK, found=str(path))


def _folder(configuration: config.Configuration, name: str, path: Path, cure: str) -> Check:
    exposed = _exposed(configuration, name, path)
    if exposed is not None:
        return exposed
    there = path
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        return Check(name=name, outcome=BAD, found=f"{path}: {there} cannot be written", cure=cure)
    free_bytes = shutil.disk_usage(there).free
    if free_bytes < 100 * 1024 * 1024:
        return Check(
            name=name,
            outcome=BAD,
            found=f"{path}: {free_bytes // 2**20} MiB free",
            cure="make room: logs and checkpoints go there",
        )
    return Check(name=name, outcome=OK, found=f"{path}, {free_bytes // 2**30} GiB free")


def _database(configuration: config.Configuration) -> Iterator[Check]:
    try:
        store = stores.of(configuration)
        try:
            problems = store.check()
            found = store.describe()
        finally:
            store.close()
    except errors.NewerDatabaseError as exc:
        cure = "use the newer version of orchestrator"
        yield Check(name="database", outcome=BAD, found=str(exc), cure=cure)
        return
    except errors.OrchestratorError as exc:
        cure = "set state_dir to a folder on a local disk that you can write"
        if not configuration.database.startswith("sqlite:"):
            cure = "docs/howto/postgresql.md"
        yield Check(name="database", outcome=BAD, found=str(exc), cure=cure)
        return
    if problems:
        yield Check(
            name="database",
            outcome=BAD,
            found="; ".join(map(str, problems[:_MOST_PROBLEMS])),
            cure="`orchestrator db check` lists all; `orchestrator db restore` puts a backup back",
        )
        return
    yield Check(name="database", outcome=OK, found=f"{store.shown_name} ({found})")


def _controller(configuration: config.Configuration) -> Iterator[Check]:
    """Yield how the controller is, where there ever was one."""
    now = datetime.datetime.now(datetime.UTC)
    try:
        with stores.of(configuration) as store:
            found = health.examine(store, configuration.state_dir, now)
    except errors.OrchestratorError:
        # The database's own check tells it.
        return
    if found.newest is None:
        return
    if found.problems:
        cure = "`orchestrator serve --status` tells more; where none is wanted, nothing"
        yield Check(name="controller", outcome=WARNING, found=" ".join(found.problems), cure=cure)
        return
    at = found.newest.last_pass_at.astimezone()
    told = f"`{found.newest.command}` on {found.newest.host}, last pass at {at:%Y-%m-%d %H:%M:%S}"
    yield Check(name="controller", outcome=OK, found=told)


def _notices(configuration: config.Configuration) -> Iterator[Check]:
    """Yield what becomes of notices, where there are channels or were some."""
    try:
        with stores.of(configuration) as store, store.reading() as work:
            counts = work.notices.counts()
    except errors.OrchestratorError:
        # The database's own check tells it.
        return
    failed = {name: n for (name, state), n in counts.items() if state == "failed"}
    waiting = sum(n for (_, state), n in counts.items() if state in ("waiting", "sending"))
    names = ", ".join(configuration.notices)
    if failed:
        told = ", ".join(f"{n} by {name}" for name, n in failed.items())
        yield Check(
            name="notices",
            outcome=WARNING,
            found=f"given up after a day: {told}",
            cure="`orchestrator notices list --unsent` says why, `notices retry` sends them again",
        )
    elif names:
        found = f"told by {names}" + (f"; {waiting} not sent yet" if waiting else "")
        yield Check(name="notices", outcome=OK, found=found)


def _container() -> Check:
    for runtime in ("apptainer", "singularity"):
        path = shutil.which(runtime)
        if path is not None:
            return Check(name="container", outcome=OK, found=path)
    return Check(
        name="container",
        outcome=WARNING,
        found="neither apptainer nor singularity is on PATH here",
        cure="only needed for specs with [container]; it may exist on compute nodes alone",
    )
