"""An algorithm and its settings as options of verl's ppo_trainer.yaml, in a YAML file that verl runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.family import Algorithm
from rlviz.interop.exporting import (
    NO_OBSERVATIONS,
    SETTINGS,
    Case,
    Export,
    Fit,
    Row,
    Slot,
    Table,
    approximate,
    case_of,
    exact,
    inexpressible,
    kind_of,
    line_of,
    lines_of,
    measured,
    warn_of_another_version,
)
from rlviz.pieces import (
    advantages,
    aggregation,
    bounds,
    gae,
    kl,
    mismatch,
    ratios,
    selection,
    shaping,
    surrogate,
)
from rlviz.settings import PairSettings, Settings

ACTOR, ROLLOUT, REFERENCE = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.ref."
NEVER = 1e9  # a width that no ratio reaches
OWN_LENGTH = 512  # verl's own longest response
KINDS = {kl.k1: "kl", kl.k2: "mse", kl.k3: "low_var_kl", kl.k3_plus: "k3+"}
MEANS = {aggregation.sequence_mean: "seq-mean-token-mean", aggregation.token_mean: "token-mean"}
MODES = {
    surrogate.SoftGate: "sapo",
    surrogate.CovariancePenalty: "kl_cov",
    surrogate.clipped_weight: "cispo",
    surrogate.geometric_mean: "geo_mean",
}
LOSS, ADVANTAGE = "register_policy_loss", "register_adv_est"  # the decorators of verl.trainer.ppo.core_algos

# Each of these changes the algorithm when it is another one, whichever is verl's default in the version that is installed.
DEFAULTS = {
    ACTOR + "clip_ratio_c": NEVER,
    ACTOR + "entropy_coeff": 0.0,
    ACTOR + "use_kl_loss": False,
    ACTOR + "ppo_epochs": 1,
    ACTOR + "use_dynamic_bsz": False,
    "algorithm.use_kl_in_reward": False,
    "algorithm.gamma": 1.0,
    "algorithm.filter_groups.enable": False,
    "algorithm.rollout_correction.rollout_is": None,
    "algorithm.rollout_correction.rollout_rs": None,
    "algorithm.rollout_correction.bypass_mode": False,
}


def _mode(case: Case) -> str:
    """Return the name of verl's loss: it holds ratio, limits and surrogate at once."""
    pieces = case.pieces
    named = MODES.get(kind_of(pieces["surrogate"]))
    if named is not None:
        return named
    if pieces["ratio"] in (ratios.sequence_ratio, ratios.sequence_token_ratio):
        return "gspo"
    return "dppo_tv" if isinstance(pieces["bounds"], bounds.ChangeBounds) else "vanilla"


def _ratio(piece: Any, case: Case) -> Fit:
    mode = _mode(case)
    fields = {ACTOR + "policy_loss.loss_mode": mode}
    if (mode == "gspo") == (piece is ratios.token_ratio):
        return inexpressible(f"verl's {mode} takes another ratio: {LOSS}", fields)
    if piece is ratios.sequence_ratio:
        return exact(fields, "verl's is GSPO-token's: the same value and gradient while A is one number a response")
    return exact(fields)


def _widths(low: float, high: float) -> dict[str, Any]:
    return {ACTOR + "clip_ratio_low": low, ACTOR + "clip_ratio_high": high}


def _fixed(piece: bounds.FixedBounds, case: Case) -> Fit:
    if case.pieces["surrogate"] is surrogate.unclipped or _mode(case) == "sapo":
        return exact({}, "the surrogate takes no limits")
    if _mode(case) == "geo_mean":
        widths = _widths(-math.log1p(-piece.eps_low), math.log1p(piece.eps_high))
        return exact(widths, "widths of the logarithm there")
    return exact(_widths(piece.eps_low, piece.eps_high))


def _upper(piece: bounds.UpperBound, case: Case) -> Fit:
    return exact(_widths(1.0, piece.max_ratio - 1))


def _change(piece: bounds.ChangeBounds, case: Case) -> Fit:
    if _mode(case) != "dppo_tv" or case.pieces["surrogate"] is not surrogate.pessimistic:
        return inexpressible(f"verl has these limits with the pessimistic clip of token ratios alone: {LOSS}")
    return exact(_widths(piece.delta, piece.delta), "the value is another one, the gradient the same")


def _no_bounds(piece: Any, case: Case) -> Fit:
    return exact({} if _mode(case) in ("sapo", "kl_cov") else _widths(NEVER, NEVER))


def _pessimistic(piece: Any, case: Case) -> Fit:
    return exact(
        {ACTOR + "clip_ratio_c": NEVER}, "verl's dual clip is always on, at 3 by default: it is moved out of the way"
    )


def _dual_clip(piece: surrogate.DualClip, case: Case) -> Fit:
    if _mode(case) != "vanilla":
        return inexpressible(f"verl's {_mode(case)} has no dual clip: {LOSS}")
    return exact({ACTOR + "clip_ratio_c": piece.c})


def _gate(piece: surrogate.SoftGate, case: Case) -> Fit:
    return exact({ACTOR + "tau_pos": piece.positive, ACTOR + "tau_neg": piece.negative})


def _covariance(piece: surrogate.CovariancePenalty, case: Case) -> Fit:
    fields = {"kl_cov_ratio": piece.share, "ppo_kl_coef": piece.beta}
    return approximate(
        {f"{ACTOR}policy_loss.{name}": value for name, value in fields.items()},
        "verl chooses by log π of the moment, anew in each part of an update; ours by log π_old, once (measured below)",
    )


def _entropy_bonus(piece: surrogate.EntropyBonus, case: Case) -> Fit:
    fit = _pessimistic(piece, case)
    return Fit(fit.grade, {**fit.fields, ACTOR + "entropy_coeff": piece.entropy_weight}, fit.why)


def _weighted(piece: Any, case: Case, threshold: float | str) -> Fit:
    """Return the fit of an advantage with a weight of the sampler: verl's rollout correction, decoupled."""
    if not isinstance(piece.advantage, advantages.GroupAdvantage):
        return inexpressible(f"not checked with {piece.advantage}: set rollout_correction beside its estimator")
    fields = {
        "algorithm.rollout_correction.rollout_is": "sequence" if piece.ratio is mismatch.sequence_weight else "token",
        "algorithm.rollout_correction.rollout_is_threshold": threshold,
        ROLLOUT + "calculate_log_probs": True,
    }
    fit = _group(piece.advantage, case)
    return Fit(fit.grade, {**fit.fields, **fields}, fit.why)


def _estimator(name: str, **more: Any) -> dict[str, Any]:
    return {"algorithm.adv_estimator": name, **{f"algorithm.{key}": value for key, value in more.items()}}


def _group(piece: advantages.GroupAdvantage, case: Case) -> Fit:
    if piece.scale == "none":
        return exact(_estimator("grpo", norm_adv_by_std_in_grpo=False))
    if piece.scale == "batch_std":
        return approximate(
            _estimator("reinforce_plus_plus_baseline"),
            "whitens over tokens in place of responses, and takes their mean off: long responses count more in "
            "it (measured below)",
        )
    fields = _estimator("grpo", norm_adv_by_std_in_grpo=True)
    if piece.eps == 1e-6:
        return exact(fields)
    off = abs(piece.eps - 1e-6) * case.settings.group_size**0.5
    return approximate(
        fields, f"verl adds 1e-6 to the std, this piece {piece.eps:g}: A is off by {off:.1g} at most (computed)"
    )


def _gae(piece: gae.GAE, case: Case) -> Fit:
    fields = _estimator("gae", gamma=piece.gamma, lam=piece.lam)
    return (
        exact(fields)
        if piece.whiten
        else approximate(fields, "verl always whitens: subtracts the mean, divides by the std")
    )


def _whitened(piece: advantages.WhitenedReturn, case: Case) -> Fit:
    fields = _estimator("reinforce_plus_plus", gamma=1.0, use_kl_in_reward=piece.beta > 0, kl_penalty="kl")
    return exact({**fields, "algorithm.kl_ctrl.type": "fixed", "algorithm.kl_ctrl.kl_coef": piece.beta})


def _kl_in_loss(piece: kl.KLInLoss, case: Case) -> Fit:
    if piece.estimator not in KINDS:
        return inexpressible("an estimator that verl has not: write it into kl_penalty_forward")
    fields = {"use_kl_loss": True, "kl_loss_coef": piece.beta, "kl_loss_type": KINDS[piece.estimator]}
    why = "verl cuts k3 off at 10 nats" if piece.estimator is kl.k3 else ""
    return exact({ACTOR + name: value for name, value in fields.items()}, why)


def _kl_in_reward(piece: kl.KLInReward, case: Case) -> Fit:
    if piece.estimator not in KINDS:
        return inexpressible("an estimator that verl has not: write it into kl_penalty_forward")
    fields = {
        "use_kl_in_reward": True,
        "kl_penalty": KINDS[piece.estimator],
        "kl_ctrl.type": "fixed",
        "kl_ctrl.kl_coef": piece.beta,
    }
    return exact({f"algorithm.{name}": value for name, value in fields.items()})


def _mean_of(name: str) -> Row:
    def row(piece: Any, case: Case) -> Fit:
        mode = _mode(case)
        if mode in ("sapo", "geo_mean") and piece is not aggregation.sequence_mean:
            return inexpressible(f"verl's {mode} takes the mean of responses, whatever loss_agg_mode says: {LOSS}")
        return exact({ACTOR + "loss_agg_mode": name}, "over the whole update, accumulated parts included")

    return row


def _constant(piece: aggregation.Constant, case: Case) -> Fit:
    fit = _mean_of("seq-mean-token-sum-norm")(piece, case)
    return Fit(fit.grade, {**fit.fields, ACTOR + "loss_scale_factor": piece.max_length}, fit.why)


def _sequence_sum(piece: Any, case: Case) -> Fit:
    return approximate(
        {
            ACTOR + "loss_agg_mode": "seq-mean-token-mean",
            ACTOR + "optim.clip_grad": case.settings.max_grad_norm / case.update,
        },
        f"the mean is 1/{case.update} of this sum, which Adam does not see once clip_grad is too (computed)",
    )


def _overlong(piece: shaping.SoftOverlongPunishment, case: Case) -> Fit:
    buffer = "reward.reward_kwargs.overlong_buffer_cfg."
    fields = {
        "reward.reward_manager.name": "dapo",
        "reward.reward_kwargs.max_resp_len": piece.max_length,
        buffer + "enable": True,
        buffer + "len": piece.cache,
        buffer + "penalty_factor": piece.factor,
        buffer + "log": False,
    }
    if piece.floor > -piece.factor:
        return approximate(fields, f"verl's punishment has no floor, this one's is {piece.floor:g}")
    return exact(fields, "no floor there, and none is met: sampling stops at max_length")


def _dynamic(piece: selection.DynamicSampling, case: Case) -> Fit:
    fields = {"enable": True, "metric": "acc", "max_num_gen_batches": piece.max_rounds}
    return approximate(
        {f"algorithm.filter_groups.{name}": value for name, value in fields.items()},
        "the trainer of 0.9 does not heed max_num_gen_batches and goes on till the batch is full; on equal "
        "groups the loss is the "
        "same. The reward function must return acc, or the filter looks at shaped rewards, which differ by length",
    )


def _never(why: str) -> Row:
    return lambda piece, case: inexpressible(why)


TABLE: Table = {
    "ratio": {
        **dict.fromkeys((ratios.token_ratio, ratios.sequence_ratio, ratios.sequence_token_ratio), _ratio),
        ratios.ratio_to_sampler: _never("not checked: rollout_correction.bypass_mode takes the sampler for π_old"),
    },
    "bounds": {
        bounds.FixedBounds: _fixed,
        bounds.UpperBound: _upper,
        bounds.ChangeBounds: _change,
        bounds.no_bounds: _no_bounds,
        bounds.DynamicBounds: _never(f"verl has two constants: {LOSS}"),
    },
    "surrogate": {
        surrogate.pessimistic: _pessimistic,
        surrogate.unclipped: lambda p, c: exact({ACTOR + "clip_ratio_c": NEVER, **_widths(NEVER, NEVER)}),
        surrogate.DualClip: _dual_clip,
        surrogate.clipped_weight: lambda p, c: exact({}, "the value is with log π for log r, the gradient is the same"),
        surrogate.SoftGate: _gate,
        surrogate.geometric_mean: lambda p, c: exact(),
        surrogate.GammaWeight: _never(f"verl has no such loss: {LOSS}"),
        surrogate.CovariancePenalty: _covariance,
        surrogate.EntropyBonus: _entropy_bonus,
        surrogate.SequenceMask: _never(f"verl masks sequences whatever their A (rollout_rs): {LOSS}"),
    },
    "advantage": {
        advantages.GroupAdvantage: _group,
        advantages.LeaveOneOut: lambda p, c: exact(_estimator("rloo")),
        advantages.MeanScaled: _never(f"verl divides by the std or not at all: {ADVANTAGE}"),
        advantages.BestOfK: _never(f"verl's grpo_passk gives an advantage to the best response alone: {ADVANTAGE}"),
        advantages.reward_alone: _never(f"verl has a baseline in each of its estimators for groups: {ADVANTAGE}"),
        advantages.LengthWeighted: lambda p, c: exact(_estimator("opo")),
        advantages.WhitenedReturn: _whitened,
        advantages.SmoothStandardization: _never(
            f"verl keeps no rewards of a prompt's earlier visits: {ADVANTAGE}, with a state"
        ),
        advantages.ProcessAdvantage: _never(
            f"one reward a response: {ADVANTAGE}, and a reward manager that gives steps"
        ),
        advantages.StandardizedApart: lambda p, c: approximate(
            _estimator("gdpo"),
            "statistics of the batch over tokens; the two rewards are named in gdpo_reward_keys (measured below)",
        ),
        advantages.ForkingTokens: _never(f"no mask by entropy: {LOSS}"),
        advantages.TeacherLogRatio: _never("verl's distillation is a loss of its own: see distillation in its options"),
        mismatch.TruncatedWeight: lambda p, c: _weighted(p, c, p.cap),
        mismatch.MaskedWeight: lambda p, c: _weighted(p, c, f"{p.lowest:g}_{p.highest:g}"),
        mismatch.FullWeight: lambda p, c: _weighted(p, c, NEVER),
        gae.GAE: _gae,
    },
    "kl": {
        None: lambda p, c: exact(),
        kl.KLInLoss: _kl_in_loss,
        kl.KLToTeacher: _never(
            "verl's reference is built from the actor's own path: no option names a teacher's weights"
        ),
        kl.UnbiasedKL: _never(f"verl's KL in the loss has no ratio: {LOSS}"),
        kl.KLInReward: _kl_in_reward,
        kl.KLToOld: _never(f"verl's KL is to the reference: {LOSS}"),
    },
    "aggregate": {
        **{piece: _mean_of(name) for piece, name in MEANS.items()},
        aggregation.Constant: _constant,
        aggregation.sequence_sum: _sequence_sum,
    },
    "shape": {
        None: lambda p, c: exact(),
        shaping.SoftOverlongPunishment: _overlong,
        shaping.WeightedRules: lambda p, c: exact(
            {"reward.custom_reward_function.path": "rewards.py"},
            f"your function returns {p.answer:g} · right + {p.format:g} · well formed",
            (f"{p.answer:g} * right + {p.format:g} * well_formed",),
        ),
        shaping.OverlongFilter: _never("no such mask: a reward manager cannot change response_mask"),
        shaping.LengthCost: lambda p, c: exact(
            {"reward.custom_reward_function.path": "rewards.py"},
            f"your function takes {p.per_token:g} off for each token",
            (f"− {p.per_token:g} * length",),
        ),
    },
    "select": {
        selection.keep_all: lambda p, c: exact({"algorithm.filter_groups.enable": False}),
        selection.drop_all_equal: _never("verl samples others in their place: a sampler of your own"),
        selection.DynamicSampling: _dynamic,
        selection.duplicate_informative: _never("no hook between scoring and the loss: a sampler of your own"),
    },
}


def to_verl(algorithm: Algorithm, settings: Settings | None = None, *, accumulation: int = 1) -> Export:
    """Return an algorithm and its settings in the words of verl: options of ppo_trainer.yaml and how each slot fits.

    settings: `default_settings(algorithm)` unless given. accumulation: the parts that each update is divided into. Every
    default of verl that changes the algorithm is among the fields. Warns where another version of verl than the one that
    this was checked with is installed. Raises ValueError for settings of another kind, and for an accumulation that does
    not divide an update.
    """
    subject, chosen = case_of(algorithm, settings, accumulation)
    warn_of_another_version("verl")
    kind = "ppo_trainer.yaml"
    if isinstance(chosen, PairSettings):
        parts = subject.beyond_the_slots().items()
        lines = [
            Slot(part, line_of(part, piece, Fit("exact")).piece, "inexpressible", "verl trains no pairs")
            for part, piece in parts
        ]
        return Export("verl", subject.name, kind, tuple(lines))
    case = Case(subject.slots(), chosen, accumulation)
    if isinstance(subject, ActorCritic):
        beyond = list(_critic(subject, case))
    else:
        beyond = [
            Slot(part, str(piece), "inexpressible", NO_OBSERVATIONS)
            for part, piece in subject.beyond_the_slots().items()
        ]
    lines = [*lines_of(TABLE, case), *beyond, *_settings(case)]
    return Export("verl", subject.name, kind, tuple(lines), measured("verl", subject))


def _critic(algorithm: ActorCritic, case: Case) -> Iterator[Slot]:
    s = case.settings
    fields = {
        "critic.model.path": "${actor_rollout_ref.model.path}",  # verl's own default is one of seven billion weights
        "critic.ppo_micro_batch_size_per_gpu": case.update // case.accumulation,
        "critic.optim.lr": s.critic_lr,
        "critic.optim.weight_decay": 0.0,
        "trainer.critic_warmup": s.critic_only_steps,
    }
    if s.critic == "shared":
        yield line_of("critic", "shared trunk", inexpressible("verl's critic is a model of its own", fields))
    else:
        yield line_of("critic", "a model of its own", exact(fields, "value_weight is part of no loss there, nor here"))
    clip = getattr(algorithm.value_loss, "eps_value", None)
    if clip is None:
        yield Slot(
            "value loss",
            str(algorithm.value_loss),
            "inexpressible",
            "a piece of your own: write compute_value_loss",
            own=True,
        )
    else:
        width = clip if math.isfinite(clip) else NEVER
        yield line_of(
            "value loss", algorithm.value_loss, exact({"critic.cliprange_value": width}, "verl's own default is 0.5")
        )
    yield line_of(
        "entropy", f"{algorithm.entropy_weight:g}", exact({ACTOR + "entropy_coeff": algorithm.entropy_weight})
    )
    if isinstance(algorithm.controller, kl.ProportionalController) and isinstance(algorithm.kl, kl.KLInReward):
        adapting = {
            "type": "adaptive",
            "target_kl": algorithm.controller.target,
            "horizon": algorithm.controller.horizon,
        }
        options = {f"algorithm.kl_ctrl.{name}": value for name, value in adapting.items()}
        yield line_of("controller", algorithm.controller, exact(options))
    elif algorithm.controller is not None:
        why = "verl adapts a KL in the reward alone, in proportion to its miss: write kl_ctrl anew"
        yield line_of("controller", algorithm.controller, inexpressible(why))


def _settings(case: Case) -> Iterator[Slot]:
    s = case.settings

    def line(what: str, words: str, fit: Fit) -> Slot:
        return line_of(f"{SETTINGS}: {what}", words, fit)

    yield line("defaults", "of verl", exact(DEFAULTS, "written out, so that no other version's stand in for them"))
    part = case.update // case.accumulation
    batches = {
        "data.train_batch_size": s.num_prompts,
        ROLLOUT + "n": s.group_size,
        ACTOR + "ppo_mini_batch_size": s.num_prompts // s.minibatches,
        ACTOR + "ppo_micro_batch_size_per_gpu": part,
        ROLLOUT + "log_prob_micro_batch_size_per_gpu": part,
        REFERENCE + "log_prob_micro_batch_size_per_gpu": part,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 1,
        ROLLOUT + "tensor_model_parallel_size": 1,
        ACTOR + "ppo_epochs": case.passes,
        ACTOR + "shuffle": s.minibatches > 1,
        "trainer.total_training_steps": s.steps,
        "data.seed": s.seed,
    }
    words = f"{s.num_prompts} × {s.group_size} responses, {s.updates_per_rollout} updates, {s.minibatches} minibatches"
    if s.num_prompts % s.minibatches:
        yield line(
            "batches",
            words,
            inexpressible("verl divides a rollout by whole prompts: num_prompts must be a multiple", batches),
        )
    elif s.minibatches > 1:
        yield line(
            "batches", words, approximate(batches, "verl counts a minibatch in prompts; ours are of single responses")
        )
    else:
        yield line(
            "batches", words, exact(batches, "on one device; on N devices each …micro_batch_size_per_gpu is 1/N of it")
        )
    sampling = {"name": "vllm", "temperature": s.temperature, "top_k": s.top_k or -1, "top_p": s.top_p}
    yield line(
        "sampling", f"temperature {s.temperature:g}",
        exact({ROLLOUT + name: value for name, value in sampling.items()}, "the same draws need the same sampler"),
    )  # fmt: skip
    longest, why = s.max_new_tokens, ""
    if longest is None:
        shape = case.pieces["shape"]
        said = isinstance(shape, shaping.SoftOverlongPunishment)
        longest = shape.max_length if said else OWN_LENGTH
        why = f"max_new_tokens was not given: {'as long as a piece says' if said else 'verl’s own'}"
    yield line("lengths", f"at most {longest} tokens", exact({"data.max_response_length": longest}, why))
    optimizer = {"lr": s.lr, "weight_decay": 0.0, "betas": [0.9, 0.999], "clip_grad": s.max_grad_norm}
    yield line(
        "optimizer", f"AdamW, lr {s.lr:g}, gradient norm {s.max_grad_norm:g}",
        exact({f"{ACTOR}optim.{name}": value for name, value in optimizer.items()}),
    )  # fmt: skip
    fields = {
        ACTOR + "optim.lr_scheduler_type": "constant",
        ACTOR + "optim.lr_warmup_steps": s.lr_warmup_steps,
    }
    off = (
        "verl's scheduler goes on once a rollout, as ours does, and begins at 0: the first rollout teaches nothing, and each of "
        f"the warm-up has {1 / max(1, s.lr_warmup_steps):.0%} of the peak less than ours (computed)"
    )
    yield line(
        "warm-up", f"{s.lr_warmup_steps} rollouts", approximate(fields, off) if s.lr_warmup_steps else exact(fields)
    )
    if s.micro_batch_tokens:
        fields = {ACTOR + "use_dynamic_bsz": True, ACTOR + "ppo_max_token_len_per_gpu": s.micro_batch_tokens}
        yield line("micro-batches", f"{s.micro_batch_tokens} tokens", exact(fields))
    for name in ("min_old_prob", "filter_solved", "refresh_reward_every", "prompt_pool", "reset_reference_every"):
        if getattr(s, name):
            yield line(
                name, f"{getattr(s, name)}", inexpressible("no such option: prepare the prompts, or write a trainer")
            )
