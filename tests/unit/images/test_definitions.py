"""Definition files: the local files that they copy."""

from __future__ import annotations

import dataclasses
import hashlib
import subprocess
from pathlib import Path

import pytest

from orchestrator import images

DEFINITION = """\
# A comment
BootStrap: localimage
From: base images/torch.sif
Stage: build

%files
    requirements.txt /opt/requirements.txt  # a comment
    'my data'/*.csv
    # nothing

%post
    From: not a header here
    cp a b

Bootstrap: docker
From: debian:12
Stage: final
%files from build
    /root/hello /bin/hello
%files
    /etc/hosts

Bootstrap: oci-archive
From: saved.tar:2.6
"""


def test_local_files_and_images_count() -> None:
    assert images.parse(DEFINITION, "env.def").sources == (
        (3, "base images/torch.sif"),
        (7, "requirements.txt"),
        (8, "my data/*.csv"),
        (21, "/etc/hosts"),
        (24, "saved.tar"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FROM debian:12\n", "env.def is no definition file: it has no line `Bootstrap: ...`"),
        (
            "Bootstrap: scratch\n%files\n{{ SOURCE }} /x\n",
            "env.def:3: `{{ SOURCE }} /x` depends on a build argument, so whether the image is "
            "built already is unknown: write the path",
        ),
        ("Bootstrap: scratch\n%files\n'a b\n", "env.def:3: No closing quotation in 'a b"),
    ],
)
def test_what_cannot_be_built_is_refused(text: str, message: str) -> None:
    with pytest.raises(images.DefinitionError) as caught:
        images.parse(text, "env.def")
    assert str(caught.value) == message


def test_each_part_changes_the_digest() -> None:
    build, other = ["apptainer", "build"], ["singularity", "build"]
    one = images.CopiedFile(path="a", is_executable=False, sha256="0")
    changed = dataclasses.replace(one, sha256="1")
    program = dataclasses.replace(one, is_executable=True)
    inputs: list[tuple[str, list[str], list[images.CopiedFile]]] = [
        *(("text", build, copied) for copied in ([one], [], [changed], [program], [one, one])),
        ("texts", build, [one]),
        ("text", other, [one]),
    ]
    assert len({images.digest(*each) for each in inputs}) == len(inputs)
    assert images.digest(*inputs[0]) == images.digest(*inputs[0])


def test_sha256sum_reads_the_checksums(tmp_path: Path) -> None:
    names = ["a", "b c", "back\\slash", "new\nline"]
    digests = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    for name in names:
        (tmp_path / name).write_text(name)
    text = images.checksums(
        [images.CopiedFile(path=n, is_executable=False, sha256=d) for n, d in digests.items()]
    )
    check = ["sha256sum", "--quiet", "--check", "--strict"]
    done = subprocess.run(check, input=text, cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
