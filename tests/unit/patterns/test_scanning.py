"""Lines found by a search over bytes: the same metrics as by a look at each line."""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import logs, patterns
from orchestrator.patterns import needles, scanning

DATA = pathlib.Path(__file__).parents[2] / "data" / "logs"
RECORDED = sorted(DATA.glob("*.log"))
SHIPPED = patterns.load_shipped()
SCANNER = patterns.Scanner(SHIPPED, also=[logs.BANNER_START])
LINES = sorted({line for path in RECORDED for line in path.read_bytes().splitlines()})
BANNER = b"=== orchestrator digits job 7 task 0 attempt 1 on n1 at 2026-11-21T08:00:00+00:00 ==="
BANNERS = logs.banner_pattern(job_id="7", task=0)


@pytest.fixture(autouse=True)
def needs_hyperscan() -> None:
    pytest.importorskip("hyperscan")


def found(
    path: pathlib.Path,
    *,
    searched: bool,
    limit_bytes: int = 2**26,
    scanner: patterns.Scanner = SCANNER,
    known: Sequence[patterns.Pattern] = SHIPPED,
) -> list[Any]:
    """Return the metrics of a log and the matcher's last state."""
    matcher = patterns.Matcher(known)
    position, more, metrics = logs.Position(path=str(path)), True, []
    while more:
        search = scanner.search(generic=matcher.generic, followed=matcher.followed)
        chunk = logs.read(
            position,
            banner=BANNERS,
            final=True,
            limit_bytes=limit_bytes,
            line_cap_bytes=min(limit_bytes, 16 * 1024),
            search=search if searched else None,
        )
        for line in chunk.lines:
            metrics += matcher.match(
                line.text, attempt=line.attempt or 0, line=line.number, marks=line.marks
            )
        position, more = chunk.position, chunk.more
    return [*map(str, metrics), position.line, position.attempt]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_logs(path: pathlib.Path) -> None:
    assert found(path, searched=True) == found(path, searched=False)


PIECES = st.sampled_from(LINES) | st.sampled_from(
    [b"", b"\x1b[31m", b"\x1b]0;", b"\0", b"\r", b"\xff", "é".encode(), b" " * 30, BANNER, b"{'"]
)


def torn(pieces: Sequence[bytes], cuts: Sequence[int], ends: Sequence[bytes]) -> bytes:
    """Put pieces together, some of them cut short, with any of these ends."""
    parts = []
    for place, piece in enumerate(pieces):
        cut = cuts[place % len(cuts)]
        parts.append(piece if cut < 0 else piece[: cut % (len(piece) + 1)])
        parts.append(ends[place % len(ends)])
    return b"".join(parts)


@settings(deadline=None, max_examples=80)
@given(
    data=st.builds(
        torn,
        st.lists(PIECES, max_size=30),
        st.lists(st.integers(-6, 200), min_size=1, max_size=8),
        st.lists(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r", b"", b"\0"]), min_size=1),
    ),
    limit=st.sampled_from([300, 1000, 2**26]),
)
def test_any_text_gives_the_same(data: bytes, limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "log")
        path.write_bytes(data)
        plain = found(path, searched=False, limit_bytes=limit)
        assert found(path, searched=True, limit_bytes=limit) == plain


def test_every_shipped_kind_of_line_has_needles() -> None:
    assert SCANNER.usable
    for _, pattern, kind in scanning.numbered(SHIPPED):
        for needle in needles.needles(kind):
            assert len(needle.text) > 1 or needle.following, (pattern.name, kind.name)


@pytest.mark.parametrize(
    ("regex", "contains", "there", "not_there"),
    [
        ("GPU (?P<loss>[0-9]+): b", "GPU ", b"GPU 12: b", b"GPU model"),
        # A longer text than the one that is named, and what begins behind it.
        ("a loss is (?P<loss>[-+]?[0-9]+|nan)", "loss", b"a loss is -", b"a loss is x"),
        # What stands in one of two, or may be missing, need not be there.
        ("(?:train|test) (?P<loss>[0-9]+)(?: of many)?", "t", b"test", b"of many"),
        # Where case does not matter, the text that is named does.
        ("(?i)a loss (?P<loss>[0-9]+)", "LOSS", b"LOSS", b"a loss 1"),
    ],
)
def test_needles(regex: str, contains: str, there: bytes, not_there: bytes) -> None:
    head = f"[x]\n[[x.line]]\nname = 'l'\ncontains = '{contains}'\n"
    (pattern,) = patterns.load(f"{head}regex = '{regex}'\nmetrics = {{ loss = '' }}", "x")
    (needle,) = needles.needles(pattern.lines[0])
    assert re.search(needle.expression, there)
    assert not re.search(needle.expression, not_there)


@pytest.mark.parametrize(
    ("regex", "line"),
    [
        ("step time: (?P<loss>[0-9.]+) µs.*", "step time: 12 µs now"),
        ("time [µm]s=(?P<loss>[0-9]+)", "time µs=5"),
        ("losses (?P<loss>[0-9]+)(?P<loss_unit> ms)? now", "losses 5 ms now"),
        ("losses (?P<epoch>[0-9]+, )*(?P<loss>[0-9]+) end", "losses 1, 2, 3 end"),
        ("losses (?P<epoch>(?:ab)+)?c(?P<loss>[0-9])", "losses ababc5"),
        ("losses (?:)(?P<loss>[0-9])", "losses 5"),
    ],
)
def test_needles_of_any_pattern_are_found(regex: str, line: str) -> None:
    head = f"[x]\n[[x.line]]\nname = 'l'\ncontains = '{line[:4]}'\n"
    known = patterns.load(f"{head}regex = '{regex}'\nmetrics = {{ loss = '' }}", "x")
    assert patterns.Matcher(known).match(line)
    assert [mark for _, mark in patterns.Scanner(known).search()(f"{line}\n".encode())]


FOLLOWING = """
[x]
[[x.line]]
name = "epoch"
contains = "Epoch "
regex = 'Epoch (?P<epoch>[0-9]+) begins'
keep = { epoch = "always" }
[[x.line]]
name = "speed"
contains = "speed "
regex = 'speed (?P<throughput>[0-9]+)'
takes = ["epoch"]
after = ["epoch"]
metrics = { throughput = "images/s" }
"""


@pytest.mark.parametrize(
    "head",
    [
        b"x" * 300_000 + b"\nEpoch 3 begins\n",
        b"Epoch 3 begins" + 9000 * (b"\r" + b"=" * 30) + b"\n",
    ],
    ids=["behind a long line", "in a bar"],
)
def test_what_stands_in_blocks_without_line_ends_holds_for_later_ones(
    head: bytes, tmp_path: pathlib.Path
) -> None:
    known = patterns.load(FOLLOWING, "x")
    path = tmp_path / "log"
    path.write_bytes(head + (b"-" * 80 + b"\n") * 7000 + b"speed 5\n")
    scanner = patterns.Scanner(known)
    metrics = found(path, searched=True, scanner=scanner, known=known)
    assert len(metrics) == 3 and "epoch=3" in metrics[0]
    assert metrics == found(path, searched=False, known=known)


def test_where_hyperscan_does_not_work_each_line_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import hyperscan

    def old_processor(*_: Any, **__: Any) -> None:
        raise hyperscan.error("error code -7")

    monkeypatch.setattr(hyperscan, "Database", old_processor)
    assert not patterns.Scanner(SHIPPED).usable
    monkeypatch.setitem(sys.modules, "hyperscan", None)
    assert not patterns.Scanner(SHIPPED).usable
