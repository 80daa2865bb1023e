"""How many responses a configuration of TRL or verl samples and trains on at once, by the libraries' own rules: `batch_of`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rlviz.interop import verl
from rlviz.interop.configs import VERL, Config
from small_models.checks import short_repr

ONE = "; more devices: --devices N"


@dataclass(frozen=True)
class Batch:
    """The arithmetic of a rollout.

    words: in a line. prompts: of a rollout. group: responses to each. parts: updates of one pass over it. passes: over a rollout.
    accumulation: parts of an update, one backward each. on_policy: whether a rollout serves one update alone. refused: why the
    library would not start, in its own rule.
    """

    words: str
    prompts: int = 1
    group: int = 1
    parts: int = 1
    passes: int = 1
    accumulation: int = 1
    on_policy: bool = True
    refused: tuple[str, ...] = ()

    @property
    def updates(self) -> int:
        """Updates of a rollout."""
        return self.parts * self.passes


SIZES = (
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations", "num_iterations"),
    *("data.train_batch_size", "trainer.nnodes", "trainer.n_gpus_per_node"),
    *(verl.ROLLOUT + "n", verl.ACTOR + "ppo_mini_batch_size", verl.ACTOR + "ppo_epochs"),
)
MAYBE = ("generation_batch_size", "steps_per_generation", verl.ACTOR + "ppo_micro_batch_size_per_gpu")  # or None


def batch_of(config: Config, devices: int) -> Batch:
    """Return the arithmetic of a configuration; devices: TRL's processes. Raises ValueError for sizes that are none."""
    if config.asynchronous:
        return Batch("asynchronous: its batch is not read", group=config.options[verl.ROLLOUT + "n"], on_policy=False)
    for name in (*SIZES, *MAYBE):
        value = config.options.get(name, 1)
        is_size = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not (is_size or (value is None and name in MAYBE)):
            raise ValueError(f"{name} must be a whole number, at least 1; got {short_repr(value)}")
    if config.kind == VERL:
        batch = _verl_batch(config.options)
    else:
        batch = (_group_batch if config.kind == "GRPOConfig" else _pair_batch)(config.options, devices)
    return replace(batch, refused=()) if config.owner else batch  # whose own code may change the sizes


def _counted(number: float, what: str) -> str:
    """Return a number with its noun, in the plural where it is not 1."""
    return f"{f'{number:,g}' if number % 1 else f'{int(number):,}'} {what}{'s' * (number != 1)}"


def _pair_batch(o: Any, devices: int) -> Batch:
    size, parts = o["per_device_train_batch_size"], o["gradient_accumulation_steps"]
    words = f"{_counted(devices, 'device')} × {size} × {parts} accumulated = {_counted(devices * size * parts, 'pair')} an update"
    return Batch(words, accumulation=parts)


def _group_batch(o: Any, devices: int) -> Batch:
    size, parts, group = (
        o[name] for name in ("per_device_train_batch_size", "gradient_accumulation_steps", "num_generations")
    )
    rollout, steps, passes = o["generation_batch_size"], o["steps_per_generation"], o["num_iterations"]
    is_set, part, refused = rollout is not None, devices * size, []
    if is_set and steps is not None:
        refused.append("generation_batch_size and steps_per_generation cannot both be set")
    if is_set and rollout % part:
        refused.append(f"generation_batch_size ({rollout}) must be divisible by the global batch size ({part})")
    steps = steps or (max(1, rollout // part) if is_set else parts)
    rollout = rollout if is_set else part * steps
    if group < 2:
        refused.append(f"num_generations ({group}) must be at least 2")
    elif rollout % group:
        why = f"generation_batch_size ({rollout}) must be divisible by num_generations ({group})"
        more = next((n for n in range(2, 65) if n * rollout % group == 0), 0) if devices == 1 and not is_set else 0
        refused.append(f"{why}; with --devices {more} it is" if more else why)
    if o["sync_ref_model"] and not o["beta"]:
        refused.append("sync_ref_model needs a beta above 0")
    update, uses = part * parts, steps * passes
    on_policy = parts % uses == 0  # TRL's own test, by which it leaves the old log-probabilities out
    serves = f"{uses / parts:g} updates ({passes} pass{'es' * (passes != 1)})"
    if on_policy:
        serves = "1 update" if parts == uses else f"1 update, which takes {parts // uses} of them"
    words = (
        f"{_counted(devices, 'device')} × {size} × {parts} accumulated = {_counted(update, 'response')} an update = "
        f"{_counted(update / group, 'prompt')} × {group}; a rollout of {_counted(rollout, 'response')} serves {serves}"
        f"{ONE * (devices == 1)}"
    )
    prompts, minibatches = max(1, rollout // max(1, group)), max(1, steps // parts)
    return Batch(words, prompts, group, minibatches, passes, parts, on_policy, tuple(refused))


def _verl_batch(o: Any) -> Batch:
    actor = verl.ACTOR
    prompts, group, mini = o["data.train_batch_size"], o[verl.ROLLOUT + "n"], o[actor + "ppo_mini_batch_size"]
    epochs, dynamic = o[actor + "ppo_epochs"], o[actor + "use_dynamic_bsz"]
    devices = o["trainer.n_gpus_per_node"] * o["trainer.nnodes"]
    refused = []
    if not dynamic and prompts < mini:
        refused.append(f"train_batch_size ({prompts}) must be >= actor.ppo_mini_batch_size ({mini})")
    elif prompts % mini:
        refused.append(f"a rollout of {prompts} prompts must be a multiple of ppo_mini_batch_size ({mini})")
    if not dynamic and prompts * group % devices and o[actor + "strategy"] != "megatron":
        refused.append(f"train_batch_size × rollout.n ({prompts * group}) must be divisible by the {devices} GPUs")
    if not dynamic and o[actor + "ppo_micro_batch_size_per_gpu"] is None and o[actor + "ppo_micro_batch_size"] is None:
        refused.append("actor.ppo_micro_batch_size_per_gpu must be set, or use_dynamic_bsz")
    if o[verl.ROLLOUT + "name"] == "???":
        refused.append("rollout.name must be set (vllm, sglang)")
    parts = max(1, prompts // mini)
    micro = o[actor + "ppo_micro_batch_size_per_gpu"]
    words = (
        f"{_counted(prompts, 'prompt')} × {group} = {_counted(prompts * group, 'response')} a rollout; "
        f"{_counted(mini, 'prompt')} × {group} = {_counted(mini * group, 'response')} an update; "
        f"{_counted(parts * epochs, 'update')} a rollout ({_counted(epochs, 'epoch')}), {_counted(devices, 'GPU')}"
    )
    accumulation = 1 if dynamic or not micro else max(1, mini * group // max(1, micro * devices))
    return Batch(words, prompts, group, parts, epochs, accumulation, parts * epochs == 1, tuple(refused))
