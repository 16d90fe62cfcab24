"""Texts of notifications, and the formats of receivers."""

from __future__ import annotations

import dataclasses
import datetime
import json

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import jobs
from orchestrator.notices import formats, records, texts
from orchestrator.schedules.records import Trigger
from tests import builders

AT = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)
JOB = builders.make_job(
    row=7,
    name="wrn",
    state=jobs.JobState.OUT_OF_MEMORY,
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


def test_failed_job() -> None:
    notice = texts.ended_jobs([JOB], "host_memory: a step was killed")
    assert (notice.key, notice.kind, notice.labels) == ("end:@7:0", "failure", ("team=a",))
    assert notice.subject == "4711 wrn: OUT_OF_MEMORY, host_memory"
    assert notice.body == (
        "Job 4711 wrn (@7) ended: OUT_OF_MEMORY, exit code 0:125\n"
        "It ran for 00:12:03 on n[1-2]\n"
        "Cause: host_memory: a step was killed\n"
        "`orchestrator explain @7` shows the cause and the fix"
    )


def test_end_without_failure() -> None:
    notice = texts.ended_jobs([GOOD])
    assert (notice.kind, notice.subject) == ("end", "4711 wrn: COMPLETED")
    cancelled = dataclasses.replace(GOOD, state=jobs.JobState.CANCELLED)
    assert texts.ended_jobs([cancelled]).kind == "end"


def test_sweep() -> None:
    notice = texts.ended_sweep(3, "lr", 500, [GOOD] * 498 + [JOB])
    assert notice.kind == "failure"
    assert notice.subject == "sweep lr (@3): 498 COMPLETED, 1 OUT_OF_MEMORY, 1 not submitted"
    assert notice.body == (
        "500 points of sweep lr (@3): 498 COMPLETED, 1 OUT_OF_MEMORY, 1 not submitted\n"
        "Failed: 1 host_memory (@7)\n"
        "`orchestrator sweep status @3` shows its points"
    )


def test_alert_missed_time_and_verdict() -> None:
    running = dataclasses.replace(JOB, state=jobs.JobState.RUNNING)
    stalled = texts.alert(12, running, "stalled: no output for 34 minutes")
    assert (stalled.kind, stalled.subject) == ("stall", "4711 wrn: stalled")
    assert stalled.body == (
        "Job 4711 wrn (@7) is running on n[1-2]: no output for 34 minutes\n"
        "`orchestrator logs @7` shows its last output"
    )
    trigger = Trigger(
        row=4, schedule_row=1, planned_at=AT, due_at=AT, decided_at=AT, state="skipped", reason="x"
    )
    missed = texts.missed_time(trigger, "nightly")
    assert (missed.kind, missed.subject) == (
        "missed",
        "schedule nightly: skipped 2026-11-22T02:00+00:00",
    )
    judged = dataclasses.replace(
        trigger, verdict="regression", verdict_detail={"sentence": "4 % slower"}, sweep_row=3
    )
    slower = texts.verdict(judged, "nightly", None)
    assert slower.kind == "regression"
    assert slower.body == (
        "Schedule nightly, planned for 2026-11-22T02:00+00:00: verdict on sweep @3: regression\n"
        "4 % slower"
    )


def several(count: int) -> records.Message:
    some = [
        dataclasses.replace(texts.ended_jobs([JOB]), key=f"end:@{row}:0") for row in range(count)
    ]
    return texts.message(some, "mail", "abcd", AT)


def test_several_notices_are_one_message() -> None:
    one = several(1)
    assert (one.subject, one.body.splitlines()[0]) == (
        "4711 wrn: OUT_OF_MEMORY, host_memory",
        "Job 4711 wrn (@7) ended: OUT_OF_MEMORY, exit code 0:125",
    )
    many = several(23)
    assert many.subject == "23 notifications: 23 failures"
    assert many.body.endswith("\n\nand 3 more: `orchestrator notices list` shows all")
    assert several(23).id == many.id != several(22).id


def test_mentions_have_no_effect() -> None:
    notice = dataclasses.replace(several(1), subject="@everyone <!channel>", body="``` @here <b>")
    slack = json.loads(formats.webhook_body("slack", notice))
    assert slack == {"text": "*@everyone &lt;!channel&gt;*\n```\n''' @here &lt;b&gt;\n```"}
    discord = json.loads(formats.webhook_body("discord", notice))
    assert discord["allowed_mentions"] == {"parse": []}
    mattermost = json.loads(formats.webhook_body("mattermost", notice))
    assert mattermost == {"text": "**@\u200beveryone <!channel>**\n```\n''' @here <b>\n```"}
    long = dataclasses.replace(notice, body="x" * 5000)
    assert len(json.loads(formats.webhook_body("discord", long))["content"]) == 2000


def test_json_format() -> None:
    content = json.loads(formats.webhook_body("json", several(1)))
    (item,) = content.pop("items")
    assert content["schema"] == "orchestrator/v1"
    assert content["at"] == "2026-11-22T02:00:00+00:00"
    assert (item["key"], item["kind"], item["row"], item["labels"]) == (
        "end:@0:0",
        "failure",
        7,
        ["team=a"],
    )


def test_mail() -> None:
    mail = formats.mail(several(1), "o@lab", ("a@lab", "b@lab"))
    assert mail["Subject"] == "[orchestrator] 4711 wrn: OUT_OF_MEMORY, host_memory"
    assert mail["Message-ID"] == f"<{several(1).id}>"
    assert (mail["To"], mail["Auto-Submitted"]) == ("a@lab, b@lab", "auto-generated")


@hypothesis.given(st.text(max_size=300))
def test_names_cannot_add_mail_headers(name: str) -> None:
    notice = texts.ended_jobs([dataclasses.replace(JOB, name=name)])
    mail = formats.mail(texts.message([notice], "mail", "abcd", AT), "o@lab", ("a@lab",))
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
        json.loads(formats.webhook_body(form, texts.message([notice], "x", "abcd", AT)))


@pytest.mark.parametrize(
    ("tries", "least", "most"), [(1, 48, 72), (2, 96, 144), (9, 2880, 4320), (60, 2880, 4320)]
)
def test_pauses_between_tries(tries: int, least: int, most: int) -> None:
    assert all(least <= texts.retry_seconds(tries, key) <= most for key in "abcdef")
