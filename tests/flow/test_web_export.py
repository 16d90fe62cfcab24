"""`orchestrator web export`: pages as files, with links between them only."""

from __future__ import annotations

import json
import re
import signal
import urllib.parse
from pathlib import Path

import pytest

from tests.flow import command_line, web_server
from tests.flow.conftest import FakeSlurm

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture
def done(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> command_line.CommandLine:
    """A sweep of two points, one of them failed, and a job that nobody selects."""
    (cli.folder / "train.py").touch()
    assert cli("sweep", "submit", cli.spec(web_server.SWEEP.format(values=[0.1, 0.2]))).code == 0
    assert cli("submit", cli.spec(web_server.JOB.format(name="private"))).code == 0
    for task in ("1_0", "1_1"):
        fake_slurm.set_state(task, "RUNNING")
    assert cli("refresh").code == 0
    for index, task in enumerate(("1_0", "1_1")):
        log = Path(cli("logs", task, "--path").out.strip())
        number = fake_slurm.job(task)["job_id"]
        log.write_text(
            f"=== orchestrator grid job {number} task {index} attempt 0 on n1 at "
            f"2026-11-28T10:00:00Z ===\n{HOSTILE}\nstep 1 loss 2.5\nstep 2 loss 1.25\n"
            "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
        )
    fake_slurm.set_state("1_0", "COMPLETED")
    fake_slurm.set_state("1_1", "FAILED", exit="1:0")
    assert cli("refresh").code == 0
    return cli


def files_of(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_pages_of_a_sweep(done: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    calls = len(fake_slurm.calls())
    folder = done.folder / "report"
    exported = done("web", "export", folder, "--sweep", "grid")
    assert (exported.code, exported.err) == (0, "")
    assert exported.out == f"Wrote 11 pages: open {folder}/index.html\n"
    assert len(fake_slurm.calls()) == calls
    assert [name for name in files_of(folder) if not name.startswith("static/")] == [
        "compare.html",
        "export.json",
        "index.html",
        *(f"jobs/1-{part}" for part in ("curves.html", "log.html", "log.txt")),
        "jobs/1.html",
        *(f"jobs/2-{part}" for part in ("curves.html", "log-5.html", "log.html", "log.txt")),
        "jobs/2.html",
        "sweeps.html",
        "sweeps/1.html",
    ]
    marker = json.loads((folder / "export.json").read_text())
    assert marker["complete"] is True
    for path in folder.rglob("*.html"):
        check_page(folder, path)
    index = (folder / "index.html").read_text()
    assert '<a href="jobs/1.html">1_0</a>' in index and "private" not in index
    job = (folder / "jobs" / "2.html").read_text()
    assert '<a href="2-log-5.html#L5">line 5</a>' in job
    assert '<a href="../static/style.css"' not in job and 'href="../static/style.css"' in job
    (stored,) = re.findall(r'<script type="application/json">(.*?)</script>', job)
    data = json.loads(stored)
    assert data["tables"] == "2-curves.html"
    (figure,) = data["step"]["figures"]
    assert [line["y"] for line in figure["lines"]] == [[2.5, 1.25]]
    sweep = (folder / "sweeps" / "1.html").read_text()
    assert '<a href="../jobs/2.html">1_1</a>' in sweep
    log = (folder / "jobs" / "2-log.txt").read_text()
    assert HOSTILE in log


def test_a_log_that_is_too_large_is_not_copied(done: command_line.CommandLine) -> None:
    logs = [Path(done("logs", task, "--path").out.strip()) for task in ("1_0", "1_1")]
    limit_bytes = 16 * 1024 * 1024
    for log, size_bytes in zip(logs, (limit_bytes, limit_bytes + 1), strict=True):
        with log.open("a") as out:
            out.write("x" * (size_bytes - log.stat().st_size - 5) + "\nend\n")
    folder = done.folder / "report"
    assert done("web", "export", folder, "--sweep", "grid").code == 0
    names = [name for name in files_of(folder) if name.endswith("log.txt")]
    assert names == ["jobs/1-log.txt"]
    for path in (folder / "jobs").glob("*.html"):
        check_page(folder, path)
    assert "end</li>" in (folder / "jobs" / "2-log.html").read_text()


def check_page(folder: Path, path: Path) -> None:
    """Check that a page needs no server, and that its links exist."""
    text = path.read_text()
    for element in ("<form", "<button", "<input", "<select", "data-events"):
        assert element not in text, path
    assert f"<script>{HOSTILE[9:]}" not in text and "<script>alert" not in text
    assert str(folder) not in text
    assert text.count("<a ") == text.count("</a>") and text.count("<span") == text.count("</span>")
    for url in re.findall(r'\s(?:href|src)="(.*?)"', text):
        if url.startswith("#"):
            continue
        parsed = urllib.parse.urlsplit(url)
        assert not parsed.scheme and not parsed.netloc and not url.startswith("/"), (path, url)
        target = (path.parent / parsed.path).resolve()
        assert target.is_file() and target.is_relative_to(folder), (path, url)
        if parsed.fragment:
            assert f'id="{parsed.fragment}"' in target.read_text(), (path, url)


def test_a_folder_with_something_else_is_refused(done: command_line.CommandLine) -> None:
    folder = done.folder / "mine"
    folder.mkdir()
    (folder / "thesis.tex").write_text("mine")
    exported = done("web", "export", folder, "1")
    assert (exported.code, exported.out) == (6, "")
    assert exported.err == (
        f"Error: {folder} is not empty and not an earlier export: name a new folder\n"
    )
    assert files_of(folder) == ["thesis.tex"]
    (folder / "thesis.tex").rename(folder / "export.json")
    assert done("web", "export", folder, "1").code == 6
    nowhere = done("web", "export", done.folder / "new")
    assert nowhere.code == 2 and not (done.folder / "new").exists()


def test_no_page_names_other_jobs(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    for _ in range(3):
        assert (
            cli("submit", cli.spec(web_server.JOB.format(name="demo")), "--label", "a=b").code == 0
        )
    for job_id in (1, 2, 3):
        fake_slurm.set_state(job_id, "RUNNING", node_list=f"node{job_id}")
    assert cli("refresh").code == 0
    folder = cli.folder / "report"
    assert cli("web", "export", folder, "1", "2").code == 0
    pages = {path.name: path.read_text() for path in folder.rglob("*.html")}
    assert "compare.html" in pages
    tokens = [token for (token,) in cli.rows("SELECT token FROM submissions ORDER BY id")]
    for text in pages.values():
        assert "node3" not in text and tokens[2] not in text and ">3 demo" not in text
    assert any("node2" in text for text in pages.values())


def test_an_earlier_export_is_replaced(done: command_line.CommandLine) -> None:
    folder = done.folder / "report"
    assert done("web", "export", folder, "--sweep", "grid").code == 0
    outside = done.folder / "outside.html"
    outside.write_text("mine")
    marker = json.loads((folder / "export.json").read_text())
    marker["files"] += ["../outside.html", "..", "jobs/..", 7]
    (folder / "export.json").write_text(json.dumps(marker))
    (folder / "notes.txt").write_text("of the colleague")
    exported = done("web", "export", folder, "2")
    assert exported.out == f"Wrote 5 pages: open {folder}/index.html\n"
    assert [name for name in files_of(folder) if not name.startswith("static/")] == [
        "export.json",
        "index.html",
        *(f"jobs/2-{part}" for part in ("curves.html", "log-5.html", "log.html", "log.txt")),
        "jobs/2.html",
        "notes.txt",
    ]
    assert outside.read_text() == "mine"


def test_links_in_an_earlier_export_are_not_followed(done: command_line.CommandLine) -> None:
    """Whoever wrote it could have files of the user replaced and removed."""
    folder, mine = done.folder / "report", done.folder / "mine"
    (folder / "static").mkdir(parents=True)
    mine.mkdir()
    (mine / "authorized_keys").write_text("mine")
    names = ["sweeps/authorized_keys"]
    (folder / "export.json").write_text(json.dumps({"orchestrator_export": 1, "files": names}))
    for name in ("jobs", "sweeps"):
        (folder / name).symlink_to(mine)
        exported = done("web", "export", folder, "1")
        assert (exported.code, exported.out, exported.err) == (
            1,
            "",
            f"Error: {folder}/{name} cannot be written (it is a link); name another folder\n",
        )
        (folder / name).unlink()
    assert files_of(mine) == ["authorized_keys"]


def test_a_killed_export_has_no_first_page(done: command_line.CommandLine, tmp_path: Path) -> None:
    folder = done.folder / "report"
    assert done("web", "export", folder, "--sweep", "grid").code == 0
    process = done.start("web", "export", folder, "--sweep", "grid")
    done.wait_until(lambda: not (folder / "index.html").exists() or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    marker = json.loads((folder / "export.json").read_text())
    assert marker["complete"] is (folder / "index.html").exists()
    # Killed while it replaced this file.
    (folder / "static" / ".app.js.611b55c6").touch()
    assert done("web", "export", folder, "--sweep", "grid").code == 0
    assert json.loads((folder / "export.json").read_text())["complete"] is True
    assert not [name for name in files_of(folder) if Path(name).name.startswith(".")]
