"""Settings of a training run that are not the algorithm's. Each is declared once: its type, default, range and a line of help.

`TrainSettings`, for algorithms that sample responses, and `PairSettings`, for those that learn from pairs. The checks of a
setting, its option in `rlviz train` and `rlviz compare`, and what `train` accepts, read the declaration. Needs no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import cleandoc
from numbers import Integral, Real
from typing import Any, Literal, TypeVar

from rlviz.names import nearest
from rlviz.ranges import SEEDS, Limits, limits_of
from small_models.checks import LONGEST, check_fields, cut, short_repr

T = TypeVar("T")
S = TypeVar("S", bound="RunSettings")
Critic = Literal["separate", "shared"]
Precision = Literal["auto", "float32", "bfloat16"]
Activations = Literal["kept", "recomputed"]
Routing = Literal["free", "replayed"]

RUN, ROLLOUTS, REWARDS, UPDATES = "Run", "Rollouts", "Rewards and pairs", "Updates"
RECORDS = "Evaluations and records"

MOST_NAMED = 250  # characters of a list of names in a refusal
LARGEST = 10**9  # every whole number of a setting is below it, but for the seed


@dataclass(frozen=True, kw_only=True)
class Declaration(Limits):
    """What is known of a setting beside its type."""

    default: Any
    help: str  # one line
    panel: str  # of the command line's help in which it stands
    with_critic: Any  # the default of algorithms that have a critic
    unset: str  # what a default of None stands for, in words

    def help_line(self, pair_setting: Declaration | None = None) -> str:
        """Return the line of help with the range and the defaults; pair_setting: the same setting of runs on pairs."""
        default = self.unset if self.default is None else _short(self.default)
        pair_default = self.default if pair_setting is None else pair_setting.default
        others = {"with a critic": self.with_critic, "of pairs": pair_default}
        defaults = [f"default: {default}"]
        defaults += [f"{kind} {_short(other)}" for kind, other in others.items() if other != self.default]
        return f"{self.help} [{', '.join(filter(None, [self.range, '; '.join(defaults)]))}]"

    def check(self, name: str, value: Any) -> None:
        """Raise ValueError for a number that is not finite, too large, or out of the range; what is no number has no range."""
        is_integer = isinstance(value, Integral)
        if not (is_integer or isinstance(value, Real)):
            return
        if not is_integer and not math.isfinite(value):
            raise ValueError(f"{name} must be finite; got {value}")
        if is_integer and "below" not in self.limits and value >= LARGEST:
            raise ValueError(f"{name} must be below {LARGEST:,}; got {short_repr(value)}")
        super().check(name, value)


def _known_names(name: str, known: Sequence[str]) -> str:
    return nearest(name[:LONGEST], known).strip() or f"it has {cut(', '.join(known), MOST_NAMED)}"


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def setting(
    default: T,
    help: str,
    panel: str,
    *,
    reason: str = "",
    with_critic: T | None = None,
    unset: str = "",
    **limits: float,
) -> T:
    """Return the field of a dataclass that declares a setting; see `Declaration`, and `limits_of` for its limits."""
    declaration = Declaration(
        default=default,
        help=help,
        panel=panel,
        limits=limits_of(**limits),
        reason=reason,
        with_critic=default if with_critic is None else with_critic,
        unset=unset,
    )
    return field(default=default, metadata={"setting": declaration})


def declarations(kind: type[Any]) -> dict[str, Declaration]:
    """Return name → declaration of the settings of a dataclass."""
    return {f.name: f.metadata["setting"] for f in fields(kind)}


def check_settings(settings: Any) -> None:
    """Raise ValueError, with parameter, value and range, for a declared setting of the wrong type or out of its range."""
    check_fields(settings)
    for name, declaration in declarations(type(settings)).items():
        declaration.check(name, getattr(settings, name))


def documented(kind: type[T]) -> type[T]:
    """Add the settings of a dataclass to its docstring, a line each."""
    lines = (f"{name}: {declaration.help_line()}" for name, declaration in declarations(kind).items())
    kind.__doc__ = "\n".join([cleandoc(kind.__doc__ or ""), "", *lines])
    return kind


class UsualNumber(float):
    """A default that a run replaces by what suits its policy; until then it is the number that it says."""


SMALL_LR, LORA_LR, LARGE_LR = (
    UsualNumber(3e-4),
    2e-4,
    1e-6,
)  # of models like ours, of adapters, of all weights of larger ones


@dataclass(frozen=True)
class RunSettings:
    """What every run has."""

    steps: int = setting(120, "Steps of the run: rollouts, or updates on pairs.", RUN, at_least=1)
    seed: int = setting(0, "The same seed gives the same curve.", RUN, at_least=0, below=SEEDS)
    max_new_tokens: int | None = setting(
        None, "Tokens of the longest response.", ROLLOUTS, at_least=1, unset="the task's own"
    )
    lr: float = setting(
        SMALL_LR,
        f"Learning rate of AdamW at its peak. Unless set, {LORA_LR:g} for LoRA and {LARGE_LR:g} for more than 5 million weights.",
        UPDATES,
        above=0,
    )
    lr_warmup_steps: int = setting(10, "First steps, over which the learning rate rises linearly.", UPDATES, at_least=0)
    max_grad_norm: float = setting(1.0, "Gradients are scaled down to this norm.", UPDATES, above=0)
    precision: Precision = setting(
        "auto",
        "Of matrix products; bfloat16: by autocast, with weights, gradients and Adam in float32 and transformers' forward; "
        "auto: that on a GPU for more than 5 million weights, else float32.",
        UPDATES,
    )
    activations: Activations = setting(
        "kept",
        "Of each layer; recomputed: in the backward pass (gradient checkpointing), by transformers' forward; saves memory.",
        UPDATES,
    )
    evaluate_every: int = setting(20, "Steps between evaluations on held-out prompts; 0: never.", RECORDS, at_least=0)
    checkpoint_every: int = setting(0, "Steps between saved states; 0: only as time asks for.", RECORDS, at_least=0)

    def __new__(cls: type[S], *values: Any, **named: Any) -> S:
        known = list(declarations(cls))
        for name in named:
            if name not in known:
                raise TypeError(f"{cls.__name__} has no setting {name!r}; {_known_names(name, known)}")
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_settings(self)


@documented
@dataclass(frozen=True)
class TrainSettings(RunSettings):
    """How a run samples responses, rewards them and updates the policy.

    Raises ValueError, with parameter, value and range, for a setting out of its range.
    """

    num_prompts: int = setting(32, "Prompts in one rollout, P.", ROLLOUTS, at_least=1, with_critic=128)
    group_size: int = setting(8, "Responses to each prompt, G.", ROLLOUTS, at_least=1, with_critic=1)
    temperature: float = setting(
        1.0, "Sampling temperature; log-probabilities are taken at it too.", ROLLOUTS,
        above=0, reason="greedy responses are all alike",
    )  # fmt: skip
    top_k: int = setting(0, "Sample from the likeliest k tokens; 0: all.", ROLLOUTS, at_least=0)
    top_p: float = setting(1.0, "Sample from the likeliest mass p; 1: all.", ROLLOUTS, above=0, at_most=1)
    sampler_bits: int | None = setting(
        None, "Bits to which the sampler's weight matrices are rounded, each row on a scale of its own.", ROLLOUTS,
        at_least=2, at_most=16, unset="the trainer's weights as they are",
    )  # fmt: skip
    sampler_lag: int = setting(
        0, "Steps by which the sampler's weights are behind the trainer's, as in asynchronous training.", ROLLOUTS,
        at_least=0, at_most=100, reason="the weights of as many steps are kept",
    )  # fmt: skip
    sampler_temperature: float | None = setting(
        None, "Temperature at which the sampler draws, where the ratio assumes another one.", ROLLOUTS,
        above=0, unset="temperature",
    )  # fmt: skip
    prompt_pool: int = setting(0, "Training prompts, drawn once, to learn from; 0: all.", ROLLOUTS, at_least=0)
    filter_solved: int = setting(
        0, "Responses to each prompt of the pool at first; prompts that all of them solve leave it; 0: no filter.",
        ROLLOUTS, at_least=0,
    )  # fmt: skip
    reward_correct: float = setting(
        1.0,
        "Reward of a right answer, or what a reward that is a number is multiplied by; not of a reward model.",
        REWARDS,
    )
    reward_format: float = setting(0.0, "Added to the reward of a well-formed response.", REWARDS)
    refresh_reward_every: int = setting(
        0, "Steps after which a learned reward learns from the last rollout; 0: never.", REWARDS, at_least=0
    )
    updates_per_rollout: int = setting(
        1, "Optimizer steps on each rollout; with 1 the ratio stays 1 and nothing clips.", UPDATES,
        at_least=1, at_most=10_000, with_critic=2,
    )  # fmt: skip
    minibatches: int = setting(
        1, "Parts a rollout is split into, one an update, anew after each pass.", UPDATES, at_least=1
    )
    micro_batch_tokens: int = setting(
        0, "Tokens of prompts and responses, padding included, that an update holds at once; 0: all of its rows.",
        UPDATES, at_least=0,
    )  # fmt: skip
    routing: Routing = setting(
        "free",
        "Of a policy of experts in updates; replayed: each token goes through the experts that it went through in the sampler.",
        UPDATES,
    )
    reset_reference_every: int = setting(
        0, "Steps after which the reference becomes the policy of that moment; 0: never.", UPDATES, at_least=0
    )
    min_old_prob: float = setting(
        0.0,
        "Responses with a token whose probability before the updates is below this leave the loss.",
        UPDATES,
        at_least=0,
        below=1,
    )
    critic: Critic = setting(
        "separate",
        "PPO's critic: separate, a model with its own optimizer, or shared, a head on the policy's trunk.",
        UPDATES,
    )
    critic_lr: float = setting(3e-4, "Learning rate of a separate critic.", UPDATES, above=0)
    critic_only_steps: int = setting(0, "First steps in which only the critic learns.", UPDATES, at_least=0)
    details_every: int = setting(
        10, "Steps between records with the numbers of each token; 0: never.", RECORDS, at_least=0
    )
    details_groups: int = setting(4, "Groups of a rollout, its first ones, in such a record.", RECORDS, at_least=1)
    watch_every: int = setting(
        5, "Between these, steps between records with the tokens of one group whose rewards differ, 17 kB each; 0: never.",
        RECORDS, at_least=0,
    )  # fmt: skip

    @property
    def policy_samples(self) -> bool:
        """Whether the trainer's policy itself samples, at the temperature that the ratio assumes."""
        return self.sampler_bits is None and not self.sampler_lag and self.sampler_temperature is None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.updates_per_rollout % self.minibatches:
            raise ValueError(
                f"updates_per_rollout must be a multiple of minibatches ({self.minibatches}), so that every response is "
                f"used equally often; got {self.updates_per_rollout}"
            )
        responses = self.num_prompts * self.group_size
        if self.minibatches > responses:
            raise ValueError(
                f"minibatches must be at most num_prompts × group_size = {responses}; got {self.minibatches}"
            )
        if 0 < self.prompt_pool < self.num_prompts:
            raise ValueError(
                f"prompt_pool must be 0 (all prompts) or at least num_prompts ({self.num_prompts}); got {self.prompt_pool}"
            )


@documented
@dataclass(frozen=True)
class PairSettings(RunSettings):
    """How a run learns from preference pairs.

    Raises ValueError, with parameter, value and range, for a setting out of its range.
    """

    steps: int = setting(200, "Steps of the run: rollouts, or updates on pairs.", RUN, at_least=1)
    batch_size: int = setting(
        64, "Pairs in each update, drawn without repeats until all were used.", UPDATES, at_least=1
    )
    num_pairs: int = setting(
        1500, "Pairs to sample where none are given; of them a learned reward takes 1200.", REWARDS,
        at_least=1, at_most=1_000_000,
    )  # fmt: skip


Settings = TrainSettings | PairSettings


def settings_from(saved: Mapping[str, Any]) -> Settings:
    """Return the settings that were saved by name. Raises ValueError for one that there is not, and for one out of range."""
    kind = PairSettings if "batch_size" in saved else TrainSettings
    check_names(kind, saved, "of this version")
    return kind(**saved)


def check_names(kind: type[Settings], names: Iterable[str], whose: str) -> None:
    """Raise ValueError for a name that is no setting of this kind, with the nearest ones."""
    known = list(declarations(kind))
    for name in names:
        if name not in known:
            raise ValueError(f"{cut(name)} is no setting {whose}; {_known_names(name, known)}")
