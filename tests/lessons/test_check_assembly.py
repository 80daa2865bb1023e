"""The check of a whole loss: right ones pass, written out in torch; a slip is named by its slot, whatever else is right."""

import pytest
import torch

from rlviz.algorithms import CISPO, DAPO, DCPO, DR_GRPO, DUPO, GRPO, GSPO, LITE_PPO
from rlviz.lessons import check


def loss_of(advantage="group", low=0.8, high=1.2, beta=0.0, mean="response", sequence=False, estimator="k3"):
    """Return a loss in plain torch, as a student would write it."""

    def loss(logp, old_logp, ref_logp, rewards, mask):
        A = rewards if advantage == "raw" else rewards - rewards.mean(1, keepdim=True)
        if advantage == "group":
            A = A / (rewards.std(1, keepdim=True) + 1e-6)
        elif advantage == "batch":
            A = A / (rewards.std() + 1e-6)
        elif advantage == "biased":
            A = A / (rewards.std(1, keepdim=True, unbiased=False) + 1e-6)
        lengths, log_ratio = mask.sum(-1, keepdim=True), logp - old_logp
        r = ((log_ratio * mask).sum(-1, keepdim=True) / lengths if sequence else log_ratio).exp().expand_as(logp)
        A = A.unsqueeze(-1)
        J = torch.minimum(r * A, r.clamp(low, high) * A)
        d = ref_logp - logp
        J = J - beta * {"k1": -d, "k2": d**2 / 2, "k3": d.exp() - 1 - d}[estimator]
        if mean == "response":
            return -((J * mask).sum(-1, keepdim=True) / lengths).mean()
        if mean == "places":
            return -J.mean()
        return -(J * mask).sum() / (mask.sum() if mean == "token" else mean * mask[..., 0].numel())

    return loss


RIGHT = [
    (GRPO, {"beta": 0.04}),
    (GRPO.without_kl(), {}),
    (DR_GRPO, {"advantage": "mean", "mean": DR_GRPO.aggregate.max_length}),
    (DAPO, {"high": 1.28, "mean": "token"}),
    (DUPO, {"high": 1.28, "mean": "token"}),
    (LITE_PPO, {"advantage": "batch", "mean": "token"}),
    (GSPO, {"low": 1 - 3e-4, "high": 1 + 4e-4, "sequence": True}),
]


@pytest.mark.parametrize(("algorithm", "parts"), RIGHT, ids=lambda part: getattr(part, "name", ""))
def test_the_right_loss_passes(algorithm, parts):
    verdict = check.assembly(loss_of(**parts), algorithm)
    assert verdict.passed, verdict.says


@pytest.mark.parametrize(
    ("algorithm", "parts", "words"),
    [
        (GRPO, {}, "the KL term is missing"),
        (GRPO, {"beta": -0.04}, "the KL term has the wrong sign"),
        (GRPO, {"beta": 1.0}, "β is missing"),
        (GRPO, {"beta": 0.04, "estimator": "k1"}, "your KL term is k1"),
        (GRPO, {"beta": 0.04, "mean": "token"}, "you average over all tokens at once"),
        (GRPO, {"beta": 0.04, "advantage": "biased"}, "divides by G"),
        (GRPO, {"beta": 0.04, "advantage": "mean"}, "that is Dr.GRPO's advantage"),
        (GRPO, {"beta": 0.04, "advantage": "raw"}, "your A is the reward itself"),
        (DAPO, {"mean": "token"}, "your upper limit has the lower one's width: clip the ratio at 0.8 and 1.28"),
        (DAPO, {"beta": 0.04}, "your loss is GRPO's: DAPO has another bounds, another kl, another aggregate"),
        (
            GSPO,
            {"sequence": True},
            "you clip at 0.8 and 1.2, as PPO and GRPO do: here the ratio is clipped at 0.9997 and 1.0004",
        ),
        (GSPO, {"low": 1 - 3e-4, "high": 1 + 4e-4}, "each token has its own ratio: here a response has one"),
    ],
)
def test_a_slip_is_named(algorithm, parts, words):
    verdict = check.assembly(loss_of(**parts), algorithm)
    assert not verdict.passed
    assert words in verdict.says


@pytest.mark.parametrize(
    ("cap", "of", "words"),
    [
        (5.0, "ratio", "the whole loss, in value and gradient"),
        (5.0, "policy", "you take log π, as the paper does"),
        (100.0, "ratio", "nothing is clipped"),
    ],
)
def test_cispo_is_told_from_the_papers_log_and_from_no_cap(cap, of, words):
    def loss(logp, old_logp, ref_logp, rewards, mask):
        A = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)
        weight = (logp - old_logp).exp().clamp(max=cap).detach()
        J = weight * A.unsqueeze(-1) * (logp - old_logp if of == "ratio" else logp)
        return -(J * mask).sum() / mask.sum()

    assert words in check.assembly(loss, CISPO).says


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, "the whole loss, in value and gradient"),
        ({"of": lambda new, old: new}, "your limits come from the new probability"),
        ({"of": lambda new, old: new.detach()}, "your limits come from the new probability"),
        ({"low": 0.2, "high": 0.16}, "eps_low and eps_high are swapped"),
        ({"cap": 1e9}, "the cap is missing: the upper limit is max_ratio at most"),
        ({"floor": 3}, "your floor for A < 0 is 3 A, as in verl: here it is 10 A"),
        ({"floor": 1e9}, "your loss is what comes with pessimistic"),
    ],
    ids=["right", "new", "new, frozen", "swapped", "no cap", "verl's floor", "no floor"],
)
def test_dcpos_limits_and_floor(parts, words):
    def written(of=lambda new, old: old, low=0.16, high=0.2, cap=10.0, floor=10.0):
        def loss(logp, old_logp, ref_logp, rewards, mask):
            std = rewards.std(1, keepdim=True, correction=0)
            A = ((rewards - rewards.mean(1, keepdim=True)) / std.masked_fill(std == 0, 1)).unsqueeze(-1)
            r, q = (logp - old_logp).exp(), of(logp, old_logp).exp()
            lower, upper = 0.5 + (1 - 4 * low / q).clamp(min=0).sqrt() / 2, 0.5 + (1 + 4 * high / q).sqrt() / 2
            J = torch.minimum(r * A, r.clamp(lower, upper.clamp(max=cap)) * A)
            J = torch.where(A < 0, torch.maximum(J, floor * A), J) * mask
            return -(J.sum(-1) / mask.sum(-1)).sum()

        return loss

    assert words in check.assembly(written(**parts), DCPO).says


def test_a_ratio_to_the_reference_is_named():
    def loss(logp, old_logp, ref_logp, rewards, mask):
        return loss_of(low=1 - 3e-4, high=1 + 4e-4, sequence=True)(logp, ref_logp, ref_logp, rewards, mask)

    assert "your ratio is to the reference" in check.assembly(loss, GSPO).says


def test_padding_a_sign_and_a_ratio_of_one_are_named():
    assert "padding is in your loss" in check.assembly(loss_of(beta=0.04, mean="places"), GRPO).says
    right = loss_of(beta=0.04)
    assert "sign is wrong" in check.assembly(lambda *given: -right(*given), GRPO).says
    frozen = check.assembly(lambda logp, old_logp, *rest: right(logp, logp.detach(), *rest), GRPO)
    assert "your ratio is 1 everywhere" in frozen.says
    old_for_reference = check.assembly(
        lambda logp, old_logp, ref_logp, *rest: right(logp, old_logp, old_logp, *rest), GRPO
    )
    assert "to the old policy" in old_for_reference.says


def test_a_clipped_branch_without_gradient_does_not_pass():
    """Between its limits, where both branches are equal, the minimum gives half of the gradient to each."""

    def loss(logp, old_logp, ref_logp, rewards, mask):
        A = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)
        s = (((logp - old_logp) * mask).sum(-1) / mask.sum(-1)).exp()
        return -torch.minimum(s * A, s.detach().clamp(1 - 3e-4, 1 + 4e-4) * A).mean()

    assert not check.assembly(loss, GSPO).passed


def test_a_value_without_its_gradient_does_not_pass():
    right = loss_of(beta=0.04)
    verdict = check.assembly(lambda logp, *rest: right(logp.detach(), *rest), GRPO)
    assert not verdict.passed
    assert "gradient" in verdict.says
