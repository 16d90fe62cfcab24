"""Exit codes and signals of ranks, from the summaries of torchrun."""

from __future__ import annotations

import json

import pytest

from orchestrator.diagnosis import explanations, log_reader, log_rules, torchelastic
from orchestrator.diagnosis.records import Explanation, JobFacts

RULES = log_rules.load_shipped()
SRUN = "srun: error: n1: task 0: Exited with exit code 1"
PEER_LOST = "RuntimeError: [pair.cc:553] Connection closed by peer [127.0.0.1]:12999"
ROOT = "Root Cause (first observed failure):"
SIGTERM = "-15 (pid: 70)  (SIGTERM)"


def explained(lines: list[str]) -> Explanation:
    reader = log_reader.LogReader(RULES, "/r/7.out")
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
    return explanations.explain(JobFacts(findings=reader.finish()))


def entry(rank: int, code: object, *, host: str = "n1", second: int = 1) -> list[str]:
    """The lines of one failed rank in a summary."""
    return [
        f"[{rank}]:",
        f"  time      : 2026-11-23_22:51:{second:02}",
        f"  host      : {host}",
        f"  rank      : {rank} (local_rank: {rank % 4})",
        f"  exitcode  : {code}",
        "  error_file: <N/A>",
        "  traceback : To enable traceback see: https://pytorch.org/docs",
    ]


def summary(root: list[str], *others: list[str]) -> list[str]:
    listed = [line for other in others for line in other] or ["  <NO_OTHER_FAILURES>"]
    code = root[4].partition(": ")[2].split()[0]
    return [
        f"failed (exitcode: {code}) local_rank: 1 (pid: 71) of binary: /usr/bin/python3",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        *listed,
        "-" * 60,
        ROOT,
        *root,
        "=" * 60,
    ]


@pytest.mark.parametrize(
    ("code", "cause", "sentence"),
    [
        ("4 (pid: 71) ", "nonzero_exit", "rank 1 on n1 ended with exit code 4"),
        ("1 (pid: 71) ", "nonzero_exit", "rank 1 on n1 ended with exit code 1"),
        ("-9 (pid: 71)  (SIGKILL)", "killed", "rank 1 on n1 was ended by SIGKILL"),
        ("-11 (pid: 71)  (SIGSEGV)", "segfault", "rank 1 on n1 was ended by SIGSEGV"),
        ("-6 (pid: 71)  (SIGABRT)", "aborted", "rank 1 on n1 was ended by SIGABRT"),
        ("-10 (pid: 71)  (SIGUSR1)", "killed", "rank 1 on n1 was ended by SIGUSR1"),
        ("-15 (pid: 71)  (SIGTERM)", "killed", "rank 1 on n1 was ended by SIGTERM"),
        ("137 (pid: 71) ", "killed", "rank 1 on n1 ended with exit code 137 = 128 + 9 (SIGKILL)"),
        (
            "127 (pid: 71) ",
            "missing_program",
            "rank 1 on n1 ended with exit code 127: the program was not found",
        ),
    ],
)
def test_end_of_the_first_rank(code: str, cause: str, sentence: str) -> None:
    result = explained([*summary(entry(1, code), entry(0, SIGTERM)), SRUN])
    first = f"{sentence}, the first failure that torchrun observed"
    assert (result.cause, result.summary, result.first_failing_rank) == (cause, first, 1)
    assert result.details["rank_exit_code"] == int(code.split()[0])
    assert result.evidence[0].text.startswith(f"{ROOT} rank 1 (local_rank: 1), exitcode ")


def test_the_earliest_of_several_nodes_counts() -> None:
    later = summary(entry(0, 3, host="n1", second=9))
    first = summary(entry(5, 4, host="n2", second=2), entry(4, SIGTERM, host="n2", second=2))
    for lines in ([*later, *first, SRUN], [*first, *later, SRUN]):
        result = explained(lines)
        assert (result.first_failing_rank, result.details["rank_exit_code"]) == (5, 4)


def test_summaries_of_two_nodes_with_labels_of_srun_at_the_same_time() -> None:
    nodes = [summary(entry(0, 3, second=9)), summary(entry(5, 4, host="n2", second=2))]
    lines = [
        f"{task}: {line}" for pair in zip(*nodes, strict=True) for task, line in enumerate(pair)
    ]
    result = explained([*lines, SRUN])
    assert (result.first_failing_rank, result.details["rank_exit_code"]) == (5, 4)


def test_another_rank_that_failed_in_the_same_second() -> None:
    # torchrun calls rank 0 the first of two that it finds at once.
    lines = [
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/a.py", line 1, in f',
        f"[rank0]: {PEER_LOST}",
        *summary(entry(0, "1 (pid: 70)"), entry(1, "4 (pid: 71)")),
        SRUN,
    ]
    result = explained(lines)
    assert (result.summary, result.first_failing_rank) == ("rank 1 on n1 ended with exit code 4", 1)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        ("[rank1]: ValueError: no label", "python_exception"),
        (
            "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "oom_device",
        ),
        ("[rank1]: " + PEER_LOST, "peer_lost"),
        (PEER_LOST, "peer_lost"),
        # Of another rank, so that it explains nothing of this one.
        ("[rank0]: " + PEER_LOST, "nonzero_exit"),
    ],
)
def test_an_error_of_the_rank_explains_its_exit_code(error: str, cause: str) -> None:
    prefix = error[: error.index("]: ") + 3] if error.startswith("[rank") else ""
    raised = ["Traceback (most recent call last):", '  File "/a.py", line 1, in f']
    lines = [*(f"{prefix}{line}" for line in raised), error]
    assert explained([*lines, *summary(entry(1, "1 (pid: 71)")), SRUN]).cause == cause


def test_exit_codes_that_programs_choose_are_not_those_of_exceptions() -> None:
    raised = ["Traceback (most recent call last):", '  File "/a.py", line 1, in f', PEER_LOST]
    assert explained([*raised, *summary(entry(1, "4 (pid: 71)")), SRUN]).cause == "nonzero_exit"


def test_summary_of_torch_1_10() -> None:
    lines = [
        "***************************************",
        "            train.py FAILED            ",
        "=======================================",
        "Root Cause:",
        "[0]:",
        "  time: 2026-11-23_12:00:00",
        "  rank: 3 (local_rank: 3)",
        "  exitcode: -9 (pid: 1234)",
        "  error_file: <N/A>",
        '  msg: "Signal 9 (SIGKILL) received by PID 1234"',
        "=======================================",
        "Other Failures:",
        "  <NO_OTHER_FAILURES>",
        "***************************************",
    ]
    result = explained(lines)
    assert (result.cause, result.first_failing_rank) == ("killed", 3)


def test_a_summary_that_is_cut_off() -> None:
    lines = summary(entry(1, 4))
    for end in range(len(lines)):
        result = explained(lines[:end])
        assert result.cause in (None, "nonzero_exit")


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (
            {"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "T\nV: x"}}},
            ["T", "V: x"],
        ),
        ({"message": {"message": "ValueError: x"}}, ["ValueError: x"]),
        ({"message": "SIGUSR1\nreceived", "timestamp": 1}, ["SIGUSR1", "received"]),
        ({"message": {"extraInfo": 3}}, []),
        ({"message": 7}, []),
        ([1], []),
    ],
)
def test_error_files(content: object, lines: list[str]) -> None:
    assert list(torchelastic.traceback_lines(json.dumps(content))) == lines
    assert not torchelastic.traceback_lines(json.dumps(content)[:-1])


@pytest.mark.parametrize(
    ("end", "cause", "name"),
    [
        ("Killed", "killed", "SIGKILL"),
        ("Terminated", "killed", "SIGTERM"),
        ("Segmentation fault (core dumped)", "segfault", "SIGSEGV"),
        ("Aborted (core dumped)", "aborted", "SIGABRT"),
    ],
)
def test_a_task_of_srun_that_a_signal_ended(end: str, cause: str, name: str) -> None:
    result = explained(
        [
            f"srun: error: n2: task 1: {end}",
            "srun: Terminating StepId=2.0",
            "slurmstepd-n1: error: *** STEP 2.0 ON n1 CANCELLED AT 2026-11-24T02:13:54 ***",
            "srun: error: n1: task 0: Terminated",
            "srun: Force Terminated StepId=2.0",
        ]
    )
    assert (result.cause, result.summary) == (cause, f"srun task 1 was ended by {name}")
