"""CSV files of measurements and their problems."""

from __future__ import annotations

import csv
import io
import math

import hypothesis
import pytest
from hypothesis import strategies as st

from orchestrator import reports


def problems_of(text: str) -> str:
    with pytest.raises(reports.MeasurementFileError) as caught:
        reports.read_csv(text, "f.csv")
    assert caught.value.exit_code == 3
    return str(caught.value)


def test_measurements_and_attributes() -> None:
    figures = reports.read_csv(
        "# from elsewhere\n"
        "GPUs,Images/s,windows,Memory,data wait,Accuracy,step_data_seconds,epoch time,Precision\n"
        "\n"
        '4,400.5,400;401 402,"8; 5",2.5%,0.75,0.02,12.5,bf16\n',
        "f.csv",
    )
    (one,) = figures.measurements
    assert figures.unit == "gpus"
    assert (one.size, one.throughput, one.windows) == (4, 400.5, (400.0, 401.0, 402.0))
    assert one.memory_bytes == (8 * 2**30, 5 * 2**30)
    assert (one.data_wait_share, one.accuracy, one.epoch_seconds) == (0.025, 0.75, 12.5)
    assert (one.name, one.source, one.warm_up) == ("line 4", "file", "")
    assert one.step_seconds == {"data": 0.02}
    assert one.attributes == {"precision": "bf16"}


def test_size_in_nodes() -> None:
    figures = reports.read_csv("nodes,throughput\n2,100\n", "f.csv")
    assert (figures.unit, figures.measurements[0].size) == ("nodes", 2)


def test_all_problems_are_reported() -> None:
    assert problems_of(
        "gpus,throughput,accuracy,windows\n0,1,,\n1,nan,,\n1,5,87,\n1,5,,5;x\n1,5,,,,9\n"
    ) == (
        "f.csv:2: gpus: '0' is not a whole number from 1 to 999999999\n"
        "f.csv:3: throughput: 'nan' is not a number above 0\n"
        "f.csv:4: accuracy: '87' is not a share: write 0.87 or 87%\n"
        "f.csv:5: windows: 'x' is not a number above 0\n"
        "f.csv:6: has 6 cells, and the header 4\n"
        "5 problems; nothing was reported."
    )
    assert problems_of('gpus,throughput\n1,"2,598"\n') == (
        "f.csv:2: throughput: '2,598' is not a number above 0; write it without separators, "
        "and decimals with a point\n"
        "1 problem; nothing was reported."
    )
    assert problems_of("gpus,throughput,windows\n1,100,110;112;111\n") == (
        "f.csv:2: throughput: 100 is outside its windows, 110 to 112: write their median\n"
        "1 problem; nothing was reported."
    )
    assert problems_of("speed,gpus,gpus\n") == (
        "f.csv:1: lacks the column throughput: samples/s over all ranks\n"
        "f.csv:1: has the column gpus 2 times\n"
        "f.csv:1: has no rows below the header\n"
        "3 problems; nothing was reported."
    )
    assert problems_of("") == (
        "f.csv: is empty: the header must name columns, at least gpus,throughput\n"
        "1 problem; nothing was reported."
    )
    assert "has no rows below the header" in problems_of("gpus,throughput\n")
    assert "lacks the column gpus (or nodes)" in problems_of("throughput\n1\n")
    assert problems_of("gpus,throughput\n1,\n,5\n") == (
        "f.csv:2: throughput: is empty\nf.csv:3: gpus: is empty\n2 problems; nothing was reported."
    )


def test_files_of_spreadsheets() -> None:
    (one, other) = reports.read_csv(
        '\ufeff# a; b\n\nGPUs;Throughput;Mode\n1.0;100.5;a\x1b[2J\n2;190;"b\nc"\n', "f.csv"
    ).measurements
    assert (one.size, one.throughput, one.attributes) == (1, 100.5, {"mode": "a\\x1b[2J"})
    assert (other.size, other.attributes) == (2, {"mode": "b\\nc"})
    assert reports.read_csv("gpus\tthroughput\n1\t100\n", "f.tsv").measurements[0].size == 1
    assert problems_of("gpus;throughput\n1;100,5\n") == (
        "f.csv:2: throughput: '100,5' is not a number above 0; write it without separators, and "
        "decimals with a point\n1 problem; nothing was reported."
    )
    assert problems_of(f"gpus,throughput,mode\n1,100,{'x' * 200_000}\n") == (
        "f.csv:2: cannot be read as CSV: field larger than field limit (131072)\n"
        "1 problem; nothing was reported."
    )


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n"), max_size=8)


@hypothesis.settings(max_examples=40)
@hypothesis.given(st.lists(st.lists(CELLS, max_size=5), max_size=5))
def test_any_file_gives_measurements_or_problems(rows: list[list[str]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["gpus", "throughput", "accuracy", "memory", "mode"], *rows])
    try:
        figures = reports.read_csv(text.getvalue(), "f.csv")
    except reports.MeasurementFileError as error:
        assert error.problems
        return
    for measurement in figures.measurements:
        assert measurement.size >= 1 and 0.0 < measurement.throughput < math.inf
    reports.build_report("any", figures.measurements, unit=figures.unit)
