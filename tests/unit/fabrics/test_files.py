"""Files of fabrics: the shipped ones, those of user and site, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator import errors, fabrics


def write(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True, mode=0o700)
    path = folder / f"{name}.toml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def message(fabric: str, *folders: Path) -> str:
    with pytest.raises(errors.SpecError) as caught:
        fabrics.load(fabric, folders)
    return str(caught.value.problems[0])


def test_each_shipped_line_has_a_source_with_its_date() -> None:
    shipped = [fabrics.load(name, ()) for name in fabrics.names(())]
    assert {"alps", "ethernet", "infiniband", "lumi", "olivia"} <= {each.name for each in shipped}
    for fabric in shipped:
        assert fabric.summary and fabric.network.value and fabric.origin == "shipped"
        used = set()
        for _, _, line in fabric.lines():
            assert line.source in fabric.sources, (fabric.name, line)
            used.add(line.source)
        assert used == set(fabric.sources), fabric.name
        for source in fabric.sources.values():
            assert re.fullmatch(r"https://\S+ \(20\d\d-\d\d-\d\d\)", source)
    (olivia,) = [each for each in shipped if each.name == "olivia"]
    assert olivia.variables["NCCL_PROTO"].value == "^LL128"


def test_the_users_file_replaces_the_sites_and_the_shipped_one(tmp_path: Path) -> None:
    user, site = tmp_path / "user", tmp_path / "site"
    for folder in (user, site):
        write(folder, "lumi", f'summary = "{folder.name}"')
    write(site, "mill", 'summary = "mill"\n[variables]\nGLOO_SOCKET_IFNAME = { value = "eth0" }')
    assert fabrics.load("lumi", (user, site)).summary == "user"
    assert "mill" in fabrics.names((user, site))
    mill = fabrics.load("mill", (user, site))
    assert mill.origin == str(site / "mill.toml")
    assert mill.variables["GLOO_SOCKET_IFNAME"].value == "eth0"
    assert fabrics.load(str(site / "mill.toml"), ()) == mill


def test_what_is_refused(tmp_path: Path) -> None:
    assert message("olvia").startswith(
        'environment.fabric: no fabric "olvia". Did you mean "olivia"? Fabrics: alps, '
    )
    assert message(str(tmp_path / "x.toml")).endswith(f"no such file: {tmp_path}/x.toml")
    assert message("x" * 5000, tmp_path).startswith('environment.fabric: no fabric "xxx')
    wrong = write(
        tmp_path,
        "wrong",
        '[variables]\nSLURM_X = { value = "1" }\nA = { source = "b" }\nB = "1"\n'
        '[network]\nvalue = "infiniband"\n'
        '[containers]\nbinds = [{ value = "a:/b" }]\nlibrary_path = [{ value = "/a:/b" }]\n'
        '[libraries]\n"/lib/a.so" = {}\n',
    )
    with pytest.raises(errors.SpecError) as caught:
        fabrics.load(str(wrong), ())
    found = {problem.key: problem.message for problem in caught.value.problems}
    assert found.keys() == {
        "variables.SLURM_X",
        "variables.A.value",
        "variables.B",
        "network.value",
        "containers.binds[0].value",
        "containers.library_path[0].value",
        'libraries."/lib/a.so"',
    }
    assert found["variables.A.value"] == "is missing"


def test_a_file_that_others_can_change_is_not_used(tmp_path: Path) -> None:
    path = write(tmp_path / "user", "mill", "")
    path.chmod(0o666)
    assert message("mill", tmp_path / "user") == (
        f"environment.fabric: {path} is not used: {path} can be written by every user, so others "
        f"could change what your jobs run. Run `chmod go-w {path}`"
    )


def test_binds() -> None:
    binds = [fabrics.Line(value=text) for text in ("$EB:/opt/nccl", "/usr/lib64", "/a:/b:ro")]
    assert [fabrics.variable_and_rest(bind.value) for bind in binds] == [
        ("EB", ":/opt/nccl"),
        ("", "/usr/lib64"),
        ("", "/a:/b:ro"),
    ]
    folders = ("/opt/nccl/lib", "/usr/lib64", "/b/c", "/opt/nccl2")
    assert [fabrics.host_path(folder, binds) for folder in folders] == [
        "$EB/lib",
        "/usr/lib64",
        "/a/c",
        None,
    ]
