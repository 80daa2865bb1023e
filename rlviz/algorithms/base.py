"""An algorithm as one frozen value that names its pieces, and what every such algorithm can do."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial
from reprlib import repr
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.algorithms.slots import PROTOCOLS, SLOTS, Capabilities, filled, parameters_of, read
from rlviz.names import nearest
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.aggregation import weighted_sum
from rlviz.pieces.surrogate import is_clipped
from rlviz.pieces.words import label
from rlviz.types import Batch, LossOutput, TokenObjective
from small_models.checks import cut, short_repr
from small_models.host import is_recording, needs_sync

MADE_UP = torch.tensor([[[0.01, 0.1, 0.3, 0.6, 0.95]]] * 2, dtype=torch.double)  # old probabilities to try bounds with
LARGEST_EPS = 0.01  # TRL takes 1e-4, verl 1e-6; whoever asks for more means the clip
Self = TypeVar("Self", bound="PolicyGradient")


@dataclass(frozen=True)
class _Tokens:
    """What an objective is made of, by the names under which pieces ask for it; 0 on padding."""

    mask: Tensor
    logp: Tensor
    old_logp: Tensor
    advantages: Tensor
    ref_logp: Tensor | None
    entropy: Tensor | None
    chosen: Tensor | None
    sampler_logp: Tensor

    @classmethod
    def of(cls, logp: Tensor, batch: Batch) -> _Tokens:
        """Return new log-probabilities and a batch, whatever stands on their padding left out."""
        padding = ~batch.mask
        old_logp = batch.old_logp.masked_fill(padding, 0.0)
        return cls(
            mask=batch.mask,
            logp=logp.masked_fill(padding, 0.0),
            old_logp=old_logp,
            advantages=batch.advantages.masked_fill(padding, 0.0),
            ref_logp=None if batch.ref_logp is None else batch.ref_logp.masked_fill(padding, 0.0),
            entropy=None if batch.entropy is None else batch.entropy.masked_fill(padding, 0.0),
            chosen=batch.chosen,
            sampler_logp=old_logp if batch.sampler_logp is None else batch.sampler_logp.masked_fill(padding, 0.0),
        )


@dataclass(frozen=True, kw_only=True)
class PolicyGradient:
    """The eight slots of a policy-gradient algorithm, and the loss that they make.

    maximise  Σ weights · ( surrogate(r, A, lower, upper) − kl ),   weights = aggregate(mask)

    slot       called with                        may also ask for, by the name of a parameter
    ratio      logp, old_logp, mask               sampler_logp → r
    bounds     old_logp                           mask, advantages → (lower, upper), lower ≤ upper
    surrogate  ratio, advantages, lower, upper    mask, logp, old_logp, sampler_logp, entropy, chosen → J; advantages are 0 on
                                                  padding
    advantage  rewards [P, G]                     mask, old_logp, sampler_logp, ref_logp, step_ends, history, old_entropy,
                                                  correct, well_formed → A [P, G] or [P, G, T]
    kl         logp                               ref_logp, old_logp, ratio, mask → penalty; or None
    aggregate  mask                               → weights
    shape      rewards, lengths [P, G]            truncated, correct, well_formed [P, G] → rewards; or None
    select     rewards [P, G]                     generator → indices of the groups to train on; sees raw outcomes

    All without a shape are [P, G, T]. An advantage that asks for history returns (A, the history after this visit). A kl with
    in_reward = True is called with old_logp, ref_logp, mask, and is taken off the rewards.
    What a piece may have beyond its call (beta, estimator, choose, from_teacher, loss_mask, max_rounds, min_group_size, uses)
    is in `rlviz.algorithms.slots`, a Protocol a slot. source: the paper. from_grpo: slot → "piece: why", where the algorithm
    differs from GRPO.
    Raises TypeError, naming the slot, for an unknown slot and for a piece that does not fit its own, ValueError for bounds that
    are no limits.
    """

    name: str
    ratio: Callable[..., Tensor]
    bounds: Callable[..., Sequence[Tensor | float]]
    surrogate: Callable[..., Tensor]
    advantage: Callable[..., Any]
    kl: Callable[..., Tensor] | None
    aggregate: Callable[[Tensor], Tensor]
    shape: Callable[..., Tensor] | None
    select: Callable[..., Tensor]
    source: str = ""
    from_grpo: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)

    protocols: ClassVar[Mapping[str, type]] = PROTOCOLS

    def __new__(cls, **given: Any) -> PolicyGradient:
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"unknown slot {name!r}; {nearest(name, known)}slots: {', '.join(known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._read_pieces()
        self._try_bounds()

    def _read_pieces(self) -> None:
        object.__setattr__(self, "_can", read(self.slots(), self.protocols))

    @property
    def can(self) -> Capabilities:
        """What the pieces ask for and can do, read when the algorithm was built."""
        return self._can  # type: ignore[attr-defined]

    def _piece(self, slot: str, **offered: Any) -> Callable[..., Any]:
        """Return the slot's piece with what it asks for by name filled in. Raises ValueError when that is not there."""
        return filled(self.name, slot, getattr(self, slot), self.can.asks[slot], offered)

    def _rule(self, slot: str) -> str:
        """Return what a message calls the piece in this slot."""
        return f"{self.name}'s {slot}, {label(getattr(self, slot))},"

    @property
    def kl_in_reward(self) -> bool:
        """Whether the KL penalty is taken off the rewards."""
        return self.can.kl_in_reward

    @property
    def kl_in_loss(self) -> bool:
        """Whether the KL penalty is taken off each token's objective."""
        return self.kl is not None and not self.can.kl_in_reward

    @property
    def beta(self) -> float | None:
        """The weight of the KL term, None where it has none."""
        return self.can.beta

    @property
    def needs_reference(self) -> bool:
        """Whether log-probabilities under a reference policy are needed."""
        return self.kl_in_reward or any("ref_logp" in asked for asked in self.can.asks.values())

    def asks_for(self, slot: str, name: str) -> bool:
        """Return whether the piece in this slot asks for `name` beyond what it is called with."""
        return name in self.can.asks.get(slot, {})

    @property
    def models(self) -> tuple[str, ...]:
        """The models in play; rewards come from rules unless a reward model is among them."""
        return ("actor", "reference") if self.needs_reference else ("actor",)

    @property
    def learns_observations(self) -> bool:
        """Whether the loss asks for the tokens that the environment wrote."""
        return False

    @property
    def min_group_size(self) -> int:
        """The fewest responses to a prompt with which the advantage is defined."""
        return self.can.min_group_size

    def without_kl(self: Self) -> Self:
        """Return the algorithm without its KL term."""
        return replace(self, kl=None)

    def adapted(self: Self, kl: float, responses: int) -> Self:
        """Return the algorithm as the next step takes it, after one whose KL, in nats per token, was this: itself."""
        return self

    def limits(
        self, old_logp: Float[Tensor, "P G T"], mask: Bool[Tensor, "P G T"], advantages: Float[Tensor, "P G T"]
    ) -> tuple[Float[Tensor, "P G T"], Float[Tensor, "P G T"]]:
        """Return the lower and upper limits on the ratio of every token.

        Raises ValueError, which names the piece, unless it gives two limits, each a number or shaped like old_logp, and
        lower ≤ upper on every token of the mask. On a GPU, which the host would have to wait for, limits that break this are no
        numbers, and so is the loss, at which a run stops.
        """
        return self._checked(self._piece("bounds", mask=mask, advantages=advantages)(old_logp), old_logp, mask)

    def _checked(self, returned: Any, old_logp: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the bounds returned as two tensors shaped like old_logp."""
        try:
            pair = returned if isinstance(returned, tuple | list) else ()
            lower, upper = (_spread(limit, old_logp) for limit in pair)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"{self._rule('bounds')} must return two limits, lower and upper, each a number or shaped like old_logp "
                f"({list(old_logp.shape)}); got {_told(returned)}"
            ) from None
        if is_recording() or needs_sync(old_logp.device):
            wrong = mask & ~(lower <= upper)
            return lower.masked_fill(wrong, math.nan), upper.masked_fill(wrong, math.nan)
        if lower.numel() and float((upper - lower).amin()) >= 0:  # two operations: it is asked often
            return lower, upper
        wrong = (
            mask & ~(lower <= upper) & ~old_logp.isnan()
        ).flatten()  # where the policy is no number, neither are its limits
        if wrong.any():
            q, low, high = (float(values.flatten()[wrong][0]) for values in (old_logp.exp(), lower, upper))
            raise ValueError(
                f"{self._rule('bounds')} must give limits with lower ≤ upper; "
                f"for old probability {q:.3g} got {low:.4g} and {high:.4g}"
            )
        return lower, upper

    def _try_bounds(self) -> None:
        """Refuse bounds that are no limits for some made-up tokens."""
        old_logp, mask = MADE_UP.log(), torch.ones_like(MADE_UP, dtype=torch.bool)
        advantages = torch.ones_like(old_logp)
        advantages[1] = -1.0
        try:
            returned = self._piece("bounds", mask=mask, advantages=advantages)(old_logp)
        except Exception:  # it may be made for one batch alone; whatever it is, it is judged when it is used
            return
        limits = returned if isinstance(returned, tuple | list) else ()
        if all(limit.shape in ((), old_logp.shape) for limit in limits if isinstance(limit, Tensor)):
            self._checked(returned, old_logp, mask)

    def objective(self, logp: Float[Tensor, "P G T"], batch: Batch) -> TokenObjective:
        """Return each token's objective, J − KL, and what it is made of. Raises ValueError when a piece needs what is None."""
        x = _Tokens.of(logp, batch)
        if x.chosen is None:
            x = replace(x, chosen=self.chosen(x.advantages, x.old_logp, x.mask))
        ratio = self._piece("ratio", sampler_logp=x.sampler_logp)(x.logp, x.old_logp, x.mask)
        lower, upper = self.limits(x.old_logp, x.mask, x.advantages)
        value = self._piece("surrogate", **vars(x))(ratio, x.advantages, lower, upper)
        if self.kl_in_loss:
            value = value - self._piece("kl", **vars(x), ratio=ratio)(x.logp)
        return TokenObjective(value, ratio, x.advantages, lower, upper, partial(self._surrogate_by_ratio, x))

    def chosen(
        self, advantages: Float[Tensor, "P G T"], old_logp: Float[Tensor, "P G T"], mask: Bool[Tensor, "P G T"]
    ) -> Bool[Tensor, "P G T"] | None:
        """Return the tokens that the surrogate treats otherwise, chosen among all of these; None where it does not choose."""
        if self.can.choose is None:
            return None
        padding = ~mask
        return self.can.choose(advantages.masked_fill(padding, 0.0), old_logp.masked_fill(padding, 0.0), mask) & mask

    def _surrogate_by_ratio(
        self, x: _Tokens, ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor
    ) -> Tensor:
        """Return J with its logp, if the surrogate asks for that, moving as the ratio does: the slope is then the whole one."""
        if self.asks_for("surrogate", "logp"):
            log_ratio = ratio.log()
            x = replace(x, logp=x.logp.detach() + log_ratio - log_ratio.detach())
        return self._piece("surrogate", **vars(x))(ratio, advantages, lower, upper)

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

    def check_gradient(self, value: Tensor) -> None:
        """Raise ValueError unless what is to be climbed, or descended, has a gradient."""
        if not value.requires_grad:
            raise ValueError(
                f"{self.name}'s surrogate, {label(self.surrogate)}, must have a gradient by the ratio, or nothing is learnt; got "
                "one without, as .detach(), torch.no_grad() and a constant give it"
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
        return mask if self.can.loss_mask is None else self.can.loss_mask(mask, truncated)

    def selected(self, outcomes: Float[Tensor, "P G"], generator: torch.Generator | None = None) -> Int[Tensor, " N"]:
        """Return the indices of the groups to train on. Raises ValueError when the piece returns anything else."""
        index = self._piece("select", generator=generator)(outcomes)
        valid = isinstance(index, Tensor) and index.dtype == torch.long and index.dim() == 1
        if not valid or (len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(outcomes)):
            raise ValueError(
                f"select must return indices of groups, whole numbers from 0 to {len(outcomes) - 1}; got "
                f"{cut(' '.join(str(index).split()))}"
            )
        return index

    def uses(self, outcomes: Float[Tensor, "*B P G"]) -> Float[Tensor, "*B P"]:
        """Return how often each group of each batch is used, in the mean over what the selection draws; raises as `selected`."""
        if self.can.uses is not None:
            return self.can.uses(outcomes)
        generator = torch.Generator().manual_seed(0)
        batches = outcomes.reshape(-1, *outcomes.shape[-2:])
        counts = [torch.bincount(self.selected(batch, generator), minlength=outcomes.shape[-2]) for batch in batches]
        return torch.stack(counts).to(outcomes.dtype).reshape(outcomes.shape[:-1])

    def ignores_zero_advantages(self) -> bool:
        """Return whether a response with A = 0 adds nothing to loss and gradient, so that it can leave the update."""
        if self.kl_in_loss:
            return False
        old_logp = torch.full((1, 1, 59), -1.0, dtype=torch.double)
        logp = (old_logp + torch.linspace(0.1, 3.0, 59, dtype=torch.double).log()).requires_grad_()
        entropy = torch.linspace(0.1, 3.0, 59, dtype=torch.double).view_as(logp).requires_grad_()
        everyone = torch.ones_like(old_logp, dtype=torch.bool)
        value = self.objective(logp, Batch(old_logp, torch.zeros_like(old_logp), everyone, entropy=entropy)).value
        if not value.requires_grad:
            return not value.any()
        slopes = torch.autograd.grad(value.sum(), (logp, entropy), allow_unused=True)
        return not value.any() and not any(slope is not None and slope.any() for slope in slopes)

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
        sampler_logp: Float[Tensor, "P G T"] | None = None,
        ref_logp: Float[Tensor, "P G T"] | None = None,
        step_ends: Bool[Tensor, "P G T"] | None = None,
        history: PromptHistory | None = None,
        old_entropy: Float[Tensor, "P G T"] | None = None,
        correct: Float[Tensor, "P G"] | None = None,
        well_formed: Float[Tensor, "P G"] | None = None,
    ) -> tuple[Float[Tensor, "P G T"], PromptHistory | None]:
        """Return the advantage of every token, 0 on padding, and the history with this visit in it.

        rewards: after shaping; [P, G, T] with step_ends under process supervision. With a KL in the reward the penalty of each
        token is taken off first (a [P, G] reward loses the sum over its response), which rewards of single steps do not allow.
        sampler_logp: None where π_old itself sampled. history: of these prompts before this visit; None: they were never
        sampled. An advantage that does not ask for it leaves it as it is. Raises ValueError when a piece needs what is None, and
        for an advantage that does not return what it must.
        """
        if self.kl_in_reward:
            if step_ends is not None:
                raise ValueError(f"{self.name}: rewards of single steps take no KL in the reward; put it in the loss")
            if old_logp is None or ref_logp is None:
                raise ValueError(f"{self.name} has its KL in the reward and needs old_logp and ref_logp; got None")
            penalty = self._piece("kl")(old_logp, ref_logp, mask)
            rewards = rewards - (penalty if rewards.dim() == 3 else penalty.sum(-1))
        step_ends = None if step_ends is None else step_ends & mask
        remembers = self.asks_for("advantage", "history")
        if remembers and history is None:
            history = PromptHistory.empty(rewards.shape[0], rewards.device)
        piece = self._piece(
            "advantage",
            mask=mask,
            old_logp=old_logp,
            sampler_logp=old_logp if sampler_logp is None else sampler_logp,
            ref_logp=ref_logp,
            step_ends=step_ends,
            history=history,
            old_entropy=old_entropy,
            correct=correct,
            well_formed=well_formed,
        )
        advantages = returned = piece(rewards)
        if remembers:
            if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], PromptHistory)):
                raise ValueError(
                    f"{self._rule('advantage')} asks for history, so it must return (A, the history after this visit); "
                    f"got {_told(returned)}"
                )
            advantages, history = returned
            if returned[1].visits.shape[0] != rewards.shape[0]:
                raise ValueError(
                    f"{self._rule('advantage')} must return the history of the same prompts, {len(rewards)} of them; got one of "
                    f"{len(returned[1].visits)}"
                )
        if not isinstance(advantages, Tensor) or advantages.shape not in (mask.shape[:2], mask.shape):
            raise ValueError(
                f"{self._rule('advantage')} must return a tensor {list(mask.shape[:2])} or {list(mask.shape)}; "
                f"got {_told(advantages)}"
            )
        if advantages.dim() == 2:
            advantages = advantages.unsqueeze(-1)
        return advantages.expand(mask.shape).masked_fill(~mask, 0.0), history


def _spread(limit: Any, like: Tensor) -> Tensor:
    """Return a limit shaped like `like`; a rule of one's own may return a number."""
    if isinstance(limit, Tensor) and limit.shape == like.shape:
        return limit
    return torch.as_tensor(limit, dtype=like.dtype, device=like.device).expand(like.shape)


def _told(value: object) -> str:
    """Return what a piece returned in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple | list):
        return " and ".join(map(_told, value)) or "nothing"
    return repr(value)


def with_parameters(algorithm: Any, parameters: Mapping[str, Any]) -> Any:
    """Return an algorithm, a dataclass of pieces, with parameters of its pieces changed by name; see its method."""
    pieces = {f.name: getattr(algorithm, f.name) for f in fields(algorithm)}
    known = {name for piece in pieces.values() for name in parameters_of(piece)}
    for name in parameters:
        if name not in known:
            has = ", ".join(sorted(known)) or "none"
            raise ValueError(f"{algorithm.name} has no parameter {name!r}; its pieces have {has}")
        if name == "eps" and "eps_low" in known and parameters[name] > LARGEST_EPS:
            raise ValueError(
                f"eps must be at most {LARGEST_EPS}: it keeps a division by a std from 0 / 0, and the widths of the clip are "
                f"eps_low and eps_high; got {parameters[name]}"
            )
    new = {}
    for slot, piece in pieces.items():
        own = {name: value for name, value in parameters.items() if name in parameters_of(piece)}
        if own:  # all at once: one by one, a value may contradict another that is still to be changed
            new[slot] = replace(piece, **own)
    return replace(algorithm, **new)


def with_tensors(algorithm: Any, numbers: Mapping[str, Tensor]) -> Any:
    """Return an algorithm with those of its pieces' parameters replaced by 0-d tensors that have these names, unjudged.

    For a curve that is recorded: a page's sliders are its inputs, and a value that is no number yet cannot be judged.
    """
    made = copy.copy(algorithm)
    for f in fields(algorithm):
        piece = getattr(algorithm, f.name)
        own = {name: value for name, value in numbers.items() if name in parameters_of(piece)}
        if own:
            piece = copy.copy(piece)
            for name, value in own.items():
                object.__setattr__(piece, name, value)
            object.__setattr__(made, f.name, piece)
    made._read_pieces()
    return made


def numbers(algorithm: Any) -> dict[str, int | float]:
    """Return the numbers in an algorithm's pieces, which `with_parameters` can change: parameter → value."""
    if not is_dataclass(algorithm) or isinstance(algorithm, type):
        raise ValueError(f"algorithm must be an algorithm, such as GRPO; got {short_repr(algorithm)}")
    found: dict[str, int | float] = {}
    for piece in (getattr(algorithm, f.name) for f in fields(algorithm)):
        for name in parameters_of(piece):
            value = getattr(piece, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.setdefault(name, value)  # of two pieces with one name the first one's
    return found
