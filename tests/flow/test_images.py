"""Images: built once, by a job, and refused where the nodes have another architecture."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm
from tests.unit.images.test_architectures import sif

#: Writes what an image would contain, or fails.
BUILDER = """\
#!/bin/sh
[ "$1 $2" = "build --force" ] || exit 9
echo "builds" >> "$HOME/builds"
if grep -q hello "$4"; then cat "$4" hello.txt > "$3"; else cp "$4" "$3"; fi
[ ! -e "$HOME/fails" ]
"""


@pytest.fixture
def built(
    cli: command_line.CommandLine, monkeypatch: pytest.MonkeyPatch
) -> command_line.CommandLine:
    programs = cli.home / "programs"
    programs.mkdir()
    (programs / "apptainer").write_text(BUILDER)
    (programs / "apptainer").chmod(0o755)
    monkeypatch.setitem(cli.environ, "PATH", f"{programs}:{cli.environ['PATH']}")
    configuration = cli.home / ".config" / "orchestrator"
    configuration.mkdir(parents=True)
    # Snapshots and trackers are for trainings.
    (configuration / "config.toml").write_text(
        "[profiles.fast]\npoll_floor_seconds = 1\ncode = { snapshot = true }\n"
        'tracking = { trackers = ["mlflow"] }\n'
    )
    (cli.folder / "hello.txt").write_text("hello\n")
    (cli.folder / "env.def").write_text("Bootstrap: scratch\n%files\nhello.txt\n")
    return cli


def test_an_image_is_built_once(built: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    cli = built
    fake_slurm.run_jobs()
    words = ("image", "build", "env.def", "--wait")
    options = ("--", "--force")
    done = cli(*words, "--output", "env.sif", *options)
    assert done.code == 0, done
    image = Path(done.out.strip())
    assert re.fullmatch(r"env-[0-9a-f]{32}\.sif", image.name)
    assert image.parent == cli.runs_dir / ".images"
    assert (cli.folder / "env.sif").resolve() == image
    assert image.read_text() == "Bootstrap: scratch\n%files\nhello.txt\nhello\n"
    # One that copies nothing.
    (cli.folder / "bare.def").write_text("Bootstrap: docker\nFrom: debian:12\n")
    done = cli("image", "build", "bare.def", "--wait", *options)
    assert done.code == 0, done
    assert cli("image", "remove", done.out.strip()).code == 0
    done = cli(*words, "--output", "none/env.sif")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        f"Error: no such folder: {cli.folder}/none",
    )
    # The same again: no job.
    again = cli(*words, *options)
    assert (again.code, again.out, again.err) == (0, f"{image}\n", "")
    assert len(fake_slurm.jobs()) == 2
    # Another file, and a job that fails: nothing is at the path.
    (cli.folder / "hello.txt").write_text("changed\n")
    (cli.home / "fails").touch()
    failed = cli(*words, *options)
    assert (failed.code, failed.out) == (1, "")
    assert [path.name for path in image.parent.glob("*.sif")] == [image.name]
    assert list(image.parent.glob(".*")) == []
    listed = cli("image", "list", "--json").items
    assert [(row["state"], row["size_bytes"]) for row in listed] == [
        ("NOT_BUILT", None),
        ("built", image.stat().st_size),
    ]
    for row in listed:
        assert cli("image", "remove", row["name"]).out == f"Removed {row['path']}\n"
    assert list(image.parent.iterdir()) == []
    done = cli("image", "remove", "env-1")
    assert (done.code, done.err) == (4, "Error: There is no image env-1: see image list\n")


def test_two_builds_share_a_job_and_changed_files_are_refused(
    built: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    cli = built
    first = cli("image", "build", "env.def", "--", "--force")
    second = cli("image", "build", "env.def", "--", "--force")
    assert first == second
    assert (first.code, first.err) == (0, "Job 1 builds the image.\n")
    assert not Path(first.out.strip()).exists()
    done = cli("image", "remove", first.out.strip())
    assert done.err == "Error: Job 1 builds it: cancel that job first\n"
    fake_slurm.set_state(1, "CANCELLED")
    (cli.folder / "env.def").write_text("Bootstrap: scratch\n%files\nnone.txt\n")
    done = cli("image", "build", "env.def")
    assert (done.code, done.err) == (
        3,
        f"Error: env.def:3: no such file: none.txt. Relative paths begin in {cli.folder}\n",
    )


def test_an_image_for_other_nodes_is_refused(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    fake_slurm.configure(
        NodeRecords="NodeName=n1 Arch=x86_64 CPUTot=4 Partitions=cpu,all\n"
        "NodeName=n2 Arch=aarch64 Partitions=gh,all\nNodeName=n3 CPUTot=4 Partitions=new"
    )
    (cli.folder / "x.sif").write_bytes(sif(b"04"))
    words = ("submit", "--container-runtime", "apptainer", "--set", "container.image=x.sif")
    words = (*words, "--command", "true")
    done = cli(*words, "--partition", "cpu")
    assert (done.code, done.out, done.err) == (
        3,
        "",
        "Error: container.image: the image is for aarch64 (arm64), and the nodes of "
        "partition cpu are x86_64 (amd64): use an image for these\n"
        "1 problem; nothing was submitted.\n",
    )
    (cli.folder / "sweep.toml").write_text(
        '[job]\nname = "x"\npartition = "cpu"\n[launch]\ncommand = "true"\n'
        '[container]\nruntime = "apptainer"\nimage = "x.sif"\n[sweep]\n'
        'kind = "grid"\naxes.resources.mem = ["1G", "2G"]\n'
    )
    assert "the image is for aarch64" in cli("sweep", "submit", "sweep.toml").err
    for partition in ("gh", "cpu,gh", "new", "unknown"):
        assert cli(*words, "--partition", partition).code == 0
    asked = [words for words in fake_slurm.calls("scontrol") if "node" in words]
    assert asked == [["-a", "-o", "show", "node"]]
    done = cli(*words, "--scheduler", "local")
    assert ("the CPUs of this machine are" in done.err) == (done.code == 3)
