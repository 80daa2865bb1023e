"""How hard a token is pulled as its response grows longer, and how hard the whole response: what each mean makes of length."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.algorithms import DAPO, GRPO, Algorithm, GroupPolicyGradient
from rlviz.page.picture import Axis, Beside, Cells, Choice, Line, Panel, Picture, Points, Rule, Say, Slider
from rlviz.page.tracing import Curve, repeated
from rlviz.pictures.groups import GROUP_NEEDS, group_advantages, learns_from_a_group
from rlviz.pictures.spec import Algorithms, explorer
from rlviz.types import Batch

LONGEST, USUAL, GROUP = 24, 8, 4  # tokens of a response; responses
OLD_PROB = 0.3  # of every token; at ratio 1 it makes no difference
ROWS = tuple(float(GROUP - i) for i in range(GROUP) for _ in range(LONGEST))
COLUMNS = tuple(float(token) for _ in range(GROUP) for token in range(1, LONGEST + 1))


def pulls_at_ratio_1(algorithm: Algorithm) -> bool:
    """Return whether a token's pull before the first update follows from rewards and lengths alone."""
    return (
        learns_from_a_group(algorithm)
        and isinstance(algorithm, GroupPolicyGradient)
        and algorithm.can.choose is None
        and not algorithm.asks_for("surrogate", "entropy")
    )


def length_curve(algorithm: GroupPolicyGradient) -> Curve:
    """Return the curve: ∂J/∂log π of the tokens of four responses, of which the fourth has 1, 2, … 24 tokens and the others 8.

    J is the algorithm's objective under its own aggregation, all ratios 1. Two responses are right and two wrong. pull: of a
    token of the fourth over that of a token of the third, which has the same reward. whole: the same of the tokens of a
    response together. Both are NaN where the rule does not pull a response of that reward.
    """
    rule = algorithm.without_kl()

    def curve(tokens: Tensor, grows: Tensor) -> dict[str, Tensor]:
        # grows is the index of the option: 0 for a wrong answer and 1 for a right one, which is its reward
        rewards = torch.stack([1 - grows, 1 - grows, grows, grows]).unsqueeze(0)
        A = group_advantages(rule, rewards).unsqueeze(-1)
        usual = torch.full((GROUP - 1,), float(USUAL), dtype=torch.double)

        def is_token(fourth: Tensor) -> Tensor:
            return torch.arange(LONGEST) < torch.cat([usual, fourth]).unsqueeze(1)

        def pulls_at_length(fourth: Tensor) -> tuple[Tensor, Tensor]:
            """Map the length of the fourth response to the next, and to ∂J/∂log π of all tokens, 0 on padding."""
            mask = is_token(fourth).unsqueeze(0)
            logp = torch.full(mask.shape, OLD_PROB, dtype=torch.double).log().requires_grad_()
            part = rule.objective(logp, Batch(logp.detach(), A.expand(mask.shape) * mask, mask))
            J = (part.value * rule.aggregate(mask)).masked_fill(~mask, 0.0).sum()
            return fourth + 1, torch.autograd.grad(J, logp)[0][0]

        by_length = repeated(pulls_at_length, torch.ones(1, dtype=torch.double), LONGEST)  # [lengths, G, T]
        sizes = by_length.abs()
        pull_of_token, pull_of_response = (
            torch.where(size[:, -2] > 0, size[:, -1] / size[:, -2], torch.nan)
            for size in (sizes[:, :, 0], sizes.sum(-1))
        )
        at = (tokens - 1).long().reshape(1)
        now, mask = by_length[at][0], is_token(tokens.reshape(1))
        return {
            "number": torch.arange(1, LONGEST + 1, dtype=torch.double),
            "pull": pull_of_token,
            "whole": pull_of_response,
            "pull_now": pull_of_token[at][0],
            "whole_now": pull_of_response[at][0],
            "token_pull": now.flatten(),
            "there": mask.double().flatten(),
            "is_up": (mask & (now > 0)).double().flatten(),
            "is_down": (mask & (now < 0)).double().flatten(),
            "reach": 2 * now[:-1, 0].abs().amax().clamp(min=1e-9),
            "pulls": pull_of_token[0].isfinite().double(),
        }

    return curve


def _against_length(title: str, y: str, label: str) -> Panel:
    return Panel(
        title,
        Axis("tokens of response 4", 0.5, LONGEST + 0.5, ticks=(1, 4, 8, 12, 16, 20, 24)),
        Axis(label, 0.1, 10, log=1, ticks=(0.1, 0.2, 0.5, 1, 2, 5, 10)),
        (
            Rule(1.0, axis="y", dash="", width=1),
            Line("number", f"b1_{y}", "5 3", colour="vermilion", when=f"b1_{y}", label="{b1_name}", direct=True),
            Line("number", y, width=3, label="{name}", direct=True),
            Points("tokens", f"{y}_now", size=10),
            Rule("tokens", dash="6 2 1 2", width=1.5, colour="ink", drag="tokens"),
        ),
        tall=0.75,
    )


LENGTH = Picture(
    title="How hard is a token pulled as its response grows?",
    look="Press ▶: response 4 grows, and under GRPO's mean its tokens fade.",
    notice="A mean over each response's own length gives every response the same pull, so the tokens of a long one get less. A "
    "mean over all tokens gives every token the same pull, so a long response gets more.",
    alt="Four rows of tokens shaded by the push on each, of which the fourth grows; below, against its length, how hard one of "
    "its tokens is pulled, and the whole response.",
    panels=(
        Panel(
            "The push on each token of four responses, before the first update",
            Axis("token", 0.4, LONGEST + 0.6, ticks=(1, 8, 16, 24)),
            Axis("response", 0.4, GROUP + 0.6, names="rows"),
            (
                Cells("column", "row", "token_pull", "reach", where="there"),
                Points("column", "row", "+", 6, colour="ink", where="is_up", label="up"),
                Points("column", "row", "_", 6, colour="ink", where="is_down", label="down"),
            ),
            tall=0.5,
            wide=2,
        ),
        _against_length("One token of response 4", "pull", "pull, 1 for a token of 8"),
        _against_length("All its tokens together", "whole", "pull, 1 for a response of 8"),
    ),
    controls={
        "tokens": Slider(1, LONGEST, 1, 16, "tokens of response 4", plays=True),
        "grows": Choice({"a wrong answer": "wrong", "a right answer": "right"}, "a wrong answer", "response 4 is"),
        "beside": Beside(1, value=(DAPO.name,)),
    },
    data={"column": COLUMNS, "row": ROWS, "rows": ["4", "3", "2", "1"]},
    conclusion=(
        Say(
            "At length {tokens:d}, {name} pulls a token of response 4 {pull_now:.2f} times as hard as one of response 3, of 8 "
            "tokens, and all its tokens together {whole_now:.2f} times.",
            "pulls",
        ),
        Say("{name} does not pull on a response of this reward, however long it is: response 4 is left alone."),
    ),
)

explore_length = explorer(
    "length",
    LENGTH,
    length_curve,
    algorithms=Algorithms(pulls_at_ratio_1, GRPO, needs=GROUP_NEEDS),
    named={
        "a long wrong answer": {},
        "a short right answer": {"tokens": 3, "grows": "right"},
        "the token mean": {"algorithm": DAPO, "beside": (GRPO,)},
    },
)
