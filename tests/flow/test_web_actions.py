"""Actions of the web pages: who can start them, what they do, and what they leave."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.flow import command_line, test_local, web_server
from tests.flow.conftest import FakeSlurm
from tests.flow.test_local import here

__all__ = ["here"]
ORIGIN = {"Origin": "http://localhost"}
GONE = "This form is not valid any more. Go back, reload the page and try again."


@pytest.fixture
def server(cli: command_line.CommandLine, tmp_path: Path) -> Iterator[web_server.Server]:
    path = tmp_path / "run" / "web.sock"
    with web_server.started(cli, "--socket", path, "--allow-actions") as started:
        yield started


def submit(cli: command_line.CommandLine, *names: str) -> None:
    for name in names:
        assert cli("submit", cli.spec(web_server.JOB.format(name=name))).code == 0


class Question(NamedTuple):
    """A page that asks."""

    text: str
    cookie: str
    url: str
    fields: dict[str, str]


def asked(server: web_server.Server, url: str, **headers: str) -> Question:
    answer = server.get(url, **headers)
    assert answer.status == 200, answer.text
    form = re.search(
        r'<form class="actions" method="post" action="(.*?)">(.*?)</form>', answer.text, re.S
    )
    assert form is not None
    # Otherwise browsers send `Origin: null` with the form.
    assert answer.headers["Referrer-Policy"] == "same-origin"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie
    fields = re.findall(r'<input type="hidden" name="(.*?)" value="(.*?)">', form[2])
    return Question(answer.text, cookie.partition(";")[0], form[1], dict(fields))


def send(
    server: web_server.Server,
    question: Question,
    headers: Mapping[str, str] = ORIGIN,
    **changes: str,
) -> web_server.Answer:
    body = urllib.parse.urlencode({**question.fields, **changes}).encode()
    sent = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Content-Length": str(len(body)),
        "Cookie": question.cookie,
        **headers,
    }
    return server.request("POST", question.url, sent, body)


def result(server: web_server.Server, sent: web_server.Answer) -> str:
    """Return the text of the page to which the form leads, when the action has ended."""
    assert sent.status == 303, sent.text
    while "Refresh" in (answer := server.get(sent.headers["Location"])).headers:
        assert "shows the result when Slurm has confirmed it" in answer.text
    assert answer.status == 200
    return answer.text


def done(page: str) -> list[str]:
    return re.findall(r"<li>(.*?)</li>", page)


def problem(page: str) -> str:
    (text,) = re.findall(r'<p class="message warning" role="alert">(.*?)</p>', page, re.S)
    return text


def changes(fake_slurm: FakeSlurm) -> list[Sequence[str]]:
    calls = fake_slurm.calls("scontrol")
    return [argv for argv in calls if argv[0] not in ("show", "ping", "-o")]


def history(cli: command_line.CommandLine, reference: str) -> list[tuple[str, str]]:
    (job,) = cli("show", reference, "--json", "--no-refresh").items
    return [(event["source"], event["detail"]) for event in job["events"]]


def test_without_the_option_there_is_nothing(cli: command_line.CommandLine, tmp_path: Path) -> None:
    submit(cli, "demo")
    with web_server.started(cli, "--socket", tmp_path / "run" / "web.sock") as server:
        for url in ("/actions/cancel?job=1", "/sweeps/1/rerun", "/runs/x"):
            assert server.get(url).status == 404
        headers = {**ORIGIN, "Content-Length": "0"}
        assert server.request("POST", "/actions/cancel", headers).status == 404
        assert "/actions/" not in server.get("/").text
        assert "/actions/" not in server.get("/jobs/1").text


def test_hold_and_release_of_selected_jobs(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "a", "b", "c")
    page = server.get("/").text
    assert '<input type="checkbox" name="job" value="2" aria-label="Select 2 b">' in page
    assert '<button formaction="/actions/hold">Hold</button>' in page
    question = asked(server, "/actions/hold?job=1&job=2")
    assert "<h1>Hold 2 jobs?</h1>" in question.text
    assert "Pending jobs do not start until they are released." in question.text
    assert '<a href="/jobs/1">1</a></td><td>a</td>' in question.text
    assert question.fields["jobs"] == "1-2"
    assert changes(fake_slurm) == []
    page = result(server, send(server, question))
    assert done(page) == ["1 is PENDING (JobHeldUser)", "2 is PENDING (JobHeldUser)"]
    assert '<a href="/jobs/2">2</a>' in page
    assert changes(fake_slurm) == [["hold", "1,2"]]
    assert ("user, through the web page", "scontrol hold requested") in history(cli, "1")
    job = server.get("/jobs/1").text
    assert "user, through the web page" in job
    assert re.findall(r'<button formaction="/actions/(.*?)">', job) == ["cancel", "release"]
    page = result(server, send(server, asked(server, "/actions/release?job=2&job=3")))
    assert done(page) == ["2 is PENDING (Priority)", "3 is not held: PENDING (Priority)"]


def test_a_form_is_sent_once(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "demo")
    fake_slurm.set_state(1, "FAILED", exit="3:0")
    assert cli("refresh").code == 0
    question = asked(server, "/actions/resubmit?job=1")
    first = send(server, question)
    assert done(result(server, first)) == ["Submitted batch job 2 (@2, demo)"]
    again = send(server, question)
    assert again.headers["Location"] == first.headers["Location"]
    assert len(fake_slurm.jobs()) == 2
    assert ("user, through the web page", "resubmitted as @2") in history(cli, "@1")


def test_forms_that_this_browser_was_not_shown(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "a", "b")
    question = asked(server, "/actions/cancel?job=1")
    other = asked(server, "/actions/hold?job=1")
    forged = [
        send(server, question, jobs="2"),
        send(server, question, jobs="1-2"),
        send(server, question, token="x"),
        send(server, question, number="x"),
        send(server, question, ORIGIN | {"Cookie": ""}),
        send(server, question, ORIGIN | {"Cookie": other.cookie}),
        send(server, question._replace(url="/actions/requeue")),
        send(server, question._replace(fields=other.fields)),
    ]
    for answer in forged:
        assert answer.status == 403 and GONE in answer.text
    for headers, message in (
        ({}, "Another page sent this form."),
        ({"Origin": "http://evil.example"}, "Another page sent this form."),
        ({**ORIGIN, "Sec-Fetch-Site": "same-site"}, "Another page sent this request."),
    ):
        answer = send(server, question, headers)
        assert answer.status == 403 and message in answer.text
    types = {**ORIGIN, "Content-Type": "text/plain"}
    assert send(server, question, types).status == 415
    assert send(server, question, padding="x" * 70_000).status == 413
    # An address alone starts nothing.
    assert server.get("/actions/cancel?" + urllib.parse.urlencode(question.fields)).status == 400
    assert changes(fake_slurm) == [] and fake_slurm.calls("scancel") == []
    assert {job["state"] for job in fake_slurm.jobs()} == {"PENDING"}


def test_cancel_of_folded_tasks(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    assert (
        cli("submit", cli.spec(web_server.JOB.format(name="many") + "[array]\nsize = 4\n")).code
        == 0
    )
    fake_slurm.set_state("1_1", "RUNNING")
    assert cli("refresh").code == 0
    page = server.get("/").text
    assert (
        '<input type="checkbox" name="tasks" value="1" aria-label="Select 1_[3 tasks] many">'
        in page
    )
    question = asked(server, "/actions/cancel?tasks=1")
    assert question.fields["jobs"] == "1,3-4"
    page = result(server, send(server, question))
    assert done(page) == ["1_[0,2-3] is CANCELLED"]
    assert fake_slurm.job("1_1")["state"] == "RUNNING"


def test_folded_tasks_of_one_node(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    assert (
        cli("submit", cli.spec(web_server.JOB.format(name="many") + "[array]\nsize = 4\n")).code
        == 0
    )
    for task, node in enumerate(("good", "bad", "bad", "good")):
        fake_slurm.set_state(f"1_{task}", "RUNNING", node_list=node)
    assert cli("refresh").code == 0
    page = server.get("/?q=bad").text
    assert '<input type="hidden" name="words" value="bad">' in page
    (row,) = re.findall(r'name="tasks" value="(\d)" aria-label="Select 1_\[1-2\] many"', page)
    question = asked(server, f"/actions/cancel?words=bad&tasks={row}")
    assert "<h1>Cancel 2 jobs?</h1>" in question.text
    assert question.fields["jobs"] == "2-3"
    assert asked(server, f"/actions/cancel?tasks={row}").fields["jobs"] == "1-4"


def test_an_address_that_names_the_same_jobs_again_and_again(
    cli: command_line.CommandLine, server: web_server.Server
) -> None:
    assert (
        cli("submit", cli.spec(web_server.JOB.format(name="many") + "[array]\nsize = 4\n")).code
        == 0
    )
    # A foreign page may lead here. Tasks that are read for each word take minutes.
    for words in (["tasks=1"] * 7000, ["job=1-4"] * 7000):
        assert asked(server, f"/actions/cancel?{'&'.join(words)}").fields["jobs"] == "1-4"
    question = asked(server, "/actions/cancel?tasks=1&job=2")
    assert question.fields["jobs"] == "1-4"


def test_errors_of_slurm_and_of_the_jobs(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "a", "b")
    fake_slurm.set_state(1, "RUNNING")
    page = result(server, send(server, asked(server, "/actions/hold?job=1&job=2")))
    assert done(page) == ["2 is PENDING (JobHeldUser)"]
    assert (
        "1 is RUNNING; only a pending job can be held. `orchestrator requeue --hold 1` stops it "
        "and holds it"
    ) in problem(page)
    away = "Unable to contact slurm controller (connect failure)"
    fake_slurm.fail("squeue", stderr=f"slurm_load_jobs error: {away}", times=1000)
    page = result(server, send(server, asked(server, "/actions/requeue?job=1")))
    assert "squeue could not reach slurmctld" in problem(page)
    assert problem(page).endswith("(nothing was changed)")
    assert changes(fake_slurm) == [["hold", "2"]]
    for url, status, message in (
        ("/actions/cancel", 400, "Select jobs in the list first."),
        ("/actions/cancel?job=7", 404, "There is no job @7."),
        ("/actions/cancel?job=x", 404, "names no jobs."),
        ("/actions/cancel?job=1-5000", 400, "At most 1000 jobs can be selected; these are 5000."),
        ("/actions/delete?job=1", 404, "There is no action"),
        ("/runs/unknown", 404, "The result of this action is not known any more."),
    ):
        answer = server.get(url)
        assert (answer.status, message in answer.text) == (status, True), answer.text


def test_points_of_a_sweep_are_submitted_again(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    (cli.folder / "train.py").touch()
    assert (
        cli("sweep", "submit", cli.spec(web_server.SWEEP.format(values=[0.1, 0.2, 0.3]))).code == 0
    )
    for task, state in (("1_0", "COMPLETED"), ("1_1", "FAILED"), ("1_2", "FAILED")):
        fake_slurm.set_state(task, state)
    assert cli("refresh").code == 0
    page = server.get("/sweeps/1").text
    assert '<input type="checkbox" form="rerun" name="point" value="2"' in page
    assert asked(server, "/sweeps/1/rerun").fields["points"] == "2-3"
    question = asked(server, "/sweeps/1/rerun?point=1")
    assert "<h1>Submit 1 point of grid again?</h1>" in question.text
    page = result(server, send(server, question))
    assert done(page)[1:] == ["Submitted 1 point of sweep grid (@1)"]
    question = asked(server, "/sweeps/1/rerun?point=1&point=2-3")
    page = result(server, send(server, question))
    assert problem(page).endswith("has not ended. Nothing was submitted.")
    assert len(fake_slurm.jobs()) == 4


def test_a_slow_action_and_the_end_of_the_server(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "demo")
    # scontrol release exits with 0 in any case, and the job stays held.
    assert cli("hold", "1").code == 0
    fake_slurm.fail("scontrol", rc=0, times=1000)
    sent = send(server, asked(server, "/actions/release?job=1"))
    answer = server.get(sent.headers["Location"])
    assert answer.headers["Refresh"] == "2"
    assert server.stop() == (0, "")
    assert ("user, through the web page", "scontrol release requested") in history(cli, "1")


def test_actions_that_have_not_begun_do_not_begin_when_the_server_ends(
    cli: command_line.CommandLine, server: web_server.Server, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "a", "b", "c", "d")
    assert cli("hold", "1", "2").code == 0
    fake_slurm.fail("scontrol", rc=0, times=1000)
    # Two at once wait for Slurm.
    for row in (1, 2):
        send(server, asked(server, f"/actions/release?job={row}"))
    send(server, asked(server, "/actions/cancel?job=3&job=4"))
    message = "Not done, because the server was stopped: Cancel 2 jobs (3, 4)\n"
    assert server.stop() == (0, message)
    assert fake_slurm.calls("scancel") == []
    details = [detail for _, detail in history(cli, "3")]
    assert "cancellation requested" not in details
    assert ("user, through the web page", "scontrol release requested") in history(cli, "2")


def test_a_page_of_a_server_that_was_started_again(
    cli: command_line.CommandLine, tmp_path: Path, fake_slurm: FakeSlurm
) -> None:
    submit(cli, "demo")
    path = tmp_path / "run" / "web.sock"
    with web_server.started(cli, "--socket", path, "--allow-actions") as server:
        question = asked(server, "/actions/cancel?job=1")
    with web_server.started(cli, "--socket", path, "--allow-actions") as server:
        answer = send(server, question)
        assert answer.status == 403 and GONE in answer.text
    assert fake_slurm.calls("scancel") == []
    assert json.dumps(changes(fake_slurm)) == "[]"


def test_jobs_without_slurm(here: command_line.CommandLine, tmp_path: Path) -> None:
    job_id = test_local.submit(here, f"echo ready; {test_local.LONG}")
    test_local.running(here, job_id)
    path = tmp_path / "run" / "web.sock"
    with web_server.started(here, "--socket", path, "--allow-actions") as server:
        page = result(server, send(server, asked(server, "/actions/cancel?job=1")))
        assert done(page) == ["local-1 is CANCELLED"]
        page = result(server, send(server, asked(server, "/actions/resubmit?job=1")))
        assert done(page) == ["Submitted batch job local-2 (@2, x)"]
        test_local.running(here, "local-2")
        page = result(server, send(server, asked(server, "/actions/cancel?job=2")))
        assert done(page) == ["local-2 is CANCELLED"]
