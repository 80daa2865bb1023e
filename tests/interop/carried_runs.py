"""Carried runs of a small policy in float64. Needs TRL."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import torch
import trl

from rlviz import GRPO, TrainSettings
from rlviz.interop import carried, to_trl
from rlviz.pieces.aggregation import token_mean
from small_models.policies import load_policy
from small_models.tasks import Chain

TASK = Chain()
SETTINGS = TrainSettings(
    num_prompts=4, group_size=4, steps=4, updates_per_rollout=2, max_new_tokens=12, lr_warmup_steps=0
)


def narrow(old_logp):
    """Limits of one's own: the likelier a token, the further it may fall; the rarer, the further it may rise."""
    q = old_logp.exp()
    return 1 - 0.3 * q, 1 + 0.3 / q.sqrt()


OWN_LIMITS = replace(GRPO, name="Own", bounds=narrow, kl=None, aggregate=token_mean)


def correct(prompts, completions, **_):
    return [float(TASK.grade(p, c).correct) for p, c in zip(prompts, completions, strict=True)]


class Precise(trl.GRPOTrainer):
    """Takes log-probabilities in the model's own type: TRL 1.16's fused head has them in float32, whatever the model is in."""

    def _get_per_token_logps_and_entropies(self, model: Any, ids: Any, attention: Any, keep: int, **_: Any) -> Any:
        logp = model(input_ids=ids, attention_mask=attention).logits[:, -keep - 1 : -1].log_softmax(-1)
        return logp.gather(-1, ids[:, -keep:, None]).squeeze(-1), -(logp.exp() * logp).sum(-1), None


def built(
    algorithm: Any, folder: str | Path, settings: TrainSettings = SETTINGS, accumulation: int = 1, peft: Any = None,
    prompts: int = 6, trainer: type[Any] = trl.GRPOTrainer, **changed: Any,
) -> Any:  # fmt: skip
    """Return a carried trainer. prompts: in the training set. changed: options of GRPOConfig that are not as exported."""
    logging.disable(logging.WARNING)
    fields = to_trl(algorithm, settings, accumulation=accumulation).run_fields | {"learning_rate": 1e-3} | changed
    args = trl.GRPOConfig(
        output_dir=str(folder), use_cpu=True, report_to="none", disable_tqdm=True, logging_steps=1, save_strategy="no", **fields
    )  # fmt: skip
    policy = load_policy("chain", device="cpu")
    torch.manual_seed(0)
    return carried(trainer, algorithm)(
        policy.model.double(),
        reward_funcs=[correct],
        args=args,
        train_dataset=datasets.Dataset.from_list([{"prompt": p} for p in TASK.train_prompts[:prompts]]),
        processing_class=policy.tokenizer,
        peft_config=peft,
    )


def trained(trainer: Any) -> Any:
    torch.manual_seed(0)
    trainer.train()
    logging.disable(logging.NOTSET)
    return trainer
