"""How a job ended as Slurm, the exit record and the history tell it, without its log."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping

from orchestrator import jobs
from orchestrator.diagnosis import exits, refusals
from orchestrator.diagnosis.causes import Cause
from orchestrator.diagnosis.records import Evidence, Facts, Finding, Source
from orchestrator.jobs import JobState
from orchestrator.toml import values

#: What shells say of the program.
_BY_SHELL = {126: Cause.MISSING_PROGRAM, 127: Cause.MISSING_PROGRAM}
#: And our own scripts, which jobs that were submitted by hand have not.
_BY_CODE = {
    **_BY_SHELL,
    73: Cause.RUN_FOLDER,
    75: Cause.DUPLICATE,
    78: Cause.SETUP_FAILED,
}
_BY_SIGNAL = {
    signal.SIGILL: Cause.ILLEGAL_INSTRUCTION,
    signal.SIGABRT: Cause.ABORTED,
    # PyTorch's data loaders get it where /dev/shm is full.
    signal.SIGBUS: Cause.SHARED_MEMORY,
    signal.SIGKILL: Cause.KILLED,
    signal.SIGSEGV: Cause.SEGFAULT,
    signal.SIGTERM: Cause.KILLED,
    signal.SIGINT: Cause.KILLED,
}


def of_slurm(facts: Facts) -> Finding | None:
    """Return what the state, the exit code and the history say; none: it has not ended badly."""
    job = facts.job
    if job is None or not job.ended or job.state not in _TELLERS:
        return None
    cause, summary, cures = _TELLERS[job.state](facts, job)
    return Finding(
        cause=cause,
        rule=f"state:{job.state}",
        evidence=evidence_of(job),
        summary=summary,
        cures=cures,
    )


def evidence_of(job: jobs.Job) -> Evidence:
    """Return Slurm's own words for the end; of a job that it never had, sbatch's."""
    if job.state is JobState.NOT_SUBMITTED:
        return Evidence(text=job.reason or str(job.state), source=Source.SLURM)
    text = job.raw_state or str(job.state)
    if job.exit_code is not None:
        text = f"{text}, exit code {job.exit_code}:{job.exit_signal or 0}"
    if job.state is JobState.OUT_OF_MEMORY and not text.startswith(str(job.state)):
        # sacct tells it of the step alone (24.11).
        text = f"{text}, one of its steps OUT_OF_MEMORY"
    if job.scheduler == "local":
        return Evidence(text=text, source=Source.OURS)
    return Evidence(text=text, source=Source.SLURM)


def earlier(facts: Facts) -> tuple[str, ...]:
    """Return how the attempts before the newest one ended, a line each."""
    newest = 0 if facts.job is None else facts.job.attempt
    return tuple(
        f"attempt {one.number}: {one.state}{_on(one.node_list)}{_ran(one)}"
        for one in facts.attempts
        if one.number < newest
    )


_Told = tuple[Cause, str, tuple[str, ...]]


def _time_limit(facts: Facts, job: jobs.Job) -> _Told:
    limit = job.time_limit_seconds
    if limit is None:
        return Cause.TIME_LIMIT, "it reached its time limit", ()
    ran = _seconds(job)
    ran_for = "" if ran is None else f"it ran {values.elapsed(ran)} "
    summary = f"{ran_for}of its time limit of {values.elapsed(limit)}"
    more = f'ask for more, such as time_limit = "{values.elapsed(2 * limit)}"'
    return Cause.TIME_LIMIT, summary, (more,)


def _node_fail(facts: Facts, job: jobs.Job) -> _Told:
    nodes = job.node_list or ""
    one = (
        "" if not nodes else f"one of its nodes, {nodes}," if "[" in nodes else f"its node {nodes}"
    )
    what = "could not be booted" if job.state is JobState.BOOT_FAIL else "failed"
    cures = (f"leave it out until the site has looked at it: exclude = {nodes!r}",) if nodes else ()
    return Cause.NODE_FAIL, f"{one or 'a node of it'} {what}{_ran(job)}", cures


def _preempted(facts: Facts, job: jobs.Job) -> _Told:
    where = f" in partition {job.partition}" if job.partition else ""
    qos = f" with QOS {job.qos}" if job.qos else ""
    summary = f"a job of higher priority took its nodes{where}{qos}{_ran(job)}"
    return Cause.PREEMPTED, summary, ()


def _cancelled(facts: Facts, job: jobs.Job) -> _Told:
    asked = [event for event in facts.events if event.kind == "cancel"]
    when = _ran(job) if job.started_at else " while it waited"
    who = facts.canceller
    if who is None or who.is_me:
        name = "you" if who is None else f"you ({who.name})"
        if asked:
            at = asked[-1].at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
            summary = f"you cancelled it with orchestrator cancel at {at}{when}"
        elif who is None:
            return Cause.CANCELLED, f"it was cancelled{when}; Slurm does not tell by whom", ()
        else:
            summary = f"{name} cancelled it by hand, or a program of yours did (scancel){when}"
        return Cause.CANCELLED, summary, ()
    if who.user_id == 0 and facts.began is False and job.started_at:
        # Measured: a failed prolog ends a job with --no-requeue so (24.11).
        summary = (
            f"Slurm ended it{_on(job.node_list)} before its script began, as it does where the "
            "site's prolog fails (or an administrator cancelled it in that moment)"
        )
        return Cause.LAUNCH_FAILED, summary, _OTHER_NODES
    if who.user_id == 0:
        summary = f"root cancelled it: an administrator, or Slurm itself{when}"
    else:
        summary = (
            f"{who.name}, another user who may (an operator, or a coordinator of the account), "
            f"cancelled it{when}"
        )
    return Cause.CANCELLED, summary, ("ask the site's support why, before you send it again",)


def _out_of_memory(facts: Facts, job: jobs.Job) -> _Told:
    where = _on(job.node_list)
    return Cause.OOM_HOST, f"its processes used more memory than it asked for{where}{_ran(job)}", ()


def _deadline(facts: Facts, job: jobs.Job) -> _Told:
    when = " while it waited" if job.started_at is None else _ran(job)
    return Cause.DEADLINE, f"its deadline came{when}", ()


def _failed(facts: Facts, job: jobs.Job) -> _Told:
    code, number = job.exit_code or 0, job.exit_signal or 0
    if number == exits.LAUNCH_FAILED_SIGNAL:
        log = f" ({job.stdout_path})" if job.stdout_path else ""
        return (
            Cause.LAUNCH_FAILED,
            f"its log{log} or its working folder could not be opened{_on(job.node_list)}",
            (),
        )
    if (job.reason or "").startswith("JobLaunchFailure"):
        return Cause.LAUNCH_FAILED, f"Slurm could not start it{_on(job.node_list)}", ()
    if not number and 128 < code < 128 + signal.NSIG:
        number = code - 128
    if number in _SIGNALS:
        name = signal.Signals(number)
        what = "the batch script" if job.exit_signal else "its program"
        summary = f"{what} was ended by {name.name} (exit code {code}:{job.exit_signal or 0})"
        return _BY_SIGNAL.get(name, Cause.KILLED), summary, ()
    told = exits.explain_exit(job)
    summary = f"{told} (exit code {code})" if told else f"it ended with exit code {code}"
    known = _BY_CODE if job.tracked_name is None else _BY_SHELL
    return known.get(code, Cause.NONZERO_EXIT), summary, ()


def _lost(facts: Facts, job: jobs.Job) -> _Told:
    since = job.observed_at
    when = "" if since is None else f" since {since.astimezone().strftime('%Y-%m-%d %H:%M')}"
    return Cause.LOST, f"Slurm had it and knows nothing of it{when}, and nothing tells its end", ()


def _not_submitted(facts: Facts, job: jobs.Job) -> _Told:
    reason = job.reason or ""
    return refusals.cause_of(reason), reason.partition("\n")[0] or "Slurm never got it", ()


_OTHER_NODES = ("sinfo -R tells whether the node is drained; leave it out: exclude",)
_SIGNALS = frozenset(signal.Signals)
_TELLERS: Mapping[JobState, Callable[[Facts, jobs.Job], _Told]] = {
    JobState.TIMEOUT: _time_limit,
    JobState.NODE_FAIL: _node_fail,
    JobState.BOOT_FAIL: _node_fail,
    JobState.PREEMPTED: _preempted,
    JobState.CANCELLED: _cancelled,
    JobState.OUT_OF_MEMORY: _out_of_memory,
    JobState.DEADLINE: _deadline,
    JobState.FAILED: _failed,
    JobState.LOST: _lost,
    JobState.NOT_SUBMITTED: _not_submitted,
}


def _seconds(job: jobs.Job | jobs.Attempt) -> float | None:
    if job.started_at is None or job.ended_at is None:
        return None
    return max((job.ended_at - job.started_at).total_seconds(), 0)


def _ran(job: jobs.Job | jobs.Attempt) -> str:
    ran = _seconds(job)
    return "" if ran is None else f", {values.elapsed(ran)} after it started"


def _on(node_list: str | None) -> str:
    return f" on {node_list}" if node_list else ""
