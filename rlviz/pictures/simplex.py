"""Three answers in training: how much of the falling entropy is learning, and how much is lost among right answers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from rlviz.algorithms import GRPO, GroupPolicyGradient
from rlviz.page.picture import Area, Axis, Choice, Draws, Line, Panel, Picture, Points, Rule, Say, Slider, Text
from rlviz.page.tracing import Curve
from rlviz.pictures.entropy import REPLICAS, STEPS, Training
from rlviz.pictures.groups import LARGEST_GROUP
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.pictures.table import has_groups
from rlviz.pieces.values import entropy

HEIGHT = math.sqrt(3) / 2  # of a triangle of side 1; the two right answers are its lower corners
RAYS, TOWARDS_WRONG = 90, 60  # of these rays from the middle of the triangle, the one to its upper corner
LEVELS = (0.3, 0.6, 0.9, 1.05)  # nats


def place(p: Tensor) -> tuple[Tensor, Tensor]:
    """Map probabilities of three answers [..., 3] to a point of the triangle: x, y."""
    return p[..., 1] + p[..., 2] / 2, HEIGHT * p[..., 2]


def contours() -> dict[str, Any]:
    """Return the lines of equal entropy as data, x and y of each level, NaN where one leaves the triangle; and their labels."""
    angle = (torch.arange(RAYS + 1, dtype=torch.double) * 2 * torch.pi / RAYS).unsqueeze(-1)
    ray = torch.cos(angle - torch.tensor([0.0, 2.0, 4.0], dtype=torch.double) * torch.pi / 3)  # sums to 0
    edge = 1 / (3 * -ray.amin(-1, keepdim=True))  # how far from the middle a probability is 0
    lines: dict[str, Any] = {"levels": [str(level) for level in LEVELS], "levels_x": [], "levels_y": []}
    for i, level in enumerate(LEVELS):
        low, high = torch.zeros_like(edge), edge.clone()
        for _ in range(40):  # entropy falls along each ray from the middle
            middle = (low + high) / 2
            is_above = (entropy((1 / 3 + middle * ray).clamp(min=1e-300).log()) > level).unsqueeze(-1)
            low, high = torch.where(is_above, middle, low), torch.where(is_above, high, middle)
        is_outside = (edge - low).squeeze(-1) < 1e-6
        for name, along in zip("xy", place((1 / 3 + low * ray).round(decimals=5)), strict=True):
            lines[f"level{i}_{name}"] = along.masked_fill(is_outside, math.nan).tolist()
            lines[f"levels_{name}"].append(along[TOWARDS_WRONG].item())
    return lines


def simplex_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: 16 trainings of a policy of three answers, of which two are right, or one.

    At first the third answer, a wrong one, has probability `wrong`, and the others share the rest. right: the entropy among right
    answers, weighed by their probability; even: the entropy of a policy that is right equally often and chooses evenly among the
    right answers. Means over the trainings. lost = even − entropy is lost diversity.
    """
    training = Training(algorithm)

    def curve(
        group_size: Tensor,
        second: Tensor,
        wrong: Tensor,
        entropy_weight: Tensor,
        step: Tensor,
        draws: Tensor,
        luck: Tensor,
    ) -> dict[str, Tensor]:
        one = torch.ones_like(step)
        # second is the index of the option: 0 where the second answer is right, too
        success = torch.stack([one, one - second, one * 0])
        start = torch.stack([(1 - wrong) / 2, (1 - wrong) / 2, wrong]).log().unsqueeze(0)
        logits = training.logits(one, one, entropy_weight, one * 0, start, success, draws, luck, in_slices=False)
        log_probs = torch.log_softmax(logits[:, :, 0], -1)  # [S + 1, R, 3]
        p = log_probs.exp()
        accuracy = (p * success).sum(-1, keepdim=True)
        nats = entropy(log_probs)
        among_right = entropy((p * success / accuracy).clamp(min=1e-300).log())
        even = entropy(torch.where(success > 0, accuracy / success.sum(), p).log())
        outputs = {"nats": nats.mean(1), "right": (accuracy[..., 0] * among_right).mean(1), "even": even.mean(1)}
        now = step.long()
        outputs |= {f"{name}_now": outputs[name][now] for name in ("nats", "even")}
        x, y = place(p)
        until = torch.arange(STEPS + 1) <= now
        return outputs | {
            "accuracy": accuracy[now].mean(),
            "x": x[now],
            "y": y[now],
            "path_x": torch.where(until, x[:, 0], torch.nan),
            "path_y": torch.where(until, y[:, 0], torch.nan),
            "lost": outputs["even_now"] - outputs["nats_now"],
        }

    return curve


def chance(algorithm: GroupPolicyGradient) -> dict[str, Any]:
    """Return the recipes of what is sampled, and of what a reward of chance would take."""
    shape = (STEPS, REPLICAS, 1, "group_size")
    return {"draws": Draws("uniform", shape, 1, LARGEST_GROUP), "luck": Draws("uniform", shape, 2, LARGEST_GROUP)}


SIMPLEX = Picture(
    title="Is falling entropy learning, or a loss?",
    look="Press ▶: the policies leave the wrong answer; then many settle on one of two equally right ones.",
    notice="The dashed line is the entropy of a policy that is right as often and uses both right answers evenly. What is "
    "missing below it is lost diversity, which no reward asked for. Larger groups have less luck, and keep more of both.",
    alt="A triangle whose corners are three answers, with lines of equal entropy and a dot for each of 16 policies; beside it "
    "the mean entropy against the step, split into what is left among right answers and the rest.",
    panels=(
        Panel(
            "16 policies after {step:d} steps, and lines of equal entropy, nats",
            Axis("", -0.16, 1.16, ticks=None),
            Axis("", -0.1, 1.0, ticks=None),
            (
                *(Line(f"level{i}_x", f"level{i}_y", "2 3", 1.2, colour="grey") for i in range(len(LEVELS))),
                Text("levels", "levels_x", "levels_y", "right", colour="grey"),
                Line("side_x", "side_y", width=1.5, colour="ink"),
                Line("path_x", "path_y", width=1.5, label="the path of one"),
                Points("x", "y", size=9, label="a policy"),
                Text("a wrong answer", 0.5, 0.93),
                Text("a right answer", 0.0, -0.06),
                Text("a right answer", 0.98, -0.06, when="second=right"),
                Text("a wrong answer", 0.98, -0.06, when="second=wrong"),
            ),
        ),
        Panel(
            "Their mean entropy",
            Axis("step", -1, STEPS + 1, whole=True),
            Axis("nats", 0, 1.15),
            (
                Area("steps", "zero", "right", colour="green", label="among right answers"),
                Area("steps", "right", "nats", colour="vermilion", label="right or wrong?"),
                Rule("step", drag="step", colour="ink"),
                Line("steps", "even", "5 3", colour="ink", label="if even", direct=True),
                Line("steps", "nats", width=3, label="{name}", direct=True),
                Points("step", "nats_now", size=9),
            ),
        ),
    ),
    controls={
        "step": Slider(0, STEPS, 1, STEPS, "step", plays=True),
        "second": Choice({"right": "right", "wrong": "wrong"}, "right", "the second answer is"),
        "wrong": Slider(stops=(0.33, 0.6, 0.8, 0.9, 0.95), value=0.9, label="the wrong answer at first"),
        "group_size": Slider(stops=(2, 4, 8, 16, 32, 64), value=8, label="group size G"),
        "entropy_weight": Slider(stops=(0.0, 0.03, 0.1, 0.3, 1.0), label="entropy bonus"),
    },
    data={
        **contours(),
        "side_x": [0.0, 1.0, 0.5, 0.0],
        "side_y": [0.0, 0.0, HEIGHT, 0.0],
        "steps": list(range(STEPS + 1)),
        "zero": [0.0] * (STEPS + 1),
    },
    conclusion=(
        Say(
            "After {step:d} steps {name}'s accuracy is {accuracy:.2f}, and its entropy {nats_now:.2f} nats. An even policy "
            "that is right as often has {even_now:.2f}: {lost:.2f} nats of diversity are lost."
        ),
    ),
)

explore_simplex = explorer(
    "simplex",
    SIMPLEX,
    simplex_curve,
    algorithms=Algorithms(has_groups, GRPO),
    data=chance,
    free=True,
    example={"group_size": 7},
    named={
        "two right answers": {},
        "one right answer": {"second": "wrong"},
        "large groups": {"group_size": 64},
        "all equally likely at first": {"wrong": 0.33},
    },
)
