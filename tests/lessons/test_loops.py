"""Loops of one's own: right ones pass however they are written, and what goes wrong in one is named by what was seen."""

import random
import re
import textwrap

import pytest
import torch

from rlviz.lessons import check, loops
from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.sampling import response_logits, sample, token_logp

GRPO_LOOP = """
noise, rng = torch.Generator().manual_seed(seed), random.Random(seed)
optimizer = torch.optim.Adam(policy.model.parameters(), lr=3e-4)
for step in range(steps):
    prompts = rng.choices(task.train_prompts, k=16)
    seen = sample(policy, prompts, group_size=8, max_new_tokens=10, generator=noise)
    R = torch.tensor([[float(task.grade(p, t).correct) for t in ts] for p, ts in zip(prompts, seen.texts(policy))])
    logp = token_logp(response_logits(policy, **seen.model_inputs), seen.tokens)
    J = loss(logp, seen.logp, None, R, seen.mask)
    optimizer.zero_grad()
    J.backward()
    optimizer.step()
"""
RECORD = "curve.append((logits.softmax(0) * success).sum().item())"
MEANS = "curve.append(R.mean().item())"
TABLE_LOOP = """
generator, logits, curve = torch.Generator().manual_seed(seed), torch.zeros(len(success)), []
for step in range(steps):
    curve.append((logits.softmax(0) * success).sum().item())
    actions = torch.multinomial(logits.softmax(0), 8, replacement=True, generator=generator)
    R = (torch.rand(8, generator=generator) < success[actions]).float()
    A = R - (R.sum() - R) / 7
    z = logits.clone().requires_grad_()
    (slope,) = torch.autograd.grad((A * z.log_softmax(0)[actions]).mean(), z)
    logits = logits + slope
curve.append((logits.softmax(0) * success).sum().item())
return curve
"""


def make_loop(arguments, body, *changes):
    """Return the loop with these (old, new) changes."""
    for old, new in changes:
        assert old in body, old
        body = body.replace(old, new)
    at_hand = (torch, random, sample, token_logp, response_logits, evaluate)
    names = {function.__name__: function for function in at_hand}
    exec(f"def loop({arguments}):\n{textwrap.indent(body, '    ')}", names)
    return names["loop"]


START = load_policy("chain").model.state_dict()


CLEARS = "    optimizer.zero_grad()\n    J.backward()"
MEASURES = ("    J.backward()", "    evaluate(policy, task, num_prompts=20)\n    J.backward()")


def test_a_right_training_that_measures_on_its_way_passes_and_leaves_the_shipped_start_as_it_was():
    verdict = check.grpo_loop(make_loop("policy, task, loss, steps, seed", GRPO_LOOP, MEASURES))
    before, after = (float(number) for number in re.findall(r"0\.\d+", verdict.says))
    assert verdict.passed and after > before + 0.2, verdict
    assert all(torch.equal(value, START[name]) for name, value in load_policy("chain").model.state_dict().items())


@pytest.fixture
def two_steps(monkeypatch):
    """What is seen of gradients and weights is seen in two steps; only what becomes of the accuracy needs all twelve."""
    monkeypatch.setattr(loops, "STEPS", 2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ((), "it is the library's loop that trains here"),
        ((("    J = loss(logp, seen.logp, None, R, seen.mask)", "    J = logp.sum()"),), "your loop never calls the loss"),
        ((("seen.logp, None, R", "seen.logp, None, 2 * R - 1"),), "a reward is 1 for a right response and 0"),
        ((("k=16", "k=4"),), "rewards must be [16, 8], prompts and responses; yours are [4, 8]"),
        ((("loss(logp, seen.logp,", "loss(logp, logp,"),), "old_logp has a gradient"),
        ((("loss(logp, seen", "loss(logp.flatten(0, 1), seen"),), "must have one shape, [16, 8, tokens]; yours: logp [128,"),
        ((("loss(logp, seen.logp,", "loss(logp, seen.logp.roll(1, 2),"),), "differ by up to"),
        ((("    J.backward()\n", ""),), "no gradient is computed: call .backward()"),
        ((("    optimizer.zero_grad()\n", ""),), "the gradients of several steps add up"),
        ((("    optimizer.step()\n", ""),), "the weights never move: call optimizer.step()"),
        ((("    optimizer.step()\n", "optimizer.step()\n"),), "the weights do not move in every step"),
        ((("range(steps)", "range(steps // 2)"),), "of 2 steps your loop calls the loss 1 times"),
        ((("task.train_prompts", "task.held_out_prompts"),), "your loop trains on held-out prompts"),
        ((("rng.choices(task.train_prompts, k=16)", "task.train_prompts[:16]"),), "every step trains on the same 16 prompts"),
        ((("None, R,", "None, R.tolist(),"),), "rewards must be a tensor; your loop gives list to the loss"),
        (((").correct", ").format"),), "of the 128 responses are right, but"),
        ((("float(task.grade(p, t).correct)", "1.0"),), "your loop grades 0 responses before it calls the loss"),
        (((CLEARS, "    J.backward()\n    optimizer.zero_grad()"),), "and zero_grad() not between the two"),
        ((("J.backward()", "(-J).backward()"),), "which is too little: is the loss minimised, as it is"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.usefixtures("two_steps")
def test_what_goes_wrong_in_a_training_is_named(changes, says):
    loop = make_loop("policy, task, loss, steps, seed", GRPO_LOOP, *changes) if changes else loops.grpo
    verdict = check.grpo_loop(loop)
    assert not verdict.passed and says in verdict.says, verdict


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ((), "accuracy 0.45 before, 0.8"),
        ((("return curve", "return torch.tensor(curve)"),), "accuracy 0.45 before, 0.8"),
        ((("return curve", ""),), "returns None"),
        (((f"{RECORD}\nreturn", "return"),), "one before each step and one after the last are 41"),
        (((f"{RECORD}\n    actions", "actions"), ("logits + slope\n", f"logits + slope\n    {RECORD}\n")), "before the step"),
        (((f"    {RECORD}\n", ""), ("    A = R", f"    {MEANS}\n    A = R")), "here between 0.3 and 0.9"),
        (((TABLE_LOOP, "return [((seed * 7 + 3 * t) % 4 + 3) / 8 for t in range(steps + 1)]"),), "your numbers are eighths"),
        ((("    logits = logits + slope\n", ""),), "nothing moves"),
        ((("manual_seed(seed)", "manual_seed(0)"),), "seeds 0 and 1 give the same curve"),
        (((", replacement=True, generator=generator", ", replacement=True"),), "seed 0 gave two curves"),
        ((("logits + slope", "logits - slope"),), "the accuracy falls from 0.45"),
        ((("logits + slope", "logits + 0.1 * slope"),), "it learns too little"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)  # fmt: skip
def test_a_loop_on_a_table_passes_or_what_goes_wrong_is_named(changes, says):
    verdict = check.table_loop(make_loop("success, steps, seed", TABLE_LOOP, *changes))
    assert verdict.passed == says.startswith("accuracy 0.45") and says in verdict.says, verdict
