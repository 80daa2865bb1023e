"""The panel that trains in a notebook's kernel: sliders, the curves of a run, and a thread in which it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from traitlets import validate

from rlviz.algorithms import GRPO, GroupPolicyGradient, numbers
from rlviz.markup import Markup, element, joined, table
from rlviz.page.widget import with_static_image
from rlviz.pictures.parameters import LABELS
from rlviz.runs.curves import GROUP_GRAPHS, REWARD_GRAPH, LiveCurves, Series
from rlviz.runs.progress import RECENT, describe_last_step, describe_seconds
from rlviz.settings import TrainSettings
from rlviz.training import find_task
from rlviz.types import ResponseRecord, StepRecord
from small_models.checks import checked
from small_models.tasks.base import verdict

if TYPE_CHECKING:
    from rlviz.training import TrainingRun

REDRAW_SECONDS = 0.1
WORDS = 60  # of a response in the group's table
TABLE_HEIGHT = "270px"  # of the group's table, which takes its place before there is a group
CELL = "padding: 2px 14px 2px 0"
LEARNING_RATES = (3e-5, 1e-4, 2e-4, 3e-4, 5e-4, 1e-3)
STOPPED = "Stopped. Resume goes on as this run began; Train begins another one, as the sliders say."
WITHOUT_KL = replace(GRPO, kl=None)
LOWER_GRAPHS = tuple(replace(graph, tall=0.45) for graph in GROUP_GRAPHS[1:])
# Settings, buttons and curves fit a notebook in a window of 1366 × 768. A picture's auto margins would shrink it in a VBox.
# ipywidgets' own tracks and borders have a contrast of 1.9:1 with white, and the focus is a shade of grey
LOOKS = Markup("""<style>
.rlviz-panel .noUi-target, .rlviz-panel .noUi-connects {background: #767676; border-color: #767676}
.rlviz-panel .noUi-handle {background: #0072B2; border-color: #0072B2}
.rlviz-panel :is(input, select) {border-color: #767676 !important}
.rlviz-panel .jupyter-button {border: 1px solid #767676 !important}
.rlviz-panel .rlviz-picture {width: 100%; --rlviz-tall: 280}
.rlviz-chip {padding: 0 2px; border-block: 2px solid transparent}
.rlviz-chip.is-up {background: color-mix(in srgb, #0072B2 var(--push), transparent); border-top-color: #0072B2}
.rlviz-chip.is-down {background: color-mix(in srgb, #D55E00 var(--push), transparent); border-bottom-color: #D55E00}
.rlviz-panel :focus-visible {outline: 2px solid #D55E00 !important; outline-offset: 2px}
</style>""")


class Html(widgets.HTML):
    """A widget for what `rlviz.markup` made; Jupyter typesets no $…$ or \\(…\\) in it, which may come from a file."""

    @validate("value")
    def _only_markup(self, proposal: Any) -> str:
        if not isinstance(proposal["value"], Markup) and proposal["value"]:
            raise TypeError("value must be made by rlviz.markup, which escapes texts")
        return element("div", proposal["value"], class_="mathjax_ignore tex2jax_ignore") if proposal["value"] else ""


def round_off(value: float) -> float:
    """Return 0.21 for the 0.21000000000000005 that a slider makes of 0.2 and a step of 0.01, and 0 for what is next to it."""
    return float(f"{round(value, 12):.10g}") + 0.0 if isinstance(value, float) else value


class Control:
    """A slider with a number box beside it: the box carries the name that screen readers read, and takes exact values.

    options: to pick from, for numbers that change by factors; else a number from low to high. Both reach as far as value lies.
    """

    def __init__(
        self, name: str, value: float, low: float = 0, high: float = 0, step: float = 1, options: Sequence[float] = ()
    ) -> None:
        if options:
            named = {"options": [(f"{option:g}", option) for option in sorted({*options, value})], "value": value}
            self.slider, box = widgets.SelectionSlider(**named), widgets.Dropdown(**named)
        else:
            ends = {"value": value, "min": min(low, value), "max": max(high, value), "step": step}
            if isinstance(value, int):
                self.slider, box = widgets.IntSlider(**ends), widgets.BoundedIntText(**ends)
            else:
                self.slider, box = widgets.FloatSlider(**ends), widgets.BoundedFloatText(**ends)
        self.slider.readout, self.slider.layout.width = False, "185px"
        box.description = box.tooltip = name
        box.style.description_width, box.layout.width = "130px", "215px"
        widgets.link((self.slider, "value"), (box, "value"), transform=(round_off, round_off))
        self.row = widgets.HBox([box, self.slider])

    @property
    def value(self) -> Any:
        return round_off(self.slider.value)

    def lock(self, locked: bool) -> None:
        """Let the control be moved, or not."""
        for widget in self.row.children:
            widget.disabled = locked


class TrainingPanel(widgets.VBox):
    """Sliders, Train / Stop / Resume, live curves, and the last group as a table; made by `training_panel`.

    run: the run on show (None before the first), which goes on in a thread. records: its steps so far. curves: their picture.
    """

    def __init__(self, task: str, algorithm: GroupPolicyGradient, settings: TrainSettings) -> None:
        self.task, self.algorithm, self.settings = find_task(task), algorithm, settings
        self.run: TrainingRun[StepRecord] | None = None
        self.records: list[StepRecord] = []
        self._before: list[StepRecord] = []
        self._running = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.curves = LiveCurves((GROUP_GRAPHS[0] if self.task.reward_is_grade else REWARD_GRAPH, *LOWER_GRAPHS))
        self.controls: dict[str, Control] = {
            "group_size": Control(LABELS["group_size"], settings.group_size, 2, 32),
            "lr": Control(LABELS["lr"], settings.lr, options=LEARNING_RATES),
            "updates_per_rollout": Control(LABELS["updates_per_rollout"], settings.updates_per_rollout, 1, 16),
            "seed": Control("seed", settings.seed, 0, 99),
        }
        for name, high in (("eps_low", 0.99), ("eps_high", 1.0)):
            if name in (width := numbers(algorithm)):
                self.controls[name] = Control(LABELS[name], float(width[name]), 0.01, high, 0.01)
        self.train_button = widgets.Button(description="Train", button_style="primary", tooltip="Start a new run")
        self.stop_button = widgets.Button(description="Stop", disabled=True, tooltip="Stop after the current step")
        self.resume_button = widgets.Button(description="Resume", disabled=True, tooltip="Go on with the stopped run")
        self.train_button.on_click(lambda button: self.start())
        self.stop_button.on_click(lambda button: self.stop())
        self.resume_button.on_click(lambda button: self.resume())
        buttons = widgets.HBox([self.train_button, self.stop_button, self.resume_button])
        rows = [control.row for control in self.controls.values()]
        half = (len(rows) + 1) // 2
        columns = widgets.HBox([widgets.VBox(rows[:half]), widgets.VBox(rows[half:])], layout={"flex_flow": "row wrap"})
        self._table = Html(layout={"height": TABLE_HEIGHT})
        looks = Html(LOOKS, layout={"display": "none"})
        super().__init__([looks, columns, buttons, self.curves, self._table])
        self.add_class("rlviz-panel")
        self._redraw("Press Train.")

    @property
    def is_unfinished(self) -> bool:
        """Whether there is anything left to train."""
        return self.run is not None and self.run.step < self.run.settings.steps

    def start(self) -> None:
        """Begin a new run with the controls' values; the run before stays on show in grey."""
        if self._running:
            return
        self.wait()  # the thread before may still be saying that it has ended
        self._redraw("Loading the model.")  # the first time, what trains is imported
        from rlviz.training import train  # which the first picture does not wait for

        try:  # nothing has changed where the controls' values do not fit
            values = {name: control.value for name, control in self.controls.items()}
            widths = {name: values.pop(name) for name in ("eps_low", "eps_high") if name in values}
            algorithm = self.algorithm.with_parameters(**widths)
            self.run = train(self.task, algorithm, replace(self.settings, **values))
        except Exception as error:  # shown where the person looks: nobody sees a callback's traceback
            self._redraw(f"This run cannot start: {error}.")
        else:
            self._before, self.records = self.records, []
            self._go()

    def stop(self) -> None:
        """Stop after the step in progress; `resume` goes on from there."""
        self._stop.set()

    def resume(self) -> None:
        """Go on with the stopped run."""
        if not self._running and self.is_unfinished:
            self._go()

    def wait(self, seconds: float | None = None) -> None:
        """Wait until the run has stopped or ended (for scripts and tests; a notebook stays responsive without it)."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _go(self) -> None:
        self.wait()
        self._running = True
        self._stop.clear()
        self._set_buttons(running=True)
        self._thread = threading.Thread(target=self._work, daemon=True, name="rlviz training")
        self._thread.start()

    def _work(self) -> None:
        assert self.run is not None
        drawn, settings = 0.0, self.run.settings
        try:
            self._redraw(f"Sampling {settings.num_prompts} × {settings.group_size} responses.")
            while self.is_unfinished and not self._stop.is_set():
                # Drawing is slower than a step: ten pictures a second, whatever the pace.
                self.records.append(next(self.run))
                if time.monotonic() - drawn >= REDRAW_SECONDS:
                    self._redraw("Training. The sliders are locked until it stops.")
                    drawn = time.monotonic()
            self._running = False
            self._redraw(STOPPED if self.is_unfinished else "Done.")
        except Exception as error:  # shown where the person looks: nobody sees a thread's traceback
            self._running = False
            self._redraw(f"The run broke off: {error}")
        finally:
            self._running = False
            self._set_buttons(running=False)

    def _set_buttons(self, *, running: bool) -> None:
        self.train_button.disabled = running
        self.stop_button.disabled = not running
        self.resume_button.disabled = running or not self.is_unfinished
        for control in self.controls.values():
            control.lock(running)

    def _redraw(self, state: str) -> None:
        series = [Series("", [self.records])]
        if self._before:
            series.append(Series("before", [self._before], "before"))
        settings = self.run.settings if self.run else self.settings
        words = f"{state} {self.algorithm.name} on {self.task.name}, {settings.steps} steps."
        if self.run is not None and self.records:
            used = vars(settings) | numbers(self.run.algorithm)
            values = ", ".join(f"{LABELS.get(name, name)} {used[name]:g}" for name in self.controls)
            time_left = ""
            if self._running and (left := settings.steps - self.run.step):
                seconds = left * fmean(record.seconds for record in self.records[-RECENT:])
                time_left = f", {describe_seconds(seconds)} left"
            words = (
                f"{state} Step {self.records[-1].step} of {settings.steps}{time_left} ({values}): "
                f"{describe_last_step(self.records)}.{' The run before is grey.' if self._before else ''}"
            )
        self._table.value = group_table(self.records[-1]) if self.records else Markup()
        self.curves.show(series, settings.steps, words)

    @property
    def caption(self) -> str:
        """What is said above the curves."""
        return self.curves.caption

    @property
    def png(self) -> bytes:
        """The curves as they are now."""
        return self.curves.png

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_static_image(super()._repr_mimebundle_(**kwargs), self.png, self.caption)


def group_table(record: StepRecord) -> Markup:
    """Return an HTML table of a record's group: response, reward, advantage, length."""
    columns = ("response", "graded", "reward", "advantage", "tokens")
    rows, strongest = [], max((abs(response.advantage) for response in record.group), default=0.0)
    for response in record.group:
        cells = (
            joined(word_chips(response, strongest), " (cut off)" if response.truncated else ""),
            verdict(response.correct, response.well_formed),
            f"{response.reward:.2f}",
            f"{response.advantage:+.2f}".replace("-", "−"),
            str(response.length),
        )
        rows.append(element("tr", *(element("td", cell, style=CELL) for cell in cells)))
    right = f" (right answer {record.gold})" if record.gold else ""
    prompt = record.groups[0].user_text or record.prompt
    caption = (
        f"Step {record.step}: the {len(record.group)} responses to {prompt}{right}; the advantage pushes blue ones up, "
        "orange ones down"
    )
    style = "font-size: 14px; margin-top: 6px"
    rows_table = table(columns, rows, heading=f"text-align: left; {CELL}", style=style, caption=caption)
    return element("div", rows_table, style=f"height: {TABLE_HEIGHT}; overflow-y: auto")


def word_chips(response: ResponseRecord, strongest: float) -> Markup:
    """Return a response's words, tinted and lined by its advantage; strongest: the largest of the group, in size."""
    A = response.advantage
    way = "is-up" if A > 0 else "is-down" if A < 0 else ""
    share = f"--push: {15 + 45 * abs(A) / strongest:.0f}%" if way else ""
    # Digits are read by their places, words as a sentence.
    tag = "span" if " " in response.text else "code"
    words = response.text.split()
    chips = (element(tag, word, class_=f"rlviz-chip {way}", style=share) for word in words[:WORDS])
    more = f"… {len(words) - WORDS} more words" if len(words) > WORDS else ""
    return joined(*(part for chip in chips for part in (chip, " ")), more)


@checked
def training_panel(
    task: str = "chain",
    *,
    algorithm: GroupPolicyGradient = WITHOUT_KL,
    settings: TrainSettings | None = None,
) -> TrainingPanel:
    """Return a panel that trains the task's shipped policy in the background while you watch.

    Every Train starts again from the warm start, and leaves the run before in grey to compare with. Raises ValueError for
    an unknown task.
    """
    return TrainingPanel(task, algorithm, settings or TrainSettings(evaluate_every=10))
