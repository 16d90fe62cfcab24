"""What a request did on this host, from the history of jobs."""

from __future__ import annotations

from orchestrator import config, errors
from orchestrator.controller.session import callers, contexts, stores

_MAX_JOBS = 20


def jobs_of(configuration: config.Configuration, request: str) -> list[str]:
    """Return the jobs that a request has submitted or changed, as commands accept them.

    None are returned if the database cannot be read.
    """
    source = contexts.source_through(callers.Caller(request=request).through)
    try:
        with stores.of(configuration) as store:
            if not store.exists():
                return []
            with store.reading() as work:
                return [f"@{row}" for row in work.events.jobs_of(source, _MAX_JOBS)]
    except errors.DatabaseError:
        return []
