"""The interface of each slot, a Protocol a slot, and the checks of a piece against it when an algorithm is built.

A piece is called with the arguments before the star of its slot's `__call__`, in this order. Arguments after the star are
optional: a piece gets one by naming a parameter so. sampler_logp: the log-probabilities with which the tokens were drawn;
old_logp where the policy itself samples. Any function with these arguments is a piece. "May have" lists optional attributes of a
piece. Every piece may have `formula`, a text (`rlviz.pieces.words.explained`) that `rlviz.formulas` typesets.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from typing import Any, ClassVar, Protocol

from jaxtyping import Bool, Int
from torch import Generator, Tensor

from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.words import label
from rlviz.types import Mask, Responses, Tokens

Limit = Tensor | float


class Ratio(Protocol):
    """r of each token, 1 on padding."""

    def __call__(self, logp: Tokens, old_logp: Tokens, mask: Mask, *, sampler_logp: Tokens) -> Tokens: ...


class Bounds(Protocol):
    """Limits on the ratio, lower ≤ upper: each a number, or a tensor shaped like old_logp."""

    def __call__(self, old_logp: Tokens, *, mask: Mask, advantages: Tokens) -> tuple[Limit, Limit]: ...


class Surrogate(Protocol):
    """J of each token, to be maximised. advantages are 0 on padding. entropy: of the next-token distribution, with gradient.

    May have choose(advantages, old_logp, mask) → mask, and then takes `chosen`: the tokens that it treats differently, chosen
    once for all tokens of a rollout from values that are frozen since sampling, so that micro-batches and earlier updates do not
    matter.
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

    One that takes history gets that of these prompts before this visit, and returns (A, the history after it).

    May have min_group_size: responses to a prompt that it needs, 1 by default; from_teacher = True: the reference is a teacher
    that has to be passed to the run.
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

    May have a parameter beta, which records show and a controller changes; estimator, (logp, ref_logp) → KL, which then measures
    the KL to the old policy, too; from_teacher, as in `Advantage`.
    """

    def __call__(self, logp: Tokens, *, ref_logp: Tokens, old_logp: Tokens, ratio: Tokens, mask: Mask) -> Tokens: ...


class RewardKL(Protocol):
    """A piece of the kl slot with in_reward = True: its penalty is taken off each token's reward, once, when sampled."""

    in_reward: ClassVar[bool]

    def __call__(self, old_logp: Tokens, ref_logp: Tokens, mask: Mask) -> Tokens: ...


class Aggregate(Protocol):
    """The share of each token in the objective."""

    def __call__(self, mask: Mask) -> Tokens: ...


class Shape(Protocol):
    """The rewards after shaping. May have loss_mask(mask, truncated) → mask: the mask of tokens in the loss."""

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

    May have max_rounds, 1 by default: groups are sampled in place of those left out, up to max_rounds · P. May have uses,
    rewards [..., P, G] → [..., P]: how often each group is used, in the mean over random draws.
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
OPTIONAL = ("kl", "shape")  # slots that may be None


@cache
def call_of(protocol: type) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of the arguments of a slot's call, in order, and of the optional ones."""
    parameters = list(inspect.signature(protocol.__call__).parameters.values())[1:]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    return tuple(p.name for p in parameters if p.name not in by_name), tuple(by_name)


CALLS = {slot: call_of(protocol) for slot, protocol in PROTOCOLS.items()}


@dataclass(frozen=True)
class Capabilities:
    """The optional arguments and attributes of an algorithm's pieces, read when it is built.

    asks: slot → optional argument that the piece takes → whether it has no default. choose, loss_mask, uses, beta, estimator,
    from_teacher, max_rounds, min_group_size: attributes of pieces, by the Protocol of their slot; None, False or 1 where a piece
    has none. kl_in_reward: whether the KL term is a `RewardKL`.
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


def read_capabilities(pieces: Mapping[str, Any], protocols: Mapping[str, type]) -> Capabilities:
    """Return the capabilities of the pieces, slot → piece. Raises TypeError, naming the slot, for a piece that does not fit."""
    kl, shape, select, advantage = (pieces[slot] for slot in ("kl", "shape", "select", "advantage"))
    in_reward = bool(getattr(kl, "in_reward", False))
    asks = {}
    for slot, protocol in protocols.items():
        if pieces[slot] is not None or slot not in OPTIONAL:
            call = call_of(RewardKL if slot == "kl" and in_reward else protocol)
            asks[slot] = optional_arguments(slot, pieces[slot], *call)
    choose, loss_mask = getattr(pieces["surrogate"], "choose", None), getattr(shape, "loss_mask", None)
    if choose is not None:
        optional_arguments("surrogate's choose", choose, ("advantages", "old_logp", "mask"), ())
    if loss_mask is not None:
        optional_arguments("shape's loss_mask", loss_mask, ("mask", "truncated"), ())
    counts = {"max_rounds": getattr(select, "max_rounds", 1), "min_group_size": getattr(advantage, "min_group_size", 1)}
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise TypeError(f"{name} of a piece must be a whole number, at least 1; got {count!r}")
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
        uses=getattr(select, "uses", None),
        **counts,
    )


def optional_arguments(
    slot: str, piece: Any, called_with: tuple[str, ...], optional: tuple[str, ...]
) -> dict[str, bool]:
    """Return optional argument that the piece takes → whether it has no default. Raises TypeError when it cannot be called."""
    call = f"{len(called_with)} argument{'s' if len(called_with) > 1 else ''} ({', '.join(called_with)})"
    if not callable(piece) or inspect.isclass(piece):
        raise TypeError(f"{slot} must be a function of {call} or a built piece; got {piece!r}")
    try:
        signature = inspect.signature(piece)
    except ValueError:
        raise TypeError(
            f"{slot} must be a function of {call}; {label(piece)} does not say which arguments it takes: wrap it in a function"
        ) from None
    # a parameter counts as optional by its name, unless its position already takes an argument of the call
    by_name = {}
    for position, parameter in enumerate(signature.parameters.values()):
        is_positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        in_call = is_positional and position < len(called_with)
        if not in_call and parameter.name in optional and parameter.kind is not parameter.POSITIONAL_ONLY:
            by_name[parameter.name] = parameter.default is parameter.empty
    try:
        signature.bind(*called_with, **by_name)
    except TypeError as error:
        also = f", and may ask for {', '.join(optional)}" if optional else ""
        raise TypeError(f"{slot} must take {call}{also}; {label(piece)} does not: {error}") from None
    return by_name


def bind_optional(
    algorithm: str, slot: str, piece: Any, asks: Mapping[str, bool], values: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a piece with its optional arguments bound. Raises ValueError, naming algorithm and slot, where one is missing."""
    for name, is_required in asks.items():
        if is_required and values.get(name) is None:
            raise ValueError(f"{algorithm}'s {slot}, {label(piece)}, needs {name}; got None")
    arguments = {name: values[name] for name in asks if values.get(name) is not None}
    return partial(piece, **arguments) if arguments else piece


def parameters_of(piece: object) -> list[str]:
    """Return the names of a piece's parameters: the fields of a dataclass."""
    return [f.name for f in fields(piece)] if is_dataclass(piece) and not isinstance(piece, type) else []


def numbers_in(piece: object) -> dict[str, int | float]:
    """Return parameter → number for a piece and the pieces inside it; the outer one's where two share a name."""
    numbers: dict[str, int | float] = {}
    for name in parameters_of(piece):
        value = getattr(piece, name)
        numbers |= {name: value} if isinstance(value, int | float) else {}
        numbers |= {inner: number for inner, number in numbers_in(value).items() if inner not in numbers}
    return numbers
