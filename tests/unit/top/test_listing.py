"""Lines of the list at several widths."""

from __future__ import annotations

import pytest

from orchestrator.top import listing

LINE = {
    "job_id": "123456_[0-1999]",
    "name": "resnet50-imagenet-wide-cosine-lr0.1-seed3",
    "state": "RUNNING",
    "elapsed": "1-02:03:04",
    "time_limit": "2-00:00:00",
    "gpus": "64",
    "node_list": "gpu[001-016]",
    "reason": "alert: stalled",
}


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (20, "123456_[0-1999]  resnet50-imagen…  RUNNING"),
        (
            78,
            "123456_[0-1999]  resnet50-imagen…  RUNNING  1-02:03:04    64  alert: stalled  ",
        ),
        (
            130,
            "123456_[0-1999]  resnet50-imagenet-wide-cosi…  RUNNING  1-02:03:04  2-00:00:00"
            "    64  gpu[001-016]  alert: stalled                ",
        ),
    ],
)
def test_columns_are_left_out_in_order(width: int, expected: str) -> None:
    chosen = listing.widths([LINE], width)
    text = listing.text_of(LINE, chosen)
    assert text == expected
    assert width == 20 or len(text) == width


def test_empty_columns_go_first() -> None:
    line = {**LINE, "time_limit": "", "gpus": "", "reason": ""}
    names = [column.name for column in listing.widths([line], 72)]
    assert names == ["job_id", "name", "state", "elapsed", "node_list"]
    # If all fits, they stay.
    assert len(listing.widths([line], 200)) == len(listing.COLUMNS)


def test_wide_characters_are_two_cells() -> None:
    line = {**LINE, "name": "学習" * 20}
    chosen = listing.widths([line], 60)
    heading = listing.heading(listing.Filter(), chosen)
    assert heading.startswith("JOB ▼            NAME              STATE")
    assert "学習学習学習学" in listing.text_of(line, chosen)
