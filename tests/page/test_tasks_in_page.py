"""Tasks in a page: the same prompts on the same sides, and the same verdict on 10,000 answers of all kinds."""

from __future__ import annotations

import json
import random
import subprocess
import tempfile
from pathlib import Path

import pytest

from rlviz.page.script import script
from rlviz.runs.in_page import CHECKPOINTS
from small_models.tasks import TASKS
from small_models.tokenizer import CHARACTERS
from tests.page.programs import needs_node

pytestmark = needs_node
IN_PAGE = [task for task in TASKS if task.name in CHECKPOINTS.values()]
tasks = pytest.mark.parametrize("task", IN_PAGE, ids=lambda task: task.name)


def evaluate_js(code: str, value: object) -> object:
    """Return what an expression of `given` and of tasks.js makes, in node."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "given.json"
        file.write_text(json.dumps(value))
        program = f"""
            import fs from "node:fs";
            import * as tasks from {json.dumps(script("tasks").as_uri())};
            const given = JSON.parse(fs.readFileSync({json.dumps(str(file))}, "utf8"));
            process.stdout.write(JSON.stringify({code}));
        """
        done = subprocess.run(
            ["node", "--input-type=module", "-e", program], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_every_task_of_a_shipped_checkpoint_is_there():
    assert evaluate_js("Object.keys(tasks.TASKS).sort()", None) == sorted(task.name for task in IN_PAGE)


@tasks
def test_prompts_are_the_same_in_the_same_order(task):
    result = evaluate_js("{ ...tasks.split(tasks.TASKS[given]), longest: tasks.TASKS[given].longest }", task.name)
    assert result["train"] == task.train_prompts
    assert result["heldOut"] == task.held_out_prompts
    assert result["longest"] == task.max_new_tokens


def answers(task, count):
    """Return prompts with answers: right ones, demonstrations, slightly spoiled ones, and anything that a policy can write."""
    rng = random.Random(0)
    pieces = [*CHARACTERS, "<pad>", "", "\n", "##", "#7"]
    cases = []
    for _ in range(count):
        prompt = rng.choice(task.train_prompts if rng.random() < 0.5 else task.held_out_prompts)
        answer = list(task.demonstrate(prompt, rng) if rng.random() < 0.7 else task.gold(prompt))
        for _ in range(rng.choice((0, 0, 0, 1, 1, 2))):
            place = rng.randrange(len(answer) + 1)
            answer[place : place + rng.randrange(2)] = rng.choice(pieces)
        if rng.random() < 0.1:
            answer = rng.choices(pieces, k=rng.randrange(task.max_new_tokens + 1))
        cases.append((prompt, "".join(answer)))
    return cases


@tasks
def test_a_judge_says_what_pythons_says(task):
    cases = answers(task, 10_000)
    result = evaluate_js(f"given.map(([prompt, answer]) => tasks.TASKS.{task.name}.grade(prompt, answer))", cases)
    graded = [vars(task.grade(*case)) for case in cases]
    assert result == graded
    kinds = {(case["format"], case["correct"]) for case in graded}
    assert kinds == {(False, False), (True, False), (True, True)}


def test_tokens_are_the_characters_of_the_vocabulary():
    assert evaluate_js("tasks.encode(given)", CHARACTERS) == list(range(2, 2 + len(CHARACTERS)))
    assert evaluate_js("[tasks.textOf([2, 0, 39, 1, 5]), tasks.textOf([1]), tasks.textOf([])]", None) == [
        "0<pad>#",
        "",
        "",
    ]
