"""DPO's run takes each pair as often as any other."""

import re
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DPO
from rlviz.training import PairSettings, train
from rlviz.training.preferences import encoded_logp
from small_models.pairs import Pair, make_pairs
from small_models.policies import load_policy
from small_models.tasks import Chain

TASK = Chain()
SHORT = PairSettings(steps=6, batch_size=8, lr=1e-3, lr_warmup_steps=0, evaluate_every=3, checkpoint_every=2)


@pytest.fixture(scope="module")
def pairs():
    return make_pairs(load_policy("chain", device="cpu"), TASK, 20, seed=1)


def start(pairs, algorithm=DPO, settings=SHORT, **kwargs):
    return train(load_policy("chain", device="cpu"), TASK, algorithm, settings, pairs=pairs, **kwargs)


@pytest.mark.parametrize("batch_size", [4, 3], ids=["two batches", "two batches and two left over"])
def test_every_pair_is_used_before_one_comes_again(pairs, batch_size, monkeypatch):
    from rlviz.training import preferences as module

    seen = []

    def spy(policy, part):
        for ids in torch.cat([part.prompt_ids, part.tokens.flatten(1)], 1):
            prompt, chosen, rejected, *_ = re.split(r"[=$]", policy.tokenizer.decode(ids).replace("<pad>", ""))
            seen.append(Pair(f"{prompt}=", chosen, rejected))
        return encoded_logp(policy, part)

    run = start(pairs[:8], settings=replace(SHORT, steps=8, batch_size=batch_size, evaluate_every=0))
    monkeypatch.setattr(module, "encoded_logp", spy)
    list(run)
    assert len(seen) == 8 * batch_size
    for at in range(0, len(seen), 8):
        assert sorted(map(str, seen[at : at + 8])) == sorted(map(str, pairs[:8]))
    assert seen[:8] != seen[8:16]
