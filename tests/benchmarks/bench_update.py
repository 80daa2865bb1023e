"""Our whole update against a bare forward and backward of the same rows, and what leaving out zero rows saves.

Ours is `RolloutRun.update` on one rollout of the shipped chain policy: log-probabilities, `algorithm.loss`, backward,
gradient clipping, a fused AdamW step, and the metrics. Bare is `policy.model(…)` on the same input ids, a plain
cross-entropy of the response tokens, backward and zero_grad, and no optimizer. Fair because both are given the same rows:
every advantage is made non-zero, so that ours drops none. Each has weights of its own, and a learning rate of 1e-12 keeps ours
where they are. Ours reads each prompt once for its group, equal responses once, and no padding; "packed" is a bare forward and
backward of that alone, and "products" are its matrix products by themselves: tokens read × each of the layers' matrices, once
forward and twice backward. The ratio is the time of each / ours.

Below that, the same update of a real rollout with all its rows, and without those whose group has equal rewards: at the
start of training, and later, when more groups are right throughout. Responses left out may be the longest, so the rest
gets shorter too. There the ratio says how many times faster leaving them out is.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from interleave import interleave, table
from torch.nn import functional as F

from rlviz import GRPO, TrainSettings, train
from rlviz.training.rollout import Rollout
from rlviz.training.run import RolloutRun
from small_models.policies import Policy, load_policy
from small_models.sampling import response_logits, token_logp
from small_models.tasks import Chain

OURS, BARE, PACKED, PRODUCTS = (
    "whole update (ours)",
    "rows: forward + backward",
    "packed: forward + backward",
    "products",
)
ALL, KEPT = "all rows", "zero rows out (ours)"


def new_run(policy: Policy, num_prompts: int, lr: float = 1e-12) -> RolloutRun:
    """Return a run of GRPO without a KL term on a copy of the policy; by default its updates leave the weights alone."""
    policy = replace(policy, weights=copy.deepcopy(policy.weights))
    return train(
        policy, Chain(), replace(GRPO, kl=None), TrainSettings(num_prompts=num_prompts, lr=lr, evaluate_every=0)
    )


def every_row_counts(rollout: Rollout) -> Rollout:
    """Return the rollout with an advantage of −1 or +1, in turn, on every token of each response."""
    signs = torch.ones(rollout.samples.mask.shape[:2])
    signs[:, ::2] = -1
    return replace(rollout, advantages=signs.unsqueeze(-1) * rollout.samples.mask)


def bare(policy: Policy, rollout: Rollout) -> Callable[[], None]:
    """Return a forward and backward of the rollout's rows, and nothing else."""
    model = copy.deepcopy(policy.model)
    samples = rollout.samples
    length = samples.tokens.shape[-1]
    prompts = samples.prompt_ids.repeat_interleave(samples.tokens.shape[1], 0)
    ids = torch.cat([prompts, samples.tokens.reshape(-1, length)], dim=1)[:, :-1]
    targets = samples.tokens.masked_fill(~samples.mask, -100).flatten()

    def step() -> None:
        model.zero_grad(set_to_none=False)
        logits = model(ids, use_cache=False, logits_to_keep=length).logits
        F.cross_entropy(logits.flatten(0, 1), targets, ignore_index=-100).backward()

    return step


def packed(policy: Policy, rollout: Rollout) -> Callable[[], None]:
    """Return a forward and backward of what our update reads of the rollout, and nothing else."""
    policy, samples = replace(policy, weights=copy.deepcopy(policy.weights)), rollout.samples

    def step() -> None:
        policy.weights.zero_grad(set_to_none=False)
        logp = token_logp(response_logits(policy, **samples.place), samples.tokens)
        (logp * samples.mask).sum().backward()

    return step


def products(policy: Policy, rollout: Rollout) -> Callable[[], None]:
    """Return the matrix products of that forward and backward, without all else."""
    samples, read = rollout.samples, [rollout.samples.prompt_ids.numel()]
    for row, last in zip(samples.tokens, samples.last, strict=True):  # a response's last token is not read
        read.append(sum(map(len, {tuple(r[:n]) for r, n in zip(row.tolist(), last.tolist(), strict=True)})))
    tokens, core = sum(read), policy.model.base_model
    shapes = []
    for layer in core.layers:
        attention, mlp = layer.self_attn, layer.mlp
        joined = (
            (attention.q_proj, attention.k_proj, attention.v_proj),
            (attention.o_proj,),
            (mlp.gate_proj, mlp.up_proj),
            (mlp.down_proj,),
        )
        shapes += [(part[0].in_features, sum(linear.out_features for linear in part)) for part in joined]
    shapes.append((policy.model.lm_head.in_features, policy.model.lm_head.out_features))
    given = [(torch.randn(tokens, a), torch.randn(b, a), torch.randn(tokens, b)) for a, b in shapes]

    def step() -> None:
        for x, weight, slope in given:
            x @ weight.T, slope @ weight, slope.T @ x

    return step


def compare_with_bare(policy: Policy, num_prompts: int) -> None:
    run = new_run(policy, num_prompts)
    rollout = every_row_counts(run.collect())
    print(f"same rows: {num_prompts} prompts × 8, {rollout.samples.tokens.shape[-1]} tokens")
    contenders = {OURS: lambda: run.update(rollout), BARE: bare(policy, rollout)}
    contenders |= {PACKED: packed(policy, rollout), PRODUCTS: products(policy, rollout)}
    times = interleave(contenders, rounds=80)
    print(table(times, {name: (name, OURS) for name in contenders}))


def compare_row_drop(policy: Policy, num_prompts: int, when: str) -> None:
    dropping, whole = new_run(policy, num_prompts), new_run(policy, num_prompts)
    whole.state.skips_zero = False
    rollout = dropping.collect()
    used = dropping.update(rollout).rows
    print(f"real rollout {when}: {num_prompts} prompts × 8, {used:.0f} of {rollout.rewards.numel()} rows count")
    times = interleave({KEPT: lambda: dropping.update(rollout), ALL: lambda: whole.update(rollout)}, rounds=80)
    print(table(times, {ALL: (ALL, KEPT)}))


def main() -> None:
    torch.set_num_threads(1)
    policy = load_policy("chain", device="cpu")
    for num_prompts in (16, 32):
        compare_with_bare(policy, num_prompts)
    compare_row_drop(policy, 32, "at the start")
    training = new_run(policy, 32, lr=TrainSettings.lr)
    for _ in range(60):
        next(training)
    compare_row_drop(training.policy, 32, "after 60 steps")


if __name__ == "__main__":
    main()
