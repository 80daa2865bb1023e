"""What is asked of the piece in each slot: a Protocol a slot, read once, when an algorithm is built.

A piece is called with what stands before the star of its slot's `__call__`, in this order. What stands after the star it may ask
for: a parameter of that name gets it. sampler_logp is with which log-probabilities the tokens were drawn; where the policy itself
samples it is old_logp. A function of one's own that takes these arguments is a piece. What a Protocol names under "May have" are
attributes that a piece may have beyond its call, or do without; they are read where an algorithm is built. Every piece may have
`formula`, a text (`rlviz.pieces.words.says`) that the inspector fills a token's numbers into and `rlviz.formulas` typesets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from typing import Any, ClassVar, Protocol

from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.words import label

Tokens = Float[Tensor, "P G T"]
Mask = Bool[Tensor, "P G T"]
Responses = Float[Tensor, "P G"]
Limit = Tensor | float


class Ratio(Protocol):
    """r of each token, 1 on padding."""

    def __call__(self, logp: Tokens, old_logp: Tokens, mask: Mask, *, sampler_logp: Tokens) -> Tokens: ...


class Bounds(Protocol):
    """Limits on the ratio, lower ≤ upper: each a number, or a tensor shaped like old_logp."""

    def __call__(self, old_logp: Tokens, *, mask: Mask, advantages: Tokens) -> tuple[Limit, Limit]: ...


class Surrogate(Protocol):
    """J of each token, to be maximised. advantages are 0 on padding. entropy: of the next-token distribution, with gradient.

    May have choose(advantages, old_logp, mask) → mask: one that treats some tokens otherwise asks for `chosen`, and chooses them
    once for all of an update's tokens. It chooses by what is frozen since sampling, so that neither micro-batches nor earlier
    updates change the choice.
    """

    def __call__(
        self,
        ratio: Tokens,
        advantages: Tokens,
        lower: Tokens,
        upper: Tokens,
        *,
        mask: Mask,
        logp: Tokens,
        old_logp: Tokens,
        entropy: Tokens,
        chosen: Mask,
        sampler_logp: Tokens,
    ) -> Tokens: ...


class Advantage(Protocol):
    """A of each response, [P, G], or of each token, [P, G, T], from rewards after shaping, the KL in the reward taken off.

    old_entropy: of the distribution that each token was drawn from. correct, well_formed: as in `Shape`.

    One that asks for history gets that of these prompts before this visit and returns (A, the history after it): it alone
    remembers, so that what is remembered is what was used.

    May have min_group_size: how many responses to a prompt it needs, 1 where it does not say; and from_teacher = True: it learns
    from the reference, so that one is asked for which is not the start of the run.
    """

    def __call__(
        self,
        rewards: Responses,
        *,
        mask: Mask,
        old_logp: Tokens,
        sampler_logp: Tokens,
        ref_logp: Tokens,
        step_ends: Mask,
        history: PromptHistory,
        old_entropy: Tokens,
        correct: Responses,
        well_formed: Responses,
    ) -> Responses | Tokens | tuple[Responses, PromptHistory]: ...


class CriticAdvantage(Protocol):
    """(A, the return that the critic is trained on) of each token: the advantage slot of an `ActorCritic`."""

    def __call__(self, rewards: Tokens, values: Tokens, mask: Mask) -> tuple[Tokens, Tokens]: ...


class KL(Protocol):
    """The penalty taken off each token's objective; or it is a `RewardKL`.

    May have a parameter beta: records tell it, and a controller changes it; estimator, (logp, ref_logp) → KL: by the same one a
    KL to the old policy is measured; and from_teacher, as an advantage has it.
    """

    def __call__(self, logp: Tokens, *, ref_logp: Tokens, old_logp: Tokens, ratio: Tokens, mask: Mask) -> Tokens: ...


class RewardKL(Protocol):
    """A piece of the kl slot that says in_reward = True: its penalty is taken off each token's reward, once, when sampled."""

    in_reward: ClassVar[bool]

    def __call__(self, old_logp: Tokens, ref_logp: Tokens, mask: Mask) -> Tokens: ...


class Aggregate(Protocol):
    """The share of each token in the objective."""

    def __call__(self, mask: Mask) -> Tokens: ...


class Shape(Protocol):
    """The rewards after shaping. May have loss_mask(mask, truncated) → mask: which tokens the loss sees."""

    def __call__(
        self,
        rewards: Responses,
        lengths: Int[Tensor, "P G"],
        *,
        truncated: Bool[Tensor, "P G"],
        correct: Responses,
        well_formed: Responses,
    ) -> Responses: ...


class Select(Protocol):
    """Indices of the groups to train on, from raw outcomes.

    May have max_rounds: it wants groups sampled in place of those it leaves out, until max_rounds · P were sampled; 1 where it
    does not say. May have uses, rewards [..., P, G] → [..., P]: how often it uses each group, in the mean over what it draws.
    """

    def __call__(self, rewards: Responses, *, generator: Generator) -> Int[Tensor, " N"]: ...


class ValueLoss(Protocol):
    """The critic's loss on each token."""

    def __call__(self, values: Tokens, old_values: Tokens, returns: Tokens) -> Tokens: ...


class ObservationLoss(Protocol):
    """The loss of each token that the environment wrote."""

    def __call__(self, logp: Tokens) -> Tokens: ...


class Controller(Protocol):
    """The next beta of the KL term, from the KL of an update in nats per token and the number of responses behind it."""

    def __call__(self, beta: float, kl: float, count: int) -> float: ...


PROTOCOLS: dict[str, type] = {
    "ratio": Ratio,
    "bounds": Bounds,
    "surrogate": Surrogate,
    "advantage": Advantage,
    "kl": KL,
    "aggregate": Aggregate,
    "shape": Shape,
    "select": Select,
}
SLOTS = tuple(PROTOCOLS)
OPTIONAL = ("kl", "shape")  # None is a piece here


@cache
def call_of(protocol: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a piece is called with, in this order, and what it may ask for by name."""
    parameters = list(inspect.signature(protocol.__call__).parameters.values())[1:]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return tuple(p.name for p in parameters if p.name not in by_name), tuple(by_name)


CALLS = {slot: call_of(protocol) for slot, protocol in PROTOCOLS.items()}


@dataclass(frozen=True)
class Capabilities:
    """What the pieces of an algorithm ask for and can do, read when it is built. asks: slot → name → whether it must have it.

    choose: of the surrogate, None where it has none.
    kl_in_reward: whether the KL term is a `RewardKL`. beta, estimator: of the KL term, None where it has none. loss_mask: of
    the shaping, None where it has none. max_rounds, min_group_size: 1 where the selection, the advantage, has none. uses: of the
    selection, None where it has none.
    """

    asks: Mapping[str, Mapping[str, bool]]
    choose: Callable[[Tensor, Tensor, Tensor], Tensor] | None
    from_teacher: bool
    kl_in_reward: bool
    beta: float | None
    estimator: Callable[[Tensor, Tensor], Tensor] | None
    loss_mask: Callable[[Tensor, Tensor], Tensor] | None
    max_rounds: int
    min_group_size: int
    uses: Callable[[Tensor], Tensor] | None


def read(pieces: Mapping[str, Any], protocols: Mapping[str, type]) -> Capabilities:
    """Return what these pieces, slot → piece, can do. Raises TypeError, naming the slot, for one that does not fit."""
    kl, shape, select, advantage = (pieces[slot] for slot in ("kl", "shape", "select", "advantage"))
    in_reward = bool(getattr(kl, "in_reward", False))
    asks = {}
    for slot, protocol in protocols.items():
        if pieces[slot] is not None or slot not in OPTIONAL:
            asks[slot] = asked(slot, pieces[slot], *call_of(RewardKL if slot == "kl" and in_reward else protocol))
    choose, loss_mask = getattr(pieces["surrogate"], "choose", None), getattr(shape, "loss_mask", None)
    if choose is not None:
        asked("surrogate's choose", choose, ("advantages", "old_logp", "mask"), ())
    if loss_mask is not None:
        asked("shape's loss_mask", loss_mask, ("mask", "truncated"), ())
    beta = kl.beta if "beta" in parameters_of(kl) else None
    estimator = getattr(kl, "estimator", None)
    return Capabilities(
        asks=asks,
        choose=choose,
        from_teacher=any(bool(getattr(piece, "from_teacher", False)) for piece in (advantage, kl)),
        kl_in_reward=in_reward,
        beta=beta if isinstance(beta, int | float) else None,
        estimator=estimator if callable(estimator) else None,
        loss_mask=loss_mask,
        max_rounds=_count("select's max_rounds", getattr(select, "max_rounds", 1)),
        min_group_size=_count("advantage's min_group_size", getattr(advantage, "min_group_size", 1)),
        uses=getattr(select, "uses", None),
    )


def _count(what: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise TypeError(f"{what} must be a whole number, at least 1; got {value!r}")
    return value


def asked(slot: str, piece: Any, called_with: tuple[str, ...], offered: tuple[str, ...]) -> dict[str, bool]:
    """Return what the piece asks for by name → whether it must have it. Raises TypeError when it cannot be called."""
    what = f"{len(called_with)} argument{'s' if len(called_with) > 1 else ''} ({', '.join(called_with)})"
    if not callable(piece) or inspect.isclass(piece):
        raise TypeError(f"{slot} must be a function of {what} or a built piece; got {piece!r}")
    try:
        signature = inspect.signature(piece)
    except ValueError:
        raise TypeError(
            f"{slot} must be a function of {what}; {label(piece)} does not say which arguments it takes: wrap it in a function"
        ) from None
    found = {}
    for place, parameter in enumerate(signature.parameters.values()):
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if positional and place < len(called_with):
            continue
        if parameter.name in offered and parameter.kind is not parameter.POSITIONAL_ONLY:
            found[parameter.name] = parameter.default is parameter.empty
    try:
        signature.bind(*called_with, **found)
    except TypeError as error:
        also = f", and may ask for {', '.join(offered)}" if offered else ""
        raise TypeError(f"{slot} must take {what}{also}; {label(piece)} does not: {error}") from None
    return found


def filled(who: str, slot: str, piece: Any, asks: Mapping[str, bool], offered: Mapping[str, Any]) -> Callable[..., Any]:
    """Return a piece with what it asks for by name filled in. Raises ValueError, naming whose it is, when that is not there."""
    for name, required in asks.items():
        if required and offered.get(name) is None:
            raise ValueError(f"{who}'s {slot}, {label(piece)}, needs {name}; got None")
    given = {name: offered[name] for name in asks if offered.get(name) is not None}
    return partial(piece, **given) if given else piece


def parameters_of(piece: object) -> list[str]:
    """Return the names of a piece's parameters: the fields of a dataclass."""
    return [f.name for f in fields(piece)] if is_dataclass(piece) and not isinstance(piece, type) else []


def numbers_in(piece: object) -> dict[str, int | float]:
    """Return the numbers that a piece holds, and those of pieces that it holds: parameter → value; of two the outer one's."""
    found: dict[str, int | float] = {}
    for name in parameters_of(piece):
        value = getattr(piece, name)
        found |= {name: value} if isinstance(value, int | float) else {}
        found |= {inner: number for inner, number in numbers_in(value).items() if inner not in found}
    return found
