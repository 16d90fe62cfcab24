"""doctor: what sites and users often get wrong, each with its cure."""

from __future__ import annotations

import datetime
import functools
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import orchestrator
from orchestrator import config, errors, fabrics, files
from orchestrator.config import projects
from orchestrator.controller.service import health
from orchestrator.controller.session import stores
from orchestrator.controller.submission import job_scripts
from orchestrator.local import slots
from orchestrator.slurm.client import Client
from orchestrator.text import escaping, nouns

OK, WARNING, BAD = "ok", "warning", "bad"
COMMANDS = ("sbatch", "squeue", "sacct", "scontrol", "scancel", "srun")
_CONTAINER_PROGRAMS = ("apptainer", "singularity", "podman-hpc", "ch-run")
#: Their names, for messages.
RUNTIMES = "apptainer, singularity, podman-hpc or ch-run"
_MIN_FREE_BYTES = 100 * 1024 * 1024
_LOCAL = "set state_dir to a folder on a local disk that you can write"
_SHOW = "`orchestrator serve --status` shows more; nothing to do if you need no controller"
#: Number of named rows of a damaged database.
_MAX_PROBLEMS = 5


class Check(NamedTuple):
    #: ok, warning or bad
    outcome: str
    name: str
    found: str
    #: what to do about it; "" if nothing
    cure: str = ""


ok = functools.partial(Check, OK)
warning = functools.partial(Check, WARNING)
bad = functools.partial(Check, BAD)


def examine(configuration: config.Configuration, client: Client) -> Iterator[Check]:
    """Yield the checks; later ones build on earlier ones."""
    yield ok("orchestrator", orchestrator.__version__)
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if job_scripts.is_local(configuration, os.environ):
        yield _machine(configuration, missing)
        yield from localhost(socket.getaddrinfo)
    elif missing:
        cure = "work on a login node, or load the module that provides Slurm"
        yield bad("slurm commands", f"not on PATH: {', '.join(missing)}", cure)
    else:
        yield ok("slurm commands", "all on PATH")
        yield from _slurm(client)
    shared = "set runs_dir to a folder on a shared file system that you can write"
    yield _folder(configuration, "runs_dir", configuration.runs_dir, shared)
    yield _folder(configuration, "state_dir", configuration.state_dir, _LOCAL)
    if (templates_dir := configuration.templates_dir) is not None:
        exposed = _exposed(configuration, "templates_dir", templates_dir)
        yield exposed or ok("templates_dir", str(templates_dir))
    yield from _stored(configuration)
    yield _container()
    if configuration.profile.fabric:
        yield _fabric(configuration)
    if (project := configuration.project) is not None:
        if project.ignored:
            yield warning("project file", project.ignored, project.cure)
        else:
            yield ok("project file", f"{escaping.visible(str(project.path))}, {project.standing}")


def project_refused(error: config.ProjectRefusedError) -> Check:
    """Return the check of a project's file that every other command refuses."""
    found = f"{escaping.visible(str(error.path))} is refused: it sets {', '.join(error.refused)}"
    trust = f"review the file and run `{projects.command(error.path)}`"
    return bad("project file", found, f"move these keys to your own configuration, or {trust}")


def _machine(configuration: config.Configuration, missing: Sequence[str]) -> Check:
    available = slots.find(os.environ, count=configuration.profile.local_slots)
    number = len(available.devices)
    capacity = nouns.count(number, "GPU") if available.are_gpus else f"{number} at a time, no GPU"
    found = f"jobs run on this machine: {capacity}"
    if configuration.profile.scheduler == "local":
        return ok("scheduler", found)
    cure = "for a cluster: work on a login node, or load the module that provides Slurm"
    return warning("scheduler", f"{found}; not on PATH: {', '.join(missing)}", cure)


def localhost(resolve: Callable[[str, None], object]) -> Iterator[Check]:
    """Yield a check if the name `localhost` has no address.

    Seen in a root that debootstrap made: `torchrun --standalone` waits four minutes for it.
    """
    try:
        resolve("localhost", None)
    except OSError as exc:
        found = f"has no address ({exc.strerror}), and torchrun --standalone needs one"
        yield bad("localhost", found, "as root: echo '127.0.0.1 localhost' >> /etc/hosts")


def _slurm(client: Client) -> Iterator[Check]:
    try:
        facts = client.config()
    except errors.SlurmError as exc:
        cure = "wait or ask your administrators; stored jobs are safe and shown as stale"
        yield bad("slurmctld", str(exc), cure)
        return
    yield ok("slurmctld", f"cluster {facts.cluster_name}, Slurm {facts.slurm_version}")
    if not facts.accounting:
        cure = "nothing to do: ends of jobs come from squeue and the scripts' exit records"
        found = "this cluster has no accounting (accounting_storage/none)"
        yield warning("accounting", found, cure)
        return
    try:
        client.accounting_ping()
    except errors.SlurmError as exc:
        cure = "states come from squeue meanwhile; exit codes follow when sacct answers"
        yield warning("accounting", str(exc), cure)
    else:
        yield ok("accounting", "sacct answers")


def _exposed(configuration: config.Configuration, name: str, path: Path) -> Check | None:
    """Return the check if another user can change a folder; else None."""
    try:
        exposure = files.exposure(path, shared_folders=configuration.shared_folders)
    except OSError as exc:
        found = f"{path}: {exc.filename} cannot be examined ({exc.strerror})"
        return bad(name, found, f"set {name} to a folder that you can read")
    return None if exposure is None else bad(name, f"{path}: {exposure}", exposure.advice(name))


def _folder(configuration: config.Configuration, name: str, path: Path, cure: str) -> Check:
    if exposed := _exposed(configuration, name, path):
        return exposed
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        return bad(name, f"{path}: {existing} cannot be written", cure)
    free_bytes = shutil.disk_usage(existing).free
    if free_bytes < _MIN_FREE_BYTES:
        cure = "free disk space: logs and checkpoints are written there"
        return bad(name, f"{path}: {free_bytes // 2**20} MiB free", cure)
    return ok(name, f"{path}, {free_bytes // 2**30} GiB free")


def _stored(configuration: config.Configuration) -> Iterator[Check]:
    """Yield the checks of the database, and of the controller and the notices stored in it."""
    try:
        with stores.of(configuration) as store:
            yield _database(store)
            yield from _controller(store, configuration)
            yield from _notices(store, configuration)
    except errors.NewerDatabaseError as exc:
        yield bad("database", str(exc), "use the newer version of orchestrator")
    except errors.OrchestratorError as exc:
        is_file = configuration.database.startswith("sqlite:")
        yield bad("database", str(exc), _LOCAL if is_file else "docs/howto/postgresql.md")
        newest = health.load(configuration.state_dir)
        if message := health.late_message(newest, datetime.datetime.now(datetime.UTC)):
            yield warning("controller", message, _SHOW)


def _database(store: stores.Store) -> Check:
    problems = store.check()
    found = f"{store.shown_name} ({store.describe()})"
    if not problems:
        return ok("database", found)
    cure = "`orchestrator db check` lists all; `orchestrator db restore` restores a backup"
    return bad("database", "; ".join(map(str, problems[:_MAX_PROBLEMS])), cure)


def _controller(store: stores.Store, configuration: config.Configuration) -> Iterator[Check]:
    """Yield the health of the controller, if it ever ran."""
    state = health.examine(store, configuration.state_dir, datetime.datetime.now(datetime.UTC))
    if state.newest is None:
        return
    if state.problems:
        yield warning("controller", " ".join(state.problems), _SHOW)
        return
    at = state.newest.last_pass_at.astimezone()
    who = f"`{state.newest.command}` on {state.newest.host}"
    yield ok("controller", f"{who}, last pass at {at:%Y-%m-%d %H:%M:%S}")


def _notices(store: stores.Store, configuration: config.Configuration) -> Iterator[Check]:
    """Yield the state of notifications, if there are or were channels."""
    with store.reading() as work:
        counts = work.notices.counts()
    failed = [f"{n} by {name}" for (name, state), n in counts.items() if state == "failed"]
    unsent = sum(n for (_, state), n in counts.items() if state in ("waiting", "sending"))
    if failed:
        cure = "`orchestrator notices list --unsent` shows why, `notices retry` sends them again"
        yield warning("notices", f"given up after a day: {', '.join(failed)}", cure)
    elif configuration.notices:
        names = ", ".join(configuration.notices)
        yield ok("notices", f"sent by {names}" + (f"; {unsent} not sent yet" if unsent else ""))


def _fabric(configuration: config.Configuration) -> Check:
    name, fabric = "fabric of profile", configuration.profile.fabric or ""
    try:
        found = fabrics.load(fabric, configuration.fabric_folders, configuration.shared_folders)
    except errors.SpecError as exc:
        # Without the lines of the file.
        problems = "; ".join(str(problem).partition("\n")[0] for problem in exc.problems)
        cure = f"change that file, or profiles.{configuration.profile.name}.fabric"
        return bad(name, problems.removeprefix("environment.fabric: "), cure)
    return ok(name, f"{found.name} ({found.origin})")


def _container() -> Check:
    paths = [path for name in _CONTAINER_PROGRAMS if (path := shutil.which(name))]
    if paths:
        # `singularity` may be a link to apptainer.
        first = {os.path.realpath(path): path for path in reversed(paths)}
        return ok("container", ", ".join(reversed(first.values())))
    cure = "only needed for specs with [container]; it may exist only on compute nodes"
    return warning("container", f"not on PATH here: {RUNTIMES}", cure)
