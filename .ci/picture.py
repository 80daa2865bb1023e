"""Draw the README's picture from the same functions as the course: python .ci/picture.py"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlviz import GRPO, TrainSettings, history, train
from rlviz.pictures.base import dress, new_figure
from rlviz.pictures.clip import clip_curve, plot_clip
from rlviz.runs.learning import plot_metrics
from small_models.policies import load_policy
from small_models.tasks import Chain

OUT = Path(__file__).parent.parent / "notebooks" / "images" / "rlviz.png"


def main() -> None:
    """Train once with seed 0 and draw what the clip does beside what the run did."""
    records = list(train(load_policy("chain"), Chain(), replace(GRPO, kl=None), TrainSettings()))
    figure = new_figure(13, 4, dpi=110)
    clip, worse, curves = figure.subplots(1, 3)
    plot_clip(clip_curve(GRPO, advantage=1.0), ax=clip)
    plot_clip(clip_curve(GRPO, advantage=-1.0), ax=worse)
    clip.get_legend().remove()
    dress(curves, title="GRPO on chain, seed 0", x="step", y="share")
    plot_metrics(history(records), {"reward": "reward, sampled", "held_out_accuracy": "accuracy, held out"}, ax=curves)
    curves.set_ylim(0, 1.02)
    OUT.parent.mkdir(exist_ok=True)
    figure.savefig(OUT)


if __name__ == "__main__":
    main()
