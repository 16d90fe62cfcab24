"""What every command and controller step works with: configuration, database, Slurm, clock."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from orchestrator import config, files, jobs
from orchestrator.clocks import deadlines
from orchestrator.controller.session import stores

if TYPE_CHECKING:
    from orchestrator import nodes, plans, tracking
    from orchestrator.controller.session import callers
    from orchestrator.local.machine import Machine
    from orchestrator.slurm.client import Client


def boot_seconds() -> float:
    """Return the seconds since boot, those of a suspended machine too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clock:
    """The time, and how to let some of it pass."""

    now: Callable[[], datetime.datetime] = lambda: datetime.datetime.now(datetime.UTC)
    #: seconds since boot, which setting the clock does not change
    boot_seconds: Callable[[], float] = boot_seconds
    sleep: Callable[[float], None] = time.sleep
    #: why the time may be wrong; "": it is right; None: not checked (clock_check.py)
    doubt: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reporter:
    """Where messages for people go: stderr, or the controller's log."""

    #: called with the level and a text
    write: Callable[[Literal["info", "warning"], str], None]
    #: surrounds what may take long: activity("Submitting (sbatch)")
    activity: Callable[[str], contextlib.AbstractContextManager[object]] = contextlib.nullcontext

    def info(self, text: str) -> None:
        """Report something that went as expected."""
        self.write("info", text)

    def warn(self, text: str) -> None:
        """Report something that a person should know or act on."""
        self.write("warning", text)

    def once(self) -> Reporter:
        """Return the same reporter, but it writes each text once."""
        written: set[str] = set()

        def write(level: Literal["info", "warning"], text: str) -> None:
            if text not in written:
                written.add(text)
                self.write(level, text)

        return dataclasses.replace(self, write=write)

    def silent(self) -> Reporter:
        return dataclasses.replace(self, write=lambda level, text: None)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Guard:
    """Whether this process may continue. A command that a person started always may."""

    #: call it between two actions; raises passes.Stopped when the controller is to stop, and
    #: FencedError when another controller has the lease
    check: Callable[[], object] = lambda: None
    #: call it right before an action that cannot be undone; reads the lease again. Raises
    #: FencedError, or DatabaseError when the lease cannot be read
    confirm_lease: Callable[[], object] = lambda: None
    #: None: nothing has to be approved. Otherwise agree() calls it: it may raise
    approve: Callable[[Callable[[], plans.Effect]], None] | None = None

    def agree(self, effect: Callable[[], plans.Effect]) -> None:
        """Let a plan be made or applied: call it when all is checked, before anything is changed.

        Only the first call of a command counts; effect: what the command does.
        """
        if self.approve is not None:
            self.approve(effect)


#: a change of jobs: scontrol's command
Change: TypeAlias = Literal["hold", "release", "requeue", "requeuehold"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """What a command or a controller step works with."""

    configuration: config.Configuration
    store: stores.Store
    #: Slurm's commands; `submit` needs only sbatch, and the others load many modules
    slurm_client: Callable[[], Client]
    #: environment and working folder of the command
    environ: Mapping[str, str]
    folder: Path
    reporter: Reporter
    clock: Clock = Clock()
    guard: Guard = Guard()
    #: when to stop reading logs and asking Slurm
    deadline: deadlines.Deadline = deadlines.NEVER
    #: who acts, for the jobs' history
    actor: Literal["user", "controller"] = "user"
    #: by what the user acts, for the jobs' history, if not by a command: "the web page"
    through: str = ""
    #: set if the command and its working tree came from another computer
    carried: callers.Carried | None = None
    #: deferred jobs are not submitted; commands that change something refuse to start
    is_read_only: bool = False
    #: jobs run on this machine, without Slurm
    is_local: bool = False
    #: by cluster and row: a live job, and the rows of squeue that did not change it. The next
    #: refresh skips it if both are the same
    steady_jobs: dict[str, dict[int, tuple[jobs.Job, tuple[tracking.Observation, ...]]]] = (
        dataclasses.field(default_factory=dict)
    )
    #: by cluster: the nodes that jobs are submitted without, and the seconds since boot then
    excluded_nodes: dict[str, tuple[float, list[nodes.Node]]] = dataclasses.field(
        default_factory=dict
    )

    @property
    def calling_folder(self) -> Path:
        """Where jobs start, and where their relative paths begin."""
        return self.folder if self.carried is None else self.carried.start_folder

    @property
    def profile(self) -> config.Profile:
        return self.configuration.profile

    @property
    def slurm(self) -> Client:
        return self.slurm_client()

    @property
    def machine(self) -> Machine:
        """This machine as a scheduler of local jobs."""
        # With Slurm it is not needed, and it loads many modules.
        from orchestrator.local import machine

        return machine.Machine(
            folder=self.configuration.state_dir / "local",
            database=self.configuration.database,
            shared_folders=self.configuration.shared_folders,
        )

    @property
    def scheduler(self) -> Machine | Client:
        """This machine for local jobs, otherwise Slurm."""
        return self.machine if self.is_local else self.slurm

    def with_scheduler(self, scheduler: str) -> Context:
        """Return the context for jobs of this scheduler, "slurm" or "local"."""
        return dataclasses.replace(self, is_local=scheduler == "local")

    def with_reporter(self, reporter: Reporter) -> Context:
        return dataclasses.replace(self, reporter=reporter)

    def event(
        self,
        kind: str,
        detail: str,
        *,
        source: str = "user",
        attempt: int = 0,
        state: jobs.JobState | None = None,
    ) -> jobs.JobEvent:
        """Return an entry for the history of a job, with the present time."""
        at = self.clock.now()
        if source == "user" and self.through:
            source = source_through(self.through)
        return jobs.JobEvent(
            at=at, kind=kind, attempt=attempt, state=state, source=source, detail=detail
        )


def source_through(through: str) -> str:
    """Return the source of an event that the user caused, but not by a command here."""
    return f"user, through {through}"


def by_scheduler(
    context: Context, selected: Iterable[jobs.Job]
) -> Iterator[tuple[Context, list[jobs.Job]]]:
    groups: dict[str, list[jobs.Job]] = {}
    for job in selected:
        groups.setdefault(job.scheduler, []).append(job)
    for scheduler, group in groups.items():
        yield context.with_scheduler(scheduler), group


def scheduler_name(selected: Iterable[jobs.Job]) -> str:
    """Return the subject of a sentence: "Slurm", or "this machine" if all jobs are local."""
    return "Slurm" if any(job.scheduler == "slurm" for job in selected) else "this machine"


def run_folder_exposure(context: Context, run_dir: Path) -> str:
    """Return why the files of a run folder are not trusted: others can change it. "": trusted.

    A folder that does not exist on this host is trusted, as it has no files.
    """
    shared_folders = context.configuration.shared_folders
    try:
        exposure = files.exposure(run_dir, shared_folders=shared_folders)
    except OSError:
        return ""
    return exposure.refusal(run_dir, "runs_dir") if exposure else ""
