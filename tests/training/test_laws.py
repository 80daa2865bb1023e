"""The laws that every run obeys: rows of `runs.py` × laws. A law that asks the same of each row's code is asked of some rows."""

from collections.abc import Sequence
from dataclasses import fields

import pytest
import torch

from rlviz.training import RunFolder, resume
from rlviz.training.state import State, checkpoint_data
from tests.training.runs import PAIRS, RUNS, begin, groups, numbers

# Rows without anything of their own that one step hands to the next stand in test_golden.py alone; LoRA in test_adapters.py
ROWS = [
    name
    for name in RUNS
    if name not in ("LoRA", "Lite PPO", "an entropy bonus", "two rules", "rare tokens left out", "PPO, learned reward")
]
SHORT = {"steps": 4, "evaluate_every": 4}  # cut off in the third step or after it, saved after the second
SHARES = "accuracy well_formed truncated contributing rows_used repetition clip_fraction_low clip_fraction_high".split()
each_run = pytest.mark.parametrize("name", ROWS)
# each way to record or to measure: a reference's numbers, chosen tokens, a critic's, the sampler's, routes, a tool's, pairs
RECORDED = [
    "GRPO", "chosen tokens", "PPO", "an old sampler", "GSPO on experts", "a tool", "transformers' forward", "DPO"
]  # fmt: skip
# each way to divide: zero rows or none, weights of all rows, chosen tokens, an entropy, routes, both critics, bfloat16
DIVIDED = [
    "GRPO", "GRPO without KL", "DAPO", "chosen tokens", "forking tokens", "GSPO on experts", "PPO", "PPO, shared critic",
    "a tool", "an old sampler", "bfloat16",
]  # fmt: skip


def begun(name, **changes):
    return begin(name, **{**SHORT, **changes})


def curve(records):
    return [numbers(record) for record in records]


def weights(run):
    return torch.cat([tensor.detach().flatten() for tensor in run.policy.weights.state_dict().values()])


def same(a, b):
    """Return whether two runs hand the same to their next step."""
    (tensors, values), (others, other_values) = (checkpoint_data(run.state, run.settings) for run in (a, b))
    values, other_values = ({k: v for k, v in data.items() if k != "train_seconds"} for data in (values, other_values))
    return (
        values == other_values
        and tensors.keys() == others.keys()
        and all(torch.equal(tensor, others[key]) for key, tensor in tensors.items())
        and torch.equal(weights(a), weights(b))
    )


@pytest.fixture(scope="module")
def done_run():
    """A function: the name of a run → that run, done, and its records."""
    done = {}

    def get(name):
        if name not in done:
            run = begun(name)
            done[name] = run, list(run)
        return done[name]

    return get


@each_run
def test_the_same_seed_gives_the_same_curve_and_a_run_that_was_cut_off_goes_on(name, done_run, tmp_path):
    """One law for both: steps 1 to 3 are another run's of the same seed, the others are of the run that went on."""
    run, expected = done_run(name)
    cut = begun(name, out=tmp_path / "run")
    next(cut), next(cut), next(cut)  # the third step may be behind the last checkpoint, and is then done again
    again = resume(tmp_path / "run", device="cpu")
    done = again.step
    assert done in (2, 3)
    later = list(again)
    assert repr(curve(later)) == repr(curve(expected[done:]))
    assert same(run, again) and again.path == run.path
    stored = RunFolder.open(tmp_path / "run").records()
    assert repr(curve(stored)) == repr(curve(expected))
    for got, wanted in ((later, expected[done:]), (stored, expected)):
        assert [groups(record) for record in got] == [groups(record) for record in wanted]


@pytest.mark.parametrize("name", ["GRPO", "DPO"])
def test_another_seed_gives_another_curve(name, done_run):
    assert repr(curve(done_run(name)[1])[:1]) != repr(curve([next(begun(name, seed=1))]))


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_measured_and_recorded_changes_nothing(name, done_run):
    quiet = {"evaluate_every": 0} | ({} if name == "DPO" else {"details_every": 0})
    run = begun(name, **quiet)
    rows, expected = (
        [{key: value for key, value in row.items() if key != "held_out_accuracy"} for row in curve(records)]
        for records in (list(run), done_run(name)[1])
    )
    assert repr(rows) == repr(expected) and torch.equal(weights(run), weights(done_run(name)[0]))


@each_run
def test_a_checkpoint_holds_what_a_step_moved(name, done_run):
    """Whatever differs from a run that begins is in the checkpoint, or is the policy, whose folder it is."""
    run, _ = done_run(name)
    fresh = begun(name)
    tensors, values = checkpoint_data(run.state, run.settings)
    names = {"policy": "optimizers", "critic_optimizer": "optimizers", "sampler": "past", "beta": "algorithm"}
    covered = {names.get(key.partition(".")[0], key.partition(".")[0]) for key in (*tensors, *values)}
    covered |= {"policy", "sampler"}  # which samples with weights of the past
    covered |= set() if getattr(run.settings, "sampler_lag", 0) else {"past"}  # the policy's
    for field in fields(State):
        if field.name not in covered:
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


@pytest.mark.parametrize("name", DIVIDED)
def test_an_update_in_parts_is_the_same_update(name):
    run, parts = begun(name, steps=2), begun(name, steps=2, micro_batch_tokens=60)
    list(run), list(parts)
    loose = 30 if name in ("bfloat16", "an old sampler") else 1
    torch.testing.assert_close(weights(run), weights(parts), rtol=1e-3, atol=2e-5 * loose)


@each_run
def test_what_is_recorded_is_possible(name, done_run):
    for row in curve(done_run(name)[1]):
        assert all(0 <= row[share] <= 1 for share in SHARES if row.get(share) is not None)  # None: none can be right
        assert row["grad_norm"] >= 0 and row["lr"] > 0
        assert row.get("responses_used", 0) <= row.get("responses_sampled", 0)
        assert row.get("clip_fraction_low", 0) + row.get("clip_fraction_high", 0) <= 1


@each_run
def test_what_its_name_promises_is_there(name, done_run):
    """A row that lost what it stands for would obey every law."""
    run, records = done_run(name)
    rows, state = curve(records), run.state
    promised = {
        "GRPO": any(n["ratio_std"] > 1e-3 for n in rows if "ratio_std" in n),
        "DAPO": any(n.get("rounds", 0) > 1 for n in rows),
        "DCPO": state.history is not None and int(state.history.visits.max()) > 3,
        "a pool that was filtered": state.pool is not None and 4 <= len(state.pool) < 60,
        "an old sampler": len(state.past) == 3,
        "PPO-Penalty": len({n.get("beta") for n in rows}) > 1,
        "sentences": all(n.get("accuracy") is None for n in rows),
        "a learned reward": len(state.reward_pairs) > len(PAIRS) and state.reward_loss is not None,
        "GSPO on experts": any(n.get("routing_flips") is not None for n in rows),
        "bfloat16": run.path == "transformers",
        "transformers' forward": run.path == "transformers",
        "recomputed activations": any(
            getattr(m, "gradient_checkpointing", False) for m in run.policy.weights.modules()
        ),
        "a tool": any(token.observed for r in records for g in groups(r) for token in tokens_of(g)),
    }
    assert promised.get(name, True)


def tokens_of(group):
    return [token for response in group.responses for token in response.tokens]
