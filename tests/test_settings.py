"""Each setting is declared once: what the declaration says is what is checked and what is told."""

import pickle
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from rlviz.algorithms import ALGORITHMS, GRPO, ActorCritic
from rlviz.settings import (
    SEEDS,
    PairSettings,
    TrainSettings,
    UsualNumber,
    declarations,
)
from rlviz.training import default_settings, start, train
from rlviz.training.run import compute_precision
from rlviz.training.start import settle

KINDS = [TrainSettings, PairSettings]
INSIDE = {"at least": 0, "above": 1e-9, "at most": 0, "below": -1e-9}  # a limit and this is within


@pytest.mark.parametrize("kind", KINDS)
def test_the_ends_of_a_range_are_in_it(kind):
    for name, declaration in declarations(kind).items():
        for words, limit in declaration.limits.items():
            inside = limit - 1 if limit == SEEDS else limit + INSIDE[words]
            if name not in ("minibatches", "updates_per_rollout"):  # of which one must divide the other
                assert getattr(kind(**{name: inside}), name) == inside


def test_a_response_is_the_smallest_minibatch():
    assert TrainSettings(num_prompts=2, group_size=2, updates_per_rollout=4, minibatches=4).minibatches == 4


@pytest.mark.parametrize("kind", KINDS)
def test_the_docstring_has_a_line_for_each(kind):
    lines = kind.__doc__.splitlines()
    for name, declaration in declarations(kind).items():
        assert f"{name}: {declaration.help_line()}" in lines


def test_a_help_line_has_help_range_and_defaults():
    declared = declarations(TrainSettings)
    assert (
        declared["group_size"].help_line() == "Responses to each prompt, G. [at least 1, default: 8; with a critic 1]"
    )
    assert declared["top_p"].help_line().endswith("[above 0 and at most 1, default: 1]")
    assert (
        declared["steps"]
        .help_line(declarations(PairSettings)["steps"])
        .endswith("[at least 1, default: 120; of pairs 200]")
    )
    assert declared["max_new_tokens"].help_line().endswith("[at least 1, default: the task's own]")


def test_default_settings_are_the_declared_ones():
    for algorithm in ALGORITHMS:
        chosen = default_settings(algorithm)
        critic = isinstance(algorithm, ActorCritic)
        for name, declaration in declarations(type(chosen)).items():
            assert getattr(chosen, name) == (declaration.with_critic if critic else declaration.default)
        assert default_settings(algorithm, lr=0.5).lr == 0.5


@pytest.mark.parametrize(
    ("weights", "has_lora", "device", "lr", "is_bfloat16"),
    [
        (137_000, False, "cpu", 3e-4, False),  # one of ours
        (137_000, True, "cpu", 2e-4, False),
        (135_000_000, False, "cpu", 1e-6, False),
        (135_000_000, True, "cuda", 2e-4, True),
        (137_000, False, "cuda", 3e-4, False),
    ],
)
def test_rate_and_precision_suit_the_policy_where_none_are_set(weights, has_lora, device, lr, is_bfloat16, monkeypatch):
    monkeypatch.setattr(start, "has_adapter", lambda _: has_lora)
    policy = SimpleNamespace(num_parameters=weights, device=torch.device(device), weights=None)
    for kind in (TrainSettings, PairSettings):
        for settings in (kind(), pickle.loads(pickle.dumps(replace(kind(), seed=1)))):
            assert settle(settings, policy).lr == lr and not isinstance(settle(settings, policy).lr, UsualNumber)
        for set_by_hand in (0.5, 3e-4):
            assert settle(kind(lr=set_by_hand), policy).lr == set_by_hand
        assert isinstance(compute_precision(kind(), policy), torch.autocast) == is_bfloat16
        assert not isinstance(compute_precision(kind(precision="float32"), policy), torch.autocast)


def test_a_run_writes_down_the_rate_that_it_takes(tmp_path):
    run = train(
        "chain", GRPO, TrainSettings(steps=1, num_prompts=2, group_size=2, evaluate_every=0), out=tmp_path / "run"
    )
    assert run.settings.lr == 3e-4 and run.folder.config["settings"]["lr"] == 3e-4
