"""The rules of `diagnose`: which numbers of a run each looks at, from which value on and why, what it says, what to try.

A rule holds where all its conditions hold at once, on numbers that are smoothed over a window of steps (`measures.py`). It is
said where it holds at the end of the run, with the step since which it has held. The most important rules come first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from rlviz.runs.measures import (
    AboveLeast,
    BelowBest,
    BelowStart,
    Condition,
    Drift,
    First,
    FromStart,
    InNoise,
    LastQuarter,
    Latest,
    LatestBelowBest,
    Most,
    Now,
    TimesStart,
)

Grade = Literal["warning", "note"]

PERSISTS = 3  # steps for which a rule must hold: the median of a window moves at every step
FEWEST = 20  # steps: four of the shortest windows (`measures.APART`)
NO_GRADIENT = 1e-9  # a norm; where all advantages are 0 it is exactly 0


@dataclass(frozen=True)
class Rule:
    """What is unusual, and what a person who has seen it before would say.

    where: all of these must hold at the end of the run; the first one's measure is the number. seen: what was seen, with {0},
    {1}, … for the conditions' measures, {step} for the step since which, {since} for that in words. usually: what it usually
    means. setting: which setting of `rlviz train` to try, and advice: how. lesson: its notebook. fewest: steps a run must have;
    from FEWEST on its beginning and end must be apart. persists: steps for which it must have held. silences: rules that say
    less than this one does.
    """

    name: str
    grade: Grade
    where: tuple[Condition, ...]
    seen: str
    usually: str
    setting: str
    advice: str
    lesson: str
    fewest: int = FEWEST
    persists: int = field(default=PERSISTS, kw_only=True)
    silences: tuple[str, ...] = field(default=(), kw_only=True)


UNSOLVED = Now("accuracy").at_most(0.8, "above it, groups that are all right are what a solved task looks like")
MEDIAN = "the default rollout has 256 responses, so that a window's median wavers by .02; half as many: .03"

NOISE = "standard deviations of one step; the difference of two medians of five wavers by .8"
CHANCE = "standard errors; of a thousand runs that learn nothing, three wander further"
TWICE = Latest("evaluations").at_least(2, "one evaluation may be an odd one")

RULES: tuple[Rule, ...] = (
    Rule(
        "not_finite",
        "warning",
        (Latest("not_finite").at_least(1, "one is enough: an update with it makes every weight one"),),
        "The loss, or the norm of its gradient, is no finite number ({since}).",
        "The weights are lost with such an update, and what comes after it says nothing about the algorithm.",
        "lr",
        "Go back to a checkpoint before it. Try a third of the learning rate, and float32 in place of half precision.",
        "02_the_ratio",
        fewest=1,
        persists=1,
        silences=("no_learning", "still_rising", "solved", "no_gradient", "loss_is_kl", "loss_zero", "ratio_one"),
    ),
    Rule(
        "no_reward",
        "warning",
        (
            Now("accuracy").at_most(0.01, "one right response in a hundred is what chance gives on these tasks"),
            First("accuracy").at_most(0.01, "so from the start: what was lost on the way is another fault"),
            Now("zero_variance_groups").at_least(0.95, "one group in twenty that differs still teaches something"),
        ),
        "{0:.0%} of the responses are right, and {2:.0%} of the groups have equal rewards, {since}.",
        "Without a response that is better than the others of its group there is no gradient: the policy cannot begin.",
        "policy",
        "Begin with a policy that is right now and then (a warm start on this task), or with an easier task.",
        "04_grpo",
        silences=("dead_groups", "no_learning", "no_gradient"),
    ),
    Rule(
        "entropy_rose",
        "warning",
        (
            AboveLeast("entropy").at_least(0.1, "the entropy of a sound run wavers by a few hundredths of a nat"),
            BelowBest("accuracy").at_least(0.1, MEDIAN),
        ),
        "Entropy has risen by {0:.2f} nats per token while accuracy fell by {1:.2f} (since step {step}).",
        "The updates are too large: each one damages what the last one taught.",
        "lr",
        "Begin again with a third of the learning rate, or with fewer updates per rollout.",
        "11_entropy_collapse",
    ),
    Rule(
        "broken",
        "warning",
        (
            BelowBest("accuracy").at_least(0.2, MEDIAN),
            Now("accuracy").at_least(0.0, "told"),
        ),
        "Accuracy has fallen by {0:.2f} below its best, to {1:.2f} (since step {step}).",
        "The policy broke. It rarely comes back: what it samples now teaches it nothing better.",
        "lr",
        "Go back to before it fell, and train again with a third of the learning rate, or with fewer updates per rollout.",
        "02_the_ratio",
        silences=("no_learning", "dead_groups", "no_gradient"),
    ),
    Rule(
        "hacked",
        "warning",
        (
            InNoise("reward").at_least(2, NOISE),
            BelowStart("accuracy").at_least(0.1, MEDIAN),
        ),
        "Reward has risen by {0:.0f} times its noise while accuracy fell by {1:.2f} (since step {step}).",
        "The policy found what the reward likes, which is not what is right: reward hacking.",
        "beta",
        "Hold it to its start with a KL term (--beta 0.1), and refresh the reward model on fresh samples.",
        "13_reward_hacking",
        silences=("no_learning", "reward_alone", "broken", "entropy_rose"),
    ),
    Rule(
        "reward_alone",
        "warning",
        (
            InNoise("reward").at_least(4, NOISE),
            InNoise("accuracy").at_most(2, NOISE),
            UNSOLVED,
        ),
        "Reward has risen by {0:.0f} times its noise, accuracy by {1:.0f} times its own (since step {step}).",
        "What is rewarded beside the right answer (form, length, a judge's taste) is easier to earn than the answer.",
        "reward_format",
        "Give the other rewards less weight, or look at samples to see which one is earned.",
        "13_reward_hacking",
        silences=("no_learning", "broken", "entropy_rose"),
    ),
    Rule(
        "judge_lost",
        "warning",
        (Now("reward_agreement").at_most(0.6, "0.5 is a coin"),),
        "The reward model puts {0:.0%} of the pairs of a right and a wrong response in order; a coin, 50 % (since step {step}).",
        "It learned from other responses than the policy now writes, and cannot tell them apart.",
        "refresh_reward_every",
        "Let the reward model learn from fresh samples, every 8 steps.",
        "13_reward_hacking",
        silences=("entropy_rose",),
    ),
    Rule(
        "gradient_grew",
        "warning",
        (
            TimesStart("grad_norm").at_least(
                3, "more than a doubling; in sound runs it falls, or moves by less than two"
            ),
        ),
        "The norm of the gradient is {0:.1f} times what it was at first (since step {step}).",
        "A part of the loss grows, often the KL term. Where it goes on doubling, a number that is not finite comes next.",
        "lr",
        "Begin again with a smaller learning rate, or a smaller weight of the KL term; a lower max_grad_norm only delays it.",
        "02_the_ratio",
    ),
    Rule(
        "ratios_far",
        "warning",
        (Now("token_ratio_std").at_least(1, "a clip at 1 ± 0.2 takes ratios to lie within a few tenths of 1"),),
        "The ratios of tokens have a standard deviation of {0:.1f} within a rollout (since step {step}).",
        "The policy moves too far on the same responses: they no longer tell what the new policy would earn.",
        "updates_per_rollout",
        "Take fewer updates on each rollout, or smaller ones (lr).",
        "02_the_ratio",
    ),
    Rule(
        "kl_negative",
        "warning",
        (Now("kl_to_old").at_most(-1e-4, "a KL is never negative; its estimate wavers around small numbers"),),
        "The estimate of the KL is negative, {0:.4f} nats per token (since step {step}).",
        "The tokens were not sampled from the policy whose probabilities are compared: top-p, top-k or another engine.",
        "top_p",
        "Sample from all tokens (top_p 1, top_k 0).",
        "05_kl",
    ),
    Rule(
        "leash",
        "warning",
        (
            Now("beta").at_least(0.5, "GRPO's paper has 0.04; one reward is worth as much as 1 / beta nats a token"),
            Now("kl").at_most(0.02, "what a policy that learns a task leaves behind within a few steps"),
        ),
        "The KL term has a weight of {0:g}, the policy is {1:.4f} nats per token from its start (since step {step}).",
        "The leash is so short that no reward pays for leaving the start.",
        "beta",
        "Try 0.04, or no KL term (--beta 0).",
        "05_kl",
        fewest=30,
        silences=("no_learning",),
    ),
    Rule(
        "no_gradient",
        "warning",
        (Now("grad_norm").at_most(NO_GRADIENT, "rounding"),),
        "The gradient is zero, {since}: nothing is learned.",
        "In groups whose rewards are all equal every advantage is 0. Or nothing is left that is not clipped or masked.",
        "group_size",
        "Look at a group: do its rewards differ? If not, take prompts that are right now and then, or mend the reward.",
        "04_grpo",
        fewest=5,
        silences=("no_learning", "dead_groups"),
    ),
    Rule(
        "no_learning",
        "warning",
        (
            Drift("accuracy").at_most(3, CHANCE),
            Drift("accuracy").at_least(-3, "below it, it unlearns, which is another fault"),
            UNSOLVED,
        ),
        "Accuracy differs by {0:+.1f} standard errors between the first and the last third of the run: nothing is learned.",
        "Mostly the learning rate is too small; or the rewards do not depend on what the policy does.",
        "lr",
        "Try three times the learning rate, and look at a group: do its rewards differ, and for a reason?",
        "00_start_here",
        fewest=30,
    ),
    Rule(
        "dead_groups",
        "warning",
        (
            Now("zero_variance_groups").at_least(
                0.45, "nearly half of what is sampled teaches nothing; sound runs begin below .2"
            ),
            Now("accuracy").at_most(0.7, "above it most of these groups are all right"),
        ),
        "{0:.0%} of the groups have equal rewards since step {step}, at {1:.0%} right.",
        "Such a group has advantages of 0 and teaches nothing. With a success rate p, the share is p^G + (1 − p)^G.",
        "group_size",
        "Sample more responses a prompt (8 or 16), or others in their place (--algorithm dapo).",
        "07_dapo",
    ),
    Rule(
        "end_not_asked",
        "warning",
        (
            Now("cut_off_right").at_least(0.05, "so many at least are both, whichever they are"),
            Now("truncated").at_least(0.2, "a sound policy ends nine in ten of its responses"),
        ),
        "{1:.0%} of the responses are cut off at the longest length, and {0:.0%} or more are right all the same ({since}).",
        "The reward does not ask for an end, so nothing teaches the policy to write one: it goes on as long as it may.",
        "max_new_tokens",
        "Let the reward ask for the end of a response, or punish length before the limit (--algorithm dapo).",
        "07_dapo",
        silences=("truncated",),
    ),
    Rule(
        "truncated",
        "warning",
        (
            Most("truncated").at_least(0.2, "a sound policy ends nine in ten of its responses, from the start on"),
            Now("truncated").at_least(0.0, "told, because a policy may learn to be short"),
        ),
        "Up to {0:.0%} of the responses were cut off at the longest length (first at step {step}), {1:.0%} at the end.",
        "Where the reward asks for the end, one that is cut off earns nothing, however good: the policy learns to be short.",
        "max_new_tokens",
        "Allow longer responses, or punish length before the limit (--algorithm dapo).",
        "07_dapo",
    ),
    Rule(
        "entropy_gone",
        "warning",
        (
            TimesStart("entropy").at_most(0.1, "a tenth of the choice that it began with"),
            UNSOLVED,
        ),
        "Entropy is {0:.0%} of what it was, and {1:.0%} of the responses are right (since step {step}).",
        "The policy no longer tries anything else: what it has not found by now, it will not find.",
        "lr",
        "Try a smaller learning rate, a higher upper limit (--eps-high 0.28) or a KL term.",
        "11_entropy_collapse",
    ),
    Rule(
        "noisy_samples",
        "warning",
        (
            First("entropy").at_least(1.5, "as if each token were drawn from four or five that are equally likely"),
            Now("accuracy").at_most(0.2, "and hardly one is right"),
        ),
        "The responses begin as noise, with {0:.1f} nats per token, and {1:.0%} of them are right (since step {step}).",
        "Most often the temperature is too high: what the policy knows drowns, and short answers win.",
        "temperature",
        "Sample at temperature 1.",
        "11_entropy_collapse",
        silences=("dead_groups", "no_learning"),
    ),
    Rule(
        "engines_apart",
        "warning",
        (
            Most("mismatch_outside").at_least(
                0.15,
                "a clip at 1 ± .2 would cut them; weights of 4 bits, which cost nothing, differ on .03, of 8 steps ago on .25",
            ),
            Now("mismatch_outside").at_least(0.0, "told, because it falls again as a policy settles"),
        ),
        "Sampler and trainer are a fifth apart on up to {0:.0%} of the tokens (first at step {step}), on {1:.0%} at the end.",
        "The samples are another policy's: its weights are too old or too rough, or it samples at another temperature.",
        "sampler_lag",
        "Sample with newer weights or more bits. TIS (--algorithm tis) gave back what old weights cost, not what few bits did.",
        "14_two_engines",
        silences=("mismatch_grew",),
    ),
    Rule(
        "mismatch_grew",
        "warning",
        (
            TimesStart("mismatch_kl").at_least(
                3, "with weights of 5 bits a sound run comes back to what it began with"
            ),
            Now("mismatch_kl").at_least(0.005, "weights of 5 bits begin at .001 to .003 nats, and cost nothing"),
        ),
        "The KL between sampler and trainer is {0:.1f} times what it was at first, {1:.3f} nats per token (since step {step}).",
        "The two engines drift apart as the weights change: what is sampled tells less and less about what is trained.",
        "lr",
        "Begin again with a third of the learning rate, or sample with newer weights or more bits.",
        "14_two_engines",
    ),
    Rule(
        "sampled_worse",
        "warning",
        (
            Latest("held_out_gap").at_least(
                0.15, "an evaluation wavers by .015, a median by .02, and it lags by half a window"
            ),
            TWICE,
        ),
        "Held-out accuracy is {0:.2f} above that of the training samples (since step {step}).",
        "Training samples in another way than the evaluation: most often at a temperature above 1.",
        "temperature",
        "Sample at temperature 1, where the policy's own probabilities hold.",
        "00_start_here",
        persists=1,
    ),
    Rule(
        "sampled_better",
        "warning",
        (
            Latest("sampled_gap").at_least(0.15, "an evaluation wavers by .015, a median of few responses by .05"),
            TWICE,
        ),
        "The training samples are right more often than held-out ones, by {0:.2f} (since step {step}).",
        "Either training samples at a temperature below 1 (or top-p, top-k), or its prompts are few and learned by heart.",
        "temperature",
        "Sample at temperature 1 from all tokens; with a prompt_pool, take more prompts.",
        "00_start_here",
        persists=1,
    ),
    Rule(
        "overdone",
        "warning",
        (
            LatestBelowBest("held_out_accuracy").at_least(0.1, "an evaluation of 1,000 prompts wavers by .015"),
            FromStart("margin").at_least(0.1, "the loss goes on paying"),
        ),
        "Held-out accuracy has fallen by {0:.2f} while the margin grew by {1:.2f} (since step {step}).",
        "The loss pays for telling the pairs apart, long after that says anything about the policy's own answers.",
        "lr",
        "Stop earlier, or try a third of the learning rate, or a larger beta.",
        "12_preferences_and_dpo",
        persists=1,
    ),
    Rule(
        "clipped_often",
        "warning",
        (
            Most("clipped").at_least(0.2, "eight sound updates on a rollout clip 2 to 12 % of the tokens"),
            Now("own_ratio").at_least(0.9, "the loss takes the ratios of tokens, not those of responses"),
        ),
        "The clip has cut the gradient of up to {0:.0%} of the tokens (first at step {step}).",
        "The policy runs into its limits early in each rollout: most of the later updates do little.",
        "updates_per_rollout",
        "Take fewer updates on each rollout, smaller ones (lr), or wider limits.",
        "02_the_ratio",
    ),
    Rule(
        "solved",
        "note",
        (
            Now("zero_variance_groups").at_least(0.5, "half of the groups"),
            Now("accuracy").at_least(0.7, "so most of them are all right"),
        ),
        "{0:.0%} of the groups have equal rewards since step {step}: {1:.0%} right, so most are all right.",
        "Most prompts are learned. What is left to learn comes from few groups.",
        "steps",
        "Stop here, or go on with harder prompts (--filter-solved 8).",
        "07_dapo",
        silences=("no_gradient",),
    ),
    Rule(
        "still_rising",
        "note",
        (LastQuarter("accuracy").at_least(0.05, "three times what a window's median wavers by"),),
        "Accuracy rose by {0:.2f} over the last quarter of the run: it is still learning.",
        "More steps would teach it more.",
        "steps",
        "Go on with twice as many: rlviz train --resume RUN --steps …",
        "00_start_here",
    ),
    Rule(
        "ended_early",
        "note",
        (Latest("steps_left").at_least(1, "a run that is done has done them all"),),
        "{0:.0f} of the run's steps were not made.",
        "It was stopped, is still going on, or stopped itself at a number that was not finite.",
        "steps",
        "Go on with it: rlviz train --resume RUN.",
        "00_start_here",
        fewest=1,
        persists=1,
    ),
    Rule(
        "no_evaluation",
        "note",
        (Latest("evaluations").at_most(0, "not one"),),
        "Held-out accuracy was never measured.",
        "What a policy learned by heart, or by pleasing a reward, shows on prompts that training did not use.",
        "evaluate_every",
        "Evaluate every 20 steps.",
        "00_start_here",
        persists=1,
    ),
    Rule(
        "critic_blind",
        "note",
        (Now("explained_variance").at_most(0.05, "0 is a critic that says the mean of the returns, always"),),
        "The critic explains {0:.2f} of the variance of the returns: about as much as a constant (since step {step}).",
        "The advantages are as noisy as with the mean reward for a baseline. The run can learn all the same.",
        "critic_only_steps",
        "Let the critic learn alone for the first 20 steps.",
        "03_ppo",
    ),
    Rule(
        "chosen_fell",
        "note",
        (
            Now("chosen_loss").at_least(1, "one nat: a third of the probability that the response began with"),
            FromStart("margin").at_least(0.1, "the pairs are told apart better"),
        ),
        "Chosen responses have lost {0:.1f} nats against the start, while the margin grew by {1:.2f} (since step {step}).",
        "DPO rewards the difference of the two. Where it can fall, it lets both fall and the rejected one faster.",
        "beta",
        "Try a larger beta or a smaller learning rate; watch held-out accuracy, not the margin.",
        "12_preferences_and_dpo",
    ),
    Rule(
        "pairs_spent",
        "note",
        (Now("pull").at_most(0.1, "a fifth of the pull of a pair that the policy cannot tell apart"),),
        "The loss pulls with {0:.2f} of its full strength (since step {step}): nearly all pairs are told apart.",
        "There is little left to learn from these pairs.",
        "steps",
        "Stop here, or sample new pairs from the policy as it is now.",
        "12_preferences_and_dpo",
    ),
    Rule(
        "clipped_sequences",
        "note",
        (
            Most("clipped").at_least(0.2, "the limits of a sequence ratio cut whole responses"),
            Now("own_ratio").at_most(0.9, "the loss takes a ratio a response, which spreads less than those of tokens"),
        ),
        "The clip has cut the gradient of up to {0:.0%} of the tokens (first at step {step}).",
        "With one ratio a response it cuts whole responses: tens of per cent are usual, and no sign that anything is broken.",
        "eps_high",
        "Leave it where accuracy rises; else widen both limits.",
        "09_gspo",
    ),
    Rule(
        "many_rounds",
        "note",
        (Now("rounds").at_least(3, "three rollouts are paid for each one that is learned from"),),
        "Each step samples {0:.0f} rounds to fill its batch (since step {step}).",
        "Most groups teach nothing, because the prompts are too easy or too hard by now, and others are sampled in their place.",
        "max_rounds",
        "Allow fewer rounds, or compare with --algorithm dupo, which repeats the groups that it has.",
        "08_dupo_and_agents",
    ),
    Rule(
        "length_grew",
        "note",
        (
            TimesStart("response_length").at_least(1.2, "a fifth: sound runs waver by a few per cent"),
            FromStart("accuracy").at_least(0.05, MEDIAN),
        ),
        "Responses are {0:.2f} times as long as at first, and accuracy has risen by {1:.2f} (since step {step}).",
        "Either writing more helps (reasoning steps), or the loss is kinder to long wrong responses. Samples tell which.",
        "algorithm",
        "Compare with --algorithm dr-grpo, whose mean does not favour long wrong responses.",
        "06_which_mean",
    ),
    Rule(
        "length_fell",
        "note",
        (
            TimesStart("response_length").at_most(0.85, "a seventh: sound runs waver by a few per cent"),
            InNoise("reward").at_least(2, NOISE),
        ),
        "Responses are {0:.2f} times as long as at first, while reward rises (since step {step}).",
        "Filler goes, or a punishment of length taxes reasoning too. Samples tell which.",
        "max_new_tokens",
        "Look at samples. If reasoning goes, let the punishment begin later.",
        "07_dapo",
    ),
    Rule(
        "clipped_low_side",
        "note",
        (
            Now("clipped_low_share").at_least(0.9, "nine of ten"),
            Now("clipped").at_least(0.01, "of fewer tokens a share says little"),
        ),
        "{0:.0%} of the {1:.1%} clipped tokens are cut below 1 (since step {step}).",
        "Tokens of bad responses fall faster than those of good ones rise: an early sign of falling entropy.",
        "eps_low",
        "Nothing to mend while accuracy rises; else compare with a lower eps_low.",
        "02_the_ratio",
    ),
    Rule(
        "clipped_high_side",
        "note",
        (
            Now("clipped_high_share").at_least(0.9, "nine of ten"),
            Now("clipped").at_least(0.01, "of fewer tokens a share says little"),
        ),
        "{0:.0%} of the {1:.1%} clipped tokens are cut above 1 (since step {step}).",
        "Tokens of good responses want to rise faster than the upper limit allows: rare ones most of all.",
        "eps_high",
        "Try --eps-high 0.28, or DCPO's limits (--algorithm dcpo).",
        "10_dcpo",
    ),
    Rule(
        "routing",
        "note",
        (Most("routing_flips").at_least(0.1, "one update at a sound learning rate changes 3 to 4 % of the choices"),),
        "The updates of a step have changed up to {0:.0%} of the choices of experts (first at step {step}).",
        "A token that goes to another expert moves further than the update meant, and so does its ratio.",
        "updates_per_rollout",
        "Take fewer updates on each rollout, or a sequence ratio (--algorithm gspo).",
        "09_gspo",
    ),
    Rule(
        "warming_up",
        "note",
        (Latest("lr_rise").at_least(1e-12, "at its peak it no longer rises"),),
        "The learning rate is still rising at the last step.",
        "The run was shorter than its warm-up, so its learning rate is not the one that was asked for.",
        "lr_warmup_steps",
        "Warm up over fewer steps, or make more of them.",
        "00_start_here",
        fewest=5,
        persists=1,
    ),
    Rule(
        "loss_is_kl",
        "note",
        (
            Now("loss_over_kl").at_least(0.3, "the loss's mean weighs tokens otherwise than the record's"),
            Now("loss_over_kl").at_most(3, "and so on the other side"),
        ),
        "The loss is the KL term and little else: {0:.1f} times beta · kl (since step {step}).",
        "Advantages of mean 0 add nothing to the loss's value, though they make its gradient. So it rises as the policy learns.",
        "beta",
        "Watch reward and held-out accuracy; the loss says only how far the policy has gone.",
        "05_kl",
        fewest=5,
        silences=("loss_zero",),
    ),
    Rule(
        "loss_zero",
        "note",
        (
            Most("loss_size").at_most(1e-4, "rounding; one token in a thousand with a ratio of 1.1 would show"),
            Now("grad_norm").at_least(NO_GRADIENT, "without one there would be something to mend"),
        ),
        "The loss is zero, by construction; its gradient is not, of norm {1:.2g}.",
        "With one update the ratio is 1, and the advantages of a group have mean 0.",
        "updates_per_rollout",
        "Nothing to mend. Watch reward and the norm of the gradient.",
        "04_grpo",
        fewest=5,
    ),
    Rule(
        "ratio_one",
        "note",
        (Most("ratio_std").at_most(1e-4, "sampling and training compute the same probability up to 1e-6"),),
        "Every ratio is 1, so nothing can clip.",
        "With one update per rollout nothing has moved when the ratio is taken. Limits make no difference then.",
        "updates_per_rollout",
        "Nothing to mend. To see a clip at work take 4 or more.",
        "02_the_ratio",
        fewest=5,
    ),
)
