"""Session: a configuration, its database and a folder, with which the API works."""

from __future__ import annotations

import contextlib
import datetime
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from orchestrator import config, errors
from orchestrator.api import forks, job_handle, variables
from orchestrator.api.descriptions import Arguments, Flags, Spec, check_count, described
from orchestrator.controller.session import contexts, listing, selection, stores
from orchestrator.controller.submission import job_scripts, requests
from orchestrator.jobs import JobState

if TYPE_CHECKING:
    from orchestrator.api.sweep_handle import Sweep
    from orchestrator.slurm.client import Client

#: What the history of a job says of actions of the API.
_THROUGH = "Python"


class Session:
    """A configuration, its database and a folder.

    The functions of this package use a session of their own. Create one for another profile, other
    folders, or several configurations in one program:

        with orc.Session(profile="olivia") as session:
            job = session.submit("train.toml")

    The configuration is read when the session is created, as the command line reads it, from files
    and ORCHESTRATOR_* variables. A session may be used by several threads, and after a fork: parent
    and child then open their own database connections.
    """

    def __init__(
        self,
        *,
        profile: str | None = None,
        runs_dir: str | os.PathLike[str] | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
        scheduler: Literal["auto", "slurm", "local"] | None = None,
        read_only: bool | None = None,
    ) -> None:
        """Read the configuration.

        Args:
            profile: name of the cluster profile; default: that of the configuration.
            runs_dir: folder of the run folders, which compute nodes must be able to see.
            state_dir: folder of the database.
            folder: where relative paths start and jobs are submitted; default: the current folder.
            scheduler: where jobs run; "auto": Slurm if sbatch is on PATH, otherwise this machine.
            read_only: whether everything that submits, cancels or changes jobs is refused, with
                ConflictError; default: as ORCHESTRATOR_READ_ONLY says.

        Raises:
            errors.ConfigurationError: with all problems of the configuration.
            errors.RequestError: ORCHESTRATOR_READ_ONLY is neither yes nor no.
        """
        self._folder = Path.cwd() if folder is None else Path(folder).absolute()
        overrides = {
            "profile": profile,
            "runs_dir": None if runs_dir is None else os.fspath(runs_dir),
            "state_dir": None if state_dir is None else os.fspath(state_dir),
            "scheduler": scheduler,
        }
        configuration = config.load(os.environ, self._folder, overrides)
        if read_only is None:
            read_only = variables.is_read_only(os.environ)
        self._is_read_only = read_only
        self._store = stores.of(configuration)
        forks.GATE.close_before_fork(self._store)
        # Python 3.13 warns of connections that nobody closed.
        self._close = weakref.finalize(self, _close, self._store)
        self._configuration = configuration
        reporter = _logging_reporter()
        for note in configuration.notes:
            reporter.info(note)
        self._reporter = reporter

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Session of {self._folder}, database {self._store.shown_name}>"

    def __reduce__(self) -> str:
        raise TypeError(
            "sessions, jobs and sweeps cannot be pickled: pass job.row, and use orc.job(f'@{row}')"
        )

    def close(self) -> None:
        """Close the database connections; the next use opens new ones."""
        _close(self._store)

    @property
    def folder(self) -> Path:
        """The folder in which relative paths start and jobs are submitted."""
        return self._folder

    @contextlib.contextmanager
    def context(self, action: str = "") -> Iterator[contexts.Context]:
        """Yield what one call works with; do not yield to the caller of the API within it.

        Errors of damaged rows are explained. Other threads may fork only while the clock sleeps.
        action: what the call changes; ConflictError if the session is read-only.
        """
        if action and self._is_read_only:
            raise errors.ConflictError(
                f"{action} changes something, and read_only or ORCHESTRATOR_READ_ONLY forbids it. "
                "Nothing was done."
            )
        context = contexts.Context(
            configuration=self._configuration,
            store=self._store,
            slurm_client=_client,
            environ=os.environ,
            folder=self._folder,
            reporter=self._reporter.once(),
            clock=contexts.Clock(sleep=_sleep),
            through=_THROUGH,
            is_read_only=self._is_read_only,
        )
        with forks.GATE.calling(), self._store.explained():
            yield context

    def submit(
        self,
        spec: Spec | None = None,
        *,
        set: Mapping[str, object] | None = None,
        args: Arguments | None = None,
        arguments: Sequence[str] = (),
        like: str | int | job_handle.Job | None = None,
        snapshot: bool | None = None,
        queue: bool | None = None,
        **flags: Unpack[Flags],
    ) -> job_handle.Job:
        """Submit a job exactly once, as `orchestrator submit` does.

        The submission is stored before sbatch runs. If the reply of sbatch is lost, orchestrator
        finds the job in Slurm; it never submits a second one.

        Args:
            spec: path of a spec (`train.toml`), of a batch file (`train.sbatch`) or of a program
                (`train.py`); the words of a command line (`["python", "-m", "train"]`); or the keys
                of a spec, as nested mappings.
            set: keys of the spec by dotted name: `{"resources.nodes": 2}`. "" or {} removes a key.
            args: keys of the table [args], the arguments of the program: `{"lr": 0.1}` is --lr 0.1.
            arguments: words that are passed to the program after its other arguments: a list.
            like: submit a job like this one, with the same spec, folder and snapshot; the other
                arguments change it. Without `spec`.
            snapshot: whether the job runs a snapshot of the code, taken now; default: as the spec
                or the profile says.
            queue: whether the job is deferred if Slurm refuses it for now, and submitted later;
                default: as the profile says.
            flags: the options of `orchestrator submit`, with `_` for `-`: `nodes=2`,
                `time_limit="1:00:00"`, `labels=["team=vision"]`.

        Raises:
            errors.RequestError: the spec is missing, or arguments contradict each other.
            errors.SpecError: with all problems of the spec; nothing was submitted.
            errors.SlurmError: Slurm refused the job or did not answer; the message says which.
            errors.ConflictError: the job could never run.
        """
        description = described(self._folder, spec, set, args, arguments, flags)
        with self.context("submit") as context:
            is_moved = False
            if like is not None:
                is_moved = "job.chdir" in description.flags
                tasks = like.read() if isinstance(like, job_handle.Job) else None
                tasks = tasks or selection.jobs_of(context, str(like))
                context, request = requests.like(context, tasks, description, snapshot)
            else:
                request = self._request(context, description.with_snapshot(snapshot))
            # It imports everything that submits.
            from orchestrator.controller.submission import submit

            submitted = submit.submit_requested(context, request, queue=queue, is_moved=is_moved)
        return job_handle.Job(self, [job.row for job in submitted], submitted)

    def render(
        self,
        spec: Spec,
        *,
        set: Mapping[str, object] | None = None,
        args: Arguments | None = None,
        arguments: Sequence[str] = (),
        snapshot: bool | None = None,
        **flags: Unpack[Flags],
    ) -> str:
        """Return the batch script that `submit` would pass to sbatch, byte for byte.

        The parameters are those of `submit`. Slurm is not needed.

        Raises:
            errors.RequestError, errors.SpecError: as `submit`.
        """
        description = described(self._folder, spec, set, args, arguments, flags)
        with self.context() as context:
            request = self._request(context, description.with_snapshot(snapshot))
            return job_scripts.as_submitted(context.configuration, request, context.environ)

    def _request(
        self, context: contexts.Context, description: requests.Description
    ) -> job_scripts.Request:
        return requests.request(description, context.configuration, context.reporter.info)

    def jobs(
        self,
        *references: str | int,
        state: Sequence[str] | str = (),
        name: Sequence[str] | str = (),
        label: Sequence[str] | str = (),
        partition: Sequence[str] | str = (),
        sweep: Sequence[str] | str = (),
        since: datetime.datetime | None = None,
        all: bool = False,
        limit: int | None = 100,
        refresh: bool | None = None,
    ) -> list[job_handle.Job]:
        """Return jobs, newest first, as `orchestrator status` lists them.

        By default these are live jobs and jobs that ended within the last day. Each array task is a
        job of its own.

        Args:
            references: only these: 123, "123_4", "@7" or a name.
            state: only these states, in Slurm's long or short form: ["RUNNING", "PD"].
            name: only jobs with this name, or one of these names.
            label: only jobs with this label, "team=vision", or with all of these.
            partition: only these partitions.
            sweep: only jobs of sweeps with this name, or of one sweep, "@3".
            since: only jobs submitted since then; a time without time zone is local time.
            all: also jobs that ended more than a day ago.
            limit: at most so many, the newest ones; None: all.
            refresh: query Slurm now (True) or not at all (False); default: if the stored state is
                older than the profile's poll_floor_seconds.

        Raises:
            errors.NotFoundError: there is no job or sweep with such a reference.
            errors.DamagedRowError: a row of the database is damaged.
        """
        check_count("limit", limit)
        named = [str(reference) for reference in references]
        shown = listing.Filter(
            references=named,
            states=[_state(word) for word in _words(state)],
            names=_words(name),
            labels=_words(label),
            partitions=_words(partition),
            sweeps=_words(sweep),
            since=None if since is None else since.astimezone(datetime.UTC),
            all=all,
        )
        with self.context() as context:
            from orchestrator.controller.refresh import on_demand

            on_demand.refresh(context, refresh)
            listed = listing.read(context, named, shown.query(context, limit))
        if listed.damage:
            raise listed.damage[0]
        return [job_handle.Job(self, [job.row], [job]) for job in listed.jobs]

    def job(self, reference: str | int) -> job_handle.Job:
        """Return the job that a reference names; of an array, all its tasks.

        Args:
            reference: a job ID (123, "123_4", "local-7"), a row ("@7") or a name, which means the
                newest job with it.

        Raises:
            errors.NotFoundError: there is no such job.
            errors.ConflictError: several live jobs have the name.
        """
        with self.context() as context:
            tasks = selection.jobs_of(context, str(reference))
        return job_handle.Job(self, [job.row for job in tasks], tasks)

    def sweep(
        self,
        spec: str | os.PathLike[str] | Mapping[str, Any],
        *,
        set: Mapping[str, object] | None = None,
        args: Arguments | None = None,
        arguments: Sequence[str] = (),
        snapshot: bool | None = None,
        yes: bool = False,
        **flags: Unpack[Flags],
    ) -> Sweep:
        """Submit all points of a sweep, each exactly once; or return a sweep that was submitted.

        Args:
            spec: path of a spec with a table [sweep] (`sweep.toml`), or its keys as nested
                mappings. Any other text is the name of a submitted sweep, the newest one with it,
                or its row ("@3"); nothing is submitted then.
            set, args, arguments, snapshot, flags: as for `submit`.
            yes: submit without confirmation also above the profile's confirm_points and
                confirm_gpu_hours (GPU-hours of all points together).

        Raises:
            errors.NotFoundError: there is no sweep with this name.
            errors.RequestError: confirmation is required, or changes are given with a name.
            errors.SpecError: with all problems of the spec; nothing was submitted.
            errors.ConflictError: a sweep with this name is not finished.
            errors.SlurmError: Slurm refused a job or did not answer; `resume` submits the others.
        """
        from orchestrator.api import sweep_handle
        from orchestrator.controller.sweeps import plan, queries, submit_points

        description = described(self._folder, spec, set, args, arguments, flags)
        description = description.with_snapshot(snapshot)
        is_stored = isinstance(spec, str) and not spec.endswith(".toml")
        with self.context("" if is_stored else "sweep") as context:
            if isinstance(spec, str) and is_stored:
                if set or args or arguments or flags or snapshot is not None:
                    raise errors.RequestError(f"{spec} is no spec file, so nothing can be changed")
                return sweep_handle.Sweep(self, queries.find(context, spec))
            sweep, source, prepared = plan.described(context, description)
            if (reason := plan.needs_consent(prepared)) and not yes:
                raise errors.RequestError(f"{reason}: confirm with yes=True")
            submitted = submit_points.submit_new(prepared, sweep, source)
        return sweep_handle.Sweep(self, submitted.sweep)


def _close(store: stores.Store) -> None:
    # A fork in the middle would give the child connections that are half closed.
    with forks.GATE.calling():
        store.close()


def current() -> Session:
    """Return the session of this thread for the current folder; it is created at its first use."""
    folder = _current_folder()
    session: Session | None = getattr(_SESSIONS, "session", None)
    if session is None or session.folder != folder:
        session = _SESSIONS.session = Session(folder=folder)
    return session


#: The session of each thread, for the functions of this package.
_SESSIONS = threading.local()


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as exc:
        raise errors.OrchestratorError(
            f"the current folder cannot be used ({exc.strerror}); change to another one"
        ) from exc


def _sleep(seconds: float) -> None:
    with forks.GATE.pausing():
        time.sleep(seconds)


def _client() -> Client:
    from orchestrator.slurm import client
    from orchestrator.slurm import variables as of_slurm

    return client.Client(environ=of_slurm.for_queries(os.environ))


def _logging_reporter() -> contexts.Reporter:
    import logging

    logger = logging.getLogger("orchestrator")

    def write(level: Literal["info", "warning"], text: str) -> None:
        logger.log(logging.WARNING if level == "warning" else logging.INFO, "%s", text)

    return contexts.Reporter(write=write)


def _words(given: Sequence[str] | str) -> Sequence[str]:
    return (given,) if isinstance(given, str) else given


def _state(word: str) -> JobState:
    from orchestrator.slurm import states

    try:
        return states.named(word)
    except ValueError as error:
        raise errors.RequestError(str(error)) from None
