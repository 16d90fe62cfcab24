"""Notification channels: valid configurations, and secrets that are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator import config, errors

GOOD = """
[notices.mail]
kind = "email"
host = "smtp.lab"
user = "o"
password_file = "~/.config/orchestrator/mail.password"
sender = "o@lab"
to = ["a@lab"]

[notices.chat]
kind = "webhook"
form = "slack"
url = "https://hooks.slack.com/services/T0/B0/secret"
on = ["end", "regression"]
"""
BAD = """
[notices.mail]
kind = "email"
host = "smtp.lab"
user = "o"
security = "none"
sender = "o@lab"
to = ["a lab"]
url = "https://x/y"

[notices.chat]
kind = "webhook"
url = "ftp://hooks.slack.com/secret"
on = ["failur"]

[notices.pager]
kind = "command"
"""


def load(folder: Path, text: str, file: str = ".config/orchestrator/config.toml") -> object:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return config.load({"HOME": str(folder)}, folder)


def test_notifications_of_a_channel(tmp_path: Path) -> None:
    result = load(tmp_path, GOOD)
    assert isinstance(result, config.Configuration)
    mail, chat = result.notices["mail"], result.notices["chat"]
    assert mail.receiver == "a@lab through smtp.lab:587"
    assert chat.receiver == "slack at https://hooks.slack.com/***"
    assert [kind for kind in ("end", "failure", "stall", "verdict") if mail.wants(kind)] == [
        "failure",
        "stall",
    ]
    # `ended` includes failures; only bad verdicts were requested.
    assert [kind for kind in ("end", "failure", "stall", "verdict") if chat.wants(kind)] == [
        "end",
        "failure",
    ]
    shown = {
        origin.key: origin.value for origin in result.origins if origin.key.startswith("notices.")
    }
    assert shown["notices.chat.url"] == "https://hooks.slack.com/***"
    assert "secret" not in str(shown)


def test_everything_that_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        load(tmp_path, BAD)
    message = [
        f"{problem.line}: {problem.key}: {problem.message}" for problem in caught.value.problems
    ]
    assert message == [
        "2: notices.mail: needs user and password_file, or neither",
        "6: notices.mail.security: would send the password unencrypted: use starttls or tls",
        '8: notices.mail.to[0]: must be an address (got "a lab")',
        '9: notices.mail.url: belongs to kind = "webhook"',
        "13: notices.chat.url: must be a URL that begins with https:// or http://",
        '14: notices.chat.on[0]: unknown kind "failur". Did you mean "failure"?',
        '16: notices.pager: needs command, a list: ["/path/of/program", "argument"]',
    ]
    assert "secret" not in str(caught.value)


def test_project_file_sends_no_notices(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        load(tmp_path, GOOD, "orchestrator.toml")
    assert [f"{problem.key}: {problem.message}" for problem in caught.value.problems] == [
        "notices.mail: not allowed in a project's file",
        "notices.chat: not allowed in a project's file",
    ]
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "line",
    [
        'databse = "postgresql://u:secret@host/db"',
        'database = "postgresql://u:secret@host/db',
        'notices.chat = {kind = "webhook", to = "x", url = "https://u:secret@host/x"}',
        '[notices.chat]\nkind = "webhook"\nurls = "https://host/secret"',
    ],
)
def test_a_line_with_a_url_is_shown_in_no_message(tmp_path: Path, line: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        load(tmp_path, f"{line}\n")
    assert "secret" not in str(caught.value)
