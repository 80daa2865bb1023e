"""One step of training, read from top to bottom: prompts → responses → rewards → advantages → updates → numbers.

`step` calls the parts below in their order. P prompts (`num_prompts`, or more where a step samples again), G responses to each
(`group_size`), T tokens of the longest. `State` is what one step hands to the next, `Rollout` what the updates learn from; the
algorithm names the formulas (`rlviz show grpo` prints them). What a run does around a step stands in `run.py`. Some tasks grade
parts of a response: these are called reasoning steps here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from rlviz.pieces.aggregation import token_mean
from rlviz.pieces.kl import k3
from rlviz.pieces.selection import keep_all
from rlviz.settings import RunSettings, TrainSettings
from rlviz.training.records import RoutingProbe, record_fields
from rlviz.training.reward_model import refresh
from rlviz.training.rewards import pairs_among, step_rewards
from rlviz.training.rollout import Rollout, Sampled, grade_tensor, logp_under, replay_routing
from rlviz.training.state import State
from rlviz.training.updates import Updates
from rlviz.types import Batch, LossOutput
from small_models.host import all_on_host, on_host
from small_models.routing import record_routes
from small_models.sampling import Samples, compute_logp, sample, token_entropy, token_logp
from small_models.tasks import Score, Task

FEW = 1000  # prompts, which are shuffled as quickly as drawn
FILTERED_AT_ONCE = 256  # prompts, so that memory stays flat


class NotFiniteError(FloatingPointError):
    """A number that no update can use. Its arguments are the number's name and, where it is known, the cause in words."""


def step(state: State, task: Task, settings: TrainSettings) -> dict[str, Any]:
    """Do one step, which changes the state, and return the step's fields of its record.

    Raises NotFiniteError at the first loss, gradient, reward or log-probability that is not finite; the weights are then those
    of the update before.
    """
    # Prompts that the policy solves every time leave the pool once, before the first step.
    filtering = filter_solved(state, task, settings) if settings.filter_solved and state.step == 0 else 0
    rollout = collect(state, task, settings)
    # A mixture of experts may route tokens elsewhere after the updates, so the routes of before are noted here.
    routing = RoutingProbe(state.policy, rollout.samples) if RoutingProbe.is_due(state.step) else None
    updates = run_updates(state, rollout, settings)

    kl_to_old = kl_from_old(state, rollout, settings)
    fields = record_fields(state, task, settings, all_on_host(rollout), updates)
    fields |= {"kl_to_old": kl_to_old, "routing_flips": None if routing is None else routing.flips(state.policy)}
    fields["responses_sampled"] += filtering

    finish_step(state, rollout, settings, rollout.kl if kl_to_old is None else kl_to_old)
    return fields


# --- 1. prompts → responses ---


def sample_groups(state: State, task: Task, settings: TrainSettings) -> Sampled:
    """Sample G responses to each of P prompts, grade them, and select the groups that are worth learning from.

    A selection that leaves groups out may ask for replacements (DAPO's dynamic sampling): as many further prompts as groups are
    missing are sampled, until P groups are selected, `max_rounds` · P prompts were sampled, or the pool is empty. Any other
    selection has `max_rounds` 1, and the step learns from the groups that are left.
    """
    algorithm, wanted = state.algorithm, settings.num_prompts
    order = state.pool[sample_indices(len(state.pool), wanted * algorithm.can.max_rounds, state.generator)]
    rounds: list[Samples] = []
    texts: list[list[str]] = []
    grades: list[list[Score]] = []
    outcomes: list[Tensor] = []
    done, missing = 0, wanted
    while missing > 0 and done < len(order):
        prompts = prompts_at(task, order[done : done + missing])
        done += len(prompts)
        samples, new_texts, new_grades = sample_and_grade(state, task, settings, prompts, settings.group_size)
        rounds.append(samples)
        texts += new_texts
        grades += new_grades
        rewards = grade_tensor(new_grades, "reward", state.policy.device)
        scores = rewards if state.reward_model is None else state.reward_model.score(samples).to(rewards.dtype)
        outcomes.append(scores)
        # The selection sees all rounds at once: a group of an earlier round may be among those that are selected now.
        selected = algorithm.select_groups(torch.cat(outcomes), state.generator)
        missing = wanted - len(selected)
    places = order[:done].to(state.policy.device)
    samples, prompts = Samples.concatenate(rounds), prompts_at(task, order[:done])
    return Sampled(places, prompts, samples, texts, grades, torch.cat(outcomes), selected, len(rounds))


def sample_and_grade(
    state: State, task: Task, settings: TrainSettings, prompts: list[str], group_size: int
) -> tuple[Samples, list[list[str]], list[list[Score]]]:
    """Return responses to each prompt as tokens, as texts [P][G] and the task's scores of them [P][G]."""
    samples = sample(
        state.sampler,
        prompts,
        task=task,
        group_size=group_size,
        max_new_tokens=settings.max_new_tokens or task.max_new_tokens,
        temperature=settings.sampler_temperature or settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        generator=state.generator,
    )
    texts = samples.texts(state.policy)
    return samples, texts, [[task.score(p, text) for text in row] for p, row in zip(prompts, texts, strict=True)]


def filter_solved(state: State, task: Task, settings: TrainSettings) -> int:
    """Remove prompts from the pool that all of `settings.filter_solved` responses solve; return how many were sampled.

    Raises ValueError when fewer prompts than a step needs are left.
    """
    count, before = settings.filter_solved, len(state.pool)
    solved = []
    for part in state.pool.split(FILTERED_AT_ONCE):
        samples, _, grades = sample_and_grade(state, task, settings, prompts_at(task, part), count)
        state.tokens_sampled += int(samples.mask.sum())
        solved += [all(grade.correct for grade in row) for row in grades]
    state.pool = state.pool[~torch.tensor(solved)]
    if len(state.pool) < settings.num_prompts:
        raise ValueError(
            f"filter_solved: {count} of {count} responses solve {sum(solved)} of {before} prompts, which leaves "
            f"{len(state.pool)}, fewer than num_prompts ({settings.num_prompts})"
        )
    return count * before


def prompts_at(task: Task, places: Tensor) -> list[str]:
    """Return the training prompts at these places."""
    return [task.train_prompts[place] for place in places.tolist()]


def sample_indices(total: int, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` different numbers below `total` in random order, or all of them where they are fewer.

    A larger `count` begins with the same numbers and leaves the generator in the same state. Shuffling all of 90,000 prompts
    would cost a small policy 2 % of its step, so of many prompts only some are drawn, until enough differ.
    """
    seeded = torch.Generator().manual_seed(int(torch.randint(2**62, (), generator=generator)))
    if total <= FEW:
        return torch.randperm(total, generator=seeded)[:count]
    drawn: dict[int, None] = {}
    while len(drawn) < min(count, total):
        drawn |= dict.fromkeys(torch.randint(total, (FEW,), generator=seeded).tolist())
    return torch.tensor(list(drawn)[:count])


# --- 2. responses → rewards → advantages ---


@torch.no_grad()
def collect(state: State, task: Task, settings: TrainSettings) -> Rollout:
    """Return groups of sampled responses with their rewards and the advantage of each token.

    All of it is computed once and then frozen: log π_old, log π_ref and advantages stay as they are in all updates of the step,
    so that with more than one update the ratio π_θ / π_old leaves 1.
    """
    algorithm = state.algorithm
    sampled = sample_groups(state, task, settings)
    samples = sampled.samples
    state.tokens_sampled += int(samples.mask.sum())

    # log π_old is the trainer's. Where the tokens were drawn by other log-probabilities (a sampler that is rounded, some steps
    # behind or at another temperature), the policy reads them again; `sample` itself notes those of top-k and top-p.
    old_logp, sampler_logp = samples.logp, samples.sampler_logp
    routes = None
    if settings.routing == "replayed":
        routes = record_routes(state.sampler, samples.prompt_ids, samples.prompt_mask, samples.tokens)
    if not settings.policy_samples:
        old_logp = logp_under(state.policy, samples, settings, routes).masked_fill(~samples.attention_mask, 0.0)
        sampler_logp = samples.logp if sampler_logp is None else sampler_logp
    # Rows of equal rewards leave the update, so no loss would show a log-probability that is not finite: it is looked for here.
    if not (old_logp.isfinite() | ~samples.mask).all():
        raise NotFiniteError("log-probability of a sampled token")

    # Rewards R [P, G], or of reasoning steps [P, G, T] at the tokens that end one. Shaping comes before any comparison.
    # For the pieces the task's reward is `correct`: 1 or 0, unless the task or a function pays other numbers.
    correct, well_formed = sampled.task_rewards, sampled.well_formed
    rewards_of_steps, step_ends = None, None
    if algorithm.asks_for("advantage", "step_ends"):
        rewards_of_steps, step_ends = step_rewards(state.policy, task, sampled.prompts, sampled.texts, samples)
        rewards = rewards_of_steps.sum(-1) / step_ends.sum(-1)
    else:
        rewards = settings.reward_correct * correct + settings.reward_format * well_formed
        rewards = algorithm.shape_rewards(
            rewards if state.reward_model is None else sampled.outcomes,
            samples.lengths,
            truncated=samples.truncated,
            correct=correct,
            well_formed=well_formed,
        )
    if not rewards.isfinite().all():
        raise NotFiniteError("mean reward", "a reward model or a piece of your own gave that")

    # The tokens that the loss sees. A response with a token that was too unlikely is left out as a whole.
    mask = algorithm.loss_mask(samples.mask, samples.truncated)
    if settings.min_old_prob:
        lowest = old_logp.masked_fill(~samples.mask, 0.0).amin(-1, keepdim=True)
        mask = mask & (lowest.exp() >= settings.min_old_prob)

    # log π_ref. Where the loss does not need it, one response a prompt is enough to estimate the KL to the reference.
    compared = samples if algorithm.needs_reference else samples.first_responses()
    logp_of_reference = logp_under(state.reference, compared, settings)
    kl = mean_over(k3(old_logp[:, : compared.tokens.shape[1]], logp_of_reference), compared.mask)
    ref_logp = logp_of_reference if algorithm.needs_reference else None

    # Advantages A [P, G, T], on the whole rollout, since a group's statistics need all of its rewards: against the group, or
    # against a critic's values.
    old_values, returns, forward = None, None, []
    if state.critic is None:
        # DCPO compares with earlier rewards of the same prompt, too; the history of those prompts goes in and comes out.
        past = None if state.history is None else state.history.index_select(sampled.places)
        advantages, history = algorithm.advantages(
            rewards if rewards_of_steps is None else rewards_of_steps,
            mask,
            old_logp=old_logp,
            sampler_logp=sampler_logp,
            ref_logp=ref_logp,
            step_ends=step_ends,
            history=past,
            old_entropy=samples.entropy,
            correct=correct,
            well_formed=well_formed,
        )
        if state.history is not None and history is not None:
            state.history = state.history.index_put(sampled.places, history)
    else:
        if state.step == 0:  # V begins as the mean reward of the first rollout, everywhere
            nn.init.constant_(state.critic.head.bias, float(rewards.mean()))
        # To save time: an update on exactly these responses takes over this forward, gradient and all.
        is_reused = settings.minibatches == 1 and not settings.micro_batch_tokens and algorithm.select is keep_all
        with torch.set_grad_enabled(is_reused):
            logits, values = state.critic(state.policy, samples, alone=state.step < settings.critic_only_steps)
        forward, old_values = [(logits, values)] if is_reused else [], values.detach()
        token_rewards = algorithm.token_rewards(rewards, mask, old_logp, ref_logp)
        advantages, returns = algorithm.advantages(token_rewards, old_values, mask)

    return Rollout(
        sampled,
        rewards,
        kl,
        samples.prompt_ids,
        samples.prompt_mask,
        torch.arange(len(sampled.prompts), device=mask.device),
        tokens=samples.tokens,
        mask=mask,
        old_logp=old_logp,
        advantages=advantages,
        sampler_logp=sampler_logp,
        ref_logp=ref_logp,
        old_values=old_values,
        returns=returns,
        observed=samples.observed if algorithm.learns_observations else None,
        prompt_routes=None if routes is None else routes[0],
        routes=None if routes is None else routes[1],
        forward=forward,
    )


# --- 3. advantages → weights of the policy ---


def run_updates(state: State, rollout: Rollout, settings: TrainSettings) -> Updates:
    """Take the updates of a step; return the statistics of all of them together."""
    set_learning_rates(state, settings)
    total = Updates()
    for rows in minibatches(state, rollout.rows(), settings):
        total += update(state, rows, settings)
    return total


def set_learning_rates(state: State, settings: RunSettings) -> None:
    """Set this step's learning rates, which rise linearly to their peaks over the first `lr_warmup_steps`."""
    share = min(1.0, (state.step + 1) / max(1, settings.lr_warmup_steps))
    for optimizer in state.optimizers:
        optimizer.param_groups[0]["lr"] = optimizer.defaults["lr"] * share


def minibatches(state: State, rows: Rollout, settings: TrainSettings) -> Iterator[Rollout]:
    """Yield the rows of each update: all of them, or a part, in a new random order for each pass over the rollout.

    updates_per_rollout is a multiple of minibatches, so that each response serves in equally many updates.
    """
    for _ in range(settings.updates_per_rollout // settings.minibatches):
        if settings.minibatches == 1:
            yield rows
            continue
        order = torch.randperm(len(rows.tokens), generator=state.generator).to(rows.tokens.device)
        for part in reversed(order.tensor_split(settings.minibatches)):  # so that a seed's curve stays what it was
            yield rows.take(part)


def update(state: State, rows: Rollout, settings: TrainSettings) -> Updates:
    """Move the weights once, down the gradient of the loss of these rows; return the update's statistics."""
    algorithm, tokens = state.algorithm, int(rows.mask.sum())
    # A token's weight is its share in the objective of *all* these rows, so it is computed before any row is dropped or split.
    chosen = algorithm.choose_tokens(rows.advantages, rows.old_logp, rows.mask)
    rows = replace(rows, weights=algorithm.aggregate(rows.mask), chosen=chosen)
    if rows.observed is not None:
        rows = replace(rows, observed_weights=token_mean(rows.observed))
    # Rows of advantage 0 are dropped where they teach nothing; they may have been the longest ones.
    if state.skips_zero:
        rows = rows.take(rows.advantages.flatten(1).any(1).nonzero().squeeze(1))
        rows = rows.truncate(rows.longest)
    for optimizer in state.optimizers:
        optimizer.zero_grad()
    total = Updates(count=1, tokens=tokens)
    # Gradients of micro-batches add up to that of all rows at once, since the weights are those of all rows.
    for part in rows.split(settings.micro_batch_tokens) if len(rows.tokens) else ():
        with replay_routing(state.policy, part.experts, part.owner):
            loss = compute_loss(state, part, settings)
            loss.total.backward()
        total += Updates.from_loss(loss.policy, loss.logp, part, loss.value)
    if not len(rows.tokens):  # nothing to learn from; Adam still moves by its momentum, as if the zero rows had stayed
        for parameter in (p for optimizer in state.optimizers for p in optimizer.param_groups[0]["params"]):
            parameter.grad = torch.zeros_like(parameter)
    return total + Updates(grad_norm=optimizer_step(state, settings, total.loss))


class Loss(NamedTuple):
    """The loss of rows: the algorithm's part and the critic's; logp of the tokens now."""

    total: Tensor  # what the optimizers minimise
    policy: LossOutput
    logp: Tensor
    value: Tensor | float  # before it is weighted; 0 without a critic


def compute_loss(state: State, rows: Rollout, settings: TrainSettings) -> Loss:
    """Return the loss of these rows, with gradient: −Σ weights · J(π_θ / π_old, A), and with a critic what that adds to it."""
    algorithm, critic = state.algorithm, state.critic
    critic_only = critic is not None and state.step < settings.critic_only_steps  # the policy waits for the critic
    logits, values = None, None
    if critic is not None and rows.forward:
        logits, values = rows.forward.pop()  # of all groups, as the rollout was collected
        logits = None if logits is None else logits.flatten(0, 1).unsqueeze(1)
        values = values.flatten(0, 1).unsqueeze(1)
    elif critic is not None:
        logits, values = critic(state.policy, rows, alone=critic_only)

    # The ratio π_θ / π_old is that of the distribution that was sampled from, so π_θ is taken at the same temperature.
    temperature, has_bonus = settings.temperature, critic is not None and algorithm.entropy_weight
    with_entropy = bool(has_bonus or algorithm.asks_for("surrogate", "entropy"))
    if logits is None:
        with torch.set_grad_enabled(not critic_only):
            measure: dict[str, Any] = {"temperature": temperature, "with_entropy": with_entropy}
            logp, entropy = compute_logp(state.policy, **rows.model_inputs, **measure)
    else:
        logp = token_logp(logits, rows.tokens, temperature=temperature)
        entropy = token_entropy(logits, temperature=temperature) if with_entropy else None
    shared = ("ref_logp", "weights", "chosen", "sampler_logp", "observed", "observed_weights")
    columns = {name: getattr(rows, name) for name in shared}
    policy = algorithm.loss(logp, Batch(rows.old_logp, rows.advantages, rows.mask, entropy=entropy, **columns))
    if logp.requires_grad:
        algorithm.check_gradient(policy.loss)
    if values is None:
        return Loss(policy.loss, policy, logp, 0.0)
    bonus = entropy if has_bonus else torch.zeros_like(values)
    total = algorithm.total_loss(policy.loss, values, rows.old_values, rows.returns, bonus, rows.mask, rows.weights)
    return Loss(total.loss, policy, logp, total.value_loss)


def optimizer_step(state: State, settings: RunSettings, loss: float) -> float:
    """Clip the gradients to `max_grad_norm`, and let every optimizer take its step; return the policy's norm before that.

    Raises NotFiniteError, and moves no weight, where this loss or a norm is not finite.
    """
    learners = [optimizer.param_groups[0]["params"] for optimizer in state.optimizers]
    norms = [float(nn.utils.clip_grad_norm_(weights, settings.max_grad_norm)) for weights in learners]
    for name, number in zip(("loss", "gradient", "critic's gradient"), (loss, *norms), strict=False):
        if not math.isfinite(number):
            raise NotFiniteError(name)
    for optimizer in state.optimizers:
        optimizer.step()
    return norms[0]


# --- 4. numbers of the step, and what the next one begins with ---


@torch.no_grad()
def kl_from_old(state: State, rollout: Rollout, settings: TrainSettings) -> float | None:
    """Return KL(π_old‖π_θ) after the updates by the KL term's own estimator, None where that term is not of old log π."""
    algorithm = state.algorithm
    if not algorithm.asks_for("kl", "old_logp"):
        return None
    estimator = algorithm.can.estimator or k3  # a term of one's own may name no estimator
    logp = logp_under(state.policy, rollout.samples, settings, rollout.experts)
    return mean_over(estimator(rollout.old_logp, logp), rollout.mask)


def finish_step(state: State, rollout: Rollout, settings: TrainSettings, kl: float) -> None:
    """Change the state to that of the next step: an adapted KL weight, the sampler's weights, and whatever is due.

    kl: to the old policy where the KL term is against that (PPO-Penalty), else to the reference.
    """
    # Before the policy first moves its KL says nothing, so the weight of the KL term waits with it.
    if state.step >= settings.critic_only_steps:
        state.algorithm = state.algorithm.adapt_beta(kl, rollout.rewards.numel())
    state.step += 1
    state.sync_sampler(settings)
    if is_due(settings.reset_reference_every, state.step):
        state.reference = state.policy.as_reference()
    if is_due(settings.refresh_reward_every, state.step):
        fresh = pairs_among(state.policy, rollout.sampled)
        loss = refresh(state.reward_model, fresh, state.reward_pairs, seed=settings.seed + state.step - 1)
        state.reward_loss = state.reward_loss if loss is None else loss
        state.reward_pairs = [*state.reward_pairs, *fresh]


def is_due(every: int, step: int) -> bool:
    """Return whether an event of every so many steps (0: never) is due after this step, from 1."""
    return every > 0 and step % every == 0


def mean_over(values: Tensor, mask: Tensor) -> float:
    """Return the mean of the values at which the mask is true."""
    values, mask = on_host(values, mask)
    return float(values[mask].mean())
