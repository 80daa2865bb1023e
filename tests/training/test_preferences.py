"""DPO's run: the loss on the right tensors, the reference once, each pair as often as any other, the same curve after a stop."""

import math
import re
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import DPO, DPO_LINEAR
from rlviz.training import PairSettings, train
from rlviz.training.preferences import encoded_logp, pair_logp
from small_models.pairs import Pair, make_pairs
from small_models.policies import load_policy
from small_models.sampling import encode_prompts, encode_responses, response_logits
from small_models.tasks import Chain

TASK = Chain()
SHORT = PairSettings(steps=6, batch_size=8, lr=1e-3, lr_warmup_steps=0, evaluate_every=3, checkpoint_every=2)


@pytest.fixture(scope="module")
def pairs():
    return make_pairs(load_policy("chain", device="cpu"), TASK, 20, seed=1)


def start(pairs, algorithm=DPO, settings=SHORT, **kwargs):
    return train(load_policy("chain", device="cpu"), TASK, algorithm, settings, pairs=pairs, **kwargs)


def by_hand(policy, prompt, text):
    """Return log π of one response by a loop over its tokens, the end of sequence included."""
    ids, mask = encode_prompts(policy, [prompt])
    tokens, _ = encode_responses(policy, [text])
    with torch.no_grad():
        logits = response_logits(policy, ids, mask, tokens)[0, 0].double()
    return sum(float(row.log_softmax(-1)[token]) for row, token in zip(logits, tokens[0, 0], strict=True))


@pytest.mark.parametrize("algorithm", [DPO, DPO_LINEAR], ids=lambda algorithm: algorithm.name)
def test_a_step_is_what_a_slow_loop_makes_of_it(algorithm, pairs):
    """The second step by plain loops: the first one's weights, the start's log-probabilities as reference."""
    algorithm = algorithm.with_parameters(beta=0.5)
    everyone = replace(SHORT, batch_size=len(pairs), max_grad_norm=0.5)  # order has no part in the loss
    run, twin = start(pairs, algorithm, everyone), start(pairs, algorithm, everyone)
    next(run), next(twin)
    record = next(run)
    model = twin.policy.model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    optimizer.state.update(twin.state.optimizers[0].state)  # what the first step left
    margins, gains, total = [], [], 0.0
    logp = pair_logp(twin.policy, pairs)
    seen = logp.detach().mean(0).tolist()
    for place, pair in enumerate(pairs):
        ref = [by_hand(twin.start, pair.prompt, text) for text in (pair.chosen, pair.rejected)]
        gain = [logp[place, side] - ref[side] for side in (0, 1)]
        margin = 0.5 * (gain[0] - gain[1])
        loss = -margin if algorithm.name == "DPO (linear)" else torch.log1p(torch.exp(-margin))
        total = total + loss / len(pairs)
        margins.append(float(margin.detach()))
        gains.append([float(value.detach()) for value in gain])
    optimizer.zero_grad()
    total.backward()
    norm = float(sum(p.grad.square().sum() for p in model.parameters()).sqrt())
    for parameter in model.parameters():
        parameter.grad *= min(1.0, 0.5 / norm)
    optimizer.step()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(run.policy.model.state_dict()[name], tensor, rtol=2e-3, atol=3e-5)
    assert record.loss == pytest.approx(float(total.detach()), rel=1e-4)
    assert record.grad_norm == pytest.approx(norm, rel=1e-3)
    assert record.margin == pytest.approx(sum(margins) / len(pairs), abs=1e-4)
    assert record.pair_accuracy == pytest.approx(sum(m > 0 for m in margins) / len(pairs))
    assert record.chosen_gain == pytest.approx(sum(g[0] for g in gains) / len(pairs), abs=1e-4)
    assert record.rejected_gain == pytest.approx(sum(g[1] for g in gains) / len(pairs), abs=1e-4)
    assert record.chosen_reward == pytest.approx(0.5 * record.chosen_gain, abs=1e-5)
    assert record.chosen_logp == pytest.approx(seen[0], abs=1e-4)
    assert record.rejected_logp == pytest.approx(seen[1], abs=1e-4)
    fading = sum(1 / (1 + math.exp(margin)) for margin in margins) / len(margins)
    assert record.pull == pytest.approx(fading if algorithm.name == "DPO" else 1.0, rel=1e-3)


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
