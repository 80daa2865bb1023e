"""A number that is said twice is said alike: what pages for teachers and lessons quote is what a cell prints, or a run has."""

import csv
import math
import re
from pathlib import Path
from statistics import fmean, stdev

import nbformat
import numpy as np
import pytest
import torch

from rlviz import DCPO, GRPO, GSPO
from rlviz.pictures import explore_bias, explore_coin
from rlviz.pieces.shaping import SoftOverlongPunishment
from rlviz.study import quoted
from rlviz.study.judged_runs import CHOOSING, FILE, SEEDS, TRAINING
from small_models.tasks.sentences import WordReward, is_sentence

COURSE = Path(__file__).parent.parent / "notebooks"
PLANS = sorted((COURSE / "teaching").glob("[0-9]*.md"))


def cells(lesson):
    """Return the cells of a lesson, and of its appendix where it has one."""
    files = [file for folder in ("", "more") for file in (COURSE / folder).glob(f"[0-9]*_{lesson}.ipynb")]
    return [cell for file in files for cell in nbformat.read(file, as_version=4).cells]


def prose(lesson):
    return "\n".join(cell.source for cell in cells(lesson) if cell.cell_type == "markdown")


def printed(lesson, row, which=0):
    """Return the numbers behind a line that a cell of the lesson prints and that begins so, the first one or another."""
    streams = [out.text for cell in cells(lesson) for out in cell.get("outputs", []) if out.output_type == "stream"]
    lines = [line.strip() for text in streams for line in text.splitlines()]
    return floats([line for line in lines if line.startswith(row)][which][len(row) :])


def floats(text):
    return [float(number) for number in re.findall(r"-?\d*\.\d+|-?\d+", text.replace("−", "-"))]


def ran(lesson, run):
    with (COURSE / "experiments/further_runs.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["right"]) for row in csv.DictReader(file) if (row["lesson"], row["run"]) == (lesson, run)]


LEVEL = ("clip", "adaptive KL")  # lesson 04's limits with eight updates per rollout


def matched(contender):
    """Return the accuracies of a contender after equal numbers of responses."""
    with (COURSE / "experiments/family_matched.csv").open(encoding="utf-8", newline="") as file:
        return [float(row["held_out_accuracy"]) for row in csv.DictReader(file) if row["contender"] == contender]


def exact(rule, *names, group_size=8):
    """Return what the exact picture computes of a rule at its first settings: degrees, variance, hard_times, …"""
    return [explore_bias(rule=rule, group_size=group_size).names().one(name) for name in names]


def at_other_widths():
    """Return lesson 08's accuracies of GRPO at 3e-4 with widths that its cells do not train."""
    return [right for width in (".1", ".06", ".01", ".0003") for right in ran("gspo", f"lr 3e-4, GRPO {width}")]


def gained_by_the_filter():
    """Return by how much leaving out solved prompts raises lesson 07's accuracy: the least and the most of the seeds."""
    without, filtered = (printed("dupo_and_agents", row)[:3] for row in ("all prompts", "8 of 8 left out"))
    return extremes([one - other for one, other in zip(filtered, without, strict=True)])


def lost(lag):
    """Return the accuracy that a sampler so many steps old costs in the experiment: its mean, the least and the most."""
    (line,) = quoted("two_engines", f"accuracy lost with {lag} steps old", folder=COURSE / "experiments")
    return floats(line.partition(": ")[2].partition("old: ")[2])[:3]


def gives_back(correction):
    return printed("two_engines", f"measured: accuracy that {correction} gives back with 8 steps old:")[0]


def rft_above_grpo(task):
    """Return by how much RFT's pass@1 ends above GRPO's on a task of the experiment: the mean, the least and the most."""
    (line,) = quoted("sharpening", f"RFT above GRPO's, {task}:", folder=COURSE / "experiments")
    return floats(line.partition(f"{task}: ")[2])[:3]


def real_sums(seed=0):
    """Return of each of 100 sums how many of 16 responses were right before and after training."""
    with (COURSE / "experiments/real_model_pass.csv").open(encoding="utf-8", newline="") as file:
        return [(int(row["before"]), int(row[f"after_{seed}"])) for row in csv.DictReader(file)]


def solved(seed=0):
    """Return of the sums at 0 of 16 how many are solved after training, and of the others how many are not."""
    return [sum(old == 0 < new for old, new in real_sums(seed)), sum(new == 0 < old for old, new in real_sums(seed))]


def risen(seed):
    """Return by how much pass@16 rises, and two standard errors of that."""
    rises = [(new > 0) - (old > 0) for old, new in real_sums(seed)]
    return [fmean(rises), 2 * stdev(rises) / len(rises) ** 0.5]


def extremes(numbers):
    return [min(numbers), max(numbers)]


def spread(numbers):
    return [max(numbers) - min(numbers)]


def at_the_second_visit(rewards):
    _, memory = DCPO.advantage(torch.tensor([[1.0, 0.0, 0.0, 0.0]]).double(), None)
    return DCPO.advantage(torch.tensor([rewards]).double(), memory)[0][0].tolist()


def real_model_rows(beta, seed=0, task="happy"):
    """Return the rows of lesson 18's table of a run, step by step."""
    with (COURSE / "experiments/real_model.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["task"] == task]
    return [row for row in rows if (float(row["beta"]), int(row["seed"])) == (beta, seed)]


def named_at_equal_kl(beta):
    return extremes([printed("take_it_home", f"β = {beta}, seed {seed}")[-1] for seed in (0, 1)])


def entropy_without_gradient():
    """Return the entropy of lesson 18's first run at the first step without a gradient, and the mean of its last ten."""
    entropies = [float(row["entropy"]) for row in real_model_rows(0.0)]
    return [entropies[28], math.fsum(entropies[50:]) / 10]


ONE_LEADS = "runs in which one has .95"


def lost_nats():
    """Return the entropy that lesson 10's first table lost, and of it what an even policy of this accuracy lost, and the rest."""
    (last, even), begun = (printed("entropy_collapse", row)[-1] for row in ("entropy  ", "if even")), math.log(20)
    return [begun - last, begun - even, even - last]


def one_works(when):
    """Return pass@1 to pass@64 of lesson 10 where one of three methods works."""
    return printed("entropy_collapse", when)[-4:]


PENALISED = "KL, β = .5"


def ended_right(arm):
    """Return the accuracies at the end of an arm of lesson 12, seed by seed."""
    return printed("reward_hacking", f"{arm:18} right")[:3]


def right_at_start():
    return printed("reward_hacking", "held-out pairs ranked correctly:")[-1] / 100


def narrower():
    """Return how many times narrower GSPO's limits are than GRPO's."""
    return sorted(getattr(GRPO.bounds, side) / getattr(GSPO.bounds, side) for side in ("eps_low", "eps_high"))


def leave_one_out_variance(low, right):
    """Return what lesson 01 prints of rewards `low` and 1 more: the variance, 1 = that of no baseline."""
    return printed("policy_gradients", f"rewards {low} and {low + 1}, right {right}: ")[-1]


def chosen_alone():
    """Return what lesson 00's accuracy would be, had only the share of answers with sums changed."""
    _, right, guessed = printed("start_here", "before: running sums in")
    later = printed("start_here", "after: running sums in")[0]
    return [later * right + (1 - later) * guessed]


def judged(pairs, features="words", beta=0.0, way=TRAINING):
    """Return the committed looks of a setting's runs, a list for each seed: (√KL, true reward), in the order of steps or n."""
    with FILE.open(encoding="utf-8", newline="") as file:
        rows = [r for r in csv.DictReader(file) if (r["way"], r["features"], r["pairs"]) == (way, features, str(pairs))]
    rows = [row for row in rows if float(row["beta"]) == beta]
    return [[(float(r["kl"]) ** 0.5, float(r["true"])) for r in rows if r["seed"] == str(seed)] for seed in SEEDS]


def mean_true(*setting, **others):
    """Return the judge's mean reward over seeds at each look."""
    return [fmean(true for _, true in looks) for looks in zip(*judged(*setting, **others), strict=True)]


def gained_at_equal_kl(pairs, features):
    """Return by how much β = .2 ends above β = 0 at the same √KL, read on the line between its looks: mean, 2 standard errors."""
    gains = []
    for free, held in zip(judged(pairs, features), judged(pairs, features, 0.2), strict=True):
        distance, true = held[-1]
        gains.append(true - np.interp(distance, *zip(*sorted(free), strict=True)))
    return [fmean(gains), 2 * stdev(gains) / len(gains) ** 0.5]


def risen_at_20(pairs, features):
    """Return by how much the judge likes step 20 more than the start, without a KL term: mean, 2 standard errors."""
    gains = [looks[2][1] - looks[0][1] for looks in judged(pairs, features)]
    return [fmean(gains), 2 * stdev(gains) / len(gains) ** 0.5]


def punished(**scale):
    """Return the reward of a right answer of 15 tokens under DAPO's soft punishment."""
    punish = SoftOverlongPunishment(max_length=16, cache=4, **scale)
    return punish(torch.tensor([[1.0]]), torch.tensor([[15]])).flatten().tolist()


def entropy_rises(policy, rewards):
    """Return how the entropy changes per unit of the learning rate along the gradient of the mean reward: their product."""
    logits = torch.tensor(policy).log().requires_grad_()
    p = logits.softmax(0)
    totals = ((p * torch.tensor(rewards)).sum(), torch.special.entr(p).sum())
    reward, entropy = (torch.autograd.grad(total, logits, retain_graph=True)[0] for total in totals)
    return [(reward @ entropy).item()]


def judge_says(which):
    """Return what lesson 14's judge gives the start (0), GRPO (1) or DPO (2): the least and the most of the seeds."""
    return extremes([printed("preferences_and_dpo", "start", 1 + seed)[which] for seed in range(3)])


def dead(p, group):
    """Return the share of groups whose responses are all right or all wrong."""
    return p**group + (1 - p) ** group


QUOTED = [  # a page, or a lesson; the words, # for a number; the numbers
    ("dcpo", "an all-wrong group gets # each", lambda: at_the_second_visit([0.0] * 4)[:1]),
    ("teaching/07_dupo_and_agents.md", "the tool's digit, # to # nats",
     lambda: [printed("dupo_and_agents", f"log π at step {n:2}", 1)[0] for n in (1, 15)]),
    ("dupo_and_agents", "# % of the prompts are such", lambda: printed("dupo_and_agents", "after 20 steps:")[:1]),
    ("dupo_and_agents", "only # % are solved so again", lambda: printed("dupo_and_agents", "after 20 steps:")[1:]),
    ("dupo_and_agents", "without them end # to # higher", gained_by_the_filter),
    ("teaching/08_gspo.md", "a width of 0.03 ends at # to #,", lambda: extremes(printed("gspo", "GSPO 0.03")[3:6])),
    ("teaching/08_gspo.md", "GRPO with 0.2 at # to #", lambda: extremes(printed("gspo", "GRPO 0.2")[3:6])),
    ("ppo", "clip reaches #, the penalty #, no limit # (",
     lambda: [fmean(ran("ppo", f"8 updates, {limit}")) for limit in ("clip", "adaptive KL", "no limit")]),
    ("ppo", "their seeds differ by up to #.", lambda: [max(spread(ran("ppo", f"8 updates, {limit}"))[0] for limit in LEVEL)]),
    ("ppo", "PPO ends at # to # and GRPO at # to #, five", lambda: extremes(matched("PPO")) + extremes(matched("GRPO"))),
    ("ppo", "mean is # higher, for # times",
     lambda: [fmean(matched("PPO")) - fmean(matched("GRPO")), printed("ppo", "PPO, separate critic")[-1]]),
    ("grpo", "turns it, by #° here. The hard prompt's push grows #-fold, the easy one's #-fold.",
     lambda: exact("group mean / std", "degrees", "second_times", "first_times")),
    ("grpo", "the variance is # times that of no", lambda: exact("leave-one-out", "variance", group_size=2)),
    ("grpo", "size G` 8 it is # times.", lambda: exact("leave-one-out", "variance")),
    ("grpo", "**We see:** # against #, means", lambda: [printed("grpo", arm)[4] for arm in ("steps ", "outcome ")]),
    ("grpo", "accuracy of # to # instead of # to #.",
     lambda: [x for arm in ("4 updates ", "1 update  ") for x in extremes(printed("grpo", arm)[1:4])]),
    ("grpo", "learning rate gives # to #:", lambda: extremes(printed("grpo", "1 update, lr × 2")[1:4])),
    ("which_mean", "factor # for G = 2, # for 4, # for 8, and # in",
     lambda: [*(printed("which_mean", f"group mean / std G =  {G}")[-1] for G in (2, 4, 8)), math.sqrt(0.25 / 0.09)]),
    ("which_mean", "Yes: #° away.", lambda: exact("mean of each response", "degrees")),
    ("which_mean", "is off by #°, \"Dr.GRPO\" with its constant divisor by #°.",
     lambda: exact("mean of all tokens", "degrees") + exact("Dr.GRPO", "degrees")),
    ("gspo", "narrower ones GRPO ends at # to #, whether", lambda: extremes(at_other_widths())),
    ("gspo", "There GRPO ends at # to # with six widths",
     lambda: extremes(at_other_widths() + [x for width in ("0.2", "0.03") for x in printed("gspo", f"GRPO {width}")[3:6]])),
    ("gspo", "it reaches # to #. (With", lambda: extremes(ran("gspo", "lr 1e-4, GRPO .2"))),
    ("gspo", "8 updates change # to # % of the choices",
     lambda: extremes(printed("gspo", "choices that 8 updates change, %, by seed"))),
    ("gspo", "Flipped tokens move # to # times as far", lambda: extremes(printed("gspo", "|log r|, by seed")[-3:])),
    ("gspo", "as others, their s # to # times", lambda: extremes(printed("gspo", "|log s|, by seed")[-3:])),
    ("gspo", "gradient is #° off the true one", lambda: printed("gspo", "GSPO, limits ± 0.02")[1:2]),
    ("gspo", '`rule` to "GRPO": #°.', lambda: printed("gspo", "GRPO, limits ± 0.2")[1:2]),
    ("gspo", "without it GSPO is #° off and GRPO #°, as",
     lambda: [printed("gspo", f"{name}, no clip")[1] for name in ("GSPO", "GRPO")]),
    ("gspo", "limits GRPO would be #° off", lambda: printed("gspo", "GRPO, limits ± 0.02")[1:2]),
    ("teaching/09_dcpo.md", "DCPO's seed 1 ends at # of", lambda: printed("dcpo", "DCPO  ")[-2:-1]),
    ("teaching/09_dcpo.md", "reach from # to #,", lambda: extremes(printed("dcpo", "GRPO  ")[-3:] + ran("dcpo", "GRPO"))),
    ("dcpo", "DCPO has #, DAPO #, and GSPO # or # (widths",
     lambda: [fmean(printed("dcpo", "DCPO  ")[-3:] + ran("dcpo", "DCPO")),
              *(fmean(ran("dcpo", run)) for run in ("DAPO", "GSPO .0003", "GSPO .03"))]),
    ("dcpo", "GSPO clips # to # % here", lambda: [printed("dcpo", f"GSPO .{width}")[-1] for width in ("03", "0003")]),
    ("teaching/14_preferences_and_dpo.md", "rejected responses at # nats",
     lambda: printed("preferences_and_dpo", "rejected_gain      β = 0.1")[:1]),
    ("teaching/14_preferences_and_dpo.md", "and at # with 1",
     lambda: [sum(printed("preferences_and_dpo", "rejected_gain      β = 1 ")) / 3]),
    ("teaching/14_preferences_and_dpo.md", "one seed of three falls to #.",
     lambda: printed("preferences_and_dpo", "seed 2: accuracy after 50, 100, …")[5:6]),
    ("teaching/12_reward_hacking.md", "(# at step 10,", lambda: printed("reward_hacking", f"{PENALISED}     step 10")[-1:]),
    ("teaching/12_reward_hacking.md", "at step 10, # at the end)",
     lambda: [fmean(ended_right(PENALISED))]),
    ("preferences_and_dpo", "DPO writes (# to #) than the start (# to #).", lambda: judge_says(2) + judge_says(0)),
    ("preferences_and_dpo", "GRPO loses, too: # to #.", lambda: judge_says(1)),
    ("preferences_and_dpo", "liking, # to # at the start, is # to # after DPO and # to # after GRPO",
     lambda: judge_says(0) + judge_says(2) + judge_says(1)),
    ("preferences_and_dpo", "accuracy # to # in three seeds, against # to # with σ.",
     lambda: [x for arm in ("linear", "β = 0.1")
              for x in extremes(printed("preferences_and_dpo", f"held_out_accuracy  {arm:8}"))]),
    *(
        ("entropy_collapse", words, numbers)
        for words, numbers in (
            ("its entropy *rises* from # to #, and", lambda: printed("entropy_collapse", "entropy  ", 2)[:2]),
            ("it falls to #, and language", lambda: [fmean(printed("entropy_collapse", "entropy  ", 3)[1:])]),
            ("of 16 responses # differ", lambda: printed("entropy_collapse", "different of 16", 1)[1:2]),
            ("After 100 steps accuracy is #.", lambda: printed("entropy_collapse", "accuracy")[-1:]),
            ("fell from # to #, and", lambda: printed("entropy_collapse", "among the good")[::5]),
            ("in # % of the runs one of the three", lambda: [100 * printed("entropy_collapse", ONE_LEADS)[-1]]),
            ("Of the # nats that were lost, # are", lambda: lost_nats()[:2]),
            ("accuracy has an entropy of #.", lambda: printed("entropy_collapse", "if even")[-1:]),
            ("The other # are **lost diversity**", lambda: lost_nats()[2:]),
            ("as much diversity is left (# against #)",
             lambda: [printed("entropy_collapse", "among the good", which)[at] for which, at in ((1, -1), (0, -2))]),
            ("at accuracy # more than twice", lambda: [printed("entropy_collapse", "accuracy", 1)[-1]]),
            ("at accuracy # more than twice", lambda: [printed("entropy_collapse", "accuracy")[-2]]),
            ("rewards 1, 0, 0 changes it by +# η", lambda: entropy_rises((0.46, 0.49, 0.05), (1.0, 0.0, 0.0))),
            ("has over .95 in # % of the runs, not # %.",
             lambda: [100 * printed("entropy_collapse", ONE_LEADS, which)[at] for which, at in ((1, -1), (0, -2))]),
            ("raises pass@1 from # to #.", lambda: [one_works(when)[0] for when in ("before training", "after  ")]),
            ("*falls* from # (blind guessing) to #;", lambda: [one_works(when)[-1] for when in ("before training", "after  ")]),
            ("policy would have #: methods", lambda: one_works("after, if even")[-1:]),
            ("the same, with an error of #, also", lambda: [printed("entropy_collapse", "3 good of 20", 3)[2]]),
            ("at accuracy .9 one group of 8 has # nats left, 16 groups of 16 have #. With",
             lambda: [printed("entropy_collapse", row, i)[-1] for row, i in (("3 good of 20", 3), ("with 16 groups", 0))]),
        )
    ),
    ("teaching/10_entropy_collapse.md", "over the three good actions would have # nats",
     lambda: printed("entropy_collapse", "if even")[-1:]),
    ("teaching/10_entropy_collapse.md", "this one has #, as", lambda: printed("entropy_collapse", "entropy  ")[-1:]),
    ("teaching/10_entropy_collapse.md", "as in # % of the runs", lambda: [100 * printed("entropy_collapse", ONE_LEADS)[-1]]),
    *(
        (page, f"on `{task}` # (# to #", lambda task=task: rft_above_grpo(task))
        for page in ("what_did_it_learn", "teaching/16_what_did_it_learn.md")
        for task in ("sort", "chain", "trip")
    ),
    ("what_did_it_learn", "of 16 before, # and # of 100 have after",
     lambda: [sum(new == 16 > old for old, new in real_sums(seed)) for seed in (0, 1)]),
    ("what_did_it_learn", "at 0, # and # in place of #,",
     lambda: [*(sum(new == 0 for _, new in real_sums(seed)) for seed in (0, 1)), sum(old == 0 for old, _ in real_sums())]),
    ("what_did_it_learn", "pass@16 rises by # and # (± #:", lambda: [risen(0)[0], *risen(1)]),
    ("what_did_it_learn", "16, # are solved now (# with the other seed), and # others", lambda: [solved()[0], *solved(1)]),
    ("what_did_it_learn", "at # to # against # to # ([runs]",
     lambda: [x for arm in ("RFT", "GRPO") for x in extremes(ran("what_did_it_learn", f"sort, 240 steps, {arm}"))]),
    ("teaching/12_reward_hacking.md", "(# at step 10 without it)",
     lambda: printed("reward_hacking", "a judge        step 10")[-1:]),
    ("teaching/12_reward_hacking.md", "ranks # % of the pairs", lambda: printed("reward_hacking", "votes of 1 rank")[:1]),
    ("teaching/12_reward_hacking.md", "and leaves # right, not #.",
     lambda: [fmean(ended_right(arm)) for arm in ("votes of 1", "a judge")]),
    ("reward_hacking", "after ten steps without any penalty: #.",
     lambda: printed("reward_hacking", "a judge        step 10")[-1:]),
    ("reward_hacking", "accuracy falls from # at step 10 to # at the end.",
     lambda: [printed("reward_hacking", f"{PENALISED}     step 10")[-1], fmean(ended_right(PENALISED))]),
    ("reward_hacking", "more than before (#).", lambda: [right_at_start()]),
    ("reward_hacking", "the policy ends at #, near the rule's #:",
     lambda: [fmean(ended_right(arm)) for arm in ("votes of 16", "the rule")]),
    ("reward_hacking", "ranks only # % of the pairs", lambda: printed("reward_hacking", "votes of 1 rank")[:1]),
    ("reward_hacking", "the policy still ends at #.", lambda: [fmean(ended_right("votes of 1"))]),
    ("reward_hacking", "end at # right with the renewed reward model, # with the old one, # without",
     lambda: [fmean(ran("reward_hacking", f"two rounds, {how}"))
              for how in ("renewed", "old reward model", "renewed, none replayed")]),
    ("write_the_judge", "and `any answer` leaves #, # and # right",
     lambda: printed("write_the_judge", "any answer  judge", 1)[3:6]),
    ("write_the_judge", "with 30 pairs from # to #.", lambda: [max(t := mean_true(30)), t[-1]]),
    ("write_the_judge", "from #, by # ± # (with", lambda: [mean_true(30)[0], *risen_at_20(30, "words")]),
    ("write_the_judge", "groups of words counted, # ± #)", lambda: risen_at_20(30, "words and groups")),
    ("write_the_judge", "best of 256 has # (# to # by seed)",
     lambda: [fmean(best := [looks[-1][1] for looks in judged(10, way=CHOOSING)]), *extremes(best)]),
    ("write_the_judge", "β = 0 by # ± # with 30 pairs", lambda: gained_at_equal_kl(30, "words")),
    ("write_the_judge", "by +# ± # with 100 pairs", lambda: gained_at_equal_kl(100, "words and groups")),
    ("kl", "Without it # to # of the responses are", lambda: extremes(printed("kl", "words, β = 0 ")[3:6])),
    ("kl", "β = .2 it is # to #, at", lambda: extremes(printed("kl", "words, β = 0.2 ")[3:6])),
    ("kl", "reward of # in place of #.",
     lambda: [sum(printed("kl", f"words, β = {beta} ")[:3]) / 3 for beta in ("0.2", "0")]),
    ("take_it_home", "from # to # nats: AdamW", entropy_without_gradient),
    ("take_it_home", "KL of .4, # to # % name their subject", lambda: named_at_equal_kl(0.0)),
    ("take_it_home", "and # to # % with it (two seeds", lambda: named_at_equal_kl(0.2)),
    ("take_it_home", "its reward is # to #.",
     lambda: extremes([printed("take_it_home", f"β = 0.2, seed {seed}")[1] for seed in (0, 1)])),
    ("take_it_home", "60 steps took # to # minutes",
     lambda: extremes([sum(float(row["seconds"]) for row in real_model_rows(beta)) / 60 for beta in (0.0, 0.2)])),
    ("symptoms.md", "far more: # to # % in lesson 08", lambda: extremes(printed("gspo", "GSPO paper's")[:3])),
    ("two_engines", "nearly all (# and # of #, five",
     lambda: [gives_back("ratio to sampler, clip .2"), gives_back("decoupled PPO"), lost(8)[0]]),
    ("two_engines", "the clip ends at # to #, decoupled PPO at # to # ([three",
     lambda: [x for rule in ("clip to the sampler", "decoupled PPO")
              for x in extremes(ran("two_engines", f"4 steps old, 4 minibatches, {rule}"))]),
    ("teaching/15_two_engines.md", "a lag of 2 steps costs # in", lambda: lost(2)[:1]),
    ("teaching/15_two_engines.md", "of 4 steps #. With", lambda: lost(4)[:1]),
    ("teaching/15_two_engines.md", "lose between # and #:", lambda: lost(8)[1:]),
    ("teaching/17_the_family.md", "five seeds in section 3 spread over #,", lambda: spread(printed("the_family", "GRPO  "))),
    ("teaching/17_the_family.md", "in `experiments/further_runs.csv` over #:", lambda: spread(ran("the_family", "GRPO"))),
    ("the_family", "GRPO's limits ends at # to #, and", lambda: extremes(ran("the_family", "CISPO, limits .8 and 1.2"))),
    ("the_family", "and GRPO at # to # ([runs]", lambda: extremes(ran("the_family", "GRPO"))),
    ("the_family", "the policy ends at # to #:", lambda: extremes(ran("the_family", "no gradient beyond the limits"))),
    ("the_family", "upper limit of 2 CISPO ends at # to #.", lambda: extremes(ran("the_family", "CISPO, upper limit 2"))),
    ("teaching/slides/2.md", "# to # times narrower", narrower),
    ("teaching/slides/2.md", "08 it clips # to # %", lambda: extremes(printed("gspo", "GSPO paper's")[:3])),
    ("teaching/slides/3.md", "$dH = +#", lambda: entropy_rises((0.46, 0.49, 0.05), (1.0, 0.0, 0.0))),
    ("policy_gradients", "the variance is # times that of no baseline; with 0 and 1, # to # times",
     lambda: [leave_one_out_variance(*state) for state in ((1, 0.5), (0, 0.1), (0, 0.8))]),
    ("policy_gradients", "the quietest of the three: # times the variance of no baseline, where leave-one-out has #",
     lambda: [floats(explore_bias(rule=rule).caption)[-1] for rule in ("batch mean", "leave-one-out")]),
    ("policy_gradients", "first picture's coin, # times", lambda: floats(explore_coin().caption)[:1]),
    ("start_here", "and its gradient has norm #.", lambda: printed("start_here", "loss ")[1:]),
    ("start_here", "were right # of the time, others #.", lambda: printed("start_here", "before: running sums in")[1:]),
    ("the_ratio", "accuracy # and # (16 updates",
     lambda: [printed("the_ratio", f"16 updates  {arm}")[0] for arm in ("with the minimum", "no clip")]),
    ("the_ratio", "leave the interval: # % of the tokens", lambda: printed("the_ratio", "16 updates  with the minimum")[-1:]),
    ("start_here", "would make # right", chosen_alone),
    ("start_here", "are right # of the time afterwards", lambda: printed("start_here", "after: running sums in")[1:2]),
    ("keeping_entropy", "has no limits, leaves # nats; no limits alone leave #.",
     lambda: [printed("keeping_entropy", row)[0] for row in ("KL-Cov", "no limits")]),
    ("keeping_entropy", "it left # nats more",
     lambda: [printed("keeping_entropy", "upper limit 2 ")[0] - printed("keeping_entropy", "upper limit 1.2")[0]]),
    ("keeping_entropy", "of .6, .3, .1, top-p 0.9 samples #, #, 0.", lambda: [0.6 / 0.9, 0.3 / 0.9]),
    ("keeping_entropy", "the weight w = # of what was sampled", lambda: [0.9]),
    ("dapo", "+4.4 points, from # to #.", lambda: [printed("dapo", row)[-2] for row in ("token mean", "dynamic sampling")]),
    ("dapo", "its lead is small:** # against #.", lambda: printed("dapo", "after 1,920 responses:")[::-1]),
    ("dapo", "15 tokens has 1 − ½ · ¾ = #", lambda: punished(factor=0.5, floor=-0.5)),
    ("dapo", "15 tokens has 1 − ½ · ¾ = #", lambda: [(punished()[0] + 1) / 2]),
    *(("symptoms.md", f"# % at p = {p}", lambda p=p: [100 * dead(float(p), 8)]) for p in (".5", ".1", ".01")),
    ("symptoms.md", "times less than the reference is #", lambda: [math.exp(4) - 1 - 4]),
    ("symptoms.md", "it likes e⁴ times more #", lambda: [math.exp(-4) - 1 + 4]),
    *(
        (f"teaching/{sheet}.md", words, numbers)
        for sheet in ("cheatsheet", "cheatsheet.zh")
        for words, numbers in (
            ("$r > #$", lambda: [DCPO.surrogate.c]),
            (r"\varepsilon_{\text{high}}/q},\ #\big)$", lambda: [DCPO.bounds.max_ratio]),
        )
    ),
]  # fmt: skip


def differs(text, words, numbers):
    """Return what the text says there otherwise: its numbers, rounded as it has them, are these."""
    quotes = re.findall(re.escape(words).replace(r"\#", "#").replace("#", r"([−-]?\d*\.?\d+)"), text)
    if len(quotes) != 1:
        return f"{words!r} stands {len(quotes)} times"
    quoted_numbers = list(quotes[0]) if isinstance(quotes[0], tuple) else quotes
    far = [
        f"{words!r} has {number}, not {due:.4g}"
        for number, due in zip(quoted_numbers, numbers, strict=True)
        if abs(floats(number)[0] - due) > 0.5 * 10 ** -len(number.partition(".")[2]) + 1e-9
    ]
    return ", ".join(far)


@pytest.mark.parametrize(("page", "words", "numbers"), QUOTED, ids=[f"{page} {words}" for page, words, _ in QUOTED])
def test_what_is_quoted_was_measured(page, words, numbers):
    text = (COURSE / page).read_text(encoding="utf-8") if page.endswith(".md") else prose(page)
    assert differs(text, words, numbers()) == ""


def test_the_hacked_sentence_of_lesson_12_is_one_that_lesson_11_prints():
    (subject, words) = re.search(r"\*(the warm farmer)( [a-z ]+)\.\*", prose("reward_hacking")).groups()
    assert any(subject + words in out.get("text", "") for cell in cells("kl") for out in cell.get("outputs", []))
    assert WordReward()(words) == {"liked": 1} and not is_sentence(words)


def test_what_is_quoted_otherwise_is_found():
    assert differs("it ends at .85 to .89, so", "ends at # to #,", [0.854, 0.886]) == ""
    assert "has .89, not 0.896" in differs("it ends at .85 to .89, so", "ends at # to #,", [0.854, 0.896])
    assert "has −2.3, not 2.3" in differs("to −2.3 nats", "to # nats", [2.3])
    assert "stands 0 times" in differs("it ends", "ends at #", [0.5])


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
def test_a_plan_gives_a_cell_the_seconds_that_the_lesson_gives_it(plan):
    text = plan.read_text(encoding="utf-8")
    seconds = set(re.findall(r"\((\d+) s\)", text))
    for run in re.findall(r"((?:\d+(?:, | and | to ))*\d+) seconds", text):
        seconds |= set(re.findall(r"\d+", run))
    code = [cell.source for cell in cells(plan.stem[3:]) if cell.cell_type == "code"]
    assert seconds <= {number for source in code for number in re.findall(r"^# (\d+) seconds?", source, re.M)}


def test_lesson_18_says_of_its_runs_what_the_table_has():
    """No gradient from step 29 on; no answer names its subject at the end; right of unseen sums: 1 in 5, then 3 in 4."""
    assert [row["step"] for row in real_model_rows(0.0) if float(row["grad_norm"]) == 0] == [
        str(step) for step in range(29, 61)
    ]
    for seed in (0, 1):
        begun, ended = printed("take_it_home", f"β = 0.0, seed {seed}")[2:4]
        assert abs(begun - 200 / 3) < 5 and ended == 0
        assert abs(printed("take_it_home", f"after_{seed}")[1] - 0.75) < 0.05
    assert abs(printed("take_it_home", "before")[1] - 0.2) < 0.02


def test_where_the_weight_is_needed():
    """Lesson 15: of four arms the lag is repaired where bad responses are weighted, and good ones alone lose everything."""
    weighted, bad, good, none = (
        ran("two_engines", f"8 steps old{arm}")
        for arm in (", weighted", ", weighted where A < 0", ", weighted where A > 0", "")
    )
    assert min(weighted + bad) > max(none) + 0.2
    assert max(good) < 0.01 < min(none)
    for sign, runs in (("<", bad), (">", good)):
        row = f"8 steps old, w on A {sign} 0  right at the end, by seed:"
        assert printed("two_engines", row) == [round(right, 2) for right in runs[:2]]
    assert min(ran("two_engines", "8 steps old, weighted where A < 0, cap 1")) > max(none) + 0.15
    assert max(ran("two_engines", "8 steps old, weighted where A > 0, cap 1")) < 0.01
