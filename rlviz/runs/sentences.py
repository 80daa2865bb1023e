"""What the playground shows of sentences: the words that can be rewarded, a graph, and a walk of three minutes.

`story_payload` is what playground.js takes beside the controls; `reward_controls` are those of the reward.
"""

from __future__ import annotations

from typing import Any

from rlviz.page.picture import Axis, Line, Panel, Rule
from small_models.tasks.sentences import CLASSES, GROUPS, LONGEST, SHORT, WORDS, WordReward

SUBJECT = "the little bear"  # of the diary
EVERY = 10  # steps between two lines of it
RESTS_AT = 60  # steps after which it waits for its visitor
PACE = "4 a second"
FIRST = "It writes sentences, eight to each subject. You say which words are rewarded."
CHIPS = {**GROUPS, "small words": tuple(word for letter in "tupwycb" for word in CLASSES[letter])}
CALL = (
    "from rlviz import TrainSettings, train",
    "from rlviz.algorithms import {python}",
    "from small_models.tasks import Sentences, WordReward",
    "",
    "settings = TrainSettings(num_prompts={num_prompts}, group_size={group_size}, lr={lr}, "
    "updates_per_rollout={updates_per_rollout}, seed={seed})",
    'for record in train("sentences", Sentences(WordReward({words})), {python}{numbers}, settings):',
    "    print(record.step, record.reward, record.entropy)",
)
GUIDE = (
    {
        "title": "One group",
        "text": "Eight sentences about one subject, and their rewards. Better than the group: pushed up, blue; worse: orange.",
        "of": ".story-group",
    },
    {
        "title": "A dead group",
        "text": "Where all rewards are equal there is nothing to compare, so no word is pushed. It waits here; ▶ Train goes on.",
        "of": ".story-group",
        "does": "dead group",
    },
    {
        "title": "Set a reward",
        "text": "Press a word to reward or punish it, or choose words here. Training begins anew with your reward.",
        "of": ".story-chips",
    },
    {
        "title": "Read what it became",
        "text": "▶ Train: the same subject every ten steps, same random numbers. Wavy lines: no sentence any more.",
        "of": ".story-diary",
    },
    {
        "title": "Move the KL",
        "text": "The KL term makes it costly to leave the language that it began with. Try 0.2, and compare.",
        "values": {"beta": 0.2},
        "of": '.play-control:has([aria-label="KL β"])',
    },
)


def reward_controls() -> dict[str, dict[str, Any]]:
    """Return the controls of the reward: fields of `WordReward`, as playground.js takes them."""
    first = WordReward()
    enough = "how many liked words earn the whole reward, and how many punished ones cost as much"
    only = "a response that is no sentence of the grammar gets nothing for its liked words"
    short = f"each word beyond {SHORT} costs a tenth"
    return {
        "liked": {"label": "+ word", "words": WORDS, "value": first.liked},
        "punished": {"label": "− word", "words": WORDS, "value": first.punished},
        "only_sentences": {"label": "only if a sentence", "isSwitch": True, "value": False, "about": only},
        "short": {"label": "short", "isSwitch": True, "value": False, "about": short},
        "enough": {
            "label": "words for a reward of 1",
            "stops": (1, 2, 3),
            "low": 1,
            "high": 3,
            "value": first.enough,
            "about": enough,
        },
    }


def story_payload() -> dict[str, Any]:
    """Return what playground.js shows of sentences alone."""
    return {
        "title": "You reward, each word is pushed",
        "subject": SUBJECT,
        "every": EVERY,
        "restsAt": RESTS_AT,
        "pace": PACE,
        "first": FIRST,
        "longest": LONGEST + 1,
        "groups": CHIPS,
        "guide": GUIDE,
    }


def language_panel() -> Panel:
    """Return the graph of what is paid, and of what is left of the language."""
    lines = (
        Line("ghost_step", "ghost_sentences", colour="grey", width=1.2, when="hasGhost", dash="1 3"),
        Line("ghost_step", "ghost_reward", colour="grey", width=1.2, when="hasGhost", label="before", direct=True),
        Line("beside_step", "beside_reward", colour="vermilion", when="hasBeside", label="{besideName}", direct=True),
        Line("step", "different", colour="grey", dash="4 3", label="different", direct=True),
        Line("step", "sentences", colour="green", label="sentences", direct=True),
        Line("step", "reward", colour="blue", label="reward", direct=True),
        Rule("changed", colour="ink", when="hasChanged"),
        Rule("now", colour="ink", when="isBack", dash=""),
    )
    return Panel("", Axis("step", 0, "steps", whole=True), Axis("", "least_reward", "most_reward"), lines, tall=0.42)
