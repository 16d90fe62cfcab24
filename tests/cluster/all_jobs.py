"""Print all jobs of the user's database with attempts and events, as JSON, without calling Slurm.

The same as `show --no-refresh --json` for each of them, in one process.
"""

import json

import click

from orchestrator import cli, jobs
from orchestrator.cli import session
from orchestrator.controller.session import queries
from orchestrator.rows import job_rows


def main():
    with click.Context(cli.cli, obj={}) as ctx:
        context = session.open_context(ctx)
        everything = jobs.JobQuery(limit=None)
        items = []
        for job in queries.list_jobs(context, everything)[0]:
            details = queries.details(context, job)
            items.append(
                {
                    **job_rows.job_row(job, context.clock.now()),
                    "attempts": [job_rows.attempt_row(attempt) for attempt in details.attempts],
                    "events": [job_rows.event_row(event) for event in details.events],
                }
            )
    print(json.dumps(items, default=lambda time: time.isoformat()))


if __name__ == "__main__":
    main()
