"""The entropy explorer's histories are train_table's, and its words follow them."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from rlviz.algorithms import DAPO, DCPO, DR_GRPO, GRPO, GRPO_PROCESS, PPO
from rlviz.pictures.entropy import REPLICAS, REWARDS, STEPS, EntropyPicture, entropy_curve, explore_entropy
from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.kl import KLInLoss
from rlviz.tabular import good_actions, train_table


def test_the_curve_is_the_table_s_run():
    curve = entropy_curve(DAPO, lr=0.2, group_size=4, kl_weight=0.1, step=7)
    algorithm = replace(DAPO, kl=KLInLoss(beta=0.1), aggregate=token_mean)
    run = train_table(algorithm, good_actions(3, 20), steps=STEPS, replicas=REPLICAS, lr=0.2, group_size=4)
    (history,) = curve.histories
    np.testing.assert_array_equal(history.entropy, run.entropy)
    np.testing.assert_array_equal(history.accuracy, run.accuracy)
    np.testing.assert_array_equal(history.probs, run.probabilities[0, :, 0, 0])
    picture = EntropyPicture(curve)
    np.testing.assert_array_equal(picture.entropy.lines[0].get_ydata(), run.entropy.mean(0))
    heights = [bar.vertices[1, 1] for bar in picture.good.get_paths()] + [
        b.vertices[1, 1] for b in picture.others.get_paths()
    ]
    np.testing.assert_allclose(heights, history.probs[7])


def test_entropy_at_an_accuracy_by_hand():
    curve = entropy_curve(GRPO)
    (history,) = curve.histories
    place = int(np.flatnonzero(np.isclose(history.levels, 0.5))[0])
    at_half = []
    for entropy, accuracy in zip(history.entropy, history.accuracy, strict=True):
        step = int(np.flatnonzero(accuracy >= 0.5)[0])
        at_half.append(np.interp(0.5, accuracy[step - 1 : step + 1], entropy[step - 1 : step + 1]))
    assert history.entropy_at_level[place] == pytest.approx(np.mean(at_half))
    # every replica starts at 3 of 20 right: no level up to .15 is reached on the way
    assert np.isnan(history.entropy_at_level[history.levels <= 0.15]).all()


def test_aggregations_that_only_scale_make_no_difference():
    first, second = entropy_curve(GRPO, beside=DR_GRPO.with_parameters(scale="group_std")).histories
    np.testing.assert_allclose(first.entropy, second.entropy, rtol=1e-9)


def test_a_step_slider_trains_nothing_again(monkeypatch):
    entropy_curve(GRPO)
    monkeypatch.setattr("rlviz.pictures.entropy.train_table", None)
    assert entropy_curve(GRPO, step=3).step == 3


def test_a_piece_that_is_not_frozen_trains_too():
    @dataclass
    class Wide:
        width: float = 0.2

        def __call__(self, old_logp):
            return 1 - self.width, 1 + self.width

    mine = entropy_curve(replace(GRPO, bounds=Wide())).histories[0]
    np.testing.assert_allclose(mine.entropy, entropy_curve(GRPO).histories[0].entropy, rtol=1e-12)


def test_the_band_is_in_the_legend_and_holds_the_middle_of_16_replicas():
    """Of 16 sorted values the 10th percentile lies at place 1.5, halfway from the second to the third; the 90th at 13.5."""
    explorer = explore_entropy()
    (history,) = explorer.curve.histories
    ordered = np.sort(history.entropy, axis=0)
    assert len(ordered) == 16
    low, high = ordered[1:3].mean(0), ordered[13:15].mean(0)
    (band,) = explorer.picture.entropy.bands[0].get_paths()
    np.testing.assert_allclose(band.vertices[:122, 1], [*low, *high[::-1]])
    assert f"middle 80 % of 16 replicas: {low[-1]:.2f} to {high[-1]:.2f}" in explorer.caption
    legend = explorer.picture.legend
    named = dict(zip([text.get_text() for text in legend.get_texts()], legend.legend_handles, strict=True))
    patch = named["middle 80 % of 16 replicas"]
    np.testing.assert_allclose(patch.get_facecolor(), explorer.picture.entropy.bands[0].get_facecolor()[0])


@pytest.mark.parametrize("step", [0, 60])
def test_the_step_is_seen_at_both_ends(step):
    explorer = explore_entropy(step=step)
    for line in explorer.picture.at:
        left, right = line.axes.get_xlim()
        assert list(line.get_xdata()) == [step, step] and left < step < right


def test_an_empty_graph_says_why():
    explorer = explore_entropy(reward="random")
    assert not any(len(line.get_ydata()) and np.isfinite(line.get_ydata()).any() for line in explorer.picture.against)
    assert explorer.picture.nothing.get_visible()
    assert explorer.picture.nothing.get_text() == "no accuracy above the first\nis reached by half of the replicas"
    assert "so no accuracy is reached below left" in explorer.caption
    explorer.controls["reward"].value = "3 good of 20"
    assert not explorer.picture.nothing.get_visible() and "below left" not in explorer.caption


def test_names_come_and_go_in_the_legend():
    explorer = explore_entropy()

    def shown():
        pairs = zip(explorer.picture.legend.legend_handles, explorer.picture.legend.get_texts(), strict=True)
        return [text.get_text() for handle, text in pairs if handle.get_visible()]

    others = ["middle 80 % of 16 replicas", "the step", "good action", "other action"]
    assert shown() == ["GRPO", *others]
    explorer.controls["beside"].value = DCPO
    assert shown() == ["GRPO", "DCPO", *others]
    explorer.controls["algorithm"].value = DAPO
    explorer.controls["beside"].value = None
    assert shown() == ["DAPO", *others]
    assert "DAPO" in explorer.still and "DCPO" not in explorer.still


@pytest.mark.parametrize("place", [0, 1])
def test_the_step_is_dragged_in_both_graphs_and_the_conclusion_follows(place):
    explorer = explore_entropy()
    moved = explorer.moving
    explorer.asked = {"turn": 1, "handle": place, "place": 20.4}
    assert explorer.controls["step"].value == explorer.curve.step == 20
    assert [handle["at"] for handle in explorer.handles] == [20, 20]
    assert explorer.moving != moved
    history = explorer.curve.histories[0]
    entropy, accuracy = (sum(values[:, 20]) / 16 for values in (history.entropy, history.accuracy))
    assert (
        explorer.conclusion
        == f"At step 20 GRPO has {entropy:.2f} of 3.00 nats of entropy left, at accuracy {accuracy:.2f}."
    )
    explorer.controls["beside"].value = DCPO
    other = explorer.curve.histories[1].entropy[:, 20].mean()
    assert f"; DCPO has {other:.2f}, at " in explorer.conclusion


def test_what_is_remembered_is_small():
    """Two [16, 61] and one [61, 20] of 8 bytes; the whole run has 16 times as many probabilities."""
    (history,) = entropy_curve(GRPO).histories
    assert (
        history.probs.base is None and history.entropy.nbytes + history.accuracy.nbytes + history.probs.nbytes < 30_000
    )


def test_words_follow_the_numbers():
    explorer = explore_entropy()
    history = explorer.curve.histories[0]
    assert (
        f"GRPO: from 3.00 to {history.entropy[:, -1].mean():.2f} nats after 60 steps" in explorer.caption
    )  # ln 20 = 3.00
    explorer.controls["step"].value = 0
    assert "At step 0 of the replica shown the likeliest action is 1, with 0.05." in explorer.caption  # uniform over 20
    explorer.controls["reward"].value = "random"
    assert "nothing can be learned" in explorer.caption and "first reached" not in explorer.caption
    explorer.controls["beside"].value = DCPO
    assert "DCPO: from 3.00 to" in explorer.caption
    explorer.controls["reward"].value = "rare good"
    start = -(0.02 * math.log(0.02) + 0.98 * math.log(0.98))
    assert f"GRPO: from {start:.2f} to" in explorer.caption


@pytest.mark.parametrize("reward", REWARDS)
def test_every_reward_trains(reward):
    (history,) = entropy_curve(GRPO, reward=reward).histories
    learned = history.accuracy[:, -1].mean() - history.accuracy[:, 0].mean()
    assert learned > 0.1 if REWARDS[reward].good else learned == pytest.approx(0)


def test_refusals():
    with pytest.raises(ValueError, match=r"reward must be one of 3 good of 20, .*; got 'none'"):
        entropy_curve(GRPO, reward="none")
    with pytest.raises(ValueError, match="step must be from 0 to 60; got 61"):
        entropy_curve(GRPO, step=61)
    with pytest.raises(ValueError, match="PPO has nothing that this picture shows"):
        explore_entropy(PPO)
    with pytest.raises(ValueError, match="beside must be an algorithm, such as GRPO or None; got 'dapo'"):
        explore_entropy(beside="dapo")
    with pytest.raises(ValueError, match=r"GRPO.* does not learn from groups with one reward a response"):
        entropy_curve(GRPO, beside=GRPO_PROCESS)
