"""The laws that every run obeys, as a table: a new algorithm, task or part of training is a row here, and no more.

Each row trains a few steps; what it holds on purpose stands beside it.
"""

from collections.abc import Sequence
from dataclasses import fields, replace

import pytest
import torch

from rlviz import DAPO, DCPO, DPO, GRPO, GSPO, PPO, PPO_PENALTY, TIS
from rlviz.algorithms import DISTILLATION, DUPO, FORKING_TOKENS, GRPO_PROCESS, KL_COV
from rlviz.pieces.kl import KLInReward
from rlviz.training import RunFolder, default_settings, find_task, resume, train
from rlviz.training.run_folder import metrics_of
from rlviz.training.state import State, saved
from small_models import paths
from small_models.pairs import Pair
from small_models.policies import load_policy
from small_models.scorers import RewardModel, Scorer

FREE = replace(GRPO, kl=None)
AGAIN = {"updates_per_rollout": 4, "minibatches": 2, "lr": 1e-3}  # π_θ leaves π_old; rows in an order of their own
ALONE = {"num_prompts": 8, "group_size": 1}
PAIRS = [Pair("26954=", "28726#6", "#5"), Pair("81937=", "89818#8", "#3"), Pair("35271=", "38078#8", "#4")]
RUNS = {  # name → algorithm, settings, what else the run is given
    "GRPO": (GRPO, AGAIN, {}),  # a reference
    "GRPO without KL": (FREE, {}, {}),  # rows that teach nothing leave
    "a KL in the reward": (replace(FREE, kl=KLInReward(beta=0.1)), AGAIN, {}),
    "a reference that moves": (GRPO, {"reset_reference_every": 2}, {}),
    "a reference that was given": (DISTILLATION, {}, {"reference": "chain"}),
    "DAPO": (DAPO, AGAIN, {}),  # further rounds of sampling
    "DCPO": (DCPO, {"prompt_pool": 4, **AGAIN}, {}),  # a history of prompts
    "DUPO": (DUPO, AGAIN, {}),  # selects by chance
    "forking tokens": (FORKING_TOKENS, AGAIN, {}),  # the sampler's entropy
    "KL-Cov": (KL_COV, AGAIN, {}),  # tokens chosen among all of a minibatch
    "GSPO on experts": (GSPO, {}, {"policy": "chain-experts"}),  # routing
    "single steps": (GRPO_PROCESS, {}, {}),
    "PPO": (PPO, ALONE, {}),  # a critic and its optimizer
    "PPO, shared critic": (PPO, ALONE | {"critic": "shared", "critic_only_steps": 1}, {}),
    "PPO-Penalty": (PPO_PENALTY, ALONE | {"updates_per_rollout": 4, "lr": 1e-3}, {}),  # a KL weight that moves
    "an old sampler": (TIS, {"sampler_lag": 2, "sampler_bits": 4}, {}),  # weights of the steps before
    "a rounded sampler": (TIS, {"sampler_bits": 4}, {}),
    "top-k and top-p": (FREE, {"top_k": 5, "top_p": 0.9, "temperature": 0.8}, {}),
    "a pool that was filtered": (FREE, {"prompt_pool": 60, "filter_solved": 4}, {}),
    "a tool": (FREE, AGAIN, {"task": "lookup"}),
    "a learned reward": (FREE, {"refresh_reward_every": 2}, {"judge": True}),
    "bfloat16": (FREE, {"precision": "bfloat16"}, {}),
    "recomputed activations": (GRPO, {"activations": "recomputed"}, {}),
    "transformers' forward": (GRPO, AGAIN, {"path": "transformers"}),
    "DPO": (DPO, {"batch_size": 2}, {"pairs": True}),  # pairs that wait
}
SHARES = "accuracy well_formed truncated contributing rows_used repetition clip_fraction_low clip_fraction_high".split()
each_run = pytest.mark.parametrize("name", RUNS)
each_rollout = pytest.mark.parametrize("name", [name for name in RUNS if name != "DPO"])


def begin(name, *, out=None, **changed):
    algorithm, own, given = RUNS[name]
    few = {} if algorithm is DPO else {"num_prompts": 4, "group_size": 4, "details_every": 3, "watch_every": 2}
    often = {"steps": 6, "evaluate_every": 3, "checkpoint_every": 2}
    settings = default_settings(algorithm, **{**often, **few, **own, **changed})
    task = find_task(given.get("task", "chain"))
    policy = load_policy(given.get("policy", task.name), device="cpu")
    more = {"reference": given["reference"]} if "reference" in given else {}
    if "judge" in given:
        more["reward_model"] = RewardModel(Scorer.of(policy), policy.tokenizer)
    if "judge" in given or "pairs" in given:
        more["pairs"] = PAIRS
    with paths.computing(given.get("path", "plain")):
        return train(policy, task, algorithm, settings, out=out, **more)


def curve(records):
    """Return all that a run says of its steps, but for what a clock says."""
    return [{name: value for name, value in metrics_of(r).items() if name != "seconds"} for r in records]


def weights(run):
    return torch.cat([tensor.detach().flatten() for tensor in run.policy.weights.state_dict().values()])


def same(a, b):
    """Return whether two runs hand the same to their next step."""
    (tensors, values), (others, other_values) = (saved(run.state, run.settings) for run in (a, b))
    values, other_values = ({k: v for k, v in each.items() if k != "train_seconds"} for each in (values, other_values))
    return (
        values == other_values
        and tensors.keys() == others.keys()
        and all(torch.equal(tensor, others[key]) for key, tensor in tensors.items())
        and torch.equal(weights(a), weights(b))
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A function: the name of a run → that run, done, and its records."""
    done = {}

    def get(name):
        if name not in done:
            run = begin(name, out=tmp_path_factory.mktemp("whole") / "run")
            done[name] = run, list(run)
        return done[name]

    return get


@each_run
def test_the_same_seed_gives_the_same_curve_and_another_seed_another(name, whole):
    run, first = whole(name)
    twin = begin(name)
    again, other = list(twin), list(begin(name, seed=1, steps=3))
    assert repr(curve(first)) == repr(curve(again))
    assert repr(curve(first)[:3]) != repr(curve(other))
    assert same(run, twin)
    assert [getattr(r, "groups", ()) for r in first] == [getattr(r, "groups", ()) for r in again]


@each_run
def test_a_run_that_was_cut_off_goes_on_as_if_it_had_not_been(name, whole, tmp_path):
    run, expected = whole(name)
    cut = begin(name, out=tmp_path / "run")
    next(cut), next(cut), next(cut)  # the third step may be behind the last checkpoint, and is then done again
    again = resume(tmp_path / "run", device="cpu")
    done = again.step
    assert done in (2, 3)
    later = list(again)
    assert repr(curve(later)) == repr(curve(expected[done:]))
    assert [getattr(r, "groups", ()) for r in later] == [getattr(r, "groups", ()) for r in expected[done:]]
    assert same(run, again) and again.path == run.path
    kept = RunFolder.open(tmp_path / "run").records()
    assert repr(curve(kept)) == repr(curve(expected))
    assert [getattr(r, "groups", ()) for r in kept] == [getattr(r, "groups", ()) for r in expected]


@each_run
def test_what_is_measured_and_recorded_changes_nothing(name, whole):
    quiet = {"evaluate_every": 0} | ({} if name == "DPO" else {"details_every": 0})
    run = begin(name, **quiet)
    rows, expected = (
        [{key: value for key, value in row.items() if key != "held_out_accuracy"} for row in curve(records)]
        for records in (list(run), whole(name)[1])
    )
    assert repr(rows) == repr(expected) and torch.equal(weights(run), weights(whole(name)[0]))


@each_run
def test_a_checkpoint_holds_what_a_step_moved(name, whole):
    """Whatever differs from a run that begins is in the checkpoint, or is the policy, whose folder it is."""
    run, _ = whole(name)
    fresh = begin(name)
    tensors, values = saved(run.state, run.settings)
    names = {"policy": "optimizers", "critic_optimizer": "optimizers", "sampler": "past", "beta": "algorithm"}
    kept = {names.get(key.partition(".")[0], key.partition(".")[0]) for key in (*tensors, *values)}
    kept |= {"policy", "sampler"}  # which samples with weights of the past
    kept |= set() if getattr(run.settings, "sampler_lag", 0) else {"past"}  # the policy's
    for field in fields(State):
        if field.name not in kept:
            assert alike(getattr(run.state, field.name), getattr(fresh.state, field.name)), field.name


def alike(a, b):
    """Return whether two parts of a state are the same: by their tensors, where they have any."""
    for kind in ("weights", "scorer"):
        a, b = getattr(a, kind, a), getattr(b, kind, b)
    if isinstance(a, torch.nn.Module):
        a, b = a.state_dict(), b.state_dict()
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(value, b[key]) for key, value in a.items())
    if isinstance(a, Sequence) and not isinstance(a, str):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


@each_rollout
def test_an_update_in_parts_is_the_same_update(name):
    run, parts = begin(name, steps=2), begin(name, steps=2, micro_batch_tokens=60)
    list(run), list(parts)
    loose = 30 if name in ("bfloat16", "an old sampler", "a rounded sampler") else 1
    torch.testing.assert_close(weights(run), weights(parts), rtol=1e-3, atol=2e-5 * loose)


@each_run
def test_what_is_recorded_is_possible(name, whole):
    for numbers in curve(whole(name)[1]):
        assert all(0 <= numbers[share] <= 1 for share in SHARES if share in numbers)
        assert numbers["grad_norm"] >= 0 and numbers["lr"] > 0
        assert numbers.get("responses_used", 0) <= numbers.get("responses_sampled", 0)
        assert numbers.get("clip_fraction_low", 0) + numbers.get("clip_fraction_high", 0) <= 1


@each_run
def test_what_its_name_promises_is_there(name, whole):
    """A row that lost what it stands for would obey every law."""
    run, records = whole(name)
    numbers, state = curve(records), run.state
    promised = {
        "GRPO": any(n["ratio_std"] > 1e-3 for n in numbers if "ratio_std" in n),
        "DAPO": any(n.get("rounds", 0) > 1 for n in numbers),
        "DCPO": state.history is not None and int(state.history.visits.max()) > 3,
        "a pool that was filtered": state.pool is not None and 4 <= len(state.pool) < 60,
        "an old sampler": len(state.past) == 3,
        "PPO-Penalty": len({n.get("beta") for n in numbers}) > 1,
        "a learned reward": len(state.reward_pairs) > len(PAIRS) and state.reward_loss is not None,
        "GSPO on experts": any(n.get("routing_flips") is not None for n in numbers),
        "bfloat16": run.path == "transformers",
        "transformers' forward": run.path == "transformers",
        "recomputed activations": run.path == "transformers",
        "a tool": any(token.observed for r in records for g in getattr(r, "groups", ()) for token in tokens_of(g)),
    }
    assert promised.get(name, True)


def tokens_of(group):
    return [token for response in group.responses for token in response.tokens]
