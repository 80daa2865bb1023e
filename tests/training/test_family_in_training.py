"""Every algorithm of the family in the training loop, and what only some of them ask of it."""

import json
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, GRPO, GSPO
from rlviz.pieces.advantages import SmoothStandardization
from rlviz.pieces.bounds import no_bounds
from rlviz.training import TrainSettings, history, train
from small_models.policies import load_policy
from small_models.tasks import Chain

NO_KL = replace(GRPO, kl=None)
SHORT = TrainSettings(
    steps=3,
    num_prompts=6,
    group_size=4,
    updates_per_rollout=2,
    minibatches=2,
    evaluate_every=0,
    lr_warmup_steps=0,
    lr=1e-3,
)


class FewPrompts(Chain):
    """So few that every rollout visits each of them."""

    name = "few"

    def all_prompts(self):
        return list(super().all_prompts())[:7]


def start(algorithm, settings=SHORT, task=None, **kwargs):
    return train(load_policy("chain", device="cpu"), task or Chain(), algorithm, settings, **kwargs)


@pytest.mark.parametrize("algorithm", [DAPO, DCPO, GSPO], ids=lambda a: a.name)  # each kind of limits and of ratio
def test_it_learns(algorithm):
    settings = TrainSettings(steps=24, num_prompts=12, lr=5e-4, evaluate_every=0, details_every=0, lr_warmup_steps=3)
    accuracy = history(list(start(replace(algorithm, kl=None), settings)))["accuracy"]
    assert accuracy[-8:].mean() > accuracy[:4].mean() + 0.1


def test_the_history_of_a_prompt_is_carried_from_visit_to_visit():
    run = start(DCPO, task=FewPrompts())
    piece, seen = SmoothStandardization(), {}
    shared = 0
    for _ in range(3):
        rollout = run.collect()
        for p, prompt in enumerate(rollout.sampled.prompts):
            rewards = rollout.rewards[p : p + 1]
            expected, after = piece(rewards, seen.get(prompt))
            torch.testing.assert_close(rollout.advantages[p, :, 0], expected[0])
            shared += prompt in seen and not torch.equal(expected, piece(rewards)[0])
            seen[prompt] = after
    assert len(seen) == 6 and shared > 0
    assert run.state.history.visits.tolist() == [3] * 6


def test_no_upper_limit_is_null_in_the_samples(tmp_path):
    run = start(replace(NO_KL, bounds=no_bounds), replace(SHORT, steps=1, details_every=1), out=tmp_path / "run")
    record = next(run)
    token = record.group[0].tokens[0]
    assert token.upper is None and token.lower == 0 and not token.clipped
    line = (tmp_path / "run" / "samples.jsonl").read_text()
    json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
