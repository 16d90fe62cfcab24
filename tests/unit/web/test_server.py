"""The socket of the web server: its path, its folder, and what is in the way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from orchestrator import errors
from orchestrator.web import server
from orchestrator.web.access import security


def test_default_socket(tmp_path: Path) -> None:
    runtime = {"XDG_RUNTIME_DIR": str(tmp_path)}
    assert server.default_socket(runtime) == tmp_path / "orchestrator" / "web.sock"
    other = Path(f"/tmp/orchestrator-{os.geteuid()}/web.sock")
    for path in ("", "relative", str(tmp_path / "missing")):
        assert server.default_socket({"XDG_RUNTIME_DIR": path}) == other


@pytest.mark.parametrize(("is_default", "mode"), [(True, 0o700), (False, 0o755)])
def test_only_our_folder_gets_another_mode(tmp_path: Path, is_default: bool, mode: int) -> None:
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o755)
    unix_socket = server.UnixSocket(folder / "web.sock", is_default=is_default)
    with unix_socket.bind():
        assert stat.S_IMODE(folder.stat().st_mode) == mode
        assert stat.S_IMODE(unix_socket.path.stat().st_mode) == 0o600
        unix_socket.remove()
    assert not unix_socket.path.exists()


def test_folder_that_others_can_change(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(errors.OrchestratorError, match="can be written by every user"):
        server.UnixSocket(folder / "web.sock").bind()
    assert list(folder.iterdir()) == []


def test_a_socket_of_another_server_stays(tmp_path: Path) -> None:
    first = server.UnixSocket(tmp_path / "web.sock")
    with first.bind():
        with pytest.raises(errors.ConflictError, match=rf"\(process {os.getpid()}\)"):
            server.UnixSocket(tmp_path / "web.sock").bind()
        assert first.exists()
        # Someone else's file of the same name is not removed at the end.
        first.path.unlink()
        first.path.touch()
        assert not first.exists()
        first.remove()
    assert first.path.exists()


def test_cookie_of_a_link() -> None:
    tokens = security.Tokens(8765)
    assert tokens.use("") is None
    assert tokens.use("\u00e9") is None
    link = tokens.link
    cookie = tokens.use(link)
    assert cookie is not None and tokens.use(link) is None and tokens.link != link
    pair = cookie.partition(";")[0]
    assert tokens.has_cookie([f"other=1; {pair}"])
    for header in ("", "a=b", pair[:-1], f"{pair}x", pair.replace("8765", "8766"), ";;=\x00"):
        assert not tokens.has_cookie([header])
