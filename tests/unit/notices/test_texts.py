"""What people read of an end, an alert, a planned time; and the forms that receivers take."""

from __future__ import annotations

import dataclasses
import datetime
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import jobs, notices
from orchestrator.notices import forms

AT = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
JOB = jobs.Job(
    row=7,
    token="abcd00000007",
    cluster="lab",
    scheduler="slurm",
    name="wrn",
    state=jobs.JobState.OUT_OF_MEMORY,
    run_dir="/r/wrn.abcd00000007",
    created_at=AT,
    job_id="4711",
    cause="host_memory",
    exit_code=0,
    exit_signal=125,
    node_list="n[1-2]",
    started_at=AT - datetime.timedelta(seconds=723),
    ended_at=AT,
    labels=("team=a",),
)
GOOD = dataclasses.replace(
    JOB, row=8, state=jobs.JobState.COMPLETED, cause=None, exit_code=0, exit_signal=0
)


def test_a_job_that_failed() -> None:
    told = notices.of_jobs([JOB], "host_memory: a step was killed")
    assert (told.key, told.kind, told.labels) == ("end:@7:0", "failure", ("team=a",))
    assert told.subject == "4711 wrn: OUT_OF_MEMORY, host_memory"
    assert told.body == (
        "Job 4711 wrn (@7) ended: OUT_OF_MEMORY, exit code 0:125\n"
        "It ran for 00:12:03 on n[1-2]\n"
        "Cause: host_memory: a step was killed\n"
        "`orchestrator explain @7` tells why and what helps"
    )


def test_an_end_that_is_none_to_look_at() -> None:
    told = notices.of_jobs([GOOD])
    assert (told.kind, told.subject) == ("end", "4711 wrn: COMPLETED")
    cancelled = dataclasses.replace(GOOD, state=jobs.JobState.CANCELLED)
    assert notices.of_jobs([cancelled]).kind == "end"


def test_a_sweep_is_one_notice() -> None:
    told = notices.of_sweep(3, "lr", 500, [GOOD] * 498 + [JOB])
    assert told.kind == "failure"
    assert told.subject == "sweep lr (@3): 498 COMPLETED, 1 OUT_OF_MEMORY, 1 not submitted"
    assert told.body == (
        "500 points of sweep lr (@3): 498 COMPLETED, 1 OUT_OF_MEMORY, 1 not submitted\n"
        "Failed: 1 host_memory (@7)\n"
        "`orchestrator sweep status @3` shows its points"
    )


def test_an_alert_a_missed_time_and_a_verdict() -> None:
    running = dataclasses.replace(JOB, state=jobs.JobState.RUNNING)
    stalled = notices.of_alert(12, running, "stalled: no new line for 34 minutes")
    assert (stalled.kind, stalled.subject) == ("stall", "4711 wrn: stalled")
    assert stalled.body == (
        "Job 4711 wrn (@7) runs on n[1-2]: no new line for 34 minutes\n"
        "`orchestrator logs @7` shows what it wrote last"
    )
    missed = notices.of_firing(4, "nightly", AT, "skipped", "the last one runs", schedule_row=1)
    assert (missed.kind, missed.subject) == (
        "missed",
        "schedule nightly: skipped 2026-11-22T02:00+00:00",
    )
    slower = notices.of_verdict(
        4, "nightly", AT, "regression", ["4 % slower"], schedule_row=1, sweep_row=3
    )
    assert slower.kind == "regression"
    assert slower.body == (
        "Schedule nightly, planned for 2026-11-22T02:00+00:00: sweep @3 was judged: regression\n"
        "4 % slower"
    )


def several(count: int) -> notices.Message:
    some = [
        dataclasses.replace(notices.of_jobs([JOB]), key=f"end:@{row}:0") for row in range(count)
    ]
    return notices.message(some, "mail", "abcd", AT)


def test_what_ended_together_is_one_message() -> None:
    one = several(1)
    assert (one.subject, one.body.splitlines()[0]) == (
        "4711 wrn: OUT_OF_MEMORY, host_memory",
        "Job 4711 wrn (@7) ended: OUT_OF_MEMORY, exit code 0:125",
    )
    many = several(23)
    assert many.subject == "23 notices: 23 failures"
    assert many.body.endswith("\n\nand 3 more: `orchestrator notices list` shows all")
    assert several(23).id == many.id != several(22).id


def test_a_name_calls_nobody() -> None:
    told = dataclasses.replace(several(1), subject="@everyone <!channel>", body="``` @here <b>")
    slack = json.loads(forms.payload("slack", told))
    assert slack == {"text": "*@everyone &lt;!channel&gt;*\n```\n''' @here &lt;b&gt;\n```"}
    discord = json.loads(forms.payload("discord", told))
    assert discord["allowed_mentions"] == {"parse": []}
    mattermost = json.loads(forms.payload("mattermost", told))
    assert mattermost == {"text": "**@\u200beveryone <!channel>**\n```\n''' @here <b>\n```"}
    long = dataclasses.replace(told, body="x" * 5000)
    assert len(json.loads(forms.payload("discord", long))["content"]) == 2000


def test_the_json_form() -> None:
    found = json.loads(forms.payload("json", several(1)))
    (item,) = found.pop("items")
    assert found["schema"] == "orchestrator/v1"
    assert found["at"] == "2026-11-22T02:00:00+00:00"
    assert (item["key"], item["kind"], item["row"], item["labels"]) == (
        "end:@0:0",
        "failure",
        7,
        ["team=a"],
    )


def test_mail() -> None:
    mail = forms.mail(several(1), "o@lab", ("a@lab", "b@lab"))
    assert mail["Subject"] == "[orchestrator] 4711 wrn: OUT_OF_MEMORY, host_memory"
    assert mail["Message-ID"] == f"<{several(1).id}>"
    assert (mail["To"], mail["Auto-Submitted"]) == ("a@lab, b@lab", "auto-generated")


@hypothesis.given(st.text(max_size=300))
def test_a_name_is_no_header_of_its_own(name: str) -> None:
    told = notices.of_jobs([dataclasses.replace(JOB, name=name)])
    mail = forms.mail(notices.message([told], "mail", "abcd", AT), "o@lab", ("a@lab",))
    assert set(mail.keys()) <= {
        "Subject",
        "From",
        "To",
        "Date",
        "Message-ID",
        "Auto-Submitted",
        "Content-Type",
        "Content-Transfer-Encoding",
        "MIME-Version",
    }
    assert mail.as_bytes()
    for form in ("json", "slack", "discord", "mattermost"):
        json.loads(forms.payload(form, notices.message([told], "x", "abcd", AT)))


@pytest.mark.parametrize(
    ("tries", "least", "most"), [(1, 48, 72), (2, 96, 144), (9, 2880, 4320), (60, 2880, 4320)]
)
def test_a_receiver_is_tried_less_and_less_often(tries: int, least: int, most: int) -> None:
    assert all(least <= notices.retry_seconds(tries, key) <= most for key in "abcdef")
