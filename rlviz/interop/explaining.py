"""What a configuration of TRL or verl trains: which algorithm, what differs from its paper, its batch, its log, its risks.

In comes a file or its text, out goes an `Explanation`. `explain_config` reads it (`configs`), finds the algorithm in the exports'
tables read backwards (`reading`), and says the rest by `rows`: options without an effect, what the first steps of the log show,
entries of notebooks/symptoms.md.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Any

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.interop import trl, verl
from rlviz.interop.batches import Batch, batch_of
from rlviz.interop.configs import HARMLESS, VERL, Config, read_config
from rlviz.interop.exporting import CHECKED, UnknownPiece, kind_of
from rlviz.interop.reading import (
    WEIGHTED,
    beyond_slots,
    differing_slots,
    is_same,
    nearest,
    parts,
    read_algorithm,
    unknown_slots,
)
from rlviz.interop.rows import columns, first_steps, symptoms, without_effect
from rlviz.pieces import aggregation, bounds, gae, kl, mismatch, preference, shaping, surrogate
from rlviz.pieces.words import label, reason
from rlviz.settings import TrainSettings
from small_models.checks import short_repr

A, R = verl.ACTOR, verl.ROLLOUT
WIDTH = 118
PAGE = "notebooks/symptoms.md"
FAULTS = (TypeError, AttributeError, KeyError, ValueError, OverflowError)  # of a value that nothing expects

# a kind of piece → what it does to the gradient where the paper's algorithm has another kind, beyond its own reason
EFFECTS: Mapping[Any, str] = {
    bounds.no_bounds: "no ratio ends a token's gradient",
    gae.GAE: "A looks ahead with λ {lam:g}: nearer to 1 it leans less on the critic and varies more",
    surrogate.DualClip: "a token with A < 0 has no gradient once its ratio is above {c:g}",
    surrogate.pessimistic: "a token with A < 0 keeps its gradient however large its ratio",
    surrogate.EntropyBonus: "adds {entropy_weight:g} times the gradient of the entropy",
    aggregation.token_mean: "a response's weight grows with its length: each token has the same",
    aggregation.sequence_mean: "each response has the same weight, so a token of a long one has less",
    aggregation.Constant: "a response's weight grows with its length, and no batch's length divides it",
    kl.KLInLoss: "each token is pulled back to the reference, {beta:g} times the gradient of its KL",
    kl.UnbiasedKL: "k3 is multiplied by the ratio, so the pull is that of the KL itself: " + trl.UNBIASED,
    "none": "A is not divided by a std: groups of one success among many weigh less than those that are half right",
    "batch_std": "all groups are divided by one std, so none is lifted by a small std of its own",
}
GONE = {
    "kl": "nothing pulls towards the reference, and none is loaded",
    "shape": "the options name none; your reward functions may have one",
}


@dataclass(frozen=True)
class Compared:
    """A slot here and in the paper's algorithm, and what a difference does to the gradient."""

    slot: str
    here: str
    paper: str
    effect: str = ""

    @property
    def differs(self) -> bool:
        """Whether the two have other pieces."""
        return bool(self.effect)


@dataclass(frozen=True, repr=False)
class Explanation:
    """What a configuration trains; printed, or shown in a notebook, it is a text.

    config: what was read. algorithm: its pieces. name: the nearest algorithm of the family. also: another that is as good a
    name, and what differs from it. slots: beside the nearest one's. beyond: (what, why) that no slot says. columns: of the log.
    first: what they show in the first ten steps. idle: (option, why it has no effect). symptoms: (heading of
    notebooks/symptoms.md, why).
    """

    config: Config
    algorithm: Algorithm
    name: str
    also: str
    slots: tuple[Compared, ...]
    beyond: tuple[tuple[str, str], ...]
    batch: Batch
    columns: tuple[str, ...]
    first: tuple[str, ...]
    idle: tuple[tuple[str, str], ...]
    symptoms: tuple[tuple[str, str], ...]

    @property
    def differing(self) -> tuple[str, ...]:
        """The slots that differ from the paper's."""
        return tuple(line.slot for line in self.slots if line.differs)

    @property
    def summary(self) -> str:
        """Which algorithm it is, in a line."""
        library = "verl" if self.config.kind == VERL else "trl"
        whose = f" (the file is {self.config.owner.framework}'s, which builds on it)" if self.config.owner else ""
        alike = "slot by slot as in its paper, but see “Beyond the slots”" if self.beyond else "as in its paper"
        but = f"{self.name}, but for {', '.join(self.differing)}" if self.differing else f"{self.name}, {alike}"
        unknown = unknown_slots(self.algorithm)
        none = f"no algorithm of rlviz, for its {' and '.join(unknown)}; here beside {self.name}"
        also = f" (or {self.also})" if self.also else ""
        return (
            f"{self.config.kind}, read as {library} {CHECKED[library]} has it{whose}: {none if unknown else but}{also}."
        )

    def sections(self) -> Iterator[tuple[str, list[str]]]:
        """Give heading → lines, but for the slots."""
        unread = {name: text for name, text in self.config.unread.items() if not name.endswith(HARMLESS)}
        sections = {
            "Beyond the slots": [f"{what}: {why}" if why else what for what, why in self.beyond],
            "Batch": [self.batch.words, *(f"Cannot start: {why}" for why in self.batch.refused)],
            "Log": [", ".join(self.columns)],
            "First ten steps": list(self.first),
            "Set, without effect": [f"{', '.join(names)}: {why}" for why, names in _by_reason(self.idle)],
            "Symptoms to know": [f"“{heading}”: {why}" for heading, why in self.symptoms],
            "Not read, so at the default": [f"{name} = {text}" for name, text in unread.items()],
            "No options of this version": _unknown_names(self.config.unknown),
            "Notes": self.config.notes,
        }
        yield from ((heading, lines) for heading, lines in sections.items() if lines)

    def as_json(self) -> dict[str, Any]:
        """Return all of it as JSON has it."""
        return {
            "kind": self.config.kind,
            "algorithm": None if unknown_slots(self.algorithm) else self.name,
            "beside": self.name,
            "differs": list(self.differing),
            "also": self.also,
            "slots": [asdict(line) | {"differs": line.differs} for line in self.slots],
            "beyond": [{"what": what, "why": why} for what, why in self.beyond],
            "batch": asdict(self.batch),
            "columns": list(self.columns),
            "first_ten_steps": list(self.first),
            "without_effect": [{"option": name, "why": why} for name, why in self.idle],
            "symptoms": [{"heading": heading, "why": why, "page": PAGE} for heading, why in self.symptoms],
            "unread": self.config.unread,
            "unknown": self.config.unknown,
            "notes": self.config.notes,
        }

    def __str__(self) -> str:
        def wrapped(text: str, indent: str) -> list[str]:
            later = indent or "  "
            return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=later, break_on_hyphens=False)

        lines = [self.summary, ""]
        for line in self.slots:
            beside = f"   paper: {line.paper}" if line.differs else ""
            lines.append(f"{'≠' if line.differs else '='} {line.slot:10} {line.here}{beside}")
            lines += wrapped(line.effect, " " * 13) if line.differs else []
        for heading, texts in self.sections():
            many = len(texts) > 1
            lines += ["", heading] if many else [""]
            for text in texts:
                short = text.replace("actor_rollout_ref.", "")
                lines += wrapped(short if many else f"{heading}: {short}", "  " if many else "")
        return "\n".join(lines)

    __repr__ = __str__


def explain_config(source: str | Path, *, kind: str | None = None, devices: int = 1) -> Explanation:
    """Return what a configuration of TRL or verl trains.

    source: a Path, or the text itself: TRL's GRPOConfig or DPOConfig as YAML, JSON, a Python call (read, never run) or a command
    line; verl's YAML, overrides or script. kind: "GRPOConfig", "DPOConfig" or "ppo_trainer.yaml", where the text leaves it open.
    devices: processes of TRL, which its configuration does not name. Raises ValueError for what is none of these.
    """
    if not isinstance(devices, int) or devices < 1:
        raise ValueError(f"devices must be a whole number, at least 1; got {devices!r}")
    config = read_config(source, kind)
    batch_of(config, devices)  # whose sizes have an error of their own
    try:
        return _explain(config, devices)
    except FAULTS:
        _explain(replace(config, values={}), devices)  # a fault with no option at all is ours, and no value is to blame
    blamed = []
    for name, value in config.values.items():
        with suppress(*FAULTS):
            _explain(replace(config, values={other: v for other, v in config.values.items() if other != name}), devices)
            blamed.append(f"{name}={short_repr(value)}")
    what = ", ".join(blamed) or "several of its values"
    raise ValueError(f"the library does not take {what}{' together' * (len(blamed) > 1)}")


def _explain(config: Config, devices: int) -> Explanation:
    algorithm, batch = read_algorithm(config), batch_of(config, devices)
    paper, *others = nearest(algorithm)
    idle = dict(without_effect(config, batch))
    ours, theirs = parts(algorithm), parts(paper)
    slots = []
    for slot, here in ours.items():
        in_paper = _for_run(theirs.get(slot), config)
        effect = "" if is_same(here, in_paper) else _effect(slot, here, in_paper)
        slots.append(Compared(slot, label(here), label(in_paper), effect))
    longest = config.options.get("max_completion_length")
    settings = TrainSettings(max_new_tokens=longest)
    with suppress(ValueError):  # sizes with which nothing starts
        settings = replace(
            settings,
            num_prompts=batch.prompts,
            group_size=batch.group,
            minibatches=batch.parts,
            updates_per_rollout=batch.updates,
        )
    beyond = (
        *beyond_slots(config, algorithm, settings, max(1, batch.accumulation), idle),
        *_beyond_batch(config, algorithm, batch),
    )
    return Explanation(
        config=config,
        algorithm=algorithm,
        name=paper.name,
        also="".join(f"{other.name}, but for {', '.join(differing_slots(algorithm, other))}" for other in others[:1]),
        slots=tuple(slots),
        beyond=beyond,
        batch=batch,
        columns=tuple(columns(config, batch)),
        first=tuple(first_steps(config, batch)),
        idle=tuple((name, why) for name, why in idle.items() if name in config.values),
        symptoms=tuple(symptoms(config, batch).items()),
    )


def _longest(config: Config) -> int | None:
    return config.options.get("data.max_response_length" if config.kind == VERL else "max_completion_length")


def _for_run(piece: Any, config: Config) -> Any:
    """Return a piece of the paper with lengths as this run's: DAPO's paper punishes the last fifth, 4,096 of 20,480 tokens."""
    longest = _longest(config)
    if not isinstance(longest, int) or not is_dataclass(piece) or getattr(piece, "max_length", 1) == 1:
        return piece
    if isinstance(piece, shaping.SoftOverlongPunishment):
        return replace(piece, max_length=longest, cache=max(1, longest // 5))
    return replace(piece, max_length=longest) if isinstance(piece, aggregation.Constant) else piece


def _beyond_batch(config: Config, algorithm: Algorithm, batch: Batch) -> Iterator[tuple[str, str]]:
    """Give (what, why) for a group without a baseline, and for losses that choose their tokens within a micro-batch."""
    if batch.group == 1 and isinstance(algorithm, GroupPolicyGradient) and algorithm.min_group_size > 1:
        name = R + "n" if config.kind == VERL else "num_generations"
        unset = "" if name in config.values else ", its default"
        what = f"one response a prompt ({name} is 1{unset})"
        yield what, "a group of one has no baseline, and the advantage is the reward itself"
    o = config.options
    mode = o.get(A + "policy_loss.loss_mode")
    if config.kind != VERL or mode not in ("kl_cov", "clip_cov") or o["algorithm.rollout_correction.bypass_mode"]:
        return
    why = "chosen anew within each micro-batch: a setting of memory changes the update"
    if o[A + "ppo_micro_batch_size_per_gpu"] == 1 and not o[A + "use_dynamic_bsz"]:
        nothing = "rounding noise chooses" if mode == "kl_cov" else "no token is chosen (clip_cov_lb is above 0)"
        why += f"; in a micro-batch of one response all advantages are equal, so every covariance is 0, and {nothing}"
    yield f"tokens of {mode}", why


def _effect(slot: str, here: Any, paper: Any) -> str:
    """Return what a piece does to the gradient where the paper has another one."""
    if here is None:
        return GONE.get(slot, "nothing is there")
    if isinstance(here, UnknownPiece):
        return "no piece of rlviz: what it does to the gradient is not said here"
    if isinstance(here, WEIGHTED):
        effect = "the gradient is multiplied by the weight w between the two engines, 1 where they agree"
        if isinstance(here, mismatch.MaskedWeight):
            below = f"below {here.lowest:g} or " if here.lowest else ""
            effect += f"; no gradient is left where w is {below}above {here.highest:g}"
        is_plain = isinstance(paper, WEIGHTED) or is_same(here.advantage, paper)
        return effect if is_plain else f"{effect}; {_effect(slot, here.advantage, paper)}"
    if isinstance(here, bounds.FixedBounds):
        return f"a token's gradient ends at ratio {1 + here.eps_high:g} where A > 0, and at {1 - here.eps_low:g} where A < 0"
    if isinstance(here, bounds.UpperBound):
        return f"what lies above the ratio {here.max_ratio:g} is cut; below there is no limit"
    if kind_of(here) is kind_of(paper) and isinstance(here, kl.KLInLoss | kl.KLInReward) and here.beta != paper.beta:
        other = "" if here.estimator is paper.estimator else f", by {label(here.estimator)}"
        return f"the pull to the reference has {here.beta / paper.beta:.3g} times the weight{other}"
    if kind_of(here) is kind_of(paper) and isinstance(here, preference.ImplicitReward):
        times = here.beta / paper.beta
        return f"the gradient begins at {times:.3g} times the length, and fades at {1 / times:.3g} times the log-ratio"
    numbers = dict(getattr(here, "__dict__", {}))
    effect = EFFECTS.get(numbers.get("scale", kind_of(here)), reason(here))
    return effect.format(**numbers, apart=trl.slopes_apart(numbers.get("beta", 0)))


def _by_reason(rows: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return reason → names of (name, reason)."""
    names: dict[str, list[str]] = {}
    for name, why in rows:
        names.setdefault(why, []).append(name)
    return list(names.items())


def _unknown_names(unknown: Mapping[str, str]) -> list[str]:
    """Return names that are like none in one line, the others with what is known of them."""
    lines = []
    for why, names in _by_reason(unknown.items()):
        more = f" and {len(names) - 2} more" if len(names) > 3 else ""
        if why:
            lines.append(f"{', '.join(names[:2] if more else names)}{more}: {why}")
        else:
            lines.insert(0, ", ".join(names))
    return lines
