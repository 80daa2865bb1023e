"""Training loops that students write. A check runs one for a few steps, watches it, and names what it saw go wrong."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import GRPO
from rlviz.lessons.assembly import Loss, whole_loss
from rlviz.lessons.judge import Unusable, Unwritten, is_library, refuse_function
from rlviz.lessons.verdict import Verdict
from small_models.evaluation import evaluate
from small_models.policies import Policy, load_policy
from small_models.sampling import response_logits, sample, token_logp
from small_models.tasks import Chain, Grade, Task

SUCCESS = (0.9, 0.3, 0.3, 0.3)  # of the table's actions: the start is right .45 of the time
TABLE_STEPS, SEEDS = 40, 8
STEPS, PROMPTS, GROUP = 12, 16, 8
TASK = Chain()  # one for all checks: its prompts are split when they are first asked for, which takes half a second


def reinforce(success: Tensor, steps: int, seed: int) -> Tensor:
    """Return the accuracy Σ π(a) success(a) of a table of logits before each step of REINFORCE and after the last: [steps + 1].

    A step samples 8 actions, subtracts from each reward the mean of the other seven, and has the learning rate 1.
    """
    generator, logits = torch.Generator().manual_seed(seed), torch.zeros(len(success), dtype=torch.double)
    curve = []
    for _ in range(steps + 1):
        probs = logits.softmax(0)
        curve.append(probs @ success.double())
        actions = torch.multinomial(probs, 8, replacement=True, generator=generator)
        rewards = (torch.rand(8, generator=generator) < success[actions]).double()
        A = (rewards - rewards.mean()) * 8 / 7
        played = torch.nn.functional.one_hot(actions, len(success)).double()
        logits = logits + (A.unsqueeze(1) * (played - probs)).mean(0)
    return torch.stack(curve)


def grpo(policy: Policy, task: Task, loss: Loss, steps: int, seed: int) -> None:
    """Train a policy in place: each step 16 prompts, 8 responses each, one update with AdamW at 3e-4, gradients cut at norm 1.

    loss: (logp, old_logp, ref_logp, rewards, mask) → a number to be minimised; it gets no reference.
    """
    noise, rng = torch.Generator().manual_seed(seed), random.Random(seed)
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=3e-4, weight_decay=0)
    for _ in range(steps):
        prompts = rng.sample(task.train_prompts, PROMPTS)
        seen = sample(policy, prompts, group_size=GROUP, max_new_tokens=task.max_new_tokens, generator=noise)
        texts = zip(prompts, seen.texts(policy), strict=True)
        rewards = torch.tensor([[task.score(prompt, text).reward for text in group] for prompt, group in texts])
        logp = token_logp(response_logits(policy, **seen.model_inputs), seen.tokens)
        value = loss(logp, seen.logp, None, rewards, seen.mask)
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()


def table_loop(student: Callable[..., Any]) -> Verdict:
    """Check (success [K], steps, seed) → the accuracies of a training by REINFORCE on a table, as `reinforce` returns them."""
    success = torch.tensor(SUCCESS)
    try:
        *curves, again = (_read_curve(student(success.clone(), TABLE_STEPS, seed)) for seed in (*range(SEEDS), 0))
    except Exception as error:
        return refuse_function(error)
    start, end = success.mean().item(), torch.stack(curves)[:, -1].mean().item()
    if wrong := _wrong_curves(torch.stack(curves), again, start, end):
        return Verdict(False, wrong)
    return Verdict(
        True, f"accuracy {start:.2f} before, {end:.2f} after {TABLE_STEPS} steps: the mean of {SEEDS} seeds."
    )


def _wrong_curves(curves: Tensor, again: Tensor, start: float, end: float) -> str:
    """Return a sentence on what went wrong in curves that begin at `start` and end at `end` on average, "" where nothing did."""
    # A curve that depends on the clock comes first: all other findings may change with the next call.
    if not torch.equal(curves[0], again):
        return "seed 0 gave two curves: draw actions and rewards from the generator of the seed."
    if torch.allclose(curves * 8, (curves * 8).round(), atol=1e-6):
        return (
            "your numbers are eighths, so they are mean rewards of 8 samples: record the accuracy, Σ π(a) · success(a)."
        )
    if abs(curves[0, 0].item() - start) > 1e-4:
        return f"the first number is {curves[0, 0]:.2f}: with logits of 0 it is {start:.2f}. Record the accuracy before the step."
    if bool((curves == curves[:, :1]).all()):
        return "nothing moves: the next step begins from the logits that your step returned."
    if torch.equal(curves[0], curves[1]):
        return "seeds 0 and 1 give the same curve: give the seed to the generator."
    if end < start:
        return (
            f"the accuracy falls from {start:.2f} to {end:.2f}: is a right action rewarded with 1, a wrong one with 0?"
        )
    expected = [reinforce(torch.tensor(SUCCESS), TABLE_STEPS, seed)[-1].item() for seed in range(SEEDS)]
    if end < 0.9 * sum(expected) / SEEDS:
        return f"it learns too little: {end:.2f} after {TABLE_STEPS} steps. Each step has 8 samples and the learning rate 1."
    return ""


def _read_curve(got: Any) -> Tensor:
    if got is None:
        raise Unwritten("your function returns None: return the accuracies.")
    try:
        curve = torch.as_tensor([float(one) for one in got], dtype=torch.double)
    except (TypeError, ValueError):
        raise Unusable(f"return a list or tensor of accuracies; got {type(got).__name__}.") from None
    if len(curve) != TABLE_STEPS + 1:
        raise Unusable(
            f"of {TABLE_STEPS} steps your function returns {len(curve)} numbers: one before each step and one after the last "
            f"are {TABLE_STEPS + 1}."
        )
    low, high = min(SUCCESS), max(SUCCESS)
    if not bool((curve.isfinite() & (curve > low - 1e-6) & (curve < high + 1e-6)).all()):
        off = curve[(curve - 0.6).abs().argmax()].item()
        raise Unusable(f"an accuracy is Σ π(a) · success(a), here between {low} and {high}; yours has {off:.3g}.")
    return curve


class _WatchedTask(Chain):
    """`TASK`, which keeps each prompt that it grades, and the grade."""

    def __init__(self) -> None:
        super().__init__(TASK.reasoning)
        self._split = TASK._split
        self.graded: list[tuple[str, Grade]] = []

    def grade(self, prompt: str, response: str) -> Grade:
        grade = super().grade(prompt, response)
        self.graded.append((prompt, grade))
        return grade


class _WatchedLoss:
    """A loss that ends a student's loop where it is given what is wrong, and notes what gradients and weights did."""

    def __init__(self, policy: Policy, loss: Loss, task: _WatchedTask) -> None:
        self.loss, self.task = loss, task
        self.backwards = 0
        self.added_up = False
        self.prompts: list[frozenset[str]] = []  # of each call
        self.moved: list[bool] = []  # after each call
        self._weight = next(p for p in policy.model.parameters() if p.requires_grad)
        self._before = self._weight.detach().clone()
        self._fresh = torch.zeros(())
        self._weight.register_hook(self._arrives)
        self._weight.register_post_accumulate_grad_hook(self._accumulated)

    def _arrives(self, gradient: Tensor) -> None:
        self._fresh = gradient.detach().clone()

    def _accumulated(self, weight: Tensor) -> None:
        assert weight.grad is not None
        self.added_up |= not torch.allclose(weight.grad, self._fresh, rtol=1e-3, atol=1e-9)

    def end_step(self) -> None:
        """Note whether the weights moved since the last call."""
        self.moved.append(not torch.equal(self._before, self._weight))
        self._before = self._weight.detach().clone()

    def __call__(
        self, logp: Tensor, old_logp: Tensor, ref_logp: Tensor | None, rewards: Tensor, mask: Tensor
    ) -> Tensor:
        if self.prompts:
            self.end_step()
        graded = self.task.graded[-PROMPTS * GROUP :]  # what a loop measures on the way comes before
        self.prompts.append(frozenset(prompt for prompt, _ in graded))
        if wrong := _wrong_tensors(logp, old_logp, rewards, mask) or _wrong_rewards(graded, rewards):
            raise Unusable(wrong)
        value = self.loss(logp, old_logp, ref_logp, rewards, mask)
        value.register_hook(self._backward)
        return value

    def _backward(self, _: Tensor) -> None:
        self.backwards += 1

    def wrong_steps(self) -> str:
        """Return a sentence on the first thing that a whole loop did wrong, "" where nothing did."""
        if len(self.prompts) != STEPS:
            return f"of {STEPS} steps your loop calls the loss {len(self.prompts)} times: once a step."
        if not self.backwards:
            return "no gradient is computed: call .backward() on what the loss returns."
        if self.added_up:
            return "the gradients of several steps add up: call optimizer.zero_grad() before each backward()."
        if not any(self.moved):
            return (
                "the weights never move: call optimizer.step() after backward(), and zero_grad() not between the two."
            )
        if not all(self.moved):
            return "the weights do not move in every step: backward() and optimizer.step() belong into the loop."
        if len(set(self.prompts)) == 1:
            return (
                f"every step trains on the same {PROMPTS} prompts: draw them within the loop, rng.sample(task.train_prompts, "
                f"{PROMPTS}), from a generator that is made before it."
            )
        return ""


def _wrong_tensors(logp: Tensor, old_logp: Tensor, rewards: Tensor, mask: Tensor) -> str:
    """Return a sentence on the first tensor that a loss should not have got, "" where all are right."""
    for name, value in (("logp", logp), ("old_logp", old_logp), ("rewards", rewards), ("mask", mask)):
        if not isinstance(value, Tensor):
            return f"{name} must be a tensor; your loop gives {type(value).__name__} to the loss."
    if list(rewards.shape) != [PROMPTS, GROUP]:
        return f"rewards must be [{PROMPTS}, {GROUP}], prompts and responses; yours are {list(rewards.shape)}."
    if logp.shape != mask.shape or logp.shape != old_logp.shape or list(logp.shape[:2]) != [PROMPTS, GROUP]:
        shapes = f"logp {list(logp.shape)}, old_logp {list(old_logp.shape)}, mask {list(mask.shape)}"
        return f"logp, old_logp and mask must have one shape, [{PROMPTS}, {GROUP}, tokens]; yours: {shapes}."
    if not logp.requires_grad:
        return (
            "logp has no gradient: compute it after sampling, "
            "token_logp(response_logits(policy, **seen.model_inputs), seen.tokens)."
        )
    if old_logp.requires_grad:
        return "old_logp has a gradient: take seen.logp, which was kept when the responses were sampled."
    apart = (logp.detach() - old_logp)[mask].abs().max().item() if mask.any() else 0.0
    if apart > 1e-2:
        return f"logp and old_logp differ by up to {apart:.2g} before any update: they must be of the same policy and tokens."
    return ""


def _wrong_rewards(graded: list[tuple[str, Grade]], rewards: Tensor) -> str:
    """Return a sentence on rewards that do not fit the grades of their responses, "" where they do."""
    if not bool(((rewards == 0) | (rewards == 1)).all()):
        return "a reward is 1 for a right response and 0 for a wrong one: float(task.grade(prompt, text).correct)."
    if len(graded) < PROMPTS * GROUP:
        return (
            f"your loop grades {len(graded)} responses before it calls the loss: call task.grade(prompt, text) for each "
            f"of the {PROMPTS * GROUP}."
        )
    if not {prompt for prompt, _ in graded}.isdisjoint(TASK.held_out_prompts):
        return "your loop trains on held-out prompts, which are there to measure with: draw from task.train_prompts."
    right, total = sum(bool(grade.correct) for _, grade in graded), int(rewards.sum())
    if total != right:
        return f"{right} of the {PROMPTS * GROUP} responses are right, but {total} have the reward 1: take the grades' .correct."
    return ""


def grpo_loop(student: Callable[..., Any]) -> Verdict:
    """Check (policy, task, loss, steps, seed), which trains a policy in place, with a loss as `check.assembly` takes it."""
    policy, task = load_policy("chain"), _WatchedTask()
    watched = _WatchedLoss(policy, whole_loss(replace(GRPO, kl=None)), task)
    try:
        student(policy, task, watched, STEPS, 0)
    except Exception as error:
        return refuse_function(error)
    if not watched.prompts:
        return Verdict(
            False, "your loop never calls the loss: loss(logp, old_logp, None, rewards, mask).", is_attempt=False
        )
    watched.end_step()
    if wrong := watched.wrong_steps():
        return Verdict(False, wrong)
    if is_library(student):
        return Verdict(False, "it is the library's loop that trains here: write the steps yourself.")
    # Only a loop without a visible fault is measured, which takes longest.
    start, end = (evaluate(one, TASK).accuracy or 0.0 for one in (load_policy("chain"), policy))
    if end < start + 0.05:
        return Verdict(
            False,
            f"accuracy goes from {start:.2f} to {end:.2f} in {STEPS} steps, which is too little: is the loss minimised, as it "
            "is, do the rewards stand where the responses do, and is the learning rate 3e-4?",
        )
    return Verdict(True, f"held-out accuracy {start:.2f} before, {end:.2f} after {STEPS} steps of your loop.")
