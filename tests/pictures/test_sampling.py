"""Prices of informative groups and what batches hold, against closed forms and a plain count over the same draws."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest
import torch

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, DUPO, GRPO
from rlviz.page.names import drawn
from rlviz.pictures.sampling import AT_A_POINT, SAMPLING, STEPS, always_full, explore_sampling, past, replacing

SHARES = ("fresh", "repeated", "remembered", "dead")


def shown(algorithm, **setting):
    """Return what is shown of an algorithm alone, by name: numbers and arrays."""
    explorer = explore_sampling(algorithm, **{"beside": (), **setting})
    outputs = explorer._outputs(explorer.key(), explorer.values)
    return {name: value.numpy() if value.numel() > 1 else value.item() for name, value in outputs.items()}


DRAWN = {
    name: drawn(draws, {})
    for name, draws in {**SAMPLING.data, **past(DCPO)}.items()
    if name not in ("sizes", "past_visits")
}


def outcomes(step, place, prompts, rates, size, before=0):
    """Return one group's outcomes so many visits before the latest, from the picture's own draws; place: in the whole step."""
    group = step, *divmod(place, prompts)
    rate = rates[0 if DRAWN["kinds"][group] < 0.5 else 1]
    row = DRAWN["earlier"][step, place, before - 1] if before else DRAWN["coins"][group]
    return [float(number < rate) for number in row[:size]]


def test_the_expected_price_by_hand():
    seen = shown(DAPO, group_size=2, success_rate=0.5, max_rounds=4)
    # half of the groups of two differ; of 64 nearly always 16, and at most they are 64
    assert seen["price"][49] == pytest.approx(2.0, rel=1e-4) and seen["rates"][49] == 0.5
    assert seen["replaced"] == pytest.approx(2.0, rel=1e-4) and seen["filled"] == pytest.approx(1.0, rel=1e-4)
    assert 3.99 < seen["price"][0] <= 4.0  # where sampling stops
    assert seen["informative"] == pytest.approx(0.5)
    # G = 2, p = ¼ and ¾: differ with 2 · ¼ · ¾ = .375 either way; p = 0 and 1: never
    assert shown(DAPO, group_size=2, success_rate=0.5, spread=0.5)["informative"] == pytest.approx(0.375)
    assert shown(DAPO, success_rate=0.5, spread=1.0)["informative"] == 0.0
    # 1 − .9⁸ − .1⁸ = .56953, and 10 · 16 groups are always enough: 128 / .56953 = 224.7 responses
    assert shown(DAPO)["replaced_responses"] == pytest.approx(224.7, abs=0.05)


@pytest.mark.parametrize(("wanted", "rounds"), [(4, 2), (32, 10), (7, 1), (1, 2)])
def test_replacing_step_by_step(wanted, rounds):
    # the chance of having found k after each group, wanted ones being the end
    for q in (0.03, 0.1, 0.6, 0.0, 1.0):
        found = np.zeros(wanted + 1)
        found[0], taken = 1.0, 0.0
        for _ in range(wanted * rounds):
            going = found[:-1].copy()
            taken += going.sum()
            found[:-1] -= q * going
            found[1:] += q * going
        numbers = (torch.tensor(float(each), dtype=torch.double) for each in (wanted, rounds))
        by_formula = [value.item() for value in replacing(torch.tensor([q], dtype=torch.double), wanted, *numbers)]
        expected = [taken / wanted, found @ np.arange(wanted + 1) / wanted]
        assert by_formula == pytest.approx(expected, rel=1e-9)


def test_sliders_move_the_picture_and_not_the_luck():
    for algorithm in (DAPO, GRPO, DUPO):
        start, other = shown(algorithm), shown(algorithm, visits=9)
        assert [other[name] for name in SHARES] == [start[name] for name in SHARES]
    start, other = shown(DCPO), shown(DCPO, visits=9)
    assert other["fresh"] == start["fresh"] and other["remembered"] > start["remembered"]
    for algorithm in (GRPO, DUPO, DCPO):
        assert shown(algorithm, max_rounds=3)["fresh"] == shown(algorithm)["fresh"]


def test_the_simulated_price_is_near_the_expected_one():
    seen = shown(DAPO)
    expected = np.interp(seen["points"], seen["rates"], seen["price"])
    error = expected**2 * np.sqrt((1 - 1 / expected) / expected / AT_A_POINT)  # of 1 / share, by its slope
    assert (np.abs(seen["simulated"] - expected) <= 4 * error + 0.01).all() and seen["simulated"].max() > 2.5
    for algorithm in (GRPO, DUPO, DCPO):
        np.testing.assert_allclose(shown(algorithm)["simulated"], 1.0, rtol=1e-12)


def test_a_selection_of_one_s_own_has_its_own_price_from_the_kernel():
    half = replace(GRPO, name="Mine", select=lambda rewards: (rewards[:, 0] == rewards[:, 1]).nonzero().squeeze(1))
    seen = shown(half, success_rate=0.5)
    assert seen["simulated"][4] == pytest.approx(2.0, rel=0.2) and seen["points"][4] == 0.5
    assert seen["sampled"] == pytest.approx(2.0, rel=0.1)
    explorer = explore_sampling(half)
    assert explorer.given()["variants"][explorer.key()]["program"] is None


def test_which_selections_fill_their_batches():
    assert [always_full(algorithm) for algorithm in (GRPO, DAPO, DUPO, DCPO)] == [True, False, True, True]
    assert not always_full(replace(GRPO, select=lambda rewards: torch.arange(len(rewards))))  # it does not say


@pytest.mark.parametrize(
    ("success_rate", "spread", "rounds"), [(0.9, 0.0, 10), (0.9, 0.6, 10), (0.97, 0.0, 3), (0.5, 1.0, 2)]
)
def test_sampling_on_by_a_plain_count(success_rate, spread, rounds):
    prompts, size, away = 16, 8, spread * min(success_rate, 1 - success_rate)
    sampled = filled = 0
    for step in range(STEPS):
        found = count = 0
        while found < prompts and count < prompts * rounds:
            group = outcomes(step, count, prompts, (success_rate - away, success_rate + away), size)
            found += 0 < sum(group) < size
            count += 1
        sampled += count
        filled += found
    seen = shown(DAPO, success_rate=success_rate, spread=spread, max_rounds=rounds)
    assert seen["sampled"] == pytest.approx(sampled / STEPS / prompts, rel=1e-12)
    assert seen["fresh"] == pytest.approx(filled / STEPS / prompts, rel=1e-12)
    assert seen["empty"] == pytest.approx(1 - filled / STEPS / prompts, abs=1e-12)
    assert (seen["repeated"], seen["remembered"], seen["dead"]) == (0, 0, 0)


def test_keeping_and_repeating_by_a_plain_count():
    prompts, size = 8, 4
    informative = [
        sum(0 < sum(outcomes(step, g, prompts, (0.9, 0.9), size)) < size for g in range(prompts))
        for step in range(STEPS)
    ]
    share, full = sum(informative) / STEPS / prompts, sum(n > 0 for n in informative) / STEPS
    grpo, dupo, dcpo = (shown(a, success_rate=0.9, group_size=size, num_prompts=prompts) for a in (GRPO, DUPO, DCPO))
    assert grpo["fresh"] == dupo["fresh"] == pytest.approx(share, rel=1e-12)
    assert grpo["dead"] == pytest.approx(1 - share, rel=1e-12)
    assert dupo["repeated"] == pytest.approx(full - share, rel=1e-9)
    assert dupo["dead"] == pytest.approx(1 - full, abs=1e-12)  # a step without any informative group keeps them all
    assert (grpo["sampled"], dupo["sampled"], dcpo["sampled"]) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("visits", [1, 2, 4])
def test_memory_by_a_plain_count(visits):
    # an all-equal group at visit i has only the total term: |A| = 1/i · |R − m| / √(m (1 − m)), m over its i·G rewards
    prompts, size, rates = 16, 8, (0.9, 0.9)
    remembered, dead, sizes = 0, 0, []
    for step in range(STEPS):
        for g in range(prompts):
            history = [outcomes(step, g, prompts, rates, size, before) for before in reversed(range(visits))]
            if 0 < sum(history[-1]) < size:
                continue
            m = sum(map(sum, history)) / (visits * size)
            if m in (0, 1):
                dead += 1
            else:
                remembered += 1
                sizes.append(abs(history[-1][0] - m) / sqrt(m * (1 - m)) / visits)
    seen = shown(DCPO, visits=visits)
    assert seen["remembered"] == pytest.approx(remembered / STEPS / prompts, rel=1e-12)
    assert seen["dead"] == pytest.approx(dead / STEPS / prompts, rel=1e-12)
    assert seen["fresh"] == pytest.approx(1 - (remembered + dead) / STEPS / prompts, rel=1e-12)
    assert seen["remembered_size"] == (
        pytest.approx(np.mean(sizes), rel=1e-9) if sizes else pytest.approx(np.nan, nan_ok=True)
    )


def test_words_at_several_settings():
    words = explore_sampling(GRPO, success_rate=0.5, group_size=2, num_prompts=32, beside=(DAPO,)).caption
    assert "50% of groups have right and wrong responses: GRPO samples 64 responses for a batch of 64, " in words
    assert "up to 320 groups in all, is expected to take 128 responses, 2.00 times as many, and to fill 100%" in words
    assert "DAPO (dynamic sampling): of the batch's places 100% informative, 0% repeats" in words
    nothing = explore_sampling(DAPO, success_rate=0.5, spread=1.0).caption
    assert "DAPO samples 1280 responses for a batch of 128, 0% of it with a gradient." in nothing
    assert "Half of the prompts have success rate 0.00, half 1.00." in nothing
    assert "to take 1280 responses, 10.00 times as many, and to fill 0% of the places." in nothing
    assert "GRPO (keep all): of the batch's places 0% informative, 0% repeats" in nothing
    assert "From memory the mean |A|" in explore_sampling(DCPO, visits=2).caption
    assert "From memory the mean |A|" not in explore_sampling(DR_GRPO, beside=(DCPO,), visits=1).caption
