"""The names of a cluster's nodes, stored so that submissions need not ask Slurm for them."""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Collection

from db import unit_of_work
from orchestrator import errors
from orchestrator.controller.session import contexts

#: A refresh asks Slurm again after this time, if jobs are submitted without nodes.
RENEW_SECONDS = 1800
#: Older names are not used: sbatch fails if it is to exclude a node that is gone.
MAX_AGE_SECONDS = 3600
#: Before a name counts as unknown, names older than this are read again.
NEW_SECONDS = 60


def stored(work: unit_of_work.UnitOfWork, cluster: str) -> frozenset[str] | None:
    """Return the stored names, of any age; None: there are none."""
    return _stored(work, cluster)[1] or None


def renew(context: contexts.Context, cluster: str) -> None:
    """Ask Slurm for the names if the stored ones are old; it may not answer."""
    with context.store.reading() as work:
        asked_at, names = _stored(work, cluster)
    if not _is_fresh(context, asked_at, RENEW_SECONDS):
        # After a failure the next attempt is due after the same time.
        with contextlib.suppress(errors.SlurmError):
            names = frozenset(context.slurm.node_names())
        _store(context, cluster, names)


def of(
    context: contexts.Context, cluster: str, max_age_seconds: float = MAX_AGE_SECONDS
) -> frozenset[str] | None:
    """Return the names, from Slurm if the stored ones are too old; None: it does not answer."""
    with context.store.reading() as work:
        asked_at, names = _stored(work, cluster)
    if names and _is_fresh(context, asked_at, max_age_seconds):
        return names
    try:
        names = frozenset(context.slurm.node_names())
    except errors.SlurmError:
        return None
    _store(context, cluster, names)
    return names or None


def _is_fresh(
    context: contexts.Context, asked_at: datetime.datetime | None, seconds: float
) -> bool:
    return asked_at is not None and 0 <= (context.clock.now() - asked_at).total_seconds() < seconds


def _stored(
    work: unit_of_work.UnitOfWork, cluster: str
) -> tuple[datetime.datetime | None, frozenset[str]]:
    try:
        asked_at, names = json.loads(work.settings.get(_key(cluster)) or "")
        return datetime.datetime.fromisoformat(asked_at), frozenset(names)
    except (ValueError, TypeError):
        # Missing, or written by another version.
        return None, frozenset()


def _store(context: contexts.Context, cluster: str, names: Collection[str]) -> None:
    text = json.dumps([context.clock.now().isoformat(), sorted(names)])
    with context.store.writing() as work:
        work.settings.put(_key(cluster), text)


def _key(cluster: str) -> str:
    return f"nodes:{cluster}"
