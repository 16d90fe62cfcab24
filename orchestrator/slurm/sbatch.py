"""sbatch: one submission, and what its answer means for "exactly once"."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import os
import re
from collections.abc import Sequence

from orchestrator.slurm import failures, fields, process


class SbatchKind(enum.StrEnum):
    """What is certain after sbatch answered."""

    #: Slurm has the job
    ACCEPTED = "accepted"
    #: slurmctld said no, and will say no again
    REJECTED = "rejected"
    #: slurmctld said no, for now
    REJECTED_RETRY = "rejected, retry"
    #: sbatch stopped before it sent anything; the request has to change
    NOT_SENT = "not sent"
    #: slurmctld could not be reached
    NOT_SENT_RETRY = "not sent, retry"
    #: Slurm may or may not have the job
    AMBIGUOUS = "ambiguous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class SbatchOutcome:
    """sbatch's answer, judged."""

    kind: SbatchKind
    #: for the user: what happened and what to do
    sentence: str
    #: why it was refused for now: the limit's name, or slurmctld's own words
    cause: str = ""
    job_id: str | None = None
    #: only where sbatch named it (`123;cluster`)
    cluster: str | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class StartEstimate:
    """What `sbatch --test-only` expects."""

    starts_at: datetime.datetime | None
    processors: int | None
    node_list: str | None
    partition: str | None


_ACCEPTED = re.compile(r"(\d{1,10})(?:;(\S+))?", re.ASCII)
_FAILED = re.compile(r"Batch job submission failed: (.+)")
# The job may exist: slurmctld makes it first and answers then, and looks not whether the client
# is still there (measured: a job ran two seconds after this answer).
_MAYBE = re.compile(
    r"Socket timed out|\((?:send|receive|shutdown) failure\)|Message (?:send|receive) failure"
    r"|Zero Bytes were transmitted|Unexpected message received|Connection (?:reset|timed out)"
    r"|Header lengths are longer|Insane message length|Broken pipe"
)
# Texts of slurm_strerror() that slurmctld answers with; each seen on 22.05, 24.11 or 26.05, or
# read in slurm_errno.c.
_REJECTED = re.compile(
    r"Invalid partition name specified"
    r"|Invalid account or account/partition combination specified"
    r"|Invalid qos specification"
    r"|Invalid QOS specification"
    r"|Requested node configuration is not available"
    r"|Memory specification can not be satisfied"
    r"|Memory required by task is not available"
    r"|CPU count per node can not be satisfied"
    r"|Invalid feature specification"
    r"|Invalid job array specification"
    r"|Invalid node name specified"
    r"|Requested nodes not in this partition"
    r"|Requested reservation is invalid"
    r"|Access denied to requested reservation"
    r"|Invalid license specification"
    r"|Invalid wckey specification"
    r"|Invalid generic resource \(gres\) specification"
    r"|Invalid GRES specification"
    r"|Invalid Trackable RESource"
    r"|Requested time limit is invalid"
    r"|Pathname of a file, directory or other parameter too long"
    r"|Job dependency problem"
    r"|Circular job dependency"
    r"|Node count specification invalid"
    r"|CPU count specification invalid"
    r"|Task count specification invalid"
    r"|More processors requested than permitted"
    r"|No partition specified or system default partition"
    r"|User's group not permitted to use this partition"
    r"|Access/permission denied"
)
_REJECTED_FOR_NOW = re.compile(
    r"Required partition not available \(inactive or drain\)"
    r"|System submissions disabled"
    r"|I/O error writing script/environment to file"
    r"|Slurm temporarily unable to accept job"
    r"|MaxJobCount limit reached"
    # EAGAIN, after sbatch's 15 tries over 120 s with MaxJobCount jobs in the queue.
    r"|Resource temporarily unavailable"
    r"|Rate limit exceeded"
)
#: What sbatch says of EAGAIN, at the begin of its 15 tries.
_QUEUE_FULL = "Slurm temporarily unable to accept job"
_POLICY = re.compile(r"Job violates accounting/QOS policy")
_LIMIT = re.compile(r"\b((?:Assoc|QOS|Max)[A-Za-z]*(?:Limit|PerAccount|Per[A-Z]\w*|Minutes))\b")
_SUBMIT_LIMIT = re.compile(r"Submit")
_NOT_SENT = re.compile(
    r"unrecognized option|invalid option|requires an argument|ambiguous option"
    r"|Invalid --?[\w-]+ specification|Invalid directive found|Invalid time specification"
    r"|Batch script is empty|contains only whitespace|does not look like a batch script"
    r"|DOS line breaks"
    r"|contain a NULL character|Unmatched .* in \[|Unable to open file"
    r"|Invalid generic resource \(gres\) specification|mutually exclusive"
    r"|Could not open user environment file|only permitted by root"
    r"|known by database|invalid entry for --cluster"
)
_ESTIMATE = re.compile(
    # 26.05 prints a stray "a" behind the time.
    r"Job \d+ to start at (\S+)(?: a)? using (\d+) processors on nodes (\S*) in partition (\S+)"
)


def sbatch_command(
    script: str | os.PathLike[str],
    job_name: str,
    output: str | None = None,
    comment: str | None = None,
    extra: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> list[str]:
    """Build the submission; what is given here goes before the script's own directives."""
    options = ["--parsable", f"--job-name={job_name}"]
    if output is not None:
        options.append(f"--output={output}")
    if comment is not None:
        options.append(f"--comment={comment}")
    return ["sbatch", *options, *extra, os.fspath(script), *arguments]


def classify_sbatch(answer: process.Answer) -> SbatchOutcome:
    """Judge sbatch's answer; whatever is not known for certain is AMBIGUOUS."""
    text = failures.said(answer)
    job_id, cluster = _job_id(answer.stdout)
    if answer.timed_out:
        return _maybe(f"sbatch was given up after {answer.seconds:.0f} s", text)
    if answer.returncode < 0:
        return _maybe(f"sbatch was ended by signal {-answer.returncode}", text)
    if answer.returncode == 0:
        if job_id is None:
            return _maybe("sbatch printed no job ID", failures.plain(answer.stdout[:200]) or text)
        return SbatchOutcome(
            kind=SbatchKind.ACCEPTED,
            sentence=f"Slurm accepted the job as {job_id}",
            job_id=job_id,
            cluster=cluster,
        )
    if job_id is not None:
        return _maybe(f"sbatch failed and yet printed job ID {job_id}", text)
    if _MAYBE.search(answer.stderr):
        return _maybe("sbatch lost contact with slurmctld", text)
    verdicts = _FAILED.findall(answer.stderr)
    if verdicts:
        return _refusal(verdicts[-1], answer.stderr, text)
    if _NOT_SENT.search(answer.stderr):
        return SbatchOutcome(
            kind=SbatchKind.NOT_SENT,
            sentence=f"sbatch does not take the job: {text}. Correct it and submit again.",
        )
    if "configuration source" in answer.stderr:
        return _away(text)
    return _maybe(f"sbatch failed with exit code {answer.returncode}", text)


def sbatch_test_only_command(
    script: str | os.PathLike[str], extra: Sequence[str] = ()
) -> list[str]:
    """Ask when the script would start; nothing is submitted, one job ID is used up."""
    return ["sbatch", "--test-only", *extra, os.fspath(script)]


def parse_test_only(text: str) -> StartEstimate | None:
    """Read the line that `sbatch --test-only` writes to stderr; None where there is none."""
    found = _ESTIMATE.search(text)
    if found is None:
        return None
    return StartEstimate(
        starts_at=fields.parse_time(found[1]),
        processors=fields.parse_count(found[2]),
        node_list=fields.parse_text(found[3]),
        partition=fields.parse_text(found[4]),
    )


def _job_id(stdout: str) -> tuple[str | None, str | None]:
    # Sites wrap sbatch and print advice before its answer; numbers in that are no job IDs.
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    found = _ACCEPTED.fullmatch(lines[-1]) if lines else None
    return (found[1], found[2]) if found else (None, None)


def _refusal(verdict: str, stderr: str, text: str) -> SbatchOutcome:
    if "(connect failure)" in verdict:
        return _away(text)
    if "Protocol authentication error" in verdict:
        # Without munge the request was not even signed; else the answer could not be checked.
        return _away(text) if "Munge encode failed" in stderr else _maybe("sbatch failed", text)
    if _POLICY.search(verdict):
        limits = _LIMIT.findall(stderr)
        for_now = any(_SUBMIT_LIMIT.search(limit) for limit in limits)
        if for_now:
            return SbatchOutcome(
                kind=SbatchKind.REJECTED_RETRY,
                sentence=f"Slurm refused the job: {text}. "
                "You have as many jobs in the queue as you may; submit again when some have ended.",
                cause=", ".join(dict.fromkeys(limits)),
            )
        return _rejected(text)
    if _REJECTED_FOR_NOW.search(verdict):
        return SbatchOutcome(
            kind=SbatchKind.REJECTED_RETRY,
            sentence=f"Slurm refused the job for now: {text}. Submit it again later.",
            cause=_QUEUE_FULL if _QUEUE_FULL in stderr else failures.plain(verdict).rstrip("."),
        )
    if _REJECTED.search(verdict):
        return _rejected(text)
    return _maybe("sbatch failed", text)


def _rejected(text: str) -> SbatchOutcome:
    return SbatchOutcome(
        kind=SbatchKind.REJECTED,
        sentence=f"Slurm refused the job: {text}. Correct it and submit again.",
    )


def _away(text: str) -> SbatchOutcome:
    return SbatchOutcome(
        kind=SbatchKind.NOT_SENT_RETRY,
        sentence=f"sbatch could not reach slurmctld: {text}. "
        "Nothing was submitted; submit again when Slurm answers.",
        cause="slurmctld did not answer",
    )


def _maybe(event: str, text: str) -> SbatchOutcome:
    detail = f": {text}" if text else ""
    return SbatchOutcome(
        kind=SbatchKind.AMBIGUOUS,
        sentence=f"{event}{detail}. Slurm may or may not have the job.",
    )
