"""explore_entropy: a table of logits trained again at every move, to see what each knob does to entropy and accuracy."""

from __future__ import annotations

from typing import Literal

from rlviz.algorithms import ALGORITHMS, GRPO, GroupPolicyGradient
from rlviz.curves.entropy import REWARDS, STEPS, EntropyCurve, entropy_curve, has_groups
from rlviz.plots.entropy import EntropyPicture
from rlviz.widgets.explorer import AlgorithmControl, Explorer
from rlviz.widgets.live import Pick, choice_control, int_control
from small_models.checks import checked


@checked
def explore_entropy(
    algorithm: GroupPolicyGradient = GRPO,
    *,
    eps_low: float | None = None,
    eps_high: float | None = None,
    max_ratio: float | None = None,
    reward: Literal["3 good of 20", "2 positions, both good", "rare good", "random"] = "3 good of 20",
    group_size: int = 8,
    lr: float = 0.5,
    updates_per_rollout: int = 4,
    temperature: float = 1.0,
    entropy_weight: float = 0.0,
    kl_weight: float = 0.0,
    beside: GroupPolicyGradient | None = None,
    step: int = STEPS,
) -> Explorer[EntropyCurve]:
    """Return a picture of 16 training runs of a small table, trained anew with the algorithm's own loss at every move.

    eps_low, eps_high, max_ratio: of the bounds; None: the algorithm's own. reward: "3 good of 20" actions; "2 positions, both
    good" of 10 actions each; "rare good": a rare action that is right 9 times in 10 and a common one that is right once;
    "random": every response right with probability ½. group_size, lr, updates_per_rollout, temperature: of the training.
    entropy_weight: of an entropy bonus. kl_weight: β of a KL term to the start, in place of the algorithm's; 0: none. beside:
    a second algorithm under the same settings. step: whose probabilities the bars show. Aggregation has no part: all responses
    of a table are equally long.
    Raises ValueError for a value out of range, and an algorithm that needs a critic, pairs or rewards of single steps.
    """
    chosen = AlgorithmControl(
        algorithm,
        ("eps_low", "eps_high", "max_ratio"),
        fits=has_groups,
        starting={"eps_low": eps_low, "eps_high": eps_high, "max_ratio": max_ratio},
    )
    others = [member for member in ALGORITHMS if has_groups(member)]
    others = others if beside is None or beside in others else [beside, *others]
    return Explorer(
        explore_entropy,
        EntropyPicture,
        entropy_curve,
        [
            Pick("reward", reward, [(name, name) for name in dict.fromkeys([*REWARDS, reward])], "reward"),
            choice_control("group_size", group_size, (2, 4, 8, 16, 32, 64), "group size"),
            choice_control("lr", lr, (0.05, 0.1, 0.2, 0.5, 1.0, 1.5, 2.0), "learning rate"),
            choice_control("updates_per_rollout", updates_per_rollout, (1, 2, 4, 8, 16), "updates per rollout"),
            choice_control("temperature", temperature, (0.5, 0.7, 1.0, 1.4, 2.0), "temperature"),
            choice_control("entropy_weight", entropy_weight, (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0), "entropy bonus"),
            choice_control("kl_weight", kl_weight, (0.0, 0.01, 0.04, 0.1, 0.3, 1.0), "KL to the start"),
            Pick("beside", beside, [("none", None), *((member.name, member) for member in others)], "beside it"),
            int_control("step", step, 0, STEPS, "step of the bars"),
        ],
        chosen,
    )
