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


GSPO_LIMITS = {"low": 1 - 3e-4, "high": 1 + 4e-4, "sequence": True}
RIGHT = [
    (GRPO, {"beta": 0.04}),
    (GRPO.without_kl(), {}),
    (DR_GRPO, {"advantage": "mean", "mean": DR_GRPO.aggregate.max_length}),
    (DAPO, {"high": 1.28, "mean": "token"}),
    (DUPO, {"high": 1.28, "mean": "token"}),
    (LITE_PPO, {"advantage": "batch", "mean": "token"}),
    (GSPO, GSPO_LIMITS),
]
PRAISE = "the whole loss, in value and gradient"


def cispo(cap, of):
    """Return CISPO's loss with this cap, whose gradient comes by the log of the ratio, or of the policy, as the paper has it."""

    def loss(logp, old_logp, ref_logp, rewards, mask):
        A = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)
        weight = (logp - old_logp).exp().clamp(max=cap).detach()
        J = weight * A.unsqueeze(-1) * (logp - old_logp if of == "ratio" else logp)
        return -(J * mask).sum() / mask.sum()

    return loss


def dcpo(of=lambda new, old: old, low=0.16, high=0.2, cap=10.0, floor=10.0):
    """Return DCPO's loss, with the limits of these log-probabilities."""

    def loss(logp, old_logp, ref_logp, rewards, mask):
        std = rewards.std(1, keepdim=True, correction=0)
        A = ((rewards - rewards.mean(1, keepdim=True)) / std.masked_fill(std == 0, 1)).unsqueeze(-1)
        r, q = (logp - old_logp).exp(), of(logp, old_logp).exp()
        lower, upper = 0.5 + (1 - 4 * low / q).clamp(min=0).sqrt() / 2, 0.5 + (1 + 4 * high / q).sqrt() / 2
        J = torch.minimum(r * A, r.clamp(lower, upper.clamp(max=cap)) * A)
        J = torch.where(A < 0, torch.maximum(J, floor * A), J) * mask
        return -(J.sum(-1) / mask.sum(-1)).sum()

    return loss


def clipped_without_gradient(logp, old_logp, ref_logp, rewards, mask):
    """Between its limits, where both branches are equal, the minimum gives half of the gradient to each."""
    A = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-6)
    s = (((logp - old_logp) * mask).sum(-1) / mask.sum(-1)).exp()
    return -torch.minimum(s * A, s.detach().clamp(1 - 3e-4, 1 + 4e-4) * A).mean()


grpo = loss_of(beta=0.04)
ASSEMBLED = [  # algorithm, a student's loss, what is said
    *((algorithm, loss_of(**parts), PRAISE) for algorithm, parts in RIGHT),
    (GRPO, loss_of(), "the KL term is missing"),
    (GRPO, loss_of(beta=-0.04), "the KL term has the wrong sign"),
    (GRPO, loss_of(beta=0.04, estimator="k1"), "your KL term is k1"),
    (GRPO, loss_of(beta=0.04, mean="token"), "comes with token mean (DAPO's aggregate) in the place of sequence mean"),
    (GRPO, loss_of(beta=0.04, advantage="biased"), "divides by G"),
    (GRPO, loss_of(beta=0.04, advantage="raw"), "your A is the reward itself"),
    (GRPO, loss_of(beta=0.04, mean="places"), "padding is in your loss"),
    (GRPO.without_kl(), loss_of(beta=0.04), "in the loss (GRPO's kl) in the place of nothing"),
    (GRPO.without_kl(), lambda logp, old, *others: loss_of()(old, logp, *others), "your ratio is upside down"),
    (GRPO, lambda *others: -grpo(*others), "sign is wrong"),
    (GRPO, lambda logp, old, *others: grpo(logp, logp.detach(), *others), "your ratio is 1 everywhere"),
    (GRPO, lambda logp, old, ref, *others: grpo(logp, old, old, *others), "to the old policy"),
    (DAPO, loss_of(mean="token"), "your upper limit has the lower one's width: clip the ratio at 0.8 and 1.28"),
    (DAPO, loss_of(beta=0.04), "your loss is GRPO's: DAPO has another bounds, another kl, another aggregate"),
    (
        GSPO,
        loss_of(sequence=True),
        "you clip at 0.8 and 1.2, as PPO and GRPO do: here the ratio is clipped at 0.9997 and 1.0004",
    ),
    (
        GSPO,
        loss_of(low=1 - 3e-4, high=1 + 4e-4),
        "comes with token ratio (GRPO's ratio) in the place of sequence ratio",
    ),
    (GSPO, clipped_without_gradient, ""),
    (CISPO, cispo(5.0, "ratio"), PRAISE),
    (CISPO, cispo(5.0, "policy"), "you take log π, as the paper does"),
    (CISPO, cispo(100.0, "ratio"), "nothing is clipped"),
    (DCPO, dcpo(), PRAISE),
    (DCPO, dcpo(of=lambda new, old: new), "your limits come from the new probability"),
    (DCPO, dcpo(low=0.2, high=0.16), "eps_low and eps_high are swapped"),
    (DCPO, dcpo(cap=1e9), "the cap is missing: the upper limit is max_ratio at most"),
    (DCPO, dcpo(floor=3), "your floor for A < 0 is 3 A, as in verl: here it is 10 A"),
]


@pytest.mark.parametrize(("algorithm", "loss", "says"), ASSEMBLED, ids=lambda part: getattr(part, "name", ""))
def test_a_whole_loss_is_right_or_its_slip_is_named(algorithm, loss, says):
    verdict = check.assembly(loss, algorithm)
    assert verdict.passed == (says == PRAISE) and says in verdict.says, verdict
