"""Ask TRL 1.16.0 and verl 0.9.1 themselves: `python -m tests.interop.measure` writes the frozen batch, their losses and
gradients on it (cases.json, gradients.safetensors), and how far they are from ours (rlviz/interop/measured.json).

Needs trl 1.16.0 and the wheel of verl 0.9.1 unpacked on the path (`pip install --no-deps`): verl's functions are cut out
of its files, since importing them asks for ray. TRL's are the trainer's own, given the frozen log-probabilities.
"""

from __future__ import annotations

import ast
import enum
import functools
import json
import logging
import os
import tempfile
import types
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from safetensors.torch import save_file
from torch import Tensor
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer
from trl.rewards import get_soft_overlong_punishment

import rlviz.interop
from rlviz.algorithms import (
    ALGORITHMS,
    DAPO,
    DPO,
    GRPO,
    RELATIVES,
    TIS,
    GroupPolicyGradient,
    PolicyGradient,
    find_algorithm,
)
from rlviz.algorithms.describe import to_json
from rlviz.interop.carrying import carried, in_one_rollout
from rlviz.interop.exporting import Export
from rlviz.interop.trl import to_trl
from rlviz.interop.verl import ACTOR, to_verl
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.mismatch import sequence_weight
from rlviz.pieces.preference import response_logp
from rlviz.pieces.surrogate import DualClip
from rlviz.training import PairSettings, TrainSettings
from small_models.pairs import make_pairs
from small_models.policies import load_policy
from small_models.sampling import encode_prompts, encode_responses, response_logits, token_logp
from small_models.tasks import Chain
from tests.interop.batch import (
    BADLY_FORMED,
    HERE,
    Frozen,
    G,
    P,
    compared,
    frozen,
    move,
    ours,
    sampled,
    selected,
    shaped,
)

SETTINGS = TrainSettings(num_prompts=P, group_size=G, updates_per_rollout=2, lr=3e-4)
# the batch has no tool's tokens, without which one that learns them is GRPO
FAMILY = [a for a in (*ALGORITHMS, *RELATIVES) if isinstance(a, PolicyGradient) and not a.learns_observations]
WITH_GROUPS = [a for a in FAMILY if isinstance(a, GroupPolicyGradient)]
SCALED = [a for a in WITH_GROUPS if isinstance(a.advantage, GroupAdvantage) and a.advantage.scale != "none"]
EPS = [a.with_parameters(eps=1e-4) for a in SCALED]
ALL_GROUPS = [replace(a, name=f"{a.name}, all groups", select=GRPO.select) for a in EPS if a.select is not GRPO.select]
DUAL = replace(EPS[0], name="GRPO, dual clip 2", surrogate=DualClip(c=2.0))
FROM_3 = DAPO.with_parameters(max_length=9, cache=6, eps=1e-4)  # so that groups which are all wrong have advantages
PUNISHED = replace(FROM_3, name="DAPO, punished from 3 tokens on")
STRONG = replace(
    find_algorithm("entropy-bonus").with_parameters(entropy_weight=1.0, eps=1e-4), name="Entropy bonus of weight 1"
)
WHOLE = replace(TIS, name="TIS, whole responses", advantage=replace(TIS.advantage, ratio=sequence_weight))
HOW = (
    "on one batch of 64 real responses (chain, 8 prompts × 8, seed 0; the new policy's weights moved by .01 · "
    "N(0, 1), a tenth of its "
    "tokens clipped), in float64, with the library's own code (tests/interop/measure.py)"
)


Answer = tuple[Tensor, Tensor, Tensor | None]  # loss, gradient by log-probabilities, by entropies where there are any


def make_batch() -> None:
    """Sample the batch and keep it."""
    policy, task = load_policy("chain", device="cpu"), Chain()
    samples = sampled(policy)
    texts = samples.texts(policy)
    correct = [
        [float(task.grade(p, t).correct) for t in row] for p, row in zip(task.train_prompts[:P], texts, strict=True)
    ]
    move(policy)
    with torch.no_grad():
        logp = token_logp(response_logits(policy, **samples.model_inputs), samples.tokens)
        reference = load_policy("chain", device="cpu")
        for parameter in reference.weights.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
        ref_logp = token_logp(response_logits(reference, **samples.model_inputs), samples.tokens)
    tensors = {
        "logp": logp.double(),
        "old_logp": samples.logp.double(),
        "ref_logp": ref_logp.double(),
        "mask": samples.mask,
        "values": 0.1 * torch.randn(samples.mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.double),
        "correct": torch.tensor(correct, dtype=torch.double),
        "truncated": samples.truncated,
    }
    tensors = {name: value.masked_fill(~samples.mask, 0.0) if value.dim() == 3 and value.is_floating_point() else value
               for name, value in tensors.items()}  # fmt: skip
    save_file({name: value.contiguous() for name, value in tensors.items()}, HERE / "batch.safetensors")


def in_trl(algorithm: GroupPolicyGradient, batch: Frozen, trainer: type[Any], **changed: Any) -> Answer:
    """Return the loss of a trainer of TRL with the exported fields, and its gradients by new log-probabilities and entropies."""
    export = to_trl(algorithm, SETTINGS)
    policy = load_policy("chain", device="cpu")
    longest, length = batch.mask.shape[-1], batch.lengths.flatten().tolist()
    leaf = batch.logp.flatten(0, 1).clone().requires_grad_()

    def correct(prompts: list[str], **_: Any) -> list[float]:
        return batch.correct.flatten().tolist()

    def well_formed(prompts: list[str], **_: Any) -> list[float]:
        return batch.well_formed.flatten().tolist()

    rewards = [correct]
    if trainer is GRPOTrainer:
        known = {"get_soft_overlong_punishment": get_soft_overlong_punishment, "well_formed": well_formed}
        rewards += [eval(reward, {}, known) for reward in export.rewards]
    elif algorithm.asks_for("shape", "well_formed") or algorithm.asks_for("advantage", "well_formed"):
        rewards.append(well_formed)
    fields = {**(export.fields if trainer is GRPOTrainer else export.run_fields), **changed}
    if len(rewards) == 1:
        fields.pop("reward_weights", None)
    ids = [[5] * count for count in length]
    for row, (cut, count) in enumerate(zip(batch.truncated.flatten().tolist(), length, strict=True)):
        if not cut:
            ids[row][count - 1] = policy.tokenizer.eos_token_id
    rows = batch.sampler_logp.flatten(0, 1).tolist()
    drawn = [row[:count] for row, count in zip(rows, length, strict=True)]
    sampler = drawn if algorithm.asks_for("advantage", "sampler_logp") else None
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(output_dir=folder, use_cpu=True, report_to="none", **fields)
        rows = [{"prompt": f"{prompt}="} for prompt in range(P) for _ in range(G)]
        built = trainer(policy.model, reward_funcs=rewards, args=config, train_dataset=Dataset.from_list(rows),
                        processing_class=policy.tokenizer)  # fmt: skip
        sampled_texts = [[6, 7]] * len(rows), ids, None, ["x"] * len(rows), sampler, {}, None, None
        built._generate = lambda prompts: sampled_texts
        entropy = batch.entropy.flatten(0, 1).requires_grad_()
        frozen_rows = {
            "old_per_token_logps": batch.old_logp.flatten(0, 1),
            "ref_per_token_logps": batch.ref_logp.flatten(0, 1),
        }
        old = batch.old_logp.flatten(0, 1)
        built._get_per_token_logps_and_entropies = lambda *_, **__: (old, entropy.detach(), None)
        built.model.train()
        built.current_gradient_accumulation_steps = 1
        if hasattr(built, "algorithm"):  # ours scores with old log-probabilities, where TRL's leaves them out
            by_model = list(frozen_rows.values())
            built._get_per_token_logps_and_entropies = lambda model, *_, **__: (
                by_model[0] if model is built.model else by_model[1],
                entropy.detach(),
                None,
            )
        scored = built._generate_and_score_completions(rows)
        chosen = rows_taken(algorithm, batch) if hasattr(built, "algorithm") else torch.arange(P * G)
        scored |= {name: value[chosen] for name, value in frozen_rows.items()}
        built._buffered_inputs = [scored]  # one part, which is a whole update
        built._get_per_token_logps_and_entropies = lambda *_, **__: (leaf[chosen], entropy[chosen], None)
        assert scored["completion_ids"].shape[1] == longest
        loss = built._compute_loss(built.model, scored)
        loss.backward()
    by_entropy = None if entropy.grad is None else entropy.grad.view(batch.mask.shape)
    return loss.detach(), leaf.grad.view(batch.mask.shape), by_entropy


def rows_taken(algorithm: GroupPolicyGradient, batch: Frozen) -> Tensor:
    """Return which of the batch's rows the carried trainer takes: those of selected groups, then of others, without weight."""
    chosen = selected(algorithm, batch)
    spare = [group for group in range(P) if group not in set(chosen.tolist())]
    groups = torch.tensor([*chosen.tolist(), *spare[: P - len(chosen)]])
    return (groups.unsqueeze(1) * G + torch.arange(G)).flatten()


def verl_functions() -> dict[str, Any]:
    """Return the functions and classes of verl that are asked, cut out of its files without what these import."""
    root = Path(find_spec("verl").submodule_search_locations[0])  # type: ignore[union-attr,index]
    space: dict[str, Any] = {
        "torch": torch, "np": np, "os": os, "defaultdict": defaultdict, "partial": functools.partial, "Enum": enum.Enum,
        "Any": Any, "Callable": Callable, "logger": logging.getLogger("verl"), "SAFETY_BOUND": 20.0,
    }  # fmt: skip

    def take(file: str, wanted: Any) -> None:
        tree = ast.parse(f"from __future__ import annotations\n{(root / file).read_text()}")
        body: list[ast.stmt] = [tree.body[0]]
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and wanted(node.name):
                node.decorator_list = [d for d in node.decorator_list if ast.unparse(d).startswith("dataclass")]
                body.append(node)
        exec(compile(ast.Module(body, []), file, "exec"), space)

    take("utils/torch_functional.py", lambda name: name.startswith("masked_"))
    space["verl_F"] = types.SimpleNamespace(**{name: space[name] for name in space if name.startswith("masked_")})
    space |= {"AlgoConfig": type("AlgoConfig", (), {}), "ActorConfig": Config}
    take("trainer/ppo/core_algos.py", lambda name: name.startswith(("compute_", "agg_loss", "kl_penalty")))
    weights = ("compute_offpolicy_metrics", "compute_rollout_correction_weights", "compute_is_metrics")
    take("trainer/ppo/rollout_corr_helper.py", lambda name: name in (*weights, "_parse_rollout_is_threshold"))
    return space


class Config(dict):  # type: ignore[type-arg]
    """A config of verl: options as items and as attributes."""

    __getattr__ = dict.get


ESTIMATORS = {
    "gdpo": "compute_gdpo_outcome_advantage",
    "grpo": "compute_grpo_outcome_advantage",
    "rloo": "compute_rloo_outcome_advantage",
    "opo": "compute_opo_outcome_advantage",
    "reinforce_plus_plus_baseline": "compute_reinforce_plus_plus_baseline_outcome_advantage",
    "reinforce_plus_plus": "compute_reinforce_plus_plus_outcome_advantage",
}


def in_verl(algorithm: PolicyGradient, batch: Frozen, verl: dict[str, Any]) -> Answer | None:
    """Return verl's loss of the exported options and its gradients, as `in_trl` does; None where it has no estimator."""
    export = to_verl(algorithm, SETTINGS)
    fields = {name.removeprefix("algorithm."): value for name, value in export.fields.items()}
    actor = Config({name.removeprefix(ACTOR): value for name, value in fields.items() if name.startswith(ACTOR)})
    if fields.get("adv_estimator") not in (*ESTIMATORS, "gae"):
        return None  # no such estimator
    chosen = torch.arange(P) if export.at("select").fit == "inexpressible" else selected(algorithm, batch)
    leaf, entropy = batch.logp.clone().requires_grad_(), batch.entropy.requires_grad_()
    logp, old, ref = (values[chosen].flatten(0, 1) for values in (leaf, batch.old_logp, batch.ref_logp))
    mask = batch.mask[chosen].flatten(0, 1).double()
    last = (torch.arange(mask.shape[1]) * mask).argmax(1, keepdim=True)
    scores = torch.zeros_like(mask).scatter(1, last, shaped(algorithm, batch)[chosen].flatten().unsqueeze(1))
    if fields["use_kl_in_reward"]:
        scores = scores - fields["kl_ctrl.kl_coef"] * verl["kl_penalty"](old, ref, fields["kl_penalty"]) * mask
    uid = np.repeat(np.arange(len(chosen)), G)
    if fields["adv_estimator"] == "gae":
        values = batch.values[chosen].flatten(0, 1)
        advantages, _ = verl["compute_gae_advantage_return"](scores, values, mask, fields["gamma"], fields["lam"])
    else:
        more = {name: fields[name] for name in ("norm_adv_by_std_in_grpo",) if name in fields}
        estimate = verl[ESTIMATORS[fields["adv_estimator"]]]
        kinds = {
            "right": batch.correct[chosen].flatten().numpy(),
            "formed": batch.well_formed[chosen].flatten().numpy(),
        }
        named = {
            "reinforce_plus_plus": {"config": Config(gamma=fields["gamma"])},
            "gdpo": {
                "index": uid,
                "config": Config(gdpo_reward_keys=list(kinds)),
                "non_tensor_batch": kinds,
                "batch": {"prompts": mask[:, :0], "attention_mask": mask.long()},
            },
        }.get(fields["adv_estimator"], {"index": uid})
        advantages, _ = estimate(scores.clone(), mask, **named, **more)
    config = Config(clip_ratio=0.2, **{name: value for name, value in actor.items() if "." not in name})
    config["policy_loss"] = Config(
        {name.partition(".")[2]: value for name, value in actor.items() if name.startswith("policy_loss.")}
    )
    config["global_batch_info"] = {"loss_scale_factor": actor.get("loss_scale_factor")}
    weights = None
    if (level := fields["rollout_correction.rollout_is"]) is not None:
        threshold, sampler = fields["rollout_correction.rollout_is_threshold"], batch.sampler_logp[chosen].flatten(0, 1)
        weights, _ = verl["compute_rollout_correction_weights"](old - sampler, mask, level, threshold)
    loss, _ = verl[f"compute_policy_loss_{actor['policy_loss.loss_mode']}"](
        old, logp, advantages, mask, actor["loss_agg_mode"], config, weights
    )
    if actor["entropy_coeff"]:
        bonus = verl["agg_loss"](
            entropy[chosen].flatten(0, 1), mask, actor["loss_agg_mode"], **config["global_batch_info"]
        )
        loss = loss - actor["entropy_coeff"] * bonus
    if actor["use_kl_loss"]:
        penalty = verl["kl_penalty"](logp, ref, actor["kl_loss_type"])
        loss = loss + actor["kl_loss_coef"] * verl["agg_loss"](
            penalty, mask, actor["loss_agg_mode"], **config["global_batch_info"]
        )
    loss.backward()
    return loss.detach(), leaf.grad, entropy.grad


def in_dpo() -> dict[str, Any]:
    """Return what TRL's DPOTrainer makes of 16 pairs: its loss, its gradient's length by the weights, and both of ours."""
    start, policy = load_policy("chain", device="cpu"), load_policy("chain", device="cpu")
    pairs = make_pairs(start, Chain(), 16, seed=0)
    start.model.double(), policy.model.double()
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
    texts = [pair.chosen for pair in pairs], [pair.rejected for pair in pairs]

    def logps(model: Any, responses: list[str]) -> Tensor:
        ids, attention = encode_prompts(model, [pair.prompt for pair in pairs])
        tokens, mask = encode_responses(model, responses)
        return response_logp(token_logp(response_logits(model, ids, attention, tokens), tokens), mask).squeeze(1)

    def slope() -> Tensor:
        return torch.cat([p.grad.flatten().double() for p in policy.model.parameters()])

    with torch.no_grad():
        references = [logps(start, responses) for responses in texts]
    new = [logps(policy, responses) for responses in texts]
    loss = DPO.loss(*new, *references).loss
    loss.backward()
    mine = slope()
    policy.model.zero_grad()
    with tempfile.TemporaryDirectory() as folder:
        config = DPOConfig(
            output_dir=folder, use_cpu=True, report_to="none", **to_trl(DPO, PairSettings(batch_size=16)).fields
        )
        rows = [{"prompt": pair.prompt, "chosen": pair.chosen, "rejected": pair.rejected} for pair in pairs]
        built = DPOTrainer(policy.model, start.model, args=config, train_dataset=Dataset.from_list(rows),
                           processing_class=policy.tokenizer)  # fmt: skip
        built.model.train()
        built.current_gradient_accumulation_steps = 1
        theirs = built.compute_loss(
            built.model, built.data_collator([built.train_dataset[place] for place in range(16)])
        )
        theirs.backward()
    off = float((slope() - mine).norm() / mine.norm())
    print(f"trl   exported  DPO loss {abs(float(loss) - float(theirs)):.1e} gradient {off:.1e}")
    named = zip(("chosen", "rejected", "ref_chosen", "ref_rejected"), (*new, *references), strict=True)
    return {"loss": float(theirs), "gradient": off, **{name: values.tolist() for name, values in named}}


def answers() -> Iterator[tuple[PolicyGradient, Export, str, str, Answer]]:
    """Give an algorithm, its export, the way it was run, on which rewards (`frozen`), and what the library made of it."""
    batch = frozen()
    verl = verl_functions()
    for algorithm in [*WITH_GROUPS, *EPS, *ALL_GROUPS, DUAL]:
        export = to_trl(algorithm, SETTINGS)
        if not algorithm.asks_for("advantage", "sampler_logp"):
            yield algorithm, export, "exported", "", in_trl(algorithm, batch, GRPOTrainer)
    for algorithm in map(in_one_rollout, WITH_GROUPS):
        theirs = in_trl(algorithm, batch, carried(GRPOTrainer, algorithm))
        yield algorithm, to_trl(algorithm, SETTINGS), "carried", "", theirs
    for algorithm in [*FAMILY, WHOLE]:
        theirs = in_verl(algorithm, batch, verl)
        if theirs is not None:
            yield algorithm, to_verl(algorithm, SETTINGS), "exported", "", theirs
    (dupo,) = (algorithm for algorithm in ALL_GROUPS if algorithm.name.startswith("DUPO"))
    for algorithm, which in ((PUNISHED, ""), (STRONG, ""), (dupo, BADLY_FORMED)):
        theirs = in_trl(algorithm, frozen(which), GRPOTrainer)
        yield algorithm, to_trl(algorithm, SETTINGS), "exported", which, theirs


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if not (HERE / "batch.safetensors").is_file():
        make_batch()
    rows, cases, gradients = [], [], {}
    for place, (algorithm, export, way, which, theirs) in enumerate(answers()):
        apart = compared(ours(algorithm, frozen(which)), theirs)
        on = {"batch": which} if which else {}
        rows.append({"algorithm": to_json(algorithm), "to": export.to, "way": way, **on, **apart})
        cases.append(
            {
                "name": algorithm.name,
                "algorithm": to_json(algorithm),
                "to": export.to,
                "way": way,
                **on,
                "fields": export.run_fields if way == "carried" else export.fields,
                "loss": float(theirs[0]),
            }
        )
        gradients[str(place)] = theirs[1].float().contiguous()
        if theirs[2] is not None:
            gradients[f"{place} by entropy"] = theirs[2].float().contiguous()
        eight = {line.slot: line.fit for line in export.slots[:8] if line.fit != "exact"}
        print(f"{export.to:5} {way:9} {algorithm.name:24} loss {apart['loss']:.1e} gradient {apart['gradient']:.1e} "
              f"cosine {apart['cosine']:.6f} {eight}", flush=True)  # fmt: skip
    save_file(gradients, HERE / "gradients.safetensors")
    (HERE / "pairs.json").write_text(json.dumps(in_dpo()) + "\n")
    (HERE / "cases.json").write_text(f"[\n{_rows(cases)}\n]\n")
    measured = f'{{"how": {json.dumps(HOW, ensure_ascii=False)}, "rows": [\n{_rows(rows)}\n]}}\n'
    (Path(rlviz.interop.__path__[0]) / "measured.json").write_text(measured)


def _rows(rows: list[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


if __name__ == "__main__":
    main()
