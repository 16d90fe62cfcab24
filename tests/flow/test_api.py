"""The Python API with the simulated Slurm, in this process."""

from __future__ import annotations

import datetime
import math
import pickle
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest

import orchestrator as orc
from orchestrator.api import records
from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

SPEC = '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\nscript = "train.py"\n'
TRAIN = """
import sys
print("arguments", *sys.argv[1:])
for step in (1, 2):
    print(f"step {step} loss {1 / step}")
print("step 3 loss nan")
"""


@pytest.fixture
def session(
    cli: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch
) -> Iterator[orc.Session]:
    for name, value in cli.environ.items():
        if not name.startswith("PYTHON"):
            monkeypatch.setenv(name, value)
    monkeypatch.chdir(cli.folder)
    (cli.folder / "train.py").write_text(TRAIN)
    (cli.folder / "job.toml").write_text(SPEC)
    with orc.Session() as session:
        yield session


def test_a_spec_is_changed_as_on_the_command_line(
    session: orc.Session, fake_slurm: FakeSlurm, cli: command_line.CommandLine
) -> None:
    changes = {"set": {"resources.nodes": 2}, "args": {"lr": 0.1}, "name": "api"}
    job = session.submit("job.toml", **changes, labels=["a=b"])
    assert repr(job) == "<Job 1 (@1) 'api' PENDING>"
    assert (job.id, job.row, job.name, job.state, job.ended) == ("1", 1, "api", "PENDING", False)
    assert job.record["labels"] == ["a=b"]
    (submitted,) = fake_slurm.jobs()
    assert submitted["name"].startswith("api.")
    flags = ("--set", "resources.nodes=2", "--set", "args.lr=0.1", "--name", "api")
    script = cli("render", "job.toml", *flags).out
    assert "#SBATCH --nodes=2\n" in script and "--lr 0.1" in script
    assert session.render("job.toml", **changes) == script


def test_records_are_those_of_the_command(
    session: orc.Session, cli: command_line.CommandLine
) -> None:
    job = session.submit("job.toml")
    assert [job.record] == cli("status", "--no-refresh", "--json").items
    assert job.records == [job.record]
    assert session.jobs(refresh=False) == [job]


def test_a_job_runs_to_its_end(
    session: orc.Session, fake_slurm: FakeSlurm, cli: command_line.CommandLine
) -> None:
    fake_slurm.run_jobs()
    job = session.submit("train.py", arguments=["--lr", "0.1"])
    banner, *lines = job.logs(follow=True)
    assert banner.startswith("=== orchestrator train job 1 task 0 attempt 0 on ")
    assert lines == ["arguments --lr 0.1", "step 1 loss 1.0", "step 2 loss 0.5", "step 3 loss nan"]
    assert job.wait(timeout=60) is job
    assert job.state == "COMPLETED" and job.ended
    assert list(job.logs()) == [banner, *lines]
    assert list(job.logs(lines=1)) == ["step 3 loss nan"]
    losses = job.metrics("loss")
    assert [row["value"] for row in losses[:2]] == [1.0, 0.5]
    assert math.isnan(losses[2]["value"])
    items = cli("metrics", "1", "--name", "loss", "--json").items
    assert items[2].pop("value") == "NaN" and losses[2].pop("value") is not None
    assert items == losses


def test_a_failed_job_is_explained(
    session: orc.Session, fake_slurm: FakeSlurm, cli: command_line.CommandLine
) -> None:
    fake_slurm.run_jobs()
    job = session.submit({"job": {"name": "fails"}, "launch": {"command": "exit 3"}})
    with pytest.raises(
        orc.errors.JobFailedError,
        match=r"^job 1 ended FAILED, exit code 3:0; see `orchestrator explain 1`$",
    ):
        job.wait(timeout=60)
    assert job.wait(check=False).state == "FAILED"
    explanation = job.explain()
    assert [explanation[0]["cause"], len(explanation)] == ["nonzero_exit", 1]
    assert f"{explanation}\n" == cli("explain", "1").out
    assert explanation == cli("explain", "1", "--json").items
    again = job.resubmit()
    assert (again.id, again.row, again.name) == ("2", 2, "fails")


def test_a_job_cannot_be_pickled(session: orc.Session) -> None:
    with pytest.raises(TypeError, match=r"^sessions, jobs and sweeps cannot be pickled: pass job"):
        pickle.dumps(session.submit("job.toml"))


def test_a_wait_ends_at_its_timeout(
    session: orc.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    job = session.submit("job.toml")
    with pytest.raises(
        orc.errors.NotEndedError, match=r"^1 of 1 jobs have not ended after 0\.5 s$"
    ):
        job.wait(timeout=0.5)
    assert capsys.readouterr().err == ""
    with pytest.raises(orc.errors.NotEndedError):
        job.wait(timeout=0, progress=True)
    assert capsys.readouterr().err == "\r1 PENDING (Priority)\x1b[K\n"


def test_actions_are_confirmed(session: orc.Session, fake_slurm: FakeSlurm) -> None:
    job = session.submit("job.toml")
    assert job.hold().record["reason"] == "JobHeldUser"
    assert job.release().record["reason"] != "JobHeldUser"
    fake_slurm.set_state(1, "RUNNING")
    assert job.requeue().state == "PENDING"
    assert job.cancel().state == "CANCELLED"
    with pytest.raises(orc.errors.ConflictError):
        job.hold()
    assert fake_slurm.job(1)["state"] == "CANCELLED"


def test_an_array_is_one_job_with_tasks(session: orc.Session) -> None:
    job = session.submit("job.toml", array_size=3)
    assert (job.id, len(job.tasks), job.state) == ("1", 3, "PENDING")
    assert [task.id for task in job.tasks] == ["1_0", "1_1", "1_2"]
    assert session.job("1") == job
    assert session.job("1_2") == job.tasks[2]
    assert len(session.jobs()) == 3
    job.tasks[1].cancel()
    assert [task.state for task in session.job("1").tasks] == ["PENDING", "CANCELLED", "PENDING"]


def test_errors_are_those_of_the_command_line(
    session: orc.Session, cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    cases = (
        (lambda: session.job("nosuch"), ("show", "nosuch")),
        (lambda: session.submit("job.toml", nodes=-1), ("submit", "job.toml", "--nodes", "-1")),
        (lambda: session.submit("nosuch.toml"), ("submit", "nosuch.toml")),
        (lambda: session.sweep("nosuch"), ("sweep", "status", "nosuch")),
    )
    for call, argv in cases:
        with pytest.raises(orc.errors.OrchestratorError) as caught:
            call()
        assert f"Error: {caught.value}\n" in cli(*argv).err
    assert fake_slurm.jobs() == []


def test_an_unknown_flag_or_key_is_an_error(session: orc.Session) -> None:
    with pytest.raises(TypeError, match=r"^unexpected keyword argument 'node'$"):
        session.submit("job.toml", node=2)  # type: ignore[call-arg]
    with pytest.raises(
        orc.errors.SpecError,
        match=r'^set: resources\.node: unknown key\. Did you mean "nodes"\?\n1 problem; nothing',
    ):
        session.submit("job.toml", set={"resources.node": 2})
    with pytest.raises(orc.errors.RequestError, match=r"^set: 'a b' is not a key of a spec"):
        session.submit("job.toml", set={"a b": 2})
    with pytest.raises(orc.errors.RequestError, match=r"^name a script or a spec"):
        session.submit()
    with pytest.raises(orc.errors.RequestError, match=r"^'NOPE' is not a state; states are "):
        session.jobs(state="NOPE")


def test_arguments_as_python_users_write_them(session: orc.Session) -> None:
    job = session.submit("train.py", args={"lr": numpy.float64(0.1), "rates": numpy.array([1, 2])})
    script = Path(job.record["run_dir"], "script.sbatch").read_text().replace(" \\\n   ", "")
    assert "--lr 0.1 --rates 1 --rates 2" in script
    words = session.submit(["python", "train.py", "--lr", numpy.float32(0.5)])
    script = Path(words.record["run_dir"], "script.sbatch").read_text().replace(" \\\n   ", "")
    assert "python train.py --lr 0.5" in script
    assert session.job(1) == job == session.jobs(1)[0]
    with pytest.raises(orc.errors.RequestError, match=r"^nosuch.py: no such script in "):
        session.submit("nosuch.py", args={"lr": 0.1})
    with pytest.raises(TypeError, match=r"^arguments must be a list of words, \[\"--lr\", "):
        session.submit("train.py", arguments="--lr 0.1")
    with pytest.raises(TypeError, match=r"a job runs no function \(got <built-in function print>"):
        session.submit(print)  # type: ignore[arg-type]
    for call in (lambda: session.jobs(limit=-1), lambda: job.metrics(last=-1)):
        with pytest.raises(orc.errors.RequestError, match=r" must be 0 or more \(got -1\)$"):
            call()


def test_a_job_like_another_is_submitted(session: orc.Session, fake_slurm: FakeSlurm) -> None:
    first = session.submit("job.toml", args={"lr": 0.1})
    second = session.submit(like=first, args={"lr": 0.2}, name="second")
    assert [(job.name, len(fake_slurm.jobs())) for job in (first, second)] == [
        ("demo", 2),
        ("second", 2),
    ]
    script = Path(second.record["run_dir"], "script.sbatch").read_text()
    assert "--lr 0.2" in script and "--lr 0.1" not in script
    with pytest.raises(orc.errors.RequestError, match=r"^--like runs the program of 1: remove job"):
        session.submit("job.toml", like="1")


def test_jobs_are_filtered(session: orc.Session, fake_slurm: FakeSlurm) -> None:
    first = session.submit("job.toml", name="one")
    second = session.submit("job.toml", name="two", labels=["team=a"])
    fake_slurm.set_state(2, "COMPLETED")
    assert session.jobs(refresh=True) == [second, first]
    assert session.jobs(name="one") == [first]
    assert session.jobs(label="team=a") == [second]
    assert session.jobs(state=["CD"]) == [second]
    assert session.jobs("1", "@2") == [first, second]
    assert session.jobs(limit=1) == [second]
    later = datetime.datetime.now() + datetime.timedelta(hours=1)
    assert session.jobs(since=later) == []


def test_notebooks_show_escaped_tables(session: orc.Session) -> None:
    job = session.submit("job.toml")
    page = job._repr_html_()
    assert page.startswith("<table><thead><tr><th>job_id</th>") and "<td>demo</td>" in page
    row = {"<b>": "<script>alert(1)</script>&"}
    assert records.table(["<b>"], [row]) == (
        "<table><thead><tr><th>&lt;b&gt;</th></tr></thead><tbody><tr>"
        "<td>&lt;script&gt;alert(1)&lt;/script&gt;&amp;</td></tr></tbody></table>"
    )
    assert records.Records([row] * 30)._repr_html_().endswith("<p>30 rows</p>")


def test_module_functions_use_a_session_for_the_current_folder(
    session: orc.Session, cli: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = orc.submit("job.toml")
    assert [found.id for found in orc.jobs()] == ["1"] == [orc.job("@1").id]
    assert orc.render("job.toml") == cli("render", "job.toml").out
    other = cli.folder / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    with pytest.raises(orc.errors.SpecError):
        orc.submit("job.toml")
    assert orc.job("1") != job and orc.job("1").name == job.name


def test_two_sessions_have_their_own_databases(session: orc.Session, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "run.sh").write_text("true\n")
    with orc.Session(state_dir=tmp_path / "state", folder=folder) as other:
        assert other.submit("run.sh").row == 1
        assert [job.name for job in other.jobs()] == ["run"]
    assert session.jobs() == []


def test_importing_has_no_effect(cli: command_line.CommandLine) -> None:
    program = """
import sys
import orchestrator as orc
assert not {"sqlalchemy", "click"} & set(sys.modules)
print(orc.submit.__name__, orc.jobs.__name__, orc.errors.__name__, sorted(orc.__all__))
assert "click" not in sys.modules
"""
    done = cli.run([sys.executable, "-c", program])
    assert (done.code, done.err) == (0, "")
    names = ["Job", "Records", "Session", "Sweep", "errors", "job", "jobs"]
    names += ["render", "submit", "sweep"]
    assert done.out == f"submit orchestrator.jobs orchestrator.errors {names}\n"
    assert not cli.state_dir.exists()


def test_a_session_serves_several_threads(session: orc.Session, fake_slurm: FakeSlurm) -> None:
    jobs: list[orc.Job] = []
    problems: list[BaseException] = []

    def submit(number: int) -> None:
        try:
            jobs.append(session.submit("job.toml", name=f"job{number}"))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=submit, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert sorted(job.name for job in jobs) == ["job0", "job1", "job2", "job3"]
    assert len(fake_slurm.jobs()) == 4


SWEEP = {
    "job": {"name": "rates", "time_limit": "10"},
    "launch": {"script": "train.py"},
    "sweep": {"kind": "grid", "axes": {"args.lr": [0.1, 0.2]}},
}


def test_a_sweep_runs_to_its_end(
    session: orc.Session, fake_slurm: FakeSlurm, cli: command_line.CommandLine
) -> None:
    fake_slurm.run_jobs()
    sweep = session.sweep(SWEEP, set={"sweep.axes": {"args.lr": [0.1, 0.2, 0.4]}})
    assert sweep.wait(timeout=60) is sweep
    assert (sweep.name, sweep.row, sweep.state) == ("rates", 1, "ended")
    assert repr(sweep) == "<Sweep 'rates' (@1) ended>"
    assert [job.state for job in sweep.jobs] == ["COMPLETED"] * 3
    assert sweep.points == cli("sweep", "status", "rates", "--points", "--json").items
    assert [sweep.record] == cli("sweep", "list", "--json").items
    results = sweep.results("loss:first", direction="max", best=2)
    argv = ("--metric", "loss:first", "--direction", "max", "--best", "2", "--json")
    assert results == cli("sweep", "results", "rates", *argv).items
    assert len(results) == 2
    assert session.sweep("rates") == sweep == session.sweep("@1")
    assert "<td>rates</td>" in sweep._repr_html_()
    with pytest.raises(orc.errors.NotFoundError, match=r"^--metric: "):
        sweep.results("nosuch")


def test_a_sweep_is_confirmed_and_cancelled(
    session: orc.Session, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHESTRATOR_CONFIRM_POINTS", "1")
    with pytest.raises(
        orc.errors.RequestError,
        match=r"^2 points are more than confirm_points = 1: confirm with yes=True$",
    ):
        orc.Session().sweep(SWEEP)
    with pytest.raises(orc.errors.RequestError, match=r"^rates is no spec file, so nothing can"):
        session.sweep("rates", name="other")
    assert fake_slurm.jobs() == []
    sweep = session.sweep(SWEEP)
    assert sweep.cancel().state == "cancelled"
    assert [point["state"] for point in sweep.points] == ["CANCELLED", "CANCELLED"]
    sweep.rerun(1)
    assert [point["state"] for point in sweep.points] == ["PENDING", "CANCELLED"]


def test_a_read_only_session_changes_nothing(
    session: orc.Session, fake_slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, sweep = session.submit("job.toml"), session.sweep(SWEEP)
    monkeypatch.setenv("ORCHESTRATOR_READ_ONLY", "perhaps")
    with pytest.raises(
        orc.errors.RequestError, match=r"^ORCHESTRATOR_READ_ONLY is 'perhaps': set it to 1 or 0$"
    ):
        orc.Session()
    monkeypatch.setenv("ORCHESTRATOR_READ_ONLY", "1")
    refused = orc.Session()
    assert len(refused.jobs()) == 3 and refused.sweep("rates").state == "open"
    same, points = refused.job("1"), refused.sweep("rates")
    calls = {
        "submit": lambda: refused.submit("job.toml"),
        "sweep": lambda: refused.sweep({**SWEEP, "job": {"name": "other"}}),
        "resubmit": same.resubmit,
        **{name: getattr(same, name) for name in ("cancel", "hold", "release", "requeue")},
        **{name: getattr(points, name) for name in ("resume", "rerun")},
    }
    for name, call in calls.items():
        message = f"^{name} changes something, and read_only or ORCHESTRATOR_READ_ONLY forbids it"
        with pytest.raises(orc.errors.ConflictError, match=message):
            call()
    assert {job["state"] for job in fake_slurm.jobs()} == {"PENDING"}
    assert (job.refresh().state, sweep.state) == ("PENDING", "open")
