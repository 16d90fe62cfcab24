"""The faults of random runs: what each does, to what, and how it is undone."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import random
import threading
import time
from collections.abc import Callable, Sequence

from tests.cluster import configuration, faults, machine
from tests.cluster.faults import rows

CTL, NODES = configuration.LOGIN_HOST, configuration.NODES
REFUSED = "sbatch: error: Batch job submission failed: {}\n"
NO_ANSWER = "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n"
GARBLED = "Estimated 45 CPUs, 123 jobs before\n\x00\ufffd|\x1f\x1f12\n"
#: Rules of the wrappers; `times` of None lasts as long as the fault.
WRONG = (
    faults.Rule(command="sbatch", rc=1, stdout="", stderr=faults.SOCKET_TIMED_OUT, times=2),
    faults.Rule(command="sbatch", stdout="", times=2),
    faults.Rule(command="sbatch", stdout=GARBLED, times=2),
    faults.Rule(command="sbatch", stdout_prefix="Welcome! 123 jobs wait.\n45\n\n"),
    faults.Rule(command="sbatch", run=False, rc=1, stderr=REFUSED.format("Invalid qos"), times=1),
    faults.Rule(command="sbatch", run=False, rc=1, stderr=REFUSED.format(NO_ANSWER), times=1),
    faults.Rule(command="sbatch", delay_before_seconds=2),
    faults.Rule(command="sbatch", delay_after_seconds=3),
    *(faults.Rule(command="sbatch", kill_parent=at, times=1) for at in ("before", "after")),
    faults.Rule(command="sbatch", kill_parent="during", kill_after_seconds=0.02, times=1),
    faults.Rule(command="squeue", stdout="", times=2),
    faults.Rule(command="squeue", run=False, rc=1, stderr=NO_ANSWER),
    faults.Rule(command="squeue", stdout=GARBLED, times=1),
    faults.Rule(command="squeue", stdout_prefix="Welcome!\n\n"),
    faults.Rule(command="squeue", delay_after_seconds=4, times=1),
    faults.Rule(command="squeue", kill_parent="after", times=2),
    faults.Rule(command="sacct", stdout="", times=3),
    faults.Rule(command="sacct", run=False, rc=1, stderr="sacct: error: Problem talking\n"),
    faults.Rule(command="sacct", stdout=GARBLED, times=1),
    faults.Rule(command="sacct", delay_before_seconds=5, times=1),
    faults.Rule(command="sacct", kill_parent="after", times=1),
    faults.Rule(command="scontrol", run=False, rc=1, stderr=NO_ANSWER, times=2),
    faults.Rule(command="scancel", run=False, rc=0, times=2),
    faults.Rule(command="scancel", delay_after_seconds=2),
)
#: What a person does to a job, as root; the second command undoes it.
BY_HAND = (
    (("scontrol", "requeue"), ()),
    (("scontrol", "requeuehold"), ("scontrol", "release")),
    (("scontrol", "requeuehold", "State=SpecialExit"), ("scontrol", "release")),
    (("scontrol", "hold"), ("scontrol", "release")),
    (("scontrol", "suspend"), ("scontrol", "resume")),
    (("scancel", "-b", "-s", "STOP"), ("scancel", "-b", "-s", "CONT")),
    (("scancel",), ()),
    (("scancel", "-s", "KILL"), ()),
)
#: With ours.
BY_US = (("cancel",), ("requeue",), ("requeue", "--hold"), ("hold",), ("release",))

Undo = Callable[[], object]


class World:
    """The lab and what is wrong with it now."""

    def __init__(self, row: rows.Row) -> None:
        self.row = row
        self.lab = row.site.lab
        self.rules: list[faults.Rule] = []
        #: job IDs that were live at the last check
        self.live: Sequence[str] = ()
        #: what happened, with seconds since the start
        self.log: list[str] = []
        self._begun = time.monotonic()
        self._lock = threading.Lock()
        # The user waits for Slurm; the next fault does not wait for the user.
        self._people = concurrent.futures.ThreadPoolExecutor(2)

    def note(self, text: str) -> None:
        """Add to the log."""
        with self._lock:
            self.log.append(f"{time.monotonic() - self._begun:7.2f} {text}")

    def by_hand(self, argv: Sequence[str], job_id: str) -> None:
        """Run a command on a job as root, and do not wait for it."""

        def run() -> None:
            done = self.lab.run([*argv, job_id], user="root", timeout_seconds=90)
            self.note(f"{' '.join(argv)} {job_id}: {done.returncode} {done.stderr.strip()[:120]}")

        self._people.submit(run)

    def by_us(self, argv: Sequence[str], job_id: str) -> None:
        """Run a command of ours on a job, and do not wait for it."""

        def run() -> None:
            done = self.row.site.run(*argv, job_id, "--timeout", "5", check=None)
            self.note(f"orchestrator {' '.join(argv)} {job_id}: {done.returncode}")
            assert "Traceback" not in done.stderr, done.stderr

        self._people.submit(run)

    def end(self) -> None:
        """Wait for those who still act."""
        self._people.shutdown()

    def apply(self, rule: faults.Rule) -> Undo:
        """Put one more rule in force."""
        self.rules.append(rule)
        self.row.seen.set(*self.rules)

        def undo() -> None:
            self.rules.remove(rule)
            self.row.seen.set(*self.rules)

        return undo


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault of a plan."""

    #: What it is, for the log.
    name: str
    #: What it needs for itself: of two faults with a target in common the second is left out.
    targets: frozenset[str]
    #: Begins it and returns how it is undone.
    begin: Callable[[World], Undo]
    #: Seconds until it is undone.
    seconds: float


def pause(daemon: str, host: str, seconds: float) -> Fault:
    """A daemon that hangs."""

    def begin(world: World) -> Undo:
        world.lab.pause(daemon, host)
        return lambda: world.lab.resume(daemon, host)

    targets = {f"{host}/{daemon}"}
    name = f"{daemon} on {host} hangs"
    return Fault(name=name, targets=frozenset(targets), begin=begin, seconds=seconds)


def kill(daemon: str, host: str, seconds: float) -> Fault:
    """A daemon that crashes, and is started again. What it needs to start is left in peace."""

    def begin(world: World) -> Undo:
        world.lab.kill_daemon(daemon, host)
        return lambda: world.lab.start(daemon, host)

    needs = {"slurmctld": ("slurmdbd", "mariadbd"), "slurmdbd": ("mariadbd",)}.get(daemon, ())
    targets = {f"{host}/{name}" for name in (daemon, "munged", *needs)}
    name = f"{daemon} on {host} is killed"
    return Fault(name=name, targets=frozenset(targets), begin=begin, seconds=seconds)


def cut(host: str, seconds: float) -> Fault:
    """A host that is off the network."""

    def begin(world: World) -> Undo:
        world.lab.cut(host)
        return lambda: world.lab.heal(host)

    name = f"{host} is cut off"
    return Fault(name=name, targets=frozenset({f"net/{host}"}), begin=begin, seconds=seconds)


def wrong(rule: faults.Rule, seconds: float) -> Fault:
    """A command of Slurm's that does not do what it should."""
    plain = dataclasses.asdict(faults.Rule(command=rule.command))
    changed = {k: v for k, v in dataclasses.asdict(rule).items() if v != plain[k]}
    return Fault(
        name=f"{rule.command}: {changed}",
        targets=frozenset({f"rule/{rule.command}"}),
        begin=lambda world: world.apply(rule),
        seconds=seconds,
    )


def intervention(argv: Sequence[str], back: Sequence[str], draw: float, seconds: float) -> Fault:
    """A user acts on a job; `draw` in [0, 1) selects it."""

    def begin(world: World) -> Undo:
        if not world.live:
            return lambda: None
        job_id = world.live[int(draw * len(world.live))]
        world.by_hand(argv, job_id)
        return lambda: world.by_hand(back, job_id) if back else None

    return Fault(name=" ".join(argv), targets=frozenset(), begin=begin, seconds=seconds)


def command_of_ours(argv: Sequence[str], draw: float) -> Fault:
    """The user asks us to do something to a job."""

    def begin(world: World) -> Undo:
        if world.live:
            world.by_us(argv, world.live[int(draw * len(world.live))])
        return lambda: None

    name = f"orchestrator {' '.join(argv)}"
    return Fault(name=name, targets=frozenset(), begin=begin, seconds=0)


def full_disk(seconds: float) -> Fault:
    """A full disk under the database."""

    def begin(world: World) -> Undo:
        filler = f"{world.row.site.home}/state/filler"
        world.lab.run(["dd", "if=/dev/zero", f"of={filler}", "bs=64k"], user="root")
        return lambda: world.lab.run(["rm", "-f", filler], user="root")

    targets = frozenset({"disk"})
    return Fault(name="the state disk is full", targets=targets, begin=begin, seconds=seconds)


def read_only_disk(seconds: float) -> Fault:
    """The database cannot be written."""

    def begin(world: World) -> Undo:
        folder = f"{world.row.site.home}/state"

        def mount(how: str) -> bool:
            done = world.lab.run(["mount", "-o", f"remount,{how}", folder], user="root")
            return done.returncode == 0

        # Refused as long as a file is open for writing.
        with contextlib.suppress(TimeoutError):
            world.lab.wait_for(lambda: mount("ro"), 2, "the state disk to be read-only", 0.05)
        return lambda: mount("rw")

    targets = frozenset({"disk"})
    return Fault(name="the state disk is read-only", targets=targets, begin=begin, seconds=seconds)


def draw(chance: random.Random) -> Fault:
    """Draw one fault."""
    seconds = chance.choice((0.5, 1, 2, 4, 8))
    host = chance.choice(NODES)
    kinds: list[Callable[[], Fault]] = [
        lambda: wrong(chance.choice(WRONG), seconds),
        lambda: pause(chance.choice(("slurmctld", "slurmdbd", "mariadbd", "munged")), CTL, seconds),
        lambda: pause(chance.choice(("slurmd", "munged")), host, seconds),
        lambda: kill(chance.choice(("slurmctld", "slurmdbd", "munged")), CTL, seconds),
        lambda: kill(chance.choice(("slurmd", "munged")), host, seconds),
        lambda: cut(host, seconds),
        lambda: intervention(*chance.choice(BY_HAND), chance.random(), seconds),
        lambda: command_of_ours(chance.choice(BY_US), chance.random()),
        lambda: chance.choice((full_disk, read_only_disk))(seconds),
    ]
    (kind,) = chance.choices(kinds, weights=(7, 4, 2, 3, 2, 2, 5, 2, 2))
    return kind()


class Injector:
    """Begins faults, and undoes each when its time is up."""

    def __init__(self, world: World) -> None:
        self.world = world
        #: when to undo, what and how
        self._on: list[tuple[float, Fault, Undo]] = []

    def inject(self, fault: Fault) -> bool:
        """Begin a fault; false when another has one of its targets."""
        self.undo_due()
        if any(fault.targets & other.targets for _, other, _ in self._on):
            return False
        self.world.note(f"{fault.name}, {fault.seconds:g} s")
        try:
            undo = fault.begin(self.world)
        except machine.LabError as error:
            # slurmctld was seen to die by itself while it started (24.11.5).
            self.world.note(f"not begun: {error}")
            return False
        self._on.append((time.monotonic() + fault.seconds, fault, undo))
        return True

    def undo_due(self, *, all_: bool = False) -> None:
        """Undo what has lasted long enough, or everything."""
        now = time.monotonic()
        for item in sorted(self._on, key=lambda item: item[0]):
            if all_ or item[0] <= now:
                self._on.remove(item)
                self.world.note(f"undone: {item[1].name}")
                with contextlib.suppress(machine.LabError):
                    item[2]()

    def pause(self, seconds: float) -> None:
        """Let time pass, undoing what is due."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.undo_due()
            time.sleep(0.05)
