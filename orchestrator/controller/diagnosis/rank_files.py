"""Read the files that torchrun and @record keep for single ranks.

torchrun writes RUN_ID_RANDOM/attempt_N/LOCAL_RANK/{stdout.log,stderr.log,error.json} below its
--log-dir: one RUN_ID_RANDOM per node, one attempt_N per restart of its ranks, and the logs only
with --redirects or --tee. Our job scripts put them into torchrun/TASK.ATTEMPT of the run folder,
and error.TASK.ATTEMPT.RANK.json of ranks that torchrun did not start beside it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from orchestrator import files, jobs
from orchestrator.clocks import deadlines
from orchestrator.diagnosis import log_reader, log_rules, torchelastic
from orchestrator.diagnosis.records import Finding
from orchestrator.logs import head_and_tail

#: Folders of ranks that are read, that of the rank which failed first before all others.
_MAX_RANKS = 64
_MAX_ENTRIES = 4096
_ERROR_FILE_LIMIT_BYTES = 4 * 1024 * 1024
#: An error file that a log names is opened only if it is at its place in torchrun's folders.
_NAMED = re.compile(r"/(?:[^/]+/)+attempt_\d{1,6}/\d{1,6}/error\.json", re.ASCII)
_ATTEMPT = re.compile(r"attempt_(\d{1,6})", re.ASCII)
_OWN = re.compile(r"error\.(\d{1,10})\.(\d{1,10})\.(\d{1,10})\.json", re.ASCII)


@dataclasses.dataclass(frozen=True)
class _Place:
    paths: tuple[Path, ...]
    rank: int | None


def findings(
    job: jobs.Job | None,
    error_files: Mapping[str, int | None],
    rules: log_rules.Rules,
    deadline: deadlines.Deadline,
) -> list[Finding]:
    """Return what the files of the ranks show; `error_files`: ranks by path, named in a log.

    Files that cannot be read are left out.
    """
    found: list[Finding] = []
    for place in [*_named(error_files), *(_of_job(job) if job is not None else ())][:_MAX_RANKS]:
        for path in place.paths:
            if deadline.is_over:
                return found
            for finding in _read(path, rules, deadline):
                rank = place.rank if finding.rank is None else finding.rank
                traceback = finding.traceback and dataclasses.replace(finding.traceback, rank=rank)
                found.append(dataclasses.replace(finding, rank=rank, traceback=traceback))
    return found


def _read(path: Path, rules: log_rules.Rules, deadline: deadlines.Deadline) -> tuple[Finding, ...]:
    reader = log_reader.LogReader(rules, str(path))
    if path.suffix == ".json":
        for text in torchelastic.traceback_lines(_content(path)):
            reader.feed(1, text)
    else:
        for line in head_and_tail.scan(str(path), head_and_tail.Scan(), deadline=deadline):
            reader.feed(line.number, line.text)
    return reader.finish()


def _content(path: Path) -> str:
    with contextlib.suppress(OSError):
        return files.read_text(path, limit_bytes=_ERROR_FILE_LIMIT_BYTES, errors="replace")
    return ""


def _named(error_files: Mapping[str, int | None]) -> Iterator[_Place]:
    for name, rank in error_files.items():
        if _NAMED.fullmatch(name) and ".." not in Path(name).parts:
            yield _place(Path(name).parent, rank)


def _of_job(job: jobs.Job) -> Iterator[_Place]:
    task, folder = job.array_task_id or 0, Path(job.run_dir)
    # One folder per node. The folders of a job on one node have the numbers of its ranks.
    nodes = entries(folder / "torchrun" / f"{task}.{job.attempt}")
    for node in nodes:
        attempts = {
            int(match[1]): path
            for path in entries(node)
            if (match := _ATTEMPT.fullmatch(path.name))
        }
        if not attempts:
            continue
        ranks = [path for path in entries(attempts[max(attempts)]) if path.name.isdecimal()]
        for path in sorted(ranks, key=lambda path: int(path.name)):
            yield _place(path, int(path.name) if len(nodes) == 1 else None)
    for path in entries(folder):
        match = _OWN.fullmatch(path.name)
        if match and (int(match[1]), int(match[2])) == (task, job.attempt):
            yield _Place((path,), int(match[3]))


def _place(folder: Path, rank: int | None) -> _Place:
    return _Place(tuple(folder / name for name in ("error.json", "stderr.log", "stdout.log")), rank)


def entries(folder: Path) -> Sequence[Path]:
    """Return what is in a folder, not more than a limit, sorted."""
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as found:
        for entry in found:
            names.append(entry.name)
            if len(names) >= _MAX_ENTRIES:
                break
    return [folder / name for name in sorted(names)]
