"""All that one step of training hands to the next, and the one saver and the one reader of it.

A checkpoint is the policy, as a folder that transformers can load, and beside it the `checkpoint_data`: tensors by name, which
go to training.safetensors, and values, which go to training.json.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any

import torch
from torch import Tensor, nn

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.pieces.advantages import PromptHistory
from rlviz.settings import Settings, TrainSettings
from rlviz.training.adamw import AdamW
from rlviz.training.critics import SharedCritic, new_critic
from small_models.adapters import moving_weights
from small_models.files import convert
from small_models.pairs import Pair
from small_models.policies import Policy
from small_models.precision import round_to_bits
from small_models.scorers import RewardModel
from small_models.tasks import Task

OPTIMIZERS = "policy", "critic_optimizer"  # their names in a checkpoint
FILE = "training.safetensors"


@dataclass(frozen=True)
class Beginning:
    """What a run begins with.

    policy: changed in place; start: what it was. reward_model: of this run alone. pairs: what an algorithm of pairs learns from,
    or the reward model learned from. reference: π_ref where it is not the start.
    """

    policy: Policy
    start: Policy
    task: Task
    algorithm: Any
    settings: Any
    reward_model: RewardModel | None = None
    pairs: Sequence[Pair] | None = None
    reference: Policy | None = None


def checkpointed(default: Any = MISSING, *, json: bool = False, moved_by: str = "") -> Any:
    """Return a field of `State` that a checkpoint holds, in JSON or as tensors.

    moved_by: the setting that lets a step change it; without that setting no checkpoint holds it.
    """
    return field(default=default, metadata={"json": json, "moved_by": moved_by})


@dataclass
class State:
    """What a step needs of the one before it. A run on pairs has no field from `reference` on; `waiting` is only of such a run.

    optimizers: the policy's, then that of a separate critic. pool: indices of the training prompts that are drawn from.
    sampler: the policy that samples, itself or a copy whose weights are rounded or behind; past: the policy's weights before
    the last steps, oldest first, of a sampler that is behind. history: of each training prompt, DCPO's. critic: None where the
    group is the baseline. reward_model: scores in place of the task's rules; reward_pairs: the pairs that it learned from;
    reward_loss: of its last refresh. skips_zero: whether responses with A = 0 teach nothing (a KL term would), and leave the
    update. waiting: indices of pairs that are still to come before any comes again. An adapted KL weight (PPO-Penalty's) is
    that of `algorithm`.
    """

    policy: Policy
    algorithm: Any
    optimizers: Sequence[AdamW] = checkpointed()
    generator: torch.Generator = checkpointed()
    step: int = checkpointed(0, json=True)
    train_seconds: float = checkpointed(0.0, json=True)
    tokens_sampled: int = checkpointed(0, json=True)
    waiting: list[int] | None = checkpointed(None, json=True)
    reference: Any = checkpointed(None, moved_by="reset_reference_every")
    sampler: Any = None
    past: Sequence[dict[str, Tensor]] = checkpointed((), moved_by="sampler_lag")
    pool: Any = checkpointed(None, moved_by="filter_solved")
    history: PromptHistory | None = checkpointed(None)
    critic: Any = checkpointed(None)
    reward_model: Any = checkpointed(None, moved_by="refresh_reward_every")
    reward_pairs: Sequence[Pair] = checkpointed((), json=True, moved_by="refresh_reward_every")
    reward_loss: float | None = checkpointed(None, json=True, moved_by="refresh_reward_every")
    skips_zero: bool = False

    @torch.no_grad()
    def sync_sampler(self, settings: TrainSettings) -> None:
        """Update a separate sampler to the policy's weights of `sampler_lag` steps ago.

        The first `sampler_lag` steps are sampled with the weights that the run began with.
        """
        if self.sampler is not self.policy:
            now = {name: weight.detach().clone() for name, weight in self.policy.weights.named_parameters()}
            self.past = [*self.past, now][-settings.sampler_lag - 1 :]
            self.copy_oldest_weights(settings)

    @torch.no_grad()
    def copy_oldest_weights(self, settings: TrainSettings) -> None:
        """Copy the oldest of the past weights into the sampler, rounded to `sampler_bits`."""
        for name, weight in self.sampler.weights.named_parameters():
            old = self.past[0][name]
            weight.copy_(round_to_bits(old, settings.sampler_bits) if settings.sampler_bits else old)


def first_state(begun: Beginning) -> State:
    """Return the state before the first step of a run that samples."""
    policy, algorithm, settings, prompts = begun.policy, begun.algorithm, begun.settings, len(begun.task.train_prompts)
    pool = torch.arange(prompts)
    if settings.prompt_pool:
        drawn = torch.randperm(prompts, generator=torch.Generator().manual_seed(settings.seed))
        pool = drawn[: settings.prompt_pool].sort().values
    critic = new_critic(policy, settings.critic) if isinstance(algorithm, ActorCritic) else None
    shared = [critic] if isinstance(critic, SharedCritic) else []
    optimizers = [new_optimizer([policy.weights, *shared], settings.lr)]
    if critic is not None and not shared:
        optimizers.append(new_optimizer([critic], settings.critic_lr))
    has_history = critic is None and algorithm.asks_for("advantage", "history")
    state = State(
        policy,
        algorithm,
        optimizers,
        torch.Generator().manual_seed(settings.seed),
        reference=begun.reference or begun.start,
        sampler=policy.frozen_copy() if settings.sampler_bits or settings.sampler_lag else policy,
        pool=pool,
        history=PromptHistory.empty(prompts, policy.device) if has_history else None,
        critic=critic,
        reward_model=begun.reward_model,
        reward_pairs=list(begun.pairs or ()),
        skips_zero=critic is None and algorithm.ignores_zero_advantages(),
    )
    state.sync_sampler(settings)
    return state


def new_optimizer(models: Sequence[nn.Module], lr: float) -> AdamW:
    """Return AdamW of all trainable parameters of the models."""
    return AdamW([p for model in models for p in model.parameters() if p.requires_grad], lr)


# --- the saver and the reader ---


def checkpoint_data(state: State, settings: Settings) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return all that the next step depends on beside the policy: tensors by name, and values for JSON."""
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {"beta": state.algorithm.beta} if _adapts_beta(state.algorithm) else {}
    for f in _moving_fields(state, settings):
        part = getattr(state, f.name)
        if part is None:
            continue
        if f.metadata["json"]:
            values[f.name] = part
        else:
            tensors |= _tensors(f.name, part)
    return tensors, values


def restore(state: State, settings: Settings, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
    """Change the state that a run begins with to that of a checkpoint, see `checkpoint_data`.

    Raises KeyError for what is missing, ValueError, TypeError or RuntimeError for what is something else.
    """
    for f in _moving_fields(state, settings):
        part = getattr(state, f.name)
        if f.metadata["json"]:
            setattr(state, f.name, values.get(f.name) if part is None else values[f.name])
        elif part is not None:
            setattr(state, f.name, _restore_part(f.name, part, tensors, state, settings))
    state.reward_pairs = [
        convert(pair, Pair, "reward_pairs") if isinstance(pair, dict) else pair for pair in state.reward_pairs
    ]
    if _adapts_beta(state.algorithm) and values.get("beta") is not None:
        state.algorithm = state.algorithm.with_parameters(beta=values["beta"])
    if isinstance(settings, TrainSettings):
        if not settings.sampler_lag:  # the policy's weights are enough
            state.past = ()
            state.sync_sampler(settings)
        else:
            state.copy_oldest_weights(settings)


def _moving_fields(state: State, settings: Settings) -> list[Field[Any]]:
    """Return the fields that a step under these settings may change."""
    all_fields = (f for f in fields(state) if f.metadata)
    return [f for f in all_fields if not f.metadata["moved_by"] or getattr(settings, f.metadata["moved_by"], None)]


def _adapts_beta(algorithm: Any) -> bool:
    return isinstance(algorithm, ActorCritic) and algorithm.controller is not None


def _tensors(name: str, part: Any) -> dict[str, Tensor]:
    """Return the tensors that represent a part of the state in a checkpoint."""
    match part:
        case Tensor():
            return {name: part}
        case torch.Generator():
            return {name: part.get_state()}
        case Policy(weights=model) | RewardModel(scorer=model):
            return _tensors(name, model)
        case nn.Module():
            return {f"{name}.{key}": value for key, value in moving_weights(part).items()}
        case PromptHistory():  # of 90,000 prompts a run may have visited 500
            visited = part.visits.nonzero().squeeze(1)
            columns = vars(part.index_select(visited)) | {"prompts": visited}
            return {f"{name}.{key}": value for key, value in columns.items()}
    if name == "past":
        return {f"sampler.{age}.{key}": value for age, weights in enumerate(part) for key, value in weights.items()}
    return {
        f"{role}.{place}.{key}": value
        for role, optimizer in zip(OPTIMIZERS, part, strict=False)
        for place, parameter in enumerate(optimizer.param_groups[0]["params"])
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def _restore_part(name: str, part: Any, tensors: Mapping[str, Tensor], state: State, settings: Any) -> Any:
    """Return a part of the state with the values of its `_tensors`; modules and optimizers are changed in place."""
    match part:
        case Tensor():
            return tensors[name].to(part.device)
        case torch.Generator():
            return part.set_state(_tensor_like(tensors, name, part.get_state()))
        case Policy():
            moved = state.policy.as_reference()  # the weights of `part` are those that the run began with
            _restore_part(name, moved.weights, tensors, state, settings)
            return moved
        case RewardModel():
            _restore_part(name, part.scorer, tensors, state, settings)
            return part
        case nn.Module():
            weights = moving_weights(part).items()
            read = {key: _tensor_like(tensors, f"{name}.{key}", value) for key, value in weights}
            part.load_state_dict(part.state_dict() | read)
            return part
        case PromptHistory():
            visited = tensors[f"{name}.prompts"].to(part.visits.device)
            columns = vars(part.index_select(visited)).items()
            read = {key: _tensor_like(tensors, f"{name}.{key}", v).to(visited.device) for key, v in columns}
            return part.index_put(visited, PromptHistory(**read))
    if name == "past":
        ages = range(len({key.split(".")[1] for key in tensors if key.startswith("sampler.")}))
        now = dict(state.policy.weights.named_parameters())
        return [{key: _tensor_like(tensors, f"sampler.{age}.{key}", v) for key, v in now.items()} for age in ages]
    for role, optimizer in zip(OPTIMIZERS, part, strict=False):
        moved_places = {key.split(".")[1] for key in tensors if key.startswith(f"{role}.")}
        for place, parameter in enumerate(optimizer.param_groups[0]["params"]):
            if str(place) in moved_places:
                first = optimizer.begin(parameter).items()
                moments = {key: _tensor_like(tensors, f"{role}.{place}.{key}", value) for key, value in first}
                optimizer.state[parameter] = {key: value.to(parameter.device) for key, value in moments.items()}
    return part


def _tensor_like(tensors: Mapping[str, Tensor], name: str, example: Tensor) -> Tensor:
    """Return the tensor of this name. Raises KeyError without it, ValueError unless it is of the example's shape and dtype."""
    tensor = tensors[name]
    if (tensor.shape, tensor.dtype) != (example.shape, example.dtype):
        kinds = [f"{str(one.dtype).removeprefix('torch.')} of shape {tuple(one.shape)}" for one in (example, tensor)]
        raise ValueError(f"{FILE}: {name} must be {kinds[0]}; got {kinds[1]}")
    return tensor
