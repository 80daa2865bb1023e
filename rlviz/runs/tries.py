"""Experiments of a minute in the playground: what to set, what to ask oneself, and what one should see then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rlviz.algorithms import GRPO
from small_models.tasks.sentences import ANIMALS, SAD


@dataclass(frozen=True)
class Try:
    """An experiment of a minute: what to set, what to ask oneself, and what one should see then."""

    title: str
    question: str
    see: str
    values: dict[str, Any]
    below: str = "entropy"  # the curve below


TRIES = (
    Try(
        "feel ε: .02 beside .2",
        "Both runs use the same answers for eight updates; the blue one's clip stops a token ten times as early. Which "
        "learns faster?",
        "The one with ε = .2. Of new prompts it answers 70 % right after 5 steps and 73 % after 10, the one with .02 47 % "
        "and 57 %: its clip cuts one token in six, the other's one in thirty. Move ε while they train.",
        {"updates_per_rollout": 8, "beta": 0, "eps_low": 0.02, "eps_high": 0.02, "beside": GRPO.name},
        below="clipped",
    ),
    Try(
        "dead groups at G = 2",
        "Two answers to each prompt: how often is there nothing to compare?",
        "In about half of the groups both answers are equally right, so that no token is pushed; with eight answers "
        "it is one group in forty at first. The model still learns, a little later, because there are four times as "
        "many prompts.",
        {"group_size": 2},
    ),
    Try(
        "a learning rate that breaks it",
        "Ten times the learning rate: ten times as fast?",
        "For a few steps, yes. Then the answers lose their form, no answer is right, no group has anything to "
        "compare, and the model does not come back: right answers fall to those of a guess, one in ten.",
        {"lr": 0.003},
    ),
    Try(
        "eight updates from the same answers",
        "Sampling is expensive. What is it worth to use the same answers eight times?",
        "After 5 steps it is where one update is after 10, and it passes 80 % after 20 to 30 steps rather than 35 to "
        "40. From the second update on the ratio has left 1 and the clip cuts some tokens, 2 or 3 in 100; look at them "
        "in box 3. Sixteen updates are worse than eight: about 80 % after 60 steps, rather than 87 %.",
        {"updates_per_rollout": 8},
    ),
    Try(
        "raise the upper limit",
        "DAPO raises ε high so that rare tokens may grow. Does the entropy fall more slowly? After 40 steps put ε "
        "high back to .2 and press ⟲ Again: the first run stays as a grey line.",
        "No: after 60 steps both have about .07 nats left, in each of three seeds, and the right answers do not "
        "differ by more than the seeds do. On a task this small the clip cuts few tokens above, so its upper limit "
        "matters little.",
        {"updates_per_rollout": 8, "beta": 0, "eps_high": 0.6},
    ),
    Try(
        "a rare good path: GRPO and DCPO",
        "This policy hardly ever writes the running sums that lead to the right answer. Which of the two finds them?",
        "Both do, and within 100 steps both are right nine times in ten or more. At step 20 DCPO is ahead, in each of "
        "three seeds, and from step 40 on they are level. Neither clip cuts even one token in 100.",
        {"task": "chain-rare", "algorithm": "DCPO", "beside": "GRPO", "updates_per_rollout": 4},
    ),
    Try(
        "GSPO with GRPO's width",
        "GSPO's limits are hundreds of times narrower than GRPO's. What if they were as wide?",
        "With its own width two thirds of the tokens are cut at first, and it learns all the same; with .2 one in a "
        "hundred is, and the "
        "right answers are no fewer. One ratio for a whole response is near 1, so .2 is for it as if there were no "
        "clip.",
        {"algorithm": "GSPO", "eps_low": 0.2, "eps_high": 0.2, "updates_per_rollout": 4},
    ),
    Try(
        "a short leash",
        "β = .5: each step away from the first model costs. What is left of the learning?",
        "Two thirds of the answers are right after 60 steps, rather than 85 %; the KL stays at .06 and the entropy "
        "at .3 nats, twice as high. The leash keeps the model what it was, in what is good and in what is bad.",
        {"beta": 0.5},
    ),
    Try(
        "a reward with a mistake",
        "Someone wrote the check wrongly: an answer whose digit after # is 7 is paid, whatever the sum. What will "
        "the model do?",
        "It learns to add at first. After 40 to 60 steps it finds that #7 always pays: the reward goes to almost 1, "
        "and of new prompts one answer in ten is right, as many as have 7 for their sum. The curve of the reward "
        "alone would look like success.",
        {"reward": "mistake"},
        below="reward",
    ),
)

SENTENCE_TRIES = (
    Try(
        "happy words, no KL: what will it write?",
        "Happy words are paid, up to three, and nothing else is. What will its sentences look like after 60 steps?",
        "Rows of happy words, such as “was warm happy little tired happy brave kind kind broken happy bright”. The reward"
        " is .2 at step 20, .6 at step 40 and 1.00 at step 60, and from about step 35 on the sentences break: at the end "
        "not one of 128 is a sentence, in each of three seeds. They are all different, so that a count of different "
        "answers does not notice.",
        {"beta": 0},
        below="",
    ),
    Try(
        "the same with KL .2",
        "Leaving the language it began with now costs something, β = .2. What is left of the English?",
        "“was happy but lonely and was tired but brave .” After 60 steps the reward is about .65, rather than 1.00, "
        "and 93 to 95 % stay sentences. The KL stays at .4 nats a word, rather than the 6 or 7 that it reaches without the term "
        "(three seeds).",
        {"beta": 0.2},
        below="kl",
    ),
    Try(
        "only if still a sentence: which hole is left?",
        "What is no sentence gets nothing, so it has to stay English. How will it collect three happy words?",
        "“was brave and warm and was brave but lovely .” It says of everybody what they were like, twice over: four "
        "sentences in five have no other verb than was, rather than one in six. The reward reaches .8, 95 % are "
        "sentences, and all are different.",
        {"beta": 0, "only_sentences": True},
        below="",
    ),
    Try(
        "a happy word and no sad one",
        "One happy word is enough, a sad one costs as much. Most stay English; how many are still different?",
        "Reward two thirds, 88 to 97 % sentences. Of 100 sentences 82 to 98 are still different, by the seed (90 at "
        "first, as short ones come twice): many now say “was kind .” and stop. Press Train to go on and watch the grey "
        "line.",
        {"beta": 0, "punished": list(SAD), "enough": 1},
        below="entropy",
    ),
    Try(
        "name an animal",
        "An animal anywhere in the sentence is paid. Will the sentence survive?",
        "It depends on the seed: “painted a cat painted a horse and hopped slowly .” in one of three, where 7 % stay "
        "sentences, and 72 % in the two others. One animal is enough, so it has less to gain from breaking the grammar; "
        "the reward is .9 in all.",
        {"beta": 0, "liked": list(ANIMALS), "enough": 1},
        below="",
    ),
    Try(
        "eight updates, ε .02 beside .2",
        "Both use the same sentences for eight updates; the first one's clip stops a word ten times as early. Which is "
        "paid more after 20 steps?",
        "The one with ε = .2: after 20 steps its reward is .99 or more, the other’s .36 to .39. It has also left the "
        "language sooner: 17 to 43 % of its sentences are left, the other’s 83 to 98 %. The small ε cuts one word in "
        "five, the other one in a hundred. A clip slows what the reward asks for, good or bad.",
        {"beta": 0, "updates_per_rollout": 8, "eps_low": 0.02, "eps_high": 0.02, "beside": GRPO.name},
        below="clipped",
    ),
    Try(
        "dead groups at G = 2",
        "Two sentences to each subject: how often is there nothing to compare?",
        "In 59 to 72 of 100 groups both sentences are paid the same at the first step, so no word of them is pushed; with"
        " eight sentences in a group it is a quarter at most. It learns all the same, a little later: the reward is .9 or"
        " more after 60 steps.",
        {"beta": 0, "group_size": 2},
        below="dead",
    ),
)
