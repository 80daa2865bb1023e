"""playground: pick task, algorithm and every slider of it, train, and see what the change did beside the runs before."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, urlencode

import ipywidgets as widgets
import numpy as np
import traitlets

from rlviz.algorithms import ALGORITHMS, GRPO, Algorithm, GroupPolicyGradient, command_name
from rlviz.markup import Markup, element, joined, table
from rlviz.runs.controls import Control, Pick, choice_control, float_control, int_control
from rlviz.runs.live import WORDS, Html
from rlviz.runs.panel import CELL, LEARNING_RATES, BackgroundTrainer, LearningCurves, last_numbers, points
from rlviz.runs.setting import Setting, call, changed, command, in_short, parameters, with_values, words_for
from rlviz.settings import TrainSettings, declarations
from rlviz.training import find_task
from rlviz.types import StepRecord
from small_models.checks import checked
from small_models.tasks import TASKS

if TYPE_CHECKING:
    from rlviz.training import TrainingRun

RUNS_BEFORE = 5
MOST_SEEDS = 5


class Parameter(NamedTuple):
    """A slider's range, and in words what it moves."""

    low: float
    high: float
    step: float
    meaning: str


PARAMETERS: Mapping[str, Parameter] = {
    "eps_low": Parameter(0.01, 0.99, 0.01, "clip width below ratio 1"),
    "eps_high": Parameter(0.01, 1.0, 0.01, "clip width above ratio 1"),
    "max_ratio": Parameter(1.5, 20.0, 0.5, "highest upper limit, for the rarest tokens"),
    "c": Parameter(1.1, 20.0, 0.1, "ratio from which a bad token is let go"),
    "beta": Parameter(0.0, 1.0, 0.01, "weight of the KL term; 0: none"),
    "ddof": Parameter(0, 1, 1, "0: population std, 1: sample std"),
    "max_length": Parameter(1, 32, 1, "length, in tokens, that counts as the longest"),
    "cache": Parameter(1, 31, 1, "tokens before max_length over which the punishment grows"),
    "factor": Parameter(0.1, 5.0, 0.1, "punishment at max_length"),
    "floor": Parameter(-5.0, -0.1, 0.1, "lowest punishment"),
    "max_rounds": Parameter(1, 20, 1, "at most so many times P groups are sampled; 1: no replacement"),
    "answer": Parameter(0.0, 1.0, 0.05, "reward of a right answer"),
    "format": Parameter(0.0, 1.0, 0.05, "reward of a well-formed response"),
}
TINY = (1e-4, 0.05, 1e-4)  # range of widths like GSPO's
TITLE = "The playground"
SENTENCE = (
    "Watch a small language model learn from rewards: choose a task and an algorithm, move a slider, press Train."
)
WITHOUT_SLIDER = {"eps": "it keeps a division from 0 / 0, and changes nothing that could be seen"}
STYLE = Markup("""<style>
.rlviz-playground .rlviz-group {border: 1px solid #767676; border-radius: 4px; padding: 2px 8px 6px; margin: 0 6px 6px 0}
.rlviz-playground .rlviz-group h3 {font-size: 15px; line-height: 1.3; margin: 2px 0 4px}
.rlviz-playground .rlviz-buttons button {width: 110px}
.rlviz-playground .widget-html-content {line-height: 1.4}
</style>""")


@dataclass
class Attempt:
    """One press of Train: its number, its setting, and the records of each of its seeds that has begun."""

    number: int
    setting: Setting
    seeds: list[list[StepRecord]] = field(default_factory=list)


class Playground(BackgroundTrainer):
    """Task, algorithm, sliders, Train / Stop / Resume / Reset, live curves and the runs before; made by `playground`.

    setting: what Train would train now. controls: those on show, by the name of what they set. attempts: the runs so far,
    the one on show last.
    """

    def __init__(self, task: str, algorithm: GroupPolicyGradient, settings: TrainSettings, seeds: int) -> None:
        if not 1 <= seeds <= MOST_SEEDS:
            raise ValueError(f"seeds must be from 1 to {MOST_SEEDS}; got {seeds}")
        self._start = Setting(find_task(task), _of_groups(algorithm), settings, seeds)
        self.attempts: list[Attempt] = []
        self._count = 0
        self._set_now: Setting | None = None
        family = {one.name: one for one in ALGORITHMS if isinstance(one, GroupPolicyGradient)}
        kin = [name for name, base in family.items() if _made_from(base, algorithm)]
        self._first = kin[0] if kin else f"{algorithm.name} (yours)"
        self._bases = family if kin else {self._first: algorithm, **family}
        self._family = frozenset(family)

        self._task = Pick("task", self._start.task, [(one.name, one) for one in TASKS])
        self._algorithm = Pick("algorithm", self._first, [(name, name) for name in self._bases])
        self._seeds = int_control("seeds", seeds, 1, MOST_SEEDS, "seeds, in turn")
        self._training = _training_controls(settings)
        self._sliders: dict[str, dict[str, Control]] = {}
        self._parameters = widgets.VBox()
        self._algorithm.observe(self._show_sliders)
        everything: list[Control | Pick] = [self._task, self._algorithm, self._seeds, *self._training.values()]
        for control in everything:
            control.observe(self._say_what_is_set)

        self.reset_button = widgets.Button(description="Reset", tooltip="Forget the runs; all controls as at first")
        self.reset_button.on_click(lambda button: self.reset())
        self._since = Html(layout={"flex": "1 1 0", "height": "46px", "margin": "0 0 0 12px"})
        self._lines_to_copy = Html()
        self._history = Html()
        super().__init__(
            LearningCurves(12.2, 3.7, settings.steps),
            [Html(STYLE, layout={"display": "none"}), Html(_greeting()), self._groups()],
            beside_buttons=[self.reset_button, self._since],
            below=[self._lines_to_copy, self._history],
        )
        self.add_class("rlviz-playground")
        self._page.observe(self._follow_address, "wanted")
        self._show_sliders()
        self._say_what_is_set()
        self._redraw("Press Train.")

    def _groups(self) -> widgets.Box:
        chosen = ("steps", "seed")
        first: list[Control | Pick] = [
            self._task,
            self._algorithm,
            *(self._training[name] for name in chosen),
            self._seeds,
        ]
        self._advanced = {name: control for name, control in self._training.items() if name not in chosen}
        rest = list(self._advanced.values())
        declared = declarations(TrainSettings)
        meanings = {words_for(control.name): declared[control.name].help for control in rest}
        advanced = _group("Rollouts and updates", [*_rows(rest), _what_these_are(meanings)])
        self._more = widgets.ToggleButton(description="More settings", tooltip="Group size, learning rate, updates …")
        self._more.observe(lambda change: _show(advanced, change["new"]), "value")
        _show(advanced, False)
        groups = [
            _group("Task and algorithm", [*_rows(first), self._more]),
            _group("Parameters of the algorithm", [self._parameters]),
            advanced,
        ]
        return widgets.Box(groups, layout={"display": "flex", "flex_flow": "row wrap", "align_items": "stretch"})

    @property
    def controls(self) -> dict[str, Control | Pick]:
        first: dict[str, Control | Pick] = {"task": self._task, "algorithm": self._algorithm, "seeds": self._seeds}
        return {**first, **self._training, **self._sliders_on_show}

    @property
    def setting(self) -> Setting:
        values = {name: control.value for name, control in self._sliders_on_show.items()}
        return Setting(
            self._task.value,
            with_values(self._base, values),
            replace(self._start.settings, **{name: control.value for name, control in self._training.items()}),
            self._seeds.value,
        )

    @property
    def _base(self) -> GroupPolicyGradient:
        return self._bases[self._algorithm.value]

    @property
    def _sliders_on_show(self) -> dict[str, Control]:
        """The chosen algorithm's controls, made when it is first chosen; each algorithm keeps its own."""
        name = self._algorithm.value
        if name not in self._sliders:
            self._sliders[name] = _sliders_for(self._start.algorithm if name == self._first else self._base)
            for control in self._sliders[name].values():
                control.observe(self._say_what_is_set)
        return self._sliders[name]

    def _show_sliders(self) -> None:
        sliders = self._sliders_on_show
        meanings = {name: PARAMETERS[name].meaning for name in sliders if name in PARAMETERS}
        self._parameters.children = [*_rows(sliders.values()), _what_these_are(meanings)]

    def _say_what_is_set(self) -> None:
        """Say what changed since the last run, and the lines that reproduce what is set."""
        try:
            now = self._set_now = self.setting
        except ValueError as error:
            self._set_now = None
            self._since.value, self._lines_to_copy.value = _since(f"Train would refuse this: {error}."), Markup()
            return
        self._since.value = _since(self._since_the_last_run(now))
        with self._lock:
            self._history.value = history_table(self.attempts, now)
        known = self._algorithm.value in self._family
        python = command_name(self._base).upper().replace("-", "_") if known else "mine"
        self._page.address = self.address
        line, imports = call(now, self._base, python)
        terminal = command(now, self._base) if known else ""
        self._lines_to_copy.value = _lines_to_copy(line, imports, terminal, own=not known)

    @property
    def _at_first(self) -> dict[str, Any]:
        """What each control on show says before anybody moves it, and Reset brings back."""
        start = self._start
        own = start.algorithm if self._algorithm.value == self._first else self._base
        training = {name: getattr(start.settings, name) for name in self._training}
        return {"task": start.task, "algorithm": self._first, "seeds": start.seeds, **training, **parameters(own)}

    @property
    def address(self) -> str:
        """The controls that were moved, as the address of the page says it: task=sort&eps_high=0.5."""
        first = self._at_first
        moved = {name: control.value for name, control in self.controls.items() if control.value != first[name]}
        return urlencode({name: _in_address(value) for name, value in moved.items()})

    def _follow_address(self, change: Any) -> None:
        """Set the controls as the page's address says; what it asks for in vain is said."""
        if self._running:
            return
        wanted = dict(parse_qsl(change["new"]))
        refused = [name for name in ("algorithm", "task") if name in wanted and not self._set(name, wanted.pop(name))]
        refused += [name for name, text in wanted.items() if not self._set(name, text)]
        self._more.value = self._more.value or any(name in self._advanced for name in wanted)
        if refused:
            self._redraw(f"The address asks for a {', '.join(refused)} that there is not.")

    def _set(self, name: str, text: str) -> bool:
        """Set a control to what the text stands for; return whether there is such a control, and it can be that."""
        control = self.controls.get(name)
        if control is None:
            return False
        try:
            if isinstance(control, Pick):
                control.box.value = next(value for _, value in control.box.options if _in_address(value) == text)
            else:
                control.slider.value = type(control.slider.value)(text)
        except (StopIteration, ValueError, traitlets.TraitError):
            return False
        return bool(_in_address(control.value) == text)

    def _since_the_last_run(self, now: Setting) -> str:
        if not self.attempts:
            return ""
        last = self.attempts[-1]
        if now != last.setting:
            return f"Since run {last.number}: {in_short(last.setting, now)}."
        if len(self.attempts) == 1:
            return f"This is run {last.number}. Move a slider, and train again."
        before = self.attempts[-2]
        words = in_short(before.setting, now) or "nothing, so the curve is the same"
        return f"Run {last.number}, since run {before.number}: {words}."

    def reset(self) -> None:
        """Forget the runs so far, and put every control back to where it was at first."""
        if self._running:
            return
        self.wait()
        self.attempts, self._count, self.run, self.records = [], 0, None, []
        start = self._start
        self._sliders = {}
        self._task.box.value, self._algorithm.box.value = start.task, self._first
        self._seeds.slider.value = start.seeds
        for name, control in self._training.items():
            control.slider.value = getattr(start.settings, name)
        self._show_sliders()
        self._say_what_is_set()
        with self._lock:
            self._curves.show_before([], start.settings.steps)
        self._set_buttons(running=False)
        self._redraw("Press Train.")

    def _prepare(self) -> None:
        setting = self.setting
        run = _run_of(setting, 0)
        begun = [one for one in self.attempts if any(one.seeds)][-RUNS_BEFORE:]
        self._count += 1
        self.attempts = [*begun, Attempt(self._count, setting)]
        self._show_run(run)
        with self._lock:
            before = [(str(one.number), one.seeds) for one in begun]
            self._curves.show_before(before, setting.settings.steps)
        self._say_what_is_set()

    def _show_run(self, run: TrainingRun[StepRecord]) -> None:
        self.run, self.records = run, []
        self.attempts[-1].seeds.append(self.records)

    @property
    def unfinished(self) -> bool:
        more = bool(self.attempts) and self._seed_number < self.attempts[-1].setting.seeds
        return super().unfinished or more

    @property
    def _steps_left(self) -> int:
        setting = self.attempts[-1].setting
        return super()._steps_left + (setting.seeds - self._seed_number) * setting.settings.steps

    @property
    def _seed_number(self) -> int:
        return len(self.attempts[-1].seeds)

    def _next_record(self) -> StepRecord:
        if not super().unfinished:
            self._show_run(_run_of(self.attempts[-1].setting, self._seed_number))
        return super()._next_record()

    def _set_buttons(self, *, running: bool) -> None:
        super()._set_buttons(running=running)
        self.reset_button.disabled = running

    def _draw(self) -> None:
        self._curves.show(self.attempts[-1].seeds if self.attempts else [])
        self._history.value = history_table(self.attempts, self._set_now)

    def _words_for(self, state: str) -> str:
        if not self.records:
            return f"{state} Every run starts from the task's warm start; the runs before stay in grey."
        now, setting = self.attempts[-1], self.attempts[-1].setting
        seeds = f" ({self._seed_number} of {setting.seeds}; bold is the mean of the seeds)" if setting.seeds > 1 else ""
        numbers = [one.number for one in self.attempts[:-1]]
        grey = f" Grey: run{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}." if numbers else ""
        return (
            f"{state} Run {now.number}, {setting.algorithm.name} on {setting.task.name}, seed "
            f"{setting.settings.seed + self._seed_number - 1}{seeds}, step {self.records[-1].step} of "
            f"{setting.settings.steps}{self._time_left}: {last_numbers(self.records)}.{grey}"
        )


def _greeting() -> Markup:
    return joined(
        element("h2", TITLE, style="margin: 4px 0 0"), element("p", SENTENCE, style=f"{WORDS}; margin: 2px 0")
    )


def _show(box: widgets.Widget, shown: bool) -> None:
    box.layout.display = None if shown else "none"


def _in_address(value: Any) -> str:
    """Return a control's value as the page's address says it: a task by its name, a number as it prints."""
    return str(getattr(value, "name", value))


def _of_groups(algorithm: Algorithm) -> GroupPolicyGradient:
    if not isinstance(algorithm, GroupPolicyGradient):
        raise ValueError(
            f"algorithm: the playground trains algorithms that learn from groups of responses, such as GRPO; {algorithm.name} "
            "does not, see rlviz train"
        )
    return algorithm


def _made_from(base: GroupPolicyGradient, algorithm: GroupPolicyGradient) -> bool:
    """Return whether the algorithm is `base` but for the values of its sliders."""
    values = parameters(algorithm)
    return values.keys() == parameters(base).keys() and with_values(base, values) == algorithm


def _run_of(setting: Setting, place: int) -> TrainingRun[StepRecord]:
    """Return the run of one of the setting's seeds, from the warm start."""
    from rlviz.training import train  # which the first picture does not wait for

    settings = replace(setting.settings, seed=setting.settings.seed + place)
    return train(setting.task, setting.algorithm, settings)


def _training_controls(settings: TrainSettings) -> dict[str, Control]:
    def whole(name: str, high: int) -> Control:
        low = int(declarations(TrainSettings)[name].limits["at least"])
        return int_control(name, getattr(settings, name), low, high, words_for(name))

    return {
        "steps": whole("steps", 300),
        "seed": whole("seed", 99),
        "group_size": whole("group_size", 32),
        "num_prompts": whole("num_prompts", 64),
        "lr": choice_control("lr", settings.lr, LEARNING_RATES, words_for("lr")),
        "updates_per_rollout": whole("updates_per_rollout", 16),
        "minibatches": whole("minibatches", 8),
        "temperature": float_control("temperature", settings.temperature, 0.1, 2.0, 0.1),
    }


def _what_these_are(meanings: Mapping[str, str]) -> Html:
    lines = [f"{name}: {meaning}" for name, meaning in meanings.items()]
    return Html(element("details", element("summary", "What these are"), _on_lines(lines)))


def _sliders_for(algorithm: GroupPolicyGradient) -> dict[str, Control]:
    values = {n: v for n, v in parameters(algorithm).items() if n not in WITHOUT_SLIDER and math.isfinite(v)}
    return {name: _slider(name, value) for name, value in values.items()}


def _slider(name: str, value: float) -> Control:
    low, high, step = PARAMETERS[name][:3] if name in PARAMETERS else _around(value)
    if name.startswith("eps_") and value < low:
        low, high, step = TINY
    if isinstance(value, int):
        return int_control(name, value, math.floor(low), math.ceil(high))
    return float_control(name, value, low, high, step)


def _around(value: float) -> tuple[float, float, float]:
    """Return a range for a parameter of a piece of one's own."""
    low, high = sorted((value / 4, value * 4)) if value else (0.0, 1.0)
    return low, high, (high - low) / 75


def _rows(controls: Iterable[Control | Pick]) -> list[widgets.Widget]:
    """Return the controls' rows, so narrow that three groups fit beside each other into a window of 1280."""
    for control in controls:
        if isinstance(control, Control):
            control.slider.layout.width, control.box.layout.width = "165px", "217px"
        else:
            control.box.layout.width = "384px"
        control.box.style.description_width = "132px"
    return [control.row for control in controls]


def _group(title: str, rows: Sequence[widgets.Widget]) -> widgets.VBox:
    box = widgets.VBox([Html(element("h3", title)), *rows])
    box.add_class("rlviz-group")
    return box


def _since(words: str) -> Markup:
    style = f"{WORDS}; max-height: 44px; overflow-y: auto"
    return element("div", words, aria_live="polite", tabindex=0 if words else -1, style=style)


def _lines_to_copy(line: str, imports: str, terminal: str, *, own: bool) -> Markup:
    mine = joined(" (", element("code", "mine"), " is your algorithm)") if own else ""
    code = element("code", f"{imports}\n{line}", style="display: block; white-space: pre-wrap")
    last = joined("In a terminal, the first seed: ", element("code", terminal)) if terminal else ""
    style = "font-size: 14px; line-height: 1.5; margin-top: 4px"
    return element("div", "In Python", mine, ":", code, last, style=style)


def _on_lines(texts: Iterable[str]) -> Markup:
    return joined(*[part for text in texts for part in (element("br"), text)][1:])


def history_table(attempts: Sequence[Attempt], now: Setting | None) -> Markup:
    """Return an HTML table of the runs: what each was, what came of it, what changed since the one before and why.

    now: what is set; a last row says how it differs from the last run, if it does.
    """
    if not any(any(one.seeds) for one in attempts):
        return Markup()
    columns = (
        "run",
        "algorithm, task",
        "held-out accuracy",
        "reward",
        "steps",
        "seconds",
        "changed since the run before",
    )
    rows = [
        (
            str(one.number),
            _name(one.setting),
            *_what_came_of_it(one),
            _what_changed(before.setting if before else None, one.setting),
        )
        for before, one in zip([None, *attempts], attempts, strict=False)
    ]
    if now is not None and now != attempts[-1].setting:
        rows.append(("next", _name(now), "", "", "", "", _what_changed(attempts[-1].setting, now)))
    style = "font-size: 14px; line-height: 1.35; margin-top: 6px; text-align: left"
    body = (element("tr", *map(_cell, row)) for row in rows)
    return table(columns, body, heading=f"text-align: left; {CELL}", style=style, caption="The runs")


def _cell(text: str) -> Markup:
    return element("td", _on_lines(text.split("\n")), style=f"vertical-align: top; {CELL}")


def _name(setting: Setting) -> str:
    return f"{setting.algorithm.name}, {setting.task.name}"


def _what_changed(before: Setting | None, now: Setting) -> str:
    reasons = [f"{what}{f' ({why})' if why else ''}" for what, why in changed(before, now)] if before else ["–"]
    return "\n".join(reasons) or "nothing"


def _what_came_of_it(attempt: Attempt) -> tuple[str, str, str, str]:
    seconds = sum(record.seconds for records in attempt.seeds for record in records)
    steps = " + ".join(str(len(records)) for records in attempt.seeds)
    return _over_seeds(attempt, "held_out_accuracy"), _over_seeds(attempt, "reward"), steps, f"{seconds:.0f}"


def _over_seeds(attempt: Attempt, metric: str) -> str:
    """Return a metric as each seed last had it: the mean, and from where to where."""
    last = [values[-1] for records in attempt.seeds if len(values := points(records, metric)[1])]
    if not last:
        return "–"
    spread = f" ({min(last):.2f} to {max(last):.2f})" if len(last) > 1 else ""
    return f"{np.mean(last):.2f}{spread}"


@checked
def playground(
    task: str = "chain",
    *,
    algorithm: GroupPolicyGradient = GRPO,
    settings: TrainSettings | None = None,
    seeds: int = 1,
) -> Playground:
    """Return a playground: pick task, algorithm and every slider of it, train it, and compare with the runs before.

    An algorithm of your own joins the list, with a slider for each number in its pieces. seeds: how many runs Train makes,
    one after the other, the first with the seed of the settings. The controls start from these values, and Reset returns to
    them. Raises ValueError for an unknown task, for an algorithm that `train` does not train, and for seeds out of range.
    """
    return Playground(task, algorithm, settings or TrainSettings(evaluate_every=10), seeds)
