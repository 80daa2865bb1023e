"""An algorithm as one frozen value that names its pieces, and what every such algorithm can do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.names import nearest
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.aggregation import weighted_sum
from rlviz.pieces.kl import KLInReward
from rlviz.pieces.surrogate import is_clipped
from rlviz.types import Batch, LossOutput, TokenObjective

SLOTS = ("ratio", "bounds", "surrogate", "advantage", "kl", "aggregate", "shape", "select")
# slot → what a piece is called with, in this order, and what it may ask for beyond that by the names of its parameters
CALLS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ratio": (("logp", "old_logp", "mask"), ()),
    "bounds": (("old_logp",), ("mask", "advantages")),
    "surrogate": (("ratio", "advantages", "lower", "upper"), ("mask", "logp", "old_logp")),
    "advantage": (("rewards",), ("mask", "old_logp", "ref_logp", "step_ends", "history")),
    "kl": (("logp",), ("ref_logp", "old_logp", "ratio", "mask")),
    "aggregate": (("mask",), ()),
    "shape": (("rewards", "lengths"), ("truncated", "correct", "well_formed")),
    "select": (("rewards",), ("generator",)),
}
OPTIONAL = ("kl", "shape")
Self = TypeVar("Self", bound="PolicyGradient")


@dataclass(frozen=True, kw_only=True)
class PolicyGradient:
    """The eight slots of a policy-gradient algorithm, and the loss that they make.

    maximise  Σ weights · ( surrogate(r, A, lower, upper) − kl ),   weights = aggregate(mask)

    slot       called with                        may also ask for, by the name of a parameter
    ratio      logp, old_logp, mask               → r
    bounds     old_logp                           mask, advantages → (lower, upper)
    surrogate  ratio, advantages, lower, upper    mask, logp, old_logp → J; advantages are 0 on padding
    advantage  rewards [P, G]                     mask, old_logp, ref_logp, step_ends, history → A [P, G] or [P, G, T]
    kl         logp                               ref_logp, old_logp, ratio, mask → penalty; a KLInReward; or None
    aggregate  mask                               → weights
    shape      rewards, lengths [P, G]            truncated, correct, well_formed [P, G] → rewards; or None
    select     rewards [P, G]                     generator → indices of the groups to train on; sees raw outcomes

    All without a shape are [P, G, T]. source: the paper. about: what it computes and where it differs from GRPO, in words.
    Raises TypeError, naming the slot, for an unknown slot and for a piece that cannot be called like this.
    """

    name: str
    ratio: Callable[..., Tensor]
    bounds: Callable[..., tuple[Tensor, Tensor]]
    surrogate: Callable[..., Tensor]
    advantage: Callable[..., Any]
    kl: Callable[..., Tensor] | None
    aggregate: Callable[[Tensor], Tensor]
    shape: Callable[..., Tensor] | None
    select: Callable[..., Tensor]
    source: str = ""
    about: str = field(default="", repr=False, compare=False)

    def __new__(cls, **given: Any) -> PolicyGradient:
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"unknown slot {name!r}; {nearest(name, known)}slots: {', '.join(known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        asks = {}
        for slot in SLOTS:
            piece = getattr(self, slot)
            if piece is None and slot in OPTIONAL:
                continue
            if isinstance(piece, KLInReward) and slot == "kl":
                continue
            asks[slot] = _asked(slot, piece, *self._call(slot))
        object.__setattr__(self, "_asks", asks)

    @staticmethod
    def _call(slot: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return CALLS[slot]

    def _piece(self, slot: str, **offered: Any) -> Callable[..., Any]:
        """Return the slot's piece with what it asks for by name filled in. Raises ValueError when that is not there."""
        piece, asked = getattr(self, slot), self._asks[slot]  # type: ignore[attr-defined]
        if not asked:
            return piece
        for name, required in asked.items():
            if required and offered.get(name) is None:
                raise ValueError(f"{self.name}'s {slot}, {label(piece)}, needs {name}; got None")
        return partial(piece, **{name: offered[name] for name in asked if offered.get(name) is not None})

    @property
    def needs_reference(self) -> bool:
        """Whether log-probabilities under a reference policy are needed."""
        asks: dict[str, dict[str, bool]] = self._asks  # type: ignore[attr-defined]
        return isinstance(self.kl, KLInReward) or any("ref_logp" in asked for asked in asks.values())

    def asks_for(self, slot: str, name: str) -> bool:
        """Return whether the piece in this slot asks for `name` beyond what it is called with."""
        return name in self._asks.get(slot, {})  # type: ignore[attr-defined]

    @property
    def models(self) -> tuple[str, ...]:
        """The models in play; rewards come from rules unless a reward model is among them."""
        return ("actor", "reference") if self.needs_reference else ("actor",)

    @property
    def min_group_size(self) -> int:
        """The fewest responses to a prompt with which the advantage is defined: `min_group_size` of its piece, else 1."""
        return getattr(self.advantage, "min_group_size", 1)

    def objective(self, logp: Float[Tensor, "P G T"], batch: Batch) -> TokenObjective:
        """Return each token's objective and what it is made of. Raises ValueError when a piece needs what is None."""
        mask, padding = batch.mask, ~batch.mask
        logp = logp.masked_fill(padding, 0.0)
        old_logp = batch.old_logp.masked_fill(padding, 0.0)
        advantages = batch.advantages.masked_fill(padding, 0.0)
        ratio = self.ratio(logp, old_logp, mask)
        limits = self._piece("bounds", mask=mask, advantages=advantages)(old_logp)
        lower, upper = (_spread(limit, old_logp) for limit in limits)
        surrogate = self._piece("surrogate", mask=mask, logp=logp, old_logp=old_logp)
        value = surrogate(ratio, advantages, lower, upper)
        if self.asks_for("surrogate", "logp"):
            surrogate = _following_the_ratio(surrogate, logp.detach())
        if self.kl is not None and not isinstance(self.kl, KLInReward):
            ref_logp = None if batch.ref_logp is None else batch.ref_logp.masked_fill(padding, 0.0)
            value = value - self._piece("kl", ref_logp=ref_logp, old_logp=old_logp, ratio=ratio, mask=mask)(logp)
        return TokenObjective(value, ratio, advantages, lower, upper, surrogate)

    def loss(self, logp: Float[Tensor, "P G T"], batch: Batch) -> LossOutput:
        """Return the loss, −objective, and its parts. Raises ValueError when a piece needs what is None."""
        part = self.objective(logp, batch)
        weights = self.aggregate(batch.mask) if batch.weights is None else batch.weights
        low, high, dual = is_clipped(part.surrogate, part.ratio, part.advantages, part.lower, part.upper)
        return LossOutput(
            loss=-weighted_sum(part.value, weights, batch.mask),
            ratio=part.ratio.detach(),
            lower=part.lower,
            upper=part.upper,
            clipped_low=low,
            clipped_high=high,
            clipped_dual=dual,
        )

    def shaped(
        self,
        rewards: Float[Tensor, "P G"],
        lengths: Int[Tensor, "P G"],
        *,
        truncated: Bool[Tensor, "P G"] | None = None,
        correct: Float[Tensor, "P G"] | None = None,
        well_formed: Float[Tensor, "P G"] | None = None,
    ) -> Float[Tensor, "P G"]:
        """Return the rewards after shaping."""
        if self.shape is None:
            return rewards
        return self._piece("shape", truncated=truncated, correct=correct, well_formed=well_formed)(rewards, lengths)

    def loss_mask(self, mask: Bool[Tensor, "P G T"], truncated: Bool[Tensor, "P G"]) -> Bool[Tensor, "P G T"]:
        """Return which tokens the loss sees: those of `mask`, unless the shaping filters responses out."""
        filtered = getattr(self.shape, "loss_mask", None)
        return mask if filtered is None else filtered(mask, truncated)

    def selected(self, outcomes: Float[Tensor, "P G"], generator: torch.Generator | None = None) -> Int[Tensor, " N"]:
        """Return the indices of the groups to train on. Raises ValueError when the piece returns anything else."""
        index = self._piece("select", generator=generator)(outcomes)
        valid = isinstance(index, Tensor) and index.dtype == torch.long and index.dim() == 1
        if not valid or (len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(outcomes)):
            raise ValueError(
                f"select must return indices of groups, whole numbers from 0 to {len(outcomes) - 1}; got {index}"
            )
        return index

    def ignores_zero_advantages(self) -> bool:
        """Return whether a response with A = 0 adds nothing to loss and gradient, so that it can leave the update."""
        if self.kl is not None and not isinstance(self.kl, KLInReward):
            return False
        old_logp = torch.full((1, 1, 59), -1.0, dtype=torch.double)
        logp = (old_logp + torch.linspace(0.1, 3.0, 59, dtype=torch.double).log()).requires_grad_()
        nothing = Batch(old_logp, torch.zeros_like(old_logp), torch.ones_like(old_logp, dtype=torch.bool))
        value = self.objective(logp, nothing).value
        if not value.requires_grad:
            return not value.any()
        (slope,) = torch.autograd.grad(value.sum(), logp, allow_unused=True)
        return not value.any() and (slope is None or not slope.any())

    def with_parameters(self: Self, **parameters: Any) -> Self:
        """Return the algorithm with parameters of its pieces changed by name: GRPO.with_parameters(eps_high=0.28).

        Raises ValueError for a name that no piece of this algorithm has, and for a value out of that piece's range.
        """
        return with_parameters(self, parameters)

    def slots(self) -> Mapping[str, Any]:
        """Return slot name → piece, for the eight slots."""
        return {slot: getattr(self, slot) for slot in SLOTS}

    def beyond_the_slots(self) -> Mapping[str, Any]:
        """Return what the algorithm has that is no slot: name → piece."""
        return {}


@dataclass(frozen=True, kw_only=True)
class GroupPolicyGradient(PolicyGradient):
    """Policy optimisation from groups of sampled responses; algorithms differ by their fields alone.

    A = advantage(shape(R)); a [P, G] advantage is that of every token of its response. For the slots see `PolicyGradient`.
    """

    def advantages(
        self,
        rewards: Float[Tensor, "P G *T"],
        mask: Bool[Tensor, "P G T"],
        *,
        old_logp: Float[Tensor, "P G T"] | None = None,
        ref_logp: Float[Tensor, "P G T"] | None = None,
        step_ends: Bool[Tensor, "P G T"] | None = None,
        history: PromptHistory | None = None,
    ) -> Float[Tensor, "P G T"]:
        """Return the advantage of every token, 0 on padding. Raises ValueError when a piece needs what is None.

        rewards: after shaping; [P, G, T] with step_ends under process supervision. With a KLInReward the penalty of each
        token is taken off first (a [P, G] reward loses the sum over its response), which rewards of single steps do not allow.
        """
        if isinstance(self.kl, KLInReward):
            if step_ends is not None:
                raise ValueError(f"{self.name}: rewards of single steps take no KL in the reward; put it in the loss")
            if old_logp is None or ref_logp is None:
                raise ValueError(f"{self.name} has its KL in the reward and needs old_logp and ref_logp; got None")
            penalty = self.kl(old_logp, ref_logp, mask)
            rewards = rewards - (penalty if rewards.dim() == 3 else penalty.sum(-1))
        step_ends = None if step_ends is None else step_ends & mask
        piece = self._piece(
            "advantage", mask=mask, old_logp=old_logp, ref_logp=ref_logp, step_ends=step_ends, history=history
        )
        advantages = piece(rewards)
        if advantages.dim() == 2:
            advantages = advantages.unsqueeze(-1)
        return advantages.expand(mask.shape).masked_fill(~mask, 0.0)


def _spread(limit: Tensor | float, like: Tensor) -> Tensor:
    """Return a limit shaped like `like`; a rule of one's own may return a number."""
    if isinstance(limit, Tensor) and limit.shape == like.shape:
        return limit
    return torch.as_tensor(limit, dtype=like.dtype, device=like.device).expand(like.shape)


def _following_the_ratio(surrogate: Callable[..., Tensor], logp: Tensor) -> Callable[..., Tensor]:
    """Return the surrogate with its logp moving as the ratio does, so that its slope by the ratio is the whole slope."""

    def follow(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
        log_ratio = ratio.log()
        return surrogate(ratio, advantages, lower, upper, logp=logp + log_ratio - log_ratio.detach())

    return follow


def label(piece: Any) -> str:
    """Return a piece in a few words: a dataclass's own str, a function's name with spaces, – for None."""
    if piece is None:
        return "–"
    return piece.__name__.replace("_", " ") if hasattr(piece, "__name__") else str(piece)


def _asked(slot: str, piece: Any, called_with: tuple[str, ...], offered: tuple[str, ...]) -> dict[str, bool]:
    """Return what the piece asks for by name → whether it must have it. Raises TypeError when it cannot be called."""
    what = f"{len(called_with)} argument{'s' if len(called_with) > 1 else ''} ({', '.join(called_with)})"
    if not callable(piece) or inspect.isclass(piece):
        raise TypeError(f"{slot} must be a function of {what} or a built piece; got {piece!r}")
    signature = inspect.signature(piece)
    asked = {}
    for place, parameter in enumerate(signature.parameters.values()):
        positional = parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        if positional and place < len(called_with):
            continue
        if parameter.name in offered and parameter.kind is not parameter.POSITIONAL_ONLY:
            asked[parameter.name] = parameter.default is parameter.empty
    try:
        signature.bind(*called_with, **asked)
    except TypeError as error:
        also = f", and may ask for {', '.join(offered)}" if offered else ""
        raise TypeError(f"{slot} must take {what}{also}; {label(piece)} does not: {error}") from None
    return asked


def with_parameters(algorithm: Any, parameters: Mapping[str, Any]) -> Any:
    """Return an algorithm, a dataclass of pieces, with parameters of its pieces changed by name; see its method."""
    pieces = {f.name: getattr(algorithm, f.name) for f in fields(algorithm)}
    known = {name for piece in pieces.values() for name in _parameters(piece)}
    for name in parameters:
        if name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise ValueError(f"{algorithm.name} has no parameter {name!r}; its pieces have {has}")
    new = {}
    for slot, piece in pieces.items():
        own = {name: value for name, value in parameters.items() if name in _parameters(piece)}
        if own:  # all at once: one by one, a value may contradict another that is still to be changed
            new[slot] = replace(piece, **own)
    return replace(algorithm, **new)


def numbers(algorithm: Any) -> dict[str, int | float]:
    """Return the numbers in an algorithm's pieces, which `with_parameters` can change: parameter → value."""
    found: dict[str, int | float] = {}
    for piece in (getattr(algorithm, f.name) for f in fields(algorithm)):
        for name in _parameters(piece):
            value = getattr(piece, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, value)  # of two pieces with one name the first one's
    return found


def _parameters(piece: object) -> list[str]:
    return [f.name for f in fields(piece)] if is_dataclass(piece) and not isinstance(piece, type) else []
