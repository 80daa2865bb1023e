"""An algorithm and its settings as options of verl's ppo_trainer.yaml: begin with `to_verl` and `TABLE`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.family import Algorithm
from rlviz.interop.exporting import (
    NO_OBSERVATIONS,
    Case,
    Export,
    Fit,
    Parameters,
    Table,
    approximate,
    case_of,
    exact,
    inexpressible,
    learning_rate_words,
    line_of,
    measured,
    options_of,
    settings_lines,
    slot_lines,
    unknown_line,
    warn_of_another_version,
)
from rlviz.pieces import advantages, aggregation, bounds, gae, kl, mismatch, ratios, selection, shaping, surrogate
from rlviz.settings import PairSettings, Settings

ACTOR, ROLLOUT, REFERENCE = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "actor_rollout_ref.ref."
NEVER = 1e9  # a width that no ratio reaches
OWN_LENGTH = 512  # verl's own longest response
KINDS = {kl.k1: "kl", kl.k2: "mse", kl.k3: "low_var_kl", kl.k3_plus: "k3+"}
MEANS = {
    aggregation.sequence_mean: "seq-mean-token-mean",
    aggregation.token_mean: "token-mean",
    aggregation.Constant: "seq-mean-token-sum-norm",
}
MODES = {
    surrogate.SoftGate: "sapo",
    surrogate.CovariancePenalty: "kl_cov",
    surrogate.clipped_weight: "cispo",
    surrogate.geometric_mean: "geo_mean",
}
LOSS, ADVANTAGE = "register_policy_loss", "register_adv_est"  # the decorators of verl.trainer.ppo.core_algos
OVERLONG, FILTER = "reward.reward_kwargs.overlong_buffer_cfg.", "algorithm.filter_groups."
PARAMETERS: Parameters = {
    surrogate.DualClip: {"c": ACTOR + "clip_ratio_c"},
    surrogate.SoftGate: {"positive": ACTOR + "tau_pos", "negative": ACTOR + "tau_neg"},
    surrogate.CovariancePenalty: {
        "share": ACTOR + "policy_loss.kl_cov_ratio",
        "beta": ACTOR + "policy_loss.ppo_kl_coef",
    },
    surrogate.EntropyBonus: {"entropy_weight": ACTOR + "entropy_coeff"},
    gae.GAE: {"gamma": "algorithm.gamma", "lam": "algorithm.lam"},
    kl.ProportionalController: {"target": "algorithm.kl_ctrl.target_kl", "horizon": "algorithm.kl_ctrl.horizon"},
}

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
    named = MODES.get(case.kind("surrogate"))
    if named is not None:
        return named
    if case.kind("ratio") in (ratios.sequence_ratio, ratios.sequence_token_ratio):
        return "gspo"
    return "dppo_tv" if case.kind("bounds") is bounds.ChangeBounds else "vanilla"


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


def _bounds(piece: Any, case: Case) -> Fit:
    mode = _mode(case)
    if piece is bounds.no_bounds:
        return exact({} if mode in ("sapo", "kl_cov") else _widths(NEVER, NEVER))
    if isinstance(piece, bounds.UpperBound):
        return exact(_widths(1.0, piece.max_ratio - 1))
    if isinstance(piece, bounds.ChangeBounds):
        if mode != "dppo_tv" or case.kind("surrogate") is not surrogate.pessimistic:
            return inexpressible(f"verl has these limits with the pessimistic clip of token ratios alone: {LOSS}")
        return exact(_widths(piece.delta, piece.delta), "the value is another one, the gradient the same")
    if case.kind("surrogate") in (surrogate.unclipped, surrogate.SoftGate):
        return exact({}, "the surrogate takes no limits")
    if mode == "geo_mean":
        widths = _widths(-math.log1p(-piece.eps_low), math.log1p(piece.eps_high))
        return exact(widths, "widths of the logarithm there")
    return exact(_widths(piece.eps_low, piece.eps_high))


def _dual_clip(piece: surrogate.DualClip, case: Case) -> Fit:
    if _mode(case) != "vanilla":
        return inexpressible(f"verl's {_mode(case)} has no dual clip: {LOSS}")
    return exact(options_of(piece, PARAMETERS))


def _weighted(piece: Any, case: Case, threshold: float | str) -> Fit:
    """Return the fit of an advantage with a weight of the sampler: verl's rollout correction, decoupled."""
    if not isinstance(piece.advantage, advantages.GroupAdvantage):
        return inexpressible(f"not checked with {piece.advantage}: set rollout_correction beside its estimator")
    return _group(piece.advantage, case).beside(
        {
            "algorithm.rollout_correction.rollout_is": "sequence"
            if piece.ratio is mismatch.sequence_weight
            else "token",
            "algorithm.rollout_correction.rollout_is_threshold": threshold,
            ROLLOUT + "calculate_log_probs": True,
        }
    )


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
    fields = {**_estimator("gae"), **options_of(piece, PARAMETERS)}
    if piece.whiten:
        return exact(fields)
    return approximate(fields, "verl always whitens: subtracts the mean, divides by the std")


def _whitened(piece: advantages.WhitenedReturn, case: Case) -> Fit:
    fields = _estimator("reinforce_plus_plus", gamma=1.0, use_kl_in_reward=piece.beta > 0, kl_penalty="kl")
    return exact({**fields, "algorithm.kl_ctrl.type": "fixed", "algorithm.kl_ctrl.kl_coef": piece.beta})


def _kl(piece: kl.KLInLoss | kl.KLInReward, case: Case) -> Fit:
    if piece.estimator not in KINDS:
        return inexpressible("an estimator that verl has not: write it into kl_penalty_forward")
    name = KINDS[piece.estimator]
    if isinstance(piece, kl.KLInReward):
        fields = {"use_kl_in_reward": True, "kl_penalty": name, "kl_ctrl.type": "fixed", "kl_ctrl.kl_coef": piece.beta}
        return exact({f"algorithm.{option}": value for option, value in fields.items()})
    fields = {"use_kl_loss": True, "kl_loss_coef": piece.beta, "kl_loss_type": name}
    why = "verl cuts k3 off at 10 nats" if piece.estimator is kl.k3 else ""
    return exact({ACTOR + option: value for option, value in fields.items()}, why)


def _aggregate(piece: Any, case: Case) -> Fit:
    mode = _mode(case)
    if piece is aggregation.sequence_sum:
        length = case.settings.max_grad_norm / case.update
        return approximate(
            {ACTOR + "loss_agg_mode": "seq-mean-token-mean", ACTOR + "optim.clip_grad": length},
            f"the mean is 1/{case.update} of this sum, which Adam does not see once clip_grad is too (computed)",
        )
    scale = {ACTOR + "loss_scale_factor": piece.max_length} if isinstance(piece, aggregation.Constant) else {}
    if mode in ("sapo", "geo_mean") and piece is not aggregation.sequence_mean:
        return inexpressible(f"verl's {mode} takes the mean of responses, whatever loss_agg_mode says: {LOSS}", scale)
    fields = {ACTOR + "loss_agg_mode": MEANS[case.kind("aggregate")], **scale}
    return exact(fields, "over the whole update, accumulated parts included")


def _overlong(piece: shaping.SoftOverlongPunishment, case: Case) -> Fit:
    fields = {
        "reward.reward_manager.name": "dapo",
        "reward.reward_kwargs.max_resp_len": piece.max_length,
        OVERLONG + "enable": True,
        OVERLONG + "len": piece.cache,
        OVERLONG + "penalty_factor": piece.factor,
        OVERLONG + "log": False,
    }
    if piece.floor > -piece.factor:
        return approximate(fields, f"verl's punishment has no floor, this one's is {piece.floor:g}")
    return exact(fields, "no floor there, and none is met: sampling stops at max_length")


def _own_reward(why: str, formula: str) -> Fit:
    return exact({"reward.custom_reward_function.path": "rewards.py"}, f"your function {why}", (formula,))


DYNAMIC = (
    "the trainer of 0.9 does not heed max_num_gen_batches and goes on till the batch is full; on equal groups the loss is the "
    "same. The reward function must return acc, or the filter looks at shaped rewards, which differ by length"
)
PESSIMISTIC = exact(
    {ACTOR + "clip_ratio_c": NEVER}, "verl's dual clip is always on, at 3 by default: it is moved out of the way"
)
TABLE: Table = {
    "ratio": {
        ratios.token_ratio: _ratio,
        ratios.sequence_ratio: _ratio,
        ratios.sequence_token_ratio: _ratio,
        ratios.ratio_to_sampler: "not checked: rollout_correction.bypass_mode takes the sampler for π_old",
    },
    "bounds": {
        bounds.FixedBounds: _bounds,
        bounds.UpperBound: _bounds,
        bounds.ChangeBounds: _bounds,
        bounds.no_bounds: _bounds,
        bounds.DynamicBounds: f"verl has two constants: {LOSS}",
    },
    "surrogate": {
        surrogate.pessimistic: PESSIMISTIC,
        surrogate.unclipped: exact({ACTOR + "clip_ratio_c": NEVER, **_widths(NEVER, NEVER)}),
        surrogate.DualClip: _dual_clip,
        surrogate.clipped_weight: exact({}, "the value is with log π for log r, the gradient is the same"),
        surrogate.SoftGate: lambda p, c: exact(options_of(p, PARAMETERS)),
        surrogate.geometric_mean: exact(),
        surrogate.GammaWeight: f"verl has no such loss: {LOSS}",
        surrogate.CovariancePenalty: lambda p, c: approximate(
            options_of(p, PARAMETERS),
            "verl chooses by log π of the moment, anew in each part of an update; ours by log π_old, once (measured below)",
        ),
        surrogate.EntropyBonus: lambda p, c: PESSIMISTIC.beside(options_of(p, PARAMETERS)),
        surrogate.SequenceMask: f"verl masks sequences whatever their A (rollout_rs): {LOSS}",
    },
    "advantage": {
        advantages.GroupAdvantage: _group,
        advantages.LeaveOneOut: exact(_estimator("rloo")),
        advantages.MeanScaled: f"verl divides by the std or not at all: {ADVANTAGE}",
        advantages.BestOfK: f"verl's grpo_passk gives an advantage to the best response alone: {ADVANTAGE}",
        advantages.reward_alone: f"verl has a baseline in each of its estimators for groups: {ADVANTAGE}",
        advantages.LengthWeighted: exact(_estimator("opo")),
        advantages.WhitenedReturn: _whitened,
        advantages.SmoothStandardization: f"verl keeps no rewards of a prompt's earlier visits: {ADVANTAGE}, with a state",
        advantages.ProcessAdvantage: f"one reward a response: {ADVANTAGE}, and a reward manager that gives steps",
        advantages.StandardizedApart: approximate(
            _estimator("gdpo"),
            "statistics of the batch over tokens; the two rewards are named in gdpo_reward_keys (measured below)",
        ),
        advantages.ForkingTokens: f"no mask by entropy: {LOSS}",
        advantages.TeacherLogRatio: "verl's distillation is a loss of its own: see distillation in its options",
        mismatch.TruncatedWeight: lambda p, c: _weighted(p, c, p.cap),
        mismatch.MaskedWeight: lambda p, c: _weighted(p, c, f"{p.lowest:g}_{p.highest:g}"),
        mismatch.FullWeight: lambda p, c: _weighted(p, c, NEVER),
        gae.GAE: _gae,
    },
    "kl": {
        None: exact(),
        kl.KLInLoss: _kl,
        kl.KLToTeacher: "verl's reference is built from the actor's own path: no option names a teacher's weights",
        kl.UnbiasedKL: f"verl's KL in the loss has no ratio: {LOSS}",
        kl.KLInReward: _kl,
        kl.KLToOld: f"verl's KL is to the reference: {LOSS}",
    },
    "aggregate": dict.fromkeys((*MEANS, aggregation.sequence_sum), _aggregate),
    "shape": {
        None: exact(),
        shaping.SoftOverlongPunishment: _overlong,
        shaping.WeightedRules: lambda p, c: _own_reward(
            f"returns {p.answer:g} · right + {p.format:g} · well formed",
            f"{p.answer:g} * right + {p.format:g} * well_formed",
        ),
        shaping.OverlongFilter: "no such mask: a reward manager cannot change response_mask",
        shaping.LengthCost: lambda p, c: _own_reward(
            f"takes {p.per_token:g} off for each token", f"− {p.per_token:g} * length"
        ),
    },
    "select": {
        selection.keep_all: exact({FILTER + "enable": False}),
        selection.drop_all_equal: "verl samples others in their place: a sampler of your own",
        selection.DynamicSampling: lambda p, c: approximate(
            {FILTER + "enable": True, FILTER + "metric": "acc", FILTER + "max_num_gen_batches": p.max_rounds}, DYNAMIC
        ),
        selection.duplicate_informative: "no hook between scoring and the loss: a sampler of your own",
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
    parts = subject.beyond_the_slots().items()
    if isinstance(chosen, PairSettings):
        lines = [line_of(part, piece, inexpressible("verl trains no pairs")) for part, piece in parts]
    else:
        case = Case(subject.slots(), chosen, accumulation)
        beyond = [line_of(part, str(piece), inexpressible(NO_OBSERVATIONS)) for part, piece in parts]
        beyond = list(_critic(subject, case)) if isinstance(subject, ActorCritic) else beyond
        lines = [*slot_lines(TABLE, case), *beyond, *settings_lines("verl", case, _settings(case))]
    return Export("verl", subject.name, "ppo_trainer.yaml", tuple(lines), measured("verl", subject))


def _critic(algorithm: ActorCritic, case: Case) -> Iterator[Fit]:
    s, controller = case.settings, algorithm.controller
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
        yield unknown_line("value loss", str(algorithm.value_loss), ": write compute_value_loss")
    else:
        width = clip if math.isfinite(clip) else NEVER
        fit = exact({"critic.cliprange_value": width}, "verl's own default is 0.5")
        yield line_of("value loss", algorithm.value_loss, fit)
    weight = algorithm.entropy_weight
    yield line_of("entropy", f"{weight:g}", exact({ACTOR + "entropy_coeff": weight}))
    if isinstance(controller, kl.ProportionalController) and isinstance(algorithm.kl, kl.KLInReward):
        adapting = {"algorithm.kl_ctrl.type": "adaptive", **options_of(controller, PARAMETERS)}
        yield line_of("controller", controller, exact(adapting))
    elif controller is not None:
        why = "verl adapts a KL in the reward alone, in proportion to its miss: write kl_ctrl anew"
        yield line_of("controller", controller, inexpressible(why))


def _settings(case: Case) -> dict[str, Fit]:
    """Return how each part of the settings fits."""
    s = case.settings
    sampling = {"name": "vllm", "temperature": s.temperature, "top_k": s.top_k or -1, "top_p": s.top_p}
    shape, longest, why = case.pieces["shape"], s.max_new_tokens, ""
    if longest is None and isinstance(shape, shaping.SoftOverlongPunishment):
        longest, why = shape.max_length, "max_new_tokens was not given: as long as a piece says"
    elif longest is None:
        longest, why = OWN_LENGTH, "max_new_tokens was not given: verl’s own"
    optimizer = {"lr": s.lr, "weight_decay": 0.0, "betas": [0.9, 0.999], "clip_grad": s.max_grad_norm}
    warm_up = exact({ACTOR + "optim.lr_scheduler_type": "constant", ACTOR + "optim.lr_warmup_steps": s.lr_warmup_steps})
    if s.lr_warmup_steps:
        warm_up = approximate(
            warm_up.fields,
            "verl's scheduler goes on once a rollout, as ours does, and begins at 0: the first rollout teaches nothing, and "
            f"each of the warm-up has {1 / s.lr_warmup_steps:.0%} of the peak less than ours (computed)",
        )
    fits = {
        "defaults": exact(DEFAULTS, "written out, so that no other version's stand in for them"),
        "batches": _batches(case),
        "sampling": exact(
            {ROLLOUT + name: value for name, value in sampling.items()}, "the same draws need the same sampler"
        ),
        "lengths": exact({"data.max_response_length": longest}, why),
        "optimizer": exact(
            {f"{ACTOR}optim.{name}": value for name, value in optimizer.items()}, learning_rate_words(s)
        ),
        "warm-up": warm_up,
    }
    if s.micro_batch_tokens:
        fields = {"use_dynamic_bsz": True, "ppo_max_token_len_per_gpu": s.micro_batch_tokens}
        fits["micro-batches"] = exact({ACTOR + name: value for name, value in fields.items()})
    missing = inexpressible("no such option: prepare the prompts, or write a trainer")
    names = ("min_old_prob", "filter_solved", "refresh_reward_every", "prompt_pool", "reset_reference_every")
    return fits | {name: missing for name in names if getattr(s, name)}


def _batches(case: Case) -> Fit:
    s, part = case.settings, case.update // case.accumulation
    fields = {
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
    if s.num_prompts % s.minibatches:
        return inexpressible("verl divides a rollout by whole prompts: num_prompts must be a multiple", fields)
    if s.minibatches > 1:
        return approximate(fields, "verl counts a minibatch in prompts; ours are of single responses")
    return exact(fields, "on one device; on N devices each …micro_batch_size_per_gpu is 1/N of it")
