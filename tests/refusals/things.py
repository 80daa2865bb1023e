"""What rows need to be called with, each made once and by name."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from rlviz.algorithms import DPO, GRPO
from rlviz.training import PairSettings, TrainSettings, train
from small_models.pairs import Pair
from small_models.policies import Policy, build_policy, load_policy
from small_models.scorers import RewardModel

PAIRS = [Pair("12345=", "13605#5", "#4"), Pair("54321=", "06315#5", "#1")]
SHORT = TrainSettings(steps=2, num_prompts=2, group_size=2, evaluate_every=0, details_every=0)


@cache
def policy() -> Policy:
    """Return the warm start of chain; nothing may train it."""
    return load_policy("chain", device="cpu")


@cache
def tiny() -> Policy:
    """Return a policy of one layer."""
    return build_policy(hidden_size=8, num_layers=1, num_heads=2, seed=1, device="cpu")


@cache
def reward_model() -> RewardModel:
    """Return a reward model on the trunk of the tiny policy."""
    return RewardModel.from_policy(tiny())


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="rlviz-refusals-")


def file(name: str, text: str | bytes) -> str:
    """Return the path of a new file, beside where the call is made."""
    path = Path(mkdtemp(dir=_folder().name)) / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@cache
def done() -> Path:
    """Return the folder of a run of GRPO on chain that has done its two steps."""
    out = Path(_folder().name) / "done"
    list(train("chain", GRPO, SHORT, out=out))
    return out


@cache
def done_on_pairs() -> Path:
    """Return the folder of a run of DPO that has done its step."""
    out = Path(_folder().name) / "pairs"
    list(train("chain", DPO, PairSettings(steps=1, batch_size=2, evaluate_every=0), pairs=PAIRS, out=out))
    return out
