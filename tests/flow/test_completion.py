"""Shell completion with the script that the shell evaluates."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest

from tests.flow import command_line
from tests.flow.conftest import FakeSlurm


def completed(run: command_line.CommandLine, *words: str) -> list[str]:
    """Return what bash is offered for the last of these words, asked as click's function asks."""
    done = run(
        _ORCHESTRATOR_COMPLETE="bash_complete",
        COMP_WORDS=" ".join(("orchestrator", *words)),
        COMP_CWORD=str(len(words)),
    )
    assert (done.code, done.err) == (0, "")
    return [offer.removeprefix("plain,") for offer in done.out.split()]


def test_commands_options_and_jobs(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    assert completed(cli, "sub") == ["submit"]
    assert completed(cli, "show", "") == []
    assert completed(cli, "status", "--ref") == ["--refresh"]
    assert not cli.database.exists()
    job_id = cli("submit", "--name", "first", "--parsable", "--", "sleep").out.strip()
    assert completed(cli, "show", "") == [job_id, "first"]
    assert completed(cli, "cancel", "fi") == ["first"]
    assert completed(cli, "logs", "@") == ["@1"]
    assert completed(cli, "logs", "x") == []


def test_sweeps_and_their_metrics(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    (cli.folder / "train.py").write_text("print('epoch=1 loss=0.5 val_loss=0.6')\n")
    assert completed(cli, "sweep", "results", "") == []
    spec = cli.spec(
        '[job]\nname = "grid"\ntime_limit = "5"\n[launch]\nlauncher = "python"\n'
        'script = "train.py"\n[sweep]\nkind = "grid"\naxes.args.lr = [0.1]\n'
    )
    fake_slurm.run_jobs()
    assert cli("sweep", "submit", spec, "--wait").code == 0
    assert cli("sweep", "results", "grid").code == 0
    assert completed(cli, "sweep", "results", "g") == ["grid"]
    assert completed(cli, "sweep", "status", "@") == ["@1"]
    assert completed(cli, "wait", "--sweep", "") == ["grid"]
    assert completed(cli, "sweep", "results", "grid", "--metric", "") == [
        *("epoch", "loss", "val_loss"),
    ]
    assert completed(cli, "sweep", "results", "other", "--metric", "") == []


def test_only_words_that_mean_nothing_to_a_shell_are_offered(
    cli: command_line.CommandLine, fake_slurm: FakeSlurm
) -> None:
    for name in ("first", "second", "third"):
        cli("submit", "--name", name, "--", "sleep")
    with contextlib.closing(sqlite3.connect(cli.database)) as database, database:
        statement = "UPDATE submissions SET name = ? WHERE name = ?"
        database.execute(statement, ("f$(touch pwned)", "second"))
        database.execute(statement, ("f\nplain\nf;reboot\x1b[2J", "third"))
    done = cli(
        _ORCHESTRATOR_COMPLETE="zsh_complete", COMP_WORDS="orchestrator show f", COMP_CWORD="2"
    )
    assert (done.out, done.err) == ("plain\nfirst\nPENDING 1\n", "")
    done = cli(
        _ORCHESTRATOR_COMPLETE="zsh_complete", COMP_WORDS="orchestrator show 3", COMP_CWORD="2"
    )
    assert done.out == "plain\n3\nPENDING f plain f;reboot\\x1b[2J\n"


def test_zsh_and_fish_show_states(cli: command_line.CommandLine, fake_slurm: FakeSlurm) -> None:
    cli("submit", "--name", "first", "--", "sleep")
    done = cli(
        _ORCHESTRATOR_COMPLETE="zsh_complete", COMP_WORDS="orchestrator show f", COMP_CWORD="2"
    )
    (job,) = fake_slurm.jobs()
    assert done.out.splitlines() == ["plain", "first", f"PENDING {job['job_id']}"]


@pytest.mark.parametrize(
    ("shell", "message"),
    [("bash", "complete -o nosort"), ("zsh", "#compdef"), ("fish", "complete ")],
)
def test_the_script_of_each_shell(cli: command_line.CommandLine, shell: str, message: str) -> None:
    done = cli("completion", shell)
    assert done.code == 0
    assert message in done.out
    assert "_ORCHESTRATOR_COMPLETE" in done.out
    assert cli("completion", SHELL=f"/usr/bin/{shell}").out == done.out


def test_a_shell_that_is_not_known(cli: command_line.CommandLine) -> None:
    done = cli("completion", SHELL="/bin/tcsh")
    assert (done.code, done.out) == (1, "")
    assert done.err == "Error: $SHELL is tcsh, which is not supported; name bash, zsh or fish\n"


def test_bash_takes_the_script(cli: command_line.CommandLine) -> None:
    script = cli("completion", "bash").out
    done = cli.run(["bash", "-c", f"{script}\ncomplete -p orchestrator"])
    assert (done.code, done.err) == (0, "")
    assert done.out == "complete -o nosort -F _orchestrator_completion orchestrator\n"
