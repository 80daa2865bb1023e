"""What an algorithm is in another library: a line a slot, the options that say it, and how well it fits.

In comes an algorithm with its settings and the table of a library (`trl.TABLE`, `verl.TABLE`), out goes an `Export`. A table is
slot → kind of piece → row. A row is a `Fit`, a text (why no option stands for the piece), or where that depends on numbers or on
other pieces, a function of the piece and the `Case` that returns a `Fit`. The rows of each slot name every piece that rlviz has,
so a piece without a row is one of the user's own. `Parameters` say which option has which number of a piece, for writing and for
reading.
"""

from __future__ import annotations

import inspect
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from itertools import chain
from typing import Any, Literal

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.describe import from_json, to_json
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.grpo import GRPO
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.algorithms.slots import SLOTS
from rlviz.pieces.words import label
from rlviz.settings import LARGE_LR, LORA_LR, SMALL_LR, PairSettings, Settings, TrainSettings, UsualNumber
from rlviz.training import default_settings
from small_models.checks import check_type

Grade = Literal["exact", "approximate", "inexpressible"]
GRADES: tuple[Grade, ...] = ("exact", "approximate", "inexpressible")
CHECKED = {"trl": "1.16.0", "verl": "0.9.1"}  # library → the version that every row was checked with
NO_OBSERVATIONS = "what a tool wrote is masked out of the loss, and no option adds a loss on it"
OF_LARGE_MODELS = {"lr": LARGE_LR, "critic_lr": 1e-5}  # full training of billions of weights; verl's own defaults, too
SMALL_MODELS = 1e-4  # from this rate on
SETTINGS = "settings"  # in place of a slot's name: what is the run's, not the algorithm's


@dataclass(frozen=True)
class Fit:
    """How one piece is said: a line of an export.

    fit: the grade. fields: the library's options for it. why: it is not more. rewards: reward functions to add. slot, piece:
    whose line it is. is_unknown: whether the piece is one of the user's own, of which the library knows nothing.
    """

    fit: Grade
    fields: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    rewards: tuple[str, ...] = ()
    slot: str = ""
    piece: str = ""
    is_unknown: bool = False

    def beside(self, fields: Mapping[str, Any]) -> Fit:
        """Return this fit with more options."""
        return replace(self, fields={**self.fields, **fields})


def exact(fields: Mapping[str, Any] | None = None, why: str = "", rewards: tuple[str, ...] = ()) -> Fit:
    """Return the fit of a piece whose loss and gradient are the same there."""
    return Fit("exact", fields or {}, why, rewards)


def approximate(fields: Mapping[str, Any], why: str, rewards: tuple[str, ...] = ()) -> Fit:
    """Return the fit of a piece that comes near; why says by how much."""
    return Fit("approximate", fields, why, rewards)


def inexpressible(why: str, fields: Mapping[str, Any] | None = None) -> Fit:
    """Return the fit of a piece that no option stands for; why says what would have to be written."""
    return Fit("inexpressible", fields or {}, why)


@dataclass(frozen=True)
class UnknownPiece:
    """Stands for a piece of the user's own, of which a run folder tells the name alone."""

    name: str

    def __str__(self) -> str:
        return self.name

    def __call__(self, *inputs: Any) -> Any:
        raise ValueError(f"{self.name} is a piece of your own, of which only the name is known here")


def algorithm_from_run(described: Mapping[str, Any]) -> Any:
    """Return the algorithm that a run folder describes; `UnknownPiece`s stand for pieces that rlviz does not have."""
    stand_ins = {}
    for slot in SLOTS:
        try:
            from_json(described.get(slot))
        except ValueError:
            stand_ins[slot] = UnknownPiece(str(described[slot].get("piece")).rpartition(":")[2].replace("_", " "))
    if not stand_ins:
        return from_json(dict(described))
    if described.get("piece") != to_json(GRPO)["piece"]:
        raise ValueError(
            f"algorithm: {described.get('name')} has a critic and a piece of your own; give it to to_trl or to_verl"
        )
    pieces = {slot: stand_ins.get(slot) or from_json(described[slot]) for slot in SLOTS}
    return replace(GRPO, name=str(described.get("name")), source="", from_grpo={}, **pieces)


@dataclass(frozen=True)
class Case:
    """What a row may look at beside its piece. pieces: slot → piece. accumulation: parts of an update, one backward each."""

    pieces: Mapping[str, Any]
    settings: Any  # TrainSettings, of pairs PairSettings
    accumulation: int = 1

    @property
    def responses(self) -> int:
        """Responses in a rollout."""
        return self.settings.num_prompts * self.settings.group_size

    @property
    def update(self) -> int:
        """Responses in an update."""
        return self.responses // self.settings.minibatches

    @property
    def passes(self) -> int:
        """How often an update sees each response."""
        return self.settings.updates_per_rollout // self.settings.minibatches

    def kind(self, slot: str) -> Any:
        """Return the kind of the piece in a slot."""
        return kind_of(self.pieces[slot])


Row = Fit | str | Callable[[Any, Case], Fit]
Table = Mapping[str, Mapping[Any, Row]]
Parameters = Mapping[Any, Mapping[str, str]]  # kind of piece → its parameter → the option that has the number


def options_of(piece: Any, parameters: Parameters) -> dict[str, Any]:
    """Return the options that have a piece's numbers, with these."""
    return {option: getattr(piece, name) for name, option in parameters[type(piece)].items()}


def piece_of(kind: Callable[..., Any], parameters: Parameters, options: Mapping[str, Any]) -> Any:
    """Return the piece of this kind with the numbers that options have."""
    return kind(**{name: float(options[option]) for name, option in parameters[kind].items()})


@dataclass(frozen=True)
class Measured:
    """How far loss and gradient were from ours on one batch of real responses.

    loss: difference. gradient: length of the difference of ∂loss/∂logp over the length of ours; of a loss with entropies, of
    its gradient by the weights. cosine: between the two.
    """

    loss: float
    gradient: float
    cosine: float

    def __str__(self) -> str:
        return (
            f"loss differs by {self.loss:.2g}, gradient by {self.gradient:.2g} of its length (cosine {self.cosine:.4f})"
        )


@dataclass(frozen=True)
class Export:
    """An algorithm in the words of another library.

    to: the library. algorithm: its name. slots: a line a slot and a line for each part of the settings. measured: on one batch,
    None where that was not done for just this algorithm. kind: what is configured there, such as GRPOConfig.
    """

    to: str
    algorithm: str
    kind: str
    slots: tuple[Fit, ...]
    measured: Measured | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Option → value, all that has to be set; where a piece and the settings name the same option, the piece's stands."""
        lines = [line.fields.items() for line in self.slots if not line.slot.startswith(SETTINGS)]
        return self.run_fields | dict(chain(*lines))

    @property
    def run_fields(self) -> dict[str, Any]:
        """Option → value for what is the run's, whatever the pieces ask for."""
        return dict(chain(*(line.fields.items() for line in self.slots if line.slot.startswith(SETTINGS))))

    @property
    def rewards(self) -> tuple[str, ...]:
        """Reward functions that stand beside the task's own."""
        return tuple(reward for line in self.slots for reward in line.rewards)

    @property
    def fit(self) -> Grade:
        """The worst of all slots."""
        return max((line.fit for line in self.slots), key=GRADES.index)

    @property
    def unknown_slots(self) -> tuple[str, ...]:
        """The slots with a piece of the user's own."""
        return tuple(line.slot for line in self.slots if line.is_unknown)

    def at(self, slot: str) -> Fit:
        """Return the line of a slot."""
        return next(line for line in self.slots if line.slot == slot)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it: fields to set, and slots with slot, piece, fit and why."""
        return {
            "algorithm": self.algorithm,
            "to": self.to,
            "kind": self.kind,
            "checked_with": {self.to: CHECKED[self.to]},
            "fit": self.fit,
            "fields": self.fields,
            "rewards": list(self.rewards),
            "slots": [
                {"slot": line.slot, "piece": line.piece, "fit": line.fit, "why": line.why} for line in self.slots
            ],
            "measured": None if self.measured is None else asdict(self.measured) | {"how": measurements()["how"]},
        }


@cache
def measurements() -> dict[str, Any]:
    """Return the measurements that tests/interop/measure.py wrote: how, and a row for each algorithm and library."""
    return json.loads(files("rlviz.interop").joinpath("measured.json").read_text(encoding="utf-8"))


def measured(to: str, algorithm: Algorithm, way: str = "exported") -> Measured | None:
    """Return the measured distance of exactly this algorithm in a library, `exported` or `carried`; None without one."""
    described = to_json(algorithm)
    for row in measurements()["rows"]:
        if row["to"] == to and row["algorithm"] == described and row["way"] == way and "batch" not in row:
            return Measured(row["loss"], row["gradient"], row["cosine"])
    return None


def kind_of(piece: Any) -> Any:
    """Return the key of a piece in a table: a function itself, of an object its class."""
    return piece if piece is None or inspect.isfunction(piece) else type(piece)


def slot_lines(table: Table, case: Case) -> Iterator[Fit]:
    """Give a line for each slot of a table."""
    for slot, rows in table.items():
        piece = case.pieces[slot]
        row = rows.get(kind_of(piece))
        if row is None:
            yield unknown_line(slot, piece, ", of which the library knows nothing")
        else:
            fit = inexpressible(row) if isinstance(row, str) else row if isinstance(row, Fit) else row(piece, case)
            yield line_of(slot, piece, fit)


def settings_lines(library: str, case: Case, fits: Mapping[str, Fit]) -> Iterator[Fit]:
    """Give a line for each part of the settings of which a library says how it fits, in the order of these."""
    s, (longest,) = case.settings, fits["lengths"].fields.values()
    words = {
        "defaults": f"of {library}",
        "batches": f"{s.num_prompts} × {s.group_size} responses, {s.updates_per_rollout} updates, {s.minibatches} minibatches",
        "sampling": f"temperature {s.temperature:g}",
        "lengths": f"at most {longest} tokens",
        "optimizer": optimizer_words(s),
        "warm-up": f"{s.lr_warmup_steps} rollouts",
        "reference": f"anew every {s.reset_reference_every} rollouts",
        "micro-batches": f"{s.micro_batch_tokens} tokens",
    }
    for what, fit in fits.items():
        yield line_of(f"{SETTINGS}: {what}", words.get(what) or str(getattr(s, what)), fit)


def optimizer_words(settings: Settings) -> str:
    """Return the line of the optimizer: what rlviz does."""
    return f"AdamW, lr {settings.lr:g}, gradient norm {settings.max_grad_norm:g}"


def line_of(slot: str, piece: Any, fit: Fit) -> Fit:
    """Return the line of a piece, or of words in its place."""
    return replace(fit, slot=slot, piece=piece if isinstance(piece, str) else label(piece))


def unknown_line(slot: str, piece: Any, why: str) -> Fit:
    """Return the line of a piece of the user's own; why: how the words "a piece of your own" go on."""
    return line_of(slot, piece, Fit("inexpressible", why=f"a piece of your own{why}", is_unknown=True))


def settings_of_large_models(algorithm: Algorithm, **changed: Any) -> Settings:
    """Return the default settings with the learning rates of models that are not ours, where they are not among the changed."""
    pairs = isinstance(algorithm, PreferenceOptimization)
    rates = {name: rate for name, rate in OF_LARGE_MODELS.items() if not (pairs and name == "critic_lr")}
    return default_settings(algorithm, **{**rates, **changed})


def learning_rate_words(settings: Settings) -> str:
    """Return for what size of model a learning rate is, where that is not seen from it."""
    large, ours = LARGE_LR, SMALL_LR
    if settings.lr == large:
        return f"lr is that of models of billions of weights; rlviz's own learn with {ours:g}, LoRA with {LORA_LR:g}"
    if settings.lr >= SMALL_MODELS:
        return f"lr {settings.lr:g} is that of small models or LoRA; billions of weights trained whole take about {large:g}"
    return ""


def case_of(algorithm: Any, settings: Settings | None, accumulation: int) -> tuple[Any, Any]:
    """Return the algorithm with the settings that it is exported with. Raises ValueError for what does not go together."""
    check_type("algorithm", algorithm, GroupPolicyGradient | ActorCritic | PreferenceOptimization)
    check_type("settings", settings, TrainSettings | PairSettings | None)
    settings = settings_of_large_models(algorithm) if settings is None else settings
    settings = replace(settings, lr=LARGE_LR) if isinstance(settings.lr, UsualNumber) else settings
    wanted = PairSettings if isinstance(algorithm, PreferenceOptimization) else TrainSettings
    if not isinstance(settings, wanted):
        raise ValueError(f"settings must be {wanted.__name__} for {algorithm.name}; got {type(settings).__name__}")
    if not isinstance(accumulation, int) or accumulation < 1:
        raise ValueError(f"accumulation must be a whole number, at least 1; got {accumulation!r}")
    if isinstance(settings, PairSettings):
        size, what = settings.batch_size, "pairs"
    else:
        case = Case({}, settings)
        size, what = case.update, "responses"
        if case.responses % settings.minibatches:
            raise ValueError(
                f"minibatches must divide num_prompts × group_size = {case.responses} evenly in other libraries; "
                f"got {settings.minibatches}"
            )
    if size % accumulation:
        raise ValueError(f"accumulation must divide an update of {size} {what} evenly; got {accumulation}")
    return algorithm, settings


def warn_of_another_version(library: str) -> None:
    """Warn where the version of a library that is installed is not the one that rlviz was checked with."""
    try:
        installed = version(library)
    except PackageNotFoundError:
        return
    if installed != CHECKED[library]:
        warnings.warn(
            f"{library} {installed} is installed, and the export was checked with {CHECKED[library]}: another "
            "version may have other defaults, so compare its options with the list of fields",
            stacklevel=3,
        )
