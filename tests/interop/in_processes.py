"""Carried runs for the test of several processes: `python -m tests.interop.in_processes OUT`, by itself or under torchrun.

Sampling is a function of prompt, place in the group and update, so that one process and two see the same responses.
"""

from __future__ import annotations

import contextlib
import os
import sys
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import trl.trainer.grpo_trainer
from safetensors.torch import save_model

from rlviz import DAPO, DCPO, DR_GRPO, GRPO, KL_COV, LITE_PPO, REINFORCE_PP, TrainSettings
from rlviz.training.files import write_json
from tests.interop.carried_runs import NEW, OWN_LIMITS, CutOff, Precise, built, correct

WORLD = int(os.environ.get("WORLD_SIZE", "1"))


def of_the_batch(rewards):
    """An advantage of one's own: over the mean and the largest difference of the whole rollout."""
    away = rewards - rewards.mean()
    return away / away.abs().amax().clamp(min=1e-6)


OWN = replace(OWN_LIMITS, advantage=of_the_batch)
DYNAMIC = replace(DAPO, shape=None)
CASES: dict[str, tuple[Any, dict[str, Any]]] = {  # of a run: the algorithm, and what is not as in the others
    "GRPO": (GRPO, {}),
    "DAPO": (DYNAMIC, {"chance": True}),
    "Lite PPO": (LITE_PPO, {}),
    "DCPO": (DCPO, {"rows": 6, "chance": True}),  # prompts come again, with their history
    "Dr.GRPO": (DR_GRPO, {"accumulation": 2}),
    "REINFORCE++": (REINFORCE_PP, {}),
    "KL-Cov": (KL_COV, {"accumulation": 2}),
    "Own": (OWN, {"chance": True}),
    "straddling": (DYNAMIC, {"prompts": 3, "chance": True}),  # the second group is half in each process
    "threes": (DYNAMIC, {"size": 3, "chance": True}),  # one further group of three is sampled twice, and counts once
    "minibatches": (OWN, {"minibatches": 2, "accumulation": 2, "chance": True}),
}


def by_chance(prompts, completions, **_):
    """Differ within the groups of odd prompts alone, so that dynamic sampling has to go on."""
    return [
        float(zlib.crc32(f"{p}{c}".encode()) % 2 * (int(p[0]) % 2)) for p, c in zip(prompts, completions, strict=True)
    ]


by_chance.__name__ = "correct"


class Same(Precise):
    """Samples by Gumbel noise that prompt, place and update decide."""

    @torch.no_grad()
    def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
        first = self.accelerator.process_index * len(prompt_ids)
        model, ends = self.accelerator.unwrap_model(self.model), set(self.eos_token_ids)
        said: list[list[int]] = []
        for row, prompt in enumerate(prompt_ids):
            seed = zlib.crc32(repr((prompt, (first + row) % self.num_generations, self.state.global_step)).encode())
            noise = torch.rand(NEW, model.config.vocab_size, generator=torch.Generator().manual_seed(seed))
            tokens: list[int] = []
            while len(tokens) < NEW and not ends.intersection(tokens):
                logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1]
                tokens.append(int((logits.double() - (-noise[len(tokens)].double().log()).log()).argmax()))
            said.append(tokens)
        return said, None


def built_here(
    algorithm: Any, out: Path, prompts: int = 4, rows: int = 60, minibatches: int = 1, accumulation: int = 1,
    chance: bool = False, size: int = 4, **changed: Any,
) -> Any:  # fmt: skip
    """Return a carried trainer of so many prompts a rollout, whatever the processes.

    size: responses a group. rows: prompts in the training set. chance: rewards by chance, of even prompts alone.
    """
    settings = TrainSettings(
        num_prompts=prompts,
        group_size=size,
        steps=3,
        updates_per_rollout=2,
        minibatches=minibatches,
        max_new_tokens=NEW,
        lr_warmup_steps=0,
    )
    part = prompts * size // minibatches // accumulation // WORLD
    return built(
        algorithm, f"{out}.trl", settings, accumulation, out=out, rewards=(by_chance if chance else correct,), prompts=rows,
        trainer=Same, per_device_train_batch_size=part, **changed,
    )  # fmt: skip


def keep(trainer: Any, out: Path) -> None:
    """Write a run's weights, what was logged and the history, from the main process."""
    if trainer.accelerator.is_main_process:
        save_model(trainer.accelerator.unwrap_model(trainer.model), f"{out}.safetensors")
        write_json(Path(f"{out}.json"), trainer.state.log_history)


def shared_out(rows: dict[str, Any]) -> dict[str, Any]:
    """Return a rollout in an order in which a minibatch has the same responses in one process and in two."""
    if WORLD > 1:
        return rows
    order = (
        torch.arange(len(rows["rlviz_mask"])).view(2, 2, -1).transpose(0, 1).flatten()
    )  # process, minibatch, response
    return {name: value[order] if value.dim() else value for name, value in rows.items()}


def main(folder: Path, names: list[str]) -> None:
    for name in names or CASES:
        algorithm, changed = CASES[name]
        own = trl.trainer.grpo_trainer.shuffle_sequence_dict
        if name == "minibatches":
            trl.trainer.grpo_trainer.shuffle_sequence_dict = shared_out
        trainer = built_here(algorithm, folder / name, **changed)
        trainer.train()
        trl.trainer.grpo_trainer.shuffle_sequence_dict = own
        keep(trainer, folder / name)
    if WORLD > 1:  # in one process the whole run is what this one is compared with
        algorithm, changed = CASES["DCPO"]
        out, saved = folder / "resumed", {"save_strategy": "steps", "save_steps": 2}
        trainer = built_here(algorithm, out, **changed, **saved)
        trainer.add_callback(CutOff(after=5))
        with contextlib.suppress(KeyboardInterrupt):
            trainer.train()
        trainer = built_here(algorithm, out, **changed, **saved)
        trainer.train(resume_from_checkpoint=f"{out}.trl/checkpoint-4")
        keep(trainer, out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
