"""`--host NAME submit`: the working tree of the laptop goes along, as a snapshot."""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.remote import messages
from tests import zygote
from tests.flow import command_line
from tests.flow.conftest import FakeSlurm
from tests.flow.remote_site import NAME, Peer, Site
from tests.flow.test_remote_links import BROKEN

SPEC = '[job]\nname = "demo"\ntime_limit = "10"\n[launch]\nscript = "train.py"\n'
SUBMITTED = "Submitted batch job 1 (@1, demo)\n"


@pytest.fixture
def site(
    tmp_path: Path, cli: command_line.CommandLine, pycache: Path, forking: zygote.Zygote
) -> Iterator[Site]:
    with contextlib.closing(Site(tmp_path, cli, pycache, forking)) as made:
        project = made.laptop.folder
        subprocess.run(["git", "init", "-q", str(project)], check=True)
        (project / "job.toml").write_text(SPEC)
        (project / "train.py").write_text(
            "import lib.model\nprint('on the host:', lib.model.NAME)\n"
        )
        (project / "lib").mkdir()
        (project / "lib/model.py").write_text("NAME = 'model'\n")
        (project / "ignored").write_text("x" * 1000)
        (project / ".gitignore").write_text("ignored\n")
        yield made


def test_a_job_runs_the_code_of_the_laptop(site: Site, fake_slurm: FakeSlurm) -> None:
    fake_slurm.run_jobs()
    done = site("submit", "job.toml", "--wait")
    assert (done.code, done.out.splitlines()[0]) == (0, SUBMITTED.rstrip()), done
    origin = re.escape(f":{site.laptop.folder}")
    assert re.match(rf"Code: snapshot [0-9a-f]{{12}} of \S+{origin} \(4 files, ", done.err)
    assert site.host("logs", "1").out.endswith("on the host: model\n")
    # Nothing of the copy is left, and the job started in a folder that stays.
    assert [path.name for path in site.host.state_dir.glob("requests/*/tree")] == []
    ((text,),) = site.host.rows("SELECT provenance FROM submissions")
    provenance = json.loads(text)
    assert provenance["folder"] == str(site.host.home)
    assert provenance["argv"][1:] == ["submit", "--snapshot", "job.toml", "--wait"]
    # The job runs again without the laptop.
    assert site.host("submit", "--like", "1").code == 0
    assert site("resubmit", "1").code == 0


def test_the_command_runs_in_the_same_folder_of_the_tree(site: Site) -> None:
    sub = site.laptop.folder / "experiments"
    sub.mkdir()
    (sub / "own.toml").write_text(SPEC.replace("train.py", "own.py"))
    (sub / "own.py").write_text("")
    done = site.laptop("--host", NAME, "submit", "own.toml", cwd=sub)
    assert (done.code, done.out) == (0, SUBMITTED), done.err
    done = site.laptop("--host", NAME, "submit", "own.py", "--name", "flags", cwd=sub)
    assert (done.code, done.out) == (0, "Submitted batch job 2 (@2, flags)\n"), done.err


def test_render_prints_what_submit_submits(site: Site) -> None:
    rendered = site("render", "job.toml")
    assert (rendered.code, rendered.err) == (0, "")
    assert site("submit", "job.toml").code == 0
    assert site.host("show", "1", "--script").out == rendered.out


def test_only_what_the_host_lacks_is_sent(site: Site) -> None:
    (site.laptop.folder / "data.bin").write_bytes(random.Random(1).randbytes(3 * 1024**2))
    # A first call of ssh must carry all of it.
    site.cut("to host 3000000")
    done = site("submit", "job.toml")
    assert (done.code, done.out) == (0, SUBMITTED)
    assert done.err.startswith(BROKEN)
    (site.laptop.folder / "train.py").write_text("print('changed')\n")
    # Not even a tenth of it is sent again.
    site.cut("to host 20000")
    done = site("submit", "job.toml", "--name", "again")
    assert (done.code, done.out) == (0, "Submitted batch job 2 (@2, again)\n")
    assert "broke" not in done.err


def test_a_large_tree_is_sent_in_parts(site: Site) -> None:
    dice = random.Random(2)
    for number in range(5):
        (site.laptop.folder / f"{number}.bin").write_bytes(dice.randbytes(8 * 1024**2))
    site.cut("to host 25000000", "to host 22000000", "to host 5000")
    done = site("submit", "job.toml")
    assert (done.code, done.out) == (0, SUBMITTED), done
    # What had arrived was not sent again: 40 MiB need three connections, and little is left.
    assert done.err.count(BROKEN) == 3
    assert list((site.host.state_dir / "code").glob("packed.*")) == []
    assert list((site.laptop.state_dir / "code").glob("packed.*")) == []


def test_sweeps_graphs_and_schedules_take_the_tree_along(site: Site) -> None:
    folder = site.laptop.folder
    (folder / "sweep.toml").write_text(
        f"{SPEC}[sweep]\nkind = \"grid\"\n[sweep.axes]\n'args.lr' = [1, 2]\n"
    )
    (folder / "graph.toml").write_text(
        '[graph]\nname = "both"\n[graph.nodes.first]\nspec = "job.toml"\n'
        '[graph.nodes.second]\nspec = "job.toml"\nafter_ok = ["first"]\n'
    )
    done = site("sweep", "submit", "sweep.toml")
    assert done.code == 0, done
    done = site("graph", "submit", "graph.toml")
    assert done.code == 0, done
    done = site("schedule", "add", "nightly", "--cron", "@daily", "job.toml")
    assert done.code == 0, done
    done = site.host("schedule", "run", "nightly")
    assert done.code == 0, done
    specs = site.host.rows("SELECT spec FROM submissions")
    trees = {re.search(r'"tree": ?"([0-9a-f]{40})"', spec)[1] for (spec,) in specs}  # type: ignore[index]
    assert len(specs) == 4 and len(trees) == 1


def test_what_needs_the_folder_on_the_host_is_refused(site: Site) -> None:
    words = ("schedule", "add", "x", "--cron", "@daily", "--snapshot", "at-trigger", "job.toml")
    done = site(*words)
    assert done.code == 2
    assert done.err.endswith(
        "Error: --host: at-trigger: the code would have to be on the host: use --no-snapshot and "
        "its folder there\n"
    )
    done = site("submit", "train.py", "--save-spec", "new.toml")
    assert (done.code, done.err.splitlines()[-1]) == (
        2,
        "Error: --host: --save-spec: call it without --host",
    )


def test_problems_are_those_of_the_laptop(site: Site) -> None:
    (site.laptop.folder / ".env").write_text("TOKEN=1\n")
    done = site("submit", "job.toml")
    assert done.code == 3
    assert ".env" in done.err
    assert site.requests == []
    (site.laptop.folder / ".env").unlink()
    done = site("submit", "zzz.toml")
    assert done.code == 3 and "zzz.toml" in done.err


@pytest.mark.parametrize("is_trusted", [True, False])
def test_a_project_is_trusted_there_if_it_is_here(site: Site, is_trusted: bool) -> None:
    other = site.host.home / "other-runs"
    (site.laptop.folder / "orchestrator.toml").write_text(f'runs_dir = "{other}"\n')
    if is_trusted:
        assert site.laptop("trust", site.laptop.folder).code == 0
    done = site("submit", "job.toml")
    if not is_trusted:
        assert done.code == 3
        assert "runs_dir: not allowed in a project's file" in done.err
        return
    assert (done.code, done.out) == (0, SUBMITTED), done
    assert len(list(other.glob("demo.*"))) == 1
    # No other copy is trusted.
    assert list((site.host.home / ".local/share/orchestrator/trusted").iterdir()) == []


def submit_cut_at_random_bytes(site: Site, number: int, seed: int) -> None:
    dice = random.Random(seed)
    submitted = 0
    for count in range(number):
        # A new file of 100 kB, which has to be sent.
        (site.laptop.folder / "data.bin").write_bytes(dice.randbytes(100_000))
        site.cut(*(f"to host {dice.randrange(110_000)}" for _ in range(dice.randint(1, 2))))
        done = site("submit", "job.toml")
        site.forget_cuts()
        if done.code == 255 and "cannot connect" in done.err:
            # Cut before the agent's greeting: nothing was sent.
            assert done.out == ""
        else:
            submitted += 1
            line = f"Submitted batch job {submitted} (@{submitted}, demo)\n"
            assert (done.code, done.out) == (0, line), (count, done)
        assert site.pending == []
    assert site.host.rows("SELECT count(*) FROM jobs") == [(submitted,)]
    assert submitted > number // 2


def test_a_submission_with_code_cut_at_random_bytes(site: Site) -> None:
    submit_cut_at_random_bytes(site, 5, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_a_submission_with_code_cut_at_200_bytes(site: Site, part: int) -> None:
    submit_cut_at_random_bytes(site, 20, seed=100 + part)


def test_snapshots_of_several_calls_do_not_mix(site: Site, tmp_path: Path) -> None:
    """`connect` passes the messages of several calls on, in any order."""
    git = ["git", f"--git-dir={tmp_path / 'sent'}"]
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "sent")], check=True)

    def output(*words: str, sent: bytes = b"") -> bytes:
        return subprocess.run([*git, *words], input=sent, check=True, stdout=subprocess.PIPE).stdout

    blob = output("hash-object", "-w", "--stdin", sent=b"x").decode().strip()
    tree = output("mktree", sent=f"100644 blob {blob}\tfile\n".encode()).decode().strip()
    pack = output("pack-objects", "-q", "--stdout", sent=f"{blob}\n{tree}\n".encode())
    first, second = "1" * 32, "2" * 32
    peer = Peer(site)
    for request in (first, second):
        peer.send(messages.of_request("tree", request, bytes.fromhex(tree), tree=tree))
        assert peer.next("done").payload == bytes.fromhex(tree)
    peer.send(messages.of_request("pack", first, pack[:10]))
    peer.send(messages.of_request("pack", second, pack), messages.of_request("packed", second))
    assert peer.next("done", "refused").keys == {"type": "done", "request": second, "of": "packed"}
    peer.send(messages.of_request("pack", first, pack[10:]), messages.of_request("packed", first))
    assert peer.next("done", "refused").kind == "done"
    assert peer.close() == 0
