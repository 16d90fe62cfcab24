"""Records of the environment: what a job script writes, and any other text."""

from __future__ import annotations

import datetime

import hypothesis
import pytest
from hypothesis import strategies

from orchestrator import environments
from orchestrator.environments import files

RUN_DIR = "/runs/job.ab12cdefgh34"
#: As the script of a job with two GPUs writes it.
TEXT = """\
host\tn1
nodes\tn[1-2]
modules\tcompilers/gcc/13:cuda/12.4
kernel\t6.1.0-28-amd64
driver\tNVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024
gpu\t\t NVIDIA H100 80GB HBM3
gpu\t\t NVIDIA H100 80GB HBM3
cpu\t AMD EPYC 9454
python\t/home/alice/venv/bin/python3
python_version\t3.11.4
libc\tglibc 2.36
os\tDebian GNU/Linux 12 (bookworm)
variable\tCUDA_VISIBLE_DEVICES=0,3
variable\tNCCL_DEBUG=INFO=x
variable\tPYTHONPATH=/runs/job.ab12cdefgh34/code/src
package\ttorch-2.6.0+cu124.dist-info
package\tnvidia_nccl_cu12-2.21.5.dist-info
package\tZope.Interface_x-1.0.dist-info
package\tnumpy-2.1.0.dist-info
package\tnumpy-1.26.4.dist-info
package\tPyYAML-5.3.egg-info
package\tattrs-22.2.0-py3.9.egg-info
package\tdigits.egg-info
end\tyes
"""


def test_the_record_of_a_job() -> None:
    assert environments.parse(TEXT, RUN_DIR) == environments.Record(
        environment=environments.Environment(
            python="/home/alice/venv/bin/python3",
            python_version="3.11.4",
            packages={
                "attrs": "22.2.0",
                "digits": "",
                # The first one is on sys.path before the second.
                "numpy": "2.1.0",
                "nvidia-nccl-cu12": "2.21.5",
                "pyyaml": "5.3",
                "torch": "2.6.0+cu124",
                "zope-interface-x": "1.0",
            },
            modules=("compilers/gcc/13", "cuda/12.4"),
            driver="550.54.15",
            gpus=("NVIDIA H100 80GB HBM3",),
            cpu="AMD EPYC 9454",
            kernel="6.1.0-28-amd64",
            os="Debian GNU/Linux 12 (bookworm)",
            libc="glibc 2.36",
            variables={
                "NCCL_DEBUG": "INFO=x",
                "PYTHONPATH": "$ORCHESTRATOR_RUN_DIR/code/src",
            },
        ),
        placement=environments.Placement(
            host="n1", nodes="n[1-2]", gpus_on_host=2, variables={"CUDA_VISIBLE_DEVICES": "0,3"}
        ),
        is_complete=True,
    )


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build",
            "570.86.10",
        ),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183  Mon", "535.183"),
        ("GCC version:  gcc version 12.2.0", ""),
    ],
)
def test_the_version_of_a_driver(line: str, version: str) -> None:
    record = environments.parse(f"driver\t{line}\n", RUN_DIR)
    assert record.environment.driver == version


def test_equal_tasks_have_equal_documents() -> None:
    other = TEXT.replace("n1\n", "n7\n").replace("=0,3", "=1,2").replace("job.ab12", "job.zz12")
    first = environments.parse(TEXT, RUN_DIR)
    second = environments.parse(other, "/runs/job.zz12cdefgh34")
    assert first.placement != second.placement
    assert environments.to_json(first.environment) == environments.to_json(second.environment)


def test_a_file_that_is_written_right_now() -> None:
    record = environments.parse(TEXT[: TEXT.index("end\t")], RUN_DIR)
    assert not record.is_complete
    assert record.environment.python_version == "3.11.4"


@hypothesis.given(
    strategies.text()
    | strategies.lists(
        strategies.tuples(
            strategies.sampled_from(
                ["package", "variable", "driver", "modules", "gpu", "end", "x"]
            ),
            strategies.text(),
        )
    ).map(lambda lines: "\n".join(f"{key}\t{value}" for key, value in lines))
)
def test_any_text_gives_a_record_that_can_be_stored(text: str) -> None:
    record = environments.parse(text, RUN_DIR)
    for part in (record.environment, record.placement):
        document = environments.to_json(part)
        assert document.isascii()
        assert environments.from_json(type(part), document) == part
        assert len(environments.sha256(document)) == 64


@pytest.mark.parametrize(
    "value", ["-" * 250_000, "a-" * 120_000, "a." * 120_000, "1" * 250_000, "\t" * 250_000]
)
def test_a_long_line_takes_no_time(value: str) -> None:
    # pytest's time limit ends a search that grows with the square of the length.
    text = f"package\t{value}\ndriver\t{value}\nvariable\t{value}\n"
    assert len(text) > 3 * 240_000
    assert environments.parse(text, RUN_DIR).environment.packages == {}


START = datetime.datetime(2026, 11, 21, 8, 0, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
COMPLETE = environments.parse(TEXT, RUN_DIR)
PARTIAL = environments.parse("host\tn1\n", RUN_DIR)


@pytest.mark.parametrize(
    ("record", "ended_at", "minutes", "is_final"),
    [
        (COMPLETE, None, 0, True),
        (PARTIAL, None, 9, False),
        (PARTIAL, None, 11, True),
        (None, None, 9, False),
        (None, None, 11, True),
        # NFS shows the file of a job later than Slurm its end.
        (None, START + 5 * MINUTE, 11, False),
        (None, START + 5 * MINUTE, 16, True),
    ],
)
def test_when_a_file_is_not_read_again(
    record: environments.Record | None,
    ended_at: datetime.datetime | None,
    minutes: int,
    is_final: bool,
) -> None:
    now = START + minutes * MINUTE
    assert files.is_final(record, started_at=START, ended_at=ended_at, now=now) is is_final


def test_a_snapshot_on_a_node_is_no_difference() -> None:
    text = "variable\tPYTHONPATH=/tmp/{0}/orchestrator-code.{0}.0.1/src:/opt/lib\n"
    first, second = (environments.parse(text.format(job), RUN_DIR) for job in (12, 345))
    assert first.environment == second.environment
    assert first.environment.variables == {"PYTHONPATH": "$ORCHESTRATOR_CODE/src:/opt/lib"}
    # A backtracking expression would take hours.
    long = "/orchestrator-code.1" * 10_000 + "x" * 50_000
    assert environments.parse(f"cpu\t{long}\n", RUN_DIR).environment.cpu == long
