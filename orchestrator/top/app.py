"""The screen: the list of jobs above, and details of the selected job below."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, get_args

from textual import app, binding, containers, events, widgets

from orchestrator import errors, jobs
from orchestrator.controller.session import contexts
from orchestrator.jobs import naming
from orchestrator.rows import job_rows, row_values
from orchestrator.text import escaping, nouns
from orchestrator.top import background, details, listing, reader
from orchestrator.top import widgets as own

if TYPE_CHECKING:
    from orchestrator.top import actions

#: Between two looks at the files.
_LOOK_SECONDS = 0.5
#: PostgreSQL has no file to look at.
_SERVER_LOOK_SECONDS = 2.0
#: Before the first tasks start, and before another job is read: the next key may select another.
_SETTLE_SECONDS = 0.1
_CLOCK_SECONDS = 1.0
#: Between two attempts to refresh; Slurm is asked at most once in poll_floor_seconds.
_MIN_REFRESH_SECONDS = 2.0
_INGEST_SECONDS = 1.0
#: From this width all panes are visible.
_WIDE_COLUMNS = 160
_PANES: tuple[reader.Pane, ...] = get_args(reader.Pane)
_KEYS = "q quit  / filter  s sort  space mark  c cancel  r requeue  l m e pane  ? help"


class Top(app.App[None]):
    """The program. `error`: what ended it; None: the user did."""

    ENABLE_COMMAND_PALETTE = False
    CSS = own.STYLE
    BINDINGS: ClassVar[list[binding.BindingType]] = [
        binding.Binding("q,ctrl+c", "leave", priority=False),
        binding.Binding("ctrl+z", "suspend_process"),
        binding.Binding("slash", "filter"),
        binding.Binding("escape", "clear"),
        binding.Binding("a", "age"),
        binding.Binding("s", "order"),
        binding.Binding("S", "direction"),
        binding.Binding("c", "act('cancel')"),
        binding.Binding("r", "act('requeue')"),
        binding.Binding("l", "pane('log')"),
        binding.Binding("m", "pane('metrics')"),
        binding.Binding("e", "pane('explain')"),
        binding.Binding("question_mark", "help"),
    ]

    def __init__(
        self,
        context: contexts.Context,
        shown: listing.Filter,
        *,
        refresh: Callable[[contexts.Context], object],
        ingest: Callable[[contexts.Context, jobs.Job], object],
        act: Callable[[contexts.Context, actions.Action, Sequence[jobs.Job]], Sequence[str]],
    ) -> None:
        """Take what asks Slurm, reads the log of a job, and acts; they run in threads.

        act: returns sentences about what happened.
        """
        super().__init__(ansi_color=True)
        self._reader = reader.Reader(context)
        self._session = context.with_reporter(
            contexts.Reporter(write=lambda level, text: self._show_message_from_thread(text))
        )
        self._shown = shown
        self._refresh_states, self._ingest_log, self._carry_out = refresh, ingest, act
        self._view = self._reader.look(shown, None, ())
        self._pane: reader.Pane = "log"
        #: all panes are visible
        self._is_wide = False
        self._wake = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        #: the running action, as messages name it; "": none
        self._action = ""
        self._is_leaving = False
        self._event_loop: asyncio.AbstractEventLoop | None = None
        #: what ended the program, unless the user did
        self.error: Exception | None = None

    def compose(self) -> app.ComposeResult:
        yield widgets.Static(id="summary", markup=False)
        yield widgets.Static(id="problem", markup=False)
        yield own.JobTable()
        yield widgets.Static(id="title", markup=False)
        with containers.Horizontal(id="details"):
            yield own.Lines("log", follows=True)
            with containers.Vertical(id="side"):
                yield own.Lines("metrics")
                yield own.Lines("explain")
        yield widgets.Static(id="message", markup=False)
        yield widgets.Static(_KEYS, id="keys", markup=False)

    def on_mount(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        # Later another screen, a dialog, may be the present one.
        self._main = self.screen
        self._table = self.query_one(own.JobTable)
        self._side = self.query_one("#side")
        self._statics = {widget.id: widget for widget in self.query(widgets.Static)}
        self._texts = {name: self.query_one(f"#{name}", own.Lines) for name in _PANES}
        self._table.focus()
        self._is_wide = self.size.width >= _WIDE_COLUMNS
        self._show_list()
        self._show_panes()
        self.set_interval(_CLOCK_SECONDS, self._show_elapsed)
        # After Ctrl-Z and `fg` the terminal shows nothing.
        self.app_resume_signal.subscribe(self._main, lambda _: self.refresh(layout=True))
        # They import much: the list comes first. Not call_after_refresh(): a dialog that opens
        # early delays it until the screen below gets another message (textual 8.2).
        self.set_timer(_SETTLE_SECONDS, self._start_all)

    # What changes.

    def _start_all(self) -> None:
        for work in (self._watch, self._refresh_forever, self._ingest_forever):
            self._start(work())

    def _start(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            try:
                await work
            except Exception as error:
                self._fail(error)

        task = asyncio.create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _handle_exception(self, error: Exception) -> None:
        # textual would print a traceback with all local variables.
        self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.error = self.error or error
        self.exit()

    async def _watch(self) -> None:
        has_file = self._session.store.file is not None
        seconds = _LOOK_SECONDS if has_file else _SERVER_LOOK_SECONDS
        while True:
            row = self._selected_row()
            look = functools.partial(self._reader.look, self._shown, row, self._visible())
            try:
                view = await background.in_thread(look)
            except errors.OrchestratorError as error:
                self._show_message(str(error))
            else:
                self._show(view, row)
            with contextlib.suppress(TimeoutError):
                # Not wait_for(): in Python 3.11 it may lose the cancellation at the end.
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
                await asyncio.sleep(_SETTLE_SECONDS)
            self._wake.clear()

    async def _refresh_forever(self) -> None:
        floor_seconds = max(self._session.profile.poll_floor_seconds, _MIN_REFRESH_SECONDS)
        while True:
            with self._errors_shown():
                await background.in_thread(lambda: self._refresh_states(self._session))
            await asyncio.sleep(floor_seconds)

    async def _ingest_forever(self) -> None:
        read: object = None
        while True:
            await asyncio.sleep(_INGEST_SECONDS)
            job = self._view.job
            if job is None or job.ended:
                continue
            stamp = await background.in_thread(functools.partial(reader.stamp_of_job, job))
            if (job.row, stamp) == read:
                continue
            read = job.row, stamp
            with self._errors_shown():
                await background.in_thread(functools.partial(self._ingest_log, self._session, job))

    @contextlib.contextmanager
    def _errors_shown(self) -> Iterator[None]:
        try:
            yield
        except errors.OrchestratorError as error:
            self._show_message(str(error))

    # What is shown.

    def _show(self, view: reader.View, row: int | None) -> None:
        old, self._view = self._view, view
        if view.listing is not old.listing:
            self._show_list()
        if self._selected_row() != row:
            # The details are those of another job.
            self._wake.set()
            return
        if view is not old:
            self._show_details(is_new=(old.job and old.job.row) != row)

    def _show_list(self) -> None:
        if (known := self._view.listing) is None:
            return
        now = self._session.clock.now()
        lines = [listing.line_of(group, now) for group in known.groups]
        keys = [listing.key_of(group) for group in known.groups]
        self._table.fill(lines, keys, self._shown, self._empty_text(known))
        self._write("summary", listing.summary(known, self._shown))
        self._write("problem", "\n".join(known.messages))
        self._statics["problem"].set_class(not known.messages, "silent")

    def _empty_text(self, known: listing.Listing) -> str:
        if known.is_empty:
            return "No jobs yet. Submit one: orchestrator submit train.py"
        if self._shown.words:
            return "No job matches. escape: remove the filter"
        return "No job is live or recent. a: show older jobs"

    def _show_elapsed(self) -> None:
        known = self._view.listing
        now = self._session.clock.now()
        for number, group in enumerate(known.groups if known else ()):
            job = group.first
            if group.count == 1 and job.state is jobs.JobState.RUNNING:
                elapsed = row_values.elapsed(job_rows.elapsed_seconds(job, now))
                self._table.update_cell(number, "elapsed", elapsed)

    def _show_details(self, *, is_new: bool) -> None:
        job = self._view.job
        self._show_title()
        panes = self._texts
        if job is None:
            for pane in panes.values():
                pane.show([], is_new=True)
            return
        panes["log"].show(self._view.log.text, is_new=is_new)
        width = panes["metrics"].size.width
        lines = details.metric_lines(self._view.curves, width)
        panes["metrics"].show(lines, is_new=is_new)
        width = panes["explain"].size.width
        panes["explain"].show(details.wrapped(self._view.explanation, width), is_new=is_new)

    def _show_title(self) -> None:
        job = self._view.job
        name = "" if job is None else f"{naming.name_of(job)} {job.name} {job.state}"
        names = (f"[{pane}]" if pane in self._visible() else pane for pane in _PANES)
        self._write("title", f"{escaping.one_line(name)}  {' '.join(names)}")

    def _visible(self) -> tuple[reader.Pane, ...]:
        return _PANES if self._is_wide else (self._pane,)

    def _show_panes(self) -> None:
        self._main.set_class(self._is_wide, "wide")
        self._main.set_class(not self._is_wide, "narrow")
        for name, pane in self._texts.items():
            pane.set_class(name != self._pane, "hidden")
        self._side.set_class(self._pane == "log", "hidden")
        self._show_title()
        self._wake.set()

    def on_resize(self, event: events.Resize) -> None:
        if hasattr(self, "_table"):
            # self.size is still the old one.
            self._is_wide = event.size.width >= _WIDE_COLUMNS
            self._show_panes()
            self.call_after_refresh(self._show_details, is_new=False)

    def _write(self, name: str, text: str) -> None:
        self._statics[name].update(text)

    def _show_message(self, text: str) -> None:
        self._write("message", escaping.one_line(text))

    def _show_message_from_thread(self, text: str) -> None:
        if (loop := self._event_loop) is not None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._show_message, text)

    def _selected(self) -> jobs.JobGroup | None:
        known, cursor = self._view.listing, self._table.cursor
        return None if known is None or cursor is None else known.groups[cursor]

    def _selected_row(self) -> int | None:
        group = self._selected()
        return None if group is None else group.first.row

    # Keys.

    def on_job_table_moved(self) -> None:
        self._wake.set()

    def on_job_table_end_reached(self) -> None:
        known = self._view.listing
        if known is not None and known.total > self._shown.limit:
            self._change(limit=self._shown.limit + listing.PAGE)

    def _change(self, **fields: object) -> None:
        self._shown = dataclasses.replace(self._shown, **fields)  # type: ignore[arg-type]
        self._wake.set()

    def action_age(self) -> None:
        self._shown = self._shown.with_next_age()
        self._wake.set()

    def action_order(self) -> None:
        self._shown = self._shown.with_next_order()
        self._wake.set()

    def action_direction(self) -> None:
        self._change(descending=not self._shown.descending)

    def action_pane(self, name: reader.Pane) -> None:
        self._pane = name
        self._show_panes()

    async def action_filter(self) -> None:
        if not self.query("#filter"):
            field = widgets.Input(self._shown.words, placeholder="words", id="filter", compact=True)
            await self.mount(field, after="#summary")
        self.query_one("#filter").focus()

    def on_input_changed(self, event: widgets.Input.Changed) -> None:
        self._change(words=event.value, limit=listing.PAGE)

    def on_input_submitted(self, event: widgets.Input.Submitted) -> None:
        self._table.focus()

    async def action_clear(self) -> None:
        self._table.marked.clear()
        self._table.refresh()
        await self.query("#filter").remove()
        self._change(words="")
        self._table.focus()
        self._show_message("")

    def action_help(self) -> None:
        from orchestrator.top import screens

        self.push_screen(screens.help_dialog())

    def action_leave(self) -> None:
        if self._action and not self._is_leaving:
            self._is_leaving = True
            self._show_message(f"{self._action} is not confirmed yet. q: quit anyway")
            return
        self.exit()

    def action_act(self, action: actions.Action) -> None:
        if self._action:
            self._show_message(f"{self._action} is not confirmed yet.")
            return
        known = self._view.listing
        groups = [] if known is None else list(known.groups)
        chosen = [group for group in groups if listing.key_of(group) in self._table.marked]
        if not chosen and (selected := self._selected()) is not None:
            chosen = [selected]
        if chosen:
            self._start(self._ask(action, chosen))

    async def _ask(self, action: actions.Action, chosen: Sequence[jobs.JobGroup]) -> None:
        # It imports everything that talks to Slurm.
        from orchestrator.top import actions, screens

        with self._errors_shown():
            find = functools.partial(listing.jobs_of, self._session, self._shown, chosen)
            chosen_jobs = await background.in_thread(find)
            selected = actions.targets(action, chosen_jobs)
            if not selected:
                states = ", ".join(sorted({str(job.state) for job in chosen_jobs}))
                self._show_message(f"Nothing to {action}: {naming.names_of(chosen_jobs)} {states}")
                return
            title, lines = actions.question(action, selected)

            def answered(is_yes: bool | None) -> None:
                if is_yes:
                    self._start(self._act(action, selected))

            self.push_screen(screens.confirmation(title, lines, action), answered)

    async def _act(self, action: actions.Action, selected: Sequence[jobs.Job]) -> None:
        self._action = f"{action} of {nouns.count(len(selected), 'job')}"
        self._is_leaving = False
        self._show_message(f"{self._action} ...")
        self._table.marked.clear()
        self._table.refresh()
        with self._errors_shown():
            act = functools.partial(self._carry_out, self._session, action, selected)
            self._show_message("; ".join(await background.in_thread(act)))
        self._action = ""
