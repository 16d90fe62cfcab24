"""What has changed since a plan was made."""

from __future__ import annotations

from orchestrator.plans import records


def changes(plan: records.Plan, effect: records.Effect) -> list[str]:
    """Return a sentence for each fact on which a plan is based that is new, gone or different."""
    before, now = plan.basis, effect.basis
    sentences = []
    for name in dict.fromkeys([*before, *now]):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if old is None:
            sentences.append(f"{name} was not part of the plan")
        elif new is None:
            sentences.append(f"{name} is not part of it any more")
        elif old.startswith(records.DIGEST):
            sentences.append(f"{name} has changed")
        else:
            sentences.append(f"{name} was {old} and is {new}")
    if not sentences and plan.gpu_hours != effect.gpu_hours:
        was, would_be = map(records.most_hours, (plan.gpu_hours, effect.gpu_hours))
        sentences.append(f"it was to use {was}, and would use {would_be}")
    return sentences
