"""Which of a client's files are trusted here."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.config import trust
from orchestrator.controller.remote import arrival


def test_trust_does_not_follow_links_out_of_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = tmp_path / "tree", tmp_path / "other.toml"
    (root / ".git").mkdir(parents=True)
    (root / "blocks").mkdir()
    other.write_text('templates_dir = "blocks"\n')
    monkeypatch.chdir(root)
    environ = {"XDG_DATA_HOME": str(tmp_path / "data"), "HOME": str(tmp_path)}
    project, template = root / "orchestrator.toml", root / "blocks" / "a.j2"

    def is_trusted() -> bool:
        with arrival._trusted(root, environ):
            return bool(trust.digests(environ, project))

    project.symlink_to(other)
    assert not is_trusted()
    project.unlink()
    project.write_text(other.read_text())
    template.symlink_to(other)
    assert not is_trusted()
    template.unlink()
    template.write_text("x")
    assert is_trusted()
    assert not trust.digests(environ, project)
