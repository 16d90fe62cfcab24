"""Usage of jobs in sacct's output of three releases."""

import dataclasses
import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.slurm import sacct


def test_usage_of_a_job(recorded):
    lines = recorded.lines("sacct-usage.txt")
    first = sacct.parse_usage([line for line in lines if not line.startswith("2")], None)
    assert first is not None
    assert (first.cpus, first.memory_asked_bytes, first.energy_joules) == (4, 600 << 20, None)
    assert (first.elapsed_seconds, first.cpu_seconds) == {
        "22.05": (13, 5.536),
        "24.11": (14, 4.865),
        "26.05": (13, 3.979),
    }[recorded.name]
    # A task with 200 MiB on each of two nodes. That lab's 22.05 measured no memory.
    assert (
        first.memory_peak_bytes
        == {
            "22.05": None,
            "24.11": 208432 << 10,
            "26.05": 208576 << 10,
        }[recorded.name]
    )
    assert first.complete


def test_each_attempt_has_its_own_usage(recorded):
    lines = [line for line in recorded.lines("sacct-usage.txt") if line.startswith("2")]
    submitted = {"22.05": 1795298835, "24.11": 1795298779, "26.05": 1795298888}[recorded.name]
    at = datetime.datetime.fromtimestamp(submitted, datetime.UTC)
    whole = sacct.parse_usage(lines, None)
    first = sacct.parse_usage(lines, at)
    assert whole is not None and first is not None
    assert first.cpu_seconds == {"22.05": 0.004, "24.11": 0.003, "26.05": 0.004}[recorded.name]
    assert whole.cpu_seconds == 0.005
    assert sacct.parse_usage(lines[:1], at) == dataclasses.replace(
        first, complete=False, memory_peak_bytes=None
    )
    assert sacct.parse_usage(["", "nonsense", *lines[1:2]], None) is None


def test_peak_memory_of_several_tasks_per_node() -> None:
    def peak(tasks: int, nodes: int, largest: str, total: str) -> int | None:
        row = {"NTasks": str(tasks), "NNodes": str(nodes), "MaxRSS": largest}
        return sacct._peak_bytes(row | {"TRESUsageInTot": f"cpu=00:00:01,mem={total}"})

    assert peak(8, 2, "100M", "500M") == 400 << 20
    assert peak(4, 1, "100M", "250M") == 250 << 20
    assert peak(1, 1, "100M", "0") == 100 << 20
    assert peak(1, 1, "", "") is None


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [("00:04.865", 4.865), ("1-02:03:04", 93784.0), ("00:01:00", 60.0), ("", None), ("x", None)],
)
def test_cpu_time(raw: str, seconds: float | None) -> None:
    assert sacct._cpu_seconds(raw) == seconds


@given(st.lists(st.lists(st.text(st.sampled_from("0159KMGP:-.,=_mebatch\x1f ")), min_size=12)))
def test_any_usage_output_is_parsed(rows):
    sacct.parse_usage(["\x1f".join(["1", *row[1:12]]) for row in rows], None)
