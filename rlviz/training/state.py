"""All that one step of training hands to the next, and the one saver and the one reader of it.

A checkpoint is the policy, as a folder that transformers can load, and beside it what `saved` returns: tensors by name, which go
to training.safetensors, and the rest, for training.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.family import Algorithm
from rlviz.pieces.advantages import PromptHistory
from rlviz.settings import Settings, TrainSettings
from rlviz.training.adamw import AdamW
from rlviz.training.critics import SharedCritic, new_critic
from small_models.pairs import Pair
from small_models.policies import Policy
from small_models.precision import round_to_bits
from small_models.scorers import RewardModel

OPTIMIZERS = "policy", "critic_optimizer"  # their names in a checkpoint
FILE = "training.safetensors"


def kept(default: Any = MISSING, *, json: bool = False, moved_by: str = "") -> Any:
    """Return a field of `State` that a checkpoint holds: in JSON, or as tensors.

    moved_by: the setting without which no step moves it, so that it is as the run began with it.
    """
    return field(default=default, metadata={"json": json, "moved_by": moved_by})


@dataclass
class State:
    """What a step needs of the one before it. A run on pairs has no field from `reference` on; `waiting` is only of such a run.

    optimizers: the policy's first, then that of a critic of its own. pool: places of the training prompts that are drawn from.
    sampler: what samples, the policy itself or a copy whose weights are rounded or behind; past: the policy's weights before
    the last steps, oldest first, of a sampler that is behind. history: of each training prompt, DCPO's. critic: None where the
    group is the baseline. reward_model: scores in place of the task's rules; reward_pairs: what it learned from; reward_loss:
    of its last refresh. skips_zero: whether a response with A = 0 teaches nothing (a KL term would), and leaves the update.
    waiting: places of pairs that are still to come before any comes again. An adapted KL weight (PPO-Penalty's) is that of
    `algorithm`.
    """

    policy: Policy
    algorithm: Any
    optimizers: Sequence[AdamW] = kept()
    generator: torch.Generator = kept()
    step: int = kept(0, json=True)
    train_seconds: float = kept(0.0, json=True)
    tokens_sampled: int = kept(0, json=True)
    waiting: list[int] | None = kept(None, json=True)
    reference: Any = kept(None, moved_by="reset_reference_every")
    sampler: Any = None
    past: Sequence[dict[str, Tensor]] = kept((), moved_by="sampler_lag")
    pool: Any = kept(None, moved_by="filter_solved")
    history: PromptHistory | None = kept(None)
    critic: Any = kept(None)
    reward_model: Any = kept(None, moved_by="refresh_reward_every")
    reward_pairs: Sequence[Pair] = kept((), json=True, moved_by="refresh_reward_every")
    reward_loss: float | None = kept(None, json=True, moved_by="refresh_reward_every")
    skips_zero: bool = False

    @property
    def models(self) -> dict[str, nn.Module]:
        """The models that the steps need, the policy first: role → model."""
        needed = {
            "sampler": None if self.sampler is None or self.sampler is self.policy else self.sampler.weights,
            "critic": self.critic,
            "reference": self.reference.weights if self.algorithm.needs_reference else None,
            "reward": None if self.reward_model is None else self.reward_model.scorer,
        }
        return {"actor": self.policy.weights} | {role: model for role, model in needed.items() if model is not None}

    @torch.no_grad()
    def follow(self, settings: TrainSettings) -> None:
        """Take note of the policy's weights as they are now, and let the sampler have those that it is time for.

        The first `sampler_lag` steps are sampled with the weights that the run began with.
        """
        if self.sampler is not self.policy:
            now = {name: weight.detach().clone() for name, weight in self.policy.weights.named_parameters()}
            self.past = [*self.past, now][-settings.sampler_lag - 1 :]
            self.sample_with_the_oldest(settings)

    @torch.no_grad()
    def sample_with_the_oldest(self, settings: TrainSettings) -> None:
        """Give the sampler the oldest of the weights that are kept, rounded where the settings ask for it."""
        for name, weight in self.sampler.weights.named_parameters():
            old = self.past[0][name]
            weight.copy_(round_to_bits(old, settings.sampler_bits) if settings.sampler_bits else old)


def first_state(
    policy: Policy,
    algorithm: Algorithm,
    settings: TrainSettings,
    prompts: int,
    reference: Policy,
    reward_model: RewardModel | None = None,
    pairs: Sequence[Pair] = (),
) -> State:
    """Return the state before the first step of a run that samples. prompts: how many the task trains on."""
    pool = torch.arange(prompts)
    if settings.prompt_pool:
        drawn = torch.randperm(prompts, generator=torch.Generator().manual_seed(settings.seed))
        pool = drawn[: settings.prompt_pool].sort().values
    critic = new_critic(policy, settings.critic) if isinstance(algorithm, ActorCritic) else None
    shared = [critic] if isinstance(critic, SharedCritic) else []
    optimizers = [new_optimizer([policy.weights, *shared], settings.lr)]
    if critic is not None and not shared:
        optimizers.append(new_optimizer([critic], settings.critic_lr))
    remembers = critic is None and algorithm.asks_for("advantage", "history")  # type: ignore[union-attr]
    state = State(
        policy,
        algorithm,
        optimizers,
        torch.Generator().manual_seed(settings.seed),
        reference=reference,
        sampler=policy.frozen_copy() if settings.sampler_bits or settings.sampler_lag else policy,
        pool=pool,
        history=PromptHistory.empty(prompts, policy.device) if remembers else None,
        critic=critic,
        reward_model=reward_model,
        reward_pairs=list(pairs),
        skips_zero=critic is None and algorithm.ignores_zero_advantages(),  # type: ignore[union-attr]
    )
    state.follow(settings)
    return state


def new_optimizer(models: Sequence[nn.Module], lr: float) -> AdamW:
    """Return AdamW of all that can learn in the models."""
    return AdamW([p for model in models for p in model.parameters() if p.requires_grad], lr)


# --- the saver and the reader ---


def saved(state: State, settings: Settings) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return all that the next step depends on beside the policy: tensors by name, and values for JSON."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for f in _moving(state, settings):
        own = getattr(state, f.name)
        if own is None:
            continue
        if f.metadata["json"]:
            values[f.name] = own
        else:
            tensors |= _tensors(f.name, own)
    return tensors, values | ({"beta": state.algorithm.beta} if _adapts(state.algorithm) else {})


def restore(state: State, settings: Settings, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Put back what `saved` returned into the state that a run begins with.

    Raises KeyError for what is missing, ValueError, TypeError or RuntimeError for what is something else.
    """
    for f in _moving(state, settings):
        own = getattr(state, f.name)
        if f.metadata["json"]:
            setattr(state, f.name, values.get(f.name) if own is None else values[f.name])
        elif own is not None:
            setattr(state, f.name, _put_back(f.name, own, tensors, state, settings))
    state.reward_pairs = [Pair(**pair) if isinstance(pair, dict) else pair for pair in state.reward_pairs]
    if _adapts(state.algorithm) and values.get("beta") is not None:
        state.algorithm = state.algorithm.with_parameters(beta=values["beta"])
    if isinstance(settings, TrainSettings):
        if not settings.sampler_lag:  # the policy's own weights are enough
            state.past = ()
            state.follow(settings)
        else:
            state.sample_with_the_oldest(settings)
    own_tensors = saved(state, settings)[0]
    unknown = tensors.keys() - own_tensors.keys()
    if unknown:
        raise ValueError(f"{FILE}: the run has no place for {min(unknown)}")
    count = values.get("tensors") or len(tensors)
    if len(tensors) != count:
        raise ValueError(f"{FILE} must hold {count} tensors; it holds {len(tensors)}")


def _moving(state: State, settings: Settings) -> list[Field[Any]]:
    """Return the fields that a step under these settings may move."""
    kept = (f for f in fields(state) if f.metadata)
    return [f for f in kept if not f.metadata["moved_by"] or getattr(settings, f.metadata["moved_by"], None)]


def _adapts(algorithm: Any) -> bool:
    return isinstance(algorithm, ActorCritic) and algorithm.controller is not None


def _tensors(name: str, own: Any) -> dict[str, Tensor]:
    """Return what stands for a part of the state in a checkpoint."""
    match own:
        case Tensor():
            return {name: own}
        case torch.Generator():
            return {name: own.get_state()}
        case Policy(weights=model) | RewardModel(scorer=model):
            return _tensors(name, model)
        case nn.Module():
            return {f"{name}.{key}": value for key, value in own.state_dict().items()}
        case PromptHistory():  # of 90,000 prompts a run may have visited 500
            visited = own.visits.nonzero().squeeze(1)
            parts = vars(own.take(visited)) | {"prompts": visited}
            return {f"{name}.{key}": value for key, value in parts.items()}
    if name == "past":
        return {f"sampler.{age}.{key}": value for age, weights in enumerate(own) for key, value in weights.items()}
    return {  # optimizers
        f"{optimizer}.{place}.{key}": value
        for optimizer, one in zip(OPTIMIZERS, own, strict=False)
        for place, parameter in enumerate(one.param_groups[0]["params"])
        for key, value in one.state.get(parameter, {}).items()
    }


def _put_back(name: str, own: Any, tensors: Mapping[str, Tensor], state: State, settings: Any) -> Any:
    """Return a part of the state from what `_tensors` made of it; what can be changed in place is."""
    match own:
        case Tensor():
            pool = tensors[name].tolist()
            if not set(pool) <= set(own.tolist()) or len(pool) < settings.num_prompts:
                raise ValueError(f"{FILE}: {name} must be places of the training prompts that a step draws from")
            return torch.tensor(pool, dtype=torch.long)
        case torch.Generator():
            return own.set_state(_like(tensors, name, own.get_state()))
        case Policy():
            moved = state.policy.frozen_copy()  # its own weights are those that the run began with
            _put_back(name, moved.weights, tensors, state, settings)
            return moved
        case RewardModel():
            _put_back(name, own.scorer, tensors, state, settings)
            return own
        case nn.Module():
            state_dict = own.state_dict().items()
            own.load_state_dict({key: _like(tensors, f"{name}.{key}", value) for key, value in state_dict})
            return own
        case PromptHistory():
            visited = tensors[f"{name}.prompts"].to(own.visits.device)
            parts = vars(own.take(visited)).items()
            read = {key: _like(tensors, f"{name}.{key}", value).to(visited.device) for key, value in parts}
            return own.put(visited, PromptHistory(**read))
    if name == "past":
        ages = range(len({key.split(".")[1] for key in tensors if key.startswith("sampler.")}))
        weights = dict(state.policy.weights.named_parameters())
        return [{key: _like(tensors, f"sampler.{age}.{key}", value) for key, value in weights.items()} for age in ages]
    for optimizer, one in zip(OPTIMIZERS, own, strict=False):
        begun = {key.split(".")[1] for key in tensors if key.startswith(f"{optimizer}.")}
        for place, parameter in enumerate(one.param_groups[0]["params"]):
            if str(place) in begun:
                begin = one.begin(parameter).items()
                moments = {key: _like(tensors, f"{optimizer}.{place}.{key}", value) for key, value in begin}
                one.state[parameter] = {key: value.to(parameter.device) for key, value in moments.items()}
    return own


def _like(tensors: Mapping[str, Tensor], name: str, own: Tensor) -> Tensor:
    """Return the tensor of this name. Raises KeyError without it, ValueError unless it is finite, of `own`'s shape and dtype."""
    found = tensors[name]
    if (found.shape, found.dtype) != (own.shape, own.dtype):
        raise ValueError(f"{FILE}: {name} must be {_kind(own)}; got {_kind(found)}")
    if not found.isfinite().all():
        raise ValueError(f"{FILE}: {name} must be finite numbers")
    return found


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
