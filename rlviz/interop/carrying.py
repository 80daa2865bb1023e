"""An algorithm carried into TRL: a GRPOTrainer whose advantages and loss are those of the algorithm's pieces.

    trainer = carried(GRPOTrainer, DCPO)(model, reward_funcs=[correct], args=GRPOConfig(...), train_dataset=...)

TRL keeps prompts, sampling, reward functions, the reference model, LoRA, the optimizer, its log and its checkpoints. The
algorithm shapes the rewards, selects groups of the rollout, and gives the advantages with their history, the loss's mask and the
loss. The weights of tokens are those of a whole update, cut into its parts, so that gradient accumulation changes nothing.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.interop.exporting import CHECKED, warn_of_another_version
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.kl import k3
from rlviz.pieces.words import label
from rlviz.types import Batch, LossOutput
from small_models.sampling import last_position

RULES = ("correct", "well_formed")  # reward functions of these names are what a piece asks for by them
OPTIONS = (  # of GRPOConfig, which TRL's own advantages and loss alone would read
    "beta", "epsilon", "epsilon_high", "delta", "scale_rewards", "loss_type", "importance_sampling_level",
    "sapo_temperature_pos", "sapo_temperature_neg", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg",
    "mask_truncated_completions", "multi_objective_aggregation", "top_entropy_quantile", "entropy_coef",
    "use_adaptive_entropy", "off_policy_mask_threshold",
)  # fmt: skip
WHOLE = ("loss_mask", "advantages", "old_per_token_logps")  # columns that are looked at for an update as a whole
Trainer: Any = object  # to mypy a class of which it knows nothing, as TRL's is


def carried(trainer: type[Any], algorithm: GroupPolicyGradient) -> type[Any]:
    """Return a subclass of TRL's GRPOTrainer that trains with this algorithm, whatever its pieces.

    trainer: GRPOTrainer. Its reward functions give rewards before shaping; a piece that asks for rules finds them by the
    functions' names, correct and well_formed. Groups that the selection leaves out have weight 0, and nothing is sampled in
    their place.
    Raises ValueError for an algorithm with a critic, of pairs, with rewards of single steps, with a loss of a tool's tokens, or
    which samples further prompts; TypeError for a trainer that is not GRPOTrainer. The trainer itself raises ValueError for
    several processes, images, options of GRPOConfig that would have no effect, and a history that would begin anew.
    """
    check_algorithm(algorithm)
    if not (isinstance(trainer, type) and hasattr(trainer, "_generate_and_score_completions")):
        raise TypeError(f"trainer must be trl's GRPOTrainer; got {trainer!r}")
    warn_of_another_version("trl")
    name = "".join(character for character in f"Carried{algorithm.name}" if character.isalnum())
    return type(name, (_Carried, trainer), {"algorithm": algorithm})


def in_one_rollout(algorithm: GroupPolicyGradient) -> GroupPolicyGradient:
    """Return the algorithm as it can be carried: groups that its selection leaves out are not replaced."""
    return algorithm if algorithm.can.max_rounds == 1 else algorithm.with_parameters(max_rounds=1)


def check_algorithm(algorithm: GroupPolicyGradient) -> None:
    """Raise ValueError, by name, for what an advantage and a loss inside TRL cannot be."""
    if not isinstance(algorithm, GroupPolicyGradient):
        name = getattr(algorithm, "name", algorithm)
        raise ValueError(
            f"algorithm must be one of groups, such as DCPO: TRL {CHECKED['trl']} has no critic and no pairs here; got {name}"
        )
    if algorithm.asks_for("advantage", "step_ends"):
        raise ValueError(f"{algorithm.name} needs rewards of single steps, which TRL's reward functions do not give")
    if algorithm.learns_observations:
        raise ValueError(f"{algorithm.name} learns from what a tool wrote, which TRL masks out before a loss sees it")
    if algorithm.can.max_rounds > 1:
        raise ValueError(
            f"{algorithm.name} samples further prompts (max_rounds={algorithm.can.max_rounds}), and TRL samples one rollout: "
            "give the algorithm with max_rounds=1, by its with_parameters, which leaves groups out and replaces none"
        )


def check_options(algorithm: GroupPolicyGradient, args: Any) -> None:
    """Raise ValueError for options of GRPOConfig that would have no effect, or that ask for what is not carried."""
    if args is None:
        raise ValueError("args must be a GRPOConfig, as to_trl(algorithm, settings).run_fields fill it; got None")
    usual = {name: getattr(type(args), name) for name in OPTIONS if hasattr(args, name)}
    ignored = [f"{name}={getattr(args, name)!r}" for name, value in usual.items() if getattr(args, name) != value]
    if ignored:
        raise ValueError(
            f"{', '.join(ignored)} would be left out: the pieces of {algorithm.name} say it. Take these options out of "
            "GRPOConfig, and change the algorithm instead, by its with_parameters or dataclasses.replace"
        )
    if args.use_vllm and args.vllm_importance_sampling_correction:
        raise ValueError(
            "vllm_importance_sampling_correction must be False with a carried algorithm, whose own pieces weigh by the "
            "sampler where they ask for it; got True"
        )
    window, rollout = args.gradient_accumulation_steps, args.steps_per_generation
    if rollout % window:
        raise ValueError(
            f"steps_per_generation must be a multiple of gradient_accumulation_steps ({window}), so that the weights of an "
            f"update are known before its first part; got {rollout}"
        )
    if args.world_size > 1:
        raise ValueError(
            f"carried trains in one process; got {args.world_size}: start it without torchrun or accelerate"
        )


class _Carried(Trainer):
    """What `carried` puts before TRL's trainer. A method with an underscore in front overrides TRL's of that name."""

    algorithm: GroupPolicyGradient

    def __init__(self, model: Any, *positional: Any, args: Any = None, **named: Any) -> None:
        check_options(self.algorithm, args)
        args = copy.copy(args)
        args.beta = 1.0 if self.algorithm.needs_reference else 0.0  # to TRL it says whether there is a reference
        super().__init__(model, *positional, args=args, **named)
        self.history: dict[str, PromptHistory] = {}  # by prompt

    def train(self, resume_from_checkpoint: Any = None, *positional: Any, **named: Any) -> Any:
        """Train as TRL does. Raises ValueError where a checkpoint would leave the prompts' history behind."""
        if resume_from_checkpoint and self.algorithm.asks_for("advantage", "history"):
            raise ValueError(
                f"resume_from_checkpoint must be None with {self.algorithm.name}: what its prompts earned so far is in no "
                "checkpoint of TRL; train from the start"
            )
        return super().train(resume_from_checkpoint, *positional, **named)

    def _calculate_rewards(self, *positional: Any, **named: Any) -> Tensor:
        self.scores = super()._calculate_rewards(*positional, **named)  # [responses, functions]
        return self.scores

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if inputs[0].keys() & {"image", "images"}:
            raise ValueError("carried takes prompts of text; the training set has a column of images")
        output = super()._generate_and_score_completions(inputs)
        return self.select_and_weigh(output, inputs) if self.model.training else output

    def select_and_weigh(self, output: dict[str, Any], inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """Return TRL's rollout with the algorithm's groups, advantages and mask."""
        algorithm, size = self.algorithm, self.num_generations
        written = output["completion_mask"].bool()
        mask = written & output["tool_mask"].bool() if "tool_mask" in output else written
        last = output["completion_ids"].gather(1, last_position(written).unsqueeze(1)).squeeze(1)
        ends = torch.tensor(self.eos_token_ids, device=last.device)
        truncated = ~torch.isin(last, ends).view(-1, size)
        mask = mask.view(-1, size, mask.shape[-1])
        count = len(mask)

        asks = (algorithm.asks_for("advantage", name) for name in ("old_logp", "sampler_logp", "old_entropy"))
        if any(asks) or algorithm.kl_in_reward or algorithm.can.choose is not None:
            # log-probabilities of before the first update, which TRL leaves out where a rollout serves one update
            with torch.no_grad():
                old, entropy = self.score(self.model, output, self.args.per_device_train_batch_size)
            output |= {"old_per_token_logps": old, "entropy": entropy}
        outcomes = self.outcomes()
        rewards = algorithm.shape_rewards(outcomes, mask.sum(-1), truncated=truncated, **self.rules())
        seen = algorithm.loss_mask(mask, truncated)
        advantages = self.compute_advantages(output, inputs[::size], rewards, seen)
        self._logs["advantages"].extend((advantages.sum(-1) / mask.sum(-1).clamp(min=1)).flatten().tolist())

        # TRL cuts a rollout into parts of a fixed size: groups that are left out stay as rows of weight 0
        generator = torch.Generator().manual_seed(self.args.seed + self.state.global_step)
        chosen = algorithm.select_groups(outcomes, generator)
        if len(chosen) > count:
            raise ValueError(
                f"select, {label(algorithm.select)}, must return at most {count} groups here; got {len(chosen)}"
            )
        unused = [group for group in range(count) if group not in chosen.tolist()]
        groups = torch.tensor([*chosen.tolist(), *unused[: count - len(chosen)]], device=mask.device)
        in_loss = (torch.arange(count, device=mask.device) < len(chosen)).view(-1, 1, 1)
        rows = (groups.unsqueeze(1) * size + torch.arange(size, device=mask.device)).flatten()
        output = {name: value[rows] if value.dim() else value for name, value in output.items()}
        mask = (seen[groups] & in_loss).flatten(0, 1)
        return output | {"advantages": advantages[groups].flatten(0, 1), "loss_mask": mask}

    def outcomes(self) -> Tensor:
        """Return the rewards before shaping [P, G]: the rule named correct where shaping asks for rules, else TRL's sum."""
        if self.algorithm.asks_for("shape", "correct"):
            return self.rules()["correct"]
        if bool(self.scores.isnan().all(1).any()):
            raise ValueError(
                "reward functions must give a number for every response here; got None for one from all of them"
            )
        return (self.scores * self.reward_weights.to(self.scores.device)).nansum(1).view(-1, self.num_generations)

    def rules(self) -> dict[str, Tensor]:
        """Return rule → what the reward function of its name gave [P, G]. Raises ValueError where a piece misses one."""
        names = self.reward_func_names
        present = {
            name: self.scores[:, names.index(name)].view(-1, self.num_generations) for name in RULES if name in names
        }
        for name in RULES:
            for slot in ("shape", "advantage"):
                if self.algorithm.asks_for(slot, name) and name not in present:
                    piece = label(self.algorithm.slots()[slot])
                    raise ValueError(f"reward_funcs must have one named {name}, which {piece} asks for")
        return present

    def compute_advantages(
        self, output: dict[str, Any], prompts: list[dict[str, Any]], rewards: Tensor, mask: Tensor
    ) -> Tensor:
        """Return the advantage of each token [P, G, T], and remember what the prompts earned."""
        names = ("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps", "entropy")
        old, reference, sampler, entropy = (
            None if output.get(name) is None else output[name].view(mask.shape) for name in names
        )
        if sampler is not None and old is not None:  # vLLM may not know a token's: then it has weight 1, as TRL has it
            sampler = torch.where(sampler.isnan(), old, sampler)
            output["sampling_per_token_logps"] = sampler.flatten(0, 1)
        keys = [json.dumps(row["prompt"], sort_keys=True, default=str) for row in prompts]
        past = [self.history.get(key, PromptHistory.empty(1, mask.device)) for key in keys]
        advantages, history = self.algorithm.advantages(
            rewards,
            mask,
            old_logp=old,
            ref_logp=reference,
            sampler_logp=sampler,
            old_entropy=entropy,
            history=PromptHistory(
                **{name: torch.cat([getattr(part, name) for part in past]) for name in vars(past[0])}
            ),
            **self.rules(),
        )
        if self.algorithm.asks_for("advantage", "history") and history is not None:
            for position, key in enumerate(keys):
                self.history[key] = history.index_select(torch.tensor([position], device=mask.device))
        return advantages

    def score(self, model: Any, rows: dict[str, Any], batch_size: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the model's log-probabilities and entropies of the responses' tokens, as TRL computes them."""
        ids = torch.cat([rows["prompt_ids"], rows["completion_ids"]], 1)
        attention = torch.cat([rows["prompt_mask"], rows["completion_mask"]], 1)
        length = rows["completion_ids"].shape[1]
        logp, entropy, _ = self._get_per_token_logps_and_entropies(
            model, ids, attention, length, batch_size=batch_size, compute_entropy=True
        )
        return logp, entropy

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if "loss_mask" not in inputs:  # an evaluation, whose loss is TRL's own and trains nothing
            return super()._compute_loss(model, inputs)
        logp, entropy = self.score(model, inputs)
        if self.algorithm.asks_for("surrogate", "entropy") and not entropy.requires_grad:
            raise ValueError(
                f"{label(self.algorithm.surrogate)} needs the entropy's gradient, which this model's forward does not give"
            )
        old = inputs.get("old_per_token_logps")
        columns = self.weights_and_choice() | {
            "old_logp": logp.detach() if old is None else old,
            "advantages": inputs["advantages"],
            "mask": inputs["loss_mask"],
            "ref_logp": inputs.get("ref_per_token_logps"),
            "sampler_logp": inputs.get("sampling_per_token_logps"),
            "entropy": entropy,
        }
        batch = Batch(**{name: rows.unsqueeze(1) for name, rows in columns.items() if rows is not None})
        out = self.algorithm.loss(logp.unsqueeze(1), batch)
        self.log_numbers(out, logp.detach().unsqueeze(1), batch)
        return out.loss

    def weights_and_choice(self) -> dict[str, Tensor | None]:
        """Return the weights of this part's tokens, and which the surrogate chooses, among all tokens of its update."""
        window = self.args.gradient_accumulation_steps
        position = self._step % self.args.steps_per_generation
        parts = self._buffered_inputs[position - position % window :][:window]
        start = sum(len(part["loss_mask"]) for part in parts[: position % window])
        rows = slice(start, start + len(parts[position % window]["loss_mask"]))

        update = {name: torch.cat([part[name] for part in parts]).unsqueeze(1) for name in WHOLE if name in parts[0]}
        mask, chosen = update["loss_mask"], None
        if self.algorithm.can.choose is not None:
            chosen = self.algorithm.choose_tokens(update["advantages"], update["old_per_token_logps"], mask)
        weights = self.algorithm.aggregate(mask)
        return {"weights": weights[rows].squeeze(1), "chosen": None if chosen is None else chosen[rows].squeeze(1)}

    def log_numbers(self, out: LossOutput, logp: Tensor, batch: Batch) -> None:
        """Add this part's numbers to TRL's log, by TRL's names."""
        tokens = batch.mask.sum().clamp(min=1)
        numbers = {f"clip_ratio/{side}_mean": getattr(out, f"clipped_{side}") for side in ("low", "high", "dual")}
        if batch.entropy is not None:
            numbers["entropy"] = batch.entropy.detach()[batch.mask]
        if batch.ref_logp is not None:
            numbers["kl"] = k3(logp, batch.ref_logp)[batch.mask]
        for name, values in numbers.items():
            self._metrics["train"][name].append(float(values.sum() / tokens))
