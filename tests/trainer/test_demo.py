"""script/demo without Slurm, with this Python: output, files, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.slurm import variables

pytest.importorskip("torch", reason="the trainer needs PyTorch")

pytestmark = pytest.mark.trainer

CHECKOUT = Path(__file__).parents[2]
DEMO = CHECKOUT / "script" / "demo"
#: PyTorch may need minutes to load on a busy machine.
TIMEOUT_SECONDS = 300

PROGRAM = shlex.quote(sys.executable.removesuffix("python") + "orchestrator")
VENV = "" if sys.prefix == sys.base_prefix else f" --venv {sys.prefix}"
TOLD = f"""\
$ cd {CHECKOUT}
$ {PROGRAM} --state-dir {{state}} --runs-dir {{runs}} submit examples/digits_ddp.toml \
--nproc-per-node 2 --set resources.gpus_per_node=0 --scheduler local{VENV} --set args.epochs=2
Submitted batch job local-1

local-1 is starting (loading PyTorch takes longest)
training on 2 ranks
epoch 1/2  N images/second  accuracy N
epoch 2/2  N images/second  accuracy N

$ {PROGRAM} --state-dir {{state}} status
job_id name state reason elapsed time_limit nodes gpus node_list row
local-1 digits-ddp COMPLETED TIME 00:10:00 1 0 HOST @1

$ {PROGRAM} --state-dir {{state}} show local-1
""".replace(f"{CHECKOUT}/", "")
METRICS = f"""\
$ {PROGRAM} --state-dir {{state}} metrics local-1 --name throughput
job_id name value unit epoch step time source
local-1 throughput N images/second 1 N WHEN jsonl
local-1 throughput N images/second 2 N WHEN jsonl
""".replace(f"{CHECKOUT}/", "")
CLOSING = """
The job ran on this machine with two ranks. Its script, log and metrics and the database are in
{folder}. Delete the folder to remove them.
"""


@pytest.fixture
def environ(clean_environ: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    """A user's with an empty home, on a machine without GPUs."""
    home = tmp_path / "home"
    home.mkdir()
    # A key without effect on local jobs is reported on stderr.
    stored = variables.stored(clean_environ)
    own = {name: value for name, value in stored.items() if not name.startswith("XDG_")}
    return {**own, "HOME": str(home), "TZ": "UTC"}


def command(folder: Path, *options: str) -> list[str]:
    words = [str(DEMO), "--cpu", "--python", sys.executable, "--folder", str(folder)]
    return [*words, "--", "--set", "args.epochs=2", *options]


def normalized(text: str) -> str:
    """Return the text with what changes from run to run as words, and columns one blank apart."""
    host = os.uname().nodename
    for pattern, word in (
        (r"\d{4}-\d\d-\d\dT[\d:]+[+]00:00", "WHEN"),
        (rf"\b{re.escape(host)}\b", "HOST"),
        (r"COMPLETED\s+00:0\d:\d\d", "COMPLETED TIME"),
        (r"[\d,]+ images/second  accuracy [\d.]+", "N images/second  accuracy N"),
        (r"[\d.]+(\timages/second\t\d\t)\d+", r"N\1N"),
        (r"\t+", " "),
    ):
        text = re.sub(pattern, word, text)
    return text


def test_a_job_on_two_ranks_is_followed_and_shown(
    environ: Mapping[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / "the demo's"
    done = subprocess.run(
        command(folder),
        cwd=tmp_path,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == "Ignored without Slurm: resources.mem\n"
    output = normalized(done.stdout)
    paths = {name: shlex.quote(f"{folder}/{name}") for name in ("state", "runs")}
    assert output.startswith(TOLD.format(**paths)), output
    assert "\nState:       COMPLETED\n" in output
    assert re.search(
        r"\nTotal processes: 2\nEvaluation: [\d.]+ seconds\n"
        r"Waiting for checkpoints: [\d.]+ seconds\nTraining completed successfully\.\n",
        output,
    )
    assert METRICS.format(**paths) + CLOSING.format(folder=folder) in output
    # One folder, and nothing in the home.
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "the demo's"]
    assert list((tmp_path / "home").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["runs", "state"]
    # The blocks of the closing text work in any shell.
    blocks = re.findall(
        r"^(.*:)\n((?:  .*\n)+)", done.stdout.partition(CLOSING[:20])[2], re.MULTILINE
    )
    titles = [title for title, _ in blocks]
    assert titles == [
        "What to try next:",
        "A script of your own instead of the included trainer, with your own database:",
        "On the login node of a cluster with Slurm:",
    ]
    assert "\n  orchestrator submit train.toml --wait\n" in blocks[1][1]
    plain = {**environ, "PATH": "/usr/bin:/bin"}
    first, own = (paste(block, plain, tmp_path) for _, block in blocks[:2])
    assert "Training completed successfully." in first
    assert re.search(r"^local-1\tval_accuracy\t", first, re.MULTILINE)
    assert re.search(r"^Submitted batch job local-2 ", first, re.MULTILINE)
    assert first.index("local-2") < first.index("#SBATCH")
    assert re.search(r"^local-1\tthroughput\t", own, re.MULTILINE)


def paste(block: str, environ: Mapping[str, str], folder: Path) -> str:
    """Run lines in a shell and return what they printed."""
    words = ["bash", "-e", "-c", block]
    done = subprocess.run(
        words,
        cwd=folder,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, block + done.stdout + done.stderr
    return done.stdout


def read_until(terminal: int, text: bytes) -> bytes:
    """Return what came up to and with `text`; at the end of the terminal all there was."""
    seen = b""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"waited in vain for {text!r}: {seen!r}"
        try:
            block = os.read(terminal, 65536)
        except OSError:
            # EIO: the other end is closed.
            return seen
        seen += block
    return seen


def test_ctrl_c_cancels_the_job_and_says_so(environ: Mapping[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    # Long enough to be interrupted.
    words = command(folder, "--set", "args.epochs=100000")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(tmp_path)
        os.execve(words[0], words, {**environ, "TERM": "xterm"})
    try:
        # A progress bar on a terminal; an update may be overwritten before it is read.
        assert b"\x1b[" in read_until(terminal, b"/100000  ")
        os.write(terminal, b"\x03")
        rest = read_until(terminal, b"\0never").decode()
        _, status = os.waitpid(pid, 0)
    except BaseException:
        os.kill(pid, signal.SIGTERM)
        raise
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert rest.rstrip().splitlines()[-1] == ("script/demo: interrupted; the job was cancelled.")
    assert "Traceback" not in rest
    words = [sys.executable, "-m", "orchestrator", "status", "--json"]
    there = {**environ, "ORCHESTRATOR_STATE_DIR": f"{folder}/state"}
    output = subprocess.run(words, env=there, capture_output=True, check=True).stdout
    (item,) = json.loads(output)["items"]
    assert item["state"] == "CANCELLED"


def test_reader_may_close_the_pipe(environ: Mapping[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    words = command(folder, "--set", "args.epochs=100000")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=tmp_path, env=environ, text=True, **pipes) as demo:
        assert demo.stdout is not None and demo.stderr is not None
        for line in demo.stdout:
            if line.startswith("local-1 is starting"):
                break
        demo.stdout.close()
        output = demo.stderr.read()
        assert demo.wait(TIMEOUT_SECONDS) == 1
    assert "Traceback" not in output
    words = [sys.executable, "-m", "orchestrator", "status", "--json"]
    there = {**environ, "ORCHESTRATOR_STATE_DIR": f"{folder}/state"}
    output = subprocess.run(words, env=there, capture_output=True, check=True).stdout
    (item,) = json.loads(output)["items"]
    assert item["state"] == "CANCELLED"


def test_own_script_leaves_no_gloo_thread(environ: Mapping[str, str]) -> None:
    # With such a thread, Python aborts at its exit in 1 run of 10.
    program = (
        "import os, runpy, sys\n"
        "runpy.run_path(sys.argv.pop(1), run_name='__main__')\n"
        "for task in os.listdir('/proc/self/task'):\n"
        "    print(open(f'/proc/self/task/{task}/comm').read(), end='')\n"
    )
    words = [sys.executable, "-c", program, f"{CHECKOUT}/examples/own/train.py", "--epochs", "1"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    done = subprocess.run(
        words,
        env={**environ, **ranks, **rendezvous, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=True,
    )
    epoch, *threads = done.stdout.splitlines()
    assert epoch.startswith("epoch=1 loss=")
    assert "python" in threads[0]
    assert [name for name in threads if "gloo" in name] == []
