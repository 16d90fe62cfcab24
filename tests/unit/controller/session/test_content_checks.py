"""Checks of stored values by `db check` beyond their type."""

from __future__ import annotations

import datetime

from orchestrator.controller.session import content_checks


def test_the_fields_of_a_log_cursor() -> None:
    check = content_checks.checks(datetime.datetime.now(datetime.UTC))["log_cursors"]
    good = {"attempt": None, "banner": -1, "skipping": False, "fingerprint": ""}
    assert list(check({"path": "/x", "carry": {"reading": good, "matching": {}}})) == []
    assert list(check({"path": "/x", "carry": {"reading": {"attempt": "1", "epoch": 2}}})) == [
        ("carry", "has '1' as 'attempt' of 'reading'"),
        ("carry", "has 2 as 'epoch' of 'reading'"),
    ]
