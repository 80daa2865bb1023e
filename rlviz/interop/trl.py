"""An algorithm and its settings as fields of TRL's GRPOConfig, of pairs DPOConfig: begin with `to_trl` and `TABLE`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from rlviz.algorithms.actor_critic import ActorCritic
from rlviz.algorithms.family import Algorithm
from rlviz.interop.exporting import (
    NO_OBSERVATIONS,
    SETTINGS,
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
    optimizer_words,
    options_of,
    settings_lines,
    slot_lines,
    warn_of_another_version,
)
from rlviz.pieces import (
    advantages,
    aggregation,
    bounds,
    gae,
    kl,
    mismatch,
    preference,
    ratios,
    selection,
    shaping,
    surrogate,
)
from rlviz.settings import PairSettings, Settings

EPS = 1e-4  # TRL adds it to every std
NEVER = 1e9  # a width that no ratio reaches
OWN_LENGTH = 512  # TRL's own longest completion
SCALES = {"group_std": "group", "batch_std": "batch", "none": "none"}

# Each of these changes the algorithm when it is another one, whichever is TRL's default in the version that is installed.
DEFAULTS = {
    "delta": None,
    "beta": 0.0,
    "use_bias_correction_kl": False,
    "mask_truncated_completions": False,
    "multi_objective_aggregation": "sum_then_normalize",
    "top_entropy_quantile": 1.0,
    "entropy_coef": 0.0,
    "use_adaptive_entropy": False,
    "off_policy_mask_threshold": None,
    "vllm_importance_sampling_correction": False,
    "repetition_penalty": 1.0,
    "sync_ref_model": False,
    "disable_dropout": True,
}
PAIR_DEFAULTS = {
    "loss_weights": None,
    "label_smoothing": 0.0,
    "use_weighting": False,
    "ld_alpha": None,
    "f_divergence_type": "reverse_kl",
    "sync_ref_model": False,
    "max_length": None,
    "disable_dropout": True,
}


LOSS, SCORING = "override _compute_loss", "override _generate_and_score_completions"  # methods of GRPOTrainer
READ = "read in TRL's code, not measured"
UNBIASED = (
    "the slope is −βΔ in place of β(1 − e^Δ), Δ = log π_ref/π; at Δ = 1 they are {apart:.2g} apart, beside |A| ≈ 1"
)
MEANS = (aggregation.sequence_mean, aggregation.token_mean, aggregation.Constant, aggregation.sequence_sum)
NO_LIMITS = "the surrogate takes no limits"
NO_CRITIC = "TRL 1.16 has no critic, PPOTrainer is gone"
# kind of surrogate → the loss_type that has it, where that is not the clipped one
LOSSES: Mapping[Any, str] = {
    surrogate.SoftGate: "sapo",
    surrogate.GammaWeight: "vespo",
    surrogate.clipped_weight: "cispo",
}
WITHOUT_LIMITS = (surrogate.unclipped, surrogate.SoftGate, surrogate.GammaWeight)
PARAMETERS: Parameters = {
    surrogate.DualClip: {"c": "delta"},
    surrogate.SoftGate: {"positive": "sapo_temperature_pos", "negative": "sapo_temperature_neg"},
    surrogate.GammaWeight: {
        "k_positive": "vespo_k_pos",
        "lambda_positive": "vespo_lambda_pos",
        "k_negative": "vespo_k_neg",
        "lambda_negative": "vespo_lambda_neg",
    },
    surrogate.EntropyBonus: {"entropy_weight": "entropy_coef"},
    surrogate.SequenceMask: {"delta": "off_policy_mask_threshold"},
    kl.KLInLoss: {"beta": "beta"},
    kl.UnbiasedKL: {"beta": "beta"},
}


def _bounds(piece: Any, case: Case) -> Fit:
    surrogate_kind = case.kind("surrogate")
    is_weight = surrogate_kind is surrogate.clipped_weight
    if piece is bounds.no_bounds:
        takes_none = surrogate_kind in (surrogate.SoftGate, surrogate.GammaWeight)
        return exact({}, NO_LIMITS) if takes_none else exact({"epsilon": NEVER, "epsilon_high": NEVER})
    if isinstance(piece, bounds.UpperBound):
        if is_weight:
            return exact({"epsilon_high": piece.max_ratio}, "under cispo epsilon_high is the limit itself, not a width")
        return exact({"epsilon": 1.0, "epsilon_high": piece.max_ratio - 1})
    if surrogate_kind in WITHOUT_LIMITS:
        return exact({}, NO_LIMITS)
    if is_weight:
        return inexpressible(f"TRL's cispo has no lower limit: {LOSS}")
    return exact({"epsilon": piece.eps_low, "epsilon_high": piece.eps_high})


def _dual_clip(piece: surrogate.DualClip, case: Case) -> Fit:
    limits = case.pieces["bounds"]
    if isinstance(limits, bounds.FixedBounds) and piece.c <= 1 + limits.eps_high:
        return inexpressible("TRL's delta cuts the ratios of good tokens too, where it is not above 1 + eps_high")
    return exact(options_of(piece, PARAMETERS), "delta stands for it as long as it is above the upper limit")


def _entropy_bonus(piece: surrogate.EntropyBonus, case: Case) -> Fit:
    fields = {"delta": None, **options_of(piece, PARAMETERS)}
    if case.kind("aggregate") is aggregation.token_mean and case.accumulation == 1:
        return exact(fields)
    return approximate(
        fields,
        "TRL takes the entropy's mean over the tokens of each part, whatever loss_type says: where lengths differ, the "
        "gradient by the weights was off by 0.25% of its length with a weight of 0.01, by 22% with a weight of 1 (measured)",
    )


def _sequence_mask(piece: surrogate.SequenceMask, case: Case) -> Fit:
    if piece.surrogate is not surrogate.pessimistic:
        return inexpressible(f"TRL masks the clipped objective: {LOSS}")
    return exact({"delta": None, **options_of(piece, PARAMETERS)}, "from π_old, or from vLLM where that samples")


def _group(piece: advantages.GroupAdvantage, case: Case) -> Fit:
    fields = {"scale_rewards": SCALES[piece.scale]}
    if piece.scale == "none" or piece.eps == EPS:
        return exact(fields)
    smallest = case.settings.group_size**-0.5  # one right answer in a group of G has the std 1/√G
    off = (EPS - piece.eps) / (smallest + EPS)
    what = (
        "each A is at most"
        if piece.scale == "group_std"
        else "every A is, where the batch's std is that of such a group,"
    )
    return approximate(
        fields,
        f"TRL adds 1e-4 to the std, this piece {piece.eps:g}: with rewards 0 and 1 {what} {off:.2%} smaller "
        "(computed); exact with eps 1e-4",
    )


def _leave_one_out(piece: Any, case: Case) -> Fit:
    size = case.settings.group_size
    return approximate(
        {"scale_rewards": "none"},
        f"R − mean is (G − 1)/G = {(size - 1) / size:g} of it (computed); RLOOTrainer has it, with one ratio for "
        "a whole response",
    )


def _weighted(piece: Any, case: Case, bound: str, least: float | None, most: float | None) -> Fit:
    """Return the fit of an advantage with a weight of the sampler: how TRL weighs where vLLM samples."""
    if not isinstance(piece.advantage, advantages.GroupAdvantage):
        return inexpressible(f"TRL weighs group advantages alone: {SCORING}")
    level = "sequence" if piece.ratio is mismatch.sequence_weight else "token"
    options = {"correction": True, "mode": f"{level}_{bound}", "clip_min": least, "clip_max": most}
    fields = {f"vllm_importance_sampling_{name}": value for name, value in options.items()}
    return approximate({**_group(piece.advantage, case).fields, **fields}, f"where vLLM samples (use_vllm); {READ}")


def _aggregate(piece: Any, case: Case) -> Fit:
    """Return the fit of a mean: TRL's loss_type names both the loss and its mean."""
    loss, parts, grad_norm = LOSSES.get(case.kind("surrogate")), case.settings.minibatches, case.settings.max_grad_norm
    if piece is aggregation.sequence_sum:
        why = f"the mean is 1/{case.update} of this sum, which Adam does not see once max_grad_norm is too (computed)"
        return approximate({"loss_type": "grpo", "max_grad_norm": grad_norm / case.update}, why)
    if piece is aggregation.sequence_mean:
        if loss in ("vespo", "cispo"):
            return inexpressible(f"TRL's {loss} takes the mean over tokens: {LOSS}", {"loss_type": loss})
        why = "responses without a token in the loss count in TRL's mean, not in ours"
        return exact({"loss_type": loss or "grpo"}, why)
    if piece is aggregation.token_mean:
        fields: dict[str, Any] = {"loss_type": loss or "dapo"}
        if loss == "sapo":
            return inexpressible(f"TRL's sapo takes the mean of responses: {LOSS}", fields)
        if parts == 1:
            return exact(fields, "divides by the tokens of the whole update, accumulated parts included")
        if loss is None and case.accumulation == 1:
            why = f"TRL's dapo would divide by the rollout's tokens / {parts}, whatever an update has"
            return exact({"loss_type": "bnpo"}, why)
        why = f"{loss or 'dapo'} divides by the rollout's tokens / {parts}, and an update of other length is off by that share"
        return approximate(fields, why if loss else f"{why}; bnpo is exact without accumulation")
    clips = case.kind("surrogate") in (surrogate.pessimistic, surrogate.unclipped, surrogate.DualClip)
    if piece.max_length == 1 and clips:
        return exact({"loss_type": "luspo"}, "TRL warns unless importance_sampling_level is sequence")
    longest = case.settings.max_new_tokens or (piece.max_length if piece.max_length > 1 else OWN_LENGTH)
    fields = {"loss_type": "dr_grpo", "max_completion_length": longest}
    if longest == piece.max_length:
        return exact(fields, "TRL divides by max_completion_length, at which responses are cut off too")
    factor = piece.max_length / longest
    return approximate(
        {**fields, "max_grad_norm": grad_norm * factor},
        f"TRL divides by max_completion_length: loss and gradient are {factor:g} of ours, which Adam does not see once "
        "max_grad_norm is too (computed)",
    )


def _kl(piece: kl.KLInLoss | kl.UnbiasedKL, case: Case) -> Fit:
    fields = options_of(piece, PARAMETERS)
    if piece.estimator is not kl.k3:
        return inexpressible(f"TRL's KL is k3: {LOSS}", fields)
    if isinstance(piece, kl.UnbiasedKL):
        return exact({**fields, "use_bias_correction_kl": True}, "TRL's default")
    why = (
        f"by default TRL multiplies k3 by the ratio: {UNBIASED.format(beta=piece.beta, apart=slopes_apart(piece.beta))}"
    )
    return exact({**fields, "use_bias_correction_kl": False}, why)


def slopes_apart(beta: float) -> float:
    """Return β(e − 2): how far the slopes by log π, β(1 − e^Δ) of k3 and −βΔ of ratio · k3, are apart at Δ = log π_ref/π = 1."""
    return beta * (math.e - 2)


def _overlong(piece: shaping.SoftOverlongPunishment, case: Case) -> Fit:
    reward = (f"get_soft_overlong_punishment({piece.max_length}, {piece.cache})",)
    if piece.floor != -1:
        return approximate({}, f"TRL's punishment ends at −1, this one at {piece.floor:g}", reward)
    if piece.factor == 1:
        return exact({}, "one more reward function", reward)
    why = f"TRL's punishment is 1/{piece.factor:g} as steep: give it the weight {piece.factor:g} in reward_weights"
    return approximate({}, why, reward)


def _filter(piece: Any, case: Case) -> Fit:
    fields = {"mask_truncated_completions": True}
    if case.kind("aggregate") is aggregation.token_mean:
        return exact(fields)
    return approximate(
        fields, "responses that left the loss count in TRL's mean: the gradient is the kept share as long"
    )


def _sigmoid(piece: preference.SigmoidPreference, case: Case) -> Fit:
    if piece.label_smoothing:
        return inexpressible("TRL's sigmoid ignores label_smoothing without a word, and its robust is another formula")
    return exact({"loss_type": ["sigmoid"]})


def _equal_groups(case: Case) -> str:
    """Return what becomes in TRL of groups that are all right or all wrong, which ours leaves out."""
    if case.kind("shape") in (None, shaping.OverlongFilter):
        return "groups that are all equal stay, and the gradient is the informative share as long"
    return (
        "groups that are all right or all wrong stay. Where shaping tells their responses apart, they have advantages: with "
        "responses punished from 3 tokens on, the gradient was off by 33% of its length, cosine 0.95 (measured). Where it does "
        "not, the gradient is the informative share as long"
    )


TABLE: Table = {
    "ratio": {
        ratios.token_ratio: exact({"importance_sampling_level": "token"}),
        ratios.ratio_to_sampler: f"TRL's ratio is to π_old: {LOSS}",
        ratios.sequence_ratio: exact({"importance_sampling_level": "sequence"}),
        ratios.sequence_token_ratio: exact(
            {"importance_sampling_level": "sequence"}, "while A is one number a response: the same value and gradient"
        ),
    },
    "bounds": {
        bounds.FixedBounds: _bounds,
        bounds.UpperBound: _bounds,
        bounds.no_bounds: _bounds,
        bounds.DynamicBounds: f"GRPOConfig has two constants: {LOSS}",
        bounds.ChangeBounds: f"GRPOConfig has two constants: {LOSS}",
    },
    "surrogate": {
        surrogate.pessimistic: exact({"delta": None}),
        surrogate.unclipped: exact({"delta": None, "epsilon": NEVER, "epsilon_high": NEVER}),
        surrogate.DualClip: _dual_clip,
        surrogate.clipped_weight: exact({}, "cispo; the value is with log π for log r, the gradient is the same"),
        surrogate.SoftGate: lambda p, c: exact(options_of(p, PARAMETERS)),
        surrogate.GammaWeight: lambda p, c: exact(
            options_of(p, PARAMETERS), "vespo; the value is with log π for log r, the gradient is the same"
        ),
        surrogate.geometric_mean: f"no such loss: {LOSS}",
        surrogate.CovariancePenalty: f"no such loss: {LOSS}",
        surrogate.EntropyBonus: _entropy_bonus,
        surrogate.SequenceMask: _sequence_mask,
    },
    "advantage": {
        advantages.GroupAdvantage: _group,
        advantages.LeaveOneOut: _leave_one_out,
        advantages.MeanScaled: f"scale_rewards has no mean: {SCORING}",
        advantages.BestOfK: f"TRL compares responses with each other, and no sets of k: {SCORING}",
        advantages.reward_alone: f"TRL always takes the group's mean off the rewards: {SCORING}",
        advantages.LengthWeighted: f"the baseline is the plain mean: {SCORING}",
        advantages.WhitenedReturn: f"one advantage a response: {SCORING}",
        advantages.SmoothStandardization: f"TRL keeps no rewards of a prompt's earlier visits: {SCORING}",
        advantages.ProcessAdvantage: "one reward a completion, none of single steps",
        advantages.StandardizedApart: lambda p, c: approximate(
            {"multi_objective_aggregation": "normalize_then_sum", "reward_weights": [p.answer, p.format]},
            f"TRL adds 1e-4 to each std, this piece {p.eps:g} (measured below)",
        ),
        advantages.ForkingTokens: lambda p, c: approximate(
            {"scale_rewards": "group", "top_entropy_quantile": p.share},
            "TRL chooses by the current policy's entropy, anew in each part of an update, and adds 1e-4 to the std "
            "(measured below)",
        ),
        advantages.TeacherLogRatio: "no teacher: DistillationTrainer is TRL's own way",
        mismatch.TruncatedWeight: lambda p, c: _weighted(p, c, "truncate", None, p.cap),
        mismatch.MaskedWeight: lambda p, c: _weighted(p, c, "mask", p.lowest, p.highest),
        mismatch.FullWeight: lambda p, c: _weighted(p, c, "mask", None, None),
        gae.GAE: NO_CRITIC,
    },
    "kl": {
        None: exact({"beta": 0.0}),
        kl.KLInLoss: _kl,
        kl.UnbiasedKL: _kl,
        kl.KLToTeacher: "TRL's reference is the start of the run: no option names a teacher",
        kl.KLInReward: f"GRPOTrainer's KL is in the loss: {SCORING}",
        kl.KLToOld: f"TRL's KL is to the reference: {LOSS}",
    },
    "aggregate": dict.fromkeys(MEANS, _aggregate),
    "shape": {
        None: exact(),
        shaping.SoftOverlongPunishment: _overlong,
        shaping.WeightedRules: lambda p, c: approximate(
            {"reward_weights": [p.answer, p.format]},
            "two reward functions: right, well formed; their weights are rounded to float32, so that a group whose rewards are "
            "all equal may have an A of up to 6e-4 in place of 0 (computed, for 0.9 and 0.1): where 7 of 8 groups were all right "
            "and badly formed, the gradient was off by 0.28% of its length (measured)",
            ("well_formed",),
        ),
        shaping.OverlongFilter: _filter,
        shaping.LengthCost: lambda p, c: exact({}, "one more reward function", (f"length_cost({p.per_token})",)),
    },
    "select": {
        selection.keep_all: exact(),
        selection.drop_all_equal: lambda p, c: approximate({}, _equal_groups(c)),
        selection.DynamicSampling: lambda p, c: inexpressible(f"TRL samples no further prompts; {_equal_groups(c)}"),
        selection.duplicate_informative: f"nothing stands between scoring and the loss: {SCORING}",
    },
}


NO_REWARD = "DPOTrainer's reward is β log(π / π_ref): the trainers of trl.experimental are others"
NO_LOSS = "DPOConfig has no such loss: override DPOTrainer's _compute_loss"
PAIRS: Table = {
    "reward": {
        preference.ImplicitReward: lambda p, c: exact({"beta": p.beta}),
        preference.mean_log_ratio: exact(),
        preference.log_ratio: "TRL's ipo takes means over tokens, as mean_log_ratio does",
        preference.LengthNormalized: NO_REWARD,
        preference.log_odds: NO_REWARD,
    },
    "pair loss": {
        preference.SigmoidPreference: _sigmoid,
        preference.SquaredPreference: lambda p, c: approximate({"loss_type": ["ipo"], "beta": p.beta}, READ),
        preference.OddsRatioPreference: NO_LOSS,
        preference.MarginPreference: NO_LOSS,
        preference.linear_preference: NO_LOSS,
    },
}


def to_trl(algorithm: Algorithm, settings: Settings | None = None, *, accumulation: int = 1) -> Export:
    """Return an algorithm and its settings in the words of TRL: the fields of GRPOConfig (of pairs: DPOConfig) and how
    each slot fits.

    settings: `default_settings(algorithm)` unless given. accumulation: the parts that each update is divided into. Every
    default of TRL that changes the algorithm is among the fields. Warns where another version of TRL than the one that
    this was checked with is installed. Raises ValueError for settings of another kind, and for an accumulation that does
    not divide an update.
    """
    subject, chosen = case_of(algorithm, settings, accumulation)
    warn_of_another_version("trl")
    if isinstance(chosen, PairSettings):
        slots = slot_lines(PAIRS, Case(subject.beyond_the_slots(), chosen))
        lines = (*slots, *_pair_settings(chosen, accumulation))
        return Export("trl", subject.name, "DPOConfig", lines, measured("trl", subject))
    case = Case(subject.slots(), chosen, accumulation)
    lacking = inexpressible(NO_CRITIC if isinstance(subject, ActorCritic) else NO_OBSERVATIONS)
    beyond = [line_of(part, str(piece), lacking) for part, piece in subject.beyond_the_slots().items()]
    lines = (*slot_lines(TABLE, case), *beyond, *settings_lines("TRL", case, _settings(case)))
    return Export("trl", subject.name, "GRPOConfig", lines, measured("trl", subject))


def _settings(case: Case) -> dict[str, Fit]:
    """Return how each part of the settings fits."""
    s = case.settings
    sizes = {
        "num_generations": s.group_size,
        "per_device_train_batch_size": case.update // case.accumulation,
        "gradient_accumulation_steps": case.accumulation,
        "steps_per_generation": s.minibatches * case.accumulation,
        "num_iterations": case.passes,
        "max_steps": s.steps * s.updates_per_rollout,
    }
    batches = exact(sizes, "on one device; on N devices per_device_train_batch_size is 1/N of it")
    if s.group_size < 2:
        batches = inexpressible("TRL refuses groups of one", sizes)
    elif s.minibatches > 1 and case.passes > 1:
        batches = approximate(sizes, "TRL's order of responses is one for all passes, ours another each time")
    # a response ends where the settings say, or a piece, or TRL
    pieces = [case.pieces[slot] for slot in ("aggregate", "shape")]
    lengths = [p.max_length for p in pieces if isinstance(p, aggregation.Constant | shaping.SoftOverlongPunishment)]
    longest = s.max_new_tokens or next((length for length in lengths if length > 1), OWN_LENGTH)
    unset = f"max_new_tokens was not given: {'TRL’s own' if longest == OWN_LENGTH else 'as long as a piece says'}"
    sampling = {"temperature": s.temperature, "top_k": s.top_k, "top_p": s.top_p, "seed": s.seed}
    fits = {
        "defaults": exact(DEFAULTS, "written out, so that no other version's stand in for them"),
        "batches": batches,
        "sampling": exact(sampling, "the same draws need the same sampler"),
        "lengths": exact({"max_completion_length": longest}, "" if s.max_new_tokens else unset),
        "optimizer": exact(_optimizer(s), learning_rate_words(s)),
        "warm-up": _warm_up(s, s.updates_per_rollout),
    }
    if s.reset_reference_every:
        every = s.reset_reference_every * s.updates_per_rollout
        fits["reference"] = exact({"sync_ref_model": True, "ref_model_mixup_alpha": 1.0, "ref_model_sync_steps": every})
    if s.micro_batch_tokens:
        fits["micro-batches"] = exact({}, "TRL counts responses: accumulation says how many")
    missing = inexpressible("no such option: prepare the prompts, or override the trainer")
    names = ("min_old_prob", "filter_solved", "refresh_reward_every", "prompt_pool")
    return fits | {name: missing for name in names if getattr(s, name)}


def _optimizer(s: Settings) -> dict[str, Any]:
    return {
        "learning_rate": s.lr,
        "max_grad_norm": s.max_grad_norm,
        "optim": "adamw_torch",
        "weight_decay": 0.0,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "bf16": s.precision == "bfloat16",
        "gradient_checkpointing": s.activations == "recomputed",
    }


def _warm_up(s: Settings, updates: int) -> Fit:
    fields = {"lr_scheduler_type": "constant_with_warmup", "warmup_steps": s.lr_warmup_steps * updates}
    if not s.lr_warmup_steps:
        return exact(fields)
    return approximate(
        fields,
        f"TRL's first update has learning rate 0 and each of the warm-up up to {1 / s.lr_warmup_steps:.0%} of the "
        "peak less than ours (computed)",
    )


def _pair_settings(s: PairSettings, accumulation: int) -> Iterator[Fit]:
    """Give a line for each part of the settings."""
    batches = {
        "per_device_train_batch_size": s.batch_size // accumulation,
        "gradient_accumulation_steps": accumulation,
        "max_steps": s.steps,
        "seed": s.seed,
    }
    for what, words, fit in (
        ("defaults", "of TRL", exact(PAIR_DEFAULTS, "written out; max_length cuts pairs off at 1024 by default")),
        ("batches", f"{s.batch_size} pairs an update", exact(batches)),
        ("optimizer", optimizer_words(s), exact(_optimizer(s), learning_rate_words(s))),
        ("warm-up", f"{s.lr_warmup_steps} updates", _warm_up(s, 1)),
    ):
        yield line_of(f"{SETTINGS}: {what}", words, fit)
