"""A task from a file of prompts and answers: what is read, how it is graded, and real models that train on it."""

import json
import pickle

import pytest

from rlviz import GRPO, TrainSettings, find_task, resume, train
from rlviz.training.run_folder import RunFolder, metrics_of
from rlviz.training.tasks import check_prompts
from small_models.evaluation import evaluate
from small_models.sampling import encode_prompts
from small_models.tasks import Chain, Grade
from small_models.tasks.file_task import FileTask, exact, last_number
from tests.small_models.real import BOS, END, TURN, chat_policy

ROWS = [{"prompt": f"Janet has {n} eggs and buys 2 more.", "answer": f"{n} + 2 = {n + 2}"} for n in range(30)]
QUICK = TrainSettings(
    steps=2, num_prompts=2, group_size=2, max_new_tokens=5, lr=1e-2, lr_warmup_steps=0, evaluate_every=0,
    checkpoint_every=1, details_every=1,
)  # fmt: skip
RULES = """
from small_models.tasks import Grade

def even(prompt, response, answer):
    return len(response) % 2 == 0
def graded(prompt, response, answer):
    return Grade(format=False, correct=prompt.endswith("model: "))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to work in, with a file of prompts and one of rules."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "eggs.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    (tmp_path / "rules.py").write_text(RULES)
    return tmp_path


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        ("so it is 1,234.50.", "#### 1234.5", (True, True)),
        ("7 or 8", "7", (True, False)),
        ("5-3", "3", (True, True)),  # no sign
        ("x = -3", "3", (True, False)),
        ("none", "3", (False, False)),
        ("9" * 5000, "9" * 5000, (True, True)),
        ("then ٣", "3", (True, True)),
    ],
)
def test_the_last_number_is_compared_as_a_number(response, answer, expected):
    assert last_number(response, answer) == Grade(*expected)


def test_exactly_the_answer_but_for_white_space_around_it():
    assert exact(" a b\n", "a b") == Grade(True, True)
    assert exact("ab", "a b") == Grade(True, False)
    assert exact("  ", "") == Grade(False, False)


@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_a_file_becomes_a_task_that_real_models_train_on(name, folder):
    policy = chat_policy(name, adds_bos=name == "llama")
    task = find_task("eggs.jsonl", rule="last-number", policy=policy)
    assert task.name == "eggs.jsonl" and len(task.all_prompts()) == 30
    assert len(task.held_out_prompts) == 3 and len(task.train_prompts) == 27
    prompt = task.all_prompts()[4]
    assert task.gold(prompt) == "4 + 2 = 6" and task.where(prompt) == "eggs.jsonl, line 5"
    assert task.grade(prompt, "That makes 6.0") == Grade(True, True)
    ids = encode_prompts(policy, [prompt])[0][0].tolist()
    assert ids == policy.tokenizer(prompt)["input_ids"] and ids.count(BOS) == (name == "llama")
    assert ids.count(TURN) == 2 and ids.count(END) == 1  # the template's, as single tokens
    group = next(train(policy, task, GRPO, QUICK)).groups[0]
    assert group.prompt == f"<turn>user: {group.user_text}<end><turn>model: "
    assert group.user_text in {row["prompt"] for row in ROWS}
    # an untrained policy may sample others of the special tokens, and BOS begins Llama's prompts
    begin = {"<bos>"} if name == "llama" else set()
    assert {"<turn>", "<end>"} | begin <= set(group.control) <= set(policy.tokenizer.all_special_tokens)


def test_what_a_chat_template_writes_is_what_the_policy_reads(folder):
    (folder / "talk.jsonl").write_text(
        '{"prompt": [{"role": "system", "content": "Count."}, {"role": "user", "content": "1+1?"}], "answer": 2}\n'
        '{"prompt": "2+2?", "answer": 4, "id": 9}\n\n{"prompt": "2+2?", "answer": 4}\n'
    )
    task = find_task("talk.jsonl", rule="exact", policy=chat_policy())
    first, second = task.all_prompts()
    assert first == "<turn>system: Count.<end><turn>user: 1+1?<end><turn>model: "
    assert second == "<turn>user: 2+2?<end><turn>model: "
    assert [task.user_text(prompt) for prompt in (first, second)] == ["1+1?", "2+2?"]
    assert task.grade(second, "4").correct
    plain = find_task("eggs.jsonl", rule="exact", policy=chat_policy(chat=False))
    assert ROWS[0]["prompt"] in plain.all_prompts()
    off = find_task("eggs.jsonl", rule="exact", chat="off", policy=chat_policy())
    assert off.all_prompts() == plain.all_prompts() == list(map(off.user_text, off.all_prompts()))


def test_a_rule_of_ones_own_and_its_way_to_another_process(folder):
    task = find_task("eggs.jsonl", rule="rules.py:even")
    again = pickle.loads(pickle.dumps(task))
    for same in (task, again):
        assert same.grade(ROWS[0]["prompt"], "ab").correct and not same.grade(ROWS[0]["prompt"], "a").correct
    assert find_task("eggs.jsonl", rule="rules.py:graded").grade(ROWS[0]["prompt"], "") == Grade(False, False)


def test_a_prompt_that_leaves_no_room_is_found_before_training(folder):
    policy = chat_policy()
    task = find_task("eggs.jsonl", rule="exact", policy=policy)
    widths = [len(policy.tokenizer(prompt)["input_ids"]) for prompt in task.all_prompts()]
    room = policy.positions - max(widths)
    assert check_prompts(policy, task, room) == max(widths)
    assert check_prompts(policy, Chain(), None) == 0
    with pytest.raises(
        ValueError, match=rf"eggs.jsonl, line \d+: the prompt has {max(widths)} tokens, and with max_new_tok"
    ):
        train(policy, task, GRPO, TrainSettings(num_prompts=2, max_new_tokens=room + 1))


def test_held_out_prompts_of_a_file_are_asked_once(folder):
    graded = []

    class Recorded(FileTask):
        def grade(self, prompt, response):
            graded.append(prompt)
            return super().grade(prompt, response)

    task = Recorded("eggs.jsonl", "exact")
    evaluate(chat_policy(), task, max_new_tokens=1)
    assert sorted(graded) == sorted(task.held_out_prompts)


def curve(records):
    return [{name: value for name, value in metrics_of(r).items() if name != "seconds"} for r in records]


def test_a_run_on_a_file_goes_on_by_what_its_folder_holds(folder):
    task = find_task("eggs.jsonl", rule="last-number", policy=chat_policy())
    uncut = curve(train(chat_policy(), task, GRPO, QUICK))
    first = curve([next(train(chat_policy(), task, GRPO, QUICK, out="run"))])
    (folder / "eggs.jsonl").unlink()
    going_on = resume("run", device="cpu")
    assert first + curve(going_on) == uncut
    assert going_on.task.described == task.described == {
        "task": "eggs.jsonl", "rule": "last-number", "rows": RunFolder.open("run").config["rows"],
    }  # fmt: skip
    assert {going_on.task.user_text(prompt) for prompt in task.all_prompts()} == {row["prompt"] for row in ROWS}
    file = folder / "run" / "task.jsonl"
    file.write_text(file.read_text().replace("= 6", "= 7"))
    with pytest.raises(ValueError, match=r"rows: the run in run is one of .*; restore its task.jsonl"):
        resume("run", steps=3)


def test_code_that_a_run_folder_names_is_not_imported(folder):
    (folder / "rules.py").write_text(RULES + "\nopen('imported', 'a').close()\n")
    task = find_task("eggs.jsonl", rule="rules.py:even", policy=chat_policy())
    next(train(chat_policy(), task, GRPO, QUICK, out="run"))
    (folder / "imported").unlink()
    with pytest.raises(
        ValueError, match=r"is graded by rules.py:even, which is code, and none is imported because a run folder"
    ):
        resume("run", device="cpu")
    with pytest.raises(ValueError, match=r"rule: the run in run is one of 'rules.py:even'; got 'rules.py:graded'"):
        resume("run", device="cpu", rule="rules.py:graded")
    assert not (folder / "imported").exists()
    assert next(resume("run", device="cpu", rule=str(folder / "rules.py:even"))).step == 2
    assert (folder / "imported").exists()
