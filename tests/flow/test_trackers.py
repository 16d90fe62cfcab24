"""`[tracking]`: the run of a job, its requeues, its continuation jobs and the points of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

from tests.flow import command_line, test_local
from tests.unit.trackers import event_reader

here = test_local.here

#: Requeues itself, then fails for lack of memory, then completes.
TRAIN = """
import json, os, sys
names = [f"{tracker}_{name}" for tracker, known in json.loads(os.environ["NAMES"]).items()
         for name in known]
values = {name: os.environ.get(name) for name in names}
with open(os.environ["ORCHESTRATOR_TRACKING_DIR"] + "/seen", "a") as file:
    attempt = file.tell()
    file.write(json.dumps(values) + "\\n")
attempt = sum(1 for _ in open(os.environ["ORCHESTRATOR_TRACKING_DIR"] + "/seen")) - 1
for step in range(3 * attempt, 3 * attempt + 5):
    print(f"step {step} loss {step + attempt / 8}")
if "--lr" in sys.argv:
    sys.exit()
if attempt == 0:
    open(os.environ["ORCHESTRATOR_REQUEUE_FILE"], "w").close()
if attempt == 1:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
"""
#: What the script needs of the package, with a server in a file.
MLFLOW = """
import json, os, types
record = types.SimpleNamespace
FILE = os.environ["MLFLOW_TRACKING_URI"].removeprefix("sqlite:///")
def run_of(known):
    return record(info=record(run_id=known["run_id"]))
class MlflowClient:
    def __init__(self):
        self.data = {"experiment": [], "runs": []}
        if os.path.exists(FILE):
            self.data = json.load(open(FILE))
    def get_experiment_by_name(self, name):
        return record(experiment_id="7") if name in self.data["experiment"] else None
    def create_experiment(self, name, artifact_location):
        self.data["experiment"] += [name, artifact_location]
    def search_runs(self, experiments, condition, max_results):
        assert experiments == ["7"]
        return [run_of(run) for run in self.data["runs"] if run["condition"] == condition]
    def create_run(self, number, tags, run_name):
        condition = 'tags."orchestrator.run" = "%s"' % tags["orchestrator.run"]
        self.data["runs"].append({"run_id": "f00", "condition": condition, "name": run_name})
        json.dump(self.data, open(FILE, "w"))
        return run_of(self.data["runs"][-1])
"""
NAMES = {
    "WANDB": ["RUN_ID", "RESUME", "NAME", "RUN_GROUP", "DIR", "MODE", "PROJECT", "ENTITY"],
    "MLFLOW": ["RUN_ID", "EXPERIMENT_NAME", "TRACKING_URI"],
    "TRACKIO": ["DIR"],
    "ORCHESTRATOR": ["RUN_NAME"],
}
SPEC = """
[job]
name = "digits"
[launch]
script = "train.py"
[environment]
variables = {{ NAMES = '{names}', PYTHONPATH = "{packages}" }}
[tracking]
trackers = {trackers}
project = "vision"
entity = "team"
[retry]
max_retries = 2
[retry.changes.oom_device]
"environment.variables.WANDB_MODE" = "online"
{more}
"""


def write_spec(here: command_line.CommandLine, trackers: list[str], more: str = "") -> Path:
    packages = here.home / "packages"
    (packages / "mlflow").mkdir(parents=True, exist_ok=True)
    (packages / "mlflow" / "__init__.py").write_text(MLFLOW)
    (packages / "mlflow" / "exceptions.py").write_text("class MlflowException(Exception): pass\n")
    (here.folder / "train.py").write_text(TRAIN)
    text = SPEC.format(
        names=json.dumps(NAMES), packages=packages, trackers=json.dumps(trackers), more=more
    )
    return here.spec(text)


def seen(folder: Path) -> list[dict[str, str | None]]:
    return [json.loads(line) for line in (folder / "seen").read_text().splitlines()]


def test_all_attempts_and_continuation_jobs_have_one_run(here: command_line.CommandLine) -> None:
    tensorboard = here.home / "tensorboard"
    config = here.home / ".config" / "orchestrator" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(
        f'[tracking]\nsync = true\nexport = ["tensorboard"]\nexport_dir = "{tensorboard}"\n'
    )
    assert here("tick").err == "Nothing to do.\n"
    spec = write_spec(here, ["wandb", "mlflow", "trackio"])
    # Variables of the submitting shell stay, but not those of a job that submits another.
    own = {"WANDB_NAME": "outer", "WANDB_MODE": "online", "ORCHESTRATOR_TRACKING": "WANDB_NAME"}
    options = ("--scheduler", "local", "--wait", "--inherit", "WANDB_NAME")
    done = here("submit", spec, *options, **own)
    assert done.code == 0, done
    first, second = here.rows("SELECT run_dir, token FROM submissions ORDER BY id")
    folder, token = Path(first[0]) / "tracking", first[1]
    assert (Path(second[0]) / "tracking").readlink() == folder
    expected = {
        "WANDB_RUN_ID": token,
        "WANDB_RESUME": "allow",
        "WANDB_NAME": f"digits.{token}",
        "WANDB_RUN_GROUP": None,
        "WANDB_DIR": str(folder),
        "WANDB_MODE": "online",
        "WANDB_PROJECT": "vision",
        "WANDB_ENTITY": "team",
        "MLFLOW_RUN_ID": "f00",
        "MLFLOW_EXPERIMENT_NAME": "vision",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "TRACKIO_DIR": f"{folder}/trackio",
        "ORCHESTRATOR_RUN_NAME": f"digits.{token}",
    }
    assert seen(folder) == [expected] * 3
    made = json.loads((folder / "mlflow.db").read_text())
    assert made["experiment"] == ["vision", f"{folder}/mlflow"] and len(made["runs"]) == 1
    shown = here("show", "digits")
    assert f"Run page:    https://wandb.ai/team/vision/runs/{token}\n" in shown.out

    assert here("tick").code == 0
    (file,) = tensorboard.glob(f"digits.{token}/events.*")
    found = event_reader.scalars(file.read_bytes())["loss"]
    assert [(step, value) for step, _, value in found] == [
        *((step, float(step)) for step in range(3)),
        *((step, step + 1 / 8) for step in range(3, 6)),
        *((step, step + 2 / 8) for step in range(6, 11)),
    ]


def test_each_point_of_a_sweep_has_a_run_in_its_group(here: command_line.CommandLine) -> None:
    spec = write_spec(here, ["wandb"], '[sweep]\nkind = "grid"\naxes.args.lr = [1, 2]\n')
    done = here("sweep", "submit", spec, "--scheduler", "local", "--wait")
    assert done.code == 0, done
    points = [
        (found["WANDB_RUN_ID"], found["WANDB_RUN_GROUP"], found["MLFLOW_RUN_ID"])
        for path in sorted(here.runs_dir.glob("*/tracking*"))
        for found in seen(path)
    ]
    tokens = [token for (token,) in here.rows("SELECT token FROM submissions ORDER BY token")]
    if len(tokens) == 1:
        tokens = [f"{tokens[0]}-0", f"{tokens[0]}-1"]
    assert sorted(points) == [(token, "digits", None) for token in tokens]
