"""Options that are set and have no effect, as the sources of TRL 1.16.0 and verl 0.9.1 have it.

A row: options | conditions, all of which must hold | why. An option that ends in * stands for all that begin so; `name: a b` is
one of these values, `name: not a b` none of them, on and off are true and false; `one update`: a rollout serves one update
alone. Of verl, `.name` is below actor_rollout_ref.actor, `@name` below algorithm, `%name` below
algorithm.rollout_correction, `&name` below reward.reward_kwargs.overlong_buffer_cfg.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from rlviz.interop.batches import Batch
from rlviz.interop.configs import VERL, Config
from rlviz.interop.verl import ACTOR

FOLDERS = {
    ".": ACTOR,
    "@": "algorithm.",
    "%": "algorithm.rollout_correction.",
    "&": "reward.reward_kwargs.overlong_buffer_cfg.",
}
SWITCHES = ("enable", "use_vllm")  # what turns a group of options on is not among those without an effect
ONE_UPDATE = "a rollout serves one update, so every ratio is 1"
ROWS = {
    "GRPOConfig": f"""
epsilon epsilon_high delta importance_sampling_level | one update, loss_type: grpo bnpo dr_grpo dapo luspo | {ONE_UPDATE}
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
.clip_ratio_low .clip_ratio_high | one update, .policy_loss.loss_mode: vanilla gspo geo_mean, %bypass_mode: off | {ONE_UPDATE}
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
@gamma | @adv_estimator: grpo rloo opo gdpo gpg | this adv_estimator does not discount
@norm_adv_by_std_in_grpo | @adv_estimator: gae rloo opo reinforce_plus_plus remax | this adv_estimator does not read it
critic.* trainer.critic_warmup | critic.enable: off, @adv_estimator: not gae | there is no critic
@filter_groups.* | @filter_groups.enable: off | filter_groups.enable is off
@filter_groups.max_num_gen_batches | @filter_groups.enable: on | the trainer of 0.9 samples until the batch is full
%rollout_is_* | %rollout_is: off | rollout_is is null
%rollout_rs_threshold | %rollout_rs: off | rollout_rs is null
%loss_type | %bypass_mode: off | bypass_mode is off
&* | &enable: off | the overlong buffer is off
.ppo_micro_batch_size_per_gpu | .use_dynamic_bsz: on | use_dynamic_bsz is on
.ppo_max_token_len_per_gpu | .use_dynamic_bsz: off | use_dynamic_bsz is off
trainer.total_epochs | trainer.total_training_steps: on | total_training_steps stands in its place
""",
}  # fmt: skip

Condition = Callable[[Mapping[str, Any], Batch], bool]


def without_effect(config: Config, batch: Batch) -> Iterator[tuple[str, str]]:
    """Give (option, why) for all options, set or not, that change nothing; an option has the first row that says so."""
    seen: set[str] = set()
    for names, conditions, why in _rows(config.kind):
        if all(condition(config.options, batch) for condition in conditions):
            for name in config.options:
                covered = any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in names)
                if covered and name not in seen and not name.endswith(SWITCHES):
                    seen.add(name)
                    yield name, why


@cache
def _rows(kind: str) -> list[tuple[list[str], list[Condition], str]]:
    rows = [line.split(" | ") for line in ROWS[kind].strip().splitlines()]
    return [
        ([_full(n) for n in names.split()], [_condition(c) for c in said.split(", ")], why) for names, said, why in rows
    ]


def _full(name: str) -> str:
    return FOLDERS.get(name[0], name[0]) + name[1:]


def _condition(text: str) -> Condition:
    if text == "one update":
        return lambda options, batch: batch.on_policy
    name, _, said = text.partition(": ")
    option, values = _full(name), said.split()
    if values in (["on"], ["off"]):
        return lambda options, batch: bool(options.get(option)) == (values == ["on"])
    negative, among = values[0] == "not", set(values)

    def holds(options: Mapping[str, Any], batch: Batch) -> bool:
        here = options.get(option)
        return bool(among & {str(each) for each in (here if isinstance(here, list) else [here])}) != negative

    return holds
