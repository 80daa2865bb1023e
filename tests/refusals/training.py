"""What training refuses: before a run starts, when it goes on, and where its pieces give what cannot be learnt from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rlviz.algorithms import DAPO, DISTILLATION, DPO, DUPO, GRPO, GRPO_PROCESS, KDRL, PPO
from rlviz.pieces.kl import KLInReward
from rlviz.settings import check_names
from rlviz.tabular import train_table
from rlviz.training import (
    PairSettings,
    TrainSettings,
    learn_reward,
    pair_accuracy,
    resume,
    train,
    train_reward_model,
)
from small_models.pairs import Pair
from small_models.tasks import Chain
from tests.refusals.row import table
from tests.refusals.things import PAIRS, SHORT, done, policy, reward_model, tiny

STEPWISE = replace(GRPO_PROCESS, kl=None)
NO_KL = replace(GRPO, kl=None, name="Mine")


class Solved(Chain):
    """Its rule takes every response for right."""

    def grade(self, prompt: str, response: str) -> Any:
        return replace(super().grade(prompt, response), correct=True)


def begin(**given: Any) -> Any:
    """Begin a run that would be kept."""
    return train(**{"policy": policy(), "task": Chain(), "algorithm": GRPO, "out": "run", **given})


def one_step(**given: Any) -> Any:
    return next(train("chain", **{"task": Chain(), "algorithm": GRPO, "settings": SHORT, **given}))


def selecting(*wrong: Any) -> Any:
    return one_step(algorithm=replace(NO_KL, select=lambda rewards: torch.tensor(wrong)))


def of_table(surrogate: Any) -> Any:
    return train_table(replace(NO_KL, surrogate=surrogate), steps=2)


def of_run(surrogate: Any) -> Any:
    return one_step(algorithm=replace(NO_KL, surrogate=surrogate))


def go_on(**given: Any) -> Any:
    return resume(**{"out": done(), "steps": 3, **given})


def learning(**given: Any) -> Any:
    return next(train_reward_model(**{"model": reward_model(), "pairs": PAIRS, **given}))


def frozen() -> Any:
    model = reward_model().copy()
    model.scorer.requires_grad_(False)
    return model


def no_gradient(ratio: Any, advantages: Any, lower: Any, upper: Any) -> Any:
    return (ratio * advantages).detach()


def no_ratio(ratio: Any, advantages: Any, lower: Any, upper: Any) -> Any:
    return advantages * 2


ROWS = table(
    globals(),
    r"""
TrainSettings(temperature=0) → temperature must be above 0 (greedy responses are all alike); got 0
TrainSettings(updates_per_rollout=3, minibatches=2)
    → updates_per_rollout must be a multiple of minibatches (2), so that every response is used equally often;
    got 3
TrainSettings(num_prompts=1, group_size=2, minibatches=4, updates_per_rollout=4)
    → minibatches must be at most num_prompts × group_size = 2; got 4
TrainSettings(prompt_pool=⟨5 | 31⟩) → prompt_pool must be 0 (all prompts) or at least num_prompts (32); got ⟨⟩
TrainSettings(seed=2 ** 63) → seed must be below 2**63 in size; got 9223372036854775808
⟨TrainSettings | PairSettings⟩(max_new_token=3)
    → TypeError: ⟨⟩ has no setting 'max_new_token'; did you mean max_new_tokens?
⟨TrainSettings | PairSettings⟩(zzz=3) → TypeError: ⟨⟩ has no setting 'zzz'; it has steps, seed, …
check_names(TrainSettings, ['group_sise'], 'of mine')
    → group_sise is no setting of mine; did you mean group_size?
begin(steps=2) → TypeError: train has no argument 'steps'; it is a setting: train(…, TrainSettings(steps=…))
begin(batch_size=2)
    → TypeError: train has no argument 'batch_size'; it is a setting: train(…, PairSettings(batch_size=…))
begin(group_sise=2) → TypeError: train has no argument 'group_sise'; did you mean group_size?…
begin(zzz=2) → TypeError: train has no argument 'zzz'; it has settings, reward_model, pairs, reference, out…
train('chian', GRPO) → task 'chian' is not known; did you mean chain? known: chain, …
train('chain', 'grop') → algorithm 'grop' is not known; did you mean grpo…
train('chain', 'chian', GRPO) → task 'chian' is not known; did you mean chain? known: …
train('chian', 'chain', GRPO) → policy: 'chian' is no folder here, no shipped policy …
train('chain', SHORT) → algorithm must be an algorithm, such as GRPO; got TrainSettings(…)
train('chain', GRPO, SHORT, SHORT)
    → task must be a Task, such as find_task('chain'); got GroupPolicyGradient(…)
train(GRPO, 'chain') → algorithm 'chain' is not known; known: ppo…
train('chain', 'chain', 3) → algorithm must be an algorithm, such as GRPO; got 3
begin(policy=None) → policy must be a Policy, such as load_policy('chain'); got None
begin(task='chian') → task 'chian' is not known; did you mean chain? known: chain, …
begin(task=3) → task must be a Task, such as find_task('chain'); got 3
begin(algorithm=⟨7 | None⟩) → algorithm must be an algorithm, such as GRPO; got ⟨⟩
begin(algorithm=DPO, pairs=⟨['x'] | 5 | 'xy'⟩) → pairs must be a list of Pair or None; got ⟨⟩
begin(algorithm=DPO, pairs=Pair('p', 'a', 'b')) → pairs must be a list of Pair or None; got Pair(…)
begin(reward_model=1) → reward_model must be a RewardModel or None; got 1
begin(out=5) → out must be a path or None; got 5
begin(out='') → out must be the path of a folder; got ''
begin(settings={'steps': 4, **{f'x{i}': i for i in range(99)}})
    → settings must be a TrainSettings or a PairSettings; got {'steps': 4, …
begin(algorithm=PPO, settings=PairSettings()) → settings must be TrainSettings for PPO; got PairSettings(…)
begin(algorithm=DPO, settings=SHORT) → settings must be PairSettings for DPO; got TrainSettings(…)
begin(pairs=PAIRS) → pairs: GRPO learns from responses that it samples; only a reward model takes pairs
begin(algorithm=DPO, settings=PairSettings(batch_size=⟨3 | 64⟩), pairs=PAIRS)
    → batch_size must be at most 2, the number of pairs; got ⟨⟩
begin(algorithm=replace(DAPO, advantage=GRPO_PROCESS.advantage))
    → algorithm: DAPO learns from rewards of single steps, so it takes no shaping of whole responses' rewards
    and no KL …
begin(algorithm=replace(STEPWISE, kl=KLInReward(beta=0.1)))
    → algorithm: GRPO (process) learns from rewards of single steps, so it takes no shaping … and no KL in the
    reward
begin(settings=replace(SHORT, refresh_reward_every=5))
    → refresh_reward_every needs a reward model; got 5 without one
begin(algorithm=DUPO, settings=replace(SHORT, reward_format=0.5))
    → reward_correct and reward_format: DUPO weighs the rules itself (…); got 1 and 0.5
begin(settings=replace(SHORT, routing='replayed'))
    → routing is replayed for a policy of experts, such as chain-experts, and an algorithm without a critic; got …
begin(algorithm=DISTILLATION)
    → reference: Distillation learns from a teacher, a policy other than the one that the run begins with:
    give …, or --reference, a policy, a name or a folder
begin(algorithm=KDRL) → reference: KDRL learns from a teacher, a policy other than the one that the run begins with: …
begin(algorithm=DISTILLATION, reference=7) → reference must be a Policy, … or a text or None; got 7
begin(settings=replace(SHORT, reset_reference_every=1), reference='chain')
    → reset_reference_every must be 0 where a reference is given, which it would take away; got 1
begin(settings=replace(SHORT, prompt_pool=100000)) → prompt_pool must be at most 90000, … got 100000
begin(settings=replace(SHORT, num_prompts=100000)) → num_prompts must be at most 90000, … got 100000
begin(reward_model=reward_model(), algorithm=DPO)
    → reward_model: DPO learns from pairs and has no use for a reward model
begin(reward_model=reward_model(), algorithm=STEPWISE)
    → reward_model: GRPO (process) needs rewards of single steps, which only tasks give
begin(reward_model=reward_model(), algorithm=DUPO)
    → reward_model: DUPO weighs two rules (…) and would not see its scores; give it another shape
one_step(task=Solved(), settings=replace(SHORT, prompt_pool=10, filter_solved=2))
    → filter_solved: 2 of 2 responses solve 10 of 10 prompts, which leaves 0, fewer …
selecting(⟨0, 2 | -1 | True, False | [0, 1]⟩)
    → select must return indices of groups, whole numbers from 0 to 1; got tensor(…)
⟨of_run | of_table⟩(⟨no_gradient | no_ratio⟩)
    → Mine's surrogate, …, must have a gradient by the ratio, or nothing is learnt…
go_on(task='chain') → task must be a Task, such as find_task('chain') or None; got 'chain'
go_on(algorithm='grpo') → algorithm must be an algorithm…; got 'grpo'
go_on(out=None) → out must be a path; got None
go_on(out='.') → FileNotFoundError: run folder . holds no run (it has no config.json)
go_on(steps=⟨None | 1 | 2⟩) → steps: the run in … has done its 2; give a higher total to go on
go_on(algorithm=NO_KL) → algorithm: the run in … was trained with another one: …
learning(⟨steps | batch_size⟩=0) → ⟨⟩ must be at least 1; got 0
learning(evaluate_every=-1) → evaluate_every must be at least 0; got -1
learning(lr=0.0) → lr must be above 0; got 0.0
learning(lr=float('nan')) → lr must be above 0, and finite; got nan
learning(pairs=[]) → pairs must hold at least one; got none
learning(model=frozen()) → model is frozen; train its copy()
⟨pair_accuracy(reward_model(), []) | learn_reward(policy(), Chain(), [])⟩
    → pairs must hold at least one; got none
""",
)
