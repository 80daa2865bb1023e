"""What models cost: counted by hand, memory against the allocator's own events, all settings on the same responses."""

import json
from dataclasses import asdict

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from rlviz.algorithms import DPO, GRPO
from rlviz.training import TrainSettings, cost, train
from rlviz.training.cost import Cost, ModelCost, cost_table, model_costs, peak_bytes
from rlviz.training.preferences import PreferenceRun
from rlviz.training.run import RolloutRun
from small_models.pairs import encode_pairs
from small_models.policies import build_policy, load_policy
from small_models.tasks import Chain

CPU = torch.device("cpu")
NAMES = [
    "GRPO",
    "GRPO, no KL",
    "GRPO, learned reward",
    "PPO, separate critic",
    "PPO, separate critic, learned reward",
    "PPO, shared critic",
    "PPO, shared critic, learned reward",
    "DPO",
]
# width 16, one layer, 48 characters: embedding 48·16, attention 4·16², feed-forward 3·16·64, two norms of 16; a last norm of 16
TRUNK = 48 * 16 + 4 * 16**2 + 3 * 16 * 64 + 2 * 16 + 16  # in 1 + 4 + 3 + 2 + 1 = 11 tensors
ACTOR = TRUNK + 48 * 16  # and the output layer, a twelfth
HEAD = 16 + 1  # weight and bias: two tensors


def trained(role, parameters, tensors):
    """float32 weights and gradients; of AdamW two float32 moments a parameter and a float32 count of steps a tensor."""
    return ModelCost(role, parameters, 4 * parameters, 4 * parameters, 2 * 4 * parameters + 4 * tensors)


def frozen(role, parameters):
    return ModelCost(role, parameters, 4 * parameters, 0, 0)


ACTOR_COST, REFERENCE = trained("actor", ACTOR, 12), frozen("reference", ACTOR)
SEPARATE, SHARED = trained("critic", TRUNK + HEAD, 13), trained("critic", HEAD, 2)
REWARD = frozen("reward", TRUNK + HEAD)
BY_HAND = dict(
    zip(
        NAMES,
        [
            (ACTOR_COST, REFERENCE),
            (ACTOR_COST,),
            (ACTOR_COST, REFERENCE, REWARD),
            (ACTOR_COST, SEPARATE, REFERENCE),
            (ACTOR_COST, SEPARATE, REFERENCE, REWARD),
            (ACTOR_COST, SHARED, REFERENCE),
            (ACTOR_COST, SHARED, REFERENCE, REWARD),
            (ACTOR_COST, REFERENCE),
        ],
        strict=True,
    )
)


def tiny():
    return build_policy(hidden_size=16, num_layers=1, num_heads=2, device="cpu")


@pytest.fixture(scope="module")
def measured():
    """Costs of a tiny policy, and what its runs were seen to do: rollouts' tokens, rows of updates, tokens of pairs."""
    seen = {"rollouts": {}, "rows": [], "pairs": []}
    collect, update, of_pairs = RolloutRun.collect, RolloutRun.update, PreferenceRun.update

    def watched_collect(run):
        rollout = collect(run)
        seen["rollouts"].setdefault(id(run), []).append(rollout.samples.tokens)
        seen.setdefault("runs", []).append(run)  # so that no id is given twice
        return rollout

    def watched_update(run, rollout):
        updates = update(run, rollout)
        seen["rows"].append(updates.rows)
        return updates

    def watched_update_of_pairs(run, places):
        seen["pairs"].append(encode_pairs(run.policy, [run.pairs[place] for place in places]).tokens)
        return of_pairs(run, places)

    policy = tiny()
    before = {name: tensor.clone() for name, tensor in policy.model.state_dict().items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RolloutRun, "collect", watched_collect)
        patch.setattr(RolloutRun, "update", watched_update)
        patch.setattr(PreferenceRun, "update", watched_update_of_pairs)
        costs = model_costs(policy, Chain(), num_prompts=6, group_size=4, updates_per_rollout=2, repeats=2)
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.model.state_dict().items())
    assert all(parameter.grad is None for parameter in policy.model.parameters())
    return {cost.name: cost for cost in costs}, seen


@pytest.mark.parametrize("name", NAMES)
def test_what_each_model_holds_is_what_is_counted_by_hand(measured, name):
    assert measured[0][name].models == BY_HAND[name]


def test_settings_come_in_their_order(measured):
    assert list(measured[0]) == NAMES


def test_all_settings_work_on_the_same_responses(measured):
    costs, seen = measured
    first, *others = [
        tokens for tokens in seen["rollouts"].values() if len(tokens) == 4
    ]  # two for memory, two for time
    assert len(others) == 6
    for tokens in others:
        assert all(torch.equal(a, b) for a, b in zip(first, tokens, strict=True))
    assert not torch.equal(first[0], first[1][..., : first[0].shape[-1]])
    assert set(seen["rows"]) == {2 * 24}  # two updates on all 24 responses: no group dropped out
    assert {tuple(tokens.shape) for tokens in seen["pairs"]} == {(12, 2, first[0].shape[-1])}
    assert {(cost.responses, cost.tokens) for cost in costs.values()} == {(24, first[0].numel())}


def test_a_separate_critic_doubles_what_an_update_remembers(measured):
    costs = measured[0]
    grpo = costs["GRPO"].activations
    assert grpo > 24 * 14 * 16 * 4  # more than the embeddings alone
    assert 1.6 < costs["PPO, separate critic"].activations / grpo < 2.1  # nothing of the vocabulary's width, else twice
    assert 0.95 < costs["PPO, shared critic"].activations / grpo < 1.1
    assert costs["GRPO, learned reward"].activations == grpo


def test_activations_grow_with_the_responses():
    few, many = (model_costs(tiny(), Chain(), num_prompts=count, group_size=4, repeats=1)[0] for count in (8, 16))
    assert few.tokens * 2 == many.tokens
    fixed = 4 * ACTOR  # the largest that does not grow is a gradient
    assert abs(many.activations - 2 * few.activations) < 2 * fixed


def test_seconds_and_ratios_of_a_clock_by_hand(monkeypatch):
    """Each look at the clock is one second later, two with a critic that is a model of its own."""
    at = [0.0]

    def now(run):
        at[0] += 2.0 if len(run.state.optimizers) == 2 else 1.0
        return at[0]

    monkeypatch.setattr(cost, "_now", now)
    costs = model_costs(tiny(), Chain(), num_prompts=2, group_size=2, updates_per_rollout=2, repeats=2)
    by_name = {cost.name: cost for cost in costs}
    seconds = {
        name: (cost.rollout_seconds, cost.update_seconds, cost.step_seconds, cost.seconds_to_grpo)
        for name, cost in by_name.items()
    }
    assert seconds["GRPO"] == (1.0, 0.5, 2.0, 1.0)  # one second for the two updates of a step
    assert seconds["PPO, separate critic"] == (2.0, 1.0, 4.0, 2.0)
    assert seconds["DPO"] == (0.0, 1.0, 2.0, 1.0)  # one update each time, and no rollout


def test_a_ratio_is_taken_within_a_round(monkeypatch):
    """The machine slows down from round to round: 1 and 30, 10 and 20, 100 and 200 seconds have a median ratio of 2."""
    rounds = {"GRPO": [1.0, 10.0, 100.0], "DPO": [30.0, 20.0, 200.0]}

    def seconds(run, updates_per_rollout):
        plain = run.algorithm in (GRPO, DPO) and "reward" not in run.models
        step = rounds[run.algorithm.name].pop(0) if plain else 1.0
        return 0.0, step, step

    monkeypatch.setattr(cost, "_seconds", seconds)
    costs = model_costs(tiny(), Chain(), num_prompts=2, group_size=2, repeats=3)
    assert costs[-1].name == "DPO"
    assert costs[-1].step_seconds == 30.0
    assert costs[-1].seconds_to_grpo == 2.0


def test_rows_as_a_table_and_as_json(measured):
    costs = list(measured[0].values())
    table = cost_table(costs)
    assert list(table["name"]) == NAMES
    ppo = table.loc[3]
    parameters = 2 * ACTOR + TRUNK + HEAD
    assert ppo["models"] == "actor, critic, reference"
    assert ppo["parameters"] == parameters
    assert ppo["weights"] == 4 * parameters
    assert ppo["gradients"] == 4 * (ACTOR + TRUNK + HEAD)
    assert ppo["optimizer_state"] == 8 * (ACTOR + TRUNK + HEAD) + 4 * 25
    held = ppo["weights"] + ppo["gradients"] + ppo["optimizer_state"]
    assert ppo["bytes"] == held + ppo["activations"] == costs[3].bytes
    assert ppo["bytes_to_grpo"] == pytest.approx(costs[3].bytes / costs[0].bytes)
    assert table["bytes_to_grpo"][0] == table["seconds_to_grpo"][0] == 1
    back = json.loads(json.dumps([asdict(cost) for cost in costs]))
    assert [row["name"] for row in back] == NAMES
    assert back[3]["models"][1] == asdict(SEPARATE)


def test_bytes_of_a_cost_by_hand():
    models = (ModelCost("actor", 1, 10, 20, 40), ModelCost("reference", 1, 100, 0, 0))
    assert Cost("", models, 1000, 1, 1, 0.0, 1.0, 1.0, 1.0).bytes == 1170


def test_weights_that_share_their_memory_count_once():
    model = nn.Sequential(nn.Linear(3, 5, bias=False), nn.Linear(3, 5, bias=False))
    model[1].weight = nn.Parameter(model[0].weight.data)
    assert ModelCost.of("actor", model).weights == 3 * 5 * 4


def test_peak_of_a_product_and_what_follows():
    a, b = torch.randn(300, 400), torch.randn(400, 500)
    assert peak_bytes(lambda: None, [a, b], CPU) == 4 * (300 * 400 + 400 * 500)
    assert peak_bytes(lambda: a @ b, [], CPU) == 4 * 300 * 500

    def chain():
        c = a @ b
        d = c.relu()
        del c
        return d.T.mm(d)  # d [300, 500] and the product [500, 500], c is gone

    assert peak_bytes(chain, [], CPU) == 4 * (300 * 500 + 500 * 500)


def test_peak_of_a_backward():
    """exp keeps its result [200, 400]. Backward: the slope of exp's input, the same size, then that of w [300, 400] when the
    result is gone: 200·400 + 300·400 numbers, and a few single ones (the sum, its slope)."""
    x, w = torch.randn(200, 300), torch.randn(300, 400, requires_grad=True)
    peak = peak_bytes(lambda: (x @ w).exp().sum().backward(), [], CPU)
    assert 0 <= peak - 4 * (200 * 400 + 300 * 400) <= 64


def test_what_is_held_and_let_go_leaves_the_peak():
    old = [torch.zeros(1000)]

    def work():
        old.clear()
        return torch.zeros(600)

    assert peak_bytes(work, (tensor for tensor in old), CPU) == 4000  # not 6400


def test_what_was_there_before_is_not_counted_when_it_is_used():
    a = torch.zeros(1000)
    assert peak_bytes(lambda: a.view(10, 100).add_(1).T, [], CPU) == 0


@pytest.mark.parametrize("held", ["nothing", "gradients"])
def test_the_allocator_sees_the_same_peak(held):
    """Another measure: PyTorch's profiler lists what the allocator gives and takes back, in time."""
    run = train(load_policy("chain", device="cpu"), Chain(), GRPO, TrainSettings(num_prompts=8))
    run.update(run.collect())
    rollout = run.collect()
    for parameter in run.policy.model.parameters() if held == "nothing" else ():
        parameter.grad = None
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run.update(rollout)
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    now = expected = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        now += event.nbytes()
        expected = max(expected, now)
    for parameter in run.policy.model.parameters() if held == "nothing" else ():
        parameter.grad = None
    peak = peak_bytes(lambda: run.update(rollout), [], CPU)
    assert expected > 1e6
    assert peak == pytest.approx(expected, rel=0.01)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_counts_about_the_same():
    costs = {device: model_costs(build_policy(device=device), Chain(), repeats=1) for device in ("cpu", "cuda")}
    for here, there in zip(*costs.values(), strict=True):
        assert here.models == there.models
        assert there.activations == pytest.approx(here.activations, rel=0.3)


def test_pairs_are_as_long_as_the_responses_where_prompts_are_few_and_short():
    class Few(Chain):
        def all_prompts(self):
            return ["1=", "2", "3=", "1", "2="]

    policy, task = tiny(), Few()
    settings = TrainSettings(num_prompts=2, group_size=2, max_new_tokens=40)
    rollout = train(policy, task, GRPO, settings).collect()
    encoded = encode_pairs(policy, cost._pairs_like(rollout, policy, task))
    assert rollout.samples.tokens.shape[-1] > 20
    assert encoded.tokens.shape == rollout.samples.tokens.shape
    assert encoded.mask.all()
    costs = model_costs(policy, task, num_prompts=2, group_size=2, max_new_tokens=40, repeats=1)
    assert [cost.name for cost in costs] == NAMES
