"""sbatch: submit a script, and what its output says about whether Slurm has the job."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Sequence

from orchestrator.slurm import failures, fields, process


class OutcomeKind(enum.StrEnum):
    """What is certain after sbatch has ended."""

    #: Slurm has the job
    ACCEPTED = "accepted"
    #: slurmctld refused the job for good
    REJECTED = "rejected"
    #: slurmctld refused the job for now
    REJECTED_RETRY = "rejected, retry"
    #: sbatch sent nothing; the request has to change
    NOT_SENT = "not sent"
    #: sbatch could not reach slurmctld
    NOT_SENT_RETRY = "not sent, retry"
    #: Slurm may or may not have the job
    AMBIGUOUS = "ambiguous"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of one sbatch."""

    kind: OutcomeKind
    #: for the user: what happened and what to do
    sentence: str
    #: why it was refused for now: the limit's name, or slurmctld's own words
    cause: str = ""
    job_id: str | None = None
    #: only if sbatch printed it (`123;cluster`)
    cluster: str | None = None


_ACCEPTED = re.compile(r"(\d{1,10})(?:;(\S+))?", re.ASCII)
_FAILED = re.compile(r"Batch job submission failed: (.+)")
# The job may exist: slurmctld creates it before it answers, and does not check whether the client
# is still there (measured: a job ran two seconds after this message).
_CONTACT_LOST = re.compile(
    r"Socket timed out|\((?:send|receive|shutdown) failure\)|Message (?:send|receive) failure"
    r"|Zero Bytes were transmitted|Unexpected message received|Connection (?:reset|timed out)"
    r"|Header lengths are longer|Insane message length|Broken pipe"
)
# Texts of slurm_strerror(), each seen on 22.05, 24.11 or 26.05, or read in slurm_errno.c.
_REJECTED = re.compile(
    r"Invalid partition name specified|Invalid account or account/partition combination specified"
    r"|Invalid (?:qos|QOS) specification|Requested node configuration is not available"
    r"|Memory specification can not be satisfied|Memory required by task is not available"
    r"|CPU count per node can not be satisfied|Invalid feature specification"
    r"|Invalid job array specification|Invalid node name specified"
    r"|Requested nodes not in this partition|Requested reservation is invalid"
    r"|Access denied to requested reservation|Invalid license specification"
    r"|Invalid wckey specification|Invalid generic resource \(gres\) specification"
    r"|Invalid GRES specification|Invalid Trackable RESource|Requested time limit is invalid"
    r"|Pathname of a file, directory or other parameter too long|Job dependency problem"
    r"|Circular job dependency|(?:Node|CPU|Task) count specification invalid"
    r"|More processors requested than permitted"
    r"|No partition specified or system default partition"
    r"|User's group not permitted to use this partition|Access/permission denied"
)
_REJECTED_FOR_NOW = re.compile(
    r"Required partition not available \(inactive or drain\)|System submissions disabled"
    r"|I/O error writing script/environment to file|Slurm temporarily unable to accept job"
    r"|MaxJobCount limit reached|Rate limit exceeded"
    # EAGAIN, after sbatch's 15 attempts over 120 s with MaxJobCount jobs in the queue.
    r"|Resource temporarily unavailable"
)
#: sbatch prints this for EAGAIN, before its 15 attempts.
_QUEUE_FULL = "Slurm temporarily unable to accept job"
_POLICY = re.compile(r"Job violates accounting/QOS policy")
_LIMIT = re.compile(r"\b((?:Assoc|QOS|Max)[A-Za-z]*(?:Limit|PerAccount|Per[A-Z]\w*|Minutes))\b")
_NOT_SENT = re.compile(
    r"unrecognized option|invalid option|requires an argument|ambiguous option"
    r"|Invalid --?[\w-]+ specification|Invalid directive found|Invalid time specification"
    r"|DOS line breaks|contain a NULL character|Unmatched .* in \[|mutually exclusive"
    r"|Invalid generic resource \(gres\) specification|only permitted by root"
    r"|Could not open user environment file|known by database|invalid entry for --cluster"
    r"|Batch script is empty|contains only whitespace|does not look like a batch script"
    r"|Unable to open file"
)
_ESTIMATE = re.compile(
    # 26.05 prints a stray "a" after the time.
    r"Job \d+ to start at (\S+)(?: a)? using \d+ processors on nodes (\S*) in partition (\S+)"
)


def command(
    script: str | os.PathLike[str],
    job_name: str,
    output: str | None = None,
    comment: str | None = None,
    extra: Sequence[str] = (),
    arguments: Sequence[str] = (),
) -> list[str]:
    """Submit a script; these options take precedence over its directives."""
    options = ["--parsable", f"--job-name={job_name}"]
    if output is not None:
        options.append(f"--output={output}")
    if comment is not None:
        options.append(f"--comment={comment}")
    return ["sbatch", *options, *extra, os.fspath(script), *arguments]


def classify(result: process.Result) -> Outcome:
    """Return the outcome; AMBIGUOUS unless it is certain."""
    text = failures.message(result)
    job_id, cluster = _job_id(result.stdout)
    if result.timed_out:
        return _ambiguous(f"sbatch timed out after {result.seconds:.0f} s", text)
    if result.returncode < 0:
        return _ambiguous(f"sbatch was killed by signal {-result.returncode}", text)
    if result.returncode == 0:
        if job_id is None:
            output = failures.printable(result.stdout[:200]) or text
            return _ambiguous("sbatch printed no job ID", output)
        return Outcome(
            kind=OutcomeKind.ACCEPTED,
            sentence=f"Slurm accepted the job as {job_id}",
            job_id=job_id,
            cluster=cluster,
        )
    if job_id is not None:
        return _ambiguous(f"sbatch failed and yet printed job ID {job_id}", text)
    if _CONTACT_LOST.search(result.stderr):
        return _ambiguous("sbatch lost contact with slurmctld", text)
    if reasons := _FAILED.findall(result.stderr):
        return _classify_failure(reasons[-1], result.stderr, text)
    if _NOT_SENT.search(result.stderr):
        return Outcome(
            kind=OutcomeKind.NOT_SENT,
            sentence=f"sbatch rejected the job: {text}. Correct it and submit again.",
        )
    if "configuration source" in result.stderr:
        return _unreachable(text)
    return _ambiguous(f"sbatch failed with exit code {result.returncode}", text)


def test_only_command(script: str | os.PathLike[str], extra: Sequence[str] = ()) -> list[str]:
    """Estimate when the script would start; nothing is submitted, but one job ID is used up."""
    return ["sbatch", "--test-only", *extra, os.fspath(script)]


def parse_test_only(stderr: str) -> str | None:
    """Return the estimate of `sbatch --test-only` as a sentence; None if there is none."""
    match = _ESTIMATE.search(stderr)
    if match is None:
        return None
    starts_at = fields.parse_time(match[1])
    when = starts_at.isoformat() if starts_at else "an unknown time"
    nodes = fields.parse_text(match[2]) or "no node"
    return f"Slurm would start the job at {when} on {nodes} in partition {match[3]}"


def _job_id(stdout: str) -> tuple[str | None, str | None]:
    # Wrappers of sites print advice before sbatch's output; numbers in it are not job IDs.
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    match = _ACCEPTED.fullmatch(lines[-1]) if lines else None
    return (match[1], match[2]) if match else (None, None)


def _classify_failure(reason: str, stderr: str, text: str) -> Outcome:
    if "(connect failure)" in reason:
        return _unreachable(text)
    if "Protocol authentication error" in reason:
        # Without munge the request was not signed. Otherwise the answer could not be verified.
        is_unsigned = "Munge encode failed" in stderr
        return _unreachable(text) if is_unsigned else _ambiguous("sbatch failed", text)
    limits = _LIMIT.findall(stderr)
    if _POLICY.search(reason) and any("Submit" in limit for limit in limits):
        return Outcome(
            kind=OutcomeKind.REJECTED_RETRY,
            sentence=f"Slurm refused the job: {text}. "
            "You have reached your submit limit: submit again when some of your jobs have ended.",
            cause=", ".join(dict.fromkeys(limits)),
        )
    if _REJECTED_FOR_NOW.search(reason):
        return Outcome(
            kind=OutcomeKind.REJECTED_RETRY,
            sentence=f"Slurm refused the job for now: {text}. Submit it again later.",
            cause=_QUEUE_FULL if _QUEUE_FULL in stderr else failures.printable(reason).rstrip("."),
        )
    if _POLICY.search(reason) or _REJECTED.search(reason):
        return Outcome(
            kind=OutcomeKind.REJECTED,
            sentence=f"Slurm refused the job: {text}. Correct it and submit again.",
        )
    return _ambiguous("sbatch failed", text)


def _unreachable(text: str) -> Outcome:
    return Outcome(
        kind=OutcomeKind.NOT_SENT_RETRY,
        sentence=f"sbatch could not reach slurmctld: {text}. "
        "Nothing was submitted. Submit again when slurmctld answers.",
        cause="slurmctld did not answer",
    )


def _ambiguous(event: str, text: str) -> Outcome:
    detail = f": {text}" if text else ""
    return Outcome(
        kind=OutcomeKind.AMBIGUOUS,
        sentence=f"{event}{detail}. Slurm may or may not have the job.",
    )
