"""The prefilter finds each line that a pattern matches."""

from __future__ import annotations

import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import metrics, patterns
from orchestrator.logs import lines, reading
from orchestrator.patterns import prefilter, regexes
from tests import builders

DATA = pathlib.Path(__file__).parents[2] / "data" / "logs"
RECORDED = sorted(DATA.glob("*.log"))
SHIPPED = patterns.load_shipped()
LINES = sorted({line for path in RECORDED for line in path.read_bytes().splitlines()})
BANNER = b"=== orchestrator digits job 7 task 0 attempt 1 on n1 at 2026-11-21T08:00:00+00:00 ==="
BANNERS = lines.banner_of(builders.make_job(name="digits"))


@pytest.fixture(autouse=True)
def needs_hyperscan() -> None:
    pytest.importorskip("hyperscan")


def read_metrics(
    path: pathlib.Path,
    *,
    searched: bool,
    limit_bytes: int = 2**26,
    known: Sequence[patterns.Pattern] = SHIPPED,
) -> list[Any]:
    """Return the metrics of a log and the matcher's last state."""
    matcher = patterns.Matcher(known)
    cursor, has_more, parsed = metrics.LogCursor(path=str(path)), True, []
    with mock.patch.object(lines, "LINE_CAP_BYTES", min(limit_bytes, 16 * 1024)):
        while has_more:
            search = prefilter.search(known, also=[lines.BANNER_START])
            chunk = reading.read(
                cursor,
                banner=BANNERS,
                final=True,
                limit_bytes=limit_bytes,
                search=search if searched else None,
            )
            for line in chunk.lines:
                parsed += matcher.parse_line(line.text, attempt=line.attempt or 0, line=line.number)
            cursor, has_more = chunk.cursor, chunk.more
    return [*map(str, parsed), cursor.line, cursor.attempt]


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_recorded_logs(path: pathlib.Path) -> None:
    assert read_metrics(path, searched=True) == read_metrics(path, searched=False)


PIECES = st.sampled_from(LINES) | st.sampled_from(
    [b"", b"\x1b[31m", b"\x1b]0;", b"\0", b"\r", b"\xff", "é".encode(), b" " * 30, BANNER, b"{'"]
)


def torn(pieces: Sequence[bytes], cuts: Sequence[int], ends: Sequence[bytes]) -> bytes:
    """Put pieces together, some of them cut short, with any of these ends."""
    parts = []
    for index, piece in enumerate(pieces):
        cut = cuts[index % len(cuts)]
        parts.append(piece if cut < 0 else piece[: cut % (len(piece) + 1)])
        parts.append(ends[index % len(ends)])
    return b"".join(parts)


@settings(max_examples=40)
@given(
    data=st.builds(
        torn,
        st.lists(PIECES, max_size=30),
        st.lists(st.integers(-6, 200), min_size=1, max_size=8),
        st.lists(st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r", b"", b"\0"]), min_size=1),
    ),
    limit=st.sampled_from([300, 1000, 2**26]),
)
def test_the_prefilter_does_not_change_the_result(data: bytes, limit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "log")
        path.write_bytes(data)
        plain = read_metrics(path, searched=False, limit_bytes=limit)
        assert read_metrics(path, searched=True, limit_bytes=limit) == plain


def test_every_included_line_kind_has_a_required_text() -> None:
    assert prefilter.search(SHIPPED) is not None
    for pattern in SHIPPED:
        for kind in pattern.lines:
            assert min(map(len, kind.required)) > 1 or kind.required == ("│",), kind.name


@pytest.mark.parametrize(
    ("regex", "text"),
    [
        ("GPU (?P<loss>[0-9]+): b", "GPU "),
        (r"step time: (?P<loss>[0-9.]+) µs\.*", "step time: "),
        ("time [µm]s=(?P<loss>[0-9]+)", "time "),
        ("(?P<loss>[0-9]+) of losses", " of losses"),
        # A repeated character may be absent.
        ("abcd*e", "abc"),
        ("ab{0,3}cd", "cd"),
        (r"loss\.a\d+", "loss.a"),
        # What is in a group or a branch may be absent, or have another case.
        ("(?:train|test) (?P<loss>[0-9]+)(?: of many)?", " "),
        ("one text|another", ""),
        ("(?i)a loss (?P<loss>[0-9]+)", ""),
        ("(a(b)c[)(]d)ef", "ef"),
    ],
)
def test_required_text(regex: str, text: str) -> None:
    assert regexes.required_text(regex) == text


@pytest.mark.parametrize("contains", ["", "contains = 'GPU {integer}:'"])
def test_lines_of_users_patterns_are_found(contains: str) -> None:
    table = f"[x]\n[[x.line]]\nname = 'l'\n{contains}\n"
    known = builders.load_patterns(
        f"{table}regex = 'GPU (?P<n>[0-9]+): .*'\nmetrics = {{ n = '' }}", "x"
    )
    (metric,) = patterns.Matcher(known).metrics_of_line("GPU 12: b")
    assert metric.value == 12
    assert patterns.Matcher(known).metrics_of_line("GPU model") == []
    search = prefilter.search(known)
    assert search is not None
    assert search(b"GPU 12: b\n")
    assert bool(search(b"GPU model\n")) == (not contains)


def test_without_a_required_text_each_line_is_a_candidate() -> None:
    known = builders.load_patterns(
        "[x]\n[[x.line]]\nname = 'l'\nregex = '(?P<n>[0-9]+)'\nmetrics = { n = '' }", "x"
    )
    assert prefilter.search(known) is None


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
def test_context_from_blocks_without_line_ends(head: bytes, tmp_path: pathlib.Path) -> None:
    known = builders.load_patterns(FOLLOWING, "x")
    path = tmp_path / "log"
    path.write_bytes(head + (b"-" * 80 + b"\n") * 7000 + b"speed 5\n")
    metrics = read_metrics(path, searched=True, known=known)
    assert len(metrics) == 3 and "epoch=3" in metrics[0]
    assert metrics == read_metrics(path, searched=False, known=known)


def test_without_hyperscan_each_line_is_a_candidate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import hyperscan

    def old_processor(*_: Any, **__: Any) -> None:
        raise hyperscan.error("error code -7")

    prefilter._search_for.cache_clear()
    monkeypatch.setattr(hyperscan, "Database", old_processor)
    assert prefilter.search(SHIPPED) is None
    prefilter._search_for.cache_clear()
    monkeypatch.setitem(sys.modules, "hyperscan", None)
    assert prefilter.search(SHIPPED) is None
    prefilter._search_for.cache_clear()
