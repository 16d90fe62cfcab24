"""The table of jobs, and texts that scroll."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich import segment, style
from textual import binding, events, geometry, message, scroll_view, strip, widget

from orchestrator.top import listing

#: of the whole screen; textual's CSS
STYLE = """
Screen { background: ansi_default; color: ansi_default; }
#summary, #title, #message, #keys { height: 1; width: 100%; }
#summary, #title { text-style: bold; }
#problem { height: auto; color: ansi_red; }
.silent { display: none; }
#keys { color: ansi_bright_black; }
#filter { height: 1; border: none; padding: 0; background: ansi_default; }
#jobs { height: 1fr; }
#details { height: 1fr; }
#side { width: 2fr; }
#log { width: 3fr; }
#log, #metrics, #explain {
    height: 1fr; background: ansi_default; color: ansi_default;
    scrollbar-size: 0 1;
}
.narrow #side, .narrow #log { width: 1fr; }
.narrow .hidden { display: none; }
.wide #log { margin-right: 2; }
"""
_PLAIN = style.Style()
_BOLD = style.Style(bold=True)
_DIM = style.Style(dim=True)
_CURSOR = style.Style(reverse=True)
_FAILED = style.Style(color="red")
_STYLES = {
    "RUNNING": style.Style(color="green"),
    "COMPLETING": style.Style(color="green"),
    "PENDING": style.Style(color="yellow"),
    "SUBMITTING": style.Style(color="yellow"),
    "COMPLETED": _DIM,
    "CANCELLED": _DIM,
    **dict.fromkeys(
        ("FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "LOST", "NOT_SUBMITTED"),
        _FAILED,
    ),
}
#: In front of a line that is marked, and of others.
_MARKED, _UNMARKED = "* ", "  "


class JobTable(widget.Widget, can_focus=True):
    """The list of jobs. One line is selected, and any number are marked."""

    BINDINGS: ClassVar[list[binding.BindingType]] = [
        binding.Binding("up,k", "move(-1)"),
        binding.Binding("down,j", "move(1)"),
        binding.Binding("pageup", "move_page(-1)"),
        binding.Binding("pagedown", "move_page(1)"),
        binding.Binding("home,g", "move(-1000000)"),
        binding.Binding("end,G", "move(1000000)"),
        binding.Binding("space", "mark"),
    ]

    class Moved(message.Message):
        """Another line is selected."""

    class EndReached(message.Message):
        """The last line is selected."""

    def __init__(self) -> None:
        super().__init__(id="jobs")
        self._lines: list[Mapping[str, str]] = []
        self._keys: Sequence[listing.Key] = ()
        self._heading = listing.Filter()
        #: shown instead of lines
        self._empty = ""
        #: of the selected line, and of the first visible one
        self._cursor = 0
        self._top = 0
        self._chosen: Mapping[listing.Column, int] = {}
        self.marked: set[listing.Key] = set()

    @property
    def cursor(self) -> int | None:
        """The number of the selected line; None: there is no line."""
        return self._cursor if self._lines else None

    def fill(
        self,
        lines: Sequence[Mapping[str, str]],
        keys: Sequence[listing.Key],
        shown: listing.Filter,
        empty: str,
    ) -> None:
        """Show these lines. The selected job stays selected."""
        selected = self._keys[self._cursor] if self._lines else None
        if (lines, keys, shown, empty) == (self._lines, self._keys, self._heading, self._empty):
            return
        self._lines, self._keys, self._heading, self._empty = list(lines), keys, shown, empty
        self.marked &= set(keys)
        if selected in keys:
            self._cursor = keys.index(selected)
        self._cursor = max(0, min(self._cursor, len(lines) - 1))
        self._lay_out()

    def update_cell(self, number: int, column: str, text: str) -> None:
        """Change one text of a line; column: one of its names in `lines`."""
        if self._lines[number][column] == text:
            return
        self._lines[number] = {**self._lines[number], column: text}
        y = number - self._top + 1
        if 0 < y < self.size.height:
            self.refresh(geometry.Region(0, y, self.size.width, 1))

    def action_move(self, lines: int) -> None:
        before = self._cursor
        self._cursor = max(0, min(self._cursor + lines, len(self._lines) - 1))
        self._scroll()
        self.refresh()
        if self._cursor != before:
            self.post_message(self.Moved())
        if lines > 0 and self._cursor == len(self._lines) - 1:
            self.post_message(self.EndReached())

    def action_move_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self._height - 1))

    def action_mark(self) -> None:
        if self._lines:
            self.marked ^= {self._keys[self._cursor]}
            self.action_move(1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self.action_move(-3)

    def on_click(self, event: events.Click) -> None:
        number = self._top + event.y - 1
        if event.y and number < len(self._lines):
            self.action_move(number - self._cursor)

    def on_resize(self, event: events.Resize) -> None:
        self._lay_out()

    def _lay_out(self) -> None:
        self._chosen = listing.widths(self._lines, self.size.width - len(_UNMARKED))
        self._scroll()
        self.refresh()

    @property
    def _height(self) -> int:
        # Without the heading.
        return max(1, self.size.height - 1)

    def _scroll(self) -> None:
        self._top = min(self._top, self._cursor, max(0, len(self._lines) - self._height))
        self._top = max(self._top, self._cursor - self._height + 1)

    def render_line(self, y: int) -> strip.Strip:
        width = self.size.width
        chosen = self._chosen
        if y == 0:
            text = _UNMARKED + listing.heading(self._heading, chosen)
            return strip.Strip([segment.Segment(text, _BOLD)]).adjust_cell_length(width)
        number = self._top + y - 1
        if number >= len(self._lines):
            text = _UNMARKED + self._empty if y == 1 and not self._lines else ""
            return strip.Strip([segment.Segment(text, _PLAIN)]).adjust_cell_length(width)
        line = self._lines[number]
        is_marked = self._keys[number] in self.marked
        shown = _BOLD if is_marked else _STYLES.get(line["state"], _PLAIN)
        if number == self._cursor:
            shown += _CURSOR
        text = (_MARKED if is_marked else _UNMARKED) + listing.text_of(line, chosen)
        return strip.Strip([segment.Segment(text, shown)]).adjust_cell_length(width, shown)


class Lines(scroll_view.ScrollView, can_focus=True):
    """Lines of text. If the end is shown, the end stays shown."""

    def __init__(self, id: str, *, follows: bool = False) -> None:
        super().__init__(id=id)
        self._follows = follows
        self._lines: Sequence[str] = ()

    def show(self, lines: Sequence[str], *, is_new: bool) -> None:
        """Show these lines; is_new: of another job."""
        if lines == self._lines and not is_new:
            return
        is_at_end = self.scroll_offset.y >= self.max_scroll_y
        self._lines = lines
        width = max(map(len, lines), default=0)
        self.virtual_size = geometry.Size(width, len(lines))
        if self._follows and (is_new or is_at_end):
            # Forced: the scrollbar of a text that has just outgrown its widget does not exist yet.
            self.scroll_end(animate=False, immediate=True, force=True, x_axis=False)
        elif is_new:
            self.scroll_home(animate=False, immediate=True)
        self.refresh()

    def on_resize(self, event: events.Resize) -> None:
        if self._follows:
            self.scroll_end(animate=False, x_axis=False)

    def render_line(self, y: int) -> strip.Strip:
        x, top = self.scroll_offset
        width = self.size.width
        text = self._lines[top + y] if top + y < len(self._lines) else ""
        line = strip.Strip([segment.Segment(text, _PLAIN)])
        return line.crop_extend(x, x + width, _PLAIN)
