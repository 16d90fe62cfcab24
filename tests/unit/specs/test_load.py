"""Loading a JobSpec from a file, --set and flags, and the error messages."""

from pathlib import Path

import pytest

from orchestrator import errors, jobs, specs
from orchestrator.toml import documents

SPEC = """\
[job]
name = "wrn-cifar100"
time_limit = "01:00:00"
partition = "accel"

[resources]
nodes = 2
gpus_per_node = 4
mem = "440G"

[environment]
modules = ["NRIS/GPU"]
variables = { OMP_NUM_THREADS = "8" }

[launch]
module = "trainers.train"

[args]
batch_size = 1024
lr = 0.1
amp = true
steps = [1, "x", 2.5]

[metrics]
patterns = ["olivia"]

[sbatch]
hint = "nomultithread"
hold = true
"""


@pytest.fixture
def spec_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a good spec in the present folder."""
    monkeypatch.chdir(tmp_path)
    path = Path("spec.toml")
    path.write_text(SPEC)
    return path


def failure(text: str, *settings: str, **arguments: object) -> str:
    """Return the error message for an invalid spec in the working directory."""
    Path("spec.toml").write_text(text)
    with pytest.raises(errors.SpecError) as caught:
        specs.load(Path("spec.toml"), settings, **arguments)  # type: ignore[arg-type]
    assert caught.value.exit_code == 3
    return str(caught.value)


def with_launch(text: str) -> str:
    return f'[job]\nname = "x"\n{text}\n[launch]\nscript = "train.py"\n'


def test_a_whole_spec(spec_file: Path) -> None:
    assert specs.load(spec_file) == jobs.JobSpec(
        name="wrn-cifar100",
        time_limit="01:00:00",
        partition="accel",
        resources=jobs.Resources(nodes=2, gpus_per_node=4, mem="440G"),
        environment=jobs.Environment(modules=("NRIS/GPU",), variables={"OMP_NUM_THREADS": "8"}),
        launch=jobs.Launch(module="trainers.train"),
        args={"batch_size": 1024, "lr": 0.1, "amp": True, "steps": (1, "x", 2.5)},
        metrics=jobs.Metrics(patterns=("olivia",)),
        sbatch={"hint": "nomultithread", "hold": True},
    )


@pytest.mark.usefixtures("spec_file")
def test_all_problems_are_reported_at_once_with_lines() -> None:
    text = """\
[job]
name = "x"
mail_typ = "END"
nodes = 2
[resources]
nodes = 0
gpu_per_node = 4
mem = "16Q"
ntasks = "4"
[launch]
launcher = "torchrn"
script = "a.py"
command = "b"
"""
    assert failure(text, "resources.tmp=1.5G", flags={"resources.cpus_per_task": -1}) == (
        "--cpus-per-task: resources.cpus_per_task: must be >= 1 (got -1)\n"
        '--set: resources.tmp: must be a size such as "440G" or "16000M" (got "1.5G")\n'
        'spec.toml:3: job.mail_typ: unknown key. Did you mean "mail_type"?\n'
        '    3 | mail_typ = "END"\n'
        "spec.toml:4: job.nodes: unknown key. It belongs to [resources].\n"
        "    4 | nodes = 2\n"
        "spec.toml:6: resources.nodes: must be >= 1 (got 0)\n"
        "    6 | nodes = 0\n"
        'spec.toml:7: resources.gpu_per_node: unknown key. Did you mean "gpus_per_node"?\n'
        "    7 | gpu_per_node = 4\n"
        'spec.toml:8: resources.mem: must be a size such as "440G" or "16000M" (got "16Q")\n'
        '    8 | mem = "16Q"\n'
        'spec.toml:9: resources.ntasks: must be an integer (got "4"): write 4\n'
        '    9 | ntasks = "4"\n'
        'spec.toml:11: launch.launcher: no launcher "torchrn". Did you mean "torchrun"? '
        "Installed plugins: none. Built in: auto, torchrun, srun, python, ray\n"
        '    11 | launcher = "torchrn"\n'
        "spec.toml:13: launch.command: use only one of script and command\n"
        '    13 | command = "b"\n'
        "10 problems; nothing was submitted."
    )


LAUNCH_WORDS = "nothing to run: set module, script or command, or write a program after --"
ARGUMENT = "must be a string, a number, true or false or a list of strings and numbers"


@pytest.mark.usefixtures("spec_file")
@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "spec.toml: job.name: is missing: every job needs a name"),
        ('[job]\nname = "x"', f"spec.toml: launch: {LAUNCH_WORDS}"),
        ('[launch]\nscript = ""', "spec.toml:2: launch.script: is empty: remove the key"),
        ("[job", "spec.toml:1: not TOML: Expected ']' at the end of a table declaration"),
        ("a = 1\na = 2", "spec.toml:2: not TOML: Cannot overwrite a value"),
        ('name = "x"', "spec.toml:1: name: unknown key. It belongs to [job]."),
        ("[resource]\nx = 1", 'spec.toml:1: resource: unknown table. Did you mean "resources"?'),
        ("resources = 3", "spec.toml:1: resources: must be a table (got 3)"),
        ("[job]\ntime = 30", 'spec.toml:2: job.time: unknown key. Did you mean "time_limit"?'),
        (
            "[resources]\nzebra = 1",
            "spec.toml:2: resources.zebra: unknown key. Known here: cpus_per_task, gpu_type, "
            "gpu_vendor, gpus_per_node, gres, mem, mem_per_cpu, mem_per_gpu, nodes, ntasks, "
            "ntasks_per_node, tmp.",
        ),
        (with_launch("account = 7"), 'job.account: must be a string (got 7): write "7"'),
        (with_launch("exclusive = 1"), "job.exclusive: must be true or false (got 1)"),
        (with_launch('labels = "a=b"'), 'must be a list of strings (got "a=b"): write ["a=b"]'),
        (
            with_launch("") + '[tracking]\ntrackers = ["wandbb"]\n',
            'must be a list of "wandb", "mlflow", "trackio" (got ["wandbb"])',
        ),
        (
            with_launch('labels = ["a"]'),
            'spec.toml:3: job.labels[0]: must be "key=value" (got "a")',
        ),
        (with_launch('labels = ["a=1", "a=2"]'), "job.labels[1]: sets the key a a second time"),
        (with_launch("[resources]\nnodes = 2.0"), "resources.nodes: must be an integer (got 2.0)"),
        (
            with_launch("[resources]\nnodes = true"),
            "resources.nodes: must be an integer (got true)",
        ),
        (with_launch("time_limit = 1.5"), "job.time_limit: must be a string (got 1.5)"),
        (with_launch("time_limit = 01:00:00"), "must be a string (got 01:00:00)"),
        (with_launch('time_limit = "1h"'), 'minutes or a time such as "30", "1:30:00", "2-00"'),
        (with_launch("signal_seconds = 70000"), "job.signal_seconds: must be <= 65535 (got 70000)"),
        (
            with_launch('output = "x.out"'),
            "must contain %j, or several jobs would write to the same log",
        ),
        (
            with_launch('output = "%j-%N.out"'),
            "must not contain %N: only %j %A %a %x %u are supported",
        ),
        (with_launch('output = "%%j.out"'), "must contain %j, or several jobs"),
        (with_launch('error = "%4j"'), "must not contain %4"),
        (with_launch('output = "\\\\%j"'), "must not contain a backslash"),
        (with_launch('output = "no/such/%j"'), "job.output: no such folder: no/such"),
        (with_launch('chdir = "~/x"'), "job.chdir: ~ is not expanded here: write the whole path"),
        (with_launch('chdir = "nowhere"'), "job.chdir: no such folder: nowhere"),
        (
            with_launch(f'comment = "{"é" * 501}"'),
            "job.comment: must be at most 1000 bytes (got 1002)",
        ),
        (
            with_launch('[resources]\ngres = "gpu:1"\ngpus_per_node = 1'),
            "resources.gres: use only one of gpus_per_node and gres",
        ),
        (with_launch('[resources]\ngpu_type = "a100"'), "gpu_type: needs gpus_per_node"),
        (
            with_launch('[resources]\nmem = 16\nmem_per_cpu = "1G"'),
            "resources.mem_per_cpu: use only one of mem and mem_per_cpu",
        ),
        (with_launch('[environment]\nconda = "a"\nvenv = "b"'), "use only one of conda and venv"),
        (with_launch('[environment]\nmodules = ["-f"]'), 'must be a module\'s name (got "-f")'),
        (
            with_launch("[environment.variables]\nOMP = 8"),
            'spec.toml:4: environment.variables.OMP: must be a string (got 8): write "8"',
        ),
        (
            with_launch('[environment.variables]\n"A B" = "x"'),
            'environment.variables."A B": must be a variable name: letters, digits and _,',
        ),
        (
            with_launch('[environment.variables]\nSLURM_X = "x"'),
            "SLURM_X: is reserved for Slurm: export it in environment.setup if necessary",
        ),
        (with_launch('[environment]\nsecrets_file = "no"'), "secrets_file: no such file: no"),
        (with_launch('[container]\nimage = "x.sif"'), "needs a runtime: set container.runtime"),
        (
            with_launch('[container]\ngpu = "nv"'),
            "container.gpu: needs a runtime: set container.runtime",
        ),
        (
            with_launch('[container]\nruntime = "apptainer"'),
            "container.image: is missing: apptainer needs one",
        ),
        (
            with_launch('[container]\nruntime = "apptainer"\nimage = "docker://a/b"'),
            "every node would download docker://: build a SIF first: apptainer build "
            "IMAGE.sif docker://a/b",
        ),
        (
            with_launch('[container]\nruntime = "apptainer"\nimage = "no.sif"'),
            "spec.toml:5: container.image: no such image: no.sif",
        ),
        (
            with_launch('[container]\nruntime = "podman-hpc"\nimage = "docker://a/b"'),
            "podman-hpc knows images by name: run `podman-hpc pull docker://a/b` once, and write "
            "the name without docker://",
        ),
        (
            with_launch('[container]\nruntime = "podman-hpc"\nimage = "./a.sif"'),
            "is a file, and podman-hpc runs images by name: see `podman-hpc images`",
        ),
        (
            with_launch('[container]\nruntime = "charliecloud"\nimage = "/"\nbinds = ["/:/x:ro"]'),
            "container.binds[0]: charliecloud cannot bind read-only: remove :ro, and the job can "
            "write there",
        ),
        (
            with_launch('[container]\nruntime = "charliecloud"\nimage = "/"\ngpu = "nv"'),
            "container.gpu: is not for charliecloud: remove it. ch-run has no option for GPUs: run "
            "`ch-fromhost --nvidia IMAGE` once, which copies the driver's libraries into the image",
        ),
        (
            with_launch('[container]\nruntime = "edf"\nimage = "torch.toml"'),
            "container.image: no such image: torch.toml",
        ),
        (
            with_launch('[sbatch]\nenvironment = "torch"'),
            "sbatch.environment: is not allowed: the whole script would run in the container, "
            'without Slurm\'s commands: use container.runtime = "edf"',
        ),
        (
            with_launch('[container]\nruntime="pyxis"\nimage="a#b"\nbinds=["/no:/x"]'),
            "container.binds[0]: no such folder or file to bind: /no",
        ),
        (
            with_launch('[container]\nruntime="pyxis"\nimage="a#b"\nbinds=["x:/x"]'),
            'must be "/host/path" or "/host/path:/path/inside", optionally followed by ":ro" '
            '(got "x:/x")',
        ),
        (
            with_launch("[resources]\nnodes = 2") + 'rendezvous = "standalone"',
            "standalone is for one node (nodes is 2): use auto or c10d",
        ),
        (
            with_launch("") + 'launcher = "srun"',
            "srun needs the ranks: set resources.ntasks_per_node or gpus_per_node",
        ),
        (
            with_launch("") + 'launcher = "python"\nnproc_per_node = 2',
            "launch.nproc_per_node: needs the launcher torchrun",
        ),
        (
            '[job]\nname = "x"\n[launch]\nprogram = ["./bench"]\nnproc_per_node = 2',
            "launch.nproc_per_node: needs the launcher torchrun (auto: ./bench is not a Python "
            "script or module, so it runs as it is)",
        ),
        (
            with_launch("[resources]\nnodes = 2\nntasks = 3"),
            "resources.ntasks: 3 ranks cannot be divided among 2 nodes",
        ),
        (with_launch("") + "nproc_per_node = true", 'must be an integer or "auto" (got true)'),
        (with_launch("") + "[args]\nx = 2020-01-01", f"args.x: {ARGUMENT} (got 2020-01-01)"),
        (with_launch("") + "[args]\nx = nan", f"args.x: {ARGUMENT} (got nan)"),
        (with_launch("") + "[args.x]\ny = 1", f"args.x: {ARGUMENT} (got a table)"),
        (
            with_launch("") + '[args]\n"-x" = 1',
            "args.-x: must be an argument's name without dashes",
        ),
        (
            '[job]\nname="x"\n[launch]\ncommand="run"\n[args]\nx = 1',
            "spec.toml:5: args: cannot be combined with launch.command: write the arguments after "
            "the command",
        ),
        ('[job]\nname="x"\n[launch]\nmodule="a b"', "must be a Python module such as"),
        (
            with_launch("") + '[sbatch]\nwrap = "x"',
            "sbatch.wrap: is not allowed: orchestrator submits its",
        ),
        (
            with_launch("") + '[sbatch]\narray = "0-3"',
            "sbatch.array: is not allowed: use the table [array], with tasks or size",
        ),
        (with_launch("[array]\nsize = 0"), "array.size: must be >= 1 (got 0)"),
        (with_launch("[alerts]\nstalled_minutes = -1"), "alerts.stalled_minutes: must be >= 0"),
        (with_launch("[retry]\nbackoff_seconds = 5"), "retry: has no effect without max_retries"),
        (
            with_launch('[retry]\nmax_retries = 1\non = ["preempt"]'),
            'retry.on[0]: not a cause after which a retry can help. Did you mean "preempted"?',
        ),
        (
            with_launch('[retry]\nmax_retries = 1\non = ["python_exception"]'),
            "retry.on[0]: not a cause after which a retry can help. Known: ",
        ),
        (
            with_launch('[retry]\nmax_retries = 1\non = ["oom_host"]'),
            "retry.on[0]: oom_host would happen again if nothing changes: add",
        ),
        (
            with_launch(
                '[retry]\nmax_retries = 1\n[retry.changes.oom_host]\n"resources.men" = "x2"'
            ),
            "resources.men cannot be changed",
        ),
        (with_launch("[alerts]\nslow_percent = 100"), "alerts.slow_percent: must be <= 99"),
        (with_launch("[array]\nmax_running = 2"), "array.max_running: needs array.tasks or"),
        (with_launch("[array]\ntasks = []"), "array.tasks: is empty: add a task"),
        (with_launch("[array]\ntasks = 4"), "array.tasks: must be a list of tables (got 4)"),
        (with_launch("[array]\nsize = 2\ntasks = [{}]"), "use only one of tasks and size"),
        (with_launch("[array]\nmax_runing = 2"), 'Did you mean "max_running"?'),
        (
            with_launch("[[array.tasks]]\nlr = 0.1\n[[array.tasks]]\nlr = inf"),
            "spec.toml:6: array.tasks[1].lr: must be a string, a number, true or false or a list",
        ),
        (
            with_launch('[[array.tasks]]\n"-x" = 1'),
            "spec.toml:4: array.tasks[0].-x: must be an argument's name without dashes",
        ),
        (
            '[job]\nname = "x"\n[launch]\ncommand = "a"\n[array]\ntasks = [{}, {}]',
            "array.tasks: cannot be combined with launch.command, which takes no arguments: "
            "set array.size and read $SLURM_ARRAY_TASK_ID there",
        ),
        (
            with_launch("") + "[sbatch]\nwait = true",
            "sbatch.wait: is not allowed: use submit --wait",
        ),
        (
            with_launch("") + '[sbatch]\npartition = "x"',
            "sbatch.partition: has its own key: use job.partition",
        ),
        (with_launch("") + '[sbatch]\np = "x"', "has its own key: use job.partition"),
        (
            with_launch("") + '[sbatch]\npart = "x"',
            "is an abbreviation of partition: use job.partition",
        ),
        (with_launch("") + '[sbatch]\nL = "x"', 'sbatch.L: write the long option: "licenses"'),
        (with_launch("") + "[sbatch]\nno_kill = true", 'writes it with dashes: "no-kill"'),
        (with_launch("") + '[sbatch]\n"x y" = 1', "must be a long option of sbatch without its"),
        (
            with_launch("") + '[metrics]\npatterns = ["a b"]',
            'must be a pattern\'s name (got "a b")',
        ),
    ],
)
def test_each_problem_names_the_valid_value(text: str, reported: str) -> None:
    assert reported in failure(text)


@pytest.mark.parametrize("option", ["gpus", "licenses", "mem-bind", "time-min", "container"])
def test_other_options_of_sbatch_pass(spec_file: Path, option: str) -> None:
    assert specs.load(spec_file, [f"sbatch.{option}=1"]).sbatch[option] == 1


@pytest.mark.usefixtures("spec_file")
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "spec.toml: not UTF-8 text (line 1)\n1 problem; nothing was submitted."),
        (b"a = 1 \x1b[31m", "spec.toml:1: not TOML: "),
        (b"a = " + b"[" * 100_000, "spec.toml:1: a[0][0]: nested too deeply"),
        (b"#" * (4 * 1024 * 1024 + 1), "spec.toml: larger than 4 MiB"),
    ],
)
def test_invalid_toml_files(content: bytes, message: str) -> None:
    Path("spec.toml").write_bytes(content)
    with pytest.raises(errors.SpecError) as caught:
        specs.load(Path("spec.toml"))
    assert str(caught.value).startswith(message)
    assert "\x1b" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(errors.SpecError, match=r"no\.toml: cannot be read: No such file"):
        specs.load(tmp_path / "no.toml")
    with pytest.raises(errors.SpecError, match="cannot be read: not a regular file but a folder"):
        specs.load(tmp_path)


def test_windows_line_ends_and_byte_order_mark_are_accepted(spec_file: Path) -> None:
    expected = specs.load(spec_file)
    spec_file.write_bytes(b"\xef\xbb\xbf" + SPEC.replace("\n", "\r\n").encode())
    assert specs.load(spec_file) == expected


def test_the_command_line_wins_over_set_over_variables_over_the_file(spec_file: Path) -> None:
    environ = {"ORCHESTRATOR_PARTITION": "env", "ORCHESTRATOR_ACCOUNT": "env", "PATH": "x"}
    settings = ["job.partition=set", "resources.nodes=3"]
    flags = {"job.partition": "flag", "resources.mem": None, "job.labels": ()}
    assert specs.load(spec_file).partition == "accel"
    assert specs.load(spec_file, environ=environ).partition == "env"
    assert specs.load(spec_file, settings, environ=environ).partition == "set"
    spec = specs.load(spec_file, settings, flags, environ=environ)
    assert (spec.partition, spec.account, spec.resources.nodes) == ("flag", "env", 3)
    assert spec.resources.mem == "440G"


def test_values_of_set(spec_file: Path) -> None:
    spec = specs.load(
        spec_file,
        [
            "job.account=4711",
            'job.qos="quoted"',
            "job.time_limit=02:00:00",
            "job.exclusive=true",
            "args.lr=1e-3",
            "args.day=2026-01-01",
            'args."a.b"=x = y',
            "environment.variables.N=007",
            'environment.modules=["a", "b"]',
            "launch.nproc_per_node=2",
            "sbatch.hold=false",
        ],
    )
    assert (spec.account, spec.qos, spec.time_limit) == ("4711", "quoted", "02:00:00")
    assert (spec.exclusive, spec.launch.nproc_per_node) == (True, 2)
    assert (spec.args["lr"], spec.args["day"], spec.args["a.b"]) == (0.001, "2026-01-01", "x = y")
    assert spec.environment.variables == {"OMP_NUM_THREADS": "8", "N": "007"}
    assert spec.environment.modules == ("a", "b")
    assert spec.sbatch == {"hint": "nomultithread"}


@pytest.mark.parametrize("setting", ["foo", "=1", "a..b=1", "job.name"])
def test_invalid_set_options(spec_file: Path, setting: str) -> None:
    with pytest.raises(errors.SpecError) as caught:
        specs.load(spec_file, [setting])
    reported = f'--set: write KEY=VALUE, such as resources.nodes=2 (got "{setting}")'
    assert str(caught.value) == f"{reported}\n1 problem; nothing was submitted."


def test_set_with_an_empty_value_overrides_the_file(spec_file: Path) -> None:
    settings = ["environment.modules=[]", "environment.variables={}", "args={}", "job.time_limit="]
    settings += ['resources.mem=""', "metrics.patterns=[]", "job.partition=", "sbatch={}"]
    spec = specs.load(spec_file, [*settings, "args.steps=[]"])
    assert (spec.environment.modules, spec.environment.variables) == ((), {})
    assert (spec.args, spec.sbatch, spec.metrics.patterns) == ({"steps": ()}, {}, ())
    assert (spec.time_limit, spec.resources.mem) == (None, None)
    # Not None, which would be the profile's.
    assert spec.partition == ""
    # The order counts.
    assert specs.load(spec_file, ["args.x=1", "args={}"]).args == {}
    assert specs.load(spec_file, ["args={}", "args.x=1"]).args == {"x": 1}
    # A flag that is not given empties nothing.
    spec = specs.load(spec_file, flags={"environment.modules": (), "job.account": None})
    assert spec.environment.modules == ("NRIS/GPU",)


@pytest.mark.usefixtures("spec_file")
def test_an_empty_value_that_cannot_override() -> None:
    assert failure(SPEC, "launch.launcher=").startswith(
        "--set: launch.launcher: is empty: remove the key\n"
    )
    assert failure(SPEC, flags={"job.account": ""}).startswith(
        "--account: job.account: is empty: leave it out, or write --set job.account= to use none\n"
    )
    batch = documents.of({"job": {"name": "x", "comment": "hi"}}, "x.sbatch")
    with pytest.raises(errors.SpecError) as caught:
        specs.load(None, ["job.comment="], batch=batch)
    assert str(caught.value).startswith(
        "x.sbatch: job.comment: cannot be removed from a batch file: change the file\n"
    )


@pytest.mark.usefixtures("spec_file")
@pytest.mark.parametrize(
    ("table", "key"), [("container", "image"), ("launch", "script"), ("environment", "venv")]
)
def test_an_empty_value_is_one_problem(table: str, key: str) -> None:
    text = '[job]\nname = "x"\n[launch]\n' + ("" if table == "launch" else 'command = "a"\n')
    if table != "launch":
        text += f"[{table}]\n" + ('runtime = "apptainer"\n' if table == "container" else "")
    line = text.count("\n") + 1
    assert failure(f'{text}{key} = ""', folder=Path()) == (
        f"spec.toml:{line}: {table}.{key}: is empty: remove the key\n"
        f'    {line} | {key} = ""\n1 problem; nothing was submitted.'
    )


def test_plain_numbers_stand_where_slurm_takes_them(spec_file: Path) -> None:
    spec_file.write_text(with_launch("time_limit = 30\n[resources]\nmem = 16000\ntmp = 5"))
    spec = specs.load(spec_file)
    assert (spec.time_limit, spec.resources.mem, spec.resources.tmp) == ("30", "16000", "5")


@pytest.mark.parametrize(
    ("settings", "flags", "program", "key", "value"),
    [
        (["resources.gres=gpu:1"], {}, (), "resources.gpus_per_node", None),
        ([], {"resources.mem_per_cpu": "1G"}, (), "resources.mem", None),
        (["launch.script=a.py"], {}, (), "launch.module", None),
        (["launch.script=a.py"], {"launch.command": "x"}, (), "launch.script", None),
    ],
)
def test_a_key_overrides_alternative_keys_of_lower_layers(
    spec_file: Path,
    settings: list[str],
    flags: dict[str, object],
    program: tuple[str, ...],
    key: str,
    value: object,
) -> None:
    spec_file.write_text(SPEC[: SPEC.index("[args]")])
    table, _, name = key.partition(".")
    spec = specs.load(spec_file, settings, flags, program)
    assert getattr(getattr(spec, table), name) == value


def test_alternative_keys_in_one_layer_are_reported(spec_file: Path) -> None:
    flags = {"resources.gres": "gpu:1", "resources.gpus_per_node": 2}
    with pytest.raises(errors.SpecError, match=r"^--gres: resources\.gres: use only one of"):
        specs.load(spec_file, flags=flags)


def test_a_program_replaces_what_the_file_runs_and_not_its_args_silently(spec_file: Path) -> None:
    with pytest.raises(
        errors.SpecError, match=r"spec\.toml:18: args: cannot be combined with launch\.prog"
    ):
        specs.load(spec_file, program=["b.py"])
    spec_file.write_text(SPEC[: SPEC.index("[args]")])
    launch = specs.load(spec_file, program=["b.py"]).launch
    assert (launch.module, launch.program) == (None, ("b.py",))


def test_without_a_file_flags_are_enough() -> None:
    flags = {"job.name": "x", "resources.nodes": 2, "environment.variables": ("A=1", "B=c=d")}
    spec = specs.load(None, flags=flags, program=["train.py"])
    assert (spec.name, spec.resources.nodes) == ("x", 2)
    assert spec.environment.variables == {"A": "1", "B": "c=d"}
    with pytest.raises(errors.SpecError) as caught:
        specs.load(None, flags={"environment.variables": ("A",)})
    assert str(caught.value) == (
        '--variable: write NAME=VALUE (got "A")\n'
        "command line: job.name: is missing: every job needs a name\n"
        f"command line: launch: {LAUNCH_WORDS}\n"
        "3 problems; nothing was submitted."
    )


@pytest.mark.parametrize(
    ("mode", "text", "reported"),
    [
        (0o640, "A=1\n", "my file can be read by other users: run chmod 600"),
        (0o604, "A=1\n", "my file can be read by other users: run chmod 600"),
        (0o600, "# keys\n\nA=1\nexport B=s3cret", "my file, line 4: write NAME=VALUE"),
        (0o600, "2A=s3cret\n", "my file, line 1: write NAME=VALUE"),
        (0o600, 'A=$(x) "y" \xff=\n_b=', None),
    ],
)
def test_a_secrets_file_is_looked_at_before_the_job_is_sent(
    tmp_path: Path, mode: int, text: str, reported: str | None
) -> None:
    file = tmp_path / "my file"
    file.write_text(text, encoding="latin-1")
    file.chmod(mode)
    settings = ["environment.secrets_file=my file"]
    flags = {"job.name": "x"}
    if reported is None:
        specs.load(None, settings, flags, ["x"], folder=tmp_path)
        return
    with pytest.raises(errors.SpecError) as caught:
        specs.load(None, settings, flags, ["x"], folder=tmp_path)
    assert str(caught.value) == (
        f"--set: environment.secrets_file: {reported}\n1 problem; nothing was submitted."
    )


def test_files_are_looked_for_from_the_jobs_folder_and_only_if_asked(tmp_path: Path) -> None:
    flags = {
        "job.name": "x",
        "job.chdir": "work",
        "container.runtime": "apptainer",
        "container.image": "a.sif",
    }
    with pytest.raises(errors.SpecError, match=r"--chdir: job\.chdir: no such folder: work"):
        specs.load(None, flags=flags, program=["x"], folder=tmp_path)
    assert specs.load(None, flags=flags, program=["x"], folder=None)
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "a.sif").touch()
    assert specs.load(None, flags=flags, program=["x"], folder=tmp_path)
