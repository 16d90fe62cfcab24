"""Explanations as rows. The JSON fields are a contract."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence

from orchestrator import jobs, recovery
from orchestrator.controller.diagnosis import explanations
from orchestrator.controller.prune import marks
from orchestrator.controller.recovery import chains
from orchestrator.controller.session import contexts
from orchestrator.diagnosis import causes, log_rules, records
from orchestrator.jobs import naming
from orchestrator.rows import row_values

#: Details that the text already contains.
HIDDEN_DETAILS = frozenset(
    {
        *("rule", "state", "other_lines", "rank_exit_code"),
        *("waiting", "reason", "can_start", "expected_start", "jobs_before"),
    }
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Explained:
    """Why a job failed or is pending, and what was decided about it."""

    #: None: a log without a job
    job: jobs.Job | None = None
    explanation: records.Explanation
    #: Of a recovery rule, after this failure.
    decision: recovery.StoredDecision | None = None
    #: that the run folder was pruned; "": it was not
    pruned: str = ""

    @property
    def fixes(self) -> list[str]:
        """The fixes, with the job's ID in place of JOB."""
        if self.job is None:
            return list(self.explanation.cures)
        name = naming.name_of(self.job)
        return [re.sub(r"(?<![-\w])JOB\b", name, fix) for fix in self.explanation.cures]


def explained(
    context: contexts.Context,
    selected: Sequence[jobs.Job],
    rules: log_rules.Rules,
    attempt: int | None = None,
    *,
    may_ask: bool = True,
) -> list[Explained]:
    """Return the explanations of jobs; may_ask: ask Slurm about pending ones."""
    decisions = chains.decisions(context, selected, attempt=attempt)
    return [
        Explained(
            job=job,
            explanation=explanations.explain(context, job, rules, attempt=attempt, may_ask=may_ask),
            decision=decisions.get(job.row),
            pruned=marks.note(context, job),
        )
        for job in selected
    ]


def row(explained: Explained) -> dict[str, object]:
    """Return an explanation as JSON has it."""
    job, explanation, decision = explained.job, explained.explanation, explained.decision
    traceback = explanation.traceback
    fields: dict[str, object] = {
        **row_values.fields_of(job, ("job_id", "row", "name", "state")),
        **row_values.fields_of(explanation, ("cause", "summary")),
        "evidence": list(map(_evidence, explanation.evidence)),
        "cures": explained.fixes,
        "first_failing_rank": explanation.first_failing_rank,
        "traceback": traceback and _traceback(traceback),
    }
    if explanation.cause is not None:
        fields |= row_values.fields_of(
            causes.known()[explanation.cause], ("title", "acts", "retry")
        )
    return {
        **fields,
        "details": dict(explanation.details),
        "then": decision and decision.detail,
        "also": [
            {
                **row_values.fields_of(finding, ("cause", "rule")),
                "summary": summary(finding),
                "warning": finding.level is records.Level.WARNING,
                **_evidence(finding.evidence),
            }
            for finding in explanation.also
        ],
    }


def _evidence(evidence: records.Evidence) -> dict[str, object]:
    return row_values.fields_of(evidence, ("path", "line", "text", "source"))


def summary(finding: records.Finding) -> str:
    """Return what a finding is about, in one line."""
    return finding.summary or causes.known()[finding.cause].title


def _traceback(traceback: records.Traceback) -> Mapping[str, object]:
    names = ("path", "first_line", "last_line", "rank", "exception", "message")
    frame = traceback.own_frame
    return {
        **row_values.fields_of(traceback, names),
        "own_frame": frame and row_values.fields_of(frame, ("path", "line", "code")),
        "lines": list(traceback.lines),
    }
