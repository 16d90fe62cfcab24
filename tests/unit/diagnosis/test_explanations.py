"""Which line of a log, or which state of Slurm, is the cause."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import jobs
from orchestrator.diagnosis import explanations, log_reader, log_rules
from orchestrator.diagnosis.records import Evidence, Explanation, JobFacts, Source
from orchestrator.jobs import JobState
from tests import builders

RULES = log_rules.load_shipped()
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has 0"
WATCHDOG = (
    "[rank0]:[E1 ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=9) ran for 600020 milliseconds"
)
TIME_LIMIT = (
    "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"
)
OOM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks"
WORKER = "RuntimeError: DataLoader worker (pid 9) exited unexpectedly"
NO_MODULE = "ModuleNotFoundError: No module named 'x'"
NO_SNAPSHOT = "orchestrator: there is no snapshot /r/code.tar on n1: it was removed"
CANNOT_UNPACK = "orchestrator: cannot unpack /r/code.tar on n1: see the message above"
STEP = "step 17 loss 2.31 lr 0.1"
PREEMPTED = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT x DUE TO PREEMPTION ***"
RAISED = ["Traceback (most recent call last):", '  File "/a.py", line 1, in f', "ValueError: no"]
LAST = ("missing_module", 5)


def job_of(state: JobState, **fields: object) -> jobs.Job:
    return builders.make_job(row=3, state=state, **{"settled": True, **fields})


def explained(lines: list[str], job: jobs.Job | None = None) -> Explanation:
    reader = log_reader.LogReader(RULES, "/r/7.out")
    for number, line in enumerate(lines, 1):
        reader.feed(number, line)
    return explanations.explain(
        JobFacts(job=job, findings=reader.finish(), last_lines=reader.last_lines)
    )


@pytest.mark.parametrize(
    ("lines", "cause", "line"),
    [
        # The first error, not its consequences.
        ([CUDA_OOM, WATCHDOG], "oom_device", 1),
        ([WATCHDOG, CUDA_OOM], "oom_device", 2),
        ([WATCHDOG, TIME_LIMIT], "nccl_timeout", 1),
        # What the kernel reports.
        (
            [WORKER, OOM_KILL],
            "oom_host",
            2,
        ),
        # A rank failed and the others hung until the time limit.
        ([CUDA_OOM, STEP, TIME_LIMIT], "oom_device", 1),
        # The job survived an error.
        ([CUDA_OOM, *[STEP] * 60, TIME_LIMIT], "time_limit", 62),
        (
            [CUDA_OOM, *[STEP] * 600, NO_MODULE],
            "missing_module",
            602,
        ),
        # Problems that the program survived.
        (["WARNING: No module named 'apex': slower", *[STEP] * 3, *RAISED], "python_exception", 7),
        (["CUDA out of memory: half of it", *[STEP] * 11, *RAISED], "python_exception", 15),
        ([*RAISED, *[STEP] * 51, *RAISED[:-1], "KeyError: 1"], "python_exception", 57),
        ([CUDA_OOM, *[STEP] * 9, *RAISED], "oom_device", 1),
        # torchrun or Slurm started it again.
        ([*RAISED, "[default] Worker group FAILED; will restart worker group", NO_MODULE], *LAST),
        ([PREEMPTED, *[STEP] * 51, NO_MODULE], "missing_module", 53),
        # Output after the signal is a consequence.
        ([TIME_LIMIT, CUDA_OOM], "time_limit", 1),
    ],
)
def test_which_line_counts(lines: list[str], cause: str, line: int) -> None:
    result = explained(lines)
    assert (result.cause, result.evidence[0].line) == (cause, line)


@pytest.mark.parametrize(
    "lines",
    [
        ["Epoch 1: Train Error: 0.5012, Validation Error: 0.6", "MyError: 0.2", "Error rate 0.1"],
        ["[W1121 x.cpp:1] Warning: No module named 'apex'", "INFO NaN loss: checked"],
        ["a: NCCL INFO NET/Plugin: libnccl-net.so: cannot open shared object file: No such file"],
        ["HTTPSConnectionPool: Max retries exceeded with url: /x thrown while requesting HEAD /x"],
        ["Exception ignored in: <function f>", *RAISED],
        ["[rank0]:[W1121 TCPStore.cpp:125] recvValue failed: failed to recv, got 0 bytes"],
        [*RAISED, *[STEP] * 101],
        ["ERROR: no board", *[STEP] * 11],
    ],
)
def test_lines_that_are_no_failure(lines: list[str]) -> None:
    assert explained(lines).cause is None


def test_exit_codes_of_the_job_script_count_only_for_our_jobs() -> None:
    result = explained([STEP], job_of(JobState.FAILED, exit_code=75, tracked_name="by-hand"))
    assert (result.cause, result.summary) == (
        "nonzero_exit",
        "the job ended with exit code 75",
    )


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("a.sh: line 184: 2324239 Aborted                 (core dumped) litgpt", "aborted"),
        ("a.sh: line 9: 77 Killed                  python3 main.py", "killed"),
        (
            "srun: error: Task launch for 3.0 failed on node n1: Job credential expired",
            "launch_failed",
        ),
        ("srun: error: task 0 launch failed: Plugin initialization failed", "launch_failed"),
        (
            "11/50 [1:57:05, 638.01s/it]slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT x",
            "cancelled",
        ),
        ("slurmstepd: error: *** JOB 7 CANCELLED AT x DUE TO TIME LIMIT ***", "time_limit"),
        ("slurmstepd: error: Job 8 exceeded memory limit (104 > 10), being killed", "oom_host"),
        (
            "^^^FileNotFoundError^^: ^^ [Errno 2] No such file: '/w/c.yaml'^^with",
            "missing_file",
        ),
        ("srun: error: task 0: Exited with exit code 1", "nonzero_exit"),
    ],
)
def test_messages_of_other_programs(line: str, cause: str) -> None:
    assert explained([STEP, line]).cause == cause


@pytest.mark.parametrize(
    ("lines", "state", "code", "exit_signal", "cause"),
    [
        ([STEP], JobState.TIMEOUT, 0, 0, "time_limit"),
        ([CUDA_OOM], JobState.TIMEOUT, 0, 0, "oom_device"),
        ([CUDA_OOM, *[STEP] * 60], JobState.TIMEOUT, 0, 0, "time_limit"),
        ([CUDA_OOM], JobState.NODE_FAIL, 1, 0, "node_fail"),
        ([CUDA_OOM], JobState.OUT_OF_MEMORY, 1, 0, "oom_host"),
        ([CUDA_OOM], JobState.PREEMPTED, 0, 0, "preempted"),
        ([STEP], JobState.CANCELLED, 0, 15, "cancelled"),
        ([STEP], JobState.FAILED, 139, 0, "segfault"),
        ([STEP], JobState.FAILED, 0, 53, "launch_failed"),
        ([NO_MODULE], JobState.FAILED, 78, 0, "setup_failed"),
        ([NO_SNAPSHOT], JobState.FAILED, 73, 0, "snapshot"),
        ([CANNOT_UNPACK], JobState.FAILED, 73, 0, "snapshot"),
        (
            ["tar: ./data: Cannot write: No space left on device", CANNOT_UNPACK],
            *(JobState.FAILED, 73, 0, "disk_full"),
        ),
        (["orchestrator: cannot write to /r on n1"], JobState.FAILED, 73, 0, "run_folder"),
        ([], JobState.FAILED, 73, 0, "run_folder"),
        (["x: command not found"], JobState.FAILED, 127, 0, "missing_program"),
        ([STEP], JobState.FAILED, 3, 0, "nonzero_exit"),
        (["Error: no luck"], JobState.FAILED, 3, 0, "nonzero_exit"),
        ([CUDA_OOM], JobState.COMPLETED, 0, 0, None),
        ([CUDA_OOM], JobState.RUNNING, None, None, None),
    ],
)
def test_log_and_final_state(
    lines: list[str],
    state: JobState,
    code: int | None,
    exit_signal: int | None,
    cause: str | None,
) -> None:
    result = explained(lines, job_of(state, exit_code=code, exit_signal=exit_signal))
    assert result.cause == cause
    if cause is None:
        assert result.also[0].cause == "oom_device"


def test_running_job_shows_its_last_line() -> None:
    now = datetime.datetime.now(datetime.UTC)
    line = Evidence(text=STEP, path="/r/7.out", line=9, source=Source.LOG)
    result = explanations.explain(
        JobFacts(job=job_of(JobState.RUNNING), last_lines=(line,), written_at=now)
    )
    assert (result.cause, result.summary) == (
        None,
        "the job is running; the last line of its log is:",
    )
    assert result.evidence == (line,)
    assert result.details["last_written"] == now


DIVERGED = "trainers.train: error: training diverged: {}. Use a lower --base-lr, a longer --warmup"


@pytest.mark.parametrize(
    "what",
    [
        "the loss became NaN in steps 1 to 23",
        "the loss became infinite in the evaluation of epoch 3",
        "a weight became NaN or infinite by step 46",
    ],
)
def test_exit_code_of_a_training_that_diverged(what: str) -> None:
    job = job_of(JobState.FAILED, exit_code=65)
    result = explained([STEP, DIVERGED.format(what)], job)
    assert (result.cause, result.evidence[0].line) == ("diverged", 2)
    # The exit code alone says nothing: other programs use it, too.
    assert explained([STEP], job).cause == "nonzero_exit"


def test_a_disk_that_is_full_only_while_the_program_trains() -> None:
    full = "trainers.train: {}: cannot write checkpoint /r/checkpoint.pt: the disk is full."
    result = explained([STEP, full.format("warning"), STEP, full.format("error")])
    assert (result.cause, result.evidence[0].line) == ("disk_full", 4)
    assert result.summary == "cannot write checkpoint /r/checkpoint.pt"
    diverged = DIVERGED.format("the loss became NaN in steps 1 to 23")
    assert explained([full.format("warning"), STEP, diverged]).cause == "diverged"


def test_a_bare_exit_code_shows_the_end_of_the_log() -> None:
    result = explained([STEP, "config broken", ""], job_of(JobState.FAILED, exit_code=4))
    assert result.cause == "nonzero_exit"
    assert [(each.line, each.text) for each in result.evidence] == [
        (None, "FAILED, exit code 4:0"),
        (1, STEP),
        (2, "config broken"),
    ]
    # A line that matches a rule says more.
    result = explained([CUDA_OOM, STEP], job_of(JobState.FAILED, exit_code=4))
    assert STEP not in [each.text for each in result.evidence]


def test_preemption_counts_before_what_its_sigterm_caused() -> None:
    # The log of a job on 22.05 whose step ended in the grace time.
    lines = [
        "slurmstepd-n1: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-11-27T16:57:07 ***",
        "srun: error: n1: task 0: Terminated",
        "srun: Force Terminated StepId=1.0",
    ]
    job = job_of(JobState.PREEMPTED, raw_state="FAILED", exit_code=143, exit_signal=0)
    result = explained(lines, job)
    assert result.cause == "preempted"
    assert [each.text for each in result.evidence] == [
        "FAILED, exit code 143:0, in the grace time of its preemption (PreemptTime)"
    ]


def test_final_state_is_evidence() -> None:
    result = explained([STEP, TIME_LIMIT], job_of(JobState.TIMEOUT, exit_code=0, exit_signal=15))
    assert [evidence.text for evidence in result.evidence] == [
        TIME_LIMIT,
        "TIMEOUT, exit code 0:15",
    ]


def test_chained_exceptions() -> None:
    chain = [
        "Traceback (most recent call last):",
        '  File "/p/a.py", line 1, in <module>',
        "    import flash",
        "KeyError: 'x'",
        "",
        "During handling of the above exception, another exception occurred:",
        "",
        "Traceback (most recent call last):",
        '  File "/p/a.py", line 3, in <module>',
        "    raise RuntimeError('no config')",
        "RuntimeError: no config",
    ]
    result = explained(chain)
    assert result.summary == "RuntimeError in /p/a.py, line 3: no config"
    chain[3] = "ModuleNotFoundError: No module named 'flash'"
    assert explained(chain).cause == "missing_module"


@pytest.mark.parametrize(
    ("line", "text", "rank"),
    [
        ("[rank3]: ValueError: x", "ValueError: x", 3),
        ("[default1]:[rank5]:   File", "  File", 5),
        (" 7: loss", "loss", 7),
        ("[1,2]<stderr>:Traceback", "Traceback", 2),
        ("2024-11-20 14:37:16 [rank3]: oops: x", "oops: x", 3),
        ("2024-11-20 14:37:16 [INFO] loss: 3", "2024-11-20 14:37:16 [INFO] loss: 3", None),
        ("epoch 3: loss", "epoch 3: loss", None),
    ],
)
def test_prefixes(line: str, text: str, rank: int | None) -> None:
    unprefixed = log_reader.strip_prefix(line)
    assert (unprefixed.text, unprefixed.rank) == (text, rank)


@given(
    st.lists(
        st.one_of(
            st.text(max_size=60),
            st.sampled_from(
                [
                    CUDA_OOM,
                    WATCHDOG,
                    TIME_LIMIT,
                    "Traceback (most recent call last):",
                    '[rank1]:   File "/p/a.py", line 9, in f',
                    "    x = 1",
                    "[rank1]: ValueError: x",
                    "Root str (first observed failure):",
                    "  rank      : 1 (local_rank: 1)",
                    "  exitcode  : -9 (pid: 3)",
                    "During handling of the above exception, another exception occurred:",
                    "Original Traceback (most recent call last):",
                ]
            ),
        ),
        max_size=60,
    )
)
def test_any_lines_can_be_explained(lines: list[str]) -> None:
    result = explained(lines)
    for evidence in result.evidence:
        assert evidence.line is not None
        assert 1 <= evidence.line <= len(lines)
