"""Conclusions, warnings and notes of a report."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from orchestrator import reports
from orchestrator.reports import conclusions, documents, figures, tables

ReportOf = Callable[..., reports.Report]


def measurement(size: int, throughput: float, **fields: object) -> reports.Measurement:
    return reports.Measurement(size=size, throughput=throughput, **fields)  # type: ignore[arg-type]


def cheapest(report: reports.Report, epochs: int, within_seconds: float) -> str:
    targets = reports.Targets(epochs=epochs, within_seconds=within_seconds)
    (sentence,) = conclusions.cheapest(report, targets)
    return sentence


def test_warns_of_a_noisy_node(report_of: ReportOf) -> None:
    assert report_of("strong_noisy_node").warnings == (
        "line 13 on n[3-4] is 30.4 % slower than the median of 8 GPUs (left out): check its node",
    )


def test_warns_of_a_noisy_node_that_is_not_left_out() -> None:
    # One size is too little to estimate the usual deviation and exclude a run.
    report = reports.build_report(
        "", [measurement(2, 100.0), measurement(2, 100.2), measurement(2, 80.0, name="slow")]
    )
    assert report.warnings == ("slow is 20.0 % slower than the median of 2 GPUs: check its node",)
    assert report.curves[0].rows[0].left_out == ()


def test_warns_of_different_numbers_of_nodes() -> None:
    report = reports.build_report(
        "", [measurement(4, 100.0, nodes=1), measurement(4, 90.0, nodes=2)]
    )
    assert (
        "runs with 4 GPUs used 1 node and 2 nodes; they are combined into one point"
        in report.warnings
    )


def test_notes_distinguish_measured_from_parsed() -> None:
    report = reports.build_report(
        "",
        [
            measurement(1, 100.0, source="jsonl", warm_up="first window of each attempt"),
            measurement(2, 190.0, source="log:olivia", warm_up="first epoch"),
            measurement(4, 350.0, source="jsonl", warm_up="first window of each attempt"),
        ],
        unit="ranks",
    )
    assert report.notes == (
        "3 runs, 3 points of 1 repeat each, 0 windows; 95 % confidence intervals",
        "speedup is relative to 1 rank, 100.0 samples/s",
        "left out as warm-up: first window of each attempt; first epoch",
        "throughput measured in the trainer (metrics.jsonl): 2 runs",
        "throughput parsed from the log (log:olivia), not measured: 1 run",
    )
    assert [row["source"] for row in tables.texts(report, ["source"])] == [
        "measured",
        "parsed (olivia)",
        "measured",
    ]


def test_gpu_hours_only_for_gpus() -> None:
    gpus = reports.build_report("", [measurement(4, 100.0, epoch_seconds=900.0)]).curves[0].rows[0]
    ranks = reports.build_report("", [measurement(4, 100.0, epoch_seconds=900.0)], unit="ranks")
    assert gpus.gpu_hours_per_epoch == 1.0
    assert ranks.curves[0].rows[0].gpu_hours_per_epoch is None


LAW = [
    measurement(gpus, 100.0 * gpus / (1 + 0.05 * (gpus - 1)), epoch_seconds=None)
    for gpus in (1, 2, 4)
]


def test_gpu_hours_count_allocated_gpus() -> None:
    runs = [
        measurement(1, 100.0, epoch_seconds=3600.0, gpus_allocated=4),
        measurement(4, 200.0, epoch_seconds=1800.0, gpus_allocated=4),
    ]
    report = reports.build_report("", runs)
    assert [row.gpu_hours_per_epoch for row in report.curves[0].rows] == [4.0, 2.0]
    assert report.warnings[1] == (
        "not all allocated GPUs were used: 1 of 4; speedup and efficiency count those used, "
        "GPU-hours those allocated"
    )
    assert cheapest(report, 1, 4000.0) == (
        "1 epoch within 1:06:40: cheapest with 4 GPUs: 0:30:00 and 2.000 GPU-hours of training"
    )


@pytest.mark.parametrize(
    ("efficiency", "answer"),
    [
        (0.9, "Efficiency stays above 90.0 % up to 3 GPUs (by Amdahl's law)"),
        (
            0.8,
            "Efficiency stays above 80.0 % up to 5 GPUs (by Amdahl's law, extrapolated beyond the "
            "4 measured)",
        ),
        (
            0.5,
            "Efficiency stays above 50.0 % up to at least 8 GPUs (by Amdahl's law, which is not "
            "extrapolated beyond twice the largest measured size)",
        ),
    ],
)
def test_largest_efficient_size(efficiency: float, answer: str) -> None:
    curve = reports.build_report("", LAW).curves[0]
    assert conclusions.most_gpus(curve, efficiency) == answer


def test_measurements_that_contradict_the_fit() -> None:
    power = [measurement(size, 100.0 * size**0.9) for size in (1, 2, 4, 8, 16, 32)]
    curve = reports.build_report("", power).curves[0]
    assert conclusions.most_gpus(curve, 0.8) == (
        "Measured efficiency is at least 80.0 % up to 8 GPUs, but not at 16 GPUs. The Universal "
        "Scalability Law is not used: its limit is 21 GPUs, but 75.8 % was measured at 16"
    )


def test_nothing_is_concluded_from_an_invalid_baseline() -> None:
    # The published figures of the guide for Olivia: one GPU with a batch of 32, the others of 256.
    runs = [measurement(1, 2598.0), measurement(4, 36927.0), measurement(8, 62450.0)]
    (curve,) = reports.build_report("", runs).curves
    law, _ = conclusions.fit_lines(curve)
    assert law.endswith(
        "; rejected, because it does not describe the runs (RMS deviation 97.4 %, more than 10 %)"
    )
    assert conclusions.most_gpus(curve, 0.8) == (
        "No conclusion about the efficiency: the runs with 1 GPU are not a valid baseline"
    )


#: Communication makes eight GPUs slower than four, which Amdahl's law cannot describe.
COLLAPSE = {1: 100.0, 2: 190.0, 4: 330.0, 8: 200.0}


def collapse(deviation: float, repeats: int = 3) -> reports.Report:
    """Return a study of three sizes, so that only Amdahl's law is fitted."""
    noise = [1.0 + deviation * index for index in range(-(repeats // 2), repeats // 2 + 1)]
    return reports.build_report(
        "",
        [
            measurement(size, throughput * factor, epoch_seconds=36_000 / (throughput * factor))
            for size, throughput in COLLAPSE.items()
            if size > 1
            for factor in noise
        ],
    )


def test_nothing_is_concluded_from_a_law_that_does_not_fit() -> None:
    report = collapse(0.01)
    (curve,) = report.curves
    law, _ = conclusions.fit_lines(curve)
    assert re.search(
        r"; rejected, because it does not describe the runs \(RMS deviation \d\d\.\d %; "
        r"F test for lack of fit: p = [\d.]+e-\d+\)$",
        law,
    )
    most = conclusions.most_gpus(curve, 0.8)
    assert most is not None and most.startswith(
        "Measured efficiency is at least 80.0 % up to 4 GPUs, but not at 8 GPUs. Amdahl's law is "
        "not used: RMS deviation "
    )
    most = conclusions.most_gpus(curve, 0.2)
    assert most is not None and most.startswith(
        "Measured efficiency is at least 20.0 % up to 8 GPUs, the largest size. Amdahl's law is "
    )
    assert cheapest(report, 1, 10.0) == (
        "1 epoch within 10.00 s: no measured size is fast enough, and rejected fits are not used"
    )
    # JSON, and the plot, which does not extrapolate.
    (item,) = documents.items(report, reports.Targets())
    fit = item["amdahl"]
    assert isinstance(fit, dict) and fit["is_rejected"] is True and fit["lack_of_fit_p"] < 1e-6
    assert item["baseline_is_valid"] is True
    (figure,) = (each for each in figures.figures(report) if each.name == "throughput")
    assert [(series.label, series.kind) for series in figure.series] == [
        ("measured", "points"),
        ("Amdahl (rejected)", "line"),
    ]


def test_a_large_deviation_is_enough_without_repeats() -> None:
    (curve,) = collapse(0.0, repeats=1).curves
    law, _ = conclusions.fit_lines(curve)
    assert "F test" not in law and law.endswith(", more than 10 %)")


def test_a_significant_but_small_deviation_does_not_matter() -> None:
    runs = [
        measurement(size, 100.0 * size**0.97 * factor)
        for size in (1, 2, 4, 8, 16)
        for factor in (0.9999, 1.0, 1.0001)
    ]
    (curve,) = reports.build_report("", runs).curves
    fit = curve.study.amdahl
    assert fit is not None and fit.lack_of_fit is not None and fit.lack_of_fit < 1e-6
    assert 0.005 < fit.deviation < 0.05 and fit.rejected == ""


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [
        # 36,000 samples: 360 s on one GPU, 189 s on two, 103.5 s on four.
        (4000, "10 epochs within 1:06:40: cheapest with 1 GPU: 1:00:00 and 1.000 GPU-hours of "),
        (2000, "10 epochs within 0:33:20: cheapest with 2 GPUs: 0:31:30 and 1.050 GPU-hours of "),
    ],
)
def test_cheapest_size(seconds: float, answer: str) -> None:
    report = reports.build_report("", LAW, samples_per_epoch=36_000)
    assert cheapest(report, 10, seconds) == answer + "training"


def test_cheapest_size_by_fit() -> None:
    report = reports.build_report("", LAW, samples_per_epoch=36_000)
    assert cheapest(report, 10, 900.0) == (
        "10 epochs within 900.0 s: cheapest with 5 GPUs: 864.0 s and 1.200 GPU-hours of "
        "training (by Amdahl's law, not measured)"
    )
    assert cheapest(report, 10, 300.0) == (
        "10 epochs within 300.0 s: no size up to twice the largest measured is fast enough"
    )
    of_one_size = reports.build_report("", [measurement(2, 100.0, epoch_seconds=60.0)])
    assert cheapest(of_one_size, 1, 30.0) == (
        "1 epoch within 30.00 s: no measured size is fast enough, and one size is too few for a fit"
    )
    assert cheapest(reports.build_report("", LAW), 1, 1.0) == (
        "1 epoch within 1.000 s: the time per epoch is unknown; set --samples-per-epoch"
    )


def test_cheapest_size_may_take_too_long() -> None:
    runs = [measurement(1, value, epoch_seconds=100.0) for value in (99.0, 101.0)]
    line = cheapest(reports.build_report("", runs), 1, 105.0)
    assert line.endswith("; up to 113.5 s by its confidence interval")


def test_fit_at_its_bound_is_one_sided() -> None:
    runs = [
        measurement(1, 100.0),
        measurement(1, 101.0),
        measurement(2, 202.0),
        measurement(2, 203.0),
        measurement(4, 408.0),
    ]
    amdahl, _ = conclusions.fit_lines(reports.build_report("", runs).curves[0])
    assert "serial fraction 0 (at its bound; one-sided 95 % CI: < 0.004618)" in amdahl


def test_documents_escape_markup(report_of: ReportOf) -> None:
    runs = [
        measurement(1, 100.0, attributes={"path": "a|b_$c%"}),
        measurement(2, 190.0, attributes={"path": "&"}),
    ]
    report = reports.build_report("x|y", runs)
    names, targets = ["curve", "throughput"], reports.Targets()
    assert documents.render("md", report, targets, names).splitlines()[:5] == [
        "# x\\|y",
        "",
        "| curve | throughput |",
        "|---|---|",
        "| path=a\\|b\\_$c% | 100.0 |",
    ]
    assert r"path=a|b\_\$c\% & 100.0 \\" in documents.render("tex", report, targets, names)


def test_fastest_curve() -> None:
    text = (
        "gpus,throughput,mode\n1,100,-\n2,150,dp\n2,152,dp\n2,151,dp\n2,190,ddp\n2,191,ddp\n"
        "2,188,ddp\n4,200,dp\n4,370,ddp\n"
    )
    report = reports.build_report("", reports.read_csv(text, "f.csv").measurements)
    assert dict(documents.sentences(report, reports.Targets()))["Fastest"] == [
        "2 GPUs: mode=ddp is fastest; throughput relative to it: mode=dp 79.6 % (78.3 to 81.0 %)",
        "4 GPUs: mode=ddp is fastest; throughput relative to it: mode=dp 54.1 %",
    ]
    text = "gpus,throughput,num_workers\n" + "".join(
        f"4,{100 + workers + run},{workers}\n" for workers in range(8) for run in (0, 3)
    )
    report = reports.build_report("", reports.read_csv(text, "f.csv").measurements)
    (line,) = dict(documents.sentences(report, reports.Targets()))["Fastest"]
    assert line.startswith(
        "4 GPUs: num_workers=7 is fastest; throughput relative to it: num_workers=6 99.1 % ("
    )
    assert line.count("no evidence") == 5 and line.endswith(", and 2 slower")
