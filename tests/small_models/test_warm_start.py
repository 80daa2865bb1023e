"""Recipes: each names a shipped policy, and what the rare one promises is measured."""

import json

import pytest
import torch

from small_models.evaluation import beginning_logp
from small_models.policies import CHECKPOINTS, build_policy, load_policy, shipped_policies
from small_models.tasks import TASKS, Chain, Sort
from small_models.tokenizer import encode
from small_models.warm_start import RECIPES, Phase, Recipe, measure_reasoning

BY_NAME = {recipe.name: recipe for recipe in RECIPES}


def test_every_shipped_policy_has_a_recipe_and_every_task_a_policy():
    assert sorted(BY_NAME) == shipped_policies()
    assert len(BY_NAME) == len(RECIPES)
    assert {task.name for task in TASKS} <= set(BY_NAME)
    assert all(BY_NAME[task.name].task.name == task.name for task in TASKS)


class Counted(Sort):
    """sort, counting what it demonstrates."""

    def __init__(self):
        self.demonstrated = 0

    def demonstrate(self, prompt, rng):
        self.demonstrated += 1
        return super().demonstrate(prompt, rng)


def test_each_phase_imitates_its_own_task_in_its_own_way():
    one, two = Counted(), Counted()
    recipe = Recipe("x", (Phase(one, max_steps=2, batch_size=4), Phase(two, max_steps=3, batch_size=8, lr=1e-12)))
    looks = [(record.step, policy.model.lm_head.weight.detach().clone()) for policy, record in recipe.make()]
    steps, weights = zip(*looks, strict=True)
    assert steps == (2, 5)  # counted over both
    assert (one.demonstrated, two.demonstrated) == (2 * 4, 3 * 8)
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=1e-8)
    assert not torch.equal(weights[0], build_policy().model.lm_head.weight)


@pytest.fixture(scope="module")
def rare():
    return load_policy("chain-rare", device="cpu")


def test_the_rare_path_is_rare_and_right_and_the_rest_are_direct_guesses(rare):
    """The whole distribution of the first token, enumerated on held-out prompts; no sampling."""
    task = Chain()
    prompts = task.held_out_prompts[:512]
    ids = torch.tensor(encode(rare.tokenizer, prompts))
    with torch.no_grad():
        first = rare.model(ids).logits[:, -1].softmax(-1)
    right_sum = torch.tensor(
        [row[0] for row in encode(rare.tokenizer, [task.running_sums(prompt)[0] for prompt in prompts])]
    )
    begins = float(first.gather(1, right_sum.unsqueeze(1)).mean())
    guesses = float(first[:, encode(rare.tokenizer, ["#"])[0][0]].mean())
    measured = measure_reasoning(rare)
    assert 0.001 < begins < 0.003
    assert begins + guesses > 0.995
    assert measured["probability_of_reasoning"] == pytest.approx(begins, rel=1e-4)
    assert measured["accuracy_once_begun"] > 0.85
    facts = json.loads((CHECKPOINTS / "chain-rare" / "made.json").read_text())
    assert facts["probability_of_reasoning"] == pytest.approx(begins, rel=0.01)
    assert facts["accuracy_once_begun"] == pytest.approx(measured["accuracy_once_begun"], abs=0.02)


def test_a_beginning_s_probability_is_the_product_of_its_tokens(rare):
    prompts, beginnings = ["35271=", "90210="], ["38", "#"]
    logp = beginning_logp(rare, prompts, beginnings)
    for prompt, beginning, together in zip(prompts, beginnings, logp.tolist(), strict=True):
        one_by_one = 0.0
        for place, character in enumerate(beginning):
            ids = torch.tensor(encode(rare.tokenizer, [prompt + beginning[:place]]))
            with torch.no_grad():
                one_by_one += float(
                    rare.model(ids).logits[0, -1].log_softmax(-1)[encode(rare.tokenizer, [character])[0][0]]
                )
        assert together == pytest.approx(one_by_one, abs=1e-4)
