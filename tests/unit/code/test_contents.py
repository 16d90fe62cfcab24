"""Checks of the files of a snapshot, with the exact messages."""

from __future__ import annotations

import pytest

from orchestrator import jobs
from orchestrator.code import contents


def messages(*found: contents.Found, empty: tuple[str, ...] = (), **settings: object) -> list[str]:
    names = contents.Names(each.name for each in found)
    own = contents.Settings(**settings)  # type: ignore[arg-type]
    return [str(each) for each in contents.problems(found, names, empty, own, "/p")]


def file(name: str, size_bytes: int = 10, head: bytes = b"") -> contents.Found:
    return contents.Found(name=name, size_bytes=size_bytes, head=head)


def link(name: str, target: str, *, leads: bool = True) -> contents.Found:
    return contents.Found(name=name, size_bytes=0, target=target, leads=leads)


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (file(".env"), "a file with secrets"),
        (file("a/.env.production"), "a file with secrets"),
        (file(".netrc"), "a file with secrets"),
        (file("id_ed25519", head=b"-----BEGIN OPENSSH PRIVATE KEY-----"), "a private key"),
        (file("tls/server.PEM", head=b"-----BEGIN PRIVATE KEY-----"), "a private key"),
        (file("x.key", head=b"-----BEGIN EC PRIVATE KEY-----"), "a private key"),
        (file("x.ppk", head=b"PuTTY-User-Key-File-3: ssh-ed25519"), "a private key"),
        (file("cert.p12"), "a private key"),
    ],
)
def test_secrets(found: contents.Found, what: str) -> None:
    assert messages(found) == [
        f"{found.name}: looks like {what}: add it to .gitignore, or accept it with code.allow = "
        f'["{found.name}"]'
    ]
    assert messages(found, allow=(found.name,)) == []


def test_accepted_names_are_patterns_in_toml() -> None:
    found = file('[1]*?"\\\n/.env')
    (message,) = messages(found)
    assert message.endswith('code.allow = ["?1]?????/.env"]')
    assert messages(found, allow=("?1]?????/.env",)) == []


@pytest.mark.parametrize(
    "found",
    [
        file(".env.example"),
        file("env"),
        file("id_rsa.pub", head=b"ssh-rsa"),
        file("cert.pem", head=b"-----BEGIN CERTIFICATE-----"),
        file("slides.key", head=b"PK"),
        link(".env", "/home/alice/.env"),
    ],
)
def test_what_is_no_secret(found: contents.Found) -> None:
    assert messages(found) == []


def test_which_heads_are_read() -> None:
    names = {"a.pem": True, "id_rsa": True, "id_rsa.pub": False, "train.py": False}
    assert {name: contents.needs_head(name, 10, has_lfs=False) for name in names} == names
    assert contents.needs_head("model.bin", 130, has_lfs=True)
    assert not contents.needs_head("model.bin", 130, has_lfs=False)
    assert not contents.needs_head("model.bin", 5000, has_lfs=True)


def test_large_files_are_listed_the_largest_first() -> None:
    found = [file("a.bin", 50_000_001), file("b.bin", 812_000_000), file("c.bin", 50_000_000)]
    tail = "add it to .gitignore and name its absolute path in the spec, or accept it with"
    assert messages(*found) == [
        f'b.bin: 812 MB, more than code.max_file_mb = 50: {tail} code.allow = ["b.bin"]',
        f'a.bin: 50 MB, more than code.max_file_mb = 50: {tail} code.allow = ["a.bin"]',
    ]
    assert messages(*found, allow=("*.bin",)) == []
    assert messages(*found, max_file_mb=1000) == []


def test_many_problems_of_one_kind_are_counted() -> None:
    lines = messages(*(file(f"{number:02}/.env") for number in range(25)))
    assert len(lines) == 21
    assert lines[-1] == "20/.env: the same, and 4 more files"


def test_links() -> None:
    assert (
        messages(
            file("src/a.py"),
            link("absolute", "/scratch/data"),
            link("src/b.py", "a.py"),
            link("folder", "src"),
            link("gone", "nowhere", leads=False),
            link("through", "folder/a.py"),
        )
        == []
    )
    assert messages(link("sub/data", "../../data"), link("ignored", "build/x")) == [
        "sub/data: links to ../../data, which is not part of the snapshot: link to /data, or "
        'accept it with code.allow = ["sub/data"]',
        "ignored: links to build/x, which is not part of the snapshot: link to /p/build/x, or "
        'accept it with code.allow = ["ignored"]',
    ]
    assert messages(file("src/a.py"), link("x/b.py", "/p/src/a.py"), link("c", "/p/data")) == [
        "x/b.py: links to /p/src/a.py, which you edit, not to its copy in the snapshot: link to "
        '../src/a.py, add the link to .gitignore, or accept it with code.allow = ["x/b.py"]'
    ]


def test_links_to_results_and_data() -> None:
    """A link to data, and one to the newest run, which git ignores or not."""
    code, latest = file("train.py"), link("latest", "/p/runs/3")
    assert messages(code, link("data", "/scratch/x"), latest) == []
    assert messages(code, latest, file("runs/3/log")) == [
        "latest: links to /p/runs/3, which you edit, not to its copy in the snapshot: link to "
        'runs/3, add the link to .gitignore, or accept it with code.allow = ["latest"]'
    ]
    assert messages(code, latest, file("runs/3/log"), allow=("latest",)) == []


def test_files_that_cannot_be_read() -> None:
    found = contents.Found(name="notes", size_bytes=1, is_readable=False)
    assert messages(found, allow=("other",)) == [
        "notes: you may not read it: run chmod u+r, or add it to .gitignore (and `git rm --cached` "
        "it if git tracks it)"
    ]


def test_pointers_and_submodules() -> None:
    pointer = file("model.bin", 130, b"version https://git-lfs.github.com/spec/v1\noid sha256:0")
    assert messages(pointer, empty=("vendor/x",)) == [
        "model.bin: is a pointer of Git LFS without the content: run `git lfs pull`, or accept it "
        'with code.allow = ["model.bin"]',
        "vendor/x: submodule without content: run `git submodule update --init`, or `git rm` it",
    ]
    assert messages(pointer, empty=("vendor/x",), allow=("model.bin", "vendor/*")) == []


def test_the_total() -> None:
    many = [file(f"data/{number}", 1) for number in range(100_000)]
    assert messages(*many) == []
    assert messages(*many, file("train.py", 1)) == [
        "/p: 100001 files with 0 MB are more than a snapshot may have (100000 files, 2000 MB). "
        "Most are in data (100000 files, 0 MB), . (1 files, 0 MB): add data to .gitignore"
    ]
    large = [file("a/x", 2_000_000_000), file("b/x", 1_000_000_000)]
    assert messages(*large, allow=("*",)) == [
        "/p: 2 files with 3000 MB are more than a snapshot may have (100000 files, 2000 MB). Most "
        "are in a (1 files, 2000 MB), b (1 files, 1000 MB): add data to .gitignore"
    ]


def test_control_characters_are_escaped() -> None:
    (message,) = messages(file("\x1b[2J/.env"))
    assert "\x1b" not in message and r"\x1b[2J/.env: looks like" in message


def test_names() -> None:
    names = contents.Names(iter(["a/b/c.py", "link"]))
    inside = ("a", "a/b", "a/b/c.py", ".", "link", "link/below")
    assert [path for path in (*inside, "a/c.py", "b", "..", "../a") if path in names] == [*inside]


def test_paths_that_a_spec_names() -> None:
    spec = jobs.JobSpec(
        name="x",
        environment=jobs.Environment(venv=".venv", conda="name", secrets_file="s"),
        container=jobs.Container(runtime="apptainer", image="x.sif"),
        launch=jobs.Launch(script="train.py"),
        args={"data": "data", "lr": 0.1, "files": ("a", "b")},
        array=jobs.Array(tasks=({"seed_file": "seeds/1"},)),
        retry=jobs.Retry(checkpoint_dir="ckpt"),
    )
    named = [(each.key, each.path) for each in contents.named_paths(spec, "train.py")]
    assert named == [
        ("launch.script", "train.py"),
        ("environment.venv", ".venv"),
        ("environment.secrets_file", "s"),
        ("container.image", "x.sif"),
        ("args.data", "data"),
        ("args.files", "a"),
        ("args.files", "b"),
        ("args.seed_file", "seeds/1"),
        ("retry.checkpoint_dir", "ckpt"),
    ]
