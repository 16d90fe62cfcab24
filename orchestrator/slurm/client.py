"""Slurm as this user sees it: each method runs a command and parses its output."""

from __future__ import annotations

import dataclasses
import datetime
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from orchestrator import tracking
from orchestrator.diagnosis.pending import facts as pending_facts
from orchestrator.processes import process
from orchestrator.slurm import failures, sacct, sacctmgr, sbatch, scontrol, sinfo, squeue
from orchestrator.usage import efficiency

_log = logging.getLogger(__name__)
#: scontrol sends one request per job, and one argument holds 128 KiB (man execve).
_JOBS_PER_COMMAND = 500

# The methods of Client hide the modules of the same name.
Keep: TypeAlias = squeue.Keep
#: failures.run, or a stand-in: argv, timeout_seconds, environ
Run: TypeAlias = Callable[[Sequence[str], float, Mapping[str, str]], process.Result]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Client:
    """Slurm's commands. A failed command raises SlurmError and never returns partial results."""

    #: what variables.for_queries() returns
    environ: Mapping[str, str]
    #: for slurmctld: two MessageTimeouts of 10 s, and the 1 s delays of rl_enable
    timeout_seconds: float = 60.0
    #: for sacct: a hung slurmdbd took 40 s (measured), a query of a year's jobs takes longer
    sacct_timeout_seconds: float = 90.0
    run: Run = failures.run
    #: by line of the last squeue, the jobs that were selected: a line says the same again
    _squeue_rows: dict[str, tuple[tracking.Observation, ...]] = dataclasses.field(
        default_factory=dict, repr=False, compare=False
    )

    def squeue(self, keep: Keep) -> list[tracking.Observation]:
        """Return the user's jobs that `keep(name, job_id, log_path)` selects."""
        invalid: list[str] = []
        rows_of: dict[str, tuple[tracking.Observation, ...]] = {}
        for line in self._output(squeue.command()).split("\n"):
            rows = self._squeue_rows.get(line)
            rows_of[line] = rows or tuple(squeue.parse([line], keep, invalid.append))
        self._squeue_rows.clear()
        self._squeue_rows.update(rows_of)
        _warn_of_invalid_lines("squeue", invalid)
        return [row for rows in rows_of.values() for row in rows]

    def sacct(self, job_ids: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return all attempts of 1 to 200 jobs, oldest first."""
        return self._sacct(sacct.command(since, ids=job_ids))

    def steps(
        self, job_ids: Sequence[str], since: datetime.datetime
    ) -> dict[str, tracking.Observation]:
        """Return each job's newest attempt with the worst of its steps, by job ID."""
        rows = self._sacct(sacct.command(since, ids=job_ids, steps=True))
        newest = {row.job_id: row for row in rows}
        return {job_id: row for job_id, row in newest.items() if row.step_state is not None}

    def used(
        self, job_id: str, submitted_at: datetime.datetime | None, since: datetime.datetime
    ) -> efficiency.Used | None:
        """Return what the attempt submitted at this time used; None if sacct has no such job."""
        argv = sacct.command(since, ids=[job_id], columns=sacct.USAGE_COLUMNS, steps=True)
        return sacct.parse_usage(self._accounting(argv).split("\n"), submitted_at)

    def by_name(self, names: Sequence[str], since: datetime.datetime) -> list[tracking.Observation]:
        """Return the attempts of jobs with these full names, except held jobs."""
        return self._sacct(sacct.command(since, names=names))

    def job_owner(self, job_id: str, since: datetime.datetime) -> dict[str, str]:
        """Return User, UID, WorkDir and SubmitLine of any user's job; empty if there is none."""
        argv = sacct.command(since, ids=[job_id], columns=sacct.OWNER_COLUMNS)
        return sacct.parse_newest(self._accounting(argv).split("\n"), sacct.OWNER_COLUMNS)

    def accounting_ping(self) -> None:
        """Raise AccountingDisabled or Unreachable if sacct does not work."""
        self.sacct(["1"], datetime.datetime.now(datetime.UTC))

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Request the cancellation of jobs; the caller has checked that no other job has their IDs.

        scancel ignores unknown jobs: only squeue and sacct show whether a job has ended. The name
        is not passed: with it scancel fetches the jobs of all users first, and with any filter
        scancel 22.05 treats one pending task of an array as all (`scancel --name=a.t 12_3` ended
        12_[0-9]; 24.11 and 26.05 do not).
        """
        for some_ids in _chunks(job_ids):
            _check(failures.without_unknown_jobs(self._run(["scancel", *some_ids])))

    def change(self, action: str, job_ids: Sequence[str]) -> dict[str, str]:
        """Request hold, release, requeue or requeuehold; return why jobs were refused, by job ID.

        Only squeue shows whether the request took effect.
        """
        all_refused: dict[str, str] = {}
        for some_ids in _chunks(job_ids):
            result = self._run(["scontrol", action, ",".join(some_ids)])
            refused = scontrol.parse_refusals(result.stderr)
            problem = failures.failure(result)
            if problem is not None and (isinstance(problem, failures.Unreachable) or not refused):
                raise problem
            all_refused.update(refused)
        return all_refused

    def config(self) -> scontrol.ClusterConfig:
        """Return slurmctld's settings."""
        return scontrol.parse_config(self._output(["scontrol", "show", "config"]))

    def partitions(self) -> list[sinfo.NodeKind]:
        """Return the kinds of nodes in each partition that this user may see."""
        return sinfo.parse(self._output(sinfo.COMMAND))

    def node_names(self) -> list[str]:
        """Return the names of all nodes."""
        return sinfo.parse_names(self._output(sinfo.NAMES_COMMAND))

    def architectures(self) -> dict[str, list[str]]:
        """Return the CPU architectures of the nodes of each partition; "" is an unknown one."""
        return scontrol.parse_architectures(self._output(scontrol.NODES_COMMAND))

    def associations(self, user: str) -> list[sacctmgr.Association]:
        """Return the accounts that the user may charge."""
        return sacctmgr.parse_associations(self._accounting(sacctmgr.associations_command(user)))

    def submit_limits(self, user: str) -> sacctmgr.SubmitLimits:
        """Return how many jobs the user may have in the queue."""
        return sacctmgr.SubmitLimits(
            associations=tuple(self.associations(user)),
            by_qos=sacctmgr.parse_qos_limits(self._accounting(sacctmgr.QOS_COMMAND)),
        )

    def set_dependency(self, job_id: str, dependency: str) -> None:
        """Replace the dependency of a pending job; "" removes it."""
        self._output(["scontrol", "update", f"jobid={job_id}", f"dependency={dependency}"])

    def show_job(self, job_id: str) -> dict[str, str] | None:
        """Return slurmctld's record of a job by Slurm's field names; None if there is none."""
        text = self._output_of_job(["scontrol", "-o", "show", "job", job_id])
        return None if text is None else scontrol.parse_record(text)

    def batch_script(self, job_id: str) -> str | None:
        """Return the job's script from slurmctld; None if it has no such job."""
        return self._output_of_job(["scontrol", "write", "batch_script", job_id, "-"])

    def partition(self, name: str) -> pending_facts.Partition | None:
        """Return a partition's limits."""
        return scontrol.parse_partition(self._output(["scontrol", "-o", "show", "partition", name]))

    def reservation(self, name: str) -> pending_facts.Reservation | None:
        """Return a reservation; None if slurmctld has none of this name."""
        result = self._run(["scontrol", "-o", "show", "reservation", name])
        return scontrol.parse_reservation(result.stdout) if result.returncode == 0 else None

    def limits_of(self, user: str, account: str, qos: Sequence[str]) -> list[pending_facts.Limit]:
        """Return the limits of a user ("alice(2001)"), an account and some QOS, with their use."""
        argv = ["scontrol", "-o", "show", "assoc_mgr", "flags=assoc,qos"]
        argv += [f"users={user.partition('(')[0]}", f"accounts={account}", f"qos={','.join(qos)}"]
        return scontrol.parse_limits(self._output(argv), user, account)

    def jobs_before(self, job_id: str, partition: str, priority: int) -> int:
        """Count the visible pending jobs in a partition that are before this one."""
        text = self._output(squeue.pending_command(partition))
        return squeue.count_jobs_before(text, job_id, priority)

    def unavailable_nodes(self, nodes: str) -> list[str]:
        """Return those of the nodes for which sinfo gives a reason."""
        return sinfo.parse_reasons(self._output(sinfo.reasons_command(nodes)))

    def test_only(self, script: str, options: Sequence[str] = ()) -> str:
        """Return a sentence that says when and where Slurm would start this script.

        Nothing is submitted, but one job ID is used up.
        """
        with tempfile.TemporaryDirectory(prefix="orchestrator-") as folder:
            path = Path(folder, "script.sbatch")
            path.write_text(script, encoding="utf-8")
            result = _check(self._run(["sbatch", "--test-only", *options, str(path)]))
        return sbatch.parse_test_only(result.stderr) or failures.message(result)

    def _run(self, argv: Sequence[str]) -> process.Result:
        return self.run(argv, self.timeout_seconds, self.environ)

    def _output(self, argv: Sequence[str]) -> str:
        return _check(self._run(argv)).stdout

    def _accounting(self, argv: Sequence[str]) -> str:
        return _check(self.run(argv, self.sacct_timeout_seconds, self.environ)).stdout

    def _output_of_job(self, argv: Sequence[str]) -> str | None:
        result = self._run(argv)
        return None if failures.is_unknown_job(result) else _check(result).stdout

    def _sacct(self, argv: Sequence[str]) -> list[tracking.Observation]:
        invalid: list[str] = []
        lines = self._accounting(argv).split("\n")
        observations = sacct.parse(lines, invalid.append)
        _warn_of_invalid_lines("sacct", invalid)
        return observations


def _chunks(job_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(job_ids), _JOBS_PER_COMMAND):
        yield job_ids[start : start + _JOBS_PER_COMMAND]


def _check(result: process.Result) -> process.Result:
    if (problem := failures.failure(result)) is not None:
        raise problem
    return result


def _warn_of_invalid_lines(command: str, lines: Sequence[str]) -> None:
    if lines:
        first = failures.printable(lines[0])[:200]
        _log.warning("%s: %d lines could not be parsed, the first: %s", command, len(lines), first)
