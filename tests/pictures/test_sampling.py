"""Prices of informative groups and what batches hold, against a plain count, over the same draws."""

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, DUPO, GRPO
from rlviz.page.names import drawn
from rlviz.pictures.sampling import PROMPTS, SAMPLING, STEPS, explore_sampling, past_draws, replacement_price

KINDS = ("fresh", "repeated", "remembered", "dead")


@pytest.mark.parametrize("q", [0.03, 0.6, 0.0, 1.0])
def test_the_price_step_by_step(q):
    wanted, rounds = 4, 2
    # the chance of having found k after each group, wanted ones being the end
    chance, sampled = np.eye(wanted + 1)[0], 0.0
    for _ in range(wanted * rounds):
        going = chance[:-1].copy()
        sampled += going.sum()
        chance[:-1] -= q * going
        chance[1:] += q * going
    price = replacement_price(torch.tensor([q], dtype=torch.double), wanted, rounds)
    assert price.item() == pytest.approx(sampled / wanted, rel=1e-9)


@pytest.mark.parametrize(("p", "spread", "visits"), [(0.9, 0.0, 3), (0.9, 0.6, 1), (0.5, 1.0, 10)])
def test_batches_by_a_plain_count(p, spread, visits):
    size, away = 4, spread * min(p, 1 - p)
    coins, kinds, earlier = (
        drawn(draws, {}) for draws in (*list(SAMPLING.data.values())[1:], *past_draws(DCPO).values())
    )
    sampled_groups, counts = 0, dict.fromkeys((DAPO, GRPO, DUPO, DCPO), 0)
    for step in range(STEPS):
        rate = np.where(kinds[step] < 0.5, p - away, p + away)
        right = (coins[step, :, :, :size] < rate[..., None]).reshape(-1, size).sum(1)
        mixed = (right > 0) & (right < size)
        sampled_groups += next((n for n in range(PROMPTS, len(mixed)) if mixed[:n].sum() == PROMPTS), len(mixed))
        before = (earlier[step, :, : visits - 1, :size] < rate[0][:, None, None]).sum((1, 2)) + right[:PROMPTS]
        n, remembered = mixed[:PROMPTS].sum(), (~mixed[:PROMPTS] & (before > 0) & (before < visits * size)).sum()
        informative, full = min(mixed.sum(), PROMPTS), PROMPTS * (n > 0)
        counts[DAPO] += np.array([informative, 0, 0, 0])  # of KINDS
        counts[GRPO] += np.array([n, 0, 0, PROMPTS - n])
        counts[DUPO] += np.array([n, full - n, 0, PROMPTS - full])
        counts[DCPO] += np.array([n, 0, remembered, PROMPTS - n - remembered])
    for algorithm, groups in counts.items():
        shares, sampled = groups / STEPS / PROMPTS, sampled_groups / STEPS / PROMPTS if algorithm is DAPO else 1.0
        setting = {"success_rate": p, "spread": spread, "group_size": size, "visits": visits, "beside": ()}
        names = explore_sampling(algorithm, **setting).names()
        assert [names.one(kind) for kind in KINDS] == pytest.approx(shares, abs=1e-12), algorithm.name
        assert [names.one(f"{kind}_top") for kind in KINDS] == pytest.approx(shares.cumsum(), abs=1e-12)
        assert names.one("alive") == pytest.approx(shares[:3].sum(), abs=1e-12)
        responses = names.one("sampled"), names.one("sampled_responses"), names.one("wanted")
        assert responses == pytest.approx((sampled, sampled * 64, 64), rel=1e-12)
        share = 1 - sum((p + s * away) ** size + (1 - p - s * away) ** size for s in (-1, 1)) / 2
        assert names.one("informative") == pytest.approx(share, abs=1e-12)
        price = replacement_price(torch.tensor([share], dtype=torch.double))
        assert names.one("replaced") == pytest.approx(price.item(), rel=1e-9)
        assert names.one("can_remember") == (algorithm is DCPO)
    # a visit changes nothing where no group is all equal
    assert explore_sampling(DCPO, group_size=64).names().one("can_remember") == 0
