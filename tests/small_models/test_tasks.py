"""Tasks: grades, steps, splits and demonstrations as tables, what lookup's tool answers, and warm-ups on them."""

import random

import pytest
import torch

from small_models.pairs import Pair, encode_pairs
from small_models.policies import build_policy
from small_models.sampling import encode_prompts, encode_responses, response_logits
from small_models.tasks import TASKS, Chain, Grade, Lookup, Ramble, Sort, Step, Trip
from small_models.warm_start import warm_start

RIGHT, WRONG, BROKEN, UNTIDY = Grade(True, True), Grade(True, False), Grade(False, False), Grade(False, True)
TINY = {"hidden_size": 8, "num_layers": 1, "num_heads": 1, "device": "cpu"}


class OneTable(Lookup):
    """Every table is this one: at 3 stands 7, at 7 stands 8."""

    def entries(self, prompt):
        return "4907315826"


GRADES = {
    (Chain(), "35271="): {
        "38078#8": RIGHT,  # 3, 3+5, 8+2=10, 10+7=17, 17+1=18
        "#8": RIGHT,
        "38058#8": RIGHT,  # the rule looks at the answer alone
        "38078#9": WRONG,
        "38078": BROKEN,
        "8#8\n": BROKEN,
    },
    (Ramble(), "35271="): {"38078....#8": RIGHT, "38.078#8": BROKEN, "38078#.8": BROKEN},
    (Sort(), "dbace="): {"abcde": RIGHT, "abced": WRONG, "abcd": BROKEN},
    (Trip(), "09+4="): {"058": RIGHT, "491": WRONG, "49": BROKEN, "٤٩٠": BROKEN},  # the last: digits, but not ours
    (OneTable(), "kq:2:3="): {  # whose answer is 8
        "?3;7,?7;8,#8": RIGHT,
        "?3;7,#8": RIGHT,
        "?3;7,#7": WRONG,
        "?a;-,?3;7,?7;8,#8": UNTIDY,
        "?3;7,8#8": UNTIDY,
        "?3;7,?7;8,": BROKEN,  # no answer
        "#8#8": BROKEN,
        "#88": BROKEN,
        "#8\n": BROKEN,
        "#٨": BROKEN,
        "#8;-,": BROKEN,
    },
}


@pytest.mark.parametrize(("task", "prompt"), GRADES, ids=lambda value: getattr(value, "name", value))
def test_grades_tell_format_from_correctness(task, prompt):
    expected = GRADES[task, prompt]
    assert {response: task.grade(prompt, response) for response in expected} == expected


@pytest.mark.parametrize("task", [task for task in TASKS if task.has_answers], ids=lambda task: task.name)
def test_prompts_are_split_once_and_demonstrations_are_graded_right_and_fit(task):
    train, held_out = task.train_prompts, task.held_out_prompts
    assert sorted([*train, *held_out]) == sorted(task.all_prompts()) and not set(train) & set(held_out)
    assert len(held_out) == round(task.held_out_share * len(task.all_prompts()))
    rng = random.Random(0)
    for prompt in held_out[:30]:
        response = task.demonstrate(prompt, rng)
        assert task.grade(prompt, response) == RIGHT and len(response) + 1 <= task.max_new_tokens
    gold = task.gold(held_out[0])
    assert task.grade(held_out[0], f"#{gold}" if task.name in ("chain", "lookup", "ramble") else gold) == RIGHT


STEPS = {  # task, prompt, response → (end, reward) of its steps
    (Chain(), "35271="): {  # whose running sums are 3, 8, 0, 7, 8
        "38078#8": [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (7, 1)],
        "38058#8": [(1, 1), (2, 1), (3, 1), (4, 0), (5, 1), (7, 1)],  # a wrong sum on the way to a right answer
        "380781#8": [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 0), (8, 1)],  # there is no sixth sum
        "8#8": [(1, 0), (3, 1)],  # a sum counts in its own place
        "38078": [(1, 1), (2, 1), (3, 1), (4, 1), (5, 0)],  # no answer: the last digit's step is the response's last
        "3b8#8": [(1, 1), (3, 1), (5, 0)],  # badly written, so not right; b belongs to the step after it
        "3#8#8": [(1, 1), (5, 0)],
        "٣#8": [(3, 0)],  # a digit, but not ours
        "": [(0, 0)],
    },
    (Lookup(), "kq:2:3="): {  # 3 → 1 → 2
        "?3;1,?1;2,#2": [(3, 1), (8, 1), (12, 1)],
        "?1;2,?3;1,#1": [(3, 0), (8, 0), (12, 0)],  # each is the other's turn
        "?3;1,?1;2,?2;-,#2": [(3, 1), (8, 1), (13, 0), (17, 1)],  # nothing is left to look up
        "?3?3;-,#5": [(5, 0), (9, 0)],  # written otherwise
        "?3;": [(3, 0)],  # what ends a response is part of its answer
    },
    (Trip(), "09+4="): {"490": [(3, 1)]},  # a task that marks no steps has one
}


@pytest.mark.parametrize(("task", "prompt"), STEPS, ids=lambda value: getattr(value, "name", value))
def test_a_response_falls_into_steps_with_rewards_of_their_own(task, prompt):
    for response, steps in STEPS[task, prompt].items():
        assert task.steps(prompt, response) == tuple(Step(end, float(reward)) for end, reward in steps), response


def test_quality_of_chain_puts_right_above_wrong_and_sums_above_guesses():
    # (right sums + 6 if the answer is right) / 11, from best to worst
    elevenths = {"38078#8": 11, "38058#8": 10, "#8": 6, "38078#9": 5, "38078": 4, "38#0": 2, "#9": 0, "": 0}
    assert {response: Chain().quality("35271=", response) * 11 for response in elevenths} == pytest.approx(elevenths)
    assert (Trip().quality("09+4=", "490"), Lookup().quality("kq:2:3=", "?1;2,#2")) == (1.0, 1.0)  # answers alone
    assert len(Trip().right_answers("09+4=")) == 75 and Trip().right_answers("18+9=") == ("999",)


# --- lookup ---


def test_a_table_is_the_checksum_of_its_name_and_held_out_prompts_are_of_tables_that_training_never_shows():
    # printf kq | sha256sum gives ee68…; its last ten decimal digits, by another program than the package
    task = Lookup()
    assert task.entries("kq:2:3=") == "2271072305"
    train, held_out = (
        {prompt.split(":")[0] for prompt in side} for side in (task.train_prompts, task.held_out_prompts)
    )
    assert (len(train), len(held_out)) == (360, 40) and not train & held_out
    assert len({prompt.split(":")[0] for prompt in task.held_out_prompts[:40]}) > 20  # not table by table
    assert len({task.entries(prompt) for prompt in task.all_prompts()}) == 400


@pytest.mark.parametrize(
    ("written", "observation"),
    [
        ("?3;", "7,"),
        ("?3;7,?7;", "8,"),
        ("?3;7,?7;8,?8;", "-,"),  # the third call
        ("?a;-,?3;", "7,"),  # after a refusal there is another try
        *((text, "-,") for text in (";", "?33;", "x?3;", "#7?3;", "?٣;", "?3;\n")),
    ],
)
def test_the_tool_answers_calls_and_refuses_all_else(written, observation):
    assert OneTable().observe("kq:2:3=", written) == observation


@pytest.mark.parametrize(
    ("response", "turns"),
    [
        ("?3;7,?7;8,#8", ["?3;", "7,", "?7;", "8,", "#8"]),
        ("", [""]),
        ("?3;7,", ["?3;", "7,", ""]),
        ("?3;9,#9", ["?3;9,#9"]),  # the table says 7, so the tool did not write this
        ("?3;", ["?3;"]),
        ("?a;-,;-,#1", ["?a;", "-,", ";", "-,", "#1"]),
    ],
)
def test_a_response_falls_into_the_turns_of_policy_and_tool(response, turns):
    assert OneTable().turns("kq:2:3=", response) == turns


def test_pairs_are_encoded_without_what_the_tool_wrote():
    policy = build_policy(**TINY, max_length=20)
    pairs = [Pair("kq:2:3=", "?3;7,?7;8,#8", "#1")]
    assert encode_pairs(policy, pairs).mask.sum(-1).tolist() == [[13, 3]]
    with_tool = encode_pairs(policy, pairs, OneTable())
    assert policy.tokenizer.batch_decode(with_tool.tokens[0]) == ["?3;7,?7;8,#8$", "#1$" + 10 * "<pad>"]
    assert with_tool.mask[0, 0].int().tolist() == [1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1]
    with pytest.raises(ValueError, match="has 20 tokens, more than the 19 positions"):  # 7 + 13, the tool's counted
        encode_pairs(build_policy(**TINY, max_length=19), pairs, OneTable())


def test_selected_pairs_are_as_if_they_were_encoded_alone():
    """Prompts and responses of several lengths; what the tool wrote, where the mask is false, is no padding."""
    policy = build_policy(**TINY, max_length=20)
    pairs = [Pair(prompt, "?3;7,?7;8,#8", "#1") for prompt in ("kq:2:3=", "kq:3=")]
    pairs += [Pair("kq:3=", "?3;7,#7", ""), Pair("1=", "#2", ""), Pair("1=", "", "#22")]
    encoded = encode_pairs(policy, pairs, OneTable())
    for index in ([0, 1, 2, 3, 4], [3, 1], [4], [2, 0]):
        alone = encode_pairs(policy, [pairs[place] for place in index], OneTable())
        selected = vars(encoded.take(torch.tensor(index)))
        assert all(torch.equal(selected[name], value) for name, value in vars(alone).items())


def test_demonstrations_look_none_to_all_of_the_times():
    rng, task = random.Random(0), OneTable()
    texts = [task.demonstrate("kq:2:3=", rng) for _ in range(4000)]
    counts = [texts.count(text) for text in ("#8", "?3;7,#8", "?3;7,?7;8,#8")]
    # .6, .4 · .6 and .4 · .4; a count's standard error is at most √(4000/4) = 32
    assert sum(counts) == 4000 and counts == pytest.approx([2400, 960, 640], abs=130)


def test_one_table_more_look_ups_and_no_tool():
    task = Lookup((3,), "3816502947")
    assert task.path("kq:3:0=") == task.path("bb:3:0=") == ["0", "3", "6", "2"]
    assert task.observe("kq:3:0=", "?0;3,?3;") == "6,"
    assert task.described == {"task": "lookup", "hops": [3], "table": "3816502947", "tool": True}
    assert Lookup().described == {"task": "lookup"} and Lookup(tool=False).turns("kq:1:3=", "?3;1,#1") == ["?3;1,#1"]
    for name, value in (("hops", ()), ("hops", (0,)), ("hops", (10,)), ("table", "123"), ("table", "12345678a9")):
        with pytest.raises(ValueError, match=f"{name} must be .*; got"):
            Lookup(**{name: value})


# --- warm-ups ---


def test_the_warm_up_imitates_what_the_policy_would_write_and_nothing_else():
    task, policy = Lookup(), build_policy(seed=3, device="cpu")
    rng = random.Random(5)
    prompts = rng.choices(task.train_prompts, k=16)
    texts = [task.demonstrate(prompt, rng) for prompt in prompts]
    tokens, _ = encode_responses(policy, texts)
    with torch.no_grad():
        logp = response_logits(policy, *encode_prompts(policy, prompts), tokens).log_softmax(-1)[:, 0]
    by_policy = []
    for row, text in enumerate(texts):
        place = 0
        while place <= len(text):
            by_policy.append(float(logp[row, place, tokens[row, 0, place]]))
            place += 3 if text[place : place + 1] == ";" else 1  # past the two that follow a call
    first = next(warm_start(policy, task, target_accuracy=0.9, batch_size=16, evaluate_every=1, seed=5))
    assert first.loss == pytest.approx(-sum(by_policy) / len(by_policy), abs=1e-5)


def test_warm_up_reaches_its_target_and_says_when_it_does_not():
    records = list(warm_start(build_policy(seed=1, device="cpu"), Chain(), target_accuracy=0.06, max_steps=200, seed=1))
    assert records[-1].accuracy >= 0.06 > records[0].accuracy and records[-1].loss < records[0].loss
    with pytest.raises(RuntimeError, match="2 updates reached accuracy"):
        list(warm_start(build_policy(), Chain(), target_accuracy=0.9, max_steps=2, evaluate_every=2))
