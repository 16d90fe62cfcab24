"""Real logs of failures: the cause, the line that tells it, the rank that failed first."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from orchestrator import diagnosis, errors, logs
from orchestrator.diagnosis import advice

FOLDER = Path(__file__).parents[2] / "data/failures"
CASES = tomllib.loads((FOLDER / "cases.toml").read_text())["case"]
RULES = diagnosis.load_shipped()


def explained(path: Path) -> diagnosis.Explanation:
    reader = diagnosis.Reader(RULES, str(path))
    for line in logs.scan(str(path), logs.Scan()):
        reader.feed(line.number, line.text)
    return diagnosis.diagnose(diagnosis.Facts(findings=reader.findings, last_line=reader.last))


@pytest.mark.parametrize("case", CASES, ids=[case["log"] for case in CASES])
def test_recorded_failures(case: dict[str, object]) -> None:
    told = explained(FOLDER / f"{case['log']}.log")
    assert (told.cause, told.first_failing_rank) == (case.get("cause"), case.get("rank"))
    if told.cause is not None:
        assert told.evidence[0].line == case["line"]
        assert told.cures
    assert ("made" in case) != ("source" in case)


def test_the_table_has_all_logs() -> None:
    assert {case["log"] for case in CASES} == {path.stem for path in FOLDER.glob("*.log")}
    ours = {case["cause"] for case in CASES if "made" in case and "cause" in case}
    assert len([case for case in CASES if "made" in case]) >= 50
    assert len(ours) >= 20


@pytest.fixture
def real_logs() -> Path:
    """Return the folder of real logs and of EXPECTED.jsonl, which says what stands in them."""
    told = os.environ.get("ORCHESTRATOR_TEST_DATA")
    beside = Path(__file__).parents[4].glob("*/data")
    for folder in [Path(told)] if told else beside:
        if (folder / "logs/EXPECTED.jsonl").is_file():
            return folder / "logs"
    pytest.skip(
        "no real logs here: ORCHESTRATOR_TEST_DATA names no folder with logs/EXPECTED.jsonl"
    )


def test_real_logs(real_logs: Path) -> None:
    """Each failure with one of its evidence lines; no failure where there is none."""
    failed = 0
    for entry in map(json.loads, (real_logs / "EXPECTED.jsonl").read_text().splitlines()):
        told = explained(real_logs / entry["file"])
        if "failure" not in entry:
            assert told.cause is None, entry["file"]
            continue
        failed += 1
        right = entry.get("acceptable_failures", [entry["failure"]])
        assert told.cause in right, entry["file"]
        assert told.evidence[0].line in entry["evidence_lines"], entry["file"]
        assert told.first_failing_rank == entry["first_failing_rank"], entry["file"]
    assert failed >= 10


# S1.21 to S1.25 and S4.29 to S4.31: what the sources' lists of troubles name, and what we say.
@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("address_in_use", "leave the port to the launcher"),
        ("gpu_oom_with_clock", "a smaller batch a GPU"),
        ("uneven", "drop_last=True"),
        ("join", "drop_last=True"),
        ("conditional", "inside `if rank == 0`"),
        ("mismatch", "inside `if rank == 0`"),
    ],
)
def test_the_cures_of_the_sources(log: str, said: str) -> None:
    told = explained(FOLDER / f"{log}.log")
    assert any(said in cure for cure in told.cures)


def test_advice_for_jobs_that_learn_otherwise_than_on_one_gpu() -> None:
    told = advice.of_ranks({"per_device_batch_size": 64, "seed": 1}, 8, ours=False)
    assert [one.partition(":")[0] for one in told] == [
        "other accuracy than on one GPU",
        "seed = 1 for all ranks makes all draw the same augmentations",
    ]
    assert "per_device_batch_size = 64 on 8 ranks is a global batch of 512" in told[0]
    assert advice.of_ranks({"per_device_batch_size": 64, "batch_size": 512}, 8, ours=True) == ()
    assert advice.of_ranks({"per_device_batch_size": 64, "seed": 1}, 1, ours=False) == ()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "UserWarning: There is an imbalance between your GPUs. You may want to exclude GPU 1 "
            "which has less than 75% of the memory or cores of GPU 0.",
            "use DistributedDataParallel",
        ),
        ("node1:17:17 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", "TCP sockets"),
        (
            "[W socket.cpp:464] [c10d] The hostname of the client socket cannot be retrieved.",
            "find each other slowly",
        ),
    ],
)
def test_warnings_are_no_failures(line: str, said: str) -> None:
    reader = diagnosis.Reader(RULES, "a.log")
    reader.feed(1, line)
    told = diagnosis.diagnose(diagnosis.Facts(findings=reader.findings))
    assert told.cause is None
    assert said in told.also[0].summary


def test_a_job_that_stopped_in_time_and_could_not_be_requeued(tmp_path: Path) -> None:
    log = tmp_path / "1.out"
    log.write_text(
        "Stopped after step 120, because the time limit is near: saved.\n"
        "Requested operation is presently disabled for job 1\n"
        "orchestrator: not requeued: scontrol refused it\n"
    )
    told = explained(log)
    assert told.cause is diagnosis.Cause.TIME_LIMIT
    assert told.summary == "it stopped in time, saved, and could not be requeued"


def test_the_first_failing_rank_counts_and_not_what_comes_after() -> None:
    told = explained(FOLDER / "exception_tee.log")
    assert told.traceback is not None
    assert told.traceback.rank == 2
    own = told.traceback.own_frame
    assert own is not None
    assert (own.path, own.line) == ("/home/alice/project/peer.py", 6)
    assert own.code == """raise ValueError(f"loss is {float('nan')} at step {step}")"""
    assert told.traceback.lines[-1] == "ValueError: loss is nan at step 3"
    assert all("[" not in line[:1] for line in told.traceback.lines)


def test_watchdogs_tell_who_waited_and_in_what() -> None:
    told = explained(FOLDER / "gpu_nccl_different_calls.log")
    assert told.details["different_calls"] == {
        "rank 3": "ALLREDUCE (number 80078)",
        "rank 7": "BROADCAST (number 80078)",
    }
    behind = explained(FOLDER / "gpu_nccl_one_behind.log")
    assert behind.details["different_numbers"] == {"rank 0": 96117, "rank 7": 64088}


def test_a_rule_with_a_mistake_is_told_with_its_place() -> None:
    text = '[[rule]]\nname = "own"\ncause = "oom_devic"\ncontains = ["x"]\nregex = "("\n'
    with pytest.raises(errors.ConfigurationError) as caught:
        diagnosis.load_rules(text, "own.toml")
    told = str(caught.value)
    assert 'no such cause. Did you mean "oom_device"?' in told
    assert "own.toml:3" in told
    assert "not a regular expression" in told


def test_own_rules_come_before_those_that_ship() -> None:
    text = """
[[rule]]
name = "licence"
cause = "limit_reached"
contains = ["no seat left"]
regex = 'ValueError: no seat left for (?P<what>\\w+)'
says = "all seats for {what} are taken"
"""
    reader = diagnosis.Reader(diagnosis.load_rules(text, "own.toml").before(RULES), "a.log")
    for number, line in enumerate(["ValueError: no seat left for solver", "MemoryError"], 1):
        reader.feed(number, line)
    told = diagnosis.diagnose(diagnosis.Facts(findings=reader.findings))
    assert (told.cause, told.summary) == ("limit_reached", "all seats for solver are taken")
