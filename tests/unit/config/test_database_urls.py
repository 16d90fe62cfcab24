"""A password in a database URL is never shown."""

from __future__ import annotations

import string
import urllib.parse

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import config, errors
from orchestrator.config import database_urls
from orchestrator.controller.schedules import install
from orchestrator.controller.session import stores

MARK = "\0"
PLACES = (
    f"postgresql://ada:{MARK}@db.lab/jobs",
    f"postgresql+psycopg://ada:{MARK}@db.lab:5432/jobs?sslmode=require",
    f"postgresql://:{MARK}@db.lab,db2.lab:5433/jobs",
    f"postgresql://db.lab/jobs?password={MARK}",
    f"postgresql://ada@db.lab/jobs?sslmode=require&PASSWORD={MARK}&application_name=x",
    f"postgresql://ada@db.lab/jobs?pass%77ord={MARK}",
    f"postgresql://ada@db.lab/jobs?sslpassword={MARK}&x",
    f"postgresql://ada@db.lab/jobs?{MARK}",
    f"postgresql://ada:{MARK}@db.lab/jobs?password={MARK}",
    f"host=db.lab password={MARK}",
)
PASSWORDS = st.text(st.sampled_from(string.printable[:95] + "éø€"), min_size=4, max_size=20)


def shown_everywhere(url: str) -> list[str]:
    """Return all texts that contain the URL."""
    shown = [config.without_password(url)]
    try:
        shown.append(stores.Store(url).shown_name)
    except errors.DatabaseError as exc:
        shown.append(str(exc))
    try:
        install.refuse_password({"ORCHESTRATOR_DATABASE": url})
    except errors.OrchestratorError as exc:
        shown.append(str(exc))
    return shown


@hypothesis.settings(max_examples=200, deadline=None)
@hypothesis.given(
    password=PASSWORDS,
    folder=st.sampled_from(PLACES),
    encode=st.sampled_from((str, urllib.parse.quote_plus, lambda text: text.replace("%", "%25"))),
)
def test_no_part_of_a_password_is_shown(password: str, folder: str, encode: object) -> None:
    written = encode(password)  # type: ignore[operator]
    # The name of a harmless option is shown.
    hypothesis.assume(password.partition("=")[0].lower() not in database_urls.HARMLESS_OPTIONS)
    url = folder.replace(MARK, written)
    # The text for any password.
    rest = " ".join(
        text for other in ("", "#" * 8) for text in shown_everywhere(folder.replace(MARK, other))
    )
    for shown in shown_everywhere(url):
        for text in (password, written):
            for start in range(len(text) - 3):
                part = text[start : start + 4]
                assert part not in shown or part in rest or part in folder
    assert config.has_password(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ada:a@b@db.lab/jobs", "postgresql://ada:***@db.lab/jobs"),
        ("postgresql://ada:a/b?c@db.lab/jobs", "postgresql://ada***"),
        ("postgresql://ada@db/x?sslmode=require&pass%77ord=y", None),
        ("postgresql://db/x?PASSWORD=y", "postgresql://db/x?***"),
        ("postgresql://ada:secret/jobs", "postgresql://ada:***"),
        ("postgresql://db/x?application_name=a@b", "postgresql://db***"),
    ],
)
def test_masked_parts(url: str, shown: str | None) -> None:
    shown = shown or "postgresql://ada@db/x?sslmode=require&***"
    assert config.without_password(url) == shown


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////home/a:b@c/o.db",
        "postgresql://ada@db.lab:5432/jobs?sslmode=verify-full&options=-csearch_path%3Dada",
        "postgresql://one.lab:5432,two.lab:5433/jobs?target_session_attrs=read-write",
        "postgresql:///jobs?host=/run/postgresql&CONNECT_TIMEOUT=3",
        "postgresql://[::1]:5432/jobs",
        "",
    ],
)
def test_url_without_password_is_shown_whole(url: str) -> None:
    assert config.without_password(url) == url and not config.has_password(url)
