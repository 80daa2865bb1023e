"""lookup: the table, what the tool answers, how a transcript is graded and taken apart, and the warm-up on it."""

import random

import pytest
import torch

from small_models.pairs import Pair, encode_pairs
from small_models.policies import build_policy
from small_models.sampling import encode_prompts, encode_responses, response_logits
from small_models.tasks import Grade, Lookup, lookup as module
from small_models.warm_start import warm_start

RIGHT, WRONG, RIGHT_BUT_UNTIDY, BROKEN = Grade(True, True), Grade(True, False), Grade(False, True), Grade(False, False)


class OneTable(Lookup):
    """Every table is this one: at 3 stands 7, at 7 stands 8."""

    def entries(self, prompt):
        return "4907315826"


def test_a_table_is_the_checksum_of_its_name():
    # printf kq | sha256sum gives ee68…; its last ten decimal digits, by another program than the package
    assert Lookup().entries("kq:2:3=") == "2271072305"
    tables = {prompt.split(":")[0]: Lookup().entries(prompt) for prompt in Lookup().all_prompts()}
    assert len(tables) == len(module.LETTERS) ** 2 == len(set(tables.values()))
    assert OneTable().path("kq:1:3=") == ["3", "7"]
    assert OneTable().path("kq:2:3=") == ["3", "7", "8"]


@pytest.mark.parametrize(
    ("written", "observation"),
    [
        ("?3;", "7,"),
        ("?3;7,?7;", "8,"),
        ("?3;7,?7;8,?8;", "-,"),  # the third call
        (";", "-,"),
        ("?33;", "-,"),
        ("x?3;", "-,"),
        ("#7?3;", "-,"),
        ("?a;-,?3;", "7,"),  # after a refusal there is another try
        ("?٣;", "-,"),  # a digit, but not ours
        ("?3;\n", "-,"),
    ],
)
def test_the_tool_answers_calls_and_refuses_all_else(written, observation):
    assert OneTable().observe("kq:2:3=", written) == observation


@pytest.mark.parametrize(
    ("response", "grade"),
    [  # to kq:2:3=, whose answer is 8
        ("?3;7,?7;8,#8", RIGHT),
        ("#8", RIGHT),  # the rule looks at the answer alone
        ("?3;7,#8", RIGHT),
        ("?3;7,#7", WRONG),
        ("?a;-,?3;7,?7;8,#8", RIGHT_BUT_UNTIDY),
        ("?3;7,8#8", RIGHT_BUT_UNTIDY),
        ("?3;7,?7;8,", BROKEN),  # no answer
        ("#8#8", BROKEN),
        ("#88", BROKEN),
        ("#8\n", BROKEN),
        ("#٨", BROKEN),
        ("#8;-,", BROKEN),
    ],
)
def test_grades_demand_one_answer_at_the_end(response, grade):
    assert OneTable().grade("kq:2:3=", response) == grade


def test_held_out_prompts_are_of_tables_that_training_never_shows():
    task = Lookup()
    train, held_out = (
        {prompt.split(":")[0] for prompt in side} for side in (task.train_prompts, task.held_out_prompts)
    )
    assert (len(train), len(held_out)) == (360, 40) and not train & held_out
    assert len({prompt.split(":")[0] for prompt in task.held_out_prompts[:40]}) > 20  # not table by table
    assert len({len(prompt) for prompt in task.all_prompts()}) == 1  # so that nothing is padded


@pytest.mark.parametrize(
    ("response", "turns"),
    [
        ("?3;7,?7;8,#8", ["?3;", "7,", "?7;", "8,", "#8"]),
        ("#8", ["#8"]),
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
    policy = build_policy(hidden_size=8, num_layers=1, num_heads=1, max_length=20, device="cpu")
    pairs = [Pair("kq:2:3=", "?3;7,?7;8,#8", "#1")]
    assert encode_pairs(policy, pairs).mask.sum(-1).tolist() == [[13, 3]]
    with_tool = encode_pairs(policy, pairs, OneTable())
    assert policy.tokenizer.batch_decode(with_tool.tokens[0]) == ["?3;7,?7;8,#8$", "#1$" + 10 * "<pad>"]
    assert with_tool.mask[0, 0].int().tolist() == [1, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 1]
    short = build_policy(hidden_size=8, num_layers=1, num_heads=1, max_length=19, device="cpu")
    with pytest.raises(ValueError, match="has 20 tokens, more than the 19 positions"):  # 7 + 13, the tool's counted
        encode_pairs(short, pairs, OneTable())


@pytest.mark.parametrize("index", [[0, 1, 2, 3, 4], [3, 1], [4], [2, 0], [1]])
def test_some_of_all_pairs_are_as_if_they_were_encoded_alone(index):
    """Prompts and responses of several lengths; what the tool wrote, where the mask is false, is no padding."""
    policy = build_policy(hidden_size=8, num_layers=1, num_heads=1, max_length=20, device="cpu")
    pairs = [Pair(prompt, "?3;7,?7;8,#8", "#1") for prompt in ("kq:2:3=", "kq:3=")]
    pairs += [Pair("kq:3=", "?3;7,#7", ""), Pair("1=", "#2", ""), Pair("1=", "", "#22")]
    some = encode_pairs(policy, pairs, OneTable()).take(torch.tensor(index))
    alone = encode_pairs(policy, [pairs[place] for place in index], OneTable())
    for name, value in vars(alone).items():
        assert torch.equal(getattr(some, name), value), name


def test_demonstrations_look_none_to_all_of_the_times():
    rng, task = random.Random(0), OneTable()
    seen = [task.demonstrate("kq:2:3=", rng) for _ in range(4000)]
    counts = [seen.count(text) for text in ("#8", "?3;7,#8", "?3;7,?7;8,#8")]
    assert sum(counts) == 4000
    # .6, .4 · .6 and .4 · .4; a count's standard error is at most √(4000/4) = 32
    assert counts == pytest.approx([2400, 960, 640], abs=130)


def test_the_warm_up_imitates_what_the_policy_would_write_and_nothing_else():
    task, policy = Lookup(), build_policy(seed=3, device="cpu")
    rng = random.Random(5)
    prompts = rng.choices(task.train_prompts, k=16)
    texts = [task.demonstrate(prompt, rng) for prompt in prompts]
    tokens, _ = encode_responses(policy, texts)
    with torch.no_grad():
        logp = response_logits(policy, *encode_prompts(policy, prompts), tokens).log_softmax(-1)[:, 0]
    own = []
    for row, text in enumerate(texts):
        place = 0
        while place <= len(text):
            own.append(float(logp[row, place, tokens[row, 0, place]]))
            place += 3 if text[place : place + 1] == ";" else 1  # past the two that follow a call
    first = next(warm_start(policy, task, target_accuracy=0.9, batch_size=16, evaluate_every=1, seed=5))
    assert first.loss == pytest.approx(-sum(own) / len(own), abs=1e-5)


@pytest.mark.parametrize(
    ("response", "rewards"),
    [
        ("?3;1,?1;2,#2", [1, 1, 1]),
        ("?1;2,?3;1,#1", [0, 0, 0]),  # each is the other's turn
        ("?3;1,?1;2,?2;-,#2", [1, 1, 0, 1]),  # nothing is left to look up
        ("?3?3;-,#5", [0, 0]),  # written otherwise
        ("#2", [1]),
        ("?3;", [0]),  # what ends a response is part of its answer
    ],
)
def test_each_call_is_a_step_and_right_where_it_looks_up_what_is_next(response, rewards):
    task = Lookup()
    assert task.path("kq:2:3=") == ["3", "1", "2"]
    steps = task.steps("kq:2:3=", response)
    assert [step.reward for step in steps] == rewards
    calls = [place + 1 for place, letter in enumerate(response[:-1]) if letter == ";"]
    assert [step.end for step in steps] == [*calls, len(response)]
    assert task.quality("kq:2:3=", response) == float(response.endswith("#2"))  # as before there were steps


def test_one_table_more_look_ups_and_no_tool():
    task = Lookup((3,), "3816502947")
    assert {prompt.split(":")[1] for prompt in task.all_prompts()} == {"3"} and task.max_calls == 3
    assert task.path("kq:3:0=") == task.path("bb:3:0=") == ["0", "3", "6", "2"]
    assert task.observe("kq:3:0=", "?0;3,?3;") == "6,"
    assert task.described == {"task": "lookup", "hops": [3], "table": "3816502947", "tool": True}
    assert Lookup().described == {"task": "lookup"}
    alone = Lookup(tool=False)
    assert alone.turns("kq:1:3=", "?3;1,#1") == ["?3;1,#1"] and alone.grade("kq:1:3=", "?3;1,#1").correct


@pytest.mark.parametrize(
    "given", [{"hops": ()}, {"hops": (0,)}, {"hops": (10,)}, {"table": "123"}, {"table": "12345678a9"}]
)
def test_what_is_no_table_and_no_number_of_look_ups(given):
    with pytest.raises(ValueError, match=f"{next(iter(given))} must be .*; got"):
        Lookup(**given)
