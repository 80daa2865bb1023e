"""PPO: a credit without what comes after, and a run that trusts its critic alone."""

from matplotlib.figure import Figure
from torch import Tensor

from rlviz.algorithms import PPO
from rlviz.lessons.puzzles import Bug, Unlabelled
from rlviz.pictures.base import dress, new_figure
from rlviz.pieces.gae import GAE
from rlviz.runs.learning import plot_metrics
from rlviz.training import default_settings, history, train


def credit_of_tokens(rewards: Tensor, values: Tensor, mask: Tensor, gamma: Tensor, lam: Tensor) -> Tensor:
    return GAE(float(gamma), float(lam), whiten=False)(rewards, values, mask)[0]


BUG = Bug(
    credit_of_tokens,
    "→ return (rewards - values).masked_fill(~mask, 0.0)",
    choices=(
        "all tokens but the last get −V, whether the response is right or wrong",
        "a token's credit depends on who is beside it in the batch",
        "λ acts as if it were 1, and nothing else is wrong",
        "the score counts twice on the last token",
    ),
    does="all tokens but the last get −V, whether the response is right or wrong",
    why="each token takes its own reward, and the score is the last token's. Nothing that comes after a token "
    "reaches it, so the tokens that decide are never told: the right response and the wrong one get the same credit "
    "there.",
)


def _draw() -> Figure:
    algorithm = PPO.with_parameters(lam=0.0)
    settings = default_settings(algorithm, steps=24, lr_warmup_steps=0, evaluate_every=0, details_every=0)
    run = history(list(train("chain", algorithm, settings)))
    figure = new_figure(13, 4.2)
    shown = (
        ("Reward", "reward", "mean of the rollout"),
        ("Entropy", "entropy", "nats per token"),
        ("The critic", "explained_variance", "explained variance"),
    )
    for ax, (title, column, unit) in zip(figure.subplots(1, 3), shown, strict=True):
        plot_metrics(run, {column: unit}, ax=dress(ax, title=title, x="rollout", y=unit)).set_ylim(-0.1, 1)
    return figure


RUN = Unlabelled(
    draw=_draw,
    does="λ = 0: the critic is trusted alone",
    why={
        "PPO as in the lesson, λ = 0.95": "then the reward would rise from the first rollouts on, to more than .8.",
        "λ = 0: the critic is trusted alone": "nothing is gained before the critic explains something, because all "
        "credit comes from it. Then it knows a guess from running sums, and guesses go. It cannot tell right sums "
        "from wrong ones, so the reward stays near .6, which is what running sums earned before training.",
        "λ = 1: the outcome is trusted alone": "then the reward would rise at once, whatever the critic knows.",
        "a critic that always says the same number": "then it would explain nothing, at any time; and the reward "
        "would rise at once.",
        "the policy stands still, only the critic learns": "then reward and entropy would stay where they began.",
    },
)
