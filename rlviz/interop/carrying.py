"""An algorithm carried into TRL whole: a GRPOTrainer whose advantages, choice of groups and loss are the value's own.

    trainer = carried(GRPOTrainer, DCPO, out="runs/real")(model, reward_funcs=[correct], args=GRPOConfig(...),
    train_dataset=...)

What TRL keeps: sampling, reward functions, the reference model, LoRA, the optimizer and its schedule. What becomes the
algorithm's: shaping, selection, advantages with their history, the mask of the loss, and the loss. The weights of tokens
are computed on the whole update and cut, so that gradient accumulation and several processes change nothing.
"""

from __future__ import annotations

import copy
import json
import os
import random
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional as F

import rlviz
from rlviz.algorithms.base import GroupPolicyGradient
from rlviz.algorithms.describe import to_json
from rlviz.interop.exporting import CHECKED, Case, lines_of, warn_of_another_version
from rlviz.interop.processes import SIDES, Processes
from rlviz.interop.trl import DEFAULTS, TABLE
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.kl import k3
from rlviz.pieces.words import label
from rlviz.settings import SEEDS, TrainSettings
from rlviz.training import RunFolder
from rlviz.training.files import json_text, write_json
from rlviz.training.records import group_records, rollout_numbers, watched_group
from rlviz.training.rollout import Rollout, Sampled
from rlviz.training.updates import Updates
from rlviz.types import Batch, StepRecord
from small_models import paths
from small_models.policies import Policy
from small_models.sampling import Samples, last_place
from small_models.tasks import Grade, Task

HISTORY = "rlviz_history.json"  # in a checkpoint of TRL: what the prompts earned so far
PLACE = "rlviz_place.json"  # beside it: the steps that were done, and where the draws of further prompts are
PIECES = (  # options that TRL's own advantages and loss alone would read
    "beta", "epsilon", "epsilon_high", "delta", "scale_rewards", "loss_type", "importance_sampling_level",
    "sapo_temperature_pos", "sapo_temperature_neg", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg",
)  # fmt: skip
WITHOUT_EFFECT = (*PIECES, "use_bias_correction_kl")  # of beta
RIGHT = 0.5  # of the first reward function: from above this a response counts as right in the records


def carried(
    trainer: type[Any],
    algorithm: GroupPolicyGradient,
    out: str | os.PathLike[str] | None = None,
    *,
    details_every: int = 10,
    details_groups: int = 4,
) -> type[Any]:
    """Return a subclass of TRL's GRPOTrainer that trains with this algorithm, whatever its pieces.

    trainer: GRPOTrainer. out: a new folder, in which the run is kept as `train` keeps one, a step a rollout, so that
    `inspect_run`, `diagnose` and learning curves open it; every details_every-th step has the tokens of the first
    details_groups groups. Reward functions give rewards before shaping; a shaping that asks for rules finds them by the
    names of the functions, correct and well_formed. The first function says which responses are right: those with more
    than .5. A selection that samples further draws prompts from the training set, as long as the memory of one rollout
    lasts; what it cannot fill has weight 0. Options of GRPOConfig that stand for pieces (loss_type, epsilon,
    scale_rewards, …) have no effect, so that one which says another thing than TRL's default and the algorithm is refused.
    Raises ValueError for an algorithm with a critic, of pairs, or with rewards of single steps; TypeError for a trainer
    that is not GRPOTrainer; when it is built, ValueError for a model that is cut among processes (DeepSpeed, FSDP), and for
    options that would be left out without a word.

    Several processes (DDP) train as one does: each sees the whole rollout, and the first writes. per_device_train_batch_size
    is of one process. The folder of a run that was cut off is gone on with by train(resume_from_checkpoint=…).
    """
    if not isinstance(algorithm, GroupPolicyGradient):
        name = getattr(algorithm, "name", algorithm)
        raise ValueError(
            f"algorithm must be one of groups, such as DCPO: TRL {CHECKED['trl']} has no critic and no pairs here; got {name}"
        )
    if algorithm.asks_for("advantage", "step_ends"):
        raise ValueError(f"{algorithm.name} needs rewards of single steps, which TRL's reward functions do not give")
    if algorithm.learns_observations:
        raise ValueError(f"{algorithm.name} learns from what a tool wrote, which TRL masks out before a loss sees it")
    if not (isinstance(trainer, type) and hasattr(trainer, "_generate_and_score_completions")):
        raise TypeError(f"trainer must be trl's GRPOTrainer; got {trainer!r}")
    warn_of_another_version("trl")
    name = "".join(character for character in f"Carried{algorithm.name}" if character.isalnum())
    own = {"algorithm": algorithm, "out": out, "details_every": details_every, "details_groups": details_groups}
    return type(name, (_Carried, trainer), own)


class _Carried:
    """What `carried` puts before TRL's trainer; see there. Methods have the names of those of GRPOTrainer that they stand
    before."""

    algorithm: GroupPolicyGradient
    out: str | os.PathLike[str] | None
    details_every: int
    details_groups: int

    def __init__(self, model: Any, *given: Any, args: Any = None, **named: Any) -> None:
        if args is None:
            raise ValueError("args must be a GRPOConfig, as to_trl(algorithm, settings).of_settings fill it; got None")
        self._check(args)
        args = copy.copy(args)
        args.beta = 1.0 if self.algorithm.needs_reference else 0.0  # to TRL it says whether there is a reference
        super().__init__(model, *given, args=args, **named)  # type: ignore[call-arg]
        self.me = cast(Any, self)
        self._together = Processes(self.me.accelerator)
        self._together.check()
        self._visits: dict[str, PromptHistory] = {}
        self._draw = random.Random(args.seed)  # of the same numbers in all processes
        self._begun = self._visits, self._draw.getstate()  # as they were before the newest rollout
        self._scored: list[tuple[Tensor, list[Any]]] = []
        self._updates, self._counted = Updates(), 0  # and the updates that are in it or were before
        self._record: _Recorder | None = None  # the main process's
        if self.out is not None:
            self._record = self._together.on_main(lambda: _Recorder(self))

    def _check(self, args: Any) -> None:
        """Raise ValueError for options that this trainer would leave out without a word."""
        for name, neutral in DEFAULTS.items():
            asked = name not in WITHOUT_EFFECT and hasattr(args, name) and getattr(args, name) != neutral
            if asked and name not in (
                "vllm_importance_sampling_correction",
                "sync_ref_model",
                "disable_dropout",
                "repetition_penalty",
            ):
                raise ValueError(
                    f"{name} must be {neutral} with a carried algorithm, which has no such part; got {getattr(args, name)}"
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
        own = self._own_fields(args)
        given = {name: getattr(args, name) for name in PIECES if hasattr(args, name)}
        left_out = [
            f"{name}={value!r}"
            for name, value in given.items()
            if value not in (getattr(type(args), name), own.get(name))
        ]
        if left_out:
            raise ValueError(
                f"{', '.join(left_out)} would be left out: the pieces of {self.algorithm.name} say it. Take these options out of "
                "GRPOConfig, and change the algorithm instead, by its with_parameters or dataclasses.replace"
            )

    def _own_fields(self, args: Any) -> dict[str, Any]:
        """Return what the export of this algorithm sets for its pieces, with the batches of these options."""
        batches = {
            "num_prompts": args.generation_batch_size // args.num_generations,
            "group_size": args.num_generations,
            "minibatches": args.steps_per_generation // args.gradient_accumulation_steps,
        }
        settings = TrainSettings(**batches, updates_per_rollout=batches["minibatches"] * args.num_iterations)
        lines = lines_of(TABLE, Case(self.algorithm.slots(), settings, args.gradient_accumulation_steps))
        return {name: value for line in lines for name, value in line.fields.items()}

    # from sampling to advantages

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: list[Any], completion_ids_list: Any) -> Tensor:
        scored = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)  # type: ignore[misc]
        self._scored.append((scored, list(completions)))
        return scored

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        if not self.me.model.training:
            return super()._generate_and_score_completions(inputs)  # type: ignore[misc]
        me, algorithm, size, together = self.me, self.algorithm, self.me.num_generations, self._together
        rows: list[dict[str, Any]] = together.listed(inputs)
        wanted, parts, rounds = len(rows) // size, [], []
        self._begun = dict(self._visits), self._draw.getstate()
        self._scored.clear()
        generator = torch.Generator().manual_seed(self._draw.randrange(SEEDS))
        asked, missing = rows, wanted
        while missing > 0 and asked:
            own = together.shared_out(asked, size)
            parts.append(super()._generate_and_score_completions(own))  # type: ignore[misc]
            rounds.append((len(own), len(asked)))
            scored, texts = self._scored.pop()
            texts = texts if self.out is None else together.listed(texts)
            self._scored.append((scored[: len(asked)], texts[: len(asked)]))
            outcomes = self._outcomes().view(-1, size)
            chosen = together.of_main(algorithm.selected(outcomes, generator).cpu())
            missing = wanted - len(chosen)
            asked = self._further(rows, min(missing, wanted * algorithm.can.max_rounds - len(rows) // size))
            rows += asked
        if len(chosen) > wanted:
            raise ValueError(
                f"select, {label(algorithm.select)}, must return at most {wanted} groups here; got {len(chosen)}"
            )
        output = _joined(parts, me._tokenizer.pad_token_id)
        if self.out is not None or self._needs_old_logp() or output.get("sampling_per_token_logps") is not None:
            output["old_per_token_logps"], output["rlviz_entropy"] = self._logp_and_entropy(output)
        output = together.whole(output, rounds, me._tokenizer.pad_token_id)
        mask, truncated = self._mask(output, size)
        drawn = output.get("sampling_per_token_logps")
        if drawn is not None:  # vLLM may not know a token's: then it has weight 1, as TRL has it
            output["sampling_per_token_logps"] = torch.where(drawn.isnan(), output["old_per_token_logps"], drawn)
        rewards, advantages = self._advantages(output, rows[: len(mask) * size], mask, truncated)
        if self._record is not None:
            self._record.rollout(
                self,
                output,
                rows[: len(mask) * size],
                rewards,
                advantages,
                chosen,
                mask,
                truncated,
                len(parts),
            )
        spare = [group for group in range(len(mask)) if group not in set(chosen.tolist())]
        taken = torch.tensor([*chosen.tolist(), *spare[: wanted - len(chosen)]], device=mask.device)
        there = (torch.arange(len(taken), device=mask.device) < len(chosen)).view(-1, 1, 1)
        seen = algorithm.loss_mask(mask, truncated)[taken] & there
        index = (taken.unsqueeze(1) * size + torch.arange(size, device=mask.device)).flatten()
        ours = together.own(len(index))
        output = {name: value[index[ours]] if value.dim() else value for name, value in output.items()}
        return {**output, "advantages": advantages[taken].flatten(0, 1)[ours], "rlviz_mask": seen.flatten(0, 1)[ours]}

    def _needs_old_logp(self) -> bool:
        asks = ("old_logp", "sampler_logp", "old_entropy")
        chooses = self.algorithm.can.choose is not None
        return (
            self.algorithm.kl_in_reward or chooses or any(self.algorithm.asks_for("advantage", name) for name in asks)
        )

    def _scores(self) -> Tensor:
        """Return what every reward function said of the responses of this rollout, [responses, functions]."""
        return torch.cat([scored for scored, _ in self._scored])

    def _rule(self, name: str) -> Tensor | None:
        """Return what the reward function of this name said, None where there is none."""
        names = self.me.reward_func_names
        return self._scores()[:, names.index(name)] if name in names else None

    def _outcomes(self) -> Tensor:
        """Return the rewards before shaping: the rule named correct where shaping asks for rules, else the weighted sum."""
        right = self._rule("correct") if self.algorithm.asks_for("shape", "correct") else None
        if right is not None:
            return right
        scores = self._scores()
        if bool(scores.isnan().all(1).any()):
            raise ValueError(
                "reward functions must give a number for every response here; got None for one from all of them"
            )
        return (scores * self.me.reward_weights.to(scores.device)).nansum(1)

    def _mask(self, output: dict[str, Any], size: int) -> tuple[Tensor, Tensor]:
        """Return the tokens that the policy wrote [P, G, T], and which responses [P, G] were cut off."""
        written = output["completion_mask"].bool()
        mask = written & output["tool_mask"].bool() if "tool_mask" in output else written
        ends = torch.tensor(self.me.eos_token_ids, device=written.device)
        last = output["completion_ids"].gather(1, last_place(written).unsqueeze(1)).squeeze(1)
        return mask.view(-1, size, mask.shape[-1]), ~torch.isin(last, ends).view(-1, size)

    def _further(self, rows: Sequence[dict[str, Any]], count: int) -> list[dict[str, Any]]:
        """Return rows of so many other prompts of the training set, each as often as a group has responses."""
        if count <= 0:
            return []
        data, there = self.me.train_dataset, {_key(row) for row in rows}
        if not hasattr(data, "__getitem__") or "image" in rows[0] or "images" in rows[0]:
            raise ValueError(
                f"{label(self.algorithm.select)} samples further prompts: the training set must be a list of texts"
            )
        found: list[dict[str, Any]] = []
        for place in self._draw.sample(range(len(data)), len(data)):
            if len(found) == count:
                break
            if _key(data[place]) not in there:
                found.append(data[place])
                there.add(_key(data[place]))
        return [dict(row) for row in found for _ in range(self.me.num_generations)]

    @torch.no_grad()
    def _logp_and_entropy(self, output: dict[str, Any]) -> tuple[Tensor, Tensor]:
        logp, entropy, _ = self._of_model(self.me.model, output, self.me.args.per_device_train_batch_size)
        return logp, entropy

    def _of_model(self, model: Any, inputs: dict[str, Any], batch_size: int | None = None) -> Any:
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        return self.me._get_per_token_logps_and_entropies(
            model, ids, attention, inputs["completion_ids"].shape[1], batch_size=batch_size, compute_entropy=True
        )

    def _advantages(
        self, output: dict[str, Any], rows: Sequence[dict[str, Any]], mask: Tensor, truncated: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return shaped rewards [P, G] and the advantage of each token [P, G, T]; what the prompts earned is remembered."""
        algorithm, shape = self.algorithm, mask.shape[:2]
        outcomes = self._outcomes().view(shape)
        right, formed = self._rule("correct"), self._rule("well_formed")
        for name, found in (("correct", right), ("well_formed", formed)):
            asking = [slot for slot in ("shape", "advantage") if algorithm.asks_for(slot, name)]
            if asking and found is None:
                piece = label(algorithm.slots()[asking[0]])
                raise ValueError(f"reward_funcs must have one named {name}, which {piece} asks for")
        rewards = algorithm.shaped(
            outcomes,
            mask.sum(-1),
            truncated=truncated,
            correct=None if right is None else right.view(shape),
            well_formed=None if formed is None else formed.view(shape),
        )
        prompts = [_key(row) for row in rows[:: mask.shape[1]]]
        never = PromptHistory.empty(1, mask.device)
        before = [self._visits.get(prompt, never) for prompt in prompts]
        names = ("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps", "rlviz_entropy")
        old, ref, drawn, entropy = (None if output.get(n) is None else output[n].view(mask.shape) for n in names)
        advantages, history = algorithm.advantages(
            rewards,
            algorithm.loss_mask(mask, truncated),
            old_logp=old,
            ref_logp=ref,
            sampler_logp=drawn,
            old_entropy=entropy,
            correct=None if right is None else right.view(shape),
            well_formed=None if formed is None else formed.view(shape),
            history=PromptHistory(
                **{name: torch.cat([getattr(part, name) for part in before]) for name in vars(never)}
            ),
        )
        if algorithm.asks_for("advantage", "history") and history is not None:
            self._visits |= {
                prompt: history.take(torch.tensor([place], device=mask.device)) for place, prompt in enumerate(prompts)
            }
        return rewards, advantages

    # the loss

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        before = self.me._buffered_inputs if self.me.model.training else None
        again = self.me._step % (self.me.args.steps_per_generation * self.me.num_iterations) == 0
        if self.me.model.training and (again or before is None):
            self._finish()
            self.me.model.train()
        inputs = super()._prepare_inputs(generation_batch)  # type: ignore[misc]
        if self.me.model.training and self.me._buffered_inputs is not before:
            window = self.me.args.gradient_accumulation_steps
            for start in range(0, len(self.me._buffered_inputs), window):
                self._weigh(self.me._buffered_inputs[start : start + window])
        return inputs

    def _weigh(self, parts: Sequence[dict[str, Any]]) -> None:
        """Give the parts of one update the weights of their tokens, and which are chosen, among the tokens of all processes."""

        def whole(name: str) -> Tensor:
            return self._together.stacked(torch.cat([part[name] for part in parts])).unsqueeze(1)

        mask = whole("rlviz_mask")
        # DDP takes the mean of the processes' gradients, and the update is their sum
        columns = {"rlviz_weights": self.algorithm.aggregate(mask) * self._together.count}
        if self.algorithm.can.choose is not None:
            chosen = self.algorithm.chosen(whole("advantages"), whole("old_per_token_logps"), mask)
            columns["rlviz_chosen"] = cast(Tensor, chosen)
        ours, sizes = self._together.own(len(mask)), [len(part["rlviz_mask"]) for part in parts]
        for name, values in columns.items():
            for part, own in zip(parts, values.squeeze(1)[ours].split(sizes), strict=True):
                part[name] = own

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if "rlviz_mask" not in inputs:  # an evaluation, whose loss is TRL's own and trains nothing
            return super()._compute_loss(model, inputs)  # type: ignore[misc]
        logp, entropy, _ = self._of_model(model, inputs)
        old, ref, mask = inputs.get("old_per_token_logps"), inputs.get("ref_per_token_logps"), inputs["rlviz_mask"]
        old = logp.detach() if old is None else old
        if self.algorithm.asks_for("surrogate", "entropy") and not entropy.requires_grad:
            raise ValueError(
                f"{label(self.algorithm.surrogate)} needs the entropy's gradient, which this model's forward does not give"
            )
        given = {
            "old_logp": old,
            "advantages": inputs["advantages"],
            "mask": mask,
            "ref_logp": ref,
            "weights": inputs["rlviz_weights"],
            "entropy": entropy,
            "chosen": inputs.get("rlviz_chosen"),
            "sampler_logp": inputs.get("sampling_per_token_logps"),
        }
        batch = Batch(**{name: each.unsqueeze(1) for name, each in given.items() if each is not None})
        out = self.algorithm.loss(logp.unsqueeze(1), batch)
        sums = {"tokens": float(mask.sum()), "entropy": float((entropy.detach() * mask).sum())}
        sums |= {
            f"clip_ratio/{side}_mean": float(getattr(out, f"clipped_{side}").sum()) for side in ("low", "high", "dual")
        }
        if ref is not None:
            sums["kl"] = float(k3(logp.detach(), ref)[mask].sum())
        tokens, *told = self._together.summed(list(sums.values()))
        for name, value in zip(list(sums)[1:], told, strict=True):
            self.me._metrics["train"][name].append(value / max(1, tokens))
        if self.out is not None:
            place = SimpleNamespace(mask=mask.unsqueeze(1), old_logp=old.unsqueeze(1), tokens=inputs["completion_ids"])
            self._updates += Updates.one(out, logp.unsqueeze(1), place)
            self._updates += Updates(tokens=int(mask.sum()))
        return out.loss

    # what is kept

    def _finish(self) -> None:
        """Write the step of the rollout whose updates are done, if there is one and it is to be kept."""
        if self.out is None:
            return
        updates, self._updates = self._together.updates(self._updates), Updates()
        if self._record is not None:
            self._record.finish(self, updates)

    def _maybe_log_save_evaluate(self, tr_loss: Any, grad_norm: Any, *given: Any, **named: Any) -> Any:
        before, self._counted = self._counted, self.me.state.global_step
        if self.out is not None and self._counted != before:  # at the end of an epoch it is called once more
            self._updates += Updates(count=1, grad_norm=float(grad_norm or 0.0))
        if self._record is not None:
            self._record.lr = self.me._get_learning_rate()
        return super()._maybe_log_save_evaluate(tr_loss, grad_norm, *given, **named)  # type: ignore[misc]

    def train(self, *given: Any, **named: Any) -> Any:
        resumes = named.get("resume_from_checkpoint", given[0] if given else None)
        if self.out is not None and not resumes:
            self._together.on_main(lambda: cast(_Recorder, self._record).check_new())
        result = super().train(*given, **named)  # type: ignore[misc]
        self._finish()
        if self._record is not None:
            self._record.folder.release("has done its steps")
        return result

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        me = self.me
        whole = me._step % (me.args.steps_per_generation * me.num_iterations) == 0
        if whole:  # a step is on the disk before a checkpoint says that it was done
            self._finish()
            me.model.train()
        super()._save_checkpoint(model, trial)  # type: ignore[misc]
        if not me.args.should_save:
            return
        # in the midst of a rollout, whose samples no checkpoint has: as it was before, for that rollout will be sampled anew
        visits, draws = (self._visits, self._draw.getstate()) if whole else self._begun
        folder = Path(me._get_output_dir(trial=trial)) / f"checkpoint-{me.state.global_step}"
        step = None if self._record is None else self._record.step
        write_json(folder / PLACE, {"step": step, "draws": draws})
        if visits:
            told = {
                prompt: {name: value.tolist() for name, value in vars(part).items()} for prompt, part in visits.items()
            }
            write_json(folder / HISTORY, told)

    def _get_train_sampler(self, *given: Any, **named: Any) -> Any:
        self._sampler = super()._get_train_sampler(*given, **named)  # type: ignore[misc]
        return self._sampler

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)  # type: ignore[misc]
        if checkpoint is None:
            return
        history, place, device = Path(checkpoint) / HISTORY, Path(checkpoint) / PLACE, self.me.accelerator.device
        self._visits.clear()
        if history.is_file():
            kinds = {name: value.dtype for name, value in vars(PromptHistory.empty(1)).items()}
            for prompt, told in json.loads(history.read_text(encoding="utf-8")).items():
                self._visits[prompt] = PromptHistory(
                    **{name: torch.tensor(told[name], dtype=kind, device=device) for name, kind in kinds.items()}
                )
        if place.is_file():
            version, numbers, gauss = json.loads(place.read_text(encoding="utf-8"))["draws"]
            self._draw.setstate((version, tuple(numbers), gauss))
        state = json.loads((Path(checkpoint) / "trainer_state.json").read_text(encoding="utf-8"))
        generator = getattr(getattr(self, "_sampler", None), "generator", None)
        if generator is not None:  # TRL's sampler begins again with the order of the first epoch
            for _ in range(int(state["epoch"])):
                torch.randperm(self._sampler.num_samples, generator=generator)
        self._counted = int(state["global_step"])
        if self.out is not None:
            self._together.on_main(
                lambda: cast(_Recorder, self._record).go_on(Path(checkpoint), int(state["global_step"]))
            )


class _Recorder:
    """The run folder of a carried run: a step a rollout, written when its updates are done."""

    def __init__(self, trainer: Any) -> None:
        args, passes = trainer.args, trainer.num_iterations
        minibatches = args.steps_per_generation // args.gradient_accumulation_steps
        updates = minibatches * passes
        self.settings = TrainSettings(
            steps=max(1, args.max_steps // updates) if args.max_steps > 0 else 1,
            num_prompts=args.generation_batch_size // trainer.num_generations,
            group_size=trainer.num_generations,
            max_new_tokens=args.max_completion_length,
            temperature=args.temperature,
            updates_per_rollout=updates,
            minibatches=minibatches,
            lr=args.learning_rate,
            lr_warmup_steps=int(args.warmup_steps) // updates if args.warmup_steps >= 1 else 0,
            max_grad_norm=args.max_grad_norm or 1e9,
            evaluate_every=0,
            seed=args.seed,
            details_every=trainer.details_every,
            details_groups=trainer.details_groups,
        )
        self.config = {
            "rlviz": rlviz.__version__,
            "task": trainer.reward_func_names[0],
            "policy": str(getattr(trainer.model.config, "_name_or_path", "") or type(trainer.model).__name__),
            "algorithm": to_json(trainer.algorithm),
            "settings": vars(self.settings),
            "path": "transformers",
            "carried": {"trl": CHECKED["trl"]},
        }
        self.step, self.tokens, self.lr = 0, 0, 0.0
        self.told: Rollout | None = None
        self.gold: dict[str, str] = {}
        self.began = time.perf_counter()
        try:
            self.folder = RunFolder.create(trainer.out)
        except FileExistsError:
            if not (Path(trainer.out) / "config.json").is_file() or "carried" not in RunFolder.open(trainer.out).config:
                raise
            self.folder = RunFolder.open(trainer.out)  # to read: whether it is gone on with, `train` says
        else:
            self.folder.finish_beginning(self.config)

    def check_new(self) -> None:
        """Raise FileExistsError where the folder holds another run, or this one has ended."""
        if self.folder.lock is None or self.folder.lock.why_not is not None:
            raise FileExistsError(
                f"out: {self.folder.path} holds a run: go on with it by train(resume_from_checkpoint=…), or name a new folder"
            )

    def go_on(self, checkpoint: Path, updates: int) -> None:
        """Take the folder up where this checkpoint of so many updates is: later steps leave it.

        Raises ValueError where it holds a run of another algorithm. Warns where the checkpoint is in the midst of a rollout.
        """
        path, config = self.folder.path, self.folder.config
        if config["algorithm"] != json.loads(json_text(self.config["algorithm"])):
            raise ValueError(
                f"out: {path} holds a run of another algorithm, {config['algorithm'].get('name')}; name its own folder"
            )
        file = checkpoint / PLACE
        step = json.loads(file.read_text(encoding="utf-8"))["step"] if file.is_file() else None
        self.step = updates // self.settings.updates_per_rollout if step is None else step
        if updates % self.settings.updates_per_rollout:
            warnings.warn(
                f"{checkpoint.name} is in the midst of a rollout, whose samples are not kept: step {self.step + 1} is sampled "
                f"anew. With save_steps a multiple of {self.settings.updates_per_rollout} a run goes on as if it had not been "
                "cut off",
                stacklevel=2,
            )
        self.folder = RunFolder.open_to_write(path)
        self.folder.forget_after(self.step)
        if config["settings"] != json.loads(json_text(self.config["settings"])):
            self.folder.finish_beginning(self.config)
        metrics = self.folder.metrics
        self.tokens = int(metrics["tokens_sampled"].iloc[-1]) if len(metrics) else 0
        self.told, self.began = None, time.perf_counter()

    def rollout(
        self,
        trainer: Any,
        output: dict[str, Any],
        rows: Sequence[dict[str, Any]],
        rewards: Tensor,
        advantages: Tensor,
        chosen: Tensor,
        mask: Tensor,
        truncated: Tensor,
        rounds: int,
    ) -> None:
        """Keep what was sampled, on the CPU, until its updates are done."""
        size, there = mask.shape[1], output["completion_mask"].bool().view(mask.shape)
        old, ref = output["old_per_token_logps"].view(mask.shape), output.get("ref_per_token_logps")
        drawn = output.get("sampling_per_token_logps")
        first = trainer._scores()[:, 0].view(mask.shape[:2])
        formed = trainer._rule("well_formed")
        good = torch.ones_like(first) if formed is None else formed.view(first.shape)
        texts = [_text(completion) for _, completions in trainer._scored for completion in completions]
        prompts = [_text(row["prompt"]) for row in rows[::size]]
        self.gold = {prompt: _gold(row) for prompt, row in zip(prompts, rows[::size], strict=True)}
        seen = trainer.algorithm.loss_mask(mask, truncated)
        samples = Samples(
            prompt_ids=output["prompt_ids"][::size].cpu(),
            prompt_mask=output["prompt_mask"][::size].bool().cpu(),
            tokens=output["completion_ids"].view(mask.shape).cpu(),
            mask=mask.cpu(),
            logp=old.float().cpu(),
            entropy=output["rlviz_entropy"].view(mask.shape).float().cpu(),
            truncated=truncated.cpu(),
            observed=(there & ~mask).cpu(),
        )
        sampled = Sampled(
            places=torch.arange(len(mask)),
            prompts=prompts,
            samples=samples,
            texts=[texts[start : start + size] for start in range(0, len(texts), size)],
            grades=[
                [Grade(format=bool(f > RIGHT), correct=bool(c > RIGHT)) for f, c in zip(*pair, strict=True)]
                for pair in zip(good.tolist(), first.tolist(), strict=True)
            ],
            outcomes=trainer._outcomes().view(first.shape).cpu(),
            selected=chosen.cpu(),
            rounds=rounds,
        )
        self.told = Rollout(
            sampled,
            rewards=rewards.float().cpu(),
            kl=float("nan") if ref is None else float(k3(old, ref.view(mask.shape))[mask].mean()),
            prompt_ids=samples.prompt_ids,
            prompt_mask=samples.prompt_mask,
            owner=torch.arange(len(mask)),
            tokens=samples.tokens,
            mask=seen.cpu(),
            old_logp=samples.logp,
            advantages=advantages.float().cpu(),
            sampler_logp=None if drawn is None else drawn.view(mask.shape).float().cpu(),
            ref_logp=None if ref is None else ref.view(mask.shape).float().cpu(),
        )

    def finish(self, trainer: Any, updates: Updates) -> None:
        """Write the step of the rollout with which these updates were done, if there is one."""
        rollout, self.told = self.told, None
        if rollout is None or not updates.count:
            self.began = time.perf_counter()
            return
        self.step += 1
        self.tokens += int(rollout.samples.mask.sum())
        count = min(self.settings.details_groups, len(rollout.rewards))
        every, step = self.settings.details_every, self.step
        tokens: Sequence[int] = ()
        if every and step % every == 0:
            tokens = range(count)
        elif every and step % self.settings.watch_every == 0:
            tokens = [watched_group(rollout.rewards[:count])]
        with paths.computing("transformers"):
            groups = group_records(
                trainer.algorithm,
                Policy(trainer.accelerator.unwrap_model(trainer.model), trainer._tokenizer, "trl"),
                cast(Task, SimpleNamespace(gold=lambda prompt: self.gold.get(prompt, ""))),
                rollout,
                count,
                self.settings,
                tokens=tokens,
            )
        self.folder.append(
            StepRecord(
                **rollout_numbers(rollout) | updates.numbers(),
                step=step,
                seconds=time.perf_counter() - self.began,
                held_out_accuracy=None,
                lr=self.lr,
                tokens_sampled=self.tokens,
                groups=groups,
                beta=trainer.algorithm.beta,
                rows_used=len(rollout.sampled.selected) / len(rollout.rewards),
            )
        )
        self.began = time.perf_counter()


def _key(row: dict[str, Any]) -> str:
    """Return a prompt as a text that tells it from others."""
    prompt = row["prompt"]
    return prompt if isinstance(prompt, str) else json.dumps(prompt, sort_keys=True, default=str)


def _text(said: Any) -> str:
    """Return a prompt or completion as text: of a conversation what was said, a turn a paragraph."""
    if isinstance(said, str):
        return said
    return "\n\n".join(str(turn.get("content") or "") for turn in said)


def _gold(row: dict[str, Any]) -> str:
    """Return the right answer of a row where it stands under one of the usual names."""
    return next(
        (str(row[name]) for name in ("answer", "solution", "gold", "ground_truth") if row.get(name) is not None), ""
    )


def _joined(parts: Sequence[dict[str, Any]], pad: int) -> dict[str, Any]:
    """Return the rollouts of several rounds as one, padded to the longest."""
    if len(parts) == 1:
        return parts[0]

    def join(name: str) -> Tensor:
        values = [part[name] for part in parts]
        if values[0].dim() < 2:
            return torch.cat(values) if values[0].dim() else torch.stack(values).sum()
        width = max(value.shape[1] for value in values)
        fill = pad if name.endswith("_ids") else 0
        sides = [(width - v.shape[1], 0) if SIDES.get(name) == "left" else (0, width - v.shape[1]) for v in values]
        return torch.cat([F.pad(value, side, value=fill) for value, side in zip(values, sides, strict=True)])

    return {name: join(name) for name in parts[0]}
