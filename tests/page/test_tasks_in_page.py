"""Tasks in a page: the same prompts on the same sides, and the same verdict on 4,000 answers of all kinds."""

from __future__ import annotations

import random
import re

import pytest

from rlviz.runs.in_page import CHECKPOINTS
from small_models.tasks import TASKS, WordReward
from small_models.tasks.sentences import ANIMALS, HAPPY, SAD, TOKENS
from small_models.tokenizer import CHARACTERS
from tests.page.in_node import evaluate_js
from tests.page.programs import needs_node

pytestmark = needs_node
IN_PAGE = [task for task in TASKS if task.name in CHECKPOINTS.values()]
SENTENCES = next(task for task in TASKS if task.name == "sentences")
tasks = pytest.mark.parametrize("task", IN_PAGE, ids=lambda task: task.name)


def ask(task, code, value=None):
    return evaluate_js("tasks", code, value, task=task.name)


def test_every_task_of_a_shipped_checkpoint_is_there():
    names = sorted(task.name for task in IN_PAGE if task is not SENTENCES)
    assert ask(SENTENCES, "Object.keys(tasks.TASKS).sort()") == names


@tasks
def test_prompts_are_the_same_in_the_same_order(task):
    result = ask(task, "({ ...tasks.split(task), longest: task.longest })")
    assert result["train"] == task.train_prompts
    assert result["heldOut"] == task.held_out_prompts
    assert result["longest"] == task.max_new_tokens


def answers(task, count):
    """Return prompts with answers: right ones, demonstrations, slightly spoiled ones, and anything that a policy can write."""
    rng = random.Random(0)
    pieces = [*(TOKENS if task is SENTENCES else CHARACTERS), "<pad>", "", "\n", "##", "#7"]
    cases = []
    for _ in range(count):
        prompt = rng.choice(task.train_prompts if rng.random() < 0.5 else task.held_out_prompts)
        text = task.demonstrate(prompt, rng) if rng.random() < 0.7 else task.gold(prompt) or " was"
        answer = re.findall(" [^ ]+", text) if task is SENTENCES else list(text)
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            place = rng.randrange(len(answer) + 1)
            answer[place : place + rng.randrange(2)] = rng.choice(pieces)
        if rng.random() < 0.1:
            answer = rng.choices(pieces, k=rng.randrange(task.max_new_tokens + 1))
        cases.append((prompt, "".join(answer)))
    return cases


@tasks
def test_a_judge_says_what_pythons_says(task):
    cases = answers(task, 4000)
    result = ask(task, "given.map(([prompt, answer]) => task.grade(prompt, answer))", cases)
    graded = [vars(task.grade(*case)) for case in cases]
    assert result == graded
    kinds = {(case["format"], case["correct"]) for case in graded}
    assert kinds == (
        {(False, None), (True, None)} if task is SENTENCES else {(False, False), (True, False), (True, True)}
    )


@pytest.mark.parametrize(
    "reward",
    [
        WordReward(),
        WordReward(HAPPY, SAD, enough=1),
        WordReward(ANIMALS, HAPPY, enough=2, only_sentences=True, short=True),
        WordReward((), short=True),
    ],
    ids=["happy", "happy, not sad", "animals", "short"],
)
def test_the_words_of_a_sentence_earn_what_they_earn_in_python(reward):
    cases = answers(SENTENCES, 3000)
    code = "given.cases.map(([prompt, answer]) => task.pay(prompt, answer, task.grade(prompt, answer), { words: given.words }))"
    words = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(reward).items()}
    paid = ask(SENTENCES, code, {"cases": cases, "words": words})
    assert paid == pytest.approx([sum(reward(answer).values()) for _, answer in cases], abs=1e-12)
    assert len(set(paid)) > 2


def test_tokens_are_the_characters_of_the_vocabulary():
    chain = TASKS[0]
    assert ask(chain, "task.encode(given)", CHARACTERS) == list(range(2, 2 + len(CHARACTERS)))
    assert ask(SENTENCES, "task.encode(given)", "".join(TOKENS)) == list(range(2, 2 + len(TOKENS)))
    assert ask(chain, "[task.textOf([2, 0, 39, 1, 5]), task.textOf([1]), task.textOf([])]") == [
        "0<pad>#",
        "",
        "",
    ]
