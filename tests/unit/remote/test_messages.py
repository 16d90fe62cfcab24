"""Requests, greetings and what a command line means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import cli
from orchestrator.cli import commands
from orchestrator.remote import command_lines, explanations, framing, messages
from orchestrator.remote.framing import Message
from tests import reference

TERMINAL = messages.Terminal(stdout=True, stderr=False, columns=90, lines=30)
RUN = messages.Run(
    request="0123456789abcdef" * 2,
    words=["status", "--all"],
    terminal=TERMINAL,
    variables={"TERM": "xterm"},
    changes=False,
)
#: What version 0.1.0 says, recorded: later versions have to understand it.
GREETING_1 = (
    b'\norchestrator-agent: {"protocols": [1, 1], "version": "0.1.0", "host": "login1", '
    b'"store": "00112233445566778899aabbccddeeff"}\n'
)


def sent(message: Message) -> Message:
    (received,) = framing.Decoder().feed(message.encoded())
    return received


def test_a_request_arrives_as_it_was() -> None:
    assert messages.Run.of(sent(RUN.message())) == RUN


@given(st.dictionaries(st.sampled_from([*RUN.message().keys, "x"]), st.none() | st.integers()))
def test_a_damaged_request_is_refused_or_read(changes: dict[str, object]) -> None:
    try:
        messages.Run.of(sent(Message({**RUN.message().keys, **changes})))
    except framing.FramingError:
        pass


@pytest.mark.parametrize("request_id", ["../../x", "A" * 32, "0" * 31, "0" * 33, ""])
def test_a_request_id_is_never_a_path(request_id: str) -> None:
    with pytest.raises(framing.FramingError):
        messages.request_id(Message({"type": "run", "request": request_id}))


def test_the_greeting_of_the_first_protocol_is_understood() -> None:
    rest = framing.MarkerSearch().feed(GREETING_1)
    assert rest is not None
    (message,) = framing.Decoder().feed(rest)
    greeting = messages.Greeting.of(message)
    assert (greeting.version, greeting.host) == ("0.1.0", "login1")
    assert messages.common_protocol(messages.PROTOCOLS, greeting.protocols) == 1
    assert greeting.encoded() == GREETING_1


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [((1, 1), (1, 1), 1), ((1, 3), (2, 5), 3), ((2, 5), (1, 3), 3), ((1, 1), (2, 2), None)],
)
def test_the_newest_common_protocol(
    ours: tuple[int, int], theirs: tuple[int, int], common: int | None
) -> None:
    assert messages.common_protocol(ours, theirs) == common
    assert messages.common_protocol(theirs, ours) == common


@pytest.mark.parametrize(
    ("protocols", "expected"),
    [
        (
            (0, 0),
            "orchestrator 9 on mill is too old for orchestrator 5 here: `orchestrator setup --host "
            "mill` upgrades it",
        ),
        (
            (7, 8),
            "orchestrator 5 here is too old for orchestrator 9 on mill: upgrade it here",
        ),
    ],
)
def test_the_side_that_has_to_be_upgraded(protocols: tuple[int, int], expected: str) -> None:
    greeting = messages.Greeting(protocols=protocols, version="9", host="mill1", store="")
    assert str(explanations.no_common_protocol("mill", "5", greeting)) == expected


def test_noise_is_shown_with_its_first_lines() -> None:
    noise = b"Welcome\n\n\x1b[31mred\n" + b"more\n" * 9
    assert explanations.instead("mill", noise) == (
        "\nmill printed:\n    Welcome\n    \\x1b[31mred\n    more\n    more\n    more\n    ..."
    )


def test_every_command_is_known_as_reading_or_changing() -> None:
    """A new command counts as one that changes something: nothing of it is ever lost."""
    names = {
        context.command_path.partition(" ")[2]: commands.effects_of(command)
        for command, context in reference.everything()
    }
    reading = {name for name in names if name and not command_lines.changes(name.split())}
    reading.remove("web")
    assert reading == command_lines.READING
    effects = {name: names[name] for name in reading}
    assert {name: each and each.changes for name, each in effects.items()} == dict.fromkeys(
        reading, "nothing"
    )
    assert set(command_lines.REFUSED) <= set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["submit", "train.py"], True),
        (["submit", "--help"], False),
        (["submit", "--", "python", "--help"], True),
        (["sweep", "status", "x"], False),
        (["sweep", "cancel", "x"], True),
        (["metrics", "1"], False),
        (["metrics", "reparse", "1"], True),
        (["cancel", "status"], True),
        (["web", "--allow-actions"], False),
        (["web", "export", "pages"], True),
    ],
)
def test_what_changes_something(words: list[str], changes: bool) -> None:
    assert command_lines.changes(words) is changes


def test_refusals_name_what_to_do() -> None:
    assert command_lines.refusal(["top"], "mill", "bob@mill") == (
        "top needs the terminal: ssh -t bob@mill orchestrator top"
    )
    assert command_lines.refusal(["status"], "mill", "mill") == ""
