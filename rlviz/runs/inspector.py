"""inspect_run: a run, one of its steps, one token and that under other algorithms; while it trains, from disk, as a page."""

from __future__ import annotations

import base64
import math
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import anywidget
import traitlets

from rlviz.algorithms import ALGORITHMS, Algorithm, PolicyGradient, differences
from rlviz.algorithms.describe import from_json, to_json
from rlviz.markup import Markup, element
from rlviz.page.image import png
from rlviz.page.script import module
from rlviz.page.widget import ALONE, fragment, pack, page, with_static_image
from rlviz.runs import curves
from rlviz.runs.curves import Series
from rlviz.runs.inspected import StepWriter, strongest, token_steps
from rlviz.runs.panel import TrainingPanel
from rlviz.settings import settings_from
from rlviz.training import RunFolder, TrainingRun
from rlviz.training.files import write_text
from rlviz.types import PairRecord, StepRecord
from small_models.checks import LARGEST, checked, cut

LISTED = 8  # steps named one by one
PARTS = ("step", "group", "response", "token")  # of a place


@dataclass(frozen=True)
class Read:
    """What a source says now: the steps so far, how many there will be, what trains them (None: not known), and how.

    missing: steps that the source should hold and does not. imported: whether another program trained it. A run on pairs sampled
    nothing: it has numbers, and no groups.
    """

    records: list[Any]  # StepRecord, or PairRecord
    steps: int
    algorithm: Algorithm | None
    name: str
    settings: dict[str, Any]
    missing: Sequence[int] = ()
    imported: bool = False

    def at(self, step: int | None) -> Any:
        """Return the record of a step, None where there is none."""
        return next((record for record in self.records if record.step == step), None)

    @property
    def is_on_pairs(self) -> bool:
        """Whether it learned from preference pairs."""
        return any(isinstance(record, PairRecord) for record in self.records)

    @property
    def token_steps(self) -> tuple[int, ...]:
        """The steps recorded with tokens."""
        return tuple(token_steps(self.records))


def _reader(run: Any, algorithm: Algorithm | None) -> Callable[[], Read]:
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
    algorithm: Algorithm | None,
    settings: dict[str, Any],
    name: str = "",
    missing: Sequence[int] = (),
) -> Read:
    last = records[-1].step if records else 1
    shown_name = algorithm.name if algorithm else name or "own algorithm"
    return Read(records, max(steps, last), algorithm, shown_name, settings, missing)


def _read_panel(panel: Any, algorithm: Algorithm | None) -> Read:
    records, run = list(panel.records), panel.run
    if run is None:
        return _read(records, 0, algorithm, {})
    return _read(records, run.settings.steps, algorithm or run.algorithm, dict(vars(run.settings)))


def _folder_reader(folder: RunFolder, algorithm: Algorithm | None) -> Callable[[], Read]:
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
    if "imported" in config:  # what its program did not log is not missing
        return lambda: replace(_read(folder.records(), steps, None, settings, described["name"]), imported=True)
    return lambda: _read(folder.records(), steps, algorithm, settings, described["name"], folder.missing_steps())


def _of_the_family(algorithm: Algorithm) -> Algorithm:
    """Return the algorithm as its own file has it, with the text that a description leaves out, if it is one of the family."""
    return next((member for member in ALGORITHMS if member == algorithm), algorithm)


class RunInspector(anywidget.AnyWidget):
    """A run, one of its steps, one token of it; made by `inspect_run`.

    step, group, response, token: what is looked at, from 1; `go` moves there. caption: in words. alt: what there is to see.
    png: the curves as a picture. `save` writes a page. `refresh` reads the run again; a training panel's is followed by itself.
    """

    _esm = module(*ALONE, "inspector")
    picture = traitlets.Dict().tag(sync=True)  # the curves, as `mount` of draw.js takes them
    run = traitlets.Dict().tag(sync=True)  # what is the same at all steps
    data = traitlets.Dict().tag(sync=True)  # the chosen step, as `rlviz.runs.inspected` writes it
    place = traitlets.List().tag(sync=True)  # step from 1; group, response, token from 0

    def __init__(self, readers: Sequence[Callable[[], Read]]) -> None:
        super().__init__()
        self._readers = readers
        self._turn = threading.RLock()  # a person's move and a training thread's news, one after the other
        self._writers: list[StepWriter] = []
        self._written: dict[tuple[int, int], tuple[StepRecord, dict[str, Any]]] = {}
        self._reads: list[Read] = []
        self._read()
        self._go_to(self._newest(), opening=True)
        self.observe(lambda change: self._moved(change["old"]), "place")
        self.on_msg(lambda _, content, __: self.refresh() if content.get("refresh") else None)

    @property
    def step(self) -> int:
        return self.place[0]

    @property
    def group(self) -> int:
        return self.place[1] + 1

    @property
    def response(self) -> int:
        return self.place[2] + 1

    @property
    def token(self) -> int:
        return self.place[3] + 1

    @property
    def caption(self) -> str:
        return str(self.data["caption"])

    @property
    def alt(self) -> str:
        return f"{self._curves.alt} {self.caption}"

    @property
    def png(self) -> bytes:
        with self._turn:
            return png(curves.on_paper(self._curves, self.picture["data"], step=self.step))

    @checked
    def go(
        self,
        *,
        step: int | None = None,
        group: int | None = None,
        response: int | None = None,
        token: int | None = None,
    ) -> None:
        """Look at another step, group, response or token, each from 1; what is not given stays where it is, or as near as can be.

        Raises ValueError for what is not there.
        """
        with self._turn:
            if step is not None:
                if step not in self.run["at"]:
                    raise ValueError(f"step must be one of the run's, {_listed(self.run['at'])}; got {step}")
                self._go_to(step)
            for index, wanted in enumerate((group, response, token), 1):
                if wanted is None:
                    continue
                last = self._fit([*self.place[:index], LARGEST, *self.place[index + 1 :]])[index] + 1
                if not 1 <= wanted <= last:
                    raise ValueError(f"{PARTS[index]} must be from 1 to {last} at step {self.step}; got {wanted}")
                self.place = self._fit([*self.place[:index], wanted - 1, *self.place[index + 1 :]])

    def open_at(self, step: int) -> None:
        """Look at a step's strongest push."""
        with self._turn:
            self._go_to(step, opening=True)

    def refresh(self) -> None:
        """Read the run again; who looked at its newest step with tokens goes on to the new one."""
        with self._turn:
            before, empty = self.step, not any(read.records for read in self._reads)
            follows = before == self._newest() or empty
            first_tokens = not any(read.token_steps for read in self._reads)
            try:
                self._read()
            except Exception as error:  # shown where the person looks: nobody sees a callback's traceback
                said = f"The run cannot be read: {error}. What is shown is as it was."
                self.data = {**self.data, "caption": said}
                return
            self._go_to(self._newest() if follows else before, opening=follows and first_tokens)

    def _read(self) -> None:
        """Read the run, and draw its curves."""
        self._reads = [reader() for reader in self._readers]
        if len({read.is_on_pairs for read in self._reads if read.records}) > 1:
            raise ValueError(
                "other must learn from what run learns from: one of the two sampled responses, one had pairs"
            )
        graphs = curves.OF_PAIRS if any(read.is_on_pairs for read in self._reads) else curves.OF_GROUPS
        trained_by = [read.algorithm if isinstance(read.algorithm, PolicyGradient) else None for read in self._reads]
        if [writer.algorithm for writer in self._writers] != trained_by:
            own = [algorithm for algorithm in trained_by if algorithm is not None]
            self._writers = [StepWriter(algorithm, own) for algorithm in trained_by]
            self._written = {}
        two = len(self._reads) > 1
        self._names = [f"{number} ({read.name})" if two else read.name for number, read in enumerate(self._reads, 1)]
        at = sorted({record.step for read in self._reads for record in read.records})
        tokens = sorted({step for read in self._reads for step in read.token_steps})
        steps = max(read.steps for read in self._reads)
        looks: tuple[Literal["now", "dashed"], ...] = ("now", "dashed")
        series = [
            Series(*one) for one in zip(self._names, ([read.records] for read in self._reads), looks, strict=False)
        ]
        self._curves = curves.picture(series, graphs, at=at)
        bound = curves.data(series, steps, "", graphs, token_steps=tokens if tokens != at else [])
        self.picture = {**curves.given(self._curves, bound, step=at[-1] if at else 1), "bare": True}
        self.run = {
            "at": at,
            "tokens": tokens,
            "steps": steps,
            "names": self._names,
            "family": [writer.family for writer in self._writers],
            "differs": what_differs(*self._reads) if two else None,
            "note": [_where_tokens_are(read) for read in self._reads],
            "live": True,
        }

    def _newest(self) -> int:
        first = self._reads[0]
        responses = [
            record.step for record in first.records if record.groups
        ]  # of an imported run few steps may have any
        return (first.token_steps or responses or [record.step for record in first.records] or [1])[-1]

    def _go_to(self, step: int, *, opening: bool = False) -> None:
        """Show a step; group, response and token stay as near as can be, or are those of the strongest push."""
        at = self.run["at"]
        step = min(max(step, at[0]), at[-1]) if at else step
        record = next((record for read in self._reads if (record := read.at(step))), None)
        place = [step, *(self.place[1:] or [0, 0, 0])]
        if opening and record is not None:
            place = [step, *strongest(record)]
        elif record is not None and step != self.data.get("step"):
            place[1] = _with_tokens(record, place[1])
        with (
            self.hold_sync(),
            self.hold_trait_notifications(),
        ):  # one message: a page never has a step without its place
            self.data = self.step_data(step)
            self.place = self._fit(place)

    def _moved(self, before: list[int]) -> None:
        """Follow the reader to another place."""
        with self._turn:
            if self.place[0] != self.data["step"]:
                self._go_to(self.place[0])

    def _fit(self, place: Sequence[int]) -> list[int]:
        """Return the nearest place that there is: the last group, response or token where it lies beyond that."""
        step, group, response, token = place
        records = [record for read in self._reads if (record := read.at(step))]
        if not records:
            return list(place)
        count = max(len(record.groups) for record in records)
        if not count:  # of an imported run whose log has no responses
            return [step, 0, 0, 0]
        group = min(group, count - 1)
        groups = [record.groups[min(group, len(record.groups) - 1)] for record in records if record.groups]
        response = min(response, max(len(one.responses) for one in groups) - 1)
        rows = [one.responses[min(response, len(one.responses) - 1)].tokens for one in groups]
        return [step, group, response, min(token, max(0, max(map(len, rows)) - 1))]

    def step_data(self, step: int, *, tokens: bool = True) -> dict[str, Any]:
        """Return what the page shows of a step, on demand without its tokens; tables: what the numbers in it stand for."""
        runs = [self._of_run(number, step, tokens=tokens) for number in range(len(self._reads))]
        said = "No step yet."
        if self.run["at"]:
            numbers = (_numbers(name, read, step) for name, read in zip(self._names, self._reads, strict=True))
            said = f"Step {step} of {self.run['steps']}. {' '.join(numbers)}"
        words = " ".join([said, *_what_is_missing(self._names, self._reads)])
        return {"step": step, "runs": runs, "tables": [writer.tables for writer in self._writers], "caption": words}

    def _of_run(self, number: int, step: int, *, tokens: bool) -> dict[str, Any] | None:
        record = self._reads[number].at(step)
        if record is None:
            return None
        if not tokens:
            return self._writers[number].step(_without_tokens(record))
        known, data = self._written.get((number, step), (None, {}))
        if known is not record:
            data = self._writers[number].step(record, first_visit=step == 1)
            self._written[number, step] = record, data
        return data

    def save(self, path: str | os.PathLike[str], *, most: int = 120) -> Path:
        """Write it as a page of its own, which needs no kernel and no network; most: steps that have their tokens there.

        Raises ValueError for another ending than .html.
        """
        out = Path(path)
        if out.suffix != ".html":
            raise ValueError(f"path must end in .html; got {out.name!r}")
        write_text(out, page(f"rlviz: {' and '.join(self._names)}", self.html(most=most)))
        return out

    def html(self, *, most: int = 120) -> Markup:
        """Return the inspector as HTML that needs no kernel and no network: all steps, at most `most` of them with tokens."""
        source = f"data:image/png;base64,{base64.b64encode(self.png).decode()}"
        picture = element("img", alt=self.alt, src=source, style="max-width:100%")
        files, show = (*ALONE, "inspector"), "frozenInspector"
        return fragment(self.packed(most=most), caption=self.caption, inside=picture, files=files, show=show)

    def packed(self, *, most: int = 120) -> str:
        """Return what `frozenInspector` of inspector.js shows, packed."""
        with self._turn:
            kept = _spread(self.run["tokens"], most)
            steps = {step: self.step_data(step, tokens=step in kept) for step in self.run["at"]}
            for data in steps.values():
                del data["tables"]
            return pack(
                {
                    "picture": self.picture,
                    "run": {**self.run, "tokens": kept, "live": False},
                    "tables": [writer.tables for writer in self._writers],
                    "steps": steps,
                    "place": self.place,
                }
            )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_static_image(super()._repr_mimebundle_(**kwargs), self.png, self.caption)


def _with_tokens(record: StepRecord, group: int) -> int:
    """Return this group if it has tokens, else the first one that has; this one where none has."""
    have = [g for g, one in enumerate(record.groups) if any(response.tokens for response in one.responses)]
    return group if group in have or not have else have[0]


def _spread(steps: Sequence[int], most: int) -> list[int]:
    """Return so many of the steps at most, evenly far apart, the last one among them."""
    count = len(steps)
    return (
        list(steps) if count <= most else [steps[count - 1 - (count - 1) * k // (most - 1)] for k in range(most)][::-1]
    )


def _without_tokens(record: StepRecord) -> StepRecord:
    groups = (replace(g, responses=tuple(replace(r, tokens=()) for r in g.responses)) for g in record.groups)
    return replace(record, groups=tuple(groups))


def _numbers(name: str, read: Read, step: int) -> str:
    """Return a run's numbers at a step in words, and its last held-out accuracy by then."""
    record = read.at(step)
    if record is None:
        return f"{name} has no such step."
    at, held_out = curves.points([one for one in read.records if one.step <= step], "held_out_accuracy")
    measured = f" (at step {at[-1]:.0f})" if len(at) and at[-1] != step else ""
    numbers = {"held-out accuracy {:.2f}" + measured: held_out[-1] if len(at) else math.nan}
    if isinstance(record, PairRecord):
        numbers |= {
            "{:.0%} of pairs in order": record.pair_accuracy,
            "log π against the start: chosen {:+.1f}": record.chosen_gain,
            "rejected {:+.1f}": record.rejected_gain,
        }
    else:
        numbers = {"reward {:.2f}": record.reward} | numbers
        numbers |= {
            "entropy {:.2f} nats": record.entropy,
            "clipped during its updates {:.1%} below": record.clip_fraction_low,
            "and {:.1%} above": record.clip_fraction_high,
            "{:.1%} by the dual clip": record.clip_fraction_dual or math.nan,
        }
    told = [  # an imported run has not all
        words.format(value).replace(" -", " −") for words, value in numbers.items() if math.isfinite(value)
    ]
    return f"{name}: {', '.join(told).replace(', and', ' and')}."


def _what_is_missing(names: Sequence[str], reads: Sequence[Read]) -> list[str]:
    imported = [
        f"{name if len(reads) > 1 else 'Its log'} was imported, and tokens were not logged."
        for name, read in zip(names, reads, strict=True)
        if read.imported
    ]
    return imported + [
        f"{name} lacks step{'s'[: len(read.missing) > 1]} {_listed(read.missing)}: metrics.jsonl or samples.jsonl does "
        f"not hold {'them' if len(read.missing) > 1 else 'it'}."
        for name, read in zip(names, reads, strict=True)
        if read.missing
    ]


def _listed(steps: Sequence[int]) -> str:
    few = [str(step) for step in steps]
    return ", ".join(few if len(few) <= LISTED else [*few[:3], "…", few[-1]])


def _where_tokens_are(read: Read) -> str:
    steps = read.token_steps
    if read.is_on_pairs:
        return "Nothing is sampled in a step: it learns from pairs that were made before."
    if read.imported:
        return "Tokens were not logged."
    if not steps:
        return "No step was recorded with its tokens; details_every in TrainSettings says how often that is."
    return f"No tokens here; step{'s' if len(steps) > 1 else ''} {_listed(steps)} {'have' if len(steps) > 1 else 'has'} some."


def what_differs(a: Read, b: Read) -> list[tuple[str, str]]:
    """Return what the second run has that the first has not: slot or setting, and how it changes, in words."""
    lines = []
    if a.algorithm is None or b.algorithm is None:
        lines.append(("algorithm", "that of a run with pieces of your own is known only when you give it"))
    else:
        lines += [(row.slot, f"{row.before} → {row.after}: {row.why}") for row in differences(a.algorithm, b.algorithm)]
    return lines + [
        (n, f"{v} → {b.settings[n]}") for n, v in a.settings.items() if n in b.settings and v != b.settings[n]
    ]


@checked
def inspect_run(
    run: Any,
    other: Any = None,
    *,
    algorithm: Algorithm | None = None,
    other_algorithm: Algorithm | None = None,
) -> RunInspector:
    """Return three views of a run, each within the one before: the whole run, one of its steps, one token; or of two runs.

    run, other: a run folder, a list of the records that `train` gave, or a training panel; it may still be growing. algorithm,
    other_algorithm: what trained each, needed for the formula where the run does not say it: a list of records, pieces of
    your own. A run on pairs has curves and numbers alone. Raises FileNotFoundError where there is no run, ValueError for what is
    none, another algorithm than the folder's, a run that another version of rlviz wrote, or a run on pairs beside one on groups.
    """
    sources = [(run, algorithm), *([] if other is None else [(other, other_algorithm)])]
    inspector = RunInspector([_reader(*source) for source in sources])
    for source, _ in sources:
        if isinstance(source, TrainingPanel):  # whose curves change after each step that it shows, ten times a second
            source.curves.observe(lambda change: inspector.refresh(), names="data")
    return inspector
