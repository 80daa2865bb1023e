"""The laws that every run obeys: rows of `runs.py` × laws. A law that asks the same of each row's code is asked of some rows."""

import pytest
import torch

from rlviz.training import RunFolder, resume
from rlviz.training.state import checkpoint_data
from tests.training.runs import begin, groups, numbers

# Rows with something of their own that one step hands to the next; the others stand in test_golden.py, LoRA in test_adapters.py
ROWS = [
    "GRPO", "a reference that moves", "a reference that was given", "DCPO", "DUPO", "PPO, minibatches", "PPO, shared critic",
    "PPO-Penalty", "an old sampler", "a rounded sampler", "a pool that was filtered", "sentences", "a learned reward",
    "recomputed activations", "transformers' forward", "DPO",
]  # fmt: skip
SHORT = {"steps": 4, "evaluate_every": 4}  # cut off in the third step or after it, saved after the second
each_run = pytest.mark.parametrize("name", ROWS)
# each way to record or to measure: a reference's numbers, chosen tokens, a critic's, the sampler's, routes, a tool's, pairs
RECORDED = ["GRPO", "chosen tokens", "PPO", "an old sampler", "GSPO on experts", "a tool", "DPO"]
# each way to divide: zero rows or none, weights of all rows, chosen tokens, an entropy, routes, both critics, bfloat16
DIVIDED = [
    "GRPO", "GRPO without KL", "chosen tokens", "forking tokens", "GSPO on experts", "PPO", "PPO, shared critic", "a tool",
    "bfloat16",
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


def test_another_seed_gives_another_curve(done_run):
    assert repr(curve(done_run("GRPO")[1])[:1]) != repr(curve([next(begun("GRPO", seed=1))]))


@pytest.mark.parametrize("name", RECORDED)
def test_what_is_measured_and_recorded_changes_nothing(name, done_run):
    quiet = {"evaluate_every": 0} | ({} if name == "DPO" else {"details_every": 0})
    run = begun(name, **quiet)
    rows, expected = (
        [{key: value for key, value in row.items() if key != "held_out_accuracy"} for row in curve(records)]
        for records in (list(run), done_run(name)[1])
    )
    assert repr(rows) == repr(expected) and torch.equal(weights(run), weights(done_run(name)[0]))


@pytest.mark.parametrize("name", DIVIDED)
def test_an_update_in_parts_is_the_same_update(name):
    run, parts = begun(name, steps=2), begun(name, steps=2, micro_batch_tokens=60)
    list(run), list(parts)
    loose = 30 if name == "bfloat16" else 1
    torch.testing.assert_close(weights(run), weights(parts), rtol=1e-3, atol=2e-5 * loose)
