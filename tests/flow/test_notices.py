"""Notifications sent by the command: receivers that are down, and SIGKILL during delivery."""

from __future__ import annotations

import json
import os
import signal

from tests import receivers as servers
from tests.flow import command_line
from tests.flow.conftest import FakeSlurm

SPEC = '[job]\nname = "demo"\ntime_limit = "1"\n[launch]\ncommand = "exit 3"\n'


def test_receivers_down_and_controllers_killed(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    fake_slurm.run_jobs()
    smtp, web = servers.free_port(), servers.free_port()
    folder = cli.home / ".config/orchestrator"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'[notices.mail]\nkind = "email"\nhost = "127.0.0.1"\nport = {smtp}\nsecurity = "none"\n'
        'sender = "o@lab"\nto = ["a@lab"]\n'
        f'[notices.hook]\nkind = "webhook"\nurl = "http://127.0.0.1:{web}/x"\n'
    )
    assert cli("tick").code == 0
    cli("submit", cli.spec(SPEC), "--wait")
    down = cli("tick")
    assert "1 notification by mail not sent, retry later" in down.err + down.out
    kept = {item["channel"]: item for item in cli("notices", "list", "--json").items}
    assert {name: (entry["state"], entry["tries"]) for name, entry in kept.items()} == {
        "hook": ("waiting", 1),
        "mail": ("waiting", 1),
    }
    assert "Connection refused" in kept["hook"]["error"]
    with servers.mail_server(smtp) as got_mail, servers.web_server(web) as got_hook:
        assert cli("tick").code == 0, "it is not their time yet"
        assert (got_mail.received, got_hook.received) == ([], [])
        assert cli("notices", "retry").out == "The next controller pass sends 2 notifications\n"
        ticking = cli.start("tick")
        # The receiver has the notification, but its reply is lost.
        got_hook.before_answer = lambda: os.kill(ticking.pid, signal.SIGKILL)
        assert command_line.finish(ticking).code == -signal.SIGKILL
        got_hook.before_answer = lambda: None
        # As if the time of the claim were over.
        cli("notices", "retry")
        assert cli("tick").code == 0
        cli("tick")
        (first, reported), (second, again) = got_hook.received
        assert (first, reported) == (second, again), "the very same message: one can be dropped"
        assert reported["subject"] == "1 demo: FAILED, nonzero_exit"
        (mail,) = got_mail.received
        assert mail["Subject"] == "[orchestrator] 1 demo: FAILED, nonzero_exit"
    states = [item["state"] for item in cli("notices", "list", "--json").items]
    assert states == ["sent", "sent"]
    assert json.loads(cli("notices", "list", "--unsent", "--json").out)["items"] == []
