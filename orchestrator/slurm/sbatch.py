"""sbatch: submit a script, and what its output says about whether Slurm has the job."""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from collections.abc import Sequence

from orchestrator.processes import process
from orchestrator.slurm import failures

#: sbatch retries for up to 120 s, and connecting takes time too
TIMEOUT_SECONDS = 180.0


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
    kind: OutcomeKind
    #: for the user: what happened and what to do
    sentence: str
    #: why it was refused for now: the limit's name, or slurmctld's own words
    cause: str = ""
    job_id: str | None = None

    @property
    def has_no_nodes(self) -> bool:
        """Whether the job was refused because no nodes could ever run it."""
        return self.kind is OutcomeKind.REJECTED and has_no_nodes(self.sentence)


#: The job's ID, and the cluster's name if sbatch was called with --clusters.
_ACCEPTED = re.compile(r"(\d{1,10})(?:;\S+)?", re.ASCII)
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
_NO_NODES = "Requested node configuration is not available"
#: What is added to sbatch's own messages.
_SENTENCES = {
    OutcomeKind.REJECTED: "Slurm refused the job: {}. Correct it and submit again.",
    OutcomeKind.REJECTED_RETRY: "Slurm refused the job for now: {}. Submit it again later.",
    OutcomeKind.NOT_SENT: "sbatch rejected the job: {}. Correct it and submit again.",
    OutcomeKind.NOT_SENT_RETRY: "sbatch could not reach slurmctld: {}. Nothing was submitted. "
    "Submit again when slurmctld answers.",
    OutcomeKind.AMBIGUOUS: "{}. Slurm may or may not have the job.",
}
_SUBMIT_LIMIT = (
    "Slurm refused the job: {}. You have reached your submit limit: submit again when some of "
    "your jobs have ended."
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
    job_id = _job_id(result.stdout)
    if result.returncode == 0 and not result.timed_out and job_id is not None:
        sentence = f"Slurm accepted the job as {job_id}"
        return Outcome(kind=OutcomeKind.ACCEPTED, sentence=sentence, job_id=job_id)
    if result.timed_out or result.returncode < 0:
        return _ambiguous(f"sbatch {failures.ending(result)}", text)
    if result.returncode == 0:
        output = failures.printable(result.stdout[:200]) or text
        return _ambiguous("sbatch printed no job ID", output)
    if job_id is not None:
        return _ambiguous(f"sbatch failed and yet printed job ID {job_id}", text)
    if _CONTACT_LOST.search(result.stderr):
        return _ambiguous("sbatch lost contact with slurmctld", text)
    reason = (_FAILED.findall(result.stderr) or [""])[-1]
    limits = _LIMIT.findall(result.stderr)
    if _POLICY.search(reason) and any("Submit" in limit for limit in limits):
        return Outcome(
            kind=OutcomeKind.REJECTED_RETRY,
            sentence=_SUBMIT_LIMIT.format(text),
            cause=", ".join(dict.fromkeys(limits)),
        )
    kind = _kind(reason, result.stderr)
    if kind is OutcomeKind.AMBIGUOUS:
        return _ambiguous(f"sbatch {failures.ending(result)}", text)
    cause = ""
    if kind is OutcomeKind.NOT_SENT_RETRY:
        cause = "slurmctld did not answer"
    elif kind is OutcomeKind.REJECTED_RETRY:
        is_full = _QUEUE_FULL in result.stderr
        cause = _QUEUE_FULL if is_full else failures.printable(reason).rstrip(".")
    return Outcome(kind=kind, sentence=_SENTENCES[kind].format(text), cause=cause)


def has_no_nodes(message: str) -> bool:
    """Return whether a message of sbatch says that no nodes could ever run the job."""
    return _NO_NODES in message


def parse_test_only(stderr: str) -> str | None:
    """Return the estimate of `sbatch --test-only` as a sentence; None if there is none."""
    match = _ESTIMATE.search(stderr)
    if match is None:
        return None
    from orchestrator.slurm import fields

    starts_at = fields.parse_time(match[1])
    when = starts_at.isoformat() if starts_at else "an unknown time"
    nodes = fields.parse_text(match[2]) or "no node"
    return f"Slurm would start the job at {when} on {nodes} in partition {match[3]}"


def _job_id(stdout: str) -> str | None:
    # Wrappers of sites print advice before sbatch's output; numbers in it are not job IDs.
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    match = _ACCEPTED.fullmatch(lines[-1]) if lines else None
    return match[1] if match else None


def _kind(reason: str, stderr: str) -> OutcomeKind:
    """Return what slurmctld's reason proves; without one, what sbatch's own messages prove."""
    if not reason and _NOT_SENT.search(stderr):
        return OutcomeKind.NOT_SENT
    # Without munge the request was not signed. Otherwise the answer could not be verified.
    unsigned = "Protocol authentication error" in reason and "Munge encode failed" in stderr
    no_settings = not reason and "configuration source" in stderr
    if unsigned or no_settings or "(connect failure)" in reason:
        return OutcomeKind.NOT_SENT_RETRY
    if _REJECTED_FOR_NOW.search(reason):
        return OutcomeKind.REJECTED_RETRY
    if _POLICY.search(reason) or _REJECTED.search(reason):
        return OutcomeKind.REJECTED
    return OutcomeKind.AMBIGUOUS


def _ambiguous(event: str, text: str) -> Outcome:
    kind = OutcomeKind.AMBIGUOUS
    event += f": {text}" if text else ""
    return Outcome(kind=kind, sentence=_SENTENCES[kind].format(event))
