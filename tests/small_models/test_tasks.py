import random

import pytest

from small_models.policies import build_policy
from small_models.tasks import TASKS, Chain, Grade, Sort, Trip
from small_models.warm_start import warm_start

RIGHT, WRONG, BROKEN = Grade(True, True), Grade(True, False), Grade(False, False)


@pytest.mark.parametrize(
    ("task", "prompt", "response", "grade"),
    [
        (Chain(), "35271=", "38078#8", RIGHT),  # 3, 3+5, 8+2=10, 10+7=17, 17+1=18
        (Chain(), "35271=", "#8", RIGHT),
        (Chain(), "35271=", "38058#8", RIGHT),  # the rule looks at the answer alone
        (Chain(), "35271=", "38078#9", WRONG),
        (Chain(), "35271=", "38078", BROKEN),
        (Chain(), "35271=", "#88", BROKEN),
        (Chain(), "35271=", "", BROKEN),
        (Chain(), "35271=", "8#8\n", BROKEN),
        (Sort(), "dbace=", "abcde", RIGHT),
        (Sort(), "hhaab=", "aabhh", RIGHT),
        (Sort(), "dbace=", "abced", WRONG),
        (Sort(), "dbace=", "abcd", BROKEN),
        (Trip(), "09+4=", "490", RIGHT),
        (Trip(), "09+4=", "058", RIGHT),
        (Trip(), "09+4=", "491", WRONG),
        (Trip(), "09+4=", "49", BROKEN),
        (Trip(), "09+4=", "٤٩٠", BROKEN),  # digits, but not ours
    ],
)
def test_grades_tell_format_from_correctness(task, prompt, response, grade):
    assert task.grade(prompt, response) == grade


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_prompts_are_split_once_and_for_all(task):
    train, held_out = task.train_prompts, task.held_out_prompts
    assert not set(train) & set(held_out)
    assert sorted([*train, *held_out]) == sorted(task.all_prompts())
    assert len(held_out) == round(task.held_out_share * len(task.all_prompts()))
    assert type(task)().held_out_prompts == held_out


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_gold_answers_and_demonstrations_are_graded_right_and_fit(task):
    rng = random.Random(0)
    for prompt in task.held_out_prompts[:30]:
        response = task.demonstrate(prompt, rng)
        assert task.grade(prompt, response) == RIGHT
        assert len(response) + 1 <= task.max_new_tokens
    prompt = task.held_out_prompts[0]
    gold = task.gold(prompt)
    assert task.grade(prompt, f"#{gold}" if task.name == "chain" else gold) == RIGHT


def test_trip_has_many_right_answers():
    assert len(Trip().right_answers("09+4=")) == 75
    assert Trip().right_answers("18+9=") == ("999",)


def test_warm_up_reaches_its_target_and_says_when_it_does_not():
    policy = build_policy(seed=1, device="cpu")
    records = list(warm_start(policy, Sort(), target_accuracy=0.2, max_steps=200, seed=1))
    assert records[-1].accuracy >= 0.2 > records[0].accuracy
    assert records[-1].loss < records[0].loss
    with pytest.raises(RuntimeError, match="2 updates reached accuracy"):
        list(warm_start(build_policy(), Chain(), target_accuracy=0.9, max_steps=2, evaluate_every=2))
    with pytest.raises(ValueError, match="target_accuracy"):
        next(warm_start(policy, Sort(), target_accuracy=1.5))
