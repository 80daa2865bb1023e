# ruff: noqa: E501  a row is a line
"""Facts that follow from options alone, by the sources of TRL 1.16.0 and verl 0.9.1: tables of rows, and their reader.

IDLE: options that change nothing | when | why. LOG: columns that are not always there | when. FIRST: what the log shows in the
first ten steps | when; of rows that begin with the same word, the first that holds. SYMPTOMS: an entry of
notebooks/symptoms.md | when | why, the gravest first.

When: conditions, all of which must hold. `name: a b` is one of these values, `name: not a b` none of them, `name: < 1` a smaller
number, on and off are true and false; `one update`: a rollout serves one update alone; `refused`: the library would not start.
A name that ends in * stands for all that begin so. Of verl, `.name` is below actor_rollout_ref.actor, `@name` below algorithm,
`%name` below algorithm.rollout_correction, `&name` below reward.reward_kwargs.overlong_buffer_cfg.
"""

from __future__ import annotations

import fnmatch
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

from rlviz.interop.batches import Batch
from rlviz.interop.configs import VERL, Config
from rlviz.interop.verl import ACTOR, ROLLOUT
from rlviz.runs.log_names import WRITERS

FOLDERS = {
    ".": ACTOR,
    "@": "algorithm.",
    "%": "algorithm.rollout_correction.",
    "&": "reward.reward_kwargs.overlong_buffer_cfg.",
}
MODEL = "actor_rollout_ref.model."
ORDER = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
OF_BATCH: dict[str, Callable[[Batch], bool]] = {
    "one update": lambda batch: batch.on_policy,
    "more updates": lambda batch: not batch.on_policy,
    "refused": lambda batch: bool(batch.refused),
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
actor/pg_clipfrac and actor/ppo_kl are about 0 (1e-4): one update a rollout; exactly 0 only where both passes over the batch have micro-batches of one size (rollout.log_prob_micro_batch_size_per_gpu, actor.ppo_micro_batch_size_per_gpu) | one update, MODES
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

GRAVEST = "How many prompts are in a batch? | refused | it cannot start so"
LAST = """
The ratio is always 1, the clip fraction is 0 | one update | one update a rollout: no fault
There is no KL in the log | {} | no KL term: no fault
"""
RATIO_OF_2 = "The importance ratio is 2: temperature, top-p or top-k, and the log-probabilities"
GSPO = "GSPO's ε is tiny, and it clips a lot"
LORA = "LoRA learns nothing at the learning rate of full training"
HIGH_RATE = "lr {rate:g} is {times:.0f} times the 1e-6 that is usual for full training of large models"
ENGINES = "another engine samples, and nothing corrects for it"
SYMPTOMS = {
    "GRPOConfig": f"""
{GRAVEST}
{GSPO} | importance_sampling_level: sequence, epsilon_high: > 0.01, more updates | ε = {{width:g}} clips almost no ratio of a whole response
Gradient accumulation changes the result | loss_type: bnpo, gradient_accumulation_steps: > 1 | bnpo divides each of {{parts}} parts by its own tokens
Loss or gradient is NaN, the output is "!!!!!" | fp16: on | fp16 is on
{LORA} | use_peft: on, learning_rate: < 1e-5 | LoRA with lr {{rate:g}}
The entropy rises, and the reward falls | use_peft: off, learning_rate: >= 1e-5 | {HIGH_RATE}
{RATIO_OF_2} | top_p: < 1 | top-p cuts the sampler
{RATIO_OF_2} | top_k: > 0 | top-k cuts the sampler
Old and new log-probabilities differ before the first update | use_vllm: on, vllm_importance_sampling_correction: off | {ENGINES}
Several rewards on different scales | multi_objective_aggregation: sum_then_normalize, reward_weights: several | rewards are added before they are standardised
All responses are cut off | max_completion_length: <= 512 | responses end at {{longest}} tokens
Responses grow longer and longer | loss_type: grpo sapo | 1/|o| punishes a long wrong answer less a token
{LAST.format("beta: off")}""",
    "DPOConfig": "In DPO the chosen response becomes less likely | | the loss sees the margin alone",
    VERL: f"""
{GRAVEST}
{GSPO} | .policy_loss.loss_mode: gspo, .clip_ratio_high: > 0.01, more updates | ε = {{width:g}} clips almost no ratio of a whole response
{LORA} | {MODEL}lora_rank: on, .optim.lr: < 1e-5 | LoRA with lr {{rate:g}}
The entropy rises, and the reward falls | {MODEL}lora_rank: off, .optim.lr: >= 1e-5 | {HIGH_RATE}
The KL is large at the first step | {MODEL}lora_adapter_path: on, .use_kl_loss: on | the reference is the base without the adapter
The KL is large at the first step | {MODEL}lora_adapter_path: on, @use_kl_in_reward: on | the reference is the base without the adapter
{RATIO_OF_2} | {ROLLOUT}top_p: < 1 | top-p cuts the sampler
{RATIO_OF_2} | {ROLLOUT}top_k: > 0 | top-k cuts the sampler
Old and new log-probabilities differ before the first update | %rollout_is: off, %bypass_mode: off | {ENGINES}
The reward rises, the benchmark falls | reward.reward_model.enable: on | a reward model scores
The reward rises, the benchmark falls | reward_model.enable: on | a reward model scores
"Generated too many. Please check if your data are too difficult" | @filter_groups.enable: on | filter_groups samples until the batch is full
All responses are cut off | data.max_response_length: <= 512 | responses end at {{longest}} tokens
Responses grow longer and longer | .policy_loss.loss_mode: sapo geo_mean, %bypass_mode: off | this loss_mode takes the mean of responses: 1/|o| punishes a long wrong answer less a token
Responses grow longer and longer | .loss_agg_mode: seq-mean-token-mean | 1/|o| punishes a long wrong answer less a token
{LAST.format(".use_kl_loss: off, @use_kl_in_reward: off")}""",
}  # fmt: skip

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


def first_steps(config: Config, batch: Batch) -> list[str]:
    """Return what the log shows in the first ten steps, as far as it follows from the options."""
    first: dict[str, str] = {}
    for text, _ in _holding(FIRST[config.kind], config, batch):
        first.setdefault(text.split()[0], text)
    return list(first.values())


def symptoms(config: Config, batch: Batch) -> dict[str, str]:
    """Return heading of notebooks/symptoms.md → why, of what people with such a configuration ask about."""
    whys: dict[str, str] = {}
    for heading, why in _holding(SYMPTOMS[config.kind], config, batch):
        whys.setdefault(heading, why)
    return whys


def _holding(text: str, config: Config, batch: Batch) -> Iterator[tuple[str, str]]:
    """Give the first and the last field of the rows whose conditions hold, with the numbers of the run in them."""
    options, is_verl = config.options, config.kind == VERL
    rate = options[ACTOR + "optim.lr" if is_verl else "learning_rate"]
    numbers = {
        "updates": batch.updates,
        "parts": batch.accumulation,
        "logging_steps": options.get("logging_steps"),
        "warmup": options.get("trainer.critic_warmup"),
        "width": options.get(ACTOR + "clip_ratio_high" if is_verl else "epsilon_high"),
        "longest": options.get("data.max_response_length" if is_verl else "max_completion_length"),
        "rate": rate,
        "times": (rate or 0) / 1e-6,
        "ipo": (1 / (2 * (options.get("beta") or 1.0))) ** 2,
    }
    for what, conditions, why in rows(text):
        if all(condition(options, batch) for condition in conditions):
            yield what.format(**numbers), why.format(**numbers)


@cache
def rows(text: str) -> list[tuple[str, list[Condition], str]]:
    """Return a table's rows: what, when, why."""
    parts = [(*line.split(" |"), "")[:3] for line in text.splitlines() if line.strip()]
    return [
        (what, [_condition(words) for words in when.strip().split(", ") if words], why.strip())
        for what, when, why in parts
    ]


def full_name(name: str) -> str:
    """Return an option's name without a folder's sign."""
    return FOLDERS.get(name[0], name[0]) + name[1:]


def _condition(text: str) -> Condition:
    if text in OF_BATCH:
        return lambda options, batch: OF_BATCH[text](batch)
    name, _, words = text.partition(": ")
    option, (first, *values) = full_name(name), words.split()
    if first in ("on", "off"):
        return lambda options, batch: bool(options.get(option)) == (first == "on")
    if first == "several":
        return lambda options, batch: len(options.get(option) or ()) > 1
    if first in ORDER:
        number = float(values[0])
        return lambda options, batch: options[option] is not None and ORDER[first](options[option], number)

    def holds(options: Mapping[str, Any], batch: Batch) -> bool:
        value = options.get(option)
        texts = {str(item) for item in (value if isinstance(value, list) else [value])}
        return not texts & set(values) if first == "not" else texts <= {first, *values}

    return holds
