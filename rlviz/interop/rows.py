"""Facts that follow from options alone, by the sources of TRL 1.16.0 and verl 0.9.1: tables of rows, and their reader.

IDLE: options that change nothing | when | why. LOG: columns that are not always there | when. FIRST: what the log shows in the
first ten steps | when; of rows that begin with the same word, the first that holds.

When: conditions, all of which must hold. `name: a b` is one of these values, `name: not a b` none of them, on and off are true
and false; `one update`: a rollout serves one update alone; `equal micro-batches`: verl's of old and new log-probabilities.
A name that ends in * stands for all that begin so. Of verl, `.name` is below actor_rollout_ref.actor, `@name` below algorithm,
`%name` below algorithm.rollout_correction, `&name` below reward.reward_kwargs.overlong_buffer_cfg.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from rlviz.interop.batches import Batch
from rlviz.interop.configs import VERL, Config
from rlviz.interop.verl import ACTOR
from rlviz.runs.log_names import WRITERS

FOLDERS = {
    ".": ACTOR,
    "@": "algorithm.",
    "%": "algorithm.rollout_correction.",
    "&": "reward.reward_kwargs.overlong_buffer_cfg.",
}
WRITTEN = {"GRPOConfig": WRITERS["trl"].names, "DPOConfig": WRITERS["trl-dpo"].names, VERL: WRITERS["verl"].names}
# read, and not written by these versions: `carried` writes the first, older ones the others
NOT_WRITTEN = ("clip_ratio/dual_mean", "completion_length", "actor/entropy_loss", "critic/kl")
SWITCHES = ("enable", "use_vllm")  # what turns a group of options on is not among those without an effect
ONE_UPDATE = "a rollout serves one update, so every ratio is 1"
IDLE = {
    "GRPOConfig": f"""
epsilon epsilon_high | one update, loss_type: grpo bnpo dr_grpo dapo luspo | {ONE_UPDATE}
importance_sampling_level | one update, beta: off, use_vllm: off, top_entropy_quantile: 1 1.0, loss_type: not vespo | {ONE_UPDATE}
sapo_temperature_* | one update, loss_type: sapo | {ONE_UPDATE}, where the gate's slope is 1
epsilon delta | loss_type: cispo sapo vespo | this loss_type does not read it
epsilon_high | loss_type: sapo vespo | this loss_type has no limits
sapo_temperature_* | loss_type: not sapo | only loss_type=sapo reads it
vespo_* | loss_type: not vespo | only loss_type=vespo reads it
use_bias_correction_kl | beta: off | beta is 0
ref_model_* | sync_ref_model: off | sync_ref_model is off
entropy_target entropy_coef_* | use_adaptive_entropy: off | use_adaptive_entropy is off
vllm_* | use_vllm: off | use_vllm is off
vllm_importance_sampling_mode vllm_importance_sampling_clip_* | vllm_importance_sampling_correction: off | the correction is off
num_completions_to_print | log_completions: off | log_completions is off
num_train_epochs | max_steps: not -1 0 | max_steps stands in its place
""",
    "DPOConfig": """
label_smoothing | loss_type: not robust exo_pair aot aot_unpaired | this loss_type does not read it
discopop_tau | loss_type: not discopop | only loss_type=discopop reads it
ref_model_* | sync_ref_model: off | sync_ref_model is off
f_alpha_divergence_coef | f_divergence_type: not alpha_divergence | f_divergence_type is another
num_train_epochs | max_steps: not -1 0 | max_steps stands in its place
""",
    VERL: f"""
.clip_ratio | .clip_ratio_low: not None, .clip_ratio_high: not None | clip_ratio_low and _high stand in its place, 0.2 by default
.clip_ratio_* | one update, .policy_loss.loss_mode: vanilla gspo geo_mean cispo, %bypass_mode: off | {ONE_UPDATE}
.clip_ratio_low .clip_ratio_high | .policy_loss.loss_mode: sapo gpg kl_cov dro, %bypass_mode: off | this loss_mode has no limits
.clip_ratio_* | %bypass_mode: on, %loss_type: reinforce | this loss has no limits
.policy_loss.loss_mode | %bypass_mode: on | bypass_mode puts a loss of its own in its place
.clip_ratio_c | .policy_loss.loss_mode: not vanilla dppo_tv dppo_kl, %bypass_mode: off | this loss_mode has no dual clip
.tau_* | .policy_loss.loss_mode: not sapo | only loss_mode=sapo reads it
.policy_loss.kl_cov_ratio .policy_loss.ppo_kl_coef | .policy_loss.loss_mode: not kl_cov | only loss_mode=kl_cov reads it
.policy_loss.clip_cov_* | .policy_loss.loss_mode: not clip_cov | only loss_mode=clip_cov reads it
.loss_agg_mode | .policy_loss.loss_mode: sapo geo_mean, %bypass_mode: off | this loss_mode takes the mean of responses
.loss_scale_factor | .loss_agg_mode: not seq-mean-token-sum-norm | only seq-mean-token-sum-norm divides by it
.kl_loss_coef .kl_loss_type | .use_kl_loss: off | use_kl_loss is off
@kl_ctrl.* @kl_penalty | @use_kl_in_reward: off | use_kl_in_reward is off
@kl_ctrl.target_kl @kl_ctrl.horizon | @kl_ctrl.type: fixed | kl_ctrl.type is fixed
@lam | @adv_estimator: not gae | only adv_estimator=gae reads it
@gamma | @adv_estimator: grpo rloo opo gdpo gpg remax reinforce_plus_plus_baseline | this adv_estimator does not discount
@norm_adv_by_std_in_grpo | @adv_estimator: gae rloo opo reinforce_plus_plus remax | this adv_estimator does not read it
critic.* | critic.enable: off, @adv_estimator: not gae | there is no critic
@filter_groups.* | @filter_groups.enable: off | filter_groups.enable is off
@filter_groups.max_num_gen_batches | @filter_groups.enable: on | the trainer of 0.9 samples until the batch is full
%rollout_is_* | %rollout_is: off | rollout_is is null
%rollout_is %rollout_is_* | %bypass_mode: on, %loss_type: ppo_clip | bypass_mode clips the ratio to the sampler in its place
%rollout_rs_threshold | %rollout_rs: off | rollout_rs is null
%loss_type | %bypass_mode: off | bypass_mode is off
&* | &enable: off | the overlong buffer is off
.ppo_micro_batch_size_per_gpu | .use_dynamic_bsz: on | use_dynamic_bsz is on
.ppo_max_token_len_per_gpu | .use_dynamic_bsz: off | use_dynamic_bsz is off
""",
}  # fmt: skip

LOG = {
    "GRPOConfig": """
reward_std |
clip_ratio/low_mean clip_ratio/high_mean clip_ratio/region_mean | loss_type: grpo bnpo dr_grpo dapo luspo
cispo_clip_ratio | loss_type: cispo
kl | beta: on
sampling/sampling_logp_difference/mean | use_vllm: on
""",
    "DPOConfig": "",
    VERL: """
actor/pg_clipfrac | .policy_loss.loss_mode: not kl_cov gpg dro
actor/pg_clipfrac_lower | .policy_loss.loss_mode: not kl_cov clip_cov gpg dro
actor/ppo_kl | .policy_loss.loss_mode: not gpg
actor/entropy | %bypass_mode: off
actor/kl_loss | .use_kl_loss: on
actor/reward_kl_penalty | @use_kl_in_reward: on
critic/vf_loss critic/vf_explained_var | @adv_estimator: gae
rollout_corr/k3_kl training/rollout_probs_diff_mean | actor_rollout_ref.rollout.calculate_log_probs: on, %bypass_mode: off
""",
}
KL = "is about 0 at step 1 and grows; a large one says that the reference is another model"
FIRST = {
    "GRPOConfig": f"""
clip_ratio/* stay at 0: one update a rollout | one update, loss_type: CLIPPING
clip_ratio/* are 0 at the first of a rollout's {{updates}} updates, and small at the others | loss_type: CLIPPING
loss is 0, while grad_norm is not | one update, loss_type: grpo, beta: off, entropy_coef: off, use_vllm: off, PLAIN
loss is of either sign, with log π in the place of the ratio | loss_type: cispo vespo
loss is near 0, of either sign, while grad_norm is not | one update
kl {KL} | beta: on
frac_reward_zero_std is the share of groups without a gradient: near 1 nothing is learned |
logging_steps: a row is the mean of {{logging_steps}} updates, and the first is not step 1 | logging_steps: not 1 1.0
learning_rate of the first step is 0: it teaches nothing | warmup_steps: on
""".replace("CLIPPING", "grpo bnpo dr_grpo dapo luspo").replace(
        "PLAIN", "mask_truncated_completions: off, top_entropy_quantile: 1 1.0"
    ),
    "DPOConfig": """
loss begins at 0.693 (log 2), rewards/margins and rewards/accuracies at 0: policy and reference are one | loss_type: sigmoid
loss begins at {ipo:.3g}, (1 / 2β)², rewards/margins and rewards/accuracies at 0: policy and reference are one | loss_type: ipo
logging_steps: a row is the mean of {logging_steps} updates, and the first is not step 1 | logging_steps: not 1 1.0
learning_rate of the first step is 0: it teaches nothing | warmup_steps: on
""",
    VERL: f"""
actor/pg_clipfrac and actor/ppo_kl stay at 0: one update a rollout | one update, equal micro-batches, MODES
actor/pg_clipfrac and actor/ppo_kl are about 0 (1e-4), exactly only if {{sizes}} | one update, MODES
actor/pg_clipfrac and actor/ppo_kl are means over a rollout's {{updates}} updates, of which the first has every ratio at 1 | MODES
actor/pg_loss is of either sign, with log π in the place of the ratio | .policy_loss.loss_mode: cispo gpg dppo_tv dppo_kl
actor/pg_loss is near 0, of either sign, while actor/grad_norm is not | one update, %bypass_mode: off
actor/kl_loss {KL} | .use_kl_loss: on
critic/vf_explained_var begins near 0 or below, and should rise | @adv_estimator: gae
actor/* is absent until step {{warmup}}, by trainer.critic_warmup, and nothing is learned | trainer.critic_warmup: not 0 1 None
actor/lr of the first step is 0: it teaches nothing | .optim.lr_warmup_steps: not -1 0
actor/lr of the first step is 0: it teaches nothing | .optim.lr_warmup_steps_ratio: on
""".replace("MODES", "%bypass_mode: off, .policy_loss.loss_mode: not gpg kl_cov sapo dro"),
}

Condition = Callable[[Mapping[str, Any], Batch], bool]


def without_effect(config: Config, batch: Batch) -> Iterator[tuple[str, str]]:
    """Give (option, why) for all options, set or not, that change nothing; an option has the first row that says so."""
    left = [name for name in config.options if not name.endswith(SWITCHES)]
    for names, why in _holding(IDLE[config.kind], config, batch):
        covered = {option for name in names.split() for option in fnmatch.filter(left, full_name(name))}
        yield from ((name, why) for name in left if name in covered)
        left = [name for name in left if name not in covered]


def columns(config: Config, batch: Batch) -> list[str]:
    """Return the columns of the log, as `rlviz import` reads them, those that depend on options last."""
    depend = {name for text in LOG.values() for row in text.strip().splitlines() for name in row.split(" |")[0].split()}
    always = [name for name in WRITTEN[config.kind] if name not in depend and name not in NOT_WRITTEN]
    return always + [name for names, _ in _holding(LOG[config.kind], config, batch) for name in names.split()]


def first_steps(config: Config, batch: Batch) -> Iterator[str]:
    """Give what the log shows in the first ten steps, as far as it follows from the options."""
    words: set[str] = set()
    numbers = {"updates": batch.updates, "logging_steps": config.options.get("logging_steps")}
    numbers |= {"sizes": _micro_batches(config.options)[1]} if config.kind == VERL else {}
    numbers |= {"warmup": config.options.get("trainer.critic_warmup")}
    beta = config.options.get("beta") or 1.0
    for text, _ in _holding(FIRST[config.kind], config, batch):
        if text.split()[0] not in words:
            words.add(text.split()[0])
            yield text.format(**numbers, ipo=(1 / (2 * beta)) ** 2)


def _micro_batches(options: Mapping[str, Any]) -> tuple[bool, str]:
    """Return whether verl computes the old and the new log-probabilities in micro-batches of one size, and how to.

    16-bit kernels are not invariant to the size of a batch.
    """
    rollout, names = "actor_rollout_ref.rollout.", ("micro_batch_size_per_gpu", "max_token_len_per_gpu")
    packed = options[ACTOR + "use_dynamic_bsz"]
    old_packed = options[f"{rollout}log_prob_use_dynamic_bsz"]
    old_packed = packed if isinstance(old_packed, str) else old_packed  # by default as the actor's
    name = names[bool(packed)]
    old, new = options[f"{rollout}log_prob_{name}"], options[f"{ACTOR}ppo_{name}"]
    old = new if isinstance(old, str) else old
    words = f"rollout.log_prob_{name} ({old}) equals actor.ppo_{name} ({new}): two passes over the batch, one update a rollout"
    return old == new and packed == old_packed, words


def _holding(text: str, config: Config, batch: Batch) -> Iterator[tuple[str, str]]:
    """Give the first and the last field of the rows whose conditions hold."""
    options = config.options
    for what, conditions, why in rows(text):
        if all(condition(options, batch) for condition in conditions):
            yield what, why


@cache
def rows(text: str) -> list[tuple[str, list[Condition], str]]:
    """Return a table's rows: what, when, why."""
    parts = [(*line.split(" |"), "")[:3] for line in text.strip().splitlines()]
    return [
        (what, [_condition(words) for words in when.strip().split(", ") if words], why.strip())
        for what, when, why in parts
    ]


def full_name(name: str) -> str:
    """Return an option's name without a folder's sign."""
    return FOLDERS.get(name[0], name[0]) + name[1:]


def _condition(text: str) -> Condition:
    if text == "one update":
        return lambda options, batch: batch.on_policy
    if text == "equal micro-batches":
        return lambda options, batch: _micro_batches(options)[0]
    name, _, words = text.partition(": ")
    option, values = full_name(name), words.split()
    if values in (["on"], ["off"]):
        return lambda options, batch: bool(options.get(option)) == (values == ["on"])

    def holds(options: Mapping[str, Any], batch: Batch) -> bool:
        value = options.get(option)
        texts = {str(item) for item in (value if isinstance(value, list) else [value])}
        return not texts & set(values) if values[0] == "not" else texts <= set(values)

    return holds
