"""A checkpoint that is not whole is never filled up: the one before it is used, which says so, or resuming is refused."""

import json
import shutil
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlviz import DAPO, PPO, TrainSettings
from rlviz.algorithms import GRPO, find_algorithm
from rlviz.training import resume, train
from small_models.policies import load_policy
from small_models.scorers import RewardModel, Scorer

NO_KL = replace(GRPO, kl=None)
TINY = TrainSettings(steps=4, num_prompts=2, group_size=2, evaluate_every=0, checkpoint_every=2)
MODEL, TENSORS = "model.safetensors", "training.safetensors"


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of four steps, its checkpoint.old of step 2."""
    out = tmp_path_factory.mktemp("whole") / "run"
    list(train(load_policy("chain", device="cpu"), "chain", NO_KL, TINY, out=out))
    return out


@pytest.fixture
def copied(whole, tmp_path):
    return Path(shutil.copytree(whole, tmp_path / "run"))


def contents(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def steps(run):
    """Return the step of each checkpoint, the newest first."""
    folders = [folder for folder in (run / "checkpoint", run / "checkpoint.old") if folder.exists()]
    return [json.loads((folder / "training.json").read_text())["step"] for folder in folders]


def tensors(name, change):
    """Return what changes the tensors of this file: change(name → tensor) returns them anew."""

    def damage(checkpoint):
        save_file(change(load_file(checkpoint / name)), checkpoint / name, metadata={"format": "pt"})

    return damage


def without(*names):
    return lambda kept: {name: tensor for name, tensor in kept.items() if name not in names}


def with_one(name, tensor=None):
    """Return what puts a tensor under this name: its own if it is a function's, else another one."""
    return lambda kept: kept | {name: torch.zeros(48, 64) if tensor is None else tensor(kept[name])}


def one_layer(checkpoint):
    """Take the second layer out of the weights and of the config: a policy that is whole, but another."""
    tensors(MODEL, lambda kept: {name: tensor for name, tensor in kept.items() if ".layers.1." not in name})(checkpoint)
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))


def config_of_one_layer(checkpoint):
    config = json.loads((checkpoint / "config.json").read_text())
    (checkpoint / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))


def empty(*names):
    return lambda checkpoint: [(checkpoint / name).write_bytes(b"") for name in names]


def linked(to):
    def damage(checkpoint):
        shutil.move(checkpoint, checkpoint.parent / "elsewhere")
        checkpoint.symlink_to(checkpoint.parent / to, target_is_directory=True)

    return damage


def a_file(checkpoint):
    shutil.rmtree(checkpoint)
    checkpoint.write_text("")


DAMAGES = {
    "missing": (shutil.rmtree, r"has lost its newest checkpoint"),
    "a file": (a_file, r"checkpoint must be a folder; it is a file"),
    "a link": (linked("elsewhere"), r"checkpoint must be a folder; it is a link"),
    "a link to the one before": (linked("checkpoint.old"), r"checkpoint must be a folder; it is a link"),
    "a link to nothing": (linked("nowhere"), r"checkpoint must be a folder; it is a link"),
    "empty files": (empty(MODEL, TENSORS, "training.json"), r"cannot be read"),
    "no head": (tensors(MODEL, without("lm_head.weight")), r"it lacks the weights lm_head.weight\)"),
    "no layer": (
        tensors(MODEL, without("model.norm.weight", "model.layers.0.mlp.up_proj.weight")),
        r"it lacks the weights model.layers.0.mlp.up_proj.weight and 1 others\)",
    ),
    "weights of nothing": (tensors(MODEL, with_one("v_head.weight")), r"has no place for its weights v_head.weight\)"),
    "layers left over": (config_of_one_layer, r"has no place for its weights model.layers.1.+ and 8 others\)"),
    "another policy": (one_layer, r"has other weights than reference/, from which the run started"),
    "whole numbers": (
        tensors(MODEL, with_one("lm_head.weight", torch.Tensor.char)),
        r"whole numbers stand for its weights lm_head.weight\)",
    ),
    "generator of floats": (
        tensors(TENSORS, with_one("generator", torch.Tensor.float)),
        r"generator must be uint8 of shape \(5056,\); got float32",
    ),
    "generator cut": (
        tensors(TENSORS, with_one("generator", lambda own: own[:7].clone())),
        r"generator must be uint8 of shape \(5056,\); got uint8 of shape \(7,\)",
    ),
    "no such parameter": (tensors(TENSORS, with_one("policy.99.exp_avg")), r"no place for policy.99.exp_avg\)"),
    "a parameter before the first": (
        tensors(TENSORS, with_one("policy.-1.exp_avg")),
        r"no place for policy.-1.exp_avg",
    ),
    "a digit that is no number": (tensors(TENSORS, with_one("policy.².exp_avg")), r"no place for policy.².exp_avg"),
    "no such moment": (tensors(TENSORS, with_one("policy.0.momentum")), r"no place for policy.0.momentum\)"),
    "a moment missing": (tensors(TENSORS, without("policy.3.exp_avg")), r"it lacks policy.3.exp_avg\)"),
    "a parameter's moments missing": (
        tensors(TENSORS, without(*(f"policy.3.{name}" for name in ("step", "exp_avg", "exp_avg_sq")))),
        r"training.safetensors must hold 64 tensors; it holds 61\)",
    ),
    "no moments": (
        tensors(TENSORS, lambda kept: {"generator": kept["generator"]}),
        r"training.safetensors must hold 64 tensors; it holds 1\)",
    ),
    "moments of whole numbers": (
        tensors(TENSORS, with_one("policy.0.exp_avg", torch.Tensor.char)),
        r"policy.0.exp_avg must be float32 of shape \(48, 64\); got int8",
    ),
    "moments of another parameter": (
        tensors(TENSORS, with_one("policy.0.exp_avg", lambda own: own[:, :9].clone())),
        r"policy.0.exp_avg must be float32 of shape \(48, 64\); got float32 of shape \(48, 9\)",
    ),
    "moments that are not finite": (
        tensors(TENSORS, with_one("policy.0.exp_avg", lambda own: own * float("nan"))),
        r"policy.0.exp_avg must be finite numbers",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_checkpoint_before_it_is_used_which_says_why_and_takes_its_place(damage, copied, whole):
    act, why = DAMAGES[damage]
    act(copied / "checkpoint")
    with pytest.warns(UserWarning, match=f"{why}.*; the one before it, of step 2, is whole, and the steps after it"):
        run = resume(copied, steps=6, device="cpu")
    assert run.step == 2
    run.folder.release("is not gone on with")
    assert contents(copied / "checkpoint") == contents(whole / "checkpoint.old")
    assert not (copied / "checkpoint").is_symlink() and steps(copied) == [2]


@pytest.mark.parametrize("damage", ["no head", "no moments", "another policy", "a link to nothing"])
def test_without_one_before_it_resuming_is_refused_and_nothing_changes(damage, copied):
    shutil.rmtree(copied / "checkpoint.old")
    act, why = DAMAGES[damage]
    act(copied / "checkpoint")
    before = contents(copied)
    with pytest.raises(ValueError, match=f"^[^\n]*{why}"):
        resume(copied, steps=6, device="cpu")
    assert contents(copied) == before


def test_where_both_are_damaged_both_are_named(copied):
    DAMAGES["no head"][0](copied / "checkpoint")
    DAMAGES["no moments"][0](copied / "checkpoint.old")
    with pytest.raises(ValueError, match=r"checkpoint cannot be read .*; the checkpoint in .*checkpoint\.old is not"):
        resume(copied, steps=6, device="cpu")


def test_a_whole_one_is_resumed_without_a_word_and_both_stay(copied, whole):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert resume(copied, steps=6, device="cpu").step == 4
    for name in ("checkpoint", "checkpoint.old"):
        assert contents(copied / name) == contents(whole / name)


def test_a_damaged_one_never_takes_the_place_of_the_one_before(copied, whole):
    """Not at resuming, and not at the next save, which keeps the good one until the new one stands."""
    DAMAGES["no head"][0](copied / "checkpoint")
    with pytest.warns(UserWarning, match="the one before it, of step 2, is whole"):
        run = resume(copied, device="cpu")
    list(run)
    assert steps(copied) == [4, 2]
    assert contents(copied / "checkpoint.old") == contents(whole / "checkpoint.old")
    assert load_file(copied / "checkpoint" / MODEL).keys() == load_file(whole / "checkpoint" / MODEL).keys()


def test_a_checkpoint_from_before_tensors_were_counted_is_resumed(copied):
    file = copied / "checkpoint" / "training.json"
    state = json.loads(file.read_text())
    assert state.pop("tensors") == len(load_file(copied / "checkpoint" / TENSORS)) == 1 + 3 * 21
    file.write_text(json.dumps(state))
    assert resume(copied, steps=6, device="cpu").step == 4


@pytest.mark.parametrize("damage", [config_of_one_layer, one_layer, DAMAGES["no head"][0]])
@pytest.mark.parametrize("name", ["reference", "given_reference"])
def test_a_reference_of_other_layers_is_refused(name, damage, whole, tmp_path):
    out = tmp_path / "run"
    few = replace(TINY, steps=1)
    list(train(load_policy("chain", device="cpu"), "chain", GRPO, few, reference="chain", out=out))
    damage(out / name)
    if name == "given_reference" and damage is one_layer:  # a teacher may be of another shape
        assert resume(out, steps=2, device="cpu").step == 1
        return
    before = contents(out)
    with pytest.raises(ValueError, match=r"no place for its weights|other weights than reference/|lacks the weights"):
        resume(out, steps=2, device="cpu")
    assert contents(out) == before


def learned():
    chain = load_policy("chain", device="cpu")
    return RewardModel(Scorer.of(chain), chain.tokenizer)


KINDS = {  # what else a run may keep: algorithm, settings, and the names of one tensor of each kind
    "critic": (PPO, {"critic": "separate"}, ["critic.scorer.head.weight", "critic_optimizer.0.exp_avg"]),
    "reset reference": (GRPO, {"reset_reference_every": 1}, ["reference.lm_head.weight"]),
    "another engine": (NO_KL, {"sampler_lag": 1}, ["sampler.1.lm_head.weight"]),
    "filtered prompts": (NO_KL, {"filter_solved": 1, "prompt_pool": 8}, ["pool"]),
    "history": (find_algorithm("dcpo"), {}, ["history.mean", "history.prompts"]),
    "reward model": (DAPO, {"refresh_reward_every": 1}, ["reward_model.head.weight"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_else_a_run_keeps_must_be_there_and_of_its_kind(kind, tmp_path):
    algorithm, settings, names = KINDS[kind]
    few = replace(TINY, steps=2, **settings)
    reward_model = learned() if kind == "reward model" else None
    out = tmp_path / "run"
    list(train(load_policy("chain", device="cpu"), "chain", algorithm, few, reward_model=reward_model, out=out))
    shutil.rmtree(out / "checkpoint.old")
    assert resume(out, steps=3, device="cpu").step == 2
    kept = contents(out / "checkpoint")
    for name in names:
        for change in (without(name), with_one(name, lambda own: own[None].half().clone())):
            tensors(TENSORS, change)(out / "checkpoint")
            with pytest.raises(
                ValueError, match=r"not one of this version \((it lacks |training.safetensors: |a part)"
            ):
                resume(out, steps=3, device="cpu")
            (out / "checkpoint" / TENSORS).write_bytes(kept[Path(TENSORS)])
