"""Recorded logs of failures: the cause, the line that shows it, the rank that failed first."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.diagnosis import explanations, log_reader, log_rules
from orchestrator.diagnosis.records import Explanation, JobFacts
from orchestrator.logs import head_and_tail

FOLDER = Path(__file__).parents[2] / "data/failures"
CASES = tomllib.loads((FOLDER / "cases.toml").read_text())["case"]
RULES = log_rules.load_shipped()


def explained(path: Path) -> Explanation:
    reader = log_reader.LogReader(RULES, str(path))
    for line in head_and_tail.scan(str(path), head_and_tail.Scan()):
        reader.feed(line.number, line.text)
    return explanations.explain(JobFacts(findings=reader.finish(), last_lines=reader.last_lines))


@pytest.mark.parametrize("case", CASES, ids=[case["log"] for case in CASES])
def test_recorded_failures(case: dict[str, object]) -> None:
    result = explained(FOLDER / f"{case['log']}.log")
    assert (result.cause, result.first_failing_rank) == (
        case.get("cause"),
        case.get("rank"),
    )
    if result.cause is not None:
        assert result.evidence[0].line == case["line"]
        assert result.cures
    assert ("made" in case) != ("source" in case)


def test_every_log_has_a_case() -> None:
    assert {case["log"] for case in CASES} == {path.stem for path in FOLDER.glob("*.log")}
    ours = {case["cause"] for case in CASES if "made" in case and "cause" in case}
    assert len([case for case in CASES if "made" in case]) >= 50
    assert len(ours) >= 20


@pytest.fixture
def real_logs() -> Path:
    """Return the folder of real logs and of EXPECTED.jsonl, which lists their causes."""
    result = os.environ.get("ORCHESTRATOR_TEST_DATA")
    beside = Path(__file__).parents[4].glob("*/data")
    for folder in [Path(result)] if result else beside:
        if (folder / "logs/EXPECTED.jsonl").is_file():
            return folder / "logs"
    pytest.skip(
        "no real logs here: ORCHESTRATOR_TEST_DATA names no folder with logs/EXPECTED.jsonl"
    )


def test_real_logs(real_logs: Path) -> None:
    """Each failure with one of its evidence lines; no failure where there is none."""
    failed = 0
    for entry in map(json.loads, (real_logs / "EXPECTED.jsonl").read_text().splitlines()):
        result = explained(real_logs / entry["file"])
        if "failure" not in entry:
            assert result.cause is None, entry["file"]
            continue
        failed += 1
        right = entry.get("acceptable_failures", [entry["failure"]])
        assert result.cause in right, entry["file"]
        assert result.evidence[0].line in entry["evidence_lines"], entry["file"]
        assert result.first_failing_rank == entry["first_failing_rank"], entry["file"]
    assert failed >= 10


# S1.21 to S1.25 and S4.29 to S4.31: the problems that the sources list, and our explanations.
@pytest.mark.parametrize(
    ("log", "text"),
    [
        ("address_in_use", "leave the port to the launcher"),
        ("gpu_oom_with_clock", "a smaller batch per GPU"),
        ("uneven", "drop_last=True"),
        ("join", "drop_last=True"),
        ("conditional", "inside `if rank == 0`"),
        ("mismatch", "inside `if rank == 0`"),
        ("exit_gloo_threads", "gloo's threads were running when Python exited"),
    ],
)
def test_fixes_for_the_problems_of_the_guides(log: str, text: str) -> None:
    result = explained(FOLDER / f"{log}.log")
    assert any(text in cure for cure in result.cures)


def test_advice_for_several_ranks() -> None:
    result = explanations.advice_for_ranks(
        {"per_device_batch_size": 64, "seed": 1}, 8, is_included_trainer=False
    )
    assert [advice.partition(":")[0] for advice in result] == [
        "accuracy can differ from that on one GPU",
        "seed = 1 on all ranks gives every rank the same augmentations",
    ]
    assert "per_device_batch_size = 64 on 8 ranks is a global batch of 512" in result[0]
    (one,) = explanations.advice_for_ranks({"micro_batch_size": 1}, 8, is_included_trainer=True)
    assert "micro_batch_size = 1 on 8 ranks is a global batch of 8" in one
    assert (
        explanations.advice_for_ranks(
            {"per_device_batch_size": 64, "batch_size": 512}, 8, is_included_trainer=True
        )
        == ()
    )
    assert (
        explanations.advice_for_ranks(
            {"per_device_batch_size": 64, "seed": 1}, 1, is_included_trainer=False
        )
        == ()
    )


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            "UserWarning: There is an imbalance between your GPUs. You may want to exclude GPU 1 "
            "which has less than 75% of the memory or cores of GPU 0.",
            "use DistributedDataParallel",
        ),
        ("node1:17:17 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", "TCP sockets"),
        (
            "[W socket.cpp:464] [c10d] The hostname of the client socket cannot be retrieved.",
            "the rendezvous is slow",
        ),
    ],
)
def test_warnings(line: str, text: str) -> None:
    reader = log_reader.LogReader(RULES, "a.log")
    reader.feed(1, line)
    result = explanations.explain(JobFacts(findings=reader.finish()))
    assert result.cause is None
    assert text in result.also[0].summary


def test_refused_requeue_at_the_time_limit(tmp_path: Path) -> None:
    log = tmp_path / "1.out"
    log.write_text(
        "Stopped after step 120, because the time limit is near: checkpoint saved.\n"
        "Requested operation is presently disabled for job 1\n"
        "orchestrator: not requeued: scontrol refused it\n"
    )
    result = explained(log)
    assert result.cause == "time_limit"
    assert (
        result.summary == "the program saved and stopped in time, but the job could not be requeued"
    )


def test_first_failing_rank() -> None:
    result = explained(FOLDER / "exception_tee.log")
    assert result.traceback is not None
    assert result.traceback.rank == 2
    own = result.traceback.own_frame
    assert own is not None
    assert (own.path, own.line) == ("/home/alice/project/peer.py", 6)
    assert own.code == """raise ValueError(f"loss is {float('nan')} at step {step}")"""
    assert result.traceback.lines[-1] == "ValueError: loss is nan at step 3"
    assert all("[" not in line[:1] for line in result.traceback.lines)


def test_ranks_that_waited_in_a_collective() -> None:
    result = explained(FOLDER / "gpu_nccl_different_calls.log")
    assert result.details["different_calls"] == {
        "rank 3": "ALLREDUCE (number 80078)",
        "rank 7": "BROADCAST (number 80078)",
    }
    behind = explained(FOLDER / "gpu_nccl_one_behind.log")
    assert behind.details["different_numbers"] == {"rank 0": 96117, "rank 7": 64088}


def test_invalid_rule() -> None:
    text = '[[rule]]\nname = "own"\ncause = "oom_devic"\ncontains = ["x"]\nregex = "("\n'
    with pytest.raises(errors.ConfigurationError) as caught:
        log_rules.load_rules(text, "own.toml")
    result = str(caught.value)
    assert 'no such cause. Did you mean "oom_device"?' in result
    assert "own.toml:3" in result
    assert "not a regular expression" in result


def test_user_rules_take_precedence() -> None:
    text = """
[[rule]]
name = "licence"
cause = "limit_reached"
contains = ["no seat left"]
regex = 'ValueError: no seat left for (?P<what>\\w+)'
says = "all seats for {what} are taken"
"""
    reader = log_reader.LogReader(log_rules.load_rules(text, "own.toml").before(RULES), "a.log")
    for number, line in enumerate(["ValueError: no seat left for solver", "MemoryError"], 1):
        reader.feed(number, line)
    result = explanations.explain(JobFacts(findings=reader.finish()))
    assert (result.cause, result.summary) == (
        "limit_reached",
        "all seats for solver are taken",
    )
