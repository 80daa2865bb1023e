"""inspect_run: a run, one of its steps, one token and that under other algorithms; while it trains, from disk, as a page.

A source (folder, records, panel) becomes a reader, which returns a `RunSnapshot` each time it is called. `RunInspector` draws the
snapshots' curves, writes the chosen step by `inspected.StepWriter`, and sends both to inspector.js, or packs them into a page.
"""

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
from rlviz.runs.inspected import StepWriter, strongest_push
from rlviz.runs.panel import TrainingPanel
from rlviz.settings import settings_from
from rlviz.training import RunFolder, TrainingRun
from rlviz.training.files import write_text
from rlviz.types import PairRecord, StepRecord
from small_models.checks import LARGEST, checked, cut

LISTED = 8  # steps named one by one
PARTS = ("step", "group", "response", "token")  # of a place


@dataclass(frozen=True)
class RunSnapshot:
    """A run as it is now: the steps so far, how many there will be, what trains them (None: not known), and how.

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

    @classmethod
    def take(
        cls, records: list[Any], steps: int, algorithm: Algorithm | None, *, name: str = "", **more: Any
    ) -> RunSnapshot:
        """Return a snapshot that has at least the steps of its records, and the name of its algorithm where that is known."""
        last = records[-1].step if records else 1
        name = algorithm.name if algorithm else name or "own algorithm"
        return cls(records, max(steps, last), algorithm, name, **{"settings": {}, **more})

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
        return tuple(record.step for record in self.records if record.has_tokens)

    def describe(self, name: str, step: int) -> str:
        """Return the run's numbers at a step in words, and its last held-out accuracy and reward by then."""
        record = self.at(step)
        if record is None:
            return f"{name} has no such step."
        numbers = {}
        for metric in ("accuracy", "reward"):
            past = [r for r in self.records if r.step <= step]
            at, held_out = curves.measured_points(past, f"held_out_{metric}")
            measured = f" (at step {at[-1]:.0f})" if len(at) and at[-1] != step else ""
            numbers[f"held-out {metric} {{:.2f}}{measured}"] = held_out[-1] if len(at) else math.nan
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
        # an imported run has not all
        texts = [words.format(value) for words, value in numbers.items() if math.isfinite(value)]
        return f"{name}: {', '.join(texts).replace(' -', ' −').replace(', and', ' and')}."

    @property
    def note(self) -> str:
        """Where the tokens of a step without them are."""
        steps = self.token_steps
        if self.is_on_pairs:
            return "Nothing is sampled in a step: it learns from pairs that were made before."
        if self.imported:
            return "Tokens were not logged."
        if not steps:
            return "No step was recorded with its tokens; details_every in TrainSettings says how often that is."
        many = len(steps) > 1
        return f"No tokens here; step{'s' if many else ''} {_listed(steps)} {'have' if many else 'has'} some."


def _listed(steps: Sequence[int]) -> str:
    few = [str(step) for step in steps]
    return ", ".join(few if len(few) <= LISTED else [*few[:3], "…", few[-1]])


def snapshot_reader(run: Any, algorithm: Algorithm | None) -> Callable[[], RunSnapshot]:
    """Return a function that reads the run as it is when called. Raises ValueError when `run` is nothing to read from."""
    if isinstance(run, TrainingRun):
        if run.folder is None:
            raise ValueError("run keeps no records of its own; give the list of them, and algorithm=run.algorithm")
        run, algorithm = run.folder, run.algorithm
    if isinstance(run, str | os.PathLike):
        run = RunFolder.open(run)
    if isinstance(run, RunFolder):
        return _folder_reader(run, algorithm)
    if hasattr(run, "records") and hasattr(run, "run"):

        def read_panel() -> RunSnapshot:
            records, training = list(run.records), run.run
            if training is None:
                return RunSnapshot.take(records, 0, algorithm)
            settings = training.settings
            return RunSnapshot.take(
                records, settings.steps, algorithm or training.algorithm, settings=dict(vars(settings))
            )

        return read_panel
    if isinstance(run, Sequence) and all(isinstance(record, StepRecord | PairRecord) for record in run):
        return lambda: RunSnapshot.take(list(run), 0, algorithm)
    raise ValueError(f"run must be a run folder, a list of step records or a training panel; got {type(run).__name__}")


def _folder_reader(folder: RunFolder, algorithm: Algorithm | None) -> Callable[[], RunSnapshot]:
    config = folder.config
    described, settings = config["algorithm"], config["settings"]
    if algorithm is not None and to_json(algorithm) != described:
        raise ValueError(
            f"algorithm: the run in {folder.path} was trained with another one: {cut(str(described), 200)}"
        )
    if algorithm is None:
        try:
            algorithm = from_json(described)
        except ValueError:  # pieces of one's own; all but the formula is there without them
            algorithm = None
        # one of the family as its own file has it, with the text that a description leaves out
        algorithm = next((member for member in ALGORITHMS if member == algorithm), algorithm)
    steps, more = settings_from(settings).steps, {"settings": settings, "name": described["name"]}
    if "imported" in config:  # what its program did not log is not missing
        return lambda: RunSnapshot.take(folder.records(), steps, None, imported=True, **more)
    return lambda: RunSnapshot.take(folder.records(), steps, algorithm, missing=folder.missing_steps(), **more)


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

    def __init__(self, readers: Sequence[Callable[[], RunSnapshot]]) -> None:
        super().__init__()
        self._readers = readers
        self._lock = threading.RLock()  # a person's move and a training thread's news, one after the other
        self._writers: list[StepWriter] = []
        self._written: dict[tuple[int, int], tuple[StepRecord, dict[str, Any]]] = {}
        self._snapshots: list[RunSnapshot] = []
        self._read()
        self._go_to(self._newest(), opening=True)
        self.observe(lambda change: self._follow_page(), "place")
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
        with self._lock:
            return png(curves.draw_figure(self._curves, self.picture["data"], step=self.step))

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
        with self._lock:
            if step is not None:
                if step not in self.run["at"]:
                    raise ValueError(f"step must be one of the run's, {_listed(self.run['at'])}; got {step}")
                self._go_to(step)
            for index, wanted in enumerate((group, response, token), 1):
                if wanted is None:
                    continue
                # The place nearest to one beyond all is the last: of two runs, that of the longer group or response.
                last = self._nearest([*self.place[:index], LARGEST, *self.place[index + 1 :]])[index] + 1
                if not 1 <= wanted <= last:
                    raise ValueError(f"{PARTS[index]} must be from 1 to {last} at step {self.step}; got {wanted}")
                self.place = self._nearest([*self.place[:index], wanted - 1, *self.place[index + 1 :]])

    def open_at(self, step: int) -> None:
        """Look at a step's strongest push."""
        with self._lock:
            self._go_to(step, opening=True)

    def refresh(self) -> None:
        """Read the run again; who looked at its newest step with tokens goes on to the new one."""
        with self._lock:
            # Asked before the run is read: a reader who went back to an earlier step stays there.
            before, empty = self.step, not any(snapshot.records for snapshot in self._snapshots)
            follows = before == self._newest() or empty
            first_tokens = not any(snapshot.token_steps for snapshot in self._snapshots)
            try:
                self._read()
            except Exception as error:  # shown where the person looks: nobody sees a callback's traceback
                caption = f"The run cannot be read: {error}. What is shown is as it was."
                self.data = {**self.data, "caption": caption}
                return
            self._go_to(self._newest() if follows else before, opening=follows and first_tokens)

    def _read(self) -> None:
        """Take the snapshots, and draw their curves."""
        self._snapshots = runs = [reader() for reader in self._readers]
        if len({run.is_on_pairs for run in runs if run.records}) > 1:
            raise ValueError(
                "other must learn from what run learns from: one of the two sampled responses, one had pairs"
            )
        # A writer numbers the terms and sentences of its run: it lasts until the algorithm is another.
        trained_by = [run.algorithm if isinstance(run.algorithm, PolicyGradient) else None for run in runs]
        if [writer.algorithm for writer in self._writers] != trained_by:
            others = [algorithm for algorithm in trained_by if algorithm is not None]
            self._writers = [StepWriter(algorithm, others) for algorithm in trained_by]
            self._written = {}
        # The curves are drawn once for all steps; the page moves the line of the chosen step by itself.
        two = len(runs) > 1
        self._names = [f"{number} ({run.name})" if two else run.name for number, run in enumerate(runs, 1)]
        at = sorted({record.step for run in runs for record in run.records})
        tokens = sorted({step for run in runs for step in run.token_steps})
        steps = max(run.steps for run in runs)
        graphs = curves.graphs_of_runs([run.records for run in runs])
        looks: tuple[Literal["now", "dashed"], ...] = ("now", "dashed")
        series = [Series(name, [run.records], look) for name, run, look in zip(self._names, runs, looks, strict=False)]
        self._curves = curves.build_picture(series, graphs, at=at)
        bound = curves.bind_data(series, steps, "", graphs, token_steps=tokens if tokens != at else [])
        self.picture = {**curves.page_payload(self._curves, bound, step=at[-1] if at else 1), "bare": True}
        # What is the same at all steps is sent once, so that a move sends its step alone.
        self.run = {
            "at": at,
            "tokens": tokens,
            "steps": steps,
            "names": self._names,
            "family": [writer.family for writer in self._writers],
            "differs": describe_differences(*runs) if two else None,
            "note": [run.note for run in runs],
            "live": True,
        }

    def _newest(self) -> int:
        """Return the first run's newest step with tokens, else with responses, of which an imported run may have few."""
        first = self._snapshots[0]
        responses = [record.step for record in first.records if record.groups]
        return (first.token_steps or responses or [record.step for record in first.records] or [1])[-1]

    def _go_to(self, step: int, *, opening: bool = False) -> None:
        """Show a step; group, response and token stay as near as can be, or are those of the strongest push."""
        at = self.run["at"]
        step = min(max(step, at[0]), at[-1]) if at else step
        record = next((record for run in self._snapshots if (record := run.at(step))), None)
        place = [step, *(self.place[1:] or [0, 0, 0])]
        # Only the first step with tokens opens at its strongest push: later ones keep the token that a person compares.
        if opening and record is not None:
            place = [step, *strongest_push(record)]
        elif record is not None and step != self.data.get("step"):
            with_tokens = [g for g, group in enumerate(record.groups) if any(r.tokens for r in group.responses)]
            if with_tokens and place[1] not in with_tokens:
                place[1] = with_tokens[0]
        # One message: a page never has a step without its place.
        with self.hold_sync(), self.hold_trait_notifications():
            self.data = self.step_data(step)
            self.place = self._nearest(place)

    def _follow_page(self) -> None:
        """Show the step that a reader chose in the page."""
        with self._lock:
            if self.place[0] != self.data["step"]:
                self._go_to(self.place[0])

    def _nearest(self, place: Sequence[int]) -> list[int]:
        """Return the nearest place in the records: the last group, response or token where it lies beyond that."""
        step, group, response, token = place
        records = [record for run in self._snapshots if (record := run.at(step))]
        if not records:
            return list(place)
        count = max(len(record.groups) for record in records)
        if not count:  # of an imported run whose log has no responses
            return [step, 0, 0, 0]
        group = min(group, count - 1)
        groups = [record.groups[min(group, len(record.groups) - 1)] for record in records if record.groups]
        response = min(response, max(len(g.responses) for g in groups) - 1)
        rows = [g.responses[min(response, len(g.responses) - 1)].tokens for g in groups]
        return [step, group, response, min(token, max(0, max(map(len, rows)) - 1))]

    def step_data(self, step: int, *, tokens: bool = True) -> dict[str, Any]:
        """Return what the page shows of a step, on demand without its tokens; tables: what the numbers in it stand for."""
        runs: list[dict[str, Any] | None] = []
        for number, (snapshot, writer) in enumerate(zip(self._snapshots, self._writers, strict=True)):
            record = snapshot.at(step)
            if record is None:
                runs.append(None)
            elif not tokens:
                bare = (replace(g, responses=tuple(replace(r, tokens=()) for r in g.responses)) for g in record.groups)
                runs.append(writer.step(replace(record, groups=tuple(bare))))
            else:
                # Rows under all algorithms are most of the work: a step is written again only if its record is another.
                known, data = self._written.get((number, step), (None, {}))
                if known is not record:
                    data = writer.step(record, first_visit=step == 1)
                    self._written[number, step] = record, data
                runs.append(data)
        words = ["No step yet."]
        named = list(zip(self._names, self._snapshots, strict=True))
        if self.run["at"]:
            words = [f"Step {step} of {self.run['steps']}.", *(run.describe(name, step) for name, run in named)]
        imported = [name if len(named) > 1 else "Its log" for name, run in named if run.imported]
        words += [f"{name} was imported, and tokens were not logged." for name in imported]
        for name, run in named:
            if run.missing:
                steps, them = ("steps", "them") if len(run.missing) > 1 else ("step", "it")
                files = "metrics.jsonl or samples.jsonl"
                words.append(f"{name} lacks {steps} {_listed(run.missing)}: {files} does not hold {them}.")
        tables = [writer.tables for writer in self._writers]
        return {"step": step, "runs": runs, "tables": tables, "caption": " ".join(words)}

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
        """Return what `frozenInspector` of inspector.js shows, packed; most: steps with tokens, evenly apart, with the last."""
        with self._lock:
            tokens = self.run["tokens"]
            if len(tokens) > most:
                last = len(tokens) - 1
                tokens = [tokens[last - last * k // max(1, most - 1)] for k in range(most)][::-1]
            steps = {step: self.step_data(step, tokens=step in tokens) for step in self.run["at"]}
            # Writing the steps fills the tables, which are the same for all: they are packed once, when they are complete.
            for data in steps.values():
                del data["tables"]
            return pack(
                {
                    "picture": self.picture,
                    "run": {**self.run, "tokens": tokens, "live": False},
                    "tables": [writer.tables for writer in self._writers],
                    "steps": steps,
                    "place": self.place,
                }
            )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return with_static_image(super()._repr_mimebundle_(**kwargs), self.png, self.caption)


def describe_differences(a: RunSnapshot, b: RunSnapshot) -> list[tuple[str, str]]:
    """Return what the second run has that the first has not: slot or setting, and how it changes, in words."""
    lines = []
    if a.algorithm is None or b.algorithm is None:
        lines.append(("algorithm", "that of a run with pieces of your own is known only when you give it"))
    else:
        lines += [(row.slot, f"{row.before} → {row.after}: {row.why}") for row in differences(a.algorithm, b.algorithm)]
    common = (name for name in a.settings if name in b.settings)
    changed = ((name, a.settings[name], b.settings[name]) for name in common)
    return lines + [(name, f"{before} → {after}") for name, before, after in changed if before != after]


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
    inspector = RunInspector([snapshot_reader(*source) for source in sources])
    for source, _ in sources:
        if isinstance(source, TrainingPanel):  # whose curves change after each step that it shows, ten times a second
            source.curves.observe(lambda change: inspector.refresh(), names="data")
    return inspector
