"""inspect_run: a run as a whole, one of its steps, one token of it; alone or beside another run, while it trains or from disk."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import ipywidgets as widgets
import pandas as pd
from matplotlib.figure import Figure

from rlviz.algorithms import ALGORITHMS, GroupPolicyGradient, differences
from rlviz.algorithms.describe import from_json, to_json
from rlviz.markup import Markup, element, joined, table
from rlviz.pictures.base import BLUE, VERMILION
from rlviz.pictures.controls import Control, Pick, int_control
from rlviz.pictures.live import WORDS, BlittedFigure, Html, LivePicture
from rlviz.runs.history import RunHistory, RunPicture, RunsAtStep
from rlviz.settings import settings_from
from rlviz.training import RunFolder, TrainingRun, history
from rlviz.training.formula import decimals_for, gradient_in_words, shown, written_out
from rlviz.training.run_folder import NOT_METRICS
from rlviz.types import GroupRecord, PairRecord, ResponseRecord, StepRecord, TokenRecord
from small_models.checks import checked, cut

INK, PAPER = "#111111", "#f0f0f0"
BROKEN = f"repeating-linear-gradient(90deg, {VERMILION} 0 4px, white 4px 7px)"  # a dashed border's dashes grow too long
CELL = "padding: 2px 10px 2px 0; text-align: left"
CODE = "font-size: 16px; background: none; color: inherit"
COLUMNS = "display: flex; flex-wrap: wrap; gap: 8px 20px; align-items: flex-start"
GIVE_IT = "To see the formula with these numbers, give what trained this run: inspect_run(run, algorithm=…)."
AFTER = "after this step's updates"
DIVERGED = "The run had diverged: its numbers are not finite, so there is nothing to work out."
LONGEST_NAME = 40  # characters of a prompt in a dropdown
LISTED = 8  # steps named one by one


@dataclass(frozen=True)
class Read:
    """What a source says now: the steps so far, how many there will be, what trains them (None: not known), and how.

    missing: steps that the source should hold and does not.
    """

    records: list[StepRecord]
    steps: int
    algorithm: GroupPolicyGradient | None
    name: str
    settings: dict[str, Any]
    missing: Sequence[int] = ()

    def at(self, step: int | None) -> StepRecord | None:
        """Return the record of a step, if there is one."""
        return next((record for record in self.records if record.step == step), None)

    @property
    def token_steps(self) -> tuple[int, ...]:
        """The steps recorded with tokens."""
        return tuple(record.step for record in self.records if record.has_tokens)


def _reader(run: Any, algorithm: GroupPolicyGradient | None) -> Callable[[], Read]:
    """Return a function that reads the run as it is when called. Raises ValueError when `run` is nothing to read from."""
    if isinstance(run, TrainingRun):
        if run.folder is None:
            raise ValueError("run keeps no records of its own; give the list of them, and algorithm=run.algorithm")
        return _reader(run.folder, run.algorithm)
    if isinstance(run, str | os.PathLike):
        return _reader(RunFolder.open(run), algorithm)
    if isinstance(run, RunFolder):
        return _folder_reader(run, algorithm)
    if hasattr(run, "records") and hasattr(run, "run"):
        return lambda: _read_panel(run, algorithm)
    if isinstance(run, Sequence) and all(isinstance(record, StepRecord | PairRecord) for record in run):
        return lambda: _read(list(run), 0, algorithm, {})
    raise ValueError(f"run must be a run folder, a list of step records or a training panel; got {type(run).__name__}")


def _read(
    records: list[StepRecord],
    steps: int,
    algorithm: GroupPolicyGradient | None,
    settings: dict[str, Any],
    name: str = "",
    missing: Sequence[int] = (),
) -> Read:
    if any(isinstance(record, PairRecord) for record in records):
        raise ValueError(
            "run learned from preference pairs and sampled no groups to look into; "
            "rlviz.runs.plot_learning_curves draws its history"
        )
    last = records[-1].step if records else 1
    shown_name = algorithm.name if algorithm else name or "own algorithm"
    return Read(records, max(steps, last), algorithm, shown_name, settings, missing)


def _read_panel(panel: Any, algorithm: GroupPolicyGradient | None) -> Read:
    records, run = list(panel.records), panel.run
    if run is None:
        return _read(records, 0, algorithm, {})
    return _read(records, run.settings.steps, algorithm or run.algorithm, dict(vars(run.settings)))


def _folder_reader(folder: RunFolder, algorithm: GroupPolicyGradient | None) -> Callable[[], Read]:
    config = folder.config
    described, settings = config["algorithm"], config["settings"]
    if algorithm is not None and to_json(algorithm) != described:
        raise ValueError(
            f"algorithm: the run in {folder.path} was trained with another one: {cut(str(described), 200)}"
        )
    if algorithm is None:
        try:
            algorithm = _of_the_family(from_json(described))
        except ValueError:  # pieces of one's own; all but the formula is there without them
            algorithm = None
    steps = settings_from(settings).steps
    return lambda: _read(folder.records(), steps, algorithm, settings, described["name"], folder.missing_steps())


def _of_the_family(algorithm: GroupPolicyGradient) -> GroupPolicyGradient:
    """Return the algorithm as its own file has it, with the text that a description leaves out, if it is one of the family."""
    return next((member for member in ALGORITHMS if member == algorithm), algorithm)


class RunInspector(LivePicture):
    """The whole run, one step, one token; made by `inspect_run`.

    controls: step, group, response, token. `refresh` reads the run again; what a training panel trains is followed by itself.
    """

    def __init__(self, readers: Sequence[Callable[[], Read]]) -> None:
        self._readers = readers
        self._reads = [reader() for reader in readers]
        self._turn = threading.RLock()  # a person's move and a training thread's news, one after the other
        self._settling = False
        self.step, self.group = int_control("step", 1, 1, 1), Pick("group", 0, [("1", 0)])
        self.response, self.token = int_control("response", 1, 1, 1), int_control("token", 1, 1, 1)
        self.controls = {part.name: part for part in (self.step, self.group, self.response, self.token)}
        wide = {"width": "auto"}
        self.previous_button = widgets.Button(description="Previous step with tokens", layout=wide)
        self.next_button = widgets.Button(description="Next step with tokens", layout=wide)
        self.refresh_button = widgets.Button(description="Refresh", tooltip="Read the run again")
        self.previous_button.on_click(lambda button: self._go(-1))
        self.next_button.on_click(lambda button: self._go(1))
        self.refresh_button.on_click(lambda button: self.refresh())
        self._what_differs, self._group_view, self._token_view = (Html() for _ in range(3))
        self._runs = self._histories()
        curve = self._curve()
        self.picture = RunPicture(curve)
        self._still = self.picture.still(curve)
        figure = self.picture.figure
        assert isinstance(figure, Figure)
        row = {"display": "flex", "flex_flow": "row wrap", "grid_gap": "0 12px"}
        whole = widgets.Box(
            [self.step.row, self.previous_button, self.next_button, self.refresh_button], layout=widgets.Layout(**row)
        )
        chosen = widgets.Box([self.response.row, self.token.row], layout=widgets.Layout(**row))
        below = [self._what_differs, self.group.row, self._group_view, chosen, self._token_view]
        super().__init__(BlittedFigure(figure, self.picture.moving), [whole], below=below)
        self._choose(self._newest(), strongest=True)
        for control in self.controls.values():
            control.observe(self._moved)
        self._draw()

    def refresh(self) -> None:
        """Read the run again; who looked at its newest step with tokens goes on to the new one."""
        with self._turn:
            before = self.step.value
            follows = before == self._newest() or not any(read.records for read in self._reads)
            first_tokens = not any(read.token_steps for read in self._reads)
            try:
                self._reads = [reader() for reader in self._readers]
            except Exception as error:  # shown where the person looks: nobody sees a callback's traceback
                self.show(alt=self.alt, caption=f"The run cannot be read: {error}. The picture shows it as it was.")
                return
            self._runs = self._histories()
            self._choose(self._newest() if follows else before, strongest=follows and first_tokens)
            self._draw()

    def _go(self, direction: int) -> None:
        with self._turn:
            ahead = self._token_steps(direction)
            if ahead:
                self.step.slider.value = ahead[0]

    def _token_steps(self, direction: int) -> list[int]:
        """Return the steps with tokens before (-1) or after (1) the chosen one, the nearest first."""
        steps = {step for read in self._reads for step in read.token_steps}
        return sorted((step for step in steps if (step - self.step.value) * direction > 0), key=lambda s: s * direction)

    def _newest(self) -> int:
        first = self._reads[0]
        return (first.token_steps or [record.step for record in first.records] or [1])[-1]

    def _moved(self) -> None:
        with self._turn:
            if not self._settling:
                self._choose(self.step.value)
                self._draw()

    def _choose(self, step: int, *, strongest: bool = False) -> None:
        """Give every control the range that it has at this step; group, response and token stay, or go to the strongest push."""
        self._settling = True
        try:
            steps = [record.step for read in self._reads for record in read.records] or [1]
            self.step.move_to(min(max(step, min(steps)), max(steps)), min(steps), max(steps), 1)
            self.step.disabled = len(steps) == 1
            self.previous_button.disabled, self.next_button.disabled = (not self._token_steps(way) for way in (-1, 1))
            records = [record for read in self._reads if (record := read.at(self.step.value))]
            place = _strongest(records[0]) if strongest and records else None
            self._choose_group(records, self.group.value if place is None else place[0])
            groups = [group for record in records if (group := _get(record.groups, self.group.value))]
            sizes = [len(group.responses) for group in groups]
            _set_range(self.response, self.response.value if place is None else place[1] + 1, max(sizes, default=1))
            lengths = [len(_get(group.responses, self.response.value - 1).tokens) for group in groups]
            _set_range(self.token, self.token.value if place is None else place[2] + 1, max(lengths, default=0))
        finally:
            self._settling = False

    def _choose_group(self, records: Sequence[StepRecord], group: int) -> None:
        count = max((len(record.groups) for record in records), default=1)
        names = []
        for index in range(count):
            prompts = dict.fromkeys(
                _short(group.prompt) for record in records for group in record.groups[index : index + 1]
            )
            names.append((f"{index + 1}: {' | '.join(prompts)}", index))
        if tuple(names) != tuple(self.group.box.options):
            self.group.box.options = names
        self.group.box.value = min(group, count - 1)

    def _histories(self) -> tuple[RunHistory, ...]:
        two = len(self._reads) > 1
        return tuple(
            RunHistory(f"{number} ({read.name})" if two else read.name, _metrics(read.records), read.token_steps)
            for number, read in enumerate(self._reads, 1)
        )

    def _curve(self) -> RunsAtStep:
        begun = any(read.records for read in self._reads)
        return RunsAtStep(self._runs, self.step.value if begun else None, max(read.steps for read in self._reads))

    def _draw(self) -> None:
        curve = self._curve()
        with self._lock:
            self.picture.show(curve)
            if self.picture.still(curve) != self._still:
                self._still = self.picture.still(curve)
                self._picture.freeze()
        words = " ".join([self.picture.words(curve), *_what_is_missing(self._runs, self._reads)])
        self.show(alt=f"{self.picture.alt} {words}", caption=words)
        self._what_differs.value = what_differs(*self._reads) if len(self._reads) > 1 else Markup()
        if curve.step is None:
            self._group_view.value = self._token_view.value = Markup()
            return
        chosen = Chosen(curve.step, self.group.value, self.response.value - 1, self.token.value - 1)
        named = list(zip((run.name for run in self._runs), self._reads, strict=True))
        legend = "" if self.token.disabled else LEGEND
        self._group_view.value = joined(_columns(group_view(name, read, chosen) for name, read in named), legend)
        self._token_view.value = _columns(token_view(name, read, chosen) for name, read in named)


def _set_range(control: Control, value: int, count: int) -> None:
    """Let a control choose from 1 to `count`; with nothing to choose from it stays as it was, and answers to nothing."""
    control.disabled = count < 1
    if count:
        control.move_to(min(value, count), 1, count, 1)


def _metrics(records: list[StepRecord]) -> Any:
    columns = [field.name for field in fields(StepRecord) if field.name not in NOT_METRICS]
    return history(records) if records else pd.DataFrame(columns=columns)


def _get(sequence: Sequence[Any], index: int) -> Any:
    """Return the entry at an index, the last one where that is beyond the end, None where there is none."""
    return sequence[min(index, len(sequence) - 1)] if sequence else None


def _strongest(record: StepRecord) -> tuple[int, int, int] | None:
    """Return group, response and token of the strongest push, None where there are no tokens."""
    places = [
        (abs(_push(token)), (g, r, t))
        for g, group in enumerate(record.groups)
        for r, response in enumerate(group.responses)
        for t, token in enumerate(response.tokens)
    ]
    return max(places, key=lambda place: place[0])[1] if places else None


def _short(prompt: str) -> str:
    return prompt if len(prompt) <= LONGEST_NAME else f"{prompt[: LONGEST_NAME - 1]}…"


def _what_is_missing(runs: Sequence[RunHistory], reads: Sequence[Read]) -> list[str]:
    return [
        f"{run.name} lacks step{'s'[: len(read.missing) > 1]} {_listed(read.missing)}: metrics.jsonl or samples.jsonl does "
        f"not hold {'them' if len(read.missing) > 1 else 'it'}."
        for run, read in zip(runs, reads, strict=True)
        if read.missing
    ]


def _listed(steps: Sequence[int]) -> str:
    few = [str(step) for step in steps]
    return ", ".join(few if len(few) <= LISTED else [*few[:3], "…", few[-1]])


def what_differs(a: Read, b: Read) -> Markup:
    """Return what the second run has that the first has not, a line each."""
    lines = []
    if a.algorithm is None or b.algorithm is None:
        lines.append(("algorithm", "that of a run with pieces of your own is known only when you give it"))
    else:
        lines += [(row.slot, f"{row.before} → {row.after}: {row.why}") for row in differences(a.algorithm, b.algorithm)]
    lines += [(n, f"{v} → {b.settings[n]}") for n, v in a.settings.items() if n in b.settings and v != b.settings[n]]
    items = (element("li", element("b", what), f": {words}") for what, words in lines)
    head = (
        f"What differs from 1 ({a.name}) to 2 ({b.name}):"
        if lines
        else "The two runs do not differ in what is recorded."
    )
    return element("div", head, element("ul", *items, style="margin: 2px 0"), style=WORDS)


@dataclass(frozen=True)
class Chosen:
    """What is looked into; group, response and token from 0."""

    step: int
    group: int
    response: int
    token: int


def group_view(name: str, read: Read, chosen: Chosen) -> Markup:
    """Return one group of a step as an HTML table, its tokens coloured by their push, under a caption in words."""
    record = read.at(chosen.step)
    if record is None:
        return _said(f"{name} has no step {chosen.step}.")
    group: GroupRecord = _get(record.groups, chosen.group)
    tokens = [token for response in group.responses for token in response.tokens]
    strongest = max((abs(_push(token)) for token in tokens), default=0.0)
    right = sum(response.correct for response in group.responses)
    words = (
        f"{name}, step {chosen.step}, group {min(chosen.group + 1, len(record.groups))} of {len(record.groups)}: "
        f"{len(group.responses)} responses to {group.prompt} (right answer {group.gold}), {right} of them right. "
    )
    if tokens:
        cut = sum(token.clipped for token in tokens)
        words += f"Colours: the push of this loss {AFTER}, at most {shown(strongest)}; {cut} of {len(tokens)} tokens clipped."
    else:
        words += _where_tokens_are(read)
    names = ("", "response", "graded", "reward", "advantage", "length")
    rows = []
    for index, response in enumerate(group.responses):
        here = response is _get(group.responses, chosen.response)
        rows.append(_row(index, response, strongest, chosen.token if here else None, here and bool(tokens)))
    return joined(_said(words), table(names, rows, heading=CELL, style="font-size: 15px; margin-top: 4px"))


def _row(index: int, response: ResponseRecord, strongest: float, chosen: int | None, here: bool) -> Markup:
    marked = None if chosen is None else _get(range(len(response.tokens)), chosen)
    text = joined(*(_span(token, strongest, place == marked) for place, token in enumerate(response.tokens)))
    verdict = "right" if response.correct else "wrong" if response.well_formed else "not well formed"
    cells = (
        text or element("code", response.text, style=CODE),
        verdict,
        f"{response.reward:.2f}".replace("-", "−"),
        f"{response.advantage:+.2f}".replace("-", "−") if response.advantage else "0.00",
        f"{response.length}{' (cut off)' if response.truncated else ''}",
    )
    head = element("th", f"{'▸ ' if here else ''}{index + 1}", scope="row", style=f"{CELL}; white-space: nowrap")
    return element("tr", head, *(element("td", cell, style=CELL) for cell in cells))


def _span(token: TokenRecord, strongest: float, chosen: bool) -> Markup:
    """Return a token on its colour: blue over a whole line is pushed up, vermilion over a broken one down, by its size."""
    push = _push(token)
    size = abs(push) / strongest if strongest else 0.0
    ink, line = (BLUE, f"linear-gradient({BLUE}, {BLUE})") if push > 0 else (VERMILION, BROKEN)
    under = f"{line} bottom / 100% {2 + round(3 * size)}px no-repeat, {_tint(ink, 0.12 + 0.43 * size)}"
    style = (
        f"background: {under if push else PAPER}; color: {INK}; display: inline-block; padding: 0 3px 6px; margin: 2px; "
        f"outline: {f'3px solid {INK}' if chosen else 'none'}"
    )
    scissors, text = CUT if token.clipped else "", element("code", _visible(token.token), style=CODE)
    return element("span", scissors, text, style=style, title=f"push {shown(token.push)}")


def _push(token: TokenRecord) -> float:
    """Return a token's push, 0 where the run had diverged and it is not a number."""
    return 0.0 if math.isnan(token.push) else token.push


def _can_be_worked_out(token: TokenRecord) -> bool:
    numbers = [value for value in vars(token).values() if isinstance(value, float)]
    return token.ratio > 0 and all(map(math.isfinite, numbers))


def _tint(colour: str, share: float) -> str:
    """Return a colour mixed with white."""
    parts = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return "#" + "".join(f"{round(255 + share * (part - 255)):02x}" for part in parts)


def _visible(token: str) -> str:
    return token.replace(" ", "␣").replace("\n", "↵").replace("\t", "⇥") or "∅"


CUT = element("span", "✂\ufe0e", role="img", aria_label="clipped", style="font-family: 'DejaVu Sans', sans-serif")
LEGEND = element(
    "div",
    "Blue over a whole line: pushed up; vermilion over a broken line: pushed down; the harder, the darker and thicker. Grey: "
    "not pushed. ",
    CUT,
    ": clipped, so that at most a KL term pushes it. Framed: the token below.",
    style=f"{WORDS}; margin-top: 4px",
)


def _said(words: str) -> Markup:
    return element("div", words, role="status", aria_live="polite", style=WORDS)


def _columns(parts: Iterable[Markup]) -> Markup:
    style = "flex: 1 1 480px; max-width: 100%; overflow-x: auto"
    return element("div", *(element("div", part, style=style) for part in parts), style=COLUMNS)


def _where_tokens_are(read: Read) -> str:
    steps = read.token_steps
    if not steps:
        return "No step was recorded with its tokens; details_every in TrainSettings says how often that is."
    return f"No tokens here; they were recorded at step{'s' if len(steps) > 1 else ''} {_listed(steps)}."


def token_view(name: str, read: Read, chosen: Chosen) -> Markup:
    """Return one token in numbers and in the formula, under a caption in words; nothing where no tokens were recorded."""
    record = read.at(chosen.step)
    group = _get(record.groups, chosen.group) if record else None
    if group is None or not (response := _get(group.responses, chosen.response)).tokens:
        return Markup()
    place = min(chosen.token, len(response.tokens) - 1)
    token = response.tokens[place]
    words = (
        f"{name}, response {min(chosen.response + 1, len(group.responses))}, token {place + 1} of {len(response.tokens)}, "
        f"“{_visible(token.token)}”, {AFTER} (which began at ratio 1). "
        f"{gradient_in_words(read.algorithm, token) if _can_be_worked_out(token) else DIVERGED}"
    )
    columns = element(
        "div", _numbers(token), element("div", _formula(read, token)), style=f"{COLUMNS}; margin-top: 4px"
    )
    return joined(_said(words), columns)


def _numbers(token: TokenRecord) -> Markup:
    decimals = decimals_for(token)
    rows = {
        "old_prob": shown(token.old_prob, decimals),
        "new_prob": shown(token.new_prob, decimals),
        "ref_prob": None if token.ref_prob is None else shown(token.ref_prob, decimals),
        "ratio": shown(token.ratio, decimals),
        "lower": shown(token.lower, decimals),
        "upper": "∞" if token.upper is None else shown(token.upper, decimals),
        "value": None if token.value is None else shown(token.value, decimals),
        "advantage": shown(token.advantage, decimals),
        "weight": shown(token.weight, decimals),
        "push": shown(token.push, decimals),
    }
    cells = (
        element("tr", element("th", name, scope="row", style=CELL), element("td", text, style="text-align: right"))
        for name, text in rows.items()
        if text is not None
    )
    return element("table", element("tbody", *cells), style="font-size: 15px")


def _formula(read: Read, token: TokenRecord) -> Markup:
    if not _can_be_worked_out(token):
        return Markup()
    if read.algorithm is None:
        return element("div", GIVE_IT, style=WORDS)
    try:
        lines = written_out(read.algorithm, token) if token.weight else []
    except ValueError as error:
        return element("div", f"{error}.", style=WORDS)
    style = "font-family: monospace; font-size: 15px; white-space: pre-wrap; padding-left: 2em; text-indent: -2em"
    return joined(*(element("div", line, style=style) for line in lines))


@checked
def inspect_run(
    run: Any,
    other: Any = None,
    *,
    algorithm: GroupPolicyGradient | None = None,
    other_algorithm: GroupPolicyGradient | None = None,
) -> RunInspector:
    """Return three views of a run, each within the one before: the whole run, one of its steps, one token; or of two runs.

    run, other: a run folder, a list of the records that `train` gave, or a training panel; it may still be growing. algorithm,
    other_algorithm: what trained each, needed for the formula where the run does not say it: a list of records, pieces of
    your own. Raises FileNotFoundError where there is no run, ValueError for what is none, another algorithm than the
    folder's, or a run that another version of rlviz wrote.
    """
    sources = [(run, algorithm), *([] if other is None else [(other, other_algorithm)])]
    inspector = RunInspector([_reader(*source) for source in sources])
    for source, _ in sources:
        if isinstance(
            source, LivePicture
        ):  # a panel's caption changes after each step that it shows, ten times a second
            source._words.observe(lambda change: inspector.refresh(), names="value")
    return inspector
