"""Batch files: directives, rejected files, and exit records."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from orchestrator import errors, jobs, specs
from orchestrator.config import profiles
from orchestrator.controller.submission import sbatch_call
from orchestrator.rendering import batch_file, batch_options, templates
from tests.flow.scripts.machine import Machine, wait_for


def _options(*lines: str) -> list[tuple[str, str | None]]:
    text = "\n".join(["#!/bin/bash", *lines, "true", "#SBATCH --time=late", ""])
    return [(option.name, option.value) for option in batch_options.read(text, "f")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH --job-name=x", [("job-name", "x")]),
        ("#SBATCH --job-name 'x y' # why", [("job-name", "x y")]),
        ("#SBATCH -J x -N2 -n 4", [("job-name", "x"), ("nodes", "2"), ("ntasks", "4")]),
        ("#SBATCH -HO -t5", [("hold", None), ("overcommit", None), ("time", "5")]),
        ("#SBATCH --exclusive --time 5", [("exclusive", None), ("time", "5")]),
        ("#SBATCH --exclusive=user", [("exclusive", "user")]),
        ("#SBATCH --account=a --part=b", [("account", "a"), ("partition", "b")]),
        ("#SBATCH --time-min=5 --mem=1G", [("time-min", "5"), ("mem", "1G")]),
        ("##SBATCH --foo", []),
        ("# a word\n\n#SBATCH --new-thing 7", [("new-thing", "7")]),
    ],
)
def test_options_are_read_as_sbatch_reads_them(
    line: str, expected: list[tuple[str, str | None]]
) -> None:
    assert _options(*line.split("\n")) == expected


def test_refused_options_are_reported_with_their_lines() -> None:
    text = (
        "#!/bin/bash\n#SBATCH -W -a 1-3\n#SBATCH --clus=b\n#PBS -q x\n#SBATCH hetjob\n"
        "#SBATCH --wrap 'a\n#SBATCH --open-mode=truncate\ntrue\n#SBATCH -a 1-3\n"
    )
    with pytest.raises(errors.SpecError) as caught:
        batch_options.read(text, "run.sbatch")
    assert str(caught.value).splitlines() == [
        "run.sbatch:2: --wait: is refused: use submit --wait",
        "    2 | #SBATCH -W -a 1-3",
        "run.sbatch:2: --array: is refused: submit an array with sbatch, and follow it with"
        " `orchestrator track JOBID`",
        "    2 | #SBATCH -W -a 1-3",
        "run.sbatch:3: --cluster: is refused: jobs are submitted only to the default cluster "
        "of sbatch",
        "    3 | #SBATCH --clus=b",
        "run.sbatch:4: sbatch also reads such lines, orchestrator does not: write it as #SBATCH",
        "    4 | #PBS -q x",
        "run.sbatch:5: hetjob: heterogeneous jobs are not supported",
        "    5 | #SBATCH hetjob",
        "run.sbatch:6: unmatched ' in #SBATCH --wrap 'a",
        "    6 | #SBATCH --wrap 'a",
        "6 problems; nothing was submitted.",
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"echo\n", "f.sbatch:1: must begin with #! and an interpreter, such as #!/bin/bash"),
        (b"", "f.sbatch:1: must begin with #! and an interpreter, such as #!/bin/bash"),
        (b"#!/bin/sh\necho\r\n", "f.sbatch:2: has DOS line ends, which sbatch refuses:"),
        (b"#!/bin/sh\n\n\0", "f.sbatch:3: contains NUL, which sbatch refuses"),
        (b"#!/bin/sh\n\xe9\n", "f.sbatch:2: is not UTF-8 text: write it as UTF-8"),
        (b"#!/bin/sh\n#SBATCH -J 41\n", "f.sbatch:2: job.name: looks like a job ID"),
        (b"#!/bin/sh\n#SBATCH -D /nowhere\n", "f.sbatch:2: job.chdir: no such folder: /nowhere"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "f.sbatch"
    path.write_bytes(content)
    with pytest.raises(errors.SpecError) as caught:
        batch = batch_file.read(path, runs_dir=tmp_path)
        specs.load(None, batch=batch.document)
    assert message in str(caught.value)


def _request(tmp_path: Path, text: str, **flags: object) -> tuple[jobs.JobSpec, tuple[str, ...]]:
    path = tmp_path / "old.sbatch"
    path.write_text(text)
    batch = batch_file.read(path, runs_dir=Path("/runs%1"))
    keys = {key.replace("__", "."): value for key, value in flags.items()}
    spec = specs.load(None, ["sbatch.hint=nomultithread"], keys, ["-x"], batch=batch.document)
    profile = profiles.Profile(account="site", partition="accel", gres_style="gres")
    given_keys = specs.keys_given(["sbatch.hint=nomultithread"], keys, {})
    options = batch_file.command_line(batch, spec, given_keys, profile)
    return jobs.JobSpec(**{**vars(spec), "sbatch": options}), batch.notes


def test_options_on_the_command_line_of_sbatch(tmp_path: Path) -> None:
    text = (
        "#!/bin/bash\n#SBATCH -p gpu --nodes=3 -c 4\n#SBATCH -o x.out\n#SBATCH --error=%N.err\n"
        "#SBATCH --comment=mine\n"
    )
    spec, notes = _request(tmp_path, text, resources__nodes=1, resources__gpus_per_node=2)
    assert sbatch_call.batch_file_options(spec) == [
        "--account=site",
        "--nodes=1",
        "--gres=gpu:2",
        "--error=/runs%%1/%x/%j.err",
        "--open-mode=append",
        "--hint=nomultithread",
    ]
    assert sbatch_call.script_arguments(spec) == ("-x",)
    assert (spec.name, spec.partition, spec.comment, spec.output) == ("old", "gpu", "mine", None)
    assert [note.partition(": ")[2] for note in notes] == [
        "--output=x.out must contain %j, or several jobs would write to the same log:"
        " the log goes to the run folder",
        "--error=%N.err must not contain %N: only %j %A %a %x %u are supported:"
        " stderr goes to the run folder",
    ]
    assert specs.from_json(specs.to_json(spec)) == spec


def test_invalid_job_names_are_changed(tmp_path: Path) -> None:
    spec, (note,) = _request(tmp_path, "#!/bin/sh\n#SBATCH -N1 -J 'caf\u00e9 au lait'\n")
    assert spec.name == "caf-au-lait"
    assert note.endswith(
        "old.sbatch:2: the job's name caf\u00e9 au lait is caf-au-lait here:"
        " letters, digits, dots, underscores and dashes"
    )
    with pytest.raises(errors.SpecError, match=r"job\.name: must be 1 to 100 letters"):
        _request(tmp_path, "#!/bin/sh\n#SBATCH -J '\u4f60'\n")


def test_keys_that_do_not_apply_to_batch_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.SpecError, match=r"environment\.modules: a batch file sets this up"):
        _request(tmp_path, "#!/bin/sh\n", environment__modules=("x",))


def test_a_spec_has_no_batch_file(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text('[job]\nname = "a"\n[launch]\nbatch_file = "/x"\n')
    with pytest.raises(errors.SpecError, match="is not a key of a spec: use `orchestrator submit"):
        specs.load(path)


def _render(machine: Machine, text: str) -> str:
    return batch_file.render(
        jobs.JobSpec(name="job"),
        text,
        runs_dir=machine.runs_dir,
        origin=templates.Origin(version="0.1.0", spec="job.sbatch"),
    ).text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("#!/bin/bash\ntrue", 0),
        ("#!/bin/bash\nset -e\nfalse\nexit 9\n", 1),
        ("#!/bin/bash\ntrap 'exit 4' EXIT\nexit 2\n", 4),
        ("#!/bin/sh -e\nexec sh -c 'exit 5'\n", 5),
        ("#!/usr/bin/env python3\nraise SystemExit(6)\n", 6),
        ("#!/bin/bash\nkill -KILL $$\n", 137),
        (
            "#!/bin/bash\ncat <<'ORCHESTRATOR_BATCH_FILE_END'\nORCHESTRATOR_BATCH_FILE_END\nexit 7",
            7,
        ),
    ],
)
def test_ends_and_their_records(machine: Machine, text: str, code: int) -> None:
    result = machine.run(_render(machine, text))
    assert result.returncode == code
    record = machine.record()
    assert record is not None
    assert (record["rc"], record["outcome"], record["done"]) == (code, "end", True)
    stored = (machine.run_dir / "slurm_script").read_text()
    assert stored.removesuffix("\n") == text.removesuffix("\n")


def test_term_is_forwarded_once_and_exit_0_is_not_a_success(machine: Machine) -> None:
    text = "#!/bin/bash\ntrap 'echo term; exit 0' TERM\ntrap 'echo usr' USR2\necho ready\n"
    process = machine.start(_render(machine, text + "while :; do sleep 0.05; done\n"))
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    os.kill(process.pid, signal.SIGUSR2)
    assert process.stdout.readline() == "usr\n"
    os.kill(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=120)[0] == "term\n"
    assert process.returncode == 0
    record = machine.record()
    assert record is not None and (record["rc"], record["done"]) == (0, False)


def test_signals_are_forwarded_when_slurm_also_sends_cont(machine: Machine) -> None:
    # Slurm 24.11 before --signal's, and at the time limit: two agents, so in either order.
    text = "#!/bin/bash\ntrap 'echo usr >>got' USR2\ntrap 'exit 0' TERM\necho ready\n"
    process = machine.start(_render(machine, text + "while :; do sleep 0.05; done\n"))
    assert process.stdout is not None
    while process.stdout.readline() != "ready\n":
        assert process.poll() is None
    output = machine.folder / "work" / "got"
    for number in range(1, 11):
        os.kill(process.pid, signal.SIGUSR2)
        os.kill(process.pid, signal.SIGCONT)
        wait_for(
            lambda: output.exists() and output.read_text() == "usr\n" * number,  # noqa: B023
            f"USR2 {number}",
        )
    os.kill(process.pid, signal.SIGTERM)
    process.communicate(timeout=120)
    assert process.returncode == 0


def test_a_file_that_ignores_term_leaves_no_record(machine: Machine) -> None:
    text = "#!/bin/bash\ntrap '' TERM\necho $$ >pid\nwhile :; do sleep 0.05; done\n"
    process = machine.start(_render(machine, text))
    pid = machine.folder / "work" / "pid"
    wait_for(lambda: pid.exists() and pid.read_text().strip() != "", "the file's start")
    os.kill(process.pid, signal.SIGTERM)
    wait_for(lambda: (machine.run_dir / "stop.0.0").exists(), "the stop file")
    os.kill(process.pid, signal.SIGKILL)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    process.communicate(timeout=120)
    assert machine.record() is None
