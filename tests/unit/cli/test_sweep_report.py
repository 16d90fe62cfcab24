"""`sweep report --from` and its errors; no database is opened."""

from __future__ import annotations

from pathlib import Path

import pytest
from click import testing

from orchestrator import cli, errors, reports
from orchestrator.cli import reports as report_cli
from orchestrator.controller.reports import baselines


def run(*words: str, text: str | None = None) -> testing.Result:
    return testing.CliRunner().invoke(
        cli.cli, ["sweep", "report", *words], prog_name="orchestrator", input=text
    )


TWO = "gpus,throughput\n1,100\n2,190\n"


def test_from_stdin() -> None:
    done = run("--from", "-", "--columns", "gpus,throughput,efficiency", text=TWO)
    assert (done.exit_code, done.stdout) == (
        0,
        "gpus\tthroughput\tthroughput_low\tthroughput_high\tefficiency\tefficiency_low"
        "\tefficiency_high\n1\t100.0\t\t\t1.0\t\t\n2\t190.0\t\t\t0.95\t\t\n",
    )
    assert done.stderr == (
        "Warnings: no size was repeated: confidence intervals, if any, cover only the windows of "
        "one run\n"
        "Fits: Amdahl's law: 100.0 samples/s on 1 GPU; serial fraction 0.05263; no confidence "
        "intervals, because there are as many parameters as runs\n"
        "Fits: Experimentally determined serial fraction (Karp-Flatt metric): 0.05263 at 2 GPUs\n"
        "Fits: Efficiency stays above 80.0 % up to at least 4 GPUs (by Amdahl's law, which is not "
        "extrapolated beyond twice the largest measured size)\n"
        "Method: 2 runs, 2 points of 1 repeat each, 0 windows; 95 % confidence intervals\n"
        "Method: speedup is relative to 1 GPU, 100.0 samples/s\n"
        "Method: left out as warm-up: unknown\n"
        "Method: throughput as given in the file, not measured: 2 runs\n"
    )


def test_markdown_and_latex_are_whole() -> None:
    done = run("--from", "-", "--format", "markdown", "--title", "Two", text=TWO)
    assert (done.stdout.splitlines()[0], done.stderr) == ("# Two", "")
    done = run("--from", "-", "--format", "latex", "--columns", "size,speedup", text=TWO)
    assert done.stdout.endswith(
        "\\begin{tabular}{rr}\n\\hline\ngpus & speedup \\\\\n\\hline\n"
        "1 & 1.000 \\\\\n2 & 1.900 \\\\\n\\hline\n\\end{tabular}\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "specify a sweep, jobs, or a file with --from"),
        (["x", "--from", "-"], "specify a sweep, jobs, or a file with --from"),
        (
            ["x", "--against", "y", "--format", "json"],
            "--against requires --format table. For another format use `orchestrator baseline "
            "compare --sweep SWEEP --against NAME --format FORMAT`",
        ),
        (
            ["--from", "-", "--epochs", "3"],
            "--epochs requires --within, and --within requires --epochs",
        ),
        (
            ["--from", "-", "--epochs", "3", "--within", "soon"],
            "'--within': 'soon' is not a time limit: write 90 (minutes) or 4:00:00",
        ),
        (
            ["--from", "-", "--columns", "size,speed"],
            "'--columns': there is no column 'speed'; columns are ",
        ),
        (["--from", "-", "--efficiency", "0"], "Invalid value for '--efficiency'"),
    ],
)
def test_invalid_usage(words: list[str], message: str) -> None:
    done = run(*words, text=TWO)
    assert done.exit_code == 2
    assert message in done.stderr


def test_an_invalid_file(tmp_path: Path) -> None:
    file = tmp_path / "f.csv"
    file.write_text("gpus,throughput\n1,fast\n")
    done = run("--from", str(file))
    assert isinstance(done.exception, reports.MeasurementFileError)
    assert str(done.exception) == (
        f"{file}:2: throughput: 'fast' is not a number above 0\n1 problem; nothing was reported."
    )


def test_files_without_plots(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    done = run("--from", "-", "--to", str(folder), "--no-plots", "--json", text=TWO)
    names = ("report.md", "report.tex", "report.csv", "report.json", "report.html")
    assert (done.exit_code, done.stderr) == (0, f"Wrote to {folder}: {', '.join(names)}\n")
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_a_folder_that_cannot_be_created(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("--from", "-", "--to", str(tmp_path / "file" / "x"), "--no-plots", text=TWO)
    assert str(done.exception) == (
        f"{tmp_path}/file/x cannot be written: Not a directory; name another folder"
    )


def test_a_size_whose_jobs_all_failed_is_worse(capsys: pytest.CaptureFixture[str]) -> None:
    before = [reports.Measurement(size=size, throughput=100.0 * size) for size in (1, 1, 8, 8)]
    kept = reports.MeasurementSet(unit="gpus", measurements=tuple(before))

    def message(*left_out: str) -> str:
        study = reports.MeasurementSet(
            title="",
            source="",
            unit="gpus",
            measurements=tuple(before[:2]),
            left_out=left_out,
        )
        compared = baselines.compare(study, kept)
        report_cli.print_comparison(compared, "monday", study, "tsv")
        return capsys.readouterr().err

    # Fewer sizes were requested, so nothing is reported as missing.
    assert message() == (
        "not compared, because there are no such runs now: 8 GPUs\n"
        "These runs show nothing worse than monday.\n"
    )
    with pytest.raises(errors.OrchestratorError) as caught:
        message("left out (FAILED): 5_0, 5_1")
    assert str(caught.value) == (
        "jobs were left out, and these sizes of monday have no runs: 8 GPUs"
    )
