"""Clocks that are set, hosts that were off, and comparison with other clocks."""

from __future__ import annotations

import datetime

import pytest

from orchestrator.clocks import leaps

NOW = datetime.datetime(2026, 11, 22, 3, 0, tzinfo=datetime.UTC)
DAY = 86400.0


def reading(wall: float, boot: float, *, host: str = "login1", boot_id: str = "a") -> leaps.Reading:
    at = NOW + datetime.timedelta(seconds=wall)
    return leaps.Reading(at=at, boot_seconds=boot, boot_id=boot_id, host=host)


BEFORE = leaps.State(trusted=reading(0, 1000))


def slurm(ahead: float) -> dict[str, datetime.timedelta]:
    return {"Slurm's clock": datetime.timedelta(seconds=ahead)}


def no_clocks() -> dict[str, datetime.timedelta]:
    return {}


def not_called() -> dict[str, datetime.timedelta]:
    raise AssertionError("no other clock is needed")


def test_correct_clock_is_not_compared_with_others() -> None:
    assert leaps.assess(None, reading(0, 5), not_called).doubt is None
    for wall, boot in [(60, 1060), (60 + 299, 1060), (60 - 299, 1060), (30 * DAY, 1000 + 30 * DAY)]:
        now = reading(wall, boot)
        assert leaps.assess(BEFORE, now, not_called) == leaps.State(trusted=now)
    # Another host, soon after.
    assert leaps.assess(BEFORE, reading(3000, 9, host="login2"), not_called).doubt is None


@pytest.mark.parametrize("seconds", [30 * DAY, -30 * DAY, 7200.0, -7200.0, 301.0])
def test_a_leap_is_doubted_until_another_clock_agrees(seconds: float) -> None:
    now = reading(60 + seconds, 1060)
    alone = leaps.assess(BEFORE, now, no_clocks)
    assert alone.trusted == BEFORE.trusted
    assert alone.doubt is not None and alone.doubt.leap_seconds == seconds
    against = leaps.assess(BEFORE, now, lambda: slurm(-seconds))
    assert against.doubt is not None and against.doubt.contradicted_by == "Slurm's clock"
    assert leaps.assess(BEFORE, now, lambda: slurm(2)) == leaps.State(trusted=now)
    # One that differs is enough for a doubt.
    assert (
        leaps.assess(BEFORE, now, lambda: slurm(-seconds) | {"NTP": datetime.timedelta()}).doubt
        is not None
    )
    # The clock is set right: nothing has to be confirmed.
    back = reading(120, 1120)
    assert leaps.assess(alone, back, not_called) == leaps.State(trusted=back)


def test_without_other_clocks_a_change_is_accepted_after_an_hour() -> None:
    state = leaps.assess(BEFORE, reading(DAY, 1000), no_clocks)
    assert state.doubt is not None
    for seconds in (60, 3000, 3599):
        state = leaps.assess(state, reading(DAY + seconds, 1000 + seconds), no_clocks)
        assert state.doubt is not None and state.doubt.since == reading(DAY, 1000)
    again = leaps.assess(state, reading(2 * DAY + 3600, 4600), no_clocks)
    assert again.doubt is not None and again.doubt.since == reading(2 * DAY + 3600, 4600)
    believed = reading(DAY + 3600, 4600)
    assert leaps.assess(state, believed, no_clocks) == leaps.State(trusted=believed)
    # Never against another clock.
    against = leaps.assess(state, believed, lambda: slurm(-DAY))
    assert against.doubt is not None


def test_after_a_reboot_only_a_long_gap_is_questioned() -> None:
    def after(seconds: float, ask: object = no_clocks) -> leaps.State:
        now = reading(seconds, 20, boot_id="b")
        return leaps.assess(BEFORE, now, ask)  # type: ignore[arg-type]

    assert after(3000, not_called).doubt is None
    assert after(12 * 3600).doubt is None
    assert after(12 * 3600, lambda: slurm(-7200)).doubt is not None
    assert after(30 * DAY).doubt is not None
    assert after(30 * DAY, lambda: slurm(0)).doubt is None
    assert after(-3600).doubt is not None
    # A host whose boot is not known is another one each time.
    unknown = reading(30 * DAY, 1000 + 30 * DAY, boot_id="")
    assert leaps.assess(leaps.State(trusted=reading(0, 1000, boot_id="")), unknown, no_clocks).doubt


def test_explanation_and_stored_state() -> None:
    leapt = leaps.assess(BEFORE, reading(30 * DAY + 60, 1060), lambda: slurm(-30 * DAY))
    assert leaps.State.of_json(leapt.to_json()) == leapt
    assert leaps.State.of_json(BEFORE.to_json()) == BEFORE
    for text in ("", "[]", "{}", '{"trusted": {}, "doubt": null}'):
        assert leaps.State.of_json(text) is None
    rest = (
        " Until the clock is trusted, schedules, recovery, deferred submissions, graphs, "
        "alerts and notices are paused. If the clock is wrong, set it (NTP); if it is right, run "
        "`orchestrator tick --trust-clock`."
    )
    shown = f"{NOW.astimezone() + datetime.timedelta(seconds=60):%Y-%m-%d %H:%M:%S}"
    later = f"{(NOW + datetime.timedelta(days=30, seconds=60)).astimezone():%Y-%m-%d %H:%M:%S}"
    assert leaps.explanation(leapt) == (
        f"The clock of login1 jumped forward by 30-00:00:00: it showed {later} when {shown} was "
        f"expected. Slurm's clock shows another time.{rest}"
    )
    off = leaps.assess(BEFORE, reading(30 * DAY, 9, host="login2", boot_id="b"), no_clocks)
    at = f"{(NOW + datetime.timedelta(days=30)).astimezone():%Y-%m-%d %H:%M:%S}"
    assert leaps.explanation(off) == (
        f"The clock of login2 showed {at}, 30-00:00:00 after the last controller pass, on login1 "
        f"at {NOW.astimezone():%Y-%m-%d %H:%M:%S}. Without another jump it is trusted after "
        f"60 minutes.{rest}"
    )
    assert leaps.explanation(BEFORE) == ""
