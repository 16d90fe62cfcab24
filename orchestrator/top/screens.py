"""A question before an action, and the help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import app, binding, containers, screen, widgets

HELP = (
    ("up, down, j, k", "select a job; page up, page down, home, end, g, G"),
    ("/", "filter: words in name, label, sweep, node, partition, job ID"),
    ("escape", "remove filter and marks"),
    ("a", "which jobs: live, last day, last 7 days, all"),
    ("s, S", "sort by another column; in the other direction"),
    ("space", "mark a job for an action"),
    ("c", "cancel the marked jobs, or the selected one"),
    ("r", "requeue the marked jobs, or the selected one"),
    ("l, m, e", "log, metrics, explanation"),
    ("tab", "move between the list and the text below, to scroll it"),
    ("q, ctrl+c", "quit"),
)


class Dialog(screen.ModalScreen[bool]):
    """Text in a box, which `y` answers with True."""

    CSS = """
    Dialog { align: center middle; background: transparent; }
    #dialog {
        width: auto; max-width: 90%; height: auto; max-height: 90%;
        border: round ansi_yellow; padding: 0 1; background: ansi_default;
    }
    #dialog Static { width: auto; }
    """
    BINDINGS: ClassVar[list[binding.BindingType]] = [
        binding.Binding("y", "answer(True)"),
        # Enter may have been meant for the list.
        binding.Binding("n,escape,q,question_mark,ctrl+c", "answer(False)"),
    ]

    def __init__(self, title: str, lines: Sequence[str], keys: str) -> None:
        super().__init__()
        self._title, self._lines, self._keys = title, lines, keys

    def compose(self) -> app.ComposeResult:
        with containers.VerticalScroll(id="dialog"):
            text = "\n".join([self._title, "", *self._lines, "", self._keys])
            yield widgets.Static(text, markup=False)

    def action_answer(self, is_yes: bool) -> None:
        self.dismiss(is_yes)


def help_dialog() -> Dialog:
    """Return a box that lists the keys."""
    width = max(len(keys) for keys, _ in HELP)
    lines = [f"{keys:<{width}}  {text}" for keys, text in HELP]
    return Dialog("Keys", lines, "escape: close")


def confirmation(title: str, lines: Sequence[str], action: str) -> Dialog:
    """Return a question; lines: what the action would change."""
    return Dialog(title, lines, f"y: {action}   n: go back")
