"""Flags: one for every key of job and resources, without slow imports."""

import dataclasses
import subprocess
import sys
import typing

import pytest

from orchestrator import jobs, specs
from orchestrator.specs import toml_tables
from orchestrator.toml import schema


def test_every_key_of_job_and_resources_has_the_flag_of_its_name() -> None:
    expected = {
        f"{table}.{key}": key.replace("_", "-")
        for table in ("job", "resources")
        for key in schema.fields_of(schema.hint_at(toml_tables.FILE, (table,)))
    }
    names = {flag.key: flag.names[0] for flag in specs.FLAGS}
    assert {key: names.get(key) for key in expected} == expected
    assert {field.name for field in dataclasses.fields(jobs.Resources)} < {
        key.partition(".")[2] for key in names
    }


def test_names_are_unique() -> None:
    names = [name for flag in specs.FLAGS for name in flag.names]
    assert len(names) == len(set(names))
    parameters = [flag.parameter for flag in specs.FLAGS]
    assert len(parameters) == len(set(parameters))


VALUES: dict[str, object] = {
    "job.partition": "accel",
    "job.mail_type": "END",
    "job.mail_user": "me",
    "job.dependency": "singleton",
    "job.output": "x-%j.out",
    "job.error": "x-%j.err",
    "job.chdir": "/",
    "job.labels": ("team=vision",),
    "job.time_limit": "30",
    "resources.gres": "gpu:1",
    "container.runtime": "pyxis",
    "container.image": "nvcr.io#x/y",
    "container.binds": ("/:/host",),
    "container.gpu": "nv",
    "launch.command": "true",
    "launch.launcher": "python",
    "launch.rendezvous": "c10d",
    "launch.nproc_per_node": "2",
    "environment.variables": ("A=b=c",),
}
CONTEXT: dict[str, dict[str, object]] = {
    "container.runtime": {"container.image": "/"},
    "container.image": {"container.runtime": "pyxis"},
    "container.binds": {"container.runtime": "pyxis", "container.image": "nvcr.io#x/y"},
    "container.gpu": {"container.runtime": "pyxis", "container.image": "nvcr.io#x/y"},
    "resources.gpu_type": {"resources.gpus_per_node": 1},
    "resources.mem_per_gpu": {"resources.gpus_per_node": 1},
    "array.max_running": {"array.size": 8},
}


@pytest.mark.parametrize("flag", specs.FLAGS, ids=lambda flag: flag.key)
def test_each_flag_reaches_the_spec(flag: specs.Flag) -> None:
    assert flag.help.endswith(".")
    value = VALUES.get(flag.key)
    if value is None and schema.is_choice(flag.kind):
        value = typing.get_args(flag.kind)[0]
    elif value is None:
        text = "16" if "mem" in flag.key or flag.key == "resources.tmp" else "x"
        value = {str: text, int: 3, bool: True}.get(flag.kind, ("x",))
    flags = {"job.name": "x", **CONTEXT.get(flag.key, {}), flag.key: value}
    program = () if flag.key == "launch.command" else ("train.py",)
    spec = specs.load(None, flags=flags, program=program)
    table, _, key = flag.key.partition(".")
    result = getattr(spec if table == "job" else getattr(spec, table), key)
    expected = {"environment.variables": {"A": "b=c"}, "launch.nproc_per_node": 2}
    assert result == expected.get(flag.key, value)


def test_flags_need_neither_pydantic_nor_anything_else_that_is_slow() -> None:
    code = (
        "import sys; from orchestrator import specs; assert specs.FLAGS;"
        "print([m for m in ('pydantic', 'jinja2', 'sqlalchemy', 'submitit', 'rich', 'click')"
        " if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"
