"""Slurm's commands as functions: each builds an argv, runs it, and reads the answer."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol, TypeAlias

from orchestrator import errors, tracking
from orchestrator.diagnosis import queue
from orchestrator.jobs import JobState
from orchestrator.slurm import (
    failures,
    limits,
    process,
    sacct,
    sbatch,
    scontrol,
    sinfo,
    squeue,
    usage,
    waiting,
)
from orchestrator.usage import efficiency

_log = logging.getLogger(__name__)
#: scontrol sends a request a job, and one argument has 128 KiB at the most (man execve).
_CHANGED_AT_ONCE = 500

# Inside Client the module's name is a method.
Keep: TypeAlias = squeue.Keep


class Run(Protocol):
    """process.run, or a stand-in."""

    def __call__(
        self, argv: Sequence[str], timeout_seconds: float, environ: Mapping[str, str], /
    ) -> process.Answer: ...


class Stream(Protocol):
    """process.stream, or a stand-in."""

    def __call__(
        self,
        argv: Sequence[str],
        timeout_seconds: float,
        environ: Mapping[str, str],
        on_line: Callable[[str], object],
        /,
    ) -> process.Answer: ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Steps:
    """The worst among the steps of a job's newest attempt."""

    state: JobState | None
    exit_code: int | None
    exit_signal: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Client:
    """Slurm as this user sees it; failures are SlurmError with a sentence, never half an answer."""

    #: of the commands: what slurm.environment() returns
    environ: Mapping[str, str]
    #: of a question to slurmctld: two MessageTimeouts of 10 s, and rl_enable's waits of 1 s each
    timeout_seconds: float = 60.0
    #: of sacct: slurmdbd hung took 40 s (measured), a query of a year's jobs takes longer
    sacct_timeout_seconds: float = 90.0
    #: sbatch retries for up to 120 s, and connecting takes time too
    sbatch_timeout_seconds: float = 180.0
    #: squeue's lines of jobs that were wanted, and what they say, for who asks again and again;
    #: none: nothing is kept. What is taken from here has the moment when it was first said
    remembered: dict[str, list[tracking.Observation]] | None = None
    run: Run = process.run
    stream: Stream = process.stream

    def squeue(self, keep: Keep) -> list[tracking.Observation]:
        """Return the user's jobs that `keep` wants; the others take no memory."""
        observed_at = datetime.datetime.now(datetime.UTC)
        found: list[tracking.Observation] = []
        odd = _OddLines("squeue")
        known = self.remembered or {}
        now: dict[str, list[tracking.Observation]] = {}

        def read(line: str) -> None:
            said = known.get(line)
            if said is None:
                said = list(squeue.parse_squeue([line], observed_at, keep, odd))
            # What was not wanted may be wanted the next time: a job that is tracked by then.
            if said:
                now[line] = said
                found.extend(said)

        answer = self.stream(squeue.squeue_command(), self.timeout_seconds, self.environ, read)
        _check(answer)
        if self.remembered is not None:
            self.remembered.clear()
            self.remembered.update(now)
        odd.report()
        return found

    def sacct(self, job_ids: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return all rows of these jobs, earlier attempts first; at most 200 IDs, never none."""
        return self._sacct(sacct.sacct_command(job_ids, since))

    def steps(self, job_ids: Sequence[str], since: datetime.datetime) -> dict[str, Steps]:
        """Return the worst of the steps of each job's newest attempt, by job ID."""
        rows = self._sacct(sacct.sacct_steps_command(job_ids, since))
        newest = {row.job_id: row for row in sorted(rows, key=lambda row: row.row_number)}
        return {
            job_id: Steps(
                state=row.step_state,
                exit_code=row.step_exit_code,
                exit_signal=row.step_exit_signal,
            )
            for job_id, row in newest.items()
            if row.step_state is not None
        }

    def used(
        self, job_id: str, submitted_at: datetime.datetime | None, since: datetime.datetime
    ) -> efficiency.Used | None:
        """Return what the attempt of a job used that was submitted then; None: sacct has none."""
        argv = usage.sacct_usage_command(job_id, since)
        answer = self.run(argv, self.sacct_timeout_seconds, self.environ)
        _check(answer)
        return usage.parse_sacct_usage(answer.stdout.split("\n"), submitted_at)

    def by_name(self, names: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return the rows of jobs with these full names; a held job does not show."""
        return self._sacct(sacct.sacct_by_name_command(names, since))

    def account_papers(self, job_id: str, since: datetime.datetime) -> dict[str, str]:
        """Return User, UID, WorkDir and SubmitLine of anybody's job; empty: sacct knows none."""
        argv = sacct.sacct_papers_command(job_id, since)
        answer = self.run(argv, self.sacct_timeout_seconds, self.environ)
        _check(answer)
        return sacct.parse_sacct_papers(answer.stdout)

    def accounting_ping(self) -> None:
        """Raise AccountingDisabled or Unreachable when sacct can't answer."""
        self._sacct(sacct.sacct_command(["1"], datetime.datetime.now(datetime.UTC)))

    def cancel(self, job_id: str, name: str) -> None:
        """Ask Slurm to cancel the job with this ID, if it has this name.

        scancel is silent about a job it does not know: only a later look proves the end.
        """
        _check(failures.less_unknown_jobs(self._ask(scontrol.scancel_command([job_id], name))))

    def cancel_all(self, job_ids: Sequence[str]) -> None:
        """Ask Slurm to cancel jobs whatever their names: who calls has just seen whose they are."""
        for start in range(0, len(job_ids), _CHANGED_AT_ONCE):
            command = scontrol.scancel_command(job_ids[start : start + _CHANGED_AT_ONCE])
            _check(failures.less_unknown_jobs(self._ask(command)))

    def hold(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Ask Slurm to hold waiting jobs; return why it refused, by job ID.

        As for the next two: that it took the wish is no proof, only a later look is.
        """
        return self._change(job_ids, scontrol.scontrol_hold_command)

    def release(self, job_ids: Sequence[str]) -> dict[str, str]:
        """Ask Slurm to let held jobs start; return why it refused, by job ID."""
        return self._change(job_ids, scontrol.scontrol_release_command)

    def requeue(self, job_ids: Sequence[str], *, hold: bool = False) -> dict[str, str]:
        """Ask Slurm to put jobs back into the queue; return why it refused, by job ID."""
        command = functools.partial(scontrol.scontrol_requeue_command, hold=hold)
        return self._change(job_ids, command)

    def config(self) -> scontrol.ClusterConfig:
        """Return slurmctld's settings."""
        answer = self._ask(scontrol.scontrol_config_command())
        _check(answer)
        try:
            return scontrol.parse_scontrol_config(answer.stdout)
        except ValueError as problem:
            raise errors.SlurmError(
                f"scontrol show config was not understood: {problem}. Run it by hand and look."
            ) from problem

    def partitions(self) -> list[sinfo.NodeKind]:
        """Return the kinds of nodes in each partition that this user may see."""
        answer = self._ask(sinfo.sinfo_command())
        _check(answer)
        return sinfo.parse_sinfo(answer.stdout)

    def associations(self, user: str) -> list[sinfo.Association]:
        """Return the accounts that the user may charge."""
        argv = sinfo.sacctmgr_associations_command(user)
        answer = self.run(argv, self.sacct_timeout_seconds, self.environ)
        _check(answer)
        return sinfo.parse_sacctmgr_associations(answer.stdout)

    def submit_limits(self, user: str) -> limits.Limits:
        """Return how many jobs the user may have in the queue."""
        texts = []
        for argv in (
            limits.sacctmgr_own_limits_command(user),
            limits.sacctmgr_qos_limits_command(),
        ):
            answer = self.run(argv, self.sacct_timeout_seconds, self.environ)
            _check(answer)
            texts.append(answer.stdout)
        return limits.Limits(
            own=tuple(limits.parse_sacctmgr_own_limits(texts[0])),
            by_qos=limits.parse_sacctmgr_qos_limits(texts[1]),
        )

    def set_dependency(self, job_id: str, dependency: str) -> None:
        """Let a waiting job wait for others than before; "": for nothing."""
        _check(self._ask(scontrol.scontrol_dependency_command(job_id, dependency)))

    def show_job(self, job_id: str) -> dict[str, str] | None:
        """Return what slurmctld knows of a job by Slurm's own names; None when it knows none."""
        text = self.show_job_text(job_id)
        return None if text is None else scontrol.parse_scontrol_job(text)

    def show_job_text(self, job_id: str) -> str | None:
        """Return `scontrol -o show job` as it stands; None when slurmctld knows no such job."""
        answer = self._ask(scontrol.scontrol_show_job_command(job_id))
        if failures.is_unknown_job(answer):
            return None
        _check(answer)
        return answer.stdout

    def partition(self, name: str) -> queue.Partition | None:
        """Return a partition's limits; None where slurmctld names none."""
        answer = self._ask(waiting.scontrol_show_partition_command(name))
        _check(answer)
        return waiting.parse_partition(answer.stdout)

    def reservation(self, name: str) -> queue.Reservation | None:
        """Return a reservation; None where slurmctld names none."""
        answer = self._ask(waiting.scontrol_show_reservation_command(name))
        return waiting.parse_reservation(answer.stdout) if answer.returncode == 0 else None

    def limits_of(self, user: str, account: str, qos: Sequence[str]) -> list[queue.Limit]:
        """Return the limits that are set for a user, an account and some QOS, and their use."""
        answer = self._ask(waiting.scontrol_show_limits_command(user, account, qos))
        _check(answer)
        return waiting.parse_limits(answer.stdout, user, account)

    def jobs_before(self, job_id: str, partition: str, priority: int) -> int:
        """Count the jobs that wait in a partition and come before this one, as far as is shown."""
        answer = self._ask(waiting.squeue_order_command(partition))
        _check(answer)
        return waiting.count_before(answer.stdout.split("\n"), job_id, priority)

    def nodes_away(self, nodes: str) -> list[queue.Node]:
        """Return those of the nodes that are not available, with the reason that sinfo gives."""
        answer = self._ask(waiting.sinfo_reasons_command(nodes))
        _check(answer)
        return waiting.parse_reasons(answer.stdout)

    def ping(self) -> bool:
        """Return whether slurmctld says that it is up."""
        return scontrol.parse_scontrol_ping(self._ask(scontrol.scontrol_ping_command()).stdout)

    def batch_script(self, job_id: str) -> str | None:
        """Return the script that Slurm holds; None when slurmctld knows no such job."""
        answer = self._ask(scontrol.scontrol_write_batch_script_command(job_id))
        if failures.is_unknown_job(answer):
            return None
        _check(answer)
        return answer.stdout

    def test_only(self, script: str, options: Sequence[str] = ()) -> str:
        """Return in a sentence when and where Slurm would start this script's job."""
        with tempfile.TemporaryDirectory(prefix="orchestrator-") as folder:
            path = Path(folder, "script.sbatch")
            path.write_text(script, encoding="utf-8")
            answer = self._ask(sbatch.sbatch_test_only_command(path, options))
        estimate = sbatch.parse_test_only(answer.stderr)
        if answer.returncode == 0 and estimate is not None:
            when = estimate.starts_at.isoformat() if estimate.starts_at else "an unknown time"
            return (
                f"Slurm would start the job at {when} on {estimate.node_list or 'no node'} "
                f"in partition {estimate.partition}"
            )
        _check(answer)
        return failures.said(answer)

    def _change(
        self, job_ids: Sequence[str], command: Callable[[Sequence[str]], list[str]]
    ) -> dict[str, str]:
        refused: dict[str, str] = {}
        for start in range(0, len(job_ids), _CHANGED_AT_ONCE):
            answer = self._ask(command(job_ids[start : start + _CHANGED_AT_ONCE]))
            problem = failures.failure(answer)
            told = scontrol.parse_scontrol_refusals(
                "\n".join(map(failures.plain, answer.stderr.splitlines()))
            )
            if problem is not None and (isinstance(problem, failures.Unreachable) or not told):
                raise problem
            refused.update(told)
        return refused

    def _ask(self, argv: list[str]) -> process.Answer:
        return self.run(argv, self.timeout_seconds, self.environ)

    def _sacct(self, argv: list[str]) -> list[tracking.Observation]:
        answer = self.run(argv, self.sacct_timeout_seconds, self.environ)
        _check(answer)
        odd = _OddLines("sacct")
        lines = answer.stdout.split("\n")
        found = sacct.parse_sacct(lines, answer.started_at, odd)
        odd.report()
        return found


class _OddLines:
    """Counts the lines that could not be read, and tells once."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._count = 0
        self._first = ""

    def __call__(self, line: str) -> None:
        self._count += 1
        self._first = self._first or failures.plain(line)[:200]

    def report(self) -> None:
        if self._count:
            _log.warning(
                "%s: %d lines not understood, the first: %s",
                self._command,
                self._count,
                self._first,
            )


def _check(answer: process.Answer) -> None:
    problem = failures.failure(answer)
    if problem is not None:
        raise problem
