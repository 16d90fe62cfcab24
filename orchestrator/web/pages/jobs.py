"""The list of jobs. Its address has the filters, the order and the page."""

from __future__ import annotations

import dataclasses
import datetime
import urllib.parse
from collections.abc import Sequence

from starlette import datastructures, requests, responses

from orchestrator import jobs
from orchestrator.controller.session import clock_check, queries
from orchestrator.jobs import naming
from orchestrator.rows import job_rows
from orchestrator.web import rendering, site
from orchestrator.web.pages import actions

#: Submissions on a page, or jobs if arrays are not folded.
PAGE_SIZE = 50
_MAX_PAGE = 100_000
#: Live jobs, and those that were submitted or ended within this time.
AGES = {
    "live": datetime.timedelta(0),
    "1d": datetime.timedelta(days=1),
    "7d": datetime.timedelta(days=7),
    "30d": datetime.timedelta(days=30),
    "all": None,
}
AGE_NAMES = {
    "live": "live",
    "1d": "last day",
    "7d": "last 7 days",
    "30d": "last 30 days",
    "all": "all",
}
#: Heading -> the order by this column; None: not sortable.
COLUMNS = {
    "Job": "submitted",
    "Name": "name",
    "State": "state",
    "Reason": None,
    "Started": "started",
    "Elapsed": None,
    "Limit": "time_limit",
    "GPUs": "gpus",
    "Nodes": None,
}
#: Chips: name -> states
STATE_GROUPS = {
    "running": ("RUNNING", "COMPLETING", "CONFIGURING"),
    "waiting": ("PENDING", "SUBMITTING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"),
    "completed": ("COMPLETED",),
    "failed": (
        *("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "LOST"),
        "NOT_SUBMITTED",
    ),
    "cancelled": ("CANCELLED", "PREEMPTED"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Filter:
    """What the address of the list says. Unknown values count as absent."""

    q: str = ""
    state: str = ""
    label: str = ""
    sweep: str = ""
    age: str = "7d"
    order: str = "submitted"
    descending: bool = True
    is_folded: bool = True
    page: int = 1

    @classmethod
    def of(cls, given: datastructures.QueryParams) -> Filter:
        """Return the filter of an address."""
        state = given.get("state", "")
        age = given.get("age", cls.age)
        order = given.get("order", cls.order)
        page = given.get("page", "1")
        is_page = page.isascii() and page.isdecimal() and len(page) < 7
        is_state = state in STATE_GROUPS or state in list(jobs.JobState)
        return cls(
            q=given.get("q", "").strip(),
            state=state if is_state else "",
            label=given.get("label", ""),
            sweep=given.get("sweep", ""),
            age=age if age in AGES else cls.age,
            order=order if order in jobs.ORDERS else cls.order,
            descending=given.get("dir", "desc") != "asc",
            is_folded=given.get("fold", "1") != "0",
            page=min(max(int(page), 1), _MAX_PAGE) if is_page else 1,
        )

    def url(self, **changes: object) -> str:
        """Return the address with these changes; other changes than of the page begin at page 1."""
        if changes and "page" not in changes:
            changes = {**changes, "page": 1}
        new = dataclasses.replace(self, **changes)  # type: ignore[arg-type]
        parts = {
            **{name: getattr(new, name) for name in ("q", "state", "label", "sweep")},
            "age": "" if new.age == Filter.age else new.age,
            "order": "" if new.order == Filter.order else new.order,
            "dir": "" if new.descending else "asc",
            "fold": "" if new.is_folded else "0",
            "page": "" if new.page == 1 else str(new.page),
        }
        query = urllib.parse.urlencode({name: value for name, value in parts.items() if value})
        return f"/?{query}" if query else "/"

    def sorted_url(self, order: str) -> str:
        """Return the address of the list sorted by a column, or in the other direction."""
        return self.url(order=order, descending=self.order != order or not self.descending)

    def query(self, now: datetime.datetime) -> jobs.JobQuery:
        """Return which jobs match; the limit is that of a page."""
        age = AGES[self.age]
        states = STATE_GROUPS.get(self.state, (self.state,) if self.state else ())
        return jobs.JobQuery(
            words=self.q.split()[: actions.MAX_WORDS],
            states=states,
            labels=(self.label,) if self.label else (),
            sweeps=(self.sweep,) if self.sweep else (),
            live_or_since=None if age is None else now - age,
            limit=PAGE_SIZE,
        )


def show(request: requests.Request) -> responses.Response:
    web = site.of(request)
    web.live.want_refresh()
    shown = Filter.of(request.query_params)
    template = "jobs_list.html.j2" if "fragment" in request.query_params else "jobs.html.j2"
    allowed = actions.names() if web.running_actions else []
    return site.page(template, actions=allowed, **content(web, shown))


def content(web: site.Site, shown: Filter) -> dict[str, object]:
    """Return the values of the template."""
    context = web.context
    now = context.clock.now()
    query = shown.query(now)
    if web.selection is not None:
        query = dataclasses.replace(query, rows=web.selection.jobs, limit=None)
    offset = (shown.page - 1) * PAGE_SIZE
    with context.store.reading() as work:
        lists = work.job_lists
        groups_of = lists.groups if shown.is_folded else lists.tasks
        groups = groups_of(query, order=shown.order, descending=shown.descending, offset=offset)
        total = lists.number(query, is_folded=shown.is_folded)
        counts = lists.counts(query)
        first_jobs, slurm_error = queries.with_staleness(context, [each.first for each in groups])
        doubt = clock_check.stored_doubt(work)
        is_empty = not total and not work.jobs.find_rows(jobs.JobQuery(limit=1))
    groups = [
        dataclasses.replace(group, first=job) for group, job in zip(groups, first_jobs, strict=True)
    ]
    return {
        "filter": shown,
        "rows": [group_row(group, now) for group in groups],
        "columns": COLUMNS,
        "ages": AGE_NAMES,
        "chips": _chips(counts, shown),
        "total": total,
        "first_number": offset + 1,
        "pages": max(1, -(-total // PAGE_SIZE)),
        "messages": [*web.live.problems, *filter(None, (slurm_error, doubt))],
        "is_empty": is_empty,
        "now": now,
    }


def _chips(
    counts: dict[jobs.JobState, int], shown: Filter
) -> Sequence[tuple[str, str, str, int, bool]]:
    """Return name, kind, address and number of jobs of each state filter, and if it is set."""
    chips = []
    for name, states in STATE_GROUPS.items():
        number = sum(counts.get(jobs.JobState(state), 0) for state in states)
        is_set = shown.state == name
        url = shown.url(state="" if is_set else name)
        chips.append((name, rendering.state_kind(states[0]), url, number, is_set))
    return chips


def group_row(group: jobs.JobGroup, now: datetime.datetime) -> dict[str, object]:
    """Return a job or folded tasks as a row of the table."""
    job = group.first
    row = job_rows.job_line(job_rows.job_row(job, now))
    if group.count == 1:
        return {**row, "ids": naming.name_of(job), "count": 1, "array_of": None}
    tasks = f"{group.first_task}-{group.last_task}" if group.is_range else f"{group.count} tasks"
    common = {name: None for name in ("elapsed", "node_list", "started_at")}
    return {
        **row,
        **common,
        "ids": f"{job.array_job_id or ''}_[{tasks}]",
        "count": group.count,
        "array_of": job.array_job_id or job.name,
    }
