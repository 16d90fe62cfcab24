"""Stamps of files: when they are looked at again."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.files import stamps


def test_a_write_in_the_tick_of_the_last_one_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a"
    watch = stamps.Watch()

    def looks() -> list[bool]:
        return [watch.may_have_changed(stamps.stamp([path])) for _ in range(4)]

    assert looks() == [True, True, False, False]
    path.write_text("old")
    status = path.stat()
    assert watch.may_have_changed(stamps.stamp([path]))
    path.write_text("new")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert looks() == [True, False, False, False]
