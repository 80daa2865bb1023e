"""An algorithm on one page: the page runs, and gives what the library gives."""

from dataclasses import replace

import pytest
import torch

from rlviz import DAPO, DPO_LINEAR, GRPO, GRPO_PROCESS, PPO, PPO_PENALTY
from rlviz.algorithms import ALGORITHMS, PASS_AT_K, RELATIVES, ActorCritic, PreferenceOptimization, command_name
from rlviz.algorithms.listing import show
from rlviz.pieces.advantages import PromptHistory
from rlviz.pieces.kl import KLInReward, k2
from rlviz.pieces.shaping import OverlongFilter
from rlviz.types import Batch

EVERY = (*ALGORITHMS, *RELATIVES, GRPO_PROCESS, DPO_LINEAR)
WITH_PAIRS = [a for a in EVERY if isinstance(a, PreferenceOptimization)]
SAMPLED = [a for a in EVERY if a not in WITH_PAIRS] + [replace(PPO, name="PPO with entropy", entropy_weight=0.1)]


def run(algorithm):
    """Return the names that the page defines."""
    names = {}
    exec(compile(str(show(algorithm)), algorithm.name, "exec"), names)
    return names


def made_up(seed=0, prompts=3, group=4, tokens=5):
    """Return tensors of a batch in which ratios leave every limit, by the names that a page gives them."""
    draw = torch.Generator().manual_seed(seed)
    shape = (prompts, group, tokens)

    def normal(scale):
        return scale * torch.randn(shape, generator=draw, dtype=torch.double)

    lengths = torch.randint(1, tokens + 1, shape[:2], generator=draw)
    old_logp = -normal(1.0).abs() - 0.05
    mask = torch.arange(tokens) < lengths.unsqueeze(-1)
    return {
        "old_logp": old_logp,
        "logp": (old_logp + normal(0.6)).requires_grad_(),
        "ref_logp": old_logp + normal(0.3),
        "sampler_logp": old_logp + normal(0.5),
        "mask": mask,
        "observed": ~mask & (old_logp > -1),
        "rewards": torch.tensor([[0.0, 1, 0, 1], [1, 1, 1, 1], [0.25, 0, 1, 0.5]], dtype=torch.double),
        "advantages": normal(2.0),
        "values": normal(0.5),
        "old_values": normal(0.5),
        "returns": normal(0.5),
        "entropy": normal(1.0).abs(),
    }


def call(function, values):
    code = function.__code__
    return function(**{name: values[name] for name in code.co_varnames[: code.co_argcount]})


@pytest.mark.parametrize("algorithm", SAMPLED, ids=command_name)
def test_the_loss_of_the_page_is_the_loss_that_trains(algorithm):
    values = made_up()
    known = (values[name] for name in ("old_logp", "advantages", "mask", "ref_logp"))
    others = {name: values[name] for name in ("entropy", "sampler_logp", "observed")}
    expected = algorithm.loss(values["logp"], Batch(*known, **others)).loss
    if isinstance(algorithm, ActorCritic):
        parts = (values[name] for name in ("values", "old_values", "returns", "entropy", "mask"))
        expected = algorithm.total_loss(expected, *parts).loss
    loss = call(run(algorithm)["loss"], {**values, "advantages": values["advantages"] * values["mask"]})
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    ours, theirs = (torch.autograd.grad(x, values["logp"], retain_graph=True)[0] for x in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)
    assert theirs.abs().sum() > 0


@pytest.mark.parametrize("algorithm", [a for a in SAMPLED if not isinstance(a, ActorCritic)], ids=command_name)
def test_the_advantages_of_the_page_too(algorithm):
    if algorithm is PASS_AT_K:
        algorithm = algorithm.with_parameters(k=2)  # every group here has a set of four that passes
    values, names = made_up(), run(algorithm)
    mask, rewards = values["mask"], values["rewards"]
    if algorithm.asks_for("advantage", "step_ends"):
        ends = mask & (torch.rand(mask.shape, generator=torch.Generator().manual_seed(1)) < 0.6)
        rewards = torch.randn(mask.shape, generator=torch.Generator().manual_seed(2), dtype=torch.double)
        expected, _ = algorithm.advantages(rewards, mask, step_ends=ends)
        assert torch.equal(names["advantages"](rewards, mask, step_ends=ends), expected)
        return
    right = (rewards > 0.4).double()
    shaped = algorithm.shape_rewards(rewards, mask.sum(-1), correct=right, well_formed=right)
    before = PromptHistory.empty(3).add_visit(rewards.flip(0))
    known = {name: values[name] for name in ("old_logp", "ref_logp", "sampler_logp")}
    known |= {"correct": right, "well_formed": right, "old_entropy": values["entropy"]}
    expected, after = algorithm.advantages(shaped, mask, history=before, **known)
    seen = {**values, **known, "history": names.get("PromptHistory", object)}
    if algorithm.asks_for("advantage", "history"):
        seen["history"] = names["PromptHistory"](**vars(before))
        A, history = call(names["advantages"], seen)
        assert all(torch.equal(value, getattr(after, name)) for name, value in vars(history).items())
    else:
        A = call(names["advantages"], seen)
    assert torch.equal(A, expected) and A.abs().sum() > 0


def test_a_critic_s_rewards_and_advantages():
    values, names, scores = made_up(), run(PPO), torch.tensor([[1.0, 0, 0, 1]] * 3, dtype=torch.double)
    token_rewards = names["token_rewards"](scores, values["mask"], values["old_logp"], values["ref_logp"])
    assert torch.equal(token_rewards, PPO.token_rewards(scores, values["mask"], values["old_logp"], values["ref_logp"]))
    arguments = (token_rewards, values["values"], values["mask"])
    for ours, theirs in zip(names["advantages"](*arguments), PPO.advantages(*arguments), strict=True):
        assert torch.equal(ours, theirs)
    assert "adaptive" not in str(show(PPO_PENALTY)) and "k3(old_logp, logp)" in str(show(PPO_PENALTY))


@pytest.mark.parametrize("algorithm", WITH_PAIRS, ids=command_name)
def test_pairs(algorithm):
    logp = torch.tensor([[-1.0, -2.0], [-1.5, -1.8], [-1.2, -2.2], [-1.4, -1.0]], dtype=torch.double)
    known = dict(zip(("chosen_logp", "rejected_logp", "ref_chosen_logp", "ref_rejected_logp"), logp, strict=True))
    known |= {"chosen_lengths": torch.tensor([3, 2]), "rejected_lengths": torch.tensor([4, 8])}
    assert torch.equal(call(run(algorithm)["loss"], known), algorithm.loss(**known).loss)


def test_own_pieces_and_changed_parameters():
    def my_surrogate(ratio, advantages, lower, upper, logp):
        return ratio.detach().clamp(lower, upper) * advantages * logp

    mine = replace(
        GRPO, name="Mine", surrogate=my_surrogate, kl=KLInReward(beta=0.5, estimator=k2), shape=OverlongFilter()
    )
    text, values = str(show(mine)), made_up()
    assert "def my_surrogate(ratio, advantages, lower, upper, logp):" in text and "beta=0.5" in text
    truncated = torch.zeros(3, 4, dtype=torch.bool)
    truncated[0, 0] = True
    names = run(mine)
    seen = {**values, "truncated": truncated}
    mask = mine.loss_mask(values["mask"], truncated)
    expected = mine.loss(values["logp"], Batch(values["old_logp"], values["advantages"], mask, values["ref_logp"]))
    torch.testing.assert_close(call(names["loss"], seen), expected.loss, rtol=1e-12, atol=0)
    known = {name: values[name] for name in ("old_logp", "ref_logp")}
    assert torch.equal(call(names["advantages"], seen), mine.advantages(values["rewards"], values["mask"], **known)[0])


def test_a_piece_without_source_is_named():
    lambdas = replace(GRPO, surrogate=lambda ratio, advantages, lower, upper: ratio * advantages)
    assert "# lambda_piece: its source is not at hand" in str(show(lambdas))
    compile(str(show(lambdas)), "page", "exec")
    namespace = {}
    exec("def typed_in(mask):\n    return mask.double()", namespace)
    assert "# typed_in: its source is not at hand" in str(show(replace(GRPO, aggregate=namespace["typed_in"])))


def test_a_piece_called_as_the_page_s_own_functions_does_not_hide_them():
    def loss(mask):
        return mask.double() * 2

    mine, values = replace(GRPO, aggregate=loss), made_up()
    expected = mine.loss(values["logp"], Batch(*(values[n] for n in ("old_logp", "advantages", "mask", "ref_logp"))))
    ours = call(run(mine)["loss"], {**values, "advantages": values["advantages"] * values["mask"]})
    torch.testing.assert_close(ours, expected.loss, rtol=1e-12, atol=0)


def test_against_marks_what_differs():
    lines = str(show(DAPO, against=GRPO)).splitlines()
    assert "- def fixed_bounds(old_logp, *, eps_low=0.2, eps_high=0.2):" in lines
    assert "+ def fixed_bounds(old_logp, *, eps_low=0.2, eps_high=0.28):" in lines
    assert "-     objective = objective - kl_in_loss(logp, ref_logp=ref_logp)" in lines
    assert "  def token_ratio(logp, old_logp, mask):" in lines
    assert not any(line.startswith("?") for line in lines)
    assert "\n".join(line[2:] for line in lines if not line.startswith("-")) == str(show(DAPO))
