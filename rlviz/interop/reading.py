"""An algorithm from the options of TRL or verl: the tables of the exports, read backwards.

In comes a `Config`, out go its algorithm (`read_algorithm`), the nearest ones of the family (`nearest`), and what of it no slot
says (`beyond_slots`). What no piece of rlviz stands for is an `UnknownPiece`, which has a name alone. That reading undoes writing
is tested for every algorithm that `to_trl` and `to_verl` write.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any

from rlviz.algorithms import ALGORITHMS, DPO, GRPO, PPO, RELATIVES
from rlviz.algorithms.base import PolicyGradient
from rlviz.algorithms.family import Algorithm
from rlviz.algorithms.preference import PreferenceOptimization
from rlviz.interop import trl, verl
from rlviz.interop.configs import VERL, Config
from rlviz.interop.exporting import Case, Fit, Table, UnknownPiece, kind_of, piece_of, slot_lines
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
from rlviz.pieces.values import ClippedValueLoss
from rlviz.pieces.words import label
from rlviz.settings import TrainSettings

Options = Mapping[str, Any]
NEVER, ACTOR, CORRECTION = verl.NEVER, verl.ACTOR, "algorithm.rollout_correction."
TRL_MEANS = {
    "grpo": aggregation.sequence_mean,
    "sapo": aggregation.sequence_mean,
    "luspo": aggregation.Constant(1),
    **dict.fromkeys(("dapo", "bnpo", "cispo", "vespo"), aggregation.token_mean),
}
ESTIMATORS = {
    "rloo": advantages.LeaveOneOut(),
    "opo": advantages.LengthWeighted(),
    "gdpo": advantages.StandardizedApart(),
    "reinforce_plus_plus_baseline": advantages.GroupAdvantage("batch_std"),
}
WITHOUT_RATIO = {"gpg": "A log π, without a ratio", "reinforce": "w A log π, w to the sampler"}  # losses of verl
ALSO = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}  # verl's other names of estimators
NEARLY = 0.5  # farther by at most this, an algorithm is as good a name
WEIGHTED = (mismatch.TruncatedWeight, mismatch.MaskedWeight, mismatch.FullWeight)
CLIPS = {surrogate.pessimistic, surrogate.unclipped, surrogate.DualClip}
# slots that make an algorithm another one rather than a variant
DEFINING = ("ratio", "surrogate", "advantage", "pair loss")

NEUTRAL: dict[str, Options] = {"GRPOConfig": trl.DEFAULTS, "DPOConfig": trl.PAIR_DEFAULTS, VERL: verl.DEFAULTS}
# option → what it does that no slot says, where it is not what the exports write out (their DEFAULTS)
BEYOND = {
    "mask_truncated_completions": "truncated responses leave the loss",
    "delta": "cuts every ratio there, whatever the sign of A",
    "entropy_coef": "adds that weight times the gradient of the entropy",
    "top_entropy_quantile": "only this share of tokens, of the highest entropy, has a gradient",
    "off_policy_mask_threshold": "bad responses that the sampler found much likelier leave the loss",
    "vllm_importance_sampling_correction": "multiplies each loss by the weight between the two engines",
    "multi_objective_aggregation": "each reward is standardised by itself before they are added",
    "label_smoothing": "the loss takes a pair to be the wrong way round with that probability",
    "max_length": "pairs are cut off at that many tokens, prompt included",
    "loss_weights": "several losses are added with these weights",
    "use_weighting": "each pair counts by how likely the policy finds it",
    "ld_alpha": "tokens beyond the length of the shorter response count less",
    "f_divergence_type": "the margin is that of another divergence, with another gradient",
    "sync_ref_model": "the reference follows the policy, so the penalty stops growing with the distance from the start",
    "use_adaptive_entropy": "the weight of the entropy bonus changes during the run",
    "repetition_penalty": "tokens are drawn from another distribution than the one whose log-probabilities are trained",
    ACTOR + "entropy_coeff": "adds that weight times the gradient of the entropy",
    ACTOR + "clip_ratio_c": "cuts the weight of a token at that ratio",
    "algorithm.use_kl_in_reward": "a second KL penalty, in the reward",
    CORRECTION + "rollout_is": "multiplies each loss by the weight between the two engines",
    CORRECTION + "rollout_rs": "responses or tokens on which the two engines disagree leave the loss",
}


def read_algorithm(config: Config) -> Algorithm:
    """Return the algorithm that a configuration trains, not yet named."""
    if config.kind == "DPOConfig":
        return _pair_algorithm(config.options)
    return _verl_algorithm(config.options) if config.kind == VERL else _trl_algorithm(config.options, config.punishment)


def _limits(low: Any, high: Any) -> Any:
    """Return bounds with these widths; a lower limit at 0 or below is none."""
    try:
        if low >= NEVER and high >= NEVER:
            return bounds.no_bounds
        return bounds.UpperBound(1 + high) if low >= 1 else bounds.FixedBounds(float(low), float(high))
    except (TypeError, ValueError):
        return UnknownPiece(f"1 − {low} … 1 + {high}")


def _clipping(limits: Any) -> Any:
    return surrogate.unclipped if limits is bounds.no_bounds else surrogate.pessimistic


def _trl_algorithm(o: Options, punishment: tuple[int, int] | None) -> Algorithm:
    kind, high = o["loss_type"], o["epsilon"] if o["epsilon_high"] is None else o["epsilon_high"]
    limits = _limits(o["epsilon"], high)
    if kind == "cispo":
        limits = bounds.UpperBound(float(high)) if high > 1 else UnknownPiece(f"weight ≤ {high:g}")
    elif kind in ("sapo", "vespo"):
        limits = bounds.no_bounds
    mean: Any = TRL_MEANS.get(kind) or UnknownPiece(str(kind))
    shape: Any = shaping.OverlongFilter() if o["mask_truncated_completions"] else None
    return replace(
        GRPO,
        name="this",
        ratio=ratios.sequence_ratio if o["importance_sampling_level"] == "sequence" else ratios.token_ratio,
        bounds=limits,
        surrogate=_trl_surrogate(kind, o, limits),
        advantage=_trl_advantage(o),
        kl=(kl.UnbiasedKL if o["use_bias_correction_kl"] else kl.KLInLoss)(float(o["beta"])) if o["beta"] else None,
        aggregate=aggregation.Constant(o["max_completion_length"]) if kind == "dr_grpo" else mean,
        shape=shaping.SoftOverlongPunishment(*punishment) if punishment else shape,
        from_grpo={},
    )


def _trl_surrogate(kind: str, o: Options, limits: Any) -> Any:
    if kind == "cispo":
        return surrogate.clipped_weight
    if kind in ("sapo", "vespo"):
        return piece_of(surrogate.SoftGate if kind == "sapo" else surrogate.GammaWeight, trl.PARAMETERS, o)
    if kind not in (*TRL_MEANS, "dr_grpo"):
        return UnknownPiece(str(kind))
    if o["entropy_coef"]:
        return piece_of(surrogate.EntropyBonus, trl.PARAMETERS, o)
    if o["off_policy_mask_threshold"] is not None:
        return piece_of(surrogate.SequenceMask, trl.PARAMETERS, o)
    if o["delta"] is None:
        return _clipping(limits)
    upper = 1 + getattr(limits, "eps_high", getattr(limits, "max_ratio", 2) - 1)
    if o["delta"] <= upper:
        return UnknownPiece(f"ratios cut at {o['delta']:g}")
    return piece_of(surrogate.DualClip, trl.PARAMETERS, o)


def _trl_advantage(o: Options) -> Any:
    scales: dict[str, Any] = {name: scale for scale, name in trl.SCALES.items()}
    scale = scales.get(o["scale_rewards"])
    plain: Any = (
        advantages.GroupAdvantage(scale, trl.EPS) if scale else UnknownPiece(f"scale_rewards={o['scale_rewards']}")
    )
    if o["multi_objective_aggregation"] == "normalize_then_sum":
        weights = o["reward_weights"] or []
        plain = (
            advantages.StandardizedApart(float(weights[0]), float(weights[1]), trl.EPS)
            if len(weights) == 2
            else UnknownPiece("each reward standardised apart")
        )
    elif o["top_entropy_quantile"] < 1:
        plain = advantages.ForkingTokens(float(o["top_entropy_quantile"]), trl.EPS)
    if not (o["use_vllm"] and o["vllm_importance_sampling_correction"] and isinstance(plain, mismatch.Unweighted)):
        return plain
    level, _, bound = str(o["vllm_importance_sampling_mode"]).partition("_")
    low, high = o["vllm_importance_sampling_clip_min"], o["vllm_importance_sampling_clip_max"]
    return _weighted(plain, level, bound, low or 0.0, high)


def _weighted(plain: Any, level: str, bound: str, low: float, high: float | None) -> Any:
    """Return an advantage with the weight of a sampler."""
    ratio = mismatch.sequence_weight if level == "sequence" else ratios.token_ratio
    if high is None or high >= NEVER:
        return mismatch.FullWeight(ratio, plain)
    try:
        if bound == "mask":
            return mismatch.MaskedWeight(float(low), float(high), ratio, plain)
        return mismatch.TruncatedWeight(float(high), ratio, plain)
    except ValueError:
        return UnknownPiece(f"({label(plain)}) · w, {level} {bound} {low:g} … {high:g}")


def _verl_algorithm(o: Options) -> Algorithm:
    mode, bypass = o[ACTOR + "policy_loss.loss_mode"], o[CORRECTION + "bypass_mode"]
    if bypass:  # the trainer puts another loss in its place, and the sampler's probabilities in place of the old ones
        mode = "vanilla" if o[CORRECTION + "loss_type"] == "ppo_clip" else "reinforce"
        o = {**o, CORRECTION + "rollout_is": None}
    limits, what = _verl_loss(mode, o)
    dynamic, most = o[verl.FILTER + "enable"], o[verl.FILTER + "max_num_gen_batches"]
    pieces = {
        "ratio": ratios.ratio_to_sampler if bypass else ratios.sequence_ratio if mode == "gspo" else ratios.token_ratio,
        "bounds": limits,
        "surrogate": what,
        "advantage": _verl_advantage(o),
        "kl": _verl_kl(o),
        "aggregate": _verl_mean(mode, o),
        "shape": _verl_shape(o),
        "select": selection.DynamicSampling(most or 10) if dynamic else selection.keep_all,
    }
    if not isinstance(pieces["advantage"], gae.GAE):
        return replace(GRPO, name="this", from_grpo={}, **pieces)
    controller = None
    if isinstance(pieces["kl"], kl.KLInReward) and o["algorithm.kl_ctrl.type"] == "adaptive":
        controller = piece_of(kl.ProportionalController, verl.PARAMETERS, o)
    if isinstance(pieces["surrogate"], surrogate.EntropyBonus):  # which is a weight of its own beside a critic
        pieces["surrogate"] = _clipping(limits)
    return replace(
        PPO,
        name="this",
        from_grpo={},
        value_loss=ClippedValueLoss(float(o["critic.cliprange_value"])),
        entropy_weight=float(o[ACTOR + "entropy_coeff"]),
        controller=controller,
        **pieces,
    )


def _verl_loss(mode: str, o: Options) -> tuple[Any, Any]:
    """Return limits and surrogate of one of verl's losses."""
    plain, *sides = (o[ACTOR + name] for name in ("clip_ratio", "clip_ratio_low", "clip_ratio_high"))
    low, high = (plain if side is None else side for side in sides)
    limits = _limits(low, high)
    if mode == "vanilla":
        c = o[ACTOR + "clip_ratio_c"]
        if 1 < c < NEVER:
            return limits, piece_of(surrogate.DualClip, verl.PARAMETERS, o)
        if o[ACTOR + "entropy_coeff"] and c >= NEVER:
            return limits, piece_of(surrogate.EntropyBonus, verl.PARAMETERS, o)
        return limits, _clipping(limits)
    if mode == "gspo":
        return limits, _clipping(limits)
    if mode == "dppo_tv":
        change = bounds.ChangeBounds(float(low)) if low == high else UnknownPiece(f"|p − q| ≤ {low:g} or {high:g}")
        return change, surrogate.pessimistic
    if mode == "geo_mean":
        return bounds.FixedBounds(-math.expm1(-low), math.expm1(high)), surrogate.geometric_mean
    if mode == "cispo":
        return limits, surrogate.clipped_weight
    if mode in ("sapo", "kl_cov"):
        kind = surrogate.SoftGate if mode == "sapo" else surrogate.CovariancePenalty
        return bounds.no_bounds, piece_of(kind, verl.PARAMETERS, o)
    if mode in WITHOUT_RATIO:
        return bounds.no_bounds, UnknownPiece(WITHOUT_RATIO[mode])
    return limits, UnknownPiece(f"verl's {mode}")


def _verl_advantage(o: Options) -> Any:
    name = o["algorithm.adv_estimator"]
    if name == "gae":
        return piece_of(gae.GAE, verl.PARAMETERS, o)
    if name == "reinforce_plus_plus" and o["algorithm.gamma"] == 1:
        in_reward = o["algorithm.use_kl_in_reward"] and o["algorithm.kl_penalty"] in ("kl", "k1")
        return advantages.WhitenedReturn(float(o["algorithm.kl_ctrl.kl_coef"]) if in_reward else 0.0)
    plain = ESTIMATORS.get(name)
    if name in ("grpo", "grpo_vectorized"):
        plain = advantages.GroupAdvantage("group_std" if o["algorithm.norm_adv_by_std_in_grpo"] else "none")
    level = o[CORRECTION + "rollout_is"]
    if level and isinstance(plain, mismatch.Unweighted):
        low, dash, high = str(o[CORRECTION + "rollout_is_threshold"]).rpartition("_")
        return _weighted(plain, level, "mask" if dash else "truncate", float(low or 0), float(high))
    return plain or UnknownPiece(f"verl's {name}")


def _verl_kl(o: Options) -> Any:
    kind: Any
    if o[ACTOR + "use_kl_loss"]:
        kind, where, weight, name = kl.KLInLoss, "loss", o[ACTOR + "kl_loss_coef"], o[ACTOR + "kl_loss_type"]
    elif o["algorithm.use_kl_in_reward"] and o["algorithm.adv_estimator"] != "reinforce_plus_plus":
        kind, where, weight, name = kl.KLInReward, "reward", o["algorithm.kl_ctrl.kl_coef"], o["algorithm.kl_penalty"]
    else:
        return None
    estimators = {**ALSO, **{name: estimator for estimator, name in verl.KINDS.items()}}
    weight, name = float(weight), str(name)
    if name in estimators and weight > 0:
        return kind(weight, estimators[name])
    return UnknownPiece(f"{weight:g} · {name} in the {where}") if weight else None


def _verl_mean(mode: str, o: Options) -> Any:
    name = "seq-mean-token-mean" if mode in ("sapo", "geo_mean") else o[ACTOR + "loss_agg_mode"]
    if name == "seq-mean-token-sum-norm":
        return aggregation.Constant(int(o[ACTOR + "loss_scale_factor"] or o["data.max_response_length"]))
    named = {text: piece for piece, text in verl.MEANS.items()} | {"seq-mean-token-sum": aggregation.Constant(1)}
    return named.get(name) or UnknownPiece(str(name))


def _verl_shape(o: Options) -> Any:
    buffer = verl.OVERLONG
    if o["reward.reward_manager.name"] != "dapo" or not o.get(buffer + "enable"):
        return None
    longest = o.get("reward.reward_kwargs.max_resp_len") or o["data.max_response_length"]
    length: Any = o.get(buffer + "len")
    factor = o.get(buffer + "penalty_factor", 1)
    try:
        return shaping.SoftOverlongPunishment(int(longest), int(length), float(factor))
    except (TypeError, ValueError):
        return UnknownPiece(f"{factor} off in the last {length} of {longest} tokens")


def _pair_algorithm(o: Options) -> Algorithm:
    losses, beta = list(o["loss_type"]), float(o["beta"])
    if losses == ["ipo"]:
        loss = preference.SquaredPreference(beta)
        return PreferenceOptimization(name="this", reward=preference.mean_log_ratio, pair_loss=loss)
    dpo = replace(DPO, name="this", reward=preference.ImplicitReward(beta))
    return dpo if losses == ["sigmoid"] else replace(dpo, pair_loss=UnknownPiece(" + ".join(map(str, losses))))


def is_same(a: Any, b: Any) -> bool:
    """Return whether two pieces are one, but for rounding, the eps of a std, and lengths, which go by the task.

    A maximum length of 1 is no length: it makes a mean the sum over tokens.
    """
    if type(a) is not type(b) or not is_dataclass(a):
        return bool(a == b)
    scaled = isinstance(a, aggregation.Constant | shaping.SoftOverlongPunishment)
    if scaled and (a.max_length == 1) != (b.max_length == 1):  # type: ignore[union-attr]
        return False
    without = {"eps", *(("max_length", "cache") if scaled else ())}
    pairs = [(getattr(a, part.name), getattr(b, part.name)) for part in fields(a) if part.name not in without]
    return all(math.isclose(x, y) if isinstance(x, float) and isinstance(y, float) else is_same(x, y) for x, y in pairs)


def distance(a: Algorithm, b: Algorithm) -> float:
    """Return how far an algorithm is from one of the family, for naming it.

    A slot of another kind counts 1, of ratio, surrogate and advantage 2, and 3 where the other has a piece of its own there,
    which GRPO has not; where only numbers of a piece differ, half. The three ways to clip, of which verl always has the dual
    one, count 1 at most, and a correction between engines 1.
    """

    def apart(slot: str, x: Any, y: Any) -> float:
        if isinstance(x, WEIGHTED) and not isinstance(y, WEIGHTED):
            return 1 + apart(slot, x.advantage, y)
        if is_same(x, y):
            return 0.0
        # the same kind with other numbers; of a constant these make a sum of a mean, of an unknown piece there are none
        if kind_of(x) is kind_of(y) and is_dataclass(x) and not isinstance(x, UnknownPiece | aggregation.Constant):
            others = [(getattr(x, part.name), getattr(y, part.name)) for part in fields(x)]
            if all(is_same(one, other) for one, other in others if not isinstance(one, int | float)):
                return 0.5
        if {kind_of(x), kind_of(y)} <= CLIPS:
            return 0.5 if surrogate.DualClip in (kind_of(x), kind_of(y)) else 1.0
        if slot not in DEFINING:
            return 1.0
        return 2.0 if kind_of(y) is kind_of(parts(GRPO).get(slot)) else 3.0

    theirs = parts(b)
    return sum(apart(name, piece, theirs.get(name)) for name, piece in parts(a).items())


def parts(algorithm: Algorithm) -> dict[str, Any]:
    """Return the eight slots, of pairs reward and pair loss, and what a critic adds."""
    beyond = dict(algorithm.beyond_the_slots())
    return beyond if isinstance(algorithm, PreferenceOptimization) else {**algorithm.slots(), **beyond}


def unknown_slots(algorithm: Algorithm) -> tuple[str, ...]:
    """Return the slots that make an algorithm what it is and have a piece that rlviz does not have."""
    return tuple(
        name for name, piece in parts(algorithm).items() if name in DEFINING and isinstance(piece, UnknownPiece)
    )


def differing_slots(a: Algorithm, b: Algorithm) -> tuple[str, ...]:
    """Return the slots and parts in which two algorithms differ."""
    theirs = parts(b)
    return tuple(name for name, piece in parts(a).items() if not is_same(piece, theirs.get(name)))


def nearest(algorithm: Algorithm) -> tuple[Algorithm, ...]:
    """Return the algorithm of the family from which this one differs least, then those nearly as near that differ in fewer slots.

    One with a piece that rlviz does not have where it counts is none of the family: it is put beside GRPO, PPO or DPO. And one of
    the family that differs from an earlier one in its KL term alone is no name, nor is one with a teacher, which no option gives.
    """
    family = [member for member in _named_family() if type(member) is type(algorithm)]
    if unknown_slots(algorithm):
        return tuple(member for member in family if member in (GRPO, PPO, DPO))
    distances = [(distance(algorithm, member), member) for member in family]
    smallest, closest = min(distances, key=lambda pair: pair[0])
    near = [member for far, member in distances if far <= smallest + NEARLY]
    fewer = len(differing_slots(algorithm, closest)) - 1
    return (closest, *(member for member in near if len(differing_slots(algorithm, member)) <= fewer))


@cache
def _named_family() -> tuple[Algorithm, ...]:
    """Return the algorithms of the family whose names a configuration may get."""
    family: list[Algorithm] = []
    for member in (*ALGORITHMS, *RELATIVES):
        if isinstance(member, PolicyGradient) and member.can.from_teacher:
            continue
        alike = (other for other in family if type(other) is type(member))
        if all(set(differing_slots(member, other)) != {"kl"} for other in alike):
            family.append(member)
    return tuple(family)


def beyond_slots(
    config: Config, algorithm: Algorithm, settings: TrainSettings, accumulation: int, idle: Collection[str] = ()
) -> Iterator[tuple[str, str]]:
    """Give (what, why): where the export says that a slot only comes near, and options that no slot accounts for.

    idle: options without an effect, which say nothing.
    """
    options, accounted = config.options, set(idle)
    exported: dict[str, tuple[Any, Fit]] = {}
    if not isinstance(algorithm, PreferenceOptimization):
        table: Table = verl.TABLE if config.kind == VERL else trl.TABLE
        lines = [
            line for line in slot_lines(table, Case(algorithm.slots(), settings, accumulation)) if not line.is_unknown
        ]
        exported = {name: (value, line) for line in lines for name, value in line.fields.items()}
        for line in lines:
            if line.fit == "approximate":
                yield line.slot, line.why.replace(" (measured below)", "")
        # options that a piece, or a part beside the slots, says although its row leaves them out
        if isinstance(algorithm.surrogate, surrogate.EntropyBonus):
            accounted.add(ACTOR + "entropy_coeff")
        if isinstance(algorithm.kl, kl.KLInReward | UnknownPiece) or isinstance(
            algorithm.advantage, advantages.WhitenedReturn
        ):
            accounted.add("algorithm.use_kl_in_reward")
        if isinstance(algorithm.advantage, UnknownPiece):
            accounted.add("multi_objective_aggregation")
    names_loss = isinstance(parts(algorithm).get("surrogate"), UnknownPiece)  # by that of the option
    for name, (value, line) in exported.items():
        here = options.get(name)
        alike = not (here or value) or here == value
        if isinstance(here, int | float) and isinstance(value, int | float):
            # a lower width of 1 and of more are no limit alike
            alike = alike or math.isclose(here, value) or (name.endswith("ratio_low") and here >= 1 and value >= 1)
        if not (alike or name in idle or (names_loss and name.endswith(("loss_mode", "loss_type")))):
            yield f"{name}={here}", BEYOND.get(name, line.why)
    for name, neutral in NEUTRAL[config.kind].items():
        if name in BEYOND and name not in exported and name not in accounted and options.get(name) != neutral:
            yield f"{name}={options.get(name)}", BEYOND[name]
