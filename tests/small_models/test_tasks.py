import random

import pytest

from small_models.policies import build_policy
from small_models.tasks import TASKS, Chain, Grade, Ramble, Sort, Step, Trip
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
        (Chain(), "35271=", "8#8\n", BROKEN),
        (Ramble(), "35271=", "38078....#8", RIGHT),
        (Ramble(), "35271=", "38.078#8", BROKEN),
        (Ramble(), "35271=", "38078#.8", BROKEN),
        (Sort(), "dbace=", "abcde", RIGHT),
        (Sort(), "dbace=", "abced", WRONG),
        (Sort(), "dbace=", "abcd", BROKEN),
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
    assert task.grade(prompt, f"#{gold}" if task.name in ("chain", "lookup", "ramble") else gold) == RIGHT


@pytest.mark.parametrize(
    ("response", "steps"),
    [  # of 35271=, whose running sums are 3, 8, 0, 7, 8
        ("38078#8", [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (7, 1)]),
        ("38058#8", [(1, 1), (2, 1), (3, 1), (4, 0), (5, 1), (7, 1)]),  # a wrong sum on the way to a right answer
        ("#8", [(2, 1)]),
        ("380781#8", [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 0), (8, 1)]),  # there is no sixth sum
        ("8#8", [(1, 0), (3, 1)]),  # a sum counts in its own place
        ("38078", [(1, 1), (2, 1), (3, 1), (4, 1), (5, 0)]),  # no answer: the last digit's step is the response's last
        ("3b8#8", [(1, 1), (3, 1), (5, 0)]),  # badly written, so not right; b belongs to the step after it
        ("3#8#8", [(1, 1), (5, 0)]),
        ("٣#8", [(3, 0)]),  # a digit, but not ours
        ("", [(0, 0)]),
    ],
)
def test_each_running_sum_of_chain_is_a_step_and_the_rest_is_the_last(response, steps):
    assert Chain().steps("35271=", response) == tuple(Step(end, float(reward)) for end, reward in steps)


def test_a_task_without_marked_steps_has_one():
    assert Trip().steps("09+4=", "490") == (Step(3, 1.0),)
    assert Sort().steps("dbace=", "abced") == (Step(5, 0.0),)
    assert (Trip().quality("09+4=", "490"), Trip().quality("09+4=", "491")) == (1.0, 0.0)


def test_quality_of_chain_puts_right_above_wrong_and_sums_above_guesses():
    # (right sums + 6 if the answer is right) / 11, from best to worst
    elevenths = {"38078#8": 11, "38058#8": 10, "#8": 6, "38078#9": 5, "38078": 4, "38#0": 2, "#9": 0, "": 0}
    assert {response: Chain().quality("35271=", response) * 11 for response in elevenths} == pytest.approx(elevenths)


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
