"""Each setting is declared once: what the declaration says is what is checked and what is told."""

import math
import subprocess
import sys
from dataclasses import dataclass

import pytest

from rlviz.algorithms import ALGORITHMS, ActorCritic
from rlviz.settings import (
    LARGEST,
    PairSettings,
    TrainSettings,
    check_names,
    declarations,
    setting,
    settings_from,
)
from rlviz.training import default_settings, train

KINDS = [TrainSettings, PairSettings]
EVERY = [(kind, name) for kind in KINDS for name in declarations(kind)]
BEYOND = {
    "at least": (-1, 0),
    "above": (0, 1e-9),
    "at most": (1e-9, 0),
    "below": (0, -1e-9),
}  # beyond the limit, within


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_a_limit_is_kept_on_both_sides(kind, name):
    declaration = declarations(kind)[name]
    for words, limit in declaration.limits.items():
        if limit == 2**63:  # refused as no number for torch
            continue
        whole = words == "at most" and not isinstance(declaration.default, float)
        beyond = (1, 0) if whole else BEYOND[words]
        outside, inside = (limit + type(limit)(step) if step in (0, -1) else limit + step for step in beyond)
        with pytest.raises(ValueError, match=rf"^{name} must be .*{words} {limit}.*; got ") as refused:
            kind(**{name: outside})
        assert declaration.range in str(refused.value)
        if not (kind is TrainSettings and name in ("minibatches", "updates_per_rollout")):
            assert getattr(kind(**{name: inside}), name) == inside


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_numbers_are_finite_and_of_a_size_that_fits(kind, name):
    default = declarations(kind)[name].default
    if isinstance(default, float):
        for value in (math.nan, math.inf, -math.inf):
            with pytest.raises(ValueError, match=f"^{name} must be finite; got"):
                kind(**{name: value})
    elif isinstance(default, int) and name != "seed":
        with pytest.raises(ValueError, match=f"^{name} must be below 1,000,000,000; got"):
            kind(**{name: LARGEST})
    elif name == "seed":
        assert kind(seed=2**63 - 1).seed == 2**63 - 1
        with pytest.raises(ValueError, match=r"^seed must be below 2\*\*63"):
            kind(seed=2**63)


@pytest.mark.parametrize(("kind", "name"), EVERY)
@pytest.mark.parametrize("wrong", ["hot", True, [1], {}, 1j], ids=repr)
def test_what_is_of_another_type_is_refused(kind, name, wrong):
    with pytest.raises(ValueError, match=rf"^{name} must be (a|one of) .*; got "):
        kind(**{name: wrong})


@pytest.mark.parametrize(("kind", "name"), EVERY)
def test_none_and_halves_are_for_the_settings_that_take_them(kind, name):
    default = declarations(kind)[name].default
    if default is not None:
        with pytest.raises(ValueError, match=f"^{name} must be .*; got None"):
            kind(**{name: None})
    if isinstance(default, int) or name in ("max_new_tokens", "sampler_bits"):
        with pytest.raises(ValueError, match=f"^{name} must be a whole number.*; got 4.5"):
            kind(**{name: 4.5})


def test_a_reason_is_told_where_there_is_one():
    with pytest.raises(ValueError, match=r"^temperature must be above 0 \(greedy responses are all alike\); got 0"):
        TrainSettings(temperature=0)


@pytest.mark.parametrize("kind", KINDS)
def test_the_docstring_has_a_line_for_each(kind):
    lines = kind.__doc__.splitlines()
    for name, declaration in declarations(kind).items():
        assert f"{name}: {declaration.said()}" in lines


def test_said_gives_help_range_and_defaults():
    declared = declarations(TrainSettings)
    assert declared["group_size"].said() == "Responses to each prompt, G. [at least 1, default: 8; with a critic 1]"
    assert declared["top_p"].said().endswith("[above 0 and at most 1, default: 1]")
    assert (
        declared["steps"].said(declarations(PairSettings)["steps"]).endswith("[at least 1, default: 120; of pairs 200]")
    )
    assert declared["max_new_tokens"].said().endswith("[at least 1, default: the task's own]")


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda algorithm: algorithm.name)
def test_default_settings_are_the_declared_ones(algorithm):
    chosen = default_settings(algorithm)
    critic = isinstance(algorithm, ActorCritic)
    for name, declaration in declarations(type(chosen)).items():
        assert getattr(chosen, name) == (declaration.with_critic if critic else declaration.default)
    assert default_settings(algorithm, lr=0.5).lr == 0.5


def test_a_name_that_there_is_not_gets_the_nearest():
    with pytest.raises(ValueError, match=r"group_sise is no setting of mine; did you mean group_size\?"):
        check_names(TrainSettings, ["group_sise"], "of mine")
    assert settings_from({"batch_size": 3}) == PairSettings(batch_size=3)
    assert settings_from({"group_size": 3}) == TrainSettings(group_size=3)


def test_a_setting_of_ones_own_is_a_plain_field():
    @dataclass(frozen=True)
    class Own:
        width: float = setting(0.5, "Width of it.", "Own", above=0)

    assert Own() == Own(0.5) and Own.width == 0.5
    assert declarations(Own)["width"].range == "above 0"


def test_settings_need_no_torch():
    script = "import sys, rlviz.settings; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_misspelt_setting_is_answered_with_the_nearest(kind):
    with pytest.raises(
        TypeError, match=rf"^{kind.__name__} has no setting 'max_new_token'; did you mean max_new_tokens\?"
    ):
        kind(max_new_token=3)
    with pytest.raises(TypeError, match=r"has no setting 'zzz'; it has steps, seed, "):
        kind(zzz=3)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("steps", r"it is a setting: train\(…, TrainSettings\(steps=…\)\)"),
        ("batch_size", r"it is a setting: train\(…, PairSettings\(batch_size=…\)\)"),
        ("group_sise", r"did you mean group_size\?"),
        ("zzz", "it has settings, reward_model, pairs, reference, out"),
    ],
)
def test_a_setting_given_to_train_is_told_where_it_stands(name, said):
    with pytest.raises(TypeError, match=rf"^train has no argument '{name}'; .*{said}"):
        train("chain", "grpo", **{name: 2})
