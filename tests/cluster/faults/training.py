"""A training in a row of the matrix, and the check that its attempts were separate."""

from __future__ import annotations

import collections
import datetime
import itertools
import json
from typing import Any

from tests.cluster import lab as cluster
from tests.cluster import site as sites
from tests.cluster.faults import rows

#: Attempts before the last train forever, slowly, because tests run on two cores. Each starts
#: from scratch, so that its metrics can be counted: test_resumed_training.py tests resuming.
TRAIN = (
    'epochs=1000000; [ "$ORCHESTRATOR_ATTEMPT" -lt {last} ] || epochs=3; OMP_NUM_THREADS=1'
    f" PACE_SECONDS=0.3 {sites.PYTHON} -m tests.cluster.paced_training --device cpu"
    " --window-steps 5"
    ' --checkpoint-dir "$ORCHESTRATOR_RUN_DIR/checkpoints.$ORCHESTRATOR_ATTEMPT"'
    " --epochs $epochs"
)
#: The command line that Slurm's hosts see of it.
PROCESS = "paced_training"


def submit(row: rows.Row, name: str, *argv: str, last: int, **tables: str) -> str:
    """Submit a training whose attempt `last` ends by itself; its job ID."""
    tables = {"resources": 'mem = "2G"', "metrics": 'patterns = ["olivia"]', **tables}
    return row.submit(name, TRAIN.format(last=last), *argv, **tables)


def lines(lab: cluster.Lab, run_dir: str) -> list[dict[str, Any]]:
    """What the trainer has written into metrics.jsonl so far."""
    return [json.loads(line) for line in lab.read_lines(f"{run_dir}/metrics.jsonl")]


def wait_lines(row: rows.Row, job_id: str, attempt: int) -> None:
    """Wait until an attempt has reported complete epochs."""
    run_dir = row.site.job(job_id)["run_dir"]

    def written() -> bool:
        mine = [line for line in lines(row.site.lab, run_dir) if line["attempt"] == attempt]
        return sum(item["name"] == "throughput" for item in mine) >= 2

    row.site.lab.wait_for(written, 300, f"epochs of attempt {attempt} of {job_id}", 0.3)


def mixed(written: list[dict[str, Any]], began: dict[int, float]) -> list[str]:
    """What breaks the order of attempts: a line of an older one after a newer one began.

    `began` is when each attempt's script made its link, in seconds since the epoch.
    """
    breaches = []
    for before, after in itertools.pairwise(written):
        if after["attempt"] < before["attempt"]:
            breaches.append(f"attempt {after['attempt']} wrote after {before['attempt']}: {after}")
    for item in written:
        number, moment = item["attempt"], datetime.datetime.fromisoformat(item["time"]).timestamp()
        later = [began[n] for n in began if n > number]
        # The link has whole seconds, cut off.
        if later and moment > min(later) + 1:
            breaches.append(f"attempt {number} wrote at {moment}, {min(later)} began another")
    return breaches


def check(row: rows.Row, job: dict[str, Any], ends: list[str]) -> None:
    """One job: its attempts ended as in `ends`, and each has its own files."""
    lab, run_dir = row.site.lab, job["run_dir"]
    attempts = job["attempts"]
    assert [attempt["number"] for attempt in attempts] == list(range(len(ends)))
    assert [attempt["state"] for attempt in attempts] == ends
    for attempt in attempts:
        assert attempt["started_at"] <= attempt["ended_at"] and attempt["node_list"], attempt
    for before, after in itertools.pairwise(attempts):
        assert before["ended_at"] <= after["started_at"], attempts
    numbers = range(len(ends))
    began = {
        number: float(lab.read(f"{run_dir}/attempt.0.{number}").split()[-1]) for number in numbers
    }
    written = lines(lab, run_dir)
    assert not mixed(written, began), "\n".join(mixed(written, began))
    assert {item["attempt"] for item in written} == set(numbers)
    # The metrics in the log and in the file agree, attempt by attempt.
    reported = {source: epochs(row, job["job_id"], source) for source in ("jsonl", "log")}
    for number in numbers:
        by_file, by_log = reported["jsonl"][number], reported["log"][number]
        assert by_file == list(range(1, len(by_file) + 1)), (number, by_file)
        assert by_log == list(range(1, len(by_log) + 1)), (number, by_log)
        assert 0 <= len(by_file) - len(by_log) <= 1, number
    assert reported["jsonl"][len(ends) - 1] == reported["log"][len(ends) - 1] == [1, 2, 3]
    text = lab.read(job["stdout_path"])
    banners = [line for line in text.splitlines() if line.startswith("=== orchestrator ")]
    assert [line.split()[7:9] for line in banners] == [["attempt", str(n)] for n in numbers]


def epochs(row: rows.Row, job_id: str, source: str) -> dict[int, list[int]]:
    """The epochs with a throughput from a source, by attempt."""
    result: dict[int, list[int]] = collections.defaultdict(list)
    for item in row.site.items("metrics", job_id, "--source", source, "--name", "throughput"):
        # What has no epoch is of the whole run.
        if item["epoch"] is not None:
            result[item["attempt"]].append(item["epoch"])
    return result
