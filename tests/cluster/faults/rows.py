"""One row of the fault matrix: jobs that write a journal, and the check after the fault."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

from tests.cluster import faults
from tests.cluster import site as sites
from tests.cluster.faults import invariants

#: A lock that the job's processes hold as long as one of them lives, on whatever host: the hosts of
#: the lab share one kernel.
JOURNALED = """\
exec 9>>{home}/lock.$SLURM_JOB_NAME
word=start
flock -n 9 || word=alive
echo $word $SLURM_JOB_NAME $SLURM_JOB_ID $ORCHESTRATOR_ATTEMPT >>{home}/journal
{command}
"""
SACCT = (
    *("sacct", "-X", "-D", "-n", "-P", "-S", "now-1hour"),
    "-oJobIDRaw,State,NodeList,JobName%200",
)
ALL_JOBS = "/srv/orchestrator/tests/cluster/all_jobs.py"
#: slurmdbd receives the end of a job some seconds late.
SACCT_LATE_SECONDS = 90


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """alice's orchestrator while a fault is on."""

    #: her site, behind the wrappers
    site: sites.Site
    #: what the wrappers saw
    seen: faults.Faults
    #: how often a command may be called in all (I4); a test adds what its fault allows
    most: dict[str, int] = dataclasses.field(default_factory=dict)
    #: slurmctld was killed before it sent ends of jobs to slurmdbd
    runaways: bool = False
    #: jobs of which the fault itself keeps an earlier attempt alive beside a later one
    overlapping: set[str] = dataclasses.field(default_factory=set)

    def shell(self, name: str, command: str, **tables: str) -> str:
        """A spec of a shell line that writes into the journal when it begins."""
        text = JOURNALED.format(home=self.site.home, command=command)
        return self.site.shell(name, text, **tables)

    def submit(self, name: str, command: str, *argv: str, **tables: str) -> str:
        """Submit such a job and return its ID; one more call of sbatch is allowed."""
        self.most["sbatch"] = self.most.get("sbatch", 0) + 1
        return self.site.submit(self.shell(name, command, **tables), *argv)

    def refused(self, name: str, *argv: str, **tables: str) -> str:
        """Submit a job that Slurm rejects; return the message. One call of sbatch, no retry."""
        self.most["sbatch"] = self.most.get("sbatch", 0) + 1
        done = self.site.run("submit", self.shell(name, "true", **tables), *argv, check=5)
        assert done.stdout == ""
        return done.stderr

    def jobs(self) -> list[dict[str, Any]]:
        """All jobs of the database with their histories."""
        site = self.site
        site.run("status", "--limit", "1", "--refresh")
        done = site.lab.script([ALL_JOBS], env=site.environ, cwd=site.home)
        assert done.returncode == 0, done.stderr
        content: list[dict[str, Any]] = json.loads(done.stdout)
        return content

    def records(self, job_ids: Sequence[str]) -> list[invariants.Record]:
        """Records of alice's jobs in the accounts and in squeue, oldest first.

        A job that was never eligible, such as one held to its end, is in sacct by its ID only.
        """
        lab = self.site.lab
        result: list[invariants.Record] = []
        if lab.settings.accounting:
            answer = lab.run([*SACCT, "-u", "alice"]).stdout
            if job_ids:
                answer += lab.run([*SACCT, "-j", ",".join(job_ids)]).stdout
            for line in dict.fromkeys(answer.splitlines()):
                job_id, state, node_list, name = line.split("|", 3)
                # A refused request has no node and, by release, no start either.
                started = node_list != "None assigned"
                word = state.split()[0]
                result.append(
                    invariants.Record(job_id=job_id, name=name, state=word, started=started)
                )
        for row in lab.squeue("-u", "alice"):
            started = row["Reason"] != "BadConstraints"
            result.append(
                invariants.Record(
                    job_id=row["JobID"], name=row["Name"], state=row["State"], started=started
                )
            )
        return result

    def check(self) -> None:
        """Undo the fault, cancel what still runs, and check I1 to I5 when all has ended."""
        lab = self.site.lab
        calls = self.seen.calls()
        lab.mend()
        deadline = time.monotonic() + SACCT_LATE_SECONDS
        while True:
            # Not through the wrappers: these calls belong to the test.
            plain = dataclasses.replace(self, site=dataclasses.replace(self.site, env={}))
            known = plain.jobs()
            records = plain.records([job["job_id"] for job in known if job["job_id"]])
            unsettled = [
                *invariants.unknown_to_us(records, known),
                *(
                    invariants.disagreements(records, known, runaways=self.runaways)
                    if lab.settings.accounting
                    else ()
                ),
            ]
            if not unsettled or time.monotonic() > deadline:
                break
            time.sleep(0.5)
        journal = lab.path(f"{self.site.home}/journal")
        breaches = [
            *invariants.executed_twice(
                journal.read_text() if journal.exists() else "", self.overlapping
            ),
            *unsettled,
            *(breach for job in known for breach in invariants.illegal_steps(job)),
            *invariants.too_many_calls(calls, self.most),
        ]
        assert not breaches, "\n".join(breaches)
        if known:
            self.site.run("db", "check")
