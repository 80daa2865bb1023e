"""Ask TRL 1.16.0 and verl 0.9.1 themselves: `python -m tests.interop.measure` writes the frozen batch, their losses and
gradients on it (cases.json, gradients.safetensors), and how far they are from ours (rlviz/interop/measured.json).

Needs trl 1.16.0 and the wheel of verl 0.9.1 unpacked on the path (`pip install --no-deps`): verl's functions are cut out of its
core_algos.py, since importing it asks for ray. TRL's are the trainer's own, given the frozen log-probabilities.
"""

from __future__ import annotations

import ast
import json
import logging
import tempfile
import types
import warnings
from collections import defaultdict
from collections.abc import Iterator
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
from rlviz.algorithms import ALGORITHMS, DPO, GRPO, RELATIVES, GroupPolicyGradient, PolicyGradient
from rlviz.algorithms.describe import to_json
from rlviz.interop.carrying import carried
from rlviz.interop.exporting import Export
from rlviz.interop.trl import to_trl
from rlviz.interop.verl import ACTOR, ROLLOUT, to_verl
from rlviz.pieces.advantages import GroupAdvantage
from rlviz.pieces.preference import response_logp
from rlviz.pieces.surrogate import DualClip
from rlviz.training import PairSettings, TrainSettings
from small_models.pairs import make_pairs
from small_models.policies import load_policy
from small_models.sampling import encode_prompts, encode_responses, response_logits, sample, token_logp
from small_models.tasks import Chain
from tests.interop.batch import HERE, Frozen, compared, frozen, ours, selected, shaped

P, G = 8, 8
SETTINGS = TrainSettings(num_prompts=P, group_size=G, updates_per_rollout=2)
FAMILY = [a for a in (*ALGORITHMS, *RELATIVES) if isinstance(a, PolicyGradient)]
OF_GROUPS = [a for a in FAMILY if isinstance(a, GroupPolicyGradient)]
SCALED = [a for a in OF_GROUPS if isinstance(a.advantage, GroupAdvantage) and a.advantage.scale != "none"]
EPS = [a.with_parameters(eps=1e-4) for a in SCALED]
KEPT = [replace(a, name=f"{a.name}, all groups", select=GRPO.select) for a in EPS if a.select is not GRPO.select]
DUAL = replace(EPS[0], name="GRPO, dual clip 2", surrogate=DualClip(c=2.0))
HOW = (
    "on one batch of 64 real responses (chain, 8 prompts × 8, seed 0; the new policy's weights moved by .01 · "
    "N(0, 1), a tenth of its "
    "tokens clipped), in float64, with the library's own code (tests/interop/measure.py)"
)


def make_batch() -> None:
    """Sample the batch and keep it."""
    policy, task = load_policy("chain", device="cpu"), Chain()
    prompts = task.train_prompts[:P]
    samples = sample(
        policy, prompts, group_size=G, max_new_tokens=task.max_new_tokens, generator=torch.Generator().manual_seed(0)
    )
    texts = samples.texts(policy)
    correct = [[float(task.grade(p, t).correct) for t in row] for p, row in zip(prompts, texts, strict=True)]
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in policy.weights.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
        logp = token_logp(response_logits(policy, **samples.place), samples.tokens)
        reference = load_policy("chain", device="cpu")
        for parameter in reference.weights.parameters():
            parameter.add_(0.01 * torch.randn_like(parameter))
        ref_logp = token_logp(response_logits(reference, **samples.place), samples.tokens)
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


def in_trl(algorithm: GroupPolicyGradient, batch: Frozen, trainer: type[Any], **changed: Any) -> tuple[Tensor, Tensor]:
    """Return the loss of a trainer of TRL with the exported fields, and its gradient by the new log-probabilities."""
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
    fields = {**(export.fields if trainer is GRPOTrainer else export.of_settings), **changed}
    if len(rewards) == 1:
        fields.pop("reward_weights", None)
    ids = [[5] * count for count in length]
    for row, (cut, count) in enumerate(zip(batch.truncated.flatten().tolist(), length, strict=True)):
        if not cut:
            ids[row][count - 1] = policy.tokenizer.eos_token_id
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(output_dir=folder, use_cpu=True, report_to="none", **fields)
        rows = [{"prompt": f"{prompt}="} for prompt in range(P) for _ in range(G)]
        built = trainer(policy.model, reward_funcs=rewards, args=config, train_dataset=Dataset.from_list(rows),
                        processing_class=policy.tokenizer)  # fmt: skip
        built._generate = lambda prompts: (
            [[6, 7]] * len(prompts),
            ids,
            None,
            ["x"] * len(prompts),
            None,
            {},
            None,
            None,
        )
        entropy = batch.entropy.flatten(0, 1).requires_grad_()
        frozen_rows = {
            "old_per_token_logps": batch.old_logp.flatten(0, 1),
            "ref_per_token_logps": batch.ref_logp.flatten(0, 1),
        }
        built._get_per_token_logps_and_entropies = lambda *_, **__: (
            batch.old_logp.flatten(0, 1),
            entropy.detach(),
            None,
        )
        built.model.train()
        built.current_gradient_accumulation_steps = 1
        if hasattr(built, "algorithm"):  # ours scores with old and reference log-probabilities, which TRL's does not
            given = list(frozen_rows.values())
            built._get_per_token_logps_and_entropies = lambda model, *_, **__: (
                given[0] if model is built.model else given[1],
                entropy.detach(),
                None,)  # fmt: skip
            built._draw.randrange = lambda _: 0  # the seed of the selection, as in `ours`
            scored, chosen = built._generate_and_score_completions(rows), rows_taken(algorithm, batch)
            window = scored["rlviz_mask"].unsqueeze(1)
            scored |= {"rlviz_weights": algorithm.aggregate(window).squeeze(1)}
        else:
            scored = built._generate_and_score_completions(rows)
            chosen = torch.arange(P * G)
        scored |= {name: value[chosen] for name, value in frozen_rows.items()}
        built._get_per_token_logps_and_entropies = lambda *_, **__: (leaf[chosen], entropy[chosen], None)
        if hasattr(built, "algorithm") and algorithm.can.choose is not None:
            three = (scored[name].unsqueeze(1) for name in ("advantages", "old_per_token_logps", "rlviz_mask"))
            scored["rlviz_chosen"] = algorithm.chosen(*three).squeeze(1)
        assert scored["completion_ids"].shape[1] == longest
        loss = built._compute_loss(built.model, scored)
        loss.backward()
    return loss.detach(), leaf.grad.view(batch.mask.shape)


def rows_taken(algorithm: GroupPolicyGradient, batch: Frozen) -> Tensor:
    """Return which of the batch's rows the carried trainer takes: those of selected groups, then of others, without weight."""
    chosen = selected(algorithm, batch)
    spare = [group for group in range(P) if group not in set(chosen.tolist())]
    groups = torch.tensor([*chosen.tolist(), *spare[: P - len(chosen)]])
    return (groups.unsqueeze(1) * G + torch.arange(G)).flatten()


def verl_functions() -> dict[str, Any]:
    """Return the functions of verl's core_algos.py and torch_functional.py, without what they import."""
    root = Path(find_spec("verl").submodule_search_locations[0])  # type: ignore[union-attr,index]
    space: dict[str, Any] = {"torch": torch, "np": np, "defaultdict": defaultdict}

    def take(file: str, wanted: Any) -> None:
        tree = ast.parse((root / file).read_text())
        body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and wanted(node.name)]
        for node in body:
            node.decorator_list, node.returns = [], None
            for argument in (*node.args.args, *node.args.kwonlyargs):
                argument.annotation = None
        exec(compile(ast.Module(body, []), file, "exec"), space)

    take("utils/torch_functional.py", lambda name: name.startswith("masked_"))
    space["verl_F"] = types.SimpleNamespace(**{name: space[name] for name in space if name.startswith("masked_")})
    space |= {"AlgoConfig": type("AlgoConfig", (), {}), "ActorConfig": Config}
    take("trainer/ppo/core_algos.py", lambda name: name.startswith(("compute_", "agg_loss", "kl_penalty")))
    return space


class Config(dict):  # type: ignore[type-arg]
    """A config of verl: options as items and as attributes."""

    __getattr__ = dict.get


ESTIMATORS = {
    "grpo": "compute_grpo_outcome_advantage",
    "rloo": "compute_rloo_outcome_advantage",
    "opo": "compute_opo_outcome_advantage",
    "reinforce_plus_plus_baseline": "compute_reinforce_plus_plus_baseline_outcome_advantage",
    "reinforce_plus_plus": "compute_reinforce_plus_plus_outcome_advantage",
}


def in_verl(algorithm: PolicyGradient, batch: Frozen, verl: dict[str, Any]) -> tuple[Tensor, Tensor] | None:
    """Return verl's loss of the exported options and its gradient by the new log-probabilities; None where it has no
    estimator."""
    export = to_verl(algorithm, SETTINGS)
    fields = {name.removeprefix("algorithm."): value for name, value in export.fields.items()}
    actor = Config({name.removeprefix(ACTOR): value for name, value in fields.items() if name.startswith(ACTOR)})
    if fields.get("adv_estimator") not in (*ESTIMATORS, "gae") or ROLLOUT + "calculate_log_probs" in fields:
        return None  # no such estimator; or weights of a sampler, which this batch has not
    chosen = torch.arange(P) if export.at("select").fit == "inexpressible" else selected(algorithm, batch)
    leaf = batch.logp.clone().requires_grad_()
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
        more = (
            {"norm_adv_by_std_in_grpo": fields["norm_adv_by_std_in_grpo"]}
            if "norm_adv_by_std_in_grpo" in fields
            else {}
        )
        estimate = verl[ESTIMATORS[fields["adv_estimator"]]]
        named = (
            {"config": Config(gamma=fields["gamma"])}
            if fields["adv_estimator"] == "reinforce_plus_plus"
            else {"index": uid}
        )
        advantages, _ = estimate(scores.clone(), mask, **named, **more)
    config = Config(clip_ratio=0.2, **{name: value for name, value in actor.items() if "." not in name})
    config["policy_loss"] = Config(
        {name.partition(".")[2]: value for name, value in actor.items() if name.startswith("policy_loss.")}
    )
    config["global_batch_info"] = {"loss_scale_factor": actor.get("loss_scale_factor")}
    loss, _ = verl[f"compute_policy_loss_{actor['policy_loss.loss_mode']}"](
        old, logp, advantages, mask, actor["loss_agg_mode"], config
    )
    if actor["entropy_coeff"]:
        bonus = verl["agg_loss"](
            batch.entropy[chosen].flatten(0, 1), mask, actor["loss_agg_mode"], **config["global_batch_info"]
        )
        loss = loss - actor["entropy_coeff"] * bonus
    if actor["use_kl_loss"]:
        penalty = verl["kl_penalty"](logp, ref, actor["kl_loss_type"])
        loss = loss + actor["kl_loss_coef"] * verl["agg_loss"](
            penalty, mask, actor["loss_agg_mode"], **config["global_batch_info"]
        )
    loss.backward()
    return loss.detach(), leaf.grad


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

    def logps(of: Any, responses: list[str]) -> Tensor:
        ids, there = encode_prompts(of, [pair.prompt for pair in pairs])
        tokens, mask = encode_responses(of, responses)
        return response_logp(token_logp(response_logits(of, ids, there, tokens), tokens), mask).squeeze(1)

    def slope() -> Tensor:
        return torch.cat([p.grad.flatten().double() for p in policy.model.parameters()])

    with torch.no_grad():
        references = [logps(start, each) for each in texts]
    new = [logps(policy, each) for each in texts]
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


def asked(batch: Frozen) -> Iterator[tuple[PolicyGradient, Export, str, tuple[Tensor, Tensor]]]:
    """Give an algorithm, its export, the way it was run, and what the library made of it."""
    verl = verl_functions()
    for algorithm in [*OF_GROUPS, *EPS, *KEPT, DUAL]:
        export = to_trl(algorithm, SETTINGS)
        if not algorithm.asks_for("advantage", "sampler_logp"):
            yield algorithm, export, "exported", in_trl(algorithm, batch, GRPOTrainer)
    for algorithm in OF_GROUPS:
        yield (
            algorithm,
            to_trl(algorithm, SETTINGS),
            "carried",
            in_trl(algorithm, batch, carried(GRPOTrainer, algorithm)),
        )
    for algorithm in FAMILY:
        theirs = in_verl(algorithm, batch, verl)
        if theirs is not None:
            yield algorithm, to_verl(algorithm, SETTINGS), "exported", theirs


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    make_batch()
    batch, rows, cases, gradients = frozen(), [], [], {}
    for place, (algorithm, export, way, theirs) in enumerate(asked(batch)):
        apart = compared(ours(algorithm, batch), theirs)
        rows.append({"algorithm": to_json(algorithm), "to": export.to, "way": way, **apart})
        cases.append(
            {
                "name": algorithm.name,
                "algorithm": to_json(algorithm),
                "to": export.to,
                "way": way,
                "fields": export.of_settings if way == "carried" else export.fields,
                "loss": float(theirs[0]),
            }
        )
        gradients[str(place)] = theirs[1].float().contiguous()
        eight = {line.slot: line.fit for line in export.slots[:8] if line.fit != "exact"}
        print(f"{export.to:5} {way:9} {algorithm.name:24} loss {apart['loss']:.1e} gradient {apart['gradient']:.1e} "
              f"cosine {apart['cosine']:.6f} {eight}", flush=True)  # fmt: skip
    save_file(gradients, HERE / "gradients.safetensors")
    (HERE / "pairs.json").write_text(json.dumps(in_dpo()) + "\n")
    (HERE / "cases.json").write_text(f"[\n{_rows(cases)}\n]\n")
    told = f'{{"how": {json.dumps(HOW, ensure_ascii=False)}, "rows": [\n{_rows(rows)}\n]}}\n'
    (Path(rlviz.interop.__path__[0]) / "measured.json").write_text(told)


def _rows(rows: list[dict[str, Any]]) -> str:
    return ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)


if __name__ == "__main__":
    main()
