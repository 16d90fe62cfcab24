"""What the verbs work with, given to each of them: configuration, store, Slurm, clock."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import math
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from orchestrator import config, errors, files, jobs, local
from orchestrator.clocks import deadlines
from orchestrator.controller.session import stores
from orchestrator.local import clocks
from orchestrator.tracking import run_folder

if TYPE_CHECKING:
    from orchestrator import tracking
    from orchestrator.controller.refresh import cache as heard
    from orchestrator.slurm import Client, Steps
    from orchestrator.usage import efficiency

#: Facts of a cluster change with its upgrade; they are asked for again after a day.
FACTS_MAX_AGE_SECONDS = 24 * 3600
#: An accepted job may surface in Slurm this late (facts: sbatch's own retries take 120 s).
MIN_GRACE_SECONDS = 120.0
#: sbatch's own retries take up to 120 s (its "sleeping and retrying"), plus connecting.
SBATCH_TIMEOUT_SECONDS = 180.0
#: Index of an array's last task, and one more: each task is a file or two of some 1 KB.
MAX_LOCAL_ARRAY_SIZE = 10_001


def utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def go_on() -> None:
    """Let a command that a person called go on: nobody stops it, and nobody takes over from it."""


def in_silence(doing: str) -> contextlib.AbstractContextManager[None]:
    return contextlib.nullcontext()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """What `scontrol show config` says of the cluster, kept in the database for a day."""

    #: ClusterName
    cluster: str
    slurm_version: str
    message_timeout_seconds: int
    min_job_age_seconds: int
    max_array_size: int
    #: false: accounting_storage/none; sacct is not asked
    accounting: bool
    #: AccountingStorageTRES has gres/gpu
    counts_gpus: bool
    asked_at: datetime.datetime


class Scheduler(Protocol):
    """What is asked of Slurm about jobs, and of this machine about local ones."""

    def squeue(self, keep: Callable[[str, str, str], bool], /) -> list[tracking.Observation]: ...
    def sacct(
        self, job_ids: Sequence[str], since: datetime.datetime, /
    ) -> list[tracking.Observation]: ...
    def by_name(
        self, names: Sequence[str], since: datetime.datetime, /
    ) -> list[tracking.Observation]: ...
    def steps(self, job_ids: Sequence[str], since: datetime.datetime, /) -> Mapping[str, Steps]: ...
    def used(
        self,
        job_id: str,
        submitted_at: datetime.datetime | None,
        since: datetime.datetime,
        /,
    ) -> efficiency.Used | None: ...
    def cancel(self, job_id: str, name: str, /) -> None: ...
    def hold(self, job_ids: Sequence[str], /) -> dict[str, str]: ...
    def release(self, job_ids: Sequence[str], /) -> dict[str, str]: ...
    def requeue(self, job_ids: Sequence[str], /, *, hold: bool = False) -> dict[str, str]: ...
    def show_job(self, job_id: str, /) -> dict[str, str] | None: ...
    def show_job_text(self, job_id: str, /) -> str | None: ...


@dataclasses.dataclass(kw_only=True)
class Memory:
    """What stays for the next submission in a process that submits job after job."""

    sync: run_folder.Syncer = dataclasses.field(default_factory=run_folder.Syncer)
    #: of the database
    installation_id: str | None = None
    #: sbatch is started ahead of its script; not where that was in vain
    ahead: bool = True
    #: it was said which of the caller's variables are not stored
    said_left_out: bool = False
    #: by their key in the database
    facts: dict[str, ClusterFacts] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """Everything a verb needs from outside."""

    configuration: config.Configuration
    store: stores.Store
    #: returns one and the same
    client: Callable[[], Client]
    #: the caller's environment
    environ: Mapping[str, str]
    #: where the command was called
    folder: Path
    #: talk for a person, on stderr: what is to be known or is wrong
    say: Callable[[str], None]
    #: gets what went as it should, for who tells it from the rest; none: `say` gets it
    news: Callable[[str], None] | None = None
    clock: Callable[[], datetime.datetime] = utc_now
    #: seconds since boot, which no setting of the clock changes
    boot_clock: Callable[[], float] = clocks.boot_seconds
    #: why the clock is in doubt, "": it is trusted; None: it was not checked (clock_check.py)
    clock_doubt: str | None = None
    #: how a process waits between two looks, seconds
    sleep: Callable[[float], None]
    #: surrounds what may take long; its argument says what is done: "Submitting (sbatch)"
    waiting: Callable[[str], contextlib.AbstractContextManager[None]] = in_silence
    #: called between two things that are done; raises where nothing more may be begun, because the
    #: controller is to stop (passes.Stopped) or another one acts (errors.FencedError)
    proceed: Callable[[], None] = go_on
    #: called right before a command is started that cannot be taken back, sbatch; raises
    #: FencedError where another controller acts, and DatabaseError where that cannot be known
    confirm: Callable[[], None] = go_on
    #: after which sbatch is given up and its answer counts as unknown
    sbatch_timeout_seconds: float = SBATCH_TIMEOUT_SECONDS
    #: what the last refresh heard, for who refreshes again and again
    heard: heard.Heard | None = None
    #: who submits, in the histories of jobs: user, controller
    who: str = "user"
    #: jobs are those of this machine, not Slurm's
    is_local: bool = False
    #: after which no more is read of logs, and no more asked of Slurm
    deadline: deadlines.Deadline = deadlines.NEVER
    memory: Memory = dataclasses.field(default_factory=Memory, compare=False)

    @property
    def profile(self) -> config.Profile:
        return self.configuration.profile

    @property
    def slurm(self) -> Client:
        """Return Slurm as this user sees it."""
        return self.client()

    @property
    def machine(self) -> local.Machine:
        return local.Machine(
            folder=self.configuration.state_dir / "local",
            keeping=local.Keeping(
                module="orchestrator.controller.keeper", database=self.configuration.database
            ),
            shared_folders=self.configuration.shared_folders,
        )

    @property
    def scheduler(self) -> Scheduler:
        """Return who is asked about jobs."""
        return self.machine if self.is_local else self.slurm

    def tell(self, text: str) -> None:
        """Say what went as it should, which nobody has to do anything about."""
        (self.news or self.say)(text)

    def grace_seconds(self, facts: ClusterFacts) -> float:
        """Return how long a job may be unknown to Slurm before that means something."""
        if self.is_local:
            # A submission that reached this machine lies in its spool at once.
            return 0.0
        if self.clock_doubt:
            # Nothing is given up for lost by a clock that leapt.
            return math.inf
        configured = self.profile.submit_grace_seconds
        if configured is not None:
            return float(configured)
        return max(3.0 * facts.message_timeout_seconds, MIN_GRACE_SECONDS)


def exposure(context: Context, run_dir: Path) -> str:
    """Return why nothing in a run folder decides anything: others can change it. "": nobody can.

    One that is not seen from here holds nothing.
    """
    shared_folders = context.configuration.shared_folders
    try:
        found = files.exposure(run_dir, shared_folders=shared_folders)
    except OSError:
        return ""
    return found.refusal(run_dir, "runs_dir") if found else ""


def at(context: Context, scheduler: str) -> Context:
    """Return the context of a job's scheduler, "slurm" or "local"."""
    return dataclasses.replace(context, is_local=scheduler == "local")


def apart(context: Context, wanted: Iterable[jobs.Job]) -> Iterator[tuple[Context, list[jobs.Job]]]:
    """Yield the jobs of each scheduler with its context."""
    groups: dict[str, list[jobs.Job]] = {}
    for job in wanted:
        groups.setdefault(job.scheduler, []).append(job)
    for scheduler, some in groups.items():
        yield at(context, scheduler), some


def asked(wanted: Iterable[jobs.Job]) -> str:
    """Return who is asked about these jobs, for a sentence."""
    return "Slurm" if any(job.scheduler == "slurm" for job in wanted) else "this machine"


def elsewhere(context: Context, job: jobs.Job) -> str:
    """Return what to do about a local job of another machine; "" where the job is none."""
    if job.scheduler != "local" or job.cluster == machine_facts(context).cluster:
        return ""
    name = job.job_id or f"@{job.row}"
    return f"{name} is a job of {job.cluster.removeprefix('local:')}: ask there"


def machine_facts(context: Context) -> ClusterFacts:
    """Return the facts of this machine as a cluster. Another machine may share the database."""
    return ClusterFacts(
        cluster=f"local:{socket.gethostname()}",
        slurm_version="",
        message_timeout_seconds=0,
        min_job_age_seconds=0,
        max_array_size=MAX_LOCAL_ARRAY_SIZE,
        accounting=True,
        counts_gpus=True,
        asked_at=context.clock(),
    )


def installation_id(context: Context) -> str:
    """Return the four characters that begin every token of the context's database."""
    if context.memory.installation_id is None:
        with context.store.reading() as work:
            context.memory.installation_id = work.settings.installation_id()
    return context.memory.installation_id


def known_facts(context: Context) -> ClusterFacts | None:
    """Return the stored facts of this host's cluster, of any age, without asking Slurm."""
    if context.is_local:
        return machine_facts(context)
    with context.store.reading() as work:
        text = work.settings.get(_key(context))
    return _from_json(text) if text else None


def cluster_facts(
    context: Context, *, max_age_seconds: float = FACTS_MAX_AGE_SECONDS
) -> ClusterFacts:
    """Return the facts of the cluster, asking Slurm once a day; old facts when it is away.

    Raises SlurmError when Slurm does not answer and never did.
    """
    if context.is_local:
        return machine_facts(context)
    now, key = context.clock(), _key(context)

    def is_fresh(facts: ClusterFacts | None) -> bool:
        age = None if facts is None else (now - facts.asked_at).total_seconds()
        return age is not None and 0 <= age < max_age_seconds

    known = context.memory.facts.get(key)
    if not is_fresh(known):
        known = known_facts(context)
    if known is None or not is_fresh(known):
        try:
            answer = ask_facts(context)
        except errors.SlurmError:
            if known is None:
                raise
            return known
        with context.store.writing() as work:
            work.settings.put(key, _to_json(answer))
        known = answer
    context.memory.facts[key] = known
    return known


def ask_facts(context: Context) -> ClusterFacts:
    """Return what `scontrol show config` says now."""
    answer = context.slurm.config()
    return ClusterFacts(
        cluster=answer.cluster_name,
        slurm_version=answer.slurm_version,
        message_timeout_seconds=answer.message_timeout_seconds,
        min_job_age_seconds=answer.min_job_age_seconds,
        max_array_size=answer.max_array_size,
        accounting=answer.accounting,
        counts_gpus=answer.counts_gpus,
        asked_at=context.clock(),
    )


def _key(context: Context) -> str:
    # Login hosts of two clusters may share a home, and SLURM_CONF chooses among several clusters.
    conf = context.environ.get("SLURM_CONF", "")
    return f"cluster:{context.profile.name}:{socket.gethostname()}:{conf}"


def _to_json(facts: ClusterFacts) -> str:
    fields = dataclasses.asdict(facts)
    return json.dumps({**fields, "asked_at": facts.asked_at.isoformat()})


def _from_json(text: str) -> ClusterFacts | None:
    try:
        fields = json.loads(text)
        asked_at = datetime.datetime.fromisoformat(fields.pop("asked_at"))
        return ClusterFacts(**fields, asked_at=asked_at)
    except (ValueError, TypeError, KeyError):
        # Written by another version: asked for again.
        return None
