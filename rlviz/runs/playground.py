"""The playground: a small language model trains in a page, by programs traced from the library's own step; no kernel, no server.

`page_payload` is what playground.js shows, but for programs and weights: controls, algorithms, links to try, curves.
`training_parts` is what it trains with, in parts that are loaded when they are needed; `standalone_page` is all in one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import rlviz.algorithms
from rlviz.algorithms import (
    ALGORITHMS,
    GRPO,
    RELATIVES,
    ActorCritic,
    GroupPolicyGradient,
    PreferenceOptimization,
    numbers,
)
from rlviz.algorithms.family import Algorithm
from rlviz.markup import DATA, Markup, element, joined
from rlviz.page.picture import Axis, Choice, Line, Panel, Picture, Rule, to_json
from rlviz.page.script import classic
from rlviz.page.widget import fragment, pack, page
from rlviz.pictures.parameters import LABELS
from rlviz.runs import in_page, recordings, sentences
from rlviz.runs.curves import BELOW
from rlviz.runs.in_page import CHECKPOINTS
from rlviz.runs.judge import judge_payload
from rlviz.runs.tries import SENTENCE_TRIES, TRIES
from rlviz.settings import declarations
from rlviz.training import TrainSettings
from small_models.checks import checked, short_repr

TITLE = "A language model learns what you reward"
FILES = ("packed", "run", "draw", "tasks", "group", "sentences", "playground")
TAB_FILES = (*FILES, "taste", "judge", "tabs")  # of a page with all tabs
STORY = "sentences"  # the task that is shown as a story
RESPONSES = 128  # of a step, of which G answer one prompt
WIDTHS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.05, 0.1, 0.15, 0.2, 0.28, 0.4, 0.6, 0.9)
AT_RATIO_1 = {"of": "updates_per_rollout", "at": 1, "why": "acts from the 2nd update on"}
# Where each can stand and what it does; own: it is a number of an algorithm's pieces, of which the others keep their values;
# idle: of which other control, at which of its values, it does nothing, and why.
SLIDERS: Mapping[str, dict[str, Any]] = {
    "eps_low": {
        "stops": WIDTHS,
        "about": "how far a ratio may fall before the clip cuts the gradient",
        "own": True,
        "idle": AT_RATIO_1,
    },
    "eps_high": {
        "stops": (*WIDTHS, 2, 5),
        "about": "how far a ratio may rise before the clip cuts it",
        "own": True,
        "idle": AT_RATIO_1,
    },
    "beta": {
        "stops": (0, 0.001, 0.01, 0.04, 0.1, 0.2, 0.5, 1),
        "about": "weight of the KL to the first model",
        "own": True,
    },
    "group_size": {
        "stops": (2, 4, 8, 16, 32),
        "about": f"answers to each prompt; {RESPONSES} answers a step in all",
    },
    "lr": {"stops": (1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.1, 1, 1000), "about": "of AdamW at its peak"},
    "updates_per_rollout": {"stops": (1, 2, 4, 8, 16), "about": "how often the same answers are used"},
}
TASKS_IN_WORDS = (
    "chain: the last digit of a sum of five; chain-rare: the same, by a policy that hardly ever writes the sums on the way; "
    "sort: five letters in order; trip: three digits with a given sum"
)
MISTAKE = {
    "label": "reward",
    "options": [{"value": "rule", "text": "right"}, {"value": "mistake", "text": "right, or ends in 7"}],
    "value": "rule",
    "about": "what is paid: the right answers, or by a check with a mistake",
}
MOST_STEPS = 1000
RECORDED = {  # algorithm → its recorded run, and why the page does not train it
    "PPO": ("ppo", "a second model that the page has not"),
    "DPO": ("dpo", "made before training rather than sampled in it"),
}


CALL = (
    "from rlviz import TrainSettings, train",
    "from rlviz.algorithms import {python}",
    "",
    "settings = TrainSettings(num_prompts={num_prompts}, group_size={group_size}, lr={lr}, "
    "updates_per_rollout={updates_per_rollout}, seed={seed})",
    "for record in train({task}, {python}{numbers}, settings):",
    "    print(record.step, record.reward, record.entropy)",
)


def controls(
    *yours: GroupPolicyGradient, task: str = "chain", recorded: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the controls in the order in which they stand: what each can be, what it is at first, and what it is called.

    yours: algorithms that join the choice, the first of them chosen. recorded: algorithm of RECORDED → links to go on from its
    recorded run; it can then be chosen. Of the task of sentences the reward has controls of its own, and no KL holds at first.
    """
    sections = {"Yours": yours, "The family": ALGORITHMS, "Relatives": RELATIVES}
    options = [_option(one, section, recorded or {}) for section, members in sections.items() for one in members]
    others = [{"value": "", "text": "none"}, *(option for option in options if "why" not in option)]
    first_algorithm, is_story = yours[0] if yours else GRPO, task == STORY
    algorithm = {"label": "algorithm", "options": options, "value": first_algorithm.name}
    tasks = [{"value": name, "text": name} for name in CHECKPOINTS if (name == STORY) == is_story]
    # A slider begins where training would: at the piece's number, or the setting's default.
    defaults = {name: declared.default for name, declared in declarations(TrainSettings).items()}
    first = {**defaults, **numbers(GRPO), **numbers(first_algorithm), "group_size": 8}
    sliders = {
        name: {**one, "label": LABELS[name], "low": one["stops"][0], "high": one["stops"][-1], "value": first[name]}
        for name, one in SLIDERS.items()
    }
    leash = {}
    if is_story:  # what acts at once stands first
        leash = {"beta": {**sliders.pop("beta"), "label": "KL β", "value": 0, "inRewardRow": True}}
        sliders = {name: sliders[name] for name in sorted(sliders, key=lambda name: name.startswith("eps"))}
    return {
        **leash,
        "task": {"label": "task", "options": tasks, "value": task, "about": "" if is_story else TASKS_IN_WORDS},
        "algorithm": {**algorithm, "about": "how rewards become pushes; each brings its own numbers"},
        "beside": {"label": "beside", "options": others, "value": "", "about": "a second run on the same seed"},
        **sliders,
        **(sentences.reward_controls() if is_story else {"reward": MISTAKE}),
        "seed": {"label": "seed", "low": 0, "high": 9999, "value": 0},
    }


def _option(algorithm: Algorithm, section: str, recorded: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return an algorithm as one of the choice: the name that Python has for it, and why it cannot be trained, if so."""
    name = algorithm.name
    python = next((key for key, value in vars(rlviz.algorithms).items() if value is algorithm), name)
    option: dict[str, Any] = {"value": name, "text": name, "section": section, "python": python}
    if lacks := _page_lacks(algorithm):
        option["why"] = lacks
    if name in recorded:
        run, words = RECORDED[name]
        text = f"{name} needs {lacks}, {words}: this is a recorded run on chain, with seed 0."
        option["recorded"] = {"name": run, "text": text, "links": recorded[name]}
    return option


def _page_lacks(algorithm: Algorithm) -> str:
    """Return what one of the library's algorithms needs that the page has not; nothing for those that train there."""
    if algorithm.name in in_page.OFFERED or algorithm not in (*ALGORITHMS, *RELATIVES):
        return ""
    kinds = {ActorCritic: "a critic", PreferenceOptimization: "pairs", GroupPolicyGradient: "a teacher"}
    return next(words for kind, words in kinds.items() if isinstance(algorithm, kind))


OTHER_CURVES: Mapping[str, tuple[str, str]] = {  # a choice below → its words, and the title of its graph
    "entropy": ("entropy", "entropy: how open the next token still is, nats"),
    "kl": ("KL", "KL to the model it began as, nats a token"),
    "clipped": ("clip", "share of tokens that the clip cuts during the updates"),
    "dead": ("dead groups", "share of dead groups"),
    "grad_norm": ("gradient", "norm of the gradient"),
    "reward": ("reward", "mean reward"),
}
SHARES = {"dead", "reward"}  # whose limits are fixed


def accuracy_panel() -> Panel:
    """Return the graph of right answers."""
    lines = (
        Line("ghost_step", "ghost_accuracy", colour="grey", width=1.2, when="hasGhost", dash="2 2"),
        Line("ghost_lookStep", "ghost_look", colour="grey", when="hasGhost", label="before", direct=True),
        Line("beside_step", "beside_accuracy", colour="vermilion", width=1.2, when="hasBeside", dash="2 2"),
        Line("beside_lookStep", "beside_look", colour="vermilion", when="hasBeside", label="{besideName}", direct=True),
        Line("step", "accuracy", colour="blue", width=1.2, dash="2 2"),
        Line("lookStep", "look", colour="blue", label="{algorithmName}", direct=True),
        Rule("changed", colour="ink", when="hasChanged", label="changed", direct=True),
        Rule("now", colour="ink", when="isBack", dash=""),
    )
    title = "accuracy: new prompts; dashed: those sampled"
    return Panel(title, Axis("", 0, "steps", whole=True), Axis("", -BELOW, 1), lines, tall=0.6)


def curves(above: Panel, show: Choice) -> Picture:
    """Return the curves of a run: one graph above, and below what else one may ask, a choice of OTHER_CURVES."""
    panels = [above]
    for name in [name for name in show.options if name]:
        marks = (
            Line("ghost_step", f"ghost_{name}", colour="grey", width=1.5, when="hasGhost"),
            Line("beside_step", f"beside_{name}", colour="vermilion", when="hasBeside"),
            Line("step", name, colour="blue"),
            Rule("changed", colour="ink", when="hasChanged"),
        )
        y = Axis("", -BELOW, 1) if name in SHARES else Axis("", f"least_{name}", f"most_{name}")
        x = Axis("step", 0, "steps", whole=True)
        panels.append(Panel(OTHER_CURVES[name][1], x, y, marks, when=f"show={name}", tall=0.42))
    return Picture("", "", tuple(panels), {"show": show}, (), alt="The curves of the run, by step.", columns=1)


def page_payload(
    *yours: GroupPolicyGradient, task: str = "chain", recorded: Mapping[str, Mapping[str, str]] | None = None
) -> dict[str, Any]:
    """Return what playground.js shows, as JSON has it; yours, recorded: see `controls`."""
    groups, is_story = [*yours, *in_page.OFFERED.values()], task == STORY
    usual = {algorithm.name: numbers(algorithm) for algorithm in reversed(groups)}
    words = {name: text for name, (text, _) in OTHER_CURVES.items()}
    payload: dict[str, Any] = {
        "controls": controls(*yours, task=task, recorded=recorded),
        "numbers": usual,
        "others": [algorithm.name for algorithm in groups if algorithm in ALGORITHMS],
        "tries": [vars(experiment) for experiment in (SENTENCE_TRIES if is_story else TRIES)],
        "mostSteps": MOST_STEPS,
        "below": BELOW,
        "responses": RESPONSES,
        "call": list(sentences.CALL if is_story else CALL),
    }
    if is_story:
        few = {name: words[name] for name in ("entropy", "kl", "clipped", "dead")}
        picture = curves(sentences.language_panel(), Choice({"": "more …", **few}, "", "below"))
        no_kl = {name: {**values, "beta": 0} if "beta" in values else values for name, values in usual.items()}
        payload |= {"numbers": no_kl, "usualNumbers": usual, "story": sentences.story_payload()}
    else:
        picture = curves(accuracy_panel(), Choice(words, "entropy", "below"))
    return {**payload, "curves": {"name": "curves", "picture": to_json(picture), "values": {}, "data": {}}}


def tabs(recorded: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the playgrounds that stand behind one another, title → payload; recorded: see `controls`."""
    story = page_payload(task=STORY)
    return {
        "sentences": story,
        "you are the judge": {**story, **judge_payload(story["story"])},
        "learns to add": page_payload(recorded=recorded),
    }


def training_parts(*yours: GroupPolicyGradient) -> dict[str, dict[str, Any]]:
    """Return what the page trains with: "programs" (the worker's script, and what opens it), and each policy's weights.

    Raises CannotTrace, a ValueError, for an algorithm of one's own that a page cannot follow.
    """
    opening = in_page.opening_message()
    rules = {**opening["rules"], **{algorithm.name: in_page.trace_rule(algorithm) for algorithm in yours}}
    programs = {"worker": in_page.worker_script(), "open": {**opening, "rules": rules}}
    return {"programs": programs, **{name: in_page.pack_checkpoint(name) for name in CHECKPOINTS}}


def standalone_page() -> str:
    """Return the playground as one page that needs no other file, and asks no host for anything."""
    root = element("div", element("noscript", element("p", "The model trains where JavaScript runs.")), id="playground")
    parts = {"tabs": tabs({name: {} for name in RECORDED}), **training_parts()}
    data = {name: pack(part) for name, part in parts.items()}
    data |= {f"recordings/{name}": recordings.packed(name) for name, _ in RECORDED.values()}
    packed = (element("script", Markup(text), type=DATA, data_part=name) for name, text in data.items())
    script = classic(*TAB_FILES, "inspector", offers="playgroundHere(frozenInspector);")
    main = element("main", element("h1", TITLE), root)
    return page(TITLE, joined(main, *packed, element("script", Markup(script))), trains=True)


class NotebookPlayground:
    """The playground in a notebook, made by `train_in_page`: it trains in the page, also where there is no kernel."""

    def __init__(self, algorithm: GroupPolicyGradient, task: str) -> None:
        self.algorithm, self.task = algorithm, task
        yours = () if algorithm in (*ALGORITHMS, *RELATIVES) else (algorithm,)
        payload, parts = page_payload(*yours, task=task), training_parts(*yours)
        payload["controls"]["algorithm"]["value"] = algorithm.name
        # of the policies only those of this task go into the notebook
        policies = [name for name, trained_on in CHECKPOINTS.items() if trained_on == CHECKPOINTS[task]]
        payload["controls"]["task"]["options"] = [{"value": name, "text": name} for name in policies]
        self.payload = {"given": payload, "parts": {name: parts[name] for name in ("programs", *policies)}}

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        caption = f"{self.algorithm.name} trains here where scripts run: run the cell, or trust the notebook."
        html = fragment(pack(self.payload), caption=caption, files=FILES, show="playgroundIn")
        return {"text/html": html, "text/plain": caption}


@checked
def train_in_page(algorithm: GroupPolicyGradient = GRPO, task: str = "chain") -> NotebookPlayground:
    """Return the playground for a notebook: a small transformer trains in the page, by this algorithm's own loss.

    algorithm: one of the library's, or one of your own, which is traced here. task: chain, chain-rare, sort, trip or sentences.
    Raises ValueError for another task, for a name that another algorithm has, and for what a page cannot follow, with the line
    that reads a number; `training_panel` trains that by the kernel.
    """
    name = algorithm.name
    if task not in CHECKPOINTS:
        raise ValueError(f"task must be one of {', '.join(CHECKPOINTS)}; got {short_repr(task)}")
    if lacks := _page_lacks(algorithm):
        raise ValueError(f"algorithm: {name} needs {lacks}, which the page does not have; train it by the kernel")
    if any(known.name == name and known != algorithm for known in (*ALGORITHMS, *RELATIVES)):
        raise ValueError(f"algorithm: {name} is the name of another one; give yours its own, by replace(…, name=…)")
    return NotebookPlayground(algorithm, task)
