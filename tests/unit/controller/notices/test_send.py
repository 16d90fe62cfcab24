"""Each notification is sent once, to real receivers, whatever fails or is killed."""

from __future__ import annotations

import dataclasses
import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator import config, jobs
from orchestrator.controller.notices import delivery, senders
from orchestrator.controller.session import contexts, stores
from orchestrator.schedules import triggers
from orchestrator.schedules.records import Payload
from tests import builders
from tests import receivers as servers

HOUR = datetime.timedelta(hours=1)
NOW = datetime.datetime(2026, 11, 22, 2, 0, tzinfo=datetime.UTC)


class Bench:
    """A store, a clock that is turned by hand, and the channels."""

    def __init__(self, folder: Path, database: str) -> None:
        self.folder = folder
        self.now = NOW
        self.store = stores.Store(database)
        self.channels: dict[str, config.Channel] = {}
        self.proceed: Callable[[], None] = lambda: None

    def step(self) -> list[str]:
        loaded = config.load({"HOME": str(self.folder)}, self.folder)
        return delivery.step(
            builders.make_context(
                self.folder,
                self.store,
                configuration=dataclasses.replace(loaded, notices=self.channels),
                environ={"HOME": str(self.folder), "PATH": os.environ["PATH"]},
                reporter=builders.NO_MESSAGES,
                now=lambda: self.now,
                guard=contexts.Guard(check=self.proceed),
            )
        )

    def later(self, seconds: float) -> list[str]:
        self.now += datetime.timedelta(seconds=seconds)
        return self.step()

    def add(self, number: int, tasks: int | None = None, **fields: object) -> list[jobs.Job]:
        record = builders.make_submission(
            number, self.now, name=f"demo{number}", run_dir=str(self.folder / str(number))
        )
        array = None if tasks is None else range(tasks)
        with self.store.writing() as work:
            return work.jobs.add_submission(
                record, array_tasks=array, state=jobs.JobState.RUNNING, **fields
            )

    def end(
        self,
        job: jobs.Job,
        state: jobs.JobState = jobs.JobState.FAILED,
        *,
        cause: str | None = "code",
        settled: bool = True,
    ) -> None:
        event = jobs.JobEvent(at=self.now, kind="state", state=state, source="squeue", detail="")
        with self.store.writing() as work:
            changes = {"state": state, "settled": settled, "cause": cause, "ended_at": self.now}
            work.jobs.change(job.row, changes)
            work.events.add(job.row, event)

    def deliveries(self) -> list[tuple[str, str | None]]:
        """Return all notices, oldest first, and where each is."""
        with self.store.reading() as work:
            return [
                (item.notice.subject, item.state) for item in reversed(work.notices.deliveries(100))
            ]


@pytest.fixture
def bench(tmp_path: Path, database_url: str) -> Iterator[Bench]:
    made = Bench(tmp_path, database_url)
    with made.store:
        yield made


def mail(port: int, **fields: object) -> config.Channel:
    options = {"sender": "o@lab", "to": ("a@lab",), "security": "none", "timeout_seconds": 5}
    return config.Channel(kind="email", host="127.0.0.1", port=port, **(options | fields))  # type: ignore[arg-type]


def hook(port: int, **fields: object) -> config.Channel:
    url = f"http://127.0.0.1:{port}/secret"
    return config.Channel(kind="webhook", url=url, timeout_seconds=5, **fields)  # type: ignore[arg-type]


def listed(bench: Bench, *words: str) -> config.Channel:
    """Return a channel whose command accepts every notification."""
    on = words or config.Channel().on
    return config.Channel(kind="command", command=("cat",), on=on)


def test_nothing_before_the_first_channel_is_sent(bench: Bench) -> None:
    assert bench.step() == []
    (old,) = bench.add(1)
    bench.end(old)
    bench.channels = {"log": listed(bench)}
    assert bench.step() == bench.step() == []
    # And of what was while there was no channel.
    bench.channels = {}
    assert bench.step() == []
    (other,) = bench.add(2)
    bench.end(other)
    bench.channels = {"log": listed(bench)}
    assert bench.step() == bench.later(99999) == []
    assert bench.deliveries() == []


def test_sent_once_after_receivers_were_down(bench: Bench) -> None:
    smtp, web = servers.free_port(), servers.free_port()
    bench.channels = {"mail": mail(smtp), "hook": hook(web, form="slack")}
    bench.step()
    bench.end(bench.add(1)[0])
    first = bench.later(10)
    assert [item.partition(": ")[0] for item in first] == [
        "1 notification by hook not sent, retry later",
        "1 notification by mail not sent, retry later",
    ]
    assert first[0].endswith("http://127.0.0.1/***: Connection refused")
    assert bench.later(20) == [], "it is not their time yet"
    bench.end(bench.add(2)[0])
    with servers.mail_server(smtp) as got_mail, servers.web_server(web) as got_hook:
        got_mail.answers = ["451 later"]
        got_hook.answers = [(503, ""), (307, "http://elsewhere.example/path")]
        # What is new goes at once; the rest when its time has come, and what failed with it.
        for _ in range(6):
            bench.later(300)
        assert bench.later(99999) == []
        assert sorted(item["Subject"] for item in got_mail.received) == [
            "[orchestrator] 2 notifications: 2 failures"
        ]
        ((_, content),) = got_hook.received
        assert content["text"].startswith("*2 notifications: 2 failures*\n")
    assert [state for _, state in bench.deliveries()] == ["sent"] * 4


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_errors_of_receivers(bench: Bench) -> None:
    with servers.web_server(servers.free_port()) as server:
        bench.channels = {"hook": hook(server.port)}
        bench.step()
        bench.end(bench.add(1)[0])
        server.answers = [(404, ""), (307, "http://elsewhere.example/path")]
        (message,) = bench.later(10)
        assert message.endswith("http://127.0.0.1/***: 404 Not Found no such hook")
        (message,) = bench.later(300)
        assert message.endswith(
            "redirects to http://elsewhere.example/***: put the new address into the configuration"
        )
        assert server.received == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_given_up_after_a_day(bench: Bench) -> None:
    bench.channels = {"hook": hook(servers.free_port())}
    bench.step()
    (job,) = bench.add(1)
    bench.end(job)
    lines = [line for _ in range(60) for line in bench.later(3600)]
    assert 18 <= len(lines) <= 26, "about every hour, and then no more"
    assert lines[-1].startswith("1 notification by hook given up after a day: http://127.0.0.1/***")
    with bench.store.reading() as work:
        event = work.events.of_job(job.row)[-1]
        assert work.notices.counts() == {("hook", "failed"): 1}
    assert (event.kind, event.detail[:44]) == (
        "notice",
        "notification by hook given up after a day: h",
    )
    with bench.store.writing() as work:
        assert work.notices.retry("hook", bench.now) == 1
    with servers.web_server(int(bench.channels["hook"].url.split(":")[2].split("/")[0])) as server:  # type: ignore[union-attr]
        bench.step()
        assert len(server.received) == 1


class Killed(BaseException):
    pass


@pytest.mark.parametrize("at", [1, 2, 3])
def test_killed_at_any_point(bench: Bench, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    """1: before the claim, 2: behind it, 3: the receiver has it, and that is not stored yet."""
    with servers.web_server(servers.free_port()) as server:
        bench.channels = {"hook": hook(server.port)}
        bench.step()
        bench.end(bench.add(1)[0])
        left = [at]

        def die() -> None:
            left[0] -= 1
            if not left[0]:
                raise Killed

        bench.proceed = die
        deliver = senders.send

        def send_and_die(*arguments: object) -> str:
            deliver(*arguments)  # type: ignore[arg-type]
            raise Killed

        with monkeypatch.context() as patch:
            if at == 3:
                patch.setattr(senders, "send", send_and_die)
            with pytest.raises(Killed):
                bench.later(10)
        bench.proceed = lambda: None
        if at > 1:
            assert bench.step() == [], "the one that died may be at it still"
        # A second end does not get into the message that may be there already.
        bench.end(bench.add(2)[0])
        bench.later(60)
        bench.later(60)
        keys = [key for key, _ in server.received]
        reported = [[item["key"] for item in content["items"]] for _, content in server.received]
        if at == 3:
            assert reported == [["end:@1:0"], ["end:@1:0"], ["end:@2:0"]]
            assert keys[0] == keys[1] != keys[2], "who gets it twice can tell"
        elif at == 2:
            assert reported == [["end:@1:0"], ["end:@2:0"]]
        else:
            assert reported == [["end:@1:0", "end:@2:0"]]


def test_end_is_sent_with_its_cause(bench: Bench) -> None:
    bench.channels = {"log": listed(bench)}
    bench.step()
    (job,) = bench.add(1)
    bench.end(job, cause=None, settled=False)
    assert bench.later(10) == []
    bench.end(job, cause=None)
    assert bench.later(10) == []
    with bench.store.writing() as work:
        work.jobs.change(job.row, {"cause": "host_memory"})
    assert bench.later(10) == ["Sent 1 notification by log: @1 demo1: FAILED, host_memory"]
    # A lost job is not waited for, and a requeued job has not ended.
    (lost,) = bench.add(2)
    bench.end(lost, cause=None)
    (again,) = bench.add(3)
    bench.end(again, cause=None)
    with bench.store.writing() as work:
        work.jobs.change(again.row, {"state": jobs.JobState.PENDING, "settled": False})
    assert bench.later(10) == []
    assert bench.later(600) == ["Sent 1 notification by log: @2 demo2: FAILED"]


def test_array_sends_one_notice_at_its_end(bench: Bench) -> None:
    bench.channels = {"log": listed(bench), "all": listed(bench, "end")}
    bench.step()
    tasks = bench.add(1, tasks=3, array_job_id="9")
    for index, job in enumerate(tasks):
        assert bench.later(10) == []
        state = jobs.JobState.COMPLETED if index else jobs.JobState.TIMEOUT
        bench.end(job, state, cause=None if index else "time_limit")
    message = "notification by {}: 9 demo1: 2 COMPLETED, 1 TIMEOUT"
    assert bench.later(10) == [f"Sent 1 {message.format(name)}" for name in ("all", "log")]
    (well,) = bench.add(2)
    bench.end(well, jobs.JobState.COMPLETED, cause=None)
    assert bench.later(10) == ["Sent 1 notification by all: @4 demo2: COMPLETED"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_only_jobs_with_the_labels(bench: Bench) -> None:
    bench.channels = {"log": dataclasses.replace(listed(bench), labels=("team=a",))}
    bench.step()
    bench.end(bench.add(1, labels=("team=b",))[0])
    bench.end(bench.add(2, labels=("x", "team=a"))[0])
    assert bench.later(10) == ["Sent 1 notification by log: @2 demo2: FAILED, code"]
    assert [subject for subject, _ in bench.deliveries()] == ["@2 demo2: FAILED, code"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_secret_file_readable_by_others_is_not_used(bench: Bench) -> None:
    secret = bench.folder / "hook.url"
    with servers.web_server(servers.free_port()) as server:
        secret.write_text(f"http://127.0.0.1:{server.port}/x\n")
        secret.chmod(0o644)
        bench.channels = {"hook": config.Channel(kind="webhook", url_file="~/hook.url")}
        bench.step()
        bench.end(bench.add(1)[0])
        (message,) = bench.later(10)
        assert message.endswith("other users can read ~/hook.url: `chmod 600 ~/hook.url`")
        secret.chmod(0o600)
        assert bench.later(99) == ["Sent 1 notification by hook: @1 demo1: FAILED, code"]
        assert len(server.received) == 1


def test_array_with_a_chain_sends_one_notice(bench: Bench) -> None:
    bench.channels = {"log": listed(bench)}
    bench.step()
    first, lost = bench.add(1, tasks=2, array_job_id="9")
    bench.end(lost)
    with bench.store.writing() as work:
        work.jobs.change(first.row, {"recovers": True})
    bench.end(first, cause="node_fail")
    assert bench.later(10) == []
    (second,) = bench.add(2, continues=first.row)
    with bench.store.writing() as work:
        work.jobs.change(first.row, {"recovers": None})
    assert bench.later(10) == bench.later(10) == []
    bench.end(second, jobs.JobState.COMPLETED, cause=None)
    assert bench.later(10) == ["Sent 1 notification by log: - demo2: 1 COMPLETED, 1 FAILED"]
    bench.end(first, cause="node_fail")
    assert bench.later(10) == [], "what Slurm says of a link later is no news"


def test_rejected_continuation_job(bench: Bench) -> None:
    bench.channels = {"log": listed(bench)}
    bench.step()
    (first,) = bench.add(1)
    (by_hand,) = bench.add(2)
    (second,) = bench.add(3, continues=first.row)
    for refused in (by_hand, second):
        bench.end(refused, jobs.JobState.NOT_SUBMITTED)
    assert bench.later(10) == ["Sent 1 notification by log: @3 demo3: NOT_SUBMITTED, code"]


def test_missed_times_before_the_first_channel(bench: Bench) -> None:
    bench.channels = {"log": listed(bench, "failure")}
    bench.step()
    fields: dict[str, object] = {
        **{"state": "active", "cron": "@hourly", "tz": "UTC", "kind": "job", "source": "x.toml"},
        **{"source_hash": None, "folder": "/", "profile": "default", "cluster": "lab"},
        **{"scheduler": "slurm", "catchup": "latest", "grace_seconds": 60, "overlap": "skip"},
        **{"jitter_seconds": 0, "baseline": None, "created_at": NOW, "decided_until": NOW},
    }
    payload = Payload(spec={}, environment={}, argv=())
    with bench.store.writing() as work:
        row = work.schedules.add(payload, name="hourly", **fields).row

    def miss() -> None:
        bench.now += 3 * HOUR
        with bench.store.writing() as work:
            stored = work.schedules.get(row)
            decided = triggers.decide(stored, stored.decided_until, bench.now)
            skipped = [
                dataclasses.replace(time, state="skipped", reason="missed: late")
                for time in decided.planned
            ]
            decided = dataclasses.replace(decided, planned=tuple(skipped))
            assert work.schedules.add_triggers(stored, decided, bench.now)

    miss()
    assert bench.step() == []
    miss()
    bench.channels["all"] = listed(bench, "missed")
    assert bench.step() == ["Sent 3 notifications by all: 3 notifications: 3 missed times"]
