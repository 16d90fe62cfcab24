"""Submits the digits trainer on two ranks, follows it, shows what came of it; script/demo runs it.

Everything is done by the `orchestrator` command, as a person or a script of one's own would do it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator, Sequence
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLE = CHECKOUT / "examples" / "digits_ddp.toml"
#: What a shell gives a command that Ctrl-C ended.
INTERRUPTED = 130

STARTED = re.compile(r"Training started with (\d+) processes")
EPOCH = re.compile(r"Epoch (\d+)/(\d+) completed in")
ACCURACY = re.compile(r"Validation Accuracy: ([\d.]+)")
THROUGHPUT = re.compile(r"Epoch Throughput: ([\d.]+) images/second")


class Interrupted(Exception):
    """The demo was told to end, by Ctrl-C or a signal."""


class Failed(Exception):
    """The demo can't go on; the message names the cure."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class News:
    """What the job has told since the last time."""

    #: A line as a person reads it.
    line: str
    #: The epoch that has ended, counted from 1; None when it tells of something else.
    epoch: int | None = None
    #: The number of epochs.
    epochs: int | None = None


class Bar:
    """A progress bar on a terminal, and a line for each piece of news elsewhere."""

    def __init__(self, terminal: bool) -> None:
        self._progress = None
        if terminal:
            from rich import progress

            self._progress = progress.Progress(
                progress.SpinnerColumn(),
                progress.BarColumn(16),
                progress.TimeElapsedColumn(),
                progress.TextColumn("{task.description}", markup=False),
                refresh_per_second=4,
            )
            self._task = self._progress.add_task("submitted", total=None)

    def __enter__(self) -> Bar:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def tell(self, news: News) -> None:
        """Show one piece of news."""
        if self._progress is None:
            print(news.line, flush=True)
        elif news.epoch is None:
            self._progress.update(self._task, description=news.line)
        else:
            self._progress.update(
                self._task, description=news.line, completed=news.epoch, total=news.epochs
            )


class Reader:
    """Turns the lines of the trainer's log into news, one for each epoch."""

    def __init__(self) -> None:
        self._epoch = ("", "")
        self._accuracy = ""

    def read(self, line: str) -> News | None:
        """Return what a line completes."""
        if found := STARTED.search(line):
            return News(line=f"training on {found[1]} ranks")
        if found := EPOCH.search(line):
            self._epoch = (found[1], found[2])
        elif found := ACCURACY.search(line):
            self._accuracy = found[1]
        elif (found := THROUGHPUT.search(line)) and self._epoch[0]:
            epoch, epochs = self._epoch
            rate = f"{float(found[1]):,.0f} images/second"
            told = f"epoch {epoch}/{epochs}  {rate}  accuracy {self._accuracy}"
            return News(line=told, epoch=int(epoch), epochs=int(epochs))
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """The `orchestrator` command, called within the demo's folder."""

    #: Holds the jobs and their database; the working directory of every call.
    folder: Path
    scheduler: str
    #: stdout is a terminal that can draw a bar.
    terminal: bool

    def start(self, *argv: str, stdout: int | None = None) -> subprocess.Popen[str]:
        """Start a command in a session of its own: Ctrl-C is for the demo alone."""
        # torchrun is found beside this Python, also where that is no venv.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *argv],
            cwd=self.folder,
            env={**os.environ, **settings(self.folder, self.scheduler), "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )

    def show(self, *argv: str) -> None:
        """Show a command as one would type it, and run it."""
        self.announce(*argv)
        code = self.start(*argv).wait()
        if code:
            raise Failed(f"`orchestrator {argv[0]}` ended with {code}: the lines above say why")
        print(flush=True)

    def announce(self, *argv: str) -> None:
        """Print a command as one would type it."""
        # As seen from the checkout, where the demo was called; whole paths would hide what matters.
        print(f"$ orchestrator {shlex.join(argv).replace(f'{CHECKOUT}/', '')}", flush=True)

    def submit(self, *argv: str) -> str:
        """Submit the example; return the job's ID."""
        self.announce(*argv)
        process = self.start(*argv, "--parsable", stdout=subprocess.PIPE)
        try:
            out, _ = process.communicate()
        except Interrupted:
            # A submission is not broken off: it is over in seconds, and its job is then known.
            out, _ = process.communicate()
            self.cancel(out.strip())
            raise
        if process.returncode:
            raise Failed("the job was not submitted: the lines above say why, and what helps")
        return str(out).strip()

    def state(self, job_id: str) -> str:
        """Ask for the job's state."""
        process = self.start("show", job_id, "--json", stdout=subprocess.PIPE)
        out, _ = process.communicate()
        return str(json.loads(out)["items"][0]["state"]) if process.returncode == 0 else "unknown"

    def follow(self, job_id: str) -> None:
        """Show how the job goes, until it has ended."""
        log = self.start("logs", job_id, "--follow", stdout=subprocess.PIPE)
        assert log.stdout is not None
        reader = Reader()
        try:
            with Bar(self.terminal) as bar:
                bar.tell(News(line=f"{job_id} is starting (loading PyTorch takes longest)"))
                for line in log.stdout:
                    if news := reader.read(line):
                        bar.tell(news)
        finally:
            log.terminate()
            log.wait()
            log.stdout.close()

    def cancel(self, job_id: str) -> None:
        """Cancel the job, if it was submitted."""
        if job_id:
            self.start("cancel", job_id, stdout=subprocess.DEVNULL).wait()


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Turn the signals that end a run into Interrupted, once: the second one is not heard."""

    def interrupt(number: int, frame: types.FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise Interrupted

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def num_gpus() -> int:
    """Return the number of NVIDIA GPUs of this machine."""
    if shutil.which("nvidia-smi") is None:
        return 0
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False)
    return sum(line.startswith("GPU ") for line in done.stdout.splitlines())


def options_of(scheduler: str, cpu: bool) -> list[str]:
    """Return what the example needs to run on two ranks, here or on the cluster."""
    # A single GPU can't serve two ranks of NCCL.
    on_cpu = cpu or (scheduler == "local" and num_gpus() < 2)
    words = ["--nproc-per-node", "2", "--set", "resources.gpus_per_node=0"]
    options = words if on_cpu else ["--set", "resources.gpus_per_node=2"]
    if sys.prefix != sys.base_prefix:
        options += ["--venv", sys.prefix]
    return options


def require_localhost() -> None:
    """Fail where the name `localhost` has no address: torchrun --standalone would wait for it."""
    try:
        socket.getaddrinfo("localhost", None)
    except OSError as error:
        raise Failed(
            f"the name localhost has no address here ({error.strerror}), and torchrun needs it; "
            "as root: echo '127.0.0.1 localhost' >> /etc/hosts"
        ) from error


def settings(folder: Path, scheduler: str) -> dict[str, str]:
    """Return the variables by which jobs and their database lie in the demo's folder."""
    return {
        "ORCHESTRATOR_STATE_DIR": str(folder / "state"),
        "ORCHESTRATOR_RUNS_DIR": str(folder / "runs"),
        **({"ORCHESTRATOR_SCHEDULER": "local"} if scheduler == "local" else {}),
        **({"ORCHESTRATOR_POLL_FLOOR_SECONDS": "1"} if scheduler == "local" else {}),
    }


def prepare(folder: Path) -> None:
    """Make the demo's folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = folder / "orchestrator.toml"
        # Earlier versions of this demo wrote their settings there, which needs trust today.
        if old.is_file() and old.read_bytes().startswith(b"# Written by script/demo"):
            old.unlink()
    except OSError as error:
        raise Failed(
            f"{folder} can't be written ({error.strerror}); name another folder: --folder DIR"
        ) from error


def run(demo: Demo, scheduler: str, options: Sequence[str]) -> None:
    """Run the demo from the submission to the closing words."""
    job_id = demo.submit("submit", str(EXAMPLE), *options)
    try:
        print(f"Submitted batch job {job_id}\n", flush=True)
        demo.follow(job_id)
        state = demo.state(job_id)
        print(flush=True)
        if state != "COMPLETED":
            demo.start("logs", job_id, "-n", "20").wait()
            raise Failed(f"{job_id} ended {state}; above is the end of its log")
        demo.show("status")
        demo.show("show", job_id)
        demo.show("logs", job_id, "-n", "9")
        demo.show("metrics", job_id, "--name", "throughput")
    except (Interrupted, OSError):
        # OSError: the terminal, or what reads our output, has gone away.
        demo.cancel(job_id)
        raise
    print(closing(demo.folder, scheduler, job_id), flush=True)


def closing(folder: Path, scheduler: str, job_id: str) -> str:
    """Return what to try next."""
    submit = f"orchestrator submit {shlex.quote(str(EXAMPLE))}"
    tools = shlex.quote(str(Path(sys.executable).parent))
    where = "this machine" if scheduler == "local" else "Slurm"
    variables = "\n".join(
        f"  export {name}={shlex.quote(value)}"
        for name, value in settings(folder, scheduler).items()
    )
    text = f"""\
The job ran on {where} with two ranks. Its script, log and metrics and the database are in
{folder}. Delete the folder to remove them.
The environment is {sys.prefix}.

What to try next:
  export PATH={tools}:$PATH
{variables}
  cd {shlex.quote(str(folder))}
  orchestrator show {job_id} --script
  {submit} --set args.base_lr=0.01 --set args.epochs=3 --wait
  orchestrator status
"""
    if scheduler == "local":
        text += """
On the login node of a cluster with Slurm:
  script/demo --scheduler slurm
"""
    return f"""{text}
To run your own jobs on a cluster, draft a profile, check it, and submit to several nodes:
  orchestrator config init
  orchestrator doctor --job
  {submit} --set resources.nodes=2 --set resources.gpus_per_node=4 --wait

Next: README.md and docs/tutorial.md."""


def draws() -> bool:
    """stdout is a terminal on which a line can be drawn anew."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def main() -> int:
    """Read the arguments, run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="script/demo")
    parser.add_argument("--scheduler", choices=["local", "slurm"], default="local")
    parser.add_argument("--folder", type=Path, help="what the demo leaves lies there")
    parser.add_argument("--cpu", action="store_true", help="two ranks on the CPU, without GPUs")
    parser.add_argument("--python", help="read by script/demo")
    parser.add_argument("options", nargs="*", metavar="-- OPTION", help="more for `submit`")
    given = parser.parse_args()
    folder = (given.folder or CHECKOUT / ".demo" / given.scheduler).expanduser().absolute()
    demo = Demo(folder=folder, scheduler=given.scheduler, terminal=draws())
    try:
        with interrupts():
            if given.scheduler == "slurm" and shutil.which("sbatch") is None:
                raise Failed(
                    "sbatch not found: run the demo on a login node, or omit --scheduler slurm to "
                    "use this machine"
                )
            if given.scheduler == "local":
                require_localhost()
            prepare(folder)
            options = [*options_of(given.scheduler, given.cpu), *given.options]
            run(demo, given.scheduler, options)
    except Interrupted:
        told = "script/demo: interrupted; its job was cancelled. It can be run again."
        with contextlib.suppress(OSError):
            print(f"\n{told}", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"script/demo: {error}; its job was cancelled", file=sys.stderr)
        # What is left in the buffer would fail once more when Python ends.
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
        return 1
    except Failed as error:
        print(f"script/demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
