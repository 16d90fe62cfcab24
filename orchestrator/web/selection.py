"""Which pages an export has, and the names of their files."""

from __future__ import annotations

import dataclasses
import re
import urllib.parse
from collections.abc import Mapping, Sequence

#: Jobs that one page compares.
MAX_COMPARED = 16
_JOB = re.compile(r"/jobs/(\d+)(|/log|/log\.txt)", re.ASCII)
_SWEEP = re.compile(r"/sweeps/(\d+)(|/report)", re.ASCII)
_STATIC = re.compile(r"/static/\w+/([\w.]+)", re.ASCII)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Selection:
    """What is exported: rows of jobs and of sweeps."""

    jobs: Sequence[int]
    sweeps: Sequence[int] = ()

    def file_of(self, url: str) -> str | None:
        """Return the name of the file for an address; None: it is not exported."""
        parsed = urllib.parse.urlsplit(url)
        query = urllib.parse.parse_qs(parsed.query)
        if parsed.path == "/" and not query:
            return "index.html"
        if parsed.path == "/sweeps" and self.sweeps and not query:
            return "sweeps.html"
        if parsed.path == "/compare" and self._can_compare and not query:
            return "compare.html"
        if parsed.path == "/curves":
            (row, *further_rows) = query.get("job", ["0"])
            is_exported = not further_rows and row.isdecimal() and int(row) in self.jobs
            return f"jobs/{row}-curves.html" if is_exported else None
        if match := _STATIC.fullmatch(parsed.path):
            return f"static/{match[1]}"
        if match := _SWEEP.fullmatch(parsed.path):
            part = match[2].replace("/", "-")
            is_exported = int(match[1]) in self.sweeps and not query
            return f"sweeps/{match[1]}{part}.html" if is_exported else None
        if (match := _JOB.fullmatch(parsed.path)) and int(match[1]) in self.jobs:
            return self._file_of_job(match[1], match[2], query)
        return None

    def _file_of_job(self, row: str, part: str, query: Mapping[str, Sequence[str]]) -> str | None:
        if not part:
            return None if query else f"jobs/{row}.html"
        name = f"jobs/{row}-{'stderr' if 'stderr' in query else 'log'}"
        if part == "/log.txt":
            return f"{name}.txt"
        if parameters := query.keys() - {"stderr"}:
            line = query.get("line", [""])[0]
            return f"{name}-{line}.html" if parameters == {"line"} and line.isdecimal() else None
        return f"{name}.html"

    def url_of(self, url: str) -> str:
        """Return the address that is asked for instead: pages with all rows and metrics."""
        path = urllib.parse.urlsplit(url).path
        if path == "/":
            return "/?age=all&fold=0"
        if path == "/compare":
            return f"/compare?{urllib.parse.urlencode([('job', row) for row in self.jobs])}"
        if path == "/curves":
            rows = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)["job"]
            return f"/curves?job={rows[0]}"
        return f"{url}?all=1" if _SWEEP.fullmatch(path) and not path.endswith("report") else url

    @property
    def _can_compare(self) -> bool:
        return 1 < len(self.jobs) <= MAX_COMPARED
