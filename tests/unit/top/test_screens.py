"""The help of `top` and the table of keys in its how-to page."""

from __future__ import annotations

import re
from pathlib import Path

from textual import binding

from orchestrator.top import app, screens, widgets

#: textual's names of keys, and those in texts.
NAMES = {"slash": "/", "pageup": "page up", "pagedown": "page down", "question_mark": "?"}
#: Ctrl-Z is a key of the shell; the dialog itself shows `?`.
NOT_IN_HELP = {"ctrl+z", "?"}


def test_the_help_names_all_keys() -> None:
    text = ", ".join(f"{keys}, {meaning}" for keys, meaning in screens.HELP)
    assert bound() - {*re.split("[,;] ", text)} == NOT_IN_HELP


def test_the_howto_page_has_the_keys_of_the_help(checkout: Path) -> None:
    page = (checkout / "docs" / "howto" / "top.md").read_text()
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)[1:]
    keys = {key for row in rows for key in row.replace("`", "").split(", ")}
    assert keys == {key for row, _ in screens.HELP for key in row.split(", ")} | {"?"}


def bound() -> set[str]:
    bindings = [*app.Top.BINDINGS, *widgets.JobTable.BINDINGS]
    keys = [
        key for each in bindings if isinstance(each, binding.Binding) for key in each.key.split(",")
    ]
    return {NAMES.get(key, key) for key in keys}
