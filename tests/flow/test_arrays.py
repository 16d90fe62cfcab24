"""Job arrays through the command line, with the simulated Slurm."""

from __future__ import annotations

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

SPEC = """\
[job]
name = "sweep"
[launch]
launcher = "python"
script = "t.py"
[array]
max_running = 2
tasks = [{ lr = 0.1 }, { lr = 0.2 }, { lr = 0.3 }, {}]
"""


def test_from_submission_to_cancel(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    (cli.folder / "t.py").write_text("")
    (cli.folder / "sweep.toml").write_text(SPEC)
    done = cli("submit", "sweep.toml")
    assert done.out == "Submitted batch job 1 (@1-4, sweep, 4 tasks)\n"
    (call,) = fake_slurm.calls("sbatch")
    assert next(word for word in call if word.startswith("--output=")).endswith("/%A_%a.out")
    fake_slurm.set_state("1_0", "RUNNING")
    fake_slurm.set_state("1_1", "FAILED", exit="3:0")
    table = cli("status", "--format", "table", "--refresh").out.splitlines()
    assert [line.split()[:3] for line in table[1:]] == [
        ["1_[2-3]", "sweep", "PENDING"],
        ["1_1", "sweep", "FAILED"],
        ["1_0", "sweep", "RUNNING"],
    ]
    assert len(cli("status", "1_[1-2]", "--no-refresh", "--json").items) == 2
    # As the tables and our own sentences name rows.
    for rows in ("@2-3", "@2,@3"):
        listed = cli("status", rows, "--no-refresh", "--json").items
        assert [job["row"] for job in listed] == [2, 3]
    for rows in ("@2-9", "@3-2"):
        assert cli("status", rows, "--no-refresh").code == 4
    (array,) = cli("show", "sweep", "--no-refresh", "--json").items
    assert array["states"] == {"PENDING": 2, "RUNNING": 1, "FAILED": 1}
    assert [bad["job_id"] for bad in array["first_failures"]] == ["1_1"]
    assert "Arguments:   --lr 0.3\n" in cli("show", "1_2").out
    before = len(fake_slurm.calls("scancel"))
    assert cli("cancel", "1_[2-3]").out == "1_[2-3] is CANCELLED\n"
    assert fake_slurm.calls("scancel")[before:] == [["1_[2-3]"]]
    detail = cli("show", "1_2", "--json").items[0]["events"][-1]["detail"]
    pending = "cancelled by orchestrator while pending"
    assert detail.startswith(f"{pending}: Slurm has no record of this task")
    again = cli("resubmit", "1_[1,3]")
    assert again.out == "Submitted batch job 5 (@5-6, sweep, 2 tasks)\n"
    assert "--array=1,3%2" in fake_slurm.calls("sbatch")[-1]
    assert [job["job_id"] for job in cli("status", "5", "--json").items] == ["5_1", "5_3"]


def test_too_many_tasks_for_the_cluster(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    fake_slurm.configure(MaxArraySize="3")
    (cli.folder / "t.py").write_text("")
    (cli.folder / "sweep.toml").write_text(SPEC)
    done = cli("submit", "sweep.toml")
    assert done.code == 3
    assert done.err == (
        "Error: sweep.toml: array.tasks: 4 tasks are more than cluster fake accepts in one array "
        "(MaxArraySize 3): split them into several arrays\n1 problem; nothing was submitted.\n"
    )
    assert fake_slurm.calls("sbatch") == []


def test_status_of_an_array_takes_filters(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    (cli.folder / "t.py").write_text("")
    (cli.folder / "sweep.toml").write_text(SPEC)
    cli("submit", "sweep.toml")
    fake_slurm.set_state("1_1", "RUNNING")
    items = cli("status", "1", "-t", "RUNNING", "--refresh", "--json").items
    assert [job["job_id"] for job in items] == ["1_1"]


def test_a_log_without_a_path_yet(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    (cli.folder / "t.py").write_text("")
    (cli.folder / "sweep.toml").write_text(SPEC)
    assert cli("submit", "sweep.toml", "--output", "out-%j.log").code == 0
    assert cli("logs", "1_2").err == "no log yet: 1_2 is PENDING\n"
