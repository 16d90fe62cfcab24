"""Templates of users and their errors."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator import errors, fabrics, jobs
from orchestrator.config import profiles
from orchestrator.rendering import job_script, templates

SPEC = jobs.JobSpec(
    name="digits",
    resources=jobs.Resources(nodes=2),
    launch=jobs.Launch(module="trainers.train"),
)
ORIGIN = templates.Origin(version="0.1.0", spec="digits.toml")
EXTENDS = '{% extends "orchestrator/job.sbatch.j2" %}\n'


def _make(
    templates_dir: Path | None = None,
    spec: jobs.JobSpec = SPEC,
    *,
    shared_folders: Sequence[Path] = (),
) -> templates.Script:
    return job_script.render(
        spec,
        profiles.Profile(),
        runs_dir=Path("/runs"),
        templates_dir=templates_dir,
        shared_folders=shared_folders,
        origin=ORIGIN,
    )


def _render(templates_dir: Path | None = None, spec: jobs.JobSpec = SPEC) -> str:
    return _make(templates_dir, spec).text


def _hash(templates_dir: Path | None = None, spec: jobs.JobSpec = SPEC) -> str:
    return _make(templates_dir, spec).template_hash


def _body(script: str) -> str:
    return script.partition("# ---- Prologue")[2]


def test_the_header_names_the_origin_of_the_script() -> None:
    assert _render().splitlines()[:4] == [
        "#!/bin/bash",
        "# Made by orchestrator 0.1.0 from digits.toml",
        f"# Template job.sbatch.j2, sha256 {_hash()}",
        "#SBATCH --job-name=digits",
    ]


def test_the_hash_is_that_of_the_sources_in_use() -> None:
    longer = jobs.JobSpec(
        name="other",
        resources=jobs.Resources(nodes=3),
        launch=jobs.Launch(module="trainers.train"),
        args={"epochs": 3},
    )
    assert _hash() == _hash(spec=longer)
    one_node = jobs.JobSpec(name="digits", launch=jobs.Launch(module="trainers.train"))
    assert _hash() != _hash(spec=one_node)


def test_a_block_is_extended(tmp_path: Path) -> None:
    (tmp_path / "job.sbatch.j2").write_text(
        EXTENDS + "{% block environment %}{{ super() }}\nexport SITE=1\n{% endblock %}\n"
    )
    ours, script = _render(), _render(tmp_path)
    assert script.splitlines()[2:4] == [
        f"# Template job.sbatch.j2, sha256 {_hash(tmp_path)}",
        "# With your own job.sbatch.j2",
    ]
    assert _hash(tmp_path) != _hash()
    marker = "\n# ---- Record of the environment"
    assert _body(script) == _body(ours).replace(marker, f"\nexport SITE=1\n{marker}")


def test_a_changed_template_counts_at_once(tmp_path: Path) -> None:
    block = EXTENDS + "{% block environment %}export SITE=NUMBER\n{% endblock %}\n"
    for number in ("1", "2", "1"):
        (tmp_path / "job.sbatch.j2").write_text(block.replace("NUMBER", number))
        assert f"\nexport SITE={number}\n" in _render(tmp_path)


def test_a_template_may_count_the_tasks(tmp_path: Path) -> None:
    (tmp_path / "many.sh.j2").write_text("export MANY=1\n")
    (tmp_path / "job.sbatch.j2").write_text(
        EXTENDS + "{% block environment %}"
        '{% if task_arguments | length > 1 %}{% include "many.sh.j2" %}{% endif %}'
        "{% endblock %}\n"
    )
    tasks = ({"seed": 1}, {"seed": 2})
    spec = dataclasses.replace(SPEC, array=jobs.Array(tasks=tasks))
    script = _make(tmp_path, spec)
    assert script.text.splitlines()[2:5] == [
        f"# Template job.sbatch.j2, sha256 {script.template_hash}",
        "# With your own job.sbatch.j2",
        "# With your own many.sh.j2",
    ]
    assert "\nexport MANY=1\n" in script.text


def test_a_partial_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "launch").mkdir()
    (tmp_path / "launch" / "head.sh.j2").write_text("orchestrator_head=$(my-head)\n")
    script = _render(tmp_path)
    assert "# With your own launch/head.sh.j2" in script
    assert "scontrol show hostnames" not in script
    assert "orchestrator_head=$(my-head)" in script


def test_templates_that_do_not_unpack_a_snapshot_are_refused(tmp_path: Path) -> None:
    """The job would run what is in the folder."""
    (tmp_path / "job.sbatch.j2").write_text(EXTENDS + "{% block code %}{% endblock %}\n")
    code = jobs.Code(snapshot=True, tree="0" * 40)
    assert "code.tar" in _render(None, dataclasses.replace(SPEC, code=code))
    with pytest.raises(errors.TemplateError) as caught:
        _render(tmp_path, dataclasses.replace(SPEC, code=code))
    assert str(caught.value) == (
        "the templates do not unpack the snapshot of the code: include code.sh.j2 after "
        "prologue.sh.j2, and code_imports.sh.j2 after environment.sh.j2, or use --no-snapshot"
    )
    assert "code.tar" not in _render(tmp_path)


def test_an_undefined_variable_is_named(tmp_path: Path) -> None:
    file = tmp_path / "job.sbatch.j2"
    file.write_text(EXTENDS + "{% block launch %}\necho {{ nodse | sh }}\n{% endblock %}\n")
    with pytest.raises(errors.TemplateError) as error:
        _render(tmp_path)
    assert str(error.value) == (
        f"{file}:3: 'nodse' is undefined. docs/howto/templates.md lists what a template may use."
    )
    assert error.value.exit_code == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% if %}", "FILE:1: Expected an expression, got 'end of statement block'"),
        ('{% include "no.sh.j2" %}', "cannot read template OURS/no.sh.j2: "),
        ("\n{{ ''.__class__.__mro__ }}", "FILE:2: access to attribute '__class__' of 'str' object"),
        ("{{ 1 / 0 }}", "FILE:1: division by zero. "),
        ("{{ binds.append('/') }}", "FILE:1: "),
    ],
)
def test_an_invalid_template_is_reported_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "job.sbatch.j2"
    file.write_text(text)
    with pytest.raises(errors.TemplateError) as error:
        _render(tmp_path)
    expected = message.replace("FILE", str(file)).replace("OURS", str(templates.TEMPLATES))
    assert str(error.value).startswith(expected)


@pytest.mark.parametrize(
    ("header", "change"),
    [
        ("{{ super() }}#SBATCH --hint=nomultithread\n", "--hint=nomultithread added"),
        ("#SBATCH --job-name=digits\n", "--nodes=2 lost"),
        ("true\n{{ super() }}", "--job-name=digits lost"),
    ],
)
def test_a_template_leaves_the_directives_alone(tmp_path: Path, header: str, change: str) -> None:
    (tmp_path / "job.sbatch.j2").write_text(
        f"{EXTENDS}{{% block header %}}{header}{{% endblock %}}"
    )
    with pytest.raises(errors.TemplateError) as error:
        _render(tmp_path)
    assert change in str(error.value)
    assert str(error.value).endswith("those without a key into [sbatch].")


def test_a_folder_that_everyone_can_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.sbatch.j2").write_text(EXTENDS)
    tmp_path.chmod(0o777)
    with pytest.raises(errors.TemplateError) as raised:
        _render(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path}/job.sbatch.j2 is not used: {tmp_path} can be written by every user, so "
        f"others could change what your jobs run. Run `chmod go-w {tmp_path}`, or set "
        "templates_dir to a folder of your own."
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_a_template_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.sbatch.j2").write_text(EXTENDS)
    os.chown(tmp_path / "job.sbatch.j2", 65534, -1)
    with pytest.raises(errors.TemplateError, match=r"job.sbatch.j2 belongs to user "):
        _make(tmp_path)
    assert _make(tmp_path, shared_folders=[tmp_path]).text != ""


@pytest.mark.parametrize("kind", ["FIFO", "huge", "device"])
def test_a_template_that_is_no_file_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "job.sbatch.j2"
    match kind:
        case "FIFO":
            os.mkfifo(path, 0o600)
        case "huge":
            path.touch(0o600)
            os.truncate(path, 1 << 40)
        case "device":
            path.symlink_to("/dev/zero")
    with pytest.raises(errors.TemplateError) as raised:
        _render(tmp_path)
    messages = {
        "FIFO": f"[Errno 22] not a regular file but a FIFO: '{path}'",
        "huge": f"[Errno 27] larger than 4194304 bytes: '{path}'",
    }
    reported = messages.get(kind)
    if reported is None:
        # Everybody can write to the device that the link leads to.
        assert str(raised.value).startswith(f"{path} is not used: /dev/zero can be written by ")
    else:
        assert str(raised.value) == f"cannot read template {path}: {reported}"


def test_a_carriage_return_in_the_set_up_is_refused() -> None:
    spec = jobs.JobSpec(
        name="a",
        environment=jobs.Environment(setup="true\r\ntrue"),
        launch=jobs.Launch(command="true"),
    )
    with pytest.raises(errors.TemplateError, match=r"^control character '\\r' in line \d+ of"):
        _render(spec=spec)


def test_the_text_of_a_task_cannot_end_early() -> None:
    spec = jobs.JobSpec(
        name="a",
        launch=jobs.Launch(launcher="srun", command="ORCHESTRATOR_TASK_END\ntouch canary"),
    )
    assert "cat <<'ORCHESTRATOR_TASK_END_'\n" in _render(spec=spec)


def test_a_bind_with_a_comma_is_refused() -> None:
    spec = jobs.JobSpec(
        name="a",
        container=jobs.Container(runtime="apptainer", image="/i.sif", binds=("/a,/b",)),
        launch=jobs.Launch(command="true"),
    )
    with pytest.raises(errors.TemplateError, match=r"^/a,/b cannot be bound into a container"):
        _render(spec=spec)


def test_parts_that_were_never_run_say_so() -> None:
    spec = jobs.JobSpec(
        name="a",
        container=jobs.Container(runtime="singularity", image="/i.sif", gpu="rocm"),
        launch=jobs.Launch(command="true"),
    )
    comments = [line for line in _render(spec=spec).splitlines() if line.startswith("# Never run")]
    assert comments == [
        f"# Never run on a real system so far: {part}. Check its lines before you rely on them."
        for part in ("singularity", "--rocm")
    ]


def test_the_documentation_names_all_templates_and_variables(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables: dict[str, object] = {}
    render = templates.render

    def capture(name: str, context: dict[str, object], **options: object) -> templates.Script:
        variables.update(context)
        return render(name, context, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(templates, "render", capture)
    _make()
    text = (checkout / "docs/howto/templates.md").read_text()
    assert [name for name in variables if f"`{name}`" not in text] == []
    named = {
        f"{folder}/{name}"
        for folder, names in re.findall(r"`(\w+)/\{([\w,-]+)\}\.sh\.j2`", text)
        for name in names.split(",")
    }
    files = (checkout / "templates").glob("*/*.sh.j2")
    shipped = {f"{file.parent.name}/{file.name.removesuffix('.sh.j2')}" for file in files}
    # It includes the one of apptainer.
    assert shipped - named == {"container/singularity"}
    assert named <= shipped


@pytest.mark.parametrize(
    ("nodes", "binds", "is_set"),
    [(2, ("/mine:/opt/nccl",), True), (2, (), False), (1, ("/mine:/opt/nccl",), False)],
)
def test_libraries_of_a_fabric_without_binds_of_its_own(
    nodes: int, binds: tuple[str, ...], is_set: bool
) -> None:
    containers = fabrics.Containers(
        binds=(fabrics.Line(value="/opt/nccl"),), library_path=(fabrics.Line(value="/opt/nccl"),)
    )
    script = job_script.render(
        dataclasses.replace(
            SPEC,
            resources=jobs.Resources(nodes=nodes),
            container=jobs.Container(runtime="apptainer", image="/i.sif", binds=binds),
        ),
        profiles.Profile(),
        runs_dir=Path("/runs"),
        origin=ORIGIN,
        fabric=fabrics.Fabric(name="x", origin="shipped", containers=containers),
    )
    assert ("export LD_LIBRARY_PATH=/opt/nccl$" in script.text) == is_set
    assert "orchestrator_fabric_binds" not in script.text
