"""What our scripts say before they end with exit code 78 is what `explain` shows."""

from __future__ import annotations

import re
import tomllib

from orchestrator.rendering import templates


def test_each_message_is_known() -> None:
    causes = tomllib.loads((templates.PACKAGE / "causes.toml").read_text())
    (rule,) = (each for each in causes["rule"] if each["name"] == "script-setup")
    known = re.compile(rule["regex"])
    messages = []
    for path in (templates.PACKAGE.parent / "templates").rglob("*.j2"):
        text = path.read_text().replace("{{ runtime | comment }}", "apptainer")
        text = text.replace('" ~ name ~ "', "X")
        found = re.findall(r"orchestrator_fail 78 (?:\{\{ \()?[\"'](.{8,40})", text)
        messages += [f"orchestrator: {message}" for message in found]
    assert len(messages) > 15
    assert [message for message in messages if not known.match(f"{message} ...")] == []
