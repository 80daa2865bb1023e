"""Training with a tool: what it wrote is read and never learned, in every algorithm, and the task is learned."""

import math
from dataclasses import replace

import pytest
import torch

from rlviz.algorithms import ENTROPY_BONUS, GRPO, GRPO_PROCESS, PPO
from rlviz.training import TrainSettings, train
from rlviz.training.records import rollout_numbers
from rlviz.training.rewards import step_rewards
from small_models.policies import load_policy
from small_models.scorers import RewardModel
from small_models.tasks import Lookup

NO_KL = replace(GRPO, kl=None)
TASK = Lookup()
SHORT = TrainSettings(
    steps=3, num_prompts=8, group_size=4, updates_per_rollout=2, minibatches=2, lr=1e-3, lr_warmup_steps=0,
    evaluate_every=0, details_every=0,
)  # fmt: skip


def start(algorithm, settings=SHORT, **kwargs):
    return train(load_policy("lookup", device="cpu"), TASK, algorithm, settings, **kwargs)


def nonsense_at(places, values):
    """The values, and wild ones at these places."""
    return None if values is None else torch.where(places, 40 * torch.randn(values.shape), values)


# what an update may take from a token beside its log-probability: a reference's, an entropy, steps, a critic's values
TAKING = [GRPO, ENTROPY_BONUS, GRPO_PROCESS, replace(PPO, entropy_weight=0.1)]


@pytest.mark.parametrize("algorithm", TAKING, ids=lambda a: a.name)
def test_numbers_of_the_tool_s_tokens_change_no_weight(algorithm):
    settings = replace(SHORT, num_prompts=16, updates_per_rollout=4)
    one, other = start(algorithm, settings), start(algorithm, settings)
    rollout, twin = one.collect(), other.collect()
    observed = twin.samples.observed
    assert observed.sum() > 30 and not (observed & twin.mask).any() and not twin.advantages[observed].any()
    torch.manual_seed(0)
    samples = replace(twin.samples, entropy=nonsense_at(observed, twin.samples.entropy))
    known = {
        name: nonsense_at(observed, getattr(twin, name)) for name in ("old_logp", "ref_logp", "old_values", "returns")
    }
    twin = replace(twin, sampled=replace(twin.sampled, samples=samples), **known)
    assert one.update(rollout).numbers() == other.update(twin).numbers()
    before = load_policy("lookup", device="cpu").model.state_dict()
    for name, tensor in one.policy.model.state_dict().items():
        assert torch.equal(tensor, other.policy.model.state_dict()[name]), name
        assert not torch.equal(tensor, before[name]), name
    numbers = [rollout_numbers(data) for data in (rollout, twin)]
    assert numbers[0]["entropy"] == numbers[1]["entropy"] < math.log(48)


def test_what_the_tool_wrote_may_be_unlikely():
    run = start(NO_KL, replace(SHORT, num_prompts=32, min_old_prob=0.1))
    rollout = run.collect()
    s = rollout.samples
    least, least_of_all = (s.logp.masked_fill(~m, 0.0).amin(-1).exp() for m in (s.mask, s.attention_mask))
    only_the_tool_s = (least_of_all < 0.1) & (least >= 0.1)
    assert only_the_tool_s.any() and (least < 0.1).any()
    assert torch.equal(rollout.mask.any(-1), least >= 0.1)


@pytest.mark.parametrize("room", [4, 18])  # 4: a first call's answer is cut off
def test_the_last_step_ends_with_the_policy_s_last_token(room):
    run = start(NO_KL, replace(SHORT, num_prompts=60, max_new_tokens=room))
    rollout = run.collect()
    samples = rollout.samples
    rewards, ends = step_rewards(run.policy, TASK, rollout.sampled.prompts, rollout.sampled.texts, samples)
    lasts = samples.last_positions.unsqueeze(-1)
    places = torch.arange(samples.mask.shape[-1])
    calls = torch.tensor(
        [[[text[at : at + 1] == ";" for at in places] for text in row] for row in rollout.sampled.texts]
    )
    assert torch.equal(ends, calls | (places == lasts))  # a token is a character
    assert not (ends & ~samples.mask).any() and not (samples.mask & (places > lasts)).any()
    assert (samples.observed & ((places > lasts) if room == 4 else (places < lasts))).any()
    right = torch.tensor([[grade.correct for grade in row] for row in rollout.sampled.grades])
    assert torch.equal(rewards.gather(-1, lasts).squeeze(-1), right.float())


def test_a_reward_model_reads_what_the_tool_wrote():
    run = start(NO_KL, replace(SHORT, num_prompts=60, max_new_tokens=4))
    samples = run.collect().samples
    for reads in ("last", "mean"):
        model = RewardModel.from_policy(run.policy, reads=reads)
        torch.nn.init.normal_(model.scorer.head.weight, generator=torch.Generator().manual_seed(0))
        scores = model.score(samples)
        p, g = samples.observed.any(-1).nonzero()[0].tolist()
        ids = torch.cat([samples.prompt_ids[p], samples.tokens[p, g]]).unsqueeze(0)
        with torch.no_grad():
            after = model.scorer.head(model.scorer.trunk(ids).last_hidden_state)[0, 7:, 0]
        expected = after[3] if reads == "last" else after.mean()
        assert float(scores[p, g]) == pytest.approx(float(expected), abs=1e-5)


def test_records_show_what_the_tool_wrote_as_tokens_that_the_loss_does_not_see():
    run = start(GRPO, replace(SHORT, details_every=1, updates_per_rollout=4))
    seen = 0
    for record in run:
        for group in record.groups:
            for response in group.responses:
                text = "".join(token.token for token in response.tokens)
                assert text == response.text + ("" if response.truncated else "$")
                turns = TASK.turns(group.prompt, response.text)
                expected = [place % 2 == 1 for place, turn in enumerate(turns) for _ in turn]
                assert [token.observed for token in response.tokens][: len(expected)] == expected
                assert response.length == sum(not token.observed for token in response.tokens)
                for token in response.tokens:
                    if token.observed:
                        seen += 1
                        assert (token.weight, token.push, token.advantage, token.clipped) == (0, 0, 0, False)
    assert seen > 20
