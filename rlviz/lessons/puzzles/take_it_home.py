"""Take it home: the log of a run that disappoints, as TRL writes it."""

import json
import tempfile
from pathlib import Path

from matplotlib.figure import Figure

from rlviz.algorithms import GRPO
from rlviz.lessons.puzzles import Unlabelled
from rlviz.runs import diagnose, import_run
from rlviz.runs.learning import plot_learning_curves
from rlviz.training import RunFolder, TrainSettings, history, load_policy, train

LOGGED = {  # our column → TRL's name
    "step": "step",
    "reward": "reward",
    "accuracy": "rewards/correct/mean",
    "grad_norm": "grad_norm",
    "entropy": "entropy",
    "response_length": "completions/mean_length",
    "truncated": "completions/clipped_ratio",
    "zero_variance_groups": "frac_reward_zero_std",
}


def _draw() -> Figure:
    settings = TrainSettings(
        steps=24, num_prompts=8, lr_warmup_steps=2, evaluate_every=0, details_every=0, max_new_tokens=5
    )
    run = history(list(train(load_policy("chain"), "chain", GRPO.without_kl(), settings)))
    rows = run[list(LOGGED)].rename(columns=LOGGED).to_dict("records")
    with tempfile.TemporaryDirectory() as folder:
        log, back = Path(folder) / "trainer_state.json", Path(folder) / "back"
        log.write_text(json.dumps({"log_history": rows}), encoding="utf-8")
        import_run(log, back)
        for finding in diagnose(back):
            print(f"{finding.grade}: {finding.finding}\n    try {finding.setting}: {finding.advice}")  # noqa: T201
        return plot_learning_curves(RunFolder.open(back).metrics, title="What went wrong in this run?")


RUN = Unlabelled(
    draw=_draw,
    does="responses of five tokens at most",
    why={
        "a learning rate of 1e-2": "large steps break a policy that began well: here something is wrong in step 1.",
        "a learning rate of 1e-6": "then nothing would change; here the length and the entropy do.",
        "responses of five tokens at most": "responses are cut off from step 1 on. A running sum such as 38058#8 needs eight "
        "tokens, so only guesses fit; that most groups are all wrong comes later, and is a consequence.",
        "temperature 2": "then the responses would begin as noise, with two nats a token and more.",
        "nothing: it only needs more steps": "what is longer than the limit can never be sampled, however many steps.",
    },
)
