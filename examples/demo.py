"""Submits the digits trainer on two ranks, follows it and shows its results; run by script/demo.

It calls only the `orchestrator` command, as a user or a script would.
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
#: Exit code after Ctrl-C, as in a shell.
INTERRUPTED = 130

STARTED = re.compile(r"Training started with (\d+) processes")
EPOCH = re.compile(r"Epoch (\d+)/(\d+) completed in")
ACCURACY = re.compile(r"Validation Accuracy: ([\d.]+)")
THROUGHPUT = re.compile(r"Epoch Throughput: ([\d.]+) images/second")


class Interrupted(Exception):
    """The demo was interrupted by Ctrl-C or a signal."""


class Failed(Exception):
    """The demo cannot continue; the message names a fix."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Update:
    """Progress of the job, parsed from its log."""

    #: Text for the user.
    line: str
    #: The completed epoch, counted from 1; None for other updates.
    epoch: int | None = None
    #: The number of epochs.
    epochs: int | None = None


class Bar:
    """A progress bar on a terminal, otherwise one line per update."""

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

    def show(self, update: Update) -> None:
        """Show an update."""
        if self._progress is None:
            print(update.line, flush=True)
        elif update.epoch is None:
            self._progress.update(self._task, description=update.line)
        else:
            self._progress.update(
                self._task, description=update.line, completed=update.epoch, total=update.epochs
            )


class Reader:
    """Parses the trainer's log into updates, one per epoch."""

    def __init__(self) -> None:
        self._epoch = ("", "")
        self._accuracy = ""

    def read(self, line: str) -> Update | None:
        """Return the update that a line completes."""
        if match := STARTED.search(line):
            return Update(line=f"training on {match[1]} ranks")
        if match := EPOCH.search(line):
            self._epoch = (match[1], match[2])
        elif match := ACCURACY.search(line):
            self._accuracy = match[1]
        elif (match := THROUGHPUT.search(line)) and self._epoch[0]:
            epoch, epochs = self._epoch
            rate = f"{float(match[1]):,.0f} images/second"
            text = f"epoch {epoch}/{epochs}  {rate}  accuracy {self._accuracy}"
            return Update(line=text, epoch=int(epoch), epochs=int(epochs))
        return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Demo:
    """Calls the `orchestrator` command in the folder of the demo."""

    #: Folder of the jobs and the database.
    folder: Path
    scheduler: str
    #: Whether stdout is a terminal that can show a progress bar.
    terminal: bool

    def start(self, *argv: str, stdout: int | None = None) -> subprocess.Popen[str]:
        """Start a command in a new session, so that Ctrl-C interrupts only the demo."""
        # torchrun is in the folder of this Python, also outside a venv.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        return subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *folders(self.folder), *argv],
            cwd=CHECKOUT,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )

    def show(self, *argv: str) -> None:
        """Print a command as a user would type it, and run it."""
        self.announce(*argv)
        code = self.start(*argv).wait()
        if code:
            raise Failed(f"`orchestrator {argv[0]}` exited with code {code}, see above")
        print(flush=True)

    def announce(self, *argv: str) -> None:
        """Print a command as a user would type it in the checkout."""
        print(f"$ {typed(self.folder, *argv)}", flush=True)

    def submit(self, *argv: str) -> str:
        """Submit the example; return the job's ID."""
        self.announce(*argv)
        process = self.start(*argv, "--parsable", stdout=subprocess.PIPE)
        try:
            out, _ = process.communicate()
        except Interrupted:
            # Let the submission finish, which takes seconds, so that its job can be cancelled.
            out, _ = process.communicate()
            self.cancel(out.strip())
            raise
        if process.returncode:
            raise Failed("the job was not submitted, see above")
        return str(out).strip()

    def state(self, job_id: str) -> str:
        """Return the state of the job."""
        process = self.start("show", job_id, "--refresh", "--json", stdout=subprocess.PIPE)
        out, _ = process.communicate()
        return str(json.loads(out)["items"][0]["state"]) if process.returncode == 0 else "unknown"

    def follow(self, job_id: str) -> None:
        """Show the progress of the job until it ends."""
        log = self.start("logs", job_id, "--follow", stdout=subprocess.PIPE)
        assert log.stdout is not None
        reader = Reader()
        try:
            with Bar(self.terminal) as bar:
                bar.show(Update(line=f"{job_id} is starting (loading PyTorch takes longest)"))
                for line in log.stdout:
                    if update := reader.read(line):
                        bar.show(update)
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
    """Raise Interrupted on the first SIGINT, SIGTERM or SIGHUP; ignore later ones."""

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
    """Return the options of `submit` for two ranks, on this machine or on the cluster."""
    # NCCL does not support two ranks on one GPU.
    on_cpu = cpu or (scheduler == "local" and num_gpus() < 2)
    words = ["--nproc-per-node", "2", "--set", "resources.gpus_per_node=0"]
    options = words if on_cpu else ["--set", "resources.gpus_per_node=2"]
    if scheduler == "local":
        options += ["--scheduler", "local"]
    if sys.prefix != sys.base_prefix:
        options += ["--venv", sys.prefix]
    return options


def require_localhost() -> None:
    """Fail if `localhost` cannot be resolved: torchrun --standalone would wait for it."""
    try:
        socket.getaddrinfo("localhost", None)
    except OSError as error:
        raise Failed(
            f"localhost cannot be resolved ({error.strerror}), and torchrun requires it; as root: "
            "echo '127.0.0.1 localhost' >> /etc/hosts"
        ) from error


def folders(folder: Path) -> list[str]:
    """Return the options that put jobs and database into the folder of the demo."""
    return ["--state-dir", str(folder / "state"), "--runs-dir", str(folder / "runs")]


def typed(folder: Path, *argv: str) -> str:
    """Return a command that works in the checkout, whatever PATH and the configuration are."""
    program = Path(sys.executable).with_name("orchestrator")
    words = [str(program)] if program.exists() else [sys.executable, "-m", "orchestrator"]
    # Paths relative to the checkout are shorter.
    options = folders(folder) if argv[0] == "submit" else folders(folder)[:2]
    short = [word.removeprefix(f"{CHECKOUT}/") for word in (*words, *options, *argv)]
    return shlex.join(short)


def prepare(folder: Path) -> None:
    """Create the folder of the demo."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        old = folder / "orchestrator.toml"
        # Earlier versions of the demo wrote their settings to this file, which now requires trust.
        if old.is_file() and old.read_bytes().startswith(b"# Written by script/demo"):
            old.unlink()
    except OSError as error:
        raise Failed(
            f"cannot write to {folder} ({error.strerror}); set another folder with --folder DIR"
        ) from error


def run(demo: Demo, scheduler: str, options: Sequence[str]) -> None:
    """Run the demo from the submission to the closing text."""
    if Path.cwd() != CHECKOUT:
        print(f"$ cd {shlex.quote(str(CHECKOUT))}")
    job_id = demo.submit("submit", str(EXAMPLE), *options)
    try:
        print(f"Submitted batch job {job_id}\n", flush=True)
        demo.follow(job_id)
        state = demo.state(job_id)
        print(flush=True)
        if state != "COMPLETED":
            demo.start("logs", job_id, "-n", "20").wait()
            raise Failed(f"{job_id} ended in state {state}; the end of its log is above")
        demo.show("status")
        demo.show("show", job_id)
        demo.show("logs", job_id, "-n", "9")
        demo.show("metrics", job_id, "--name", "throughput")
    except (Interrupted, OSError):
        # OSError: stdout was closed.
        demo.cancel(job_id)
        raise
    print(closing(demo.folder, scheduler, options, job_id), flush=True)


def closing(folder: Path, scheduler: str, options: Sequence[str], job_id: str) -> str:
    """Return the closing text with next steps. The commands of each block can be pasted."""
    where = "this machine" if scheduler == "local" else "Slurm"
    checkout = shlex.quote(str(CHECKOUT))
    faster = ["submit", str(EXAMPLE), *options, "--set", "args.base_lr=0.01"]
    text = f"""\
The job ran on {where} with two ranks. Its script, log and metrics and the database are in
{folder}. Delete the folder to remove them.
The environment is {sys.prefix}.

What to try next:
  cd {checkout}
  {typed(folder, "logs", job_id)}
  {typed(folder, "metrics", job_id)}
  {typed(folder, *faster, "--set", "args.epochs=3", "--wait")}
  {typed(folder, "show", job_id, "--script")}
"""
    tools = shlex.quote(str(Path(sys.executable).parent))
    # On a machine with neither a GPU nor Slurm the spec runs as it is, with the PATH of this block.
    is_plain = scheduler == "local" and not num_gpus() and shutil.which("sbatch") is None
    own_options = "" if is_plain else f"{shlex.join(options)} "
    own = f"""
A script of your own instead of the included trainer, with your own database:
  cd {checkout}/examples/own
  export PATH={tools}:$PATH
  orchestrator submit train.toml {own_options}--wait
  orchestrator metrics train
"""
    if scheduler == "local":
        return f"""{text}{own}
On the login node of a cluster with Slurm:
  cd {checkout}
  script/demo --scheduler slurm

Next: README.md and docs/tutorial.md."""
    return f"""{text}{own}
To run your own jobs on this cluster, draft a profile, check it, and submit to several nodes:
  cd {checkout}
  export PATH={tools}:$PATH
  orchestrator config init
  orchestrator doctor --job
  orchestrator submit examples/digits_ddp.toml --venv {shlex.quote(sys.prefix)} \\
      --set resources.nodes=2 --set resources.gpus_per_node=4 --wait

Next: README.md and docs/tutorial.md."""


def draws() -> bool:
    """Return whether stdout is a terminal that can redraw a line."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def main() -> int:
    """Read the arguments, run the demo and return the exit code."""
    parser = argparse.ArgumentParser(prog="script/demo")
    parser.add_argument(
        "--scheduler", choices=["local", "slurm"], default="local", help="default: local"
    )
    parser.add_argument("--folder", type=Path, help="folder for all files of the demo")
    parser.add_argument("--cpu", action="store_true", help="train on the CPU")
    parser.add_argument("--python", help="Python with orchestrator and torch")
    parser.add_argument(
        "options", nargs="*", metavar="-- OPTION", help="passed to `orchestrator submit`"
    )
    args = parser.parse_args()
    folder = (args.folder or CHECKOUT / ".demo" / args.scheduler).expanduser().absolute()
    demo = Demo(folder=folder, scheduler=args.scheduler, terminal=draws())
    try:
        with interrupts():
            if args.scheduler == "slurm" and shutil.which("sbatch") is None:
                raise Failed(
                    "sbatch not found: run the demo on a login node, or omit --scheduler slurm to "
                    "use this machine"
                )
            if args.scheduler == "local":
                require_localhost()
            prepare(folder)
            options = [*options_of(args.scheduler, args.cpu), *args.options]
            run(demo, args.scheduler, options)
    except Interrupted:
        with contextlib.suppress(OSError):
            print("\nscript/demo: interrupted; the job was cancelled.", file=sys.stderr)
        return INTERRUPTED
    except OSError as error:
        with contextlib.suppress(OSError):
            print(f"script/demo: {error}; the job was cancelled", file=sys.stderr)
        # Flushing the buffer when Python exits would fail again.
        with open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), 1)
        return 1
    except Failed as error:
        print(f"script/demo: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
