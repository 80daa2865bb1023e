"""Pairs: how they are written as tokens, sampled and labelled, and read from a file with mistakes in it."""

from math import sqrt

import pytest

from small_models.pairs import Pair, encode_pairs, encode_responses, make_pairs, read_pairs, write_pairs
from small_models.policies import build_policy, load_policy
from small_models.tasks import Chain, Grade, Trip

TINY = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def chain():
    return load_policy("chain", device="cpu")


def test_a_pair_is_a_group_of_two_with_the_chosen_one_first():
    """Each ends with its end of sequence and is padded on the right: 0 pads, 1 ends, then 0 → 2, …, a → 12, …, = → 38."""
    policy = build_policy(**TINY)
    encoded = encode_pairs(policy, [Pair("1=", "2", ""), Pair("12=", "", "0a")])
    assert encoded.prompt_ids.tolist() == [[0, 3, 38], [3, 4, 38]]
    assert encoded.prompt_mask.tolist() == [[False, True, True], [True, True, True]]
    assert encoded.tokens.tolist() == [[[4, 1, 0], [1, 0, 0]], [[1, 0, 0], [2, 12, 1]]]
    assert encoded.mask.int().tolist() == [[[1, 1, 0], [1, 0, 0]], [[1, 0, 0], [1, 1, 1]]]
    assert encode_responses(policy, [""])[0].tolist() == [[[1]]]


def test_pairs_read_back_as_they_were_written(tmp_path):
    pairs = [Pair("1=", "2", ""), Pair('say "é"\n', "a\u2028b\r", "\\"), Pair("١", "\x85", "\t")]
    write_pairs(pairs, tmp_path / "pairs.jsonl")
    assert read_pairs(tmp_path / "pairs.jsonl") == pairs
    assert [file.name for file in tmp_path.iterdir()] == ["pairs.jsonl"]
    line = b'{"prompt": "1=", "chosen": "2", "rejected": "3", "by": "me"}'  # other keys, and what editors add
    (tmp_path / "pairs.jsonl").write_bytes(b"\xef\xbb\xbf\n" + line + b"\r\n  \r\n" + line)
    assert read_pairs(str(tmp_path / "pairs.jsonl")) == [Pair("1=", "2", "3")] * 2


def test_chosen_is_right_and_rejected_wrong(chain):
    task = Chain()
    pairs = make_pairs(chain, task, 150)
    assert len(pairs) == len(set(pairs)) == 150
    assert all(task.grade(pair.prompt, pair.chosen).correct for pair in pairs)
    assert not any(task.grade(pair.prompt, pair.rejected).correct for pair in pairs)
    assert {pair.prompt for pair in pairs} <= set(task.train_prompts)
    prompts = [pair.prompt for pair in pairs]
    assert max(map(prompts.count, prompts)) <= 3 and len(set(prompts)) >= 50


def test_better_is_of_higher_quality_and_held_out_prompts_are_held_out(chain):
    task = Chain()
    pairs = make_pairs(chain, task, 150, kind="better_worse", held_out=True)
    assert all(task.quality(p.prompt, p.chosen) > task.quality(p.prompt, p.rejected) for p in pairs)
    both_right = [task.grade(p.prompt, p.chosen).correct and task.grade(p.prompt, p.rejected).correct for p in pairs]
    assert any(both_right) and not all(both_right)
    assert {pair.prompt for pair in pairs} <= set(task.held_out_prompts)


def turned(pairs, others):
    """How many pairs are turned round; all are pairs of the same two responses."""
    same = [{a.chosen, a.rejected} == {b.chosen, b.rejected} for a, b in zip(pairs, others, strict=True)]
    assert all(same) and [a.prompt for a in pairs] == [b.prompt for b in others]
    return sum(a != b for a, b in zip(pairs, others, strict=True))


def near(seen, count, share):
    """Within five standard deviations of what a binomial count would be, and not always true."""
    bound = 5 * sqrt(count * share * (1 - share))
    assert bound < count * share / 2
    return abs(seen - count * share) < bound


def short(text):
    return -len(text)


def test_noise_turns_pairs_round_and_a_taste_labels_in_place_of_the_truth_and_leaves_ties_to_it(chain):
    pairs = make_pairs(chain, Chain(), 300)
    assert near(turned(make_pairs(chain, Chain(), 300, label_noise=0.3), pairs), 300, 0.3)
    assert not set(pairs) & set(make_pairs(chain, Chain(), 60, seed=1))
    against = [len(pair.chosen) > len(pair.rejected) for pair in pairs]
    ties = [len(pair.chosen) == len(pair.rejected) for pair in pairs]
    assert sum(ties) > 0 and sum(against) > 90
    always = make_pairs(chain, Chain(), 300, spurious=1.0, taste=short)
    assert [a != b for a, b in zip(pairs, always, strict=True)] == against
    sometimes = make_pairs(chain, Chain(), 300, spurious=0.6, taste=short)
    assert near(turned(sometimes, pairs), sum(against), 0.6)
    assert near(turned(make_pairs(chain, Chain(), 300, spurious=1.0, taste=short, label_noise=0.3), always), 300, 0.3)


class EvenIsRight(Trip):
    def grade(self, prompt, response):
        return Grade(True, len(response) % 2 == 0)


def test_responses_that_were_cut_off_or_cannot_be_written_are_left_out():
    policy = build_policy(**TINY)  # untrained: every token is about as likely, padding and the end among them
    pairs = make_pairs(policy, EvenIsRight(), 100, samples_per_prompt=100, max_new_tokens=3)
    texts = [text for pair in pairs for text in (pair.chosen, pair.rejected)]
    assert max(map(len, texts)) == 2  # with their end of sequence 3
    assert not any("<" in text for text in texts)
    encode_pairs(policy, pairs)
