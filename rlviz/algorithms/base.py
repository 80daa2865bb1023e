"""An algorithm as one frozen value that names its pieces, and the loss and advantages that the pieces make."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from reprlib import repr
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from rlviz.algorithms.slots import PROTOCOLS, SLOTS, Capabilities, bind_optional, parameters_of, read_capabilities
from rlviz.names import nearest
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.aggregation import weighted_sum
from rlviz.pieces.surrogate import is_clipped
from rlviz.pieces.words import label
from rlviz.types import Batch, LossOutput, Mask, Responses, TokenObjective, Tokens
from small_models.checks import cut
from small_models.host import is_recording, needs_sync

EXAMPLE_PROBS = torch.tensor([[[0.01, 0.1, 0.3, 0.6, 0.95]]] * 2, dtype=torch.double)  # to try bounds on
LARGEST_EPS = 0.01  # TRL takes 1e-4, verl 1e-6; a larger one is meant for the clip
Self = TypeVar("Self", bound="PolicyGradient")


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
    Optional attributes of a piece (beta, estimator, choose, from_teacher, loss_mask, max_rounds, min_group_size, uses) stand in
    `rlviz.algorithms.slots`, a Protocol a slot. source: the paper. from_grpo: slot → "piece: why", where the algorithm differs
    from GRPO.
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

    def __new__(cls, **pieces: Any) -> PolicyGradient:
        known = [f.name for f in fields(cls)]
        for name in pieces:
            if name not in known:
                raise TypeError(f"unknown slot {name!r}; {nearest(name, known)}slots: {', '.join(known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._read_pieces()
        # Bounds that are no limits are refused here, on example tokens, and not in the middle of a run.
        old_logp, mask = EXAMPLE_PROBS.log(), torch.ones_like(EXAMPLE_PROBS, dtype=torch.bool)
        advantages = torch.ones_like(old_logp)
        advantages[1] = -1.0
        try:
            returned = self._piece("bounds", mask=mask, advantages=advantages)(old_logp)
        except Exception:  # a rule for one batch alone fails on examples; its limits are checked when it is used
            return
        limits = returned if isinstance(returned, tuple | list) else ()
        if all(limit.shape in ((), old_logp.shape) for limit in limits if isinstance(limit, Tensor)):
            self._check_limits(returned, old_logp, mask)

    def _read_pieces(self) -> None:
        object.__setattr__(self, "_can", read_capabilities(self.slots(), self.protocols))

    @property
    def can(self) -> Capabilities:
        """The optional arguments and attributes of the pieces, read when the algorithm was built."""
        return self._can  # type: ignore[attr-defined]

    def _piece(self, slot: str, **optional: Any) -> Callable[..., Any]:
        """Return the slot's piece with its optional arguments bound. Raises ValueError when one that it needs is None."""
        return bind_optional(self.name, slot, getattr(self, slot), self.can.asks[slot], optional)

    def _title(self, slot: str) -> str:
        """Return the subject of a message about the piece in this slot."""
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
        return self.kl_in_reward or any("ref_logp" in names for names in self.can.asks.values())

    def asks_for(self, slot: str, name: str) -> bool:
        """Return whether the piece in this slot takes the optional argument `name`."""
        return name in self.can.asks.get(slot, {})

    @property
    def models(self) -> tuple[str, ...]:
        """The models in play; rewards come from rules unless a reward model is among them."""
        return ("actor", "reference") if self.needs_reference else ("actor",)

    @property
    def learns_observations(self) -> bool:
        """Whether the loss includes the tokens that the environment wrote."""
        return False

    @property
    def min_group_size(self) -> int:
        """The fewest responses to a prompt with which the advantage is defined."""
        return self.can.min_group_size

    def without_kl(self: Self) -> Self:
        """Return the algorithm without its KL term."""
        return replace(self, kl=None)

    def adapt_beta(self: Self, kl: float, responses: int) -> Self:
        """Return the algorithm for the next step after one with this KL, in nats per token: itself."""
        return self

    # the loss of an update

    def limits(self, old_logp: Tokens, mask: Mask, advantages: Tokens) -> tuple[Tokens, Tokens]:
        """Return the lower and upper limits on the ratio of every token.

        Raises ValueError, which names the piece, unless it gives two limits, each a number or shaped like old_logp, and
        lower ≤ upper on every token of the mask. On a GPU, where reading them would block, limits that break this become NaN, and
        so does the loss, at which a run stops.
        """
        return self._check_limits(self._piece("bounds", mask=mask, advantages=advantages)(old_logp), old_logp, mask)

    def _check_limits(self, returned: Any, old_logp: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value of the bounds as two tensors shaped like old_logp."""
        try:
            lower, upper = (
                limit
                if isinstance(limit, Tensor) and limit.shape == old_logp.shape
                else torch.as_tensor(limit, dtype=old_logp.dtype, device=old_logp.device).expand(old_logp.shape)
                for limit in (returned if isinstance(returned, tuple | list) else ())
            )
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"{self._title('bounds')} must return two limits, lower and upper, each a number or shaped like old_logp "
                f"({list(old_logp.shape)}); got {_describe_return(returned)}"
            ) from None
        if is_recording() or needs_sync(old_logp.device):
            wrong = mask & ~(lower <= upper)
            return lower.masked_fill(wrong, math.nan), upper.masked_fill(wrong, math.nan)
        if lower.numel() and float((upper - lower).amin()) >= 0:  # the usual case, in two operations
            return lower, upper
        # where the policy is NaN, its limits are NaN, too
        wrong = (mask & ~(lower <= upper) & ~old_logp.isnan()).flatten()
        if wrong.any():
            q, low, high = (float(values.flatten()[wrong][0]) for values in (old_logp.exp(), lower, upper))
            raise ValueError(
                f"{self._title('bounds')} must give limits with lower ≤ upper; "
                f"for old probability {q:.3g} got {low:.4g} and {high:.4g}"
            )
        return lower, upper

    def objective(self, logp: Tokens, batch: Batch) -> TokenObjective:
        """Return each token's objective, J − KL, with its parts. Raises ValueError when a piece needs a tensor that is None."""
        mask, padding = batch.mask, ~batch.mask

        def clean(values: Tensor | None) -> Any:
            return None if values is None else values.masked_fill(padding, 0.0)

        # Padding is cleared here, before any piece sees it: no piece has to care about it, and 0 · ∞ cannot reach a gradient.
        old_logp = clean(batch.old_logp)
        x = {"logp": clean(logp), "old_logp": old_logp, "mask": mask, "advantages": clean(batch.advantages)}
        x |= {"ref_logp": clean(batch.ref_logp), "entropy": clean(batch.entropy), "chosen": batch.chosen}
        x["sampler_logp"] = old_logp if batch.sampler_logp is None else clean(batch.sampler_logp)
        if x["chosen"] is None:
            x["chosen"] = self.choose_tokens(x["advantages"], old_logp, mask)

        ratio = self._piece("ratio", sampler_logp=x["sampler_logp"])(x["logp"], old_logp, mask)
        lower, upper = self.limits(old_logp, mask, x["advantages"])
        value = self._piece("surrogate", **x)(ratio, x["advantages"], lower, upper)
        if self.kl_in_loss:
            value = value - self._piece("kl", **x, ratio=ratio)(x["logp"])

        def surrogate(ratio: Tensor, advantages: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
            # A surrogate that also takes logp depends on the policy twice: logp moves with the ratio, so the slope is whole.
            values = dict(x)
            if self.asks_for("surrogate", "logp"):
                log_ratio = ratio.log()
                values["logp"] = x["logp"].detach() + log_ratio - log_ratio.detach()
            return self._piece("surrogate", **values)(ratio, advantages, lower, upper)

        return TokenObjective(value, ratio, x["advantages"], lower, upper, surrogate)

    def choose_tokens(self, advantages: Tokens, old_logp: Tokens, mask: Mask) -> Mask | None:
        """Return the tokens that the surrogate treats differently, chosen among all of these; None where it does not choose."""
        if self.can.choose is None:
            return None
        padding = ~mask
        return self.can.choose(advantages.masked_fill(padding, 0.0), old_logp.masked_fill(padding, 0.0), mask) & mask

    def loss(self, logp: Tokens, batch: Batch) -> LossOutput:
        """Return the loss, −objective, and its parts. Raises ValueError when a piece needs a tensor that is None."""
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
        """Raise ValueError unless an objective, or a loss, has a gradient."""
        if not value.requires_grad:
            raise ValueError(
                f"{self.name}'s surrogate, {label(self.surrogate)}, must have a gradient by the ratio, or nothing is learnt; got "
                "one without, as .detach(), torch.no_grad() and a constant give it"
            )

    def ignores_zero_advantages(self) -> bool:
        """Return whether a response with A = 0 adds nothing to loss and gradient, so that it can leave the update."""
        if self.kl_in_loss:
            return False
        # Tried on ratios from .1 to 3 and entropies from .1 to 3, with every advantage 0.
        old_logp = torch.full((1, 1, 59), -1.0, dtype=torch.double)
        logp = (old_logp + torch.linspace(0.1, 3.0, 59, dtype=torch.double).log()).requires_grad_()
        entropy = torch.linspace(0.1, 3.0, 59, dtype=torch.double).view_as(logp).requires_grad_()
        mask = torch.ones_like(old_logp, dtype=torch.bool)
        value = self.objective(logp, Batch(old_logp, torch.zeros_like(old_logp), mask, entropy=entropy)).value
        if not value.requires_grad:
            return not value.any()
        slopes = torch.autograd.grad(value.sum(), (logp, entropy), allow_unused=True)
        return not value.any() and not any(slope is not None and slope.any() for slope in slopes)

    # from rewards to the groups that are learnt from

    def shape_rewards(
        self,
        rewards: Responses,
        lengths: Int[Tensor, "P G"],
        *,
        truncated: Bool[Tensor, "P G"] | None = None,
        correct: Responses | None = None,
        well_formed: Responses | None = None,
    ) -> Responses:
        """Return the rewards after shaping."""
        if self.shape is None:
            return rewards
        return self._piece("shape", truncated=truncated, correct=correct, well_formed=well_formed)(rewards, lengths)

    def loss_mask(self, mask: Mask, truncated: Bool[Tensor, "P G"]) -> Mask:
        """Return the mask of tokens in the loss: `mask`, unless the shaping filters responses out."""
        return mask if self.can.loss_mask is None else self.can.loss_mask(mask, truncated)

    def select_groups(self, outcomes: Responses, generator: torch.Generator | None = None) -> Int[Tensor, " N"]:
        """Return the indices of the groups to train on. Raises ValueError when the piece returns anything else."""
        index = self._piece("select", generator=generator)(outcomes)
        is_index = isinstance(index, Tensor) and index.dtype == torch.long and index.dim() == 1
        if not is_index or (len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(outcomes)):
            raise ValueError(
                f"select must return indices of groups, whole numbers from 0 to {len(outcomes) - 1}; got "
                f"{cut(' '.join(str(index).split()))}"
            )
        return index

    def uses(self, outcomes: Float[Tensor, "*B P G"]) -> Float[Tensor, "*B P"]:
        """Return how often each group of each batch is used, in the mean over random draws; raises as `select_groups`."""
        if self.can.uses is not None:
            return self.can.uses(outcomes)
        generator = torch.Generator().manual_seed(0)
        batches = outcomes.reshape(-1, *outcomes.shape[-2:])
        counts = [
            torch.bincount(self.select_groups(batch, generator), minlength=outcomes.shape[-2]) for batch in batches
        ]
        return torch.stack(counts).to(outcomes.dtype).reshape(outcomes.shape[:-1])

    # the algorithm as a value

    def with_parameters(self: Self, **parameters: Any) -> Self:
        """Return the algorithm with parameters of its pieces changed by name: GRPO.with_parameters(eps_high=0.28).

        Raises ValueError for a name that no piece of this algorithm has, and for a value out of that piece's range.
        """
        return with_parameters(self, parameters)

    def slots(self) -> Mapping[str, Any]:
        """Return slot name → piece, for the eight slots."""
        return {slot: getattr(self, slot) for slot in SLOTS}

    def beyond_the_slots(self) -> Mapping[str, Any]:
        """Return name → piece, for pieces outside the slots."""
        return {}


@dataclass(frozen=True, kw_only=True)
class GroupPolicyGradient(PolicyGradient):
    """Policy optimisation from groups of sampled responses; algorithms differ by their fields alone.

    A = advantage(shape(R)); a [P, G] advantage is that of every token of its response. For the slots see `PolicyGradient`.
    """

    def advantages(
        self,
        rewards: Float[Tensor, "P G *T"],
        mask: Mask,
        *,
        old_logp: Tokens | None = None,
        sampler_logp: Tokens | None = None,
        ref_logp: Tokens | None = None,
        step_ends: Mask | None = None,
        history: PromptHistory | None = None,
        old_entropy: Tokens | None = None,
        correct: Responses | None = None,
        well_formed: Responses | None = None,
    ) -> tuple[Tokens, PromptHistory | None]:
        """Return the advantage of every token, 0 on padding, and the history with this visit in it.

        rewards: after shaping; [P, G, T] with step_ends under process supervision. With a KL in the reward the penalty of each
        token is taken off first (a [P, G] reward loses the sum over its response), which rewards of single steps do not allow.
        sampler_logp: None where π_old itself sampled. history: of these prompts before this visit; None: they were never
        sampled. An advantage that does not ask for it leaves it as it is. Raises ValueError when a piece needs a tensor that is
        None, and for an advantage of another shape.
        """
        if self.kl_in_reward:
            if step_ends is not None:
                raise ValueError(f"{self.name}: rewards of single steps take no KL in the reward; put it in the loss")
            if old_logp is None or ref_logp is None:
                raise ValueError(f"{self.name} has its KL in the reward and needs old_logp and ref_logp; got None")
            penalty = self._piece("kl")(old_logp, ref_logp, mask)
            rewards = rewards - (penalty if rewards.dim() == 3 else penalty.sum(-1))
        has_history = self.asks_for("advantage", "history")
        if has_history and history is None:
            history = PromptHistory.empty(rewards.shape[0], rewards.device)
        piece = self._piece(
            "advantage",
            mask=mask,
            old_logp=old_logp,
            sampler_logp=old_logp if sampler_logp is None else sampler_logp,
            ref_logp=ref_logp,
            step_ends=None if step_ends is None else step_ends & mask,
            history=history,
            old_entropy=old_entropy,
            correct=correct,
            well_formed=well_formed,
        )
        advantages = returned = piece(rewards)
        if has_history:
            if not (isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], PromptHistory)):
                raise ValueError(
                    f"{self._title('advantage')} asks for history, so it must return (A, the history after this visit); "
                    f"got {_describe_return(returned)}"
                )
            advantages, history = returned
            if returned[1].visits.shape[0] != rewards.shape[0]:
                raise ValueError(
                    f"{self._title('advantage')} must return the history of the same prompts, {len(rewards)} of them; got one of "
                    f"{len(returned[1].visits)}"
                )
        if not isinstance(advantages, Tensor) or advantages.shape not in (mask.shape[:2], mask.shape):
            raise ValueError(
                f"{self._title('advantage')} must return a tensor {list(mask.shape[:2])} or {list(mask.shape)}; "
                f"got {_describe_return(advantages)}"
            )
        if advantages.dim() == 2:
            advantages = advantages.unsqueeze(-1)
        return advantages.expand(mask.shape).masked_fill(~mask, 0.0), history


def _describe_return(value: object) -> str:
    """Return a piece's return value in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, tuple | list):
        return " and ".join(map(_describe_return, value)) or "nothing"
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
    changed = {}
    for slot, piece in pieces.items():
        # all of a piece at once: one by one, a value may contradict another that is still to be changed
        values = {name: value for name, value in parameters.items() if name in parameters_of(piece)}
        if values:
            changed[slot] = replace(piece, **values)
    return replace(algorithm, **changed)


def with_tensors(algorithm: Any, numbers: Mapping[str, Tensor]) -> Any:
    """Return an algorithm with parameters of its pieces replaced by 0-d tensors of the same names, without range checks.

    For a traced curve: a page's sliders are its inputs, and a value that is not known yet cannot be checked.
    """
    changed = copy.copy(algorithm)
    for f in fields(algorithm):
        piece = getattr(algorithm, f.name)
        values = {name: value for name, value in numbers.items() if name in parameters_of(piece)}
        if values:
            piece = copy.copy(piece)
            for name, value in values.items():
                object.__setattr__(piece, name, value)
            object.__setattr__(changed, f.name, piece)
    changed._read_pieces()
    return changed


def numbers(algorithm: Any) -> dict[str, int | float]:
    """Return parameter → number for an algorithm's pieces, as `with_parameters` takes them; of one name the first piece's."""
    values: dict[str, int | float] = {}
    for piece in (getattr(algorithm, f.name) for f in fields(algorithm)):
        for name in parameters_of(piece):
            value = getattr(piece, name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                values.setdefault(name, value)
    return values
