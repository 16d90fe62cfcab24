"""The notebook, and the code in docs/howto/python.md, on this machine without Slurm."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import nbclient
import nbformat
import pytest

from tests.flow import command_line

TRAIN = """
import sys
rate = float(sys.argv[sys.argv.index("--lr") + 1]) if "--lr" in sys.argv else 1.0
for step in (1, 2, 3):
    print(f"step {step} loss {1 / (1 + rate * step):.4f}", flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path, path_without_slurm: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with an empty home and without Slurm."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    work = tmp_path / "work"
    work.mkdir()
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "HOME": str(home),
        "PATH": path_without_slurm,
        "PYTHONPATH": str(command_line.CHECKOUT),
        "XDG_CONFIG_DIRS": str(tmp_path / "no-site"),
        # The kernel prints nothing about frozen modules and their paths.
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"),
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    return work


def test_code_of_the_page_runs(folder: Path, checkout: Path) -> None:
    page = (checkout / "docs/howto/python.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    assert len(blocks) == 6
    (folder / "train.py").write_text(TRAIN)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(blocks)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1:5] == [
        "step 1 loss 0.9091",
        "step 2 loss 0.8333",
        "step 3 loss 0.7692",
        "COMPLETED [0.9091, 0.8333, 0.7692]",
    ]
    assert "job local-4 ended FAILED, exit code 3:0; see `orchestrator explain local-4`" in lines
    assert lines[-2:] == ["{'args.lr': 0.2} 0.625", "[]"]


def test_notebook_runs(folder: Path, checkout: Path) -> None:
    notebook = nbformat.read(checkout / "docs/notebooks/first-job.ipynb", as_version=4)
    assert all(not cell.get("outputs") for cell in notebook.cells)
    client = nbclient.NotebookClient(
        notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    outputs = [
        "".join(
            output.get("text", "") + "".join(output.get("data", {}).get("text/html", ""))
            for output in cell.outputs
        )
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    _, submitted, log, waited, metrics, failed, sweep = outputs
    assert (
        submitted.startswith("<table><thead><tr><th>job_id</th>") and "<td>first</td>" in submitted
    )
    assert log.splitlines()[1] == "step 1 loss 0.9091"
    assert waited.startswith("<pre>local-1 COMPLETED on ")
    assert metrics.count("<td>loss</td>") == 3
    assert "job local-2 ended FAILED, exit code 1:0" in failed and "ValueError" in failed
    assert "[####################] 2 of 2 jobs ended: 2 COMPLETED" in sweep
    assert sweep.index("<td>0.5</td>") < sweep.index("<td>0.1</td>")
