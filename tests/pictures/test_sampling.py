"""Prices of informative groups and what batches hold, against closed forms and a plain count over the same draws."""

from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, DUPO, GRPO, GSPO, PPO
from rlviz.pictures.groups import coins
from rlviz.pictures.sampling import (
    AT_A_POINT,
    EACH,
    STEPS,
    SamplingPicture,
    explore_sampling,
    harder_prompts,
    informative_share,
    replacing,
    sampling_curve,
    two_kinds,
)

SHARES = ("fresh", "repeated", "remembered", "dead")


def batches(*arguments, **setting):
    return {batch.name: batch for batch in sampling_curve(*arguments, **setting).batches}


def outcomes(before, step, place, rates, size):
    """Return one group's outcomes so many visits before the latest, read from the shared draws one by one."""
    rate = rates[0 if harder_prompts()[step * EACH + place] else 1]
    return [float(number < rate) for number in coins(STEPS * EACH)[before, step * EACH + place, :size].tolist()]


def test_two_kinds_of_prompts():
    assert two_kinds(0.3, 0.0) == (0.3, 0.3)
    assert two_kinds(0.2, 1.0) == (0.0, 0.4)
    np.testing.assert_allclose(two_kinds(0.9, 0.5), (0.85, 0.95))


def test_the_informative_share_by_hand():
    # G = 2, p = ¼ and ¾: differ with 2 · ¼ · ¾ = .375 either way; G = 3, p = ½: 1 − 2/8
    assert informative_share(0.5, 0.5, 2) == pytest.approx(0.375)
    assert informative_share(0.5, 0.0, 3) == pytest.approx(0.75)
    assert informative_share(0.5, 1.0, 8) == 0.0


def test_the_expected_price_by_hand():
    curve = sampling_curve(DAPO, group_size=2, success_rate=0.5, max_rounds=4)
    middle = np.argmin(np.abs(curve.rates - 0.5))
    # half of the groups of two differ; of 64 nearly always 16, and at most they are 64
    assert curve.price[middle] == curve.replaced == pytest.approx(2.0, rel=1e-4)
    assert curve.filled == pytest.approx(1.0, rel=1e-4)
    assert curve.price[0] == pytest.approx(curve.price[-1])
    assert 3.99 < curve.price[0] <= 4.0  # where sampling stops
    assert curve.informative == pytest.approx(0.5)
    # 1 − .9⁸ − .1⁸ = .56953, and 10 · 16 groups are always enough: 128 / .56953 = 224.7 responses
    assert 128 * sampling_curve(DAPO).replaced == pytest.approx(224.7, abs=0.05)


def test_replacing_by_hand():
    # one group wanted, two at most, each with ½: half of the time the first will do, so 1.5; found with ¾
    taken, filled = replacing(np.array([0.5, 0.0, 1.0]), 1, 2)
    assert taken.tolist() == pytest.approx([1.5, 2.0, 1.0])
    assert filled.tolist() == pytest.approx([0.75, 0.0, 1.0])


@pytest.mark.parametrize(("wanted", "rounds"), [(4, 2), (32, 10), (7, 1)])
def test_replacing_step_by_step(wanted, rounds):
    # the chance of having found k after each group, wanted ones being the end
    for q in (0.03, 0.1, 0.6):
        found = np.zeros(wanted + 1)
        found[0], taken = 1.0, 0.0
        for _ in range(wanted * rounds):
            going = found[:-1].copy()
            taken += going.sum()
            found[:-1] -= q * going
            found[1:] += q * going
        by_formula = [float(value[0]) for value in replacing(np.array([q]), wanted, rounds)]
        expected = [taken / wanted, found @ np.arange(wanted + 1) / wanted]
        assert by_formula == pytest.approx(expected, rel=1e-9)


def test_sliders_move_the_picture_and_not_the_luck():
    start = batches(DAPO)
    other = batches(DAPO, visits=9)
    assert [other[name] for name in ("DAPO", "GRPO", "DUPO")] == [start[name] for name in ("DAPO", "GRPO", "DUPO")]
    assert other["DCPO"].fresh == start["DCPO"].fresh and other["DCPO"].remembered > start["DCPO"].remembered
    shorter = batches(DAPO, max_rounds=3)
    assert [shorter[name] for name in ("GRPO", "DUPO", "DCPO")] == [start[name] for name in ("GRPO", "DUPO", "DCPO")]


def test_kinds_of_prompts_are_equally_frequent():
    assert harder_prompts().double().mean() == pytest.approx(0.5, abs=4 * 0.5 / sqrt(STEPS * EACH))


def test_the_simulated_price_is_near_the_expected_one():
    curve = sampling_curve(DAPO)
    expected = np.interp(curve.points, curve.rates, curve.price)
    share = 1 / expected
    error = expected * np.sqrt(share * (1 - share) / AT_A_POINT) / share  # of 1 / share, by its slope
    assert (np.abs(curve.simulated - expected) <= 4 * error + 0.01).all()
    assert curve.simulated.max() > 2.5
    for algorithm in (GRPO, DUPO, DCPO):
        assert sampling_curve(algorithm).simulated.tolist() == [1.0] * len(curve.points)


def test_a_selection_of_one_s_own_has_its_own_price():
    half = replace(GRPO, name="Mine", select=lambda rewards: (rewards[:, 0] == rewards[:, 1]).nonzero().squeeze(1))
    curve = sampling_curve(half, success_rate=0.5)
    middle = curve.points.tolist().index(0.5)
    assert curve.simulated[middle] == pytest.approx(2.0, rel=0.2)
    assert [batch.name for batch in curve.batches] == ["Mine", "GRPO", "DAPO", "DUPO", "DCPO"]
    assert curve.batches[0].sampled == pytest.approx(2.0, rel=0.1)


def test_beside_the_explored_algorithm_stand_the_answers_that_it_does_not_give():
    assert list(batches(DAPO)) == ["DAPO", "GRPO", "DUPO", "DCPO"]
    assert list(batches(GSPO)) == ["GSPO", "DAPO", "DUPO", "DCPO"]  # selects and compares as GRPO does
    assert list(batches(DR_GRPO)) == ["Dr.GRPO", "GRPO", "DAPO", "DUPO", "DCPO"]
    assert batches(DCPO)["DCPO"].rules == "keep all + memory"
    assert batches(DCPO)["DAPO"].rules == "dynamic sampling"


@pytest.mark.parametrize(
    ("success_rate", "spread", "rounds"), [(0.9, 0.0, 10), (0.9, 0.6, 10), (0.97, 0.0, 3), (0.5, 1.0, 2)]
)
def test_sampling_on_by_a_plain_count(success_rate, spread, rounds):
    prompts, size = 16, 8
    rates = two_kinds(success_rate, spread)
    sampled = filled = 0
    for step in range(32):
        found = count = 0
        while found < prompts and count < prompts * rounds:
            group = outcomes(0, step, count, rates, size)
            found += 0 < sum(group) < size
            count += 1
        sampled += count
        filled += found
    batch = batches(DAPO, success_rate=success_rate, spread=spread, max_rounds=rounds)["DAPO"]
    assert batch.sampled == pytest.approx(sampled / 32 / prompts, rel=1e-12)
    assert batch.fresh == pytest.approx(filled / 32 / prompts, rel=1e-12)
    assert (batch.repeated, batch.remembered, batch.dead) == (0, 0, 0)


def test_keeping_and_repeating_by_a_plain_count():
    prompts, rounds, size = 8, 10, 4
    steps = 32
    informative, full = [], 0
    for step in range(steps):
        groups = [outcomes(0, step, g, (0.9, 0.9), size) for g in range(prompts)]
        informative.append(sum(0 < sum(group) < size for group in groups))
    share = sum(informative) / steps / prompts
    full = sum(n > 0 for n in informative) / steps
    found = batches(DAPO, success_rate=0.9, group_size=size, num_prompts=prompts, max_rounds=rounds)
    assert found["GRPO"].fresh == found["DUPO"].fresh == pytest.approx(share, rel=1e-12)
    assert found["GRPO"].dead == pytest.approx(1 - share, rel=1e-12)
    assert found["DUPO"].repeated == pytest.approx(full - share, rel=1e-9)
    assert found["DUPO"].dead == pytest.approx(
        1 - full, abs=1e-12
    )  # a step without any informative group keeps them all
    assert (found["GRPO"].sampled, found["DUPO"].sampled, found["DCPO"].sampled) == (1.0, 1.0, 1.0)


@pytest.mark.parametrize("visits", [1, 2, 4])
def test_memory_by_a_plain_count(visits):
    # an all-equal group at visit i has only the total term: |A| = 1/i · |R − m| / √(m (1 − m)), m over its i·G rewards
    prompts, size, p = 16, 8, 0.9
    remembered, dead, sizes = 0, 0, []
    for step in range(32):
        for g in range(prompts):
            history = [outcomes(before, step, g, (p, p), size) for before in reversed(range(visits))]
            if 0 < sum(history[-1]) < size:
                continue
            m = sum(map(sum, history)) / (visits * size)
            if m in (0, 1):
                dead += 1
            else:
                remembered += 1
                sizes.append(abs(history[-1][0] - m) / sqrt(m * (1 - m)) / visits)
    batch = batches(DCPO, visits=visits)["DCPO"]
    assert batch.remembered == pytest.approx(remembered / 32 / prompts, rel=1e-12)
    assert batch.dead == pytest.approx(dead / 32 / prompts, rel=1e-12)
    assert batch.fresh == pytest.approx(1 - (remembered + dead) / 32 / prompts, rel=1e-12)
    assert batch.remembered_size == (pytest.approx(np.mean(sizes), rel=1e-9) if sizes else None)


def test_the_expected_shares():
    # 1 − .9⁸ − .1⁸ = .5695; at visit 3 all 24 rewards are equal with .9²⁴ = .0798
    found = batches(DCPO, visits=3)["DCPO"]
    assert found.fresh == pytest.approx(0.5695, abs=4 * sqrt(0.57 * 0.43 / 512))
    assert found.dead == pytest.approx(0.0798, abs=4 * sqrt(0.08 * 0.92 / 512))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"success_rate": 1.0}, "success_rate must be from 0.01 to 0.99; got 1.0"),
        ({"spread": 1.5}, "spread must be from 0 to 1; got 1.5"),
        ({"group_size": 1}, "group_size must be from 2 to 64; got 1"),
        ({"num_prompts": 0}, "num_prompts must be from 1 to 32; got 0"),
        ({"max_rounds": 11}, "max_rounds must be from 1 to 10; got 11"),
        ({"visits": 11}, "visits must be from 1 to 10; got 11"),
        ({"algorithm": PPO}, "algorithm: PPO does not learn from groups"),
        ({"algorithm": replace(GRPO, name="Mine", select=lambda r: r)}, "select must return indices"),
    ],
)
def test_refusals(wrong, says):
    with pytest.raises(ValueError, match=says):
        sampling_curve(**{"algorithm": DAPO, **wrong})


@pytest.mark.parametrize("algorithm", [DAPO, DR_GRPO, DCPO], ids=lambda a: a.name)
def test_the_picture_is_the_curve(algorithm):
    picture = SamplingPicture(sampling_curve(DR_GRPO, success_rate=0.3))
    curve = sampling_curve(algorithm, success_rate=0.95)
    picture.show(curve)
    np.testing.assert_array_equal(picture.price.get_xydata(), np.column_stack([curve.rates, curve.price]))
    np.testing.assert_array_equal(picture.simulated.get_xydata(), np.column_stack([curve.points, curve.simulated]))
    assert set(picture.at.get_xdata()) == {0.95}
    assert set(picture.expected.get_xdata()) == {curve.informative}
    rows = len(curve.batches)
    for kind in SHARES:
        boxes = [path.vertices for path in picture.bars[kind].get_paths()]
        widths = [np.ptp(box[:, 0]) for box in boxes]
        shares = [getattr(batch, kind) for batch in curve.batches if getattr(batch, kind) > 0]
        np.testing.assert_allclose(widths, shares)
    for name, price, batch in zip(picture.names, picture.prices.texts, curve.batches, strict=False):
        assert name.get_text() == f"{batch.name}\n{batch.rules}"
        assert price == f"{batch.sampled * 128:,.0f}"
    assert len(picture.prices.texts) == rows
    assert {text.get_text() for text in picture.names[rows:]} <= {""}
    assert len(SamplingPicture.alone(curve).axes) == 2


def test_bars_of_a_row_lie_side_by_side():
    picture = SamplingPicture(sampling_curve(DCPO))
    boxes = {kind: picture.bars[kind].get_paths()[0].vertices[:, 0] for kind in ("fresh", "remembered")}
    assert boxes["fresh"].min() == 0
    assert boxes["fresh"].max() == boxes["remembered"].min()


def said(*arguments, **setting):
    curve = sampling_curve(*arguments, **setting)
    picture = SamplingPicture(curve)
    said = picture.conclusion(curve)
    assert 40 < len(said) <= 160 and said.endswith(".")
    return f"{said} {picture.words(curve)}"


def test_words_at_several_settings():
    words = said(GRPO, success_rate=0.5, group_size=2, num_prompts=32)
    assert words.startswith(
        "50% of groups have right and wrong responses: GRPO samples 64 responses for a batch of 64, of whose places "
    )
    assert (
        "GRPO at G = 2, prompts of success rate 0.50, in 32 simulated steps, each for 32 groups: of the batch's"
        in words
    )
    assert (
        "up to 320 groups in all, is expected to take 128 responses, 2.00 times as many, and to fill 100% of the places."
        in words
    )
    assert "In the same steps DAPO: 100% informative; " in words
    assert "to take 225 responses, 1.76 times as many" in said(DAPO)
    nothing = said(DAPO, success_rate=0.5, spread=1.0)
    assert "half of success rate 0.00, half of 1.00" in nothing
    assert "DAPO samples 1,280 responses for a batch of 128, of whose places 0% have a gradient." in nothing
    assert "of the batch's places 100% empty." in nothing
    assert "to take 1,280 responses, 10.00 times as many, and to fill 0% of the places." in nothing
    assert "GRPO: 100% without gradient; " in nothing
    assert "from memory" not in said(DCPO, visits=1)
    assert "gradient from memory (mean |A| 0." in said(DCPO, visits=2)


def test_the_success_rate_and_the_group_size_are_dragged():
    explorer = explore_sampling()

    def drag(handle, place):
        explorer.asked = {"turn": explorer.answered + 1, "handle": handle, "place": place}
        return {name: control.value for name, control in explorer.controls.items()}

    assert [handle["at"] for handle in explorer.handles] == [0.9, pytest.approx(1 - 0.9**8 - 0.1**8)]
    assert drag(0, 0.304)["success_rate"] == pytest.approx(0.3)
    for size in (2, 5, 11):  # of groups with p = .3 differ 1 − .7ᴳ − .3ᴳ
        assert drag(1, 1 - 0.7**size - 0.3**size)["group_size"] == size
        assert explorer.handles[1]["at"] == pytest.approx(1 - 0.7**size - 0.3**size)
    assert drag(1, -0.5)["group_size"] == 2
    assert drag(0, 2.0)["success_rate"] == 0.98


@pytest.mark.parametrize("algorithm", [GRPO, DUPO, DCPO], ids=lambda a: a.name)
def test_the_conclusion_tells_places_with_a_gradient(algorithm):
    """None of these leaves a place empty, so that what is not dead has one."""
    dead = batches(algorithm)[algorithm.name].dead
    assert said(algorithm).startswith(
        f"57% of groups have right and wrong responses: {algorithm.name} samples 128 responses for a batch of 128, "
        f"of whose places {1 - dead:.0%} have a gradient."
    )
