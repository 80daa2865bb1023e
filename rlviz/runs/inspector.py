"""inspect_run: a run, one of its steps, one token and that under other algorithms; while it trains, from disk, as a page.

A source (folder, records, panel) becomes a reader, which returns a `RunSnapshot` each time it is called. `RunInspector` draws the
snapshots' curves, writes the chosen step by `inspected.StepWriter`, and sends both to inspector.js, or packs them into a page.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from rlviz.runs.progress import describe_last_step
from rlviz.settings import settings_from
from rlviz.training import RunFolder, TrainingRun
from rlviz.training.files import write_text
from rlviz.types import PairRecord, StepRecord
from small_models.checks import checked, cut

LISTED = 8  # steps named one by one


@dataclass(frozen=True)
class RunSnapshot:
    """A run as it is now: its records so far, what trains it (None: not known), how, and for how many steps (0: not known).

    missing: steps that the source should hold and does not. imported: whether another program trained it. A run on pairs sampled
    nothing: it has numbers, and no groups.
    """

    records: list[Any]  # StepRecord, or PairRecord
    algorithm: Algorithm | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    title: str = "own algorithm"
    planned: int = 0
    missing: Sequence[int] = ()
    imported: bool = False

    @property
    def name(self) -> str:
        """The name of the algorithm, or the title of a run whose algorithm is not known."""
        return self.algorithm.name if self.algorithm else self.title

    @property
    def steps(self) -> int:
        """How many steps the run has or will have."""
        return max(self.planned, self.records[-1].step if self.records else 1)

    def at(self, step: int) -> Any:
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
        """Return the run's numbers at a step in words, and what there is to know of its source."""
        past = [record for record in self.records if record.step <= step]
        words = [f"{name}: {describe_last_step(past)}." if self.at(step) else f"{name} has no such step."]
        words += ["Its log was imported, and tokens were not logged."] if self.imported else []
        words += [f"{name} lacks step {listed(self.missing)}."] if self.missing else []
        return " ".join(words)

    @property
    def note(self) -> str:
        """Where the tokens of a step without them are."""
        if self.is_on_pairs:
            return "Nothing is sampled in a step: it learns from pairs that were made before."
        if self.imported:
            return "Tokens were not logged."
        if not self.token_steps:
            return "No step was recorded with its tokens; details_every in TrainSettings says how often that is."
        return f"No tokens here; they were recorded at step {listed(self.token_steps)}."


def listed(steps: Sequence[int]) -> str:
    """Return steps one by one, or the first and the last of many."""
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
    if isinstance(run, TrainingPanel):

        def read_panel() -> RunSnapshot:
            if run.run is None:
                return RunSnapshot([], algorithm)
            settings = run.run.settings
            return RunSnapshot(
                list(run.records), algorithm or run.run.algorithm, vars(settings), planned=settings.steps
            )

        return read_panel
    if isinstance(run, Sequence) and all(isinstance(record, StepRecord | PairRecord) for record in run):
        return lambda: RunSnapshot(list(run), algorithm)
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
    title, steps = described["name"], settings_from(settings).steps
    if "imported" in config:  # what its program did not log is not missing
        return lambda: RunSnapshot(folder.records(), None, settings, title, steps, imported=True)
    return lambda: RunSnapshot(folder.records(), algorithm, settings, title, steps, folder.missing_steps())


class RunInspector(anywidget.AnyWidget):
    """A run, one of its steps, one token of it; made by `inspect_run`.

    place: what is looked at, [step from 1; group, response, token from 0]; another one moves there, [step] to its first.
    Beyond the end is the last.
    caption: in words. alt: what there is to see. png: the curves as a picture. `save` writes a page. `refresh` reads the run
    again; a training panel's is followed by itself.
    """

    _esm = module(*ALONE, "inspector")
    picture = traitlets.Dict().tag(sync=True)  # the curves, as `mount` of draw.js takes them
    run = traitlets.Dict().tag(sync=True)  # what is the same at all steps
    data = traitlets.Dict().tag(sync=True)  # the chosen step, as `rlviz.runs.inspected` writes it
    place = traitlets.List().tag(sync=True)

    def __init__(self, readers: Sequence[Callable[[], RunSnapshot]]) -> None:
        super().__init__()
        self._readers = readers
        self._lock = threading.RLock()  # a person's move and a training thread's news, one after the other
        self._writers: list[StepWriter] = []
        self._written: dict[tuple[int, int], tuple[StepRecord, dict[str, Any]]] = {}
        self._read()
        self._go_to(self._strongest(self._newest()))
        self.observe(lambda change: self._go_to(self.place), "place")
        self.on_msg(lambda _, content, __: self.refresh() if content.get("refresh") else None)

    @property
    def caption(self) -> str:
        return str(self.data["caption"])

    @property
    def alt(self) -> str:
        return f"{self._curves.alt} {self.caption}"

    @property
    def png(self) -> bytes:
        with self._lock:
            return png(curves.draw_figure(self._curves, self.picture["data"], step=self.place[0]))

    def refresh(self) -> None:
        """Read the run again; who looked at its newest step with tokens goes on to the new one."""
        with self._lock:
            # Asked before the run is read: a reader who went back to an earlier step stays there.
            follows, had_tokens = self.place[0] == self._newest(), any(run.token_steps for run in self._snapshots)
            try:
                self._read()
            except Exception as error:  # shown where the person looks: nobody sees a callback's traceback
                caption = f"The run cannot be read: {error}. What is shown is as it was."
                self.data = {**self.data, "caption": caption}
                return
            newest = self._newest() if follows else self.place[0]
            # Only the first step with tokens opens at its strongest push: later ones keep the token that a person compares.
            is_first = follows and not had_tokens
            self._go_to(self._strongest(newest) if is_first else [newest, *self.place[1:]], anew=True)

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

    def _strongest(self, step: int) -> list[int]:
        """Return the place of a step's strongest push, in the first run that has the step."""
        records = [record for run in self._snapshots if (record := run.at(step))]
        return [step, *(strongest_push(records[0]) if records else (0, 0, 0))]

    def _go_to(self, place: Sequence[int], *, anew: bool = False) -> None:
        """Show the nearest place; anew: from records that were read again."""
        # One message: a page never has a step without its place.
        with self._lock, self.hold_sync(), self.hold_trait_notifications():
            place = self._nearest(place)
            if anew or place[0] != self.data.get("step"):
                self.data = self.step_data(place[0])
            self.place = place

    def _nearest(self, place: Sequence[int]) -> list[int]:
        """Return the place at the nearest step; of another step than the one shown a group with tokens, if it has any."""
        step, group, *token = [*place, 0, 0, 0][:4]
        step = min(self.run["at"], key=lambda at: abs(at - step), default=1)
        record = next((record for run in self._snapshots if (record := run.at(step))), None)
        if record is not None and step != self.data.get("step"):
            with_tokens = [g for g, one in enumerate(record.groups) if any(r.tokens for r in one.responses)]
            if with_tokens and group not in with_tokens:
                group = with_tokens[0]
        return [step, group, *token]

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
        if self.run["at"]:
            described = (run.describe(name, step) for name, run in zip(self._names, self._snapshots, strict=True))
            words = [f"Step {step} of {self.run['steps']}.", *described]
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
