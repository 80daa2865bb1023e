"""Models as they come from a hub: how a text begins, all that ends one, and six architectures by their own forward."""

import torch
from tokenizers import processors
from transformers import GemmaTokenizer, LlamaTokenizer

from small_models.policies import load_policy
from small_models.sampling import encode_prompts, encode_responses, sample
from small_models.tokenizer import build_tokenizer, prefix_ids
from tests.small_models.real import BOS, END, TURN, byte_tokenizer, real_policy

MANY = (END, TURN, *range(4, 84))  # a third of the vocabulary: random weights end their responses soon


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def a_real_tokenizer(kind, adds_bos):
    words = ["<pad>", "<eos>", "<bos>", "<unk>", "<s>", "</s>", "▁", *"abcdefghijklmnopqrstuvwxyz0123456789=+"]
    return kind(vocab={word: index for index, word in enumerate(words)}, merges=[], add_bos_token=adds_bos)


def test_a_text_begins_as_its_tokenizer_begins_it():
    for kind, begin in ((LlamaTokenizer, [4]), (GemmaTokenizer, [2])):
        assert prefix_ids(a_real_tokenizer(kind, True)) == begin and prefix_ids(a_real_tokenizer(kind, False)) == []
    assert prefix_ids(byte_tokenizer()) == [BOS]
    assert prefix_ids(byte_tokenizer(adds_bos=False)) == prefix_ids(build_tokenizer()) == []


def test_prompts_begin_with_bos_once_and_responses_never():
    policy = real_policy()
    ids, mask = encode_prompts(policy, ["ab", "<bos>ab", "a longer one"])
    plain = policy.tokenizer("ab", add_special_tokens=False)["input_ids"]
    assert [row[is_token].tolist() for row, is_token in zip(ids, mask, strict=True)][:2] == [[BOS, *plain]] * 2
    assert (ids == BOS).sum(-1).tolist() == [1, 1, 1]
    assert not (encode_responses(policy, ["ab", ("a", "b", "c")])[0] == BOS).any()
    ends_too = processors.TemplateProcessing(single="<bos> $A <end>", special_tokens=[("<bos>", BOS), ("<end>", END)])
    policy.tokenizer.backend_tokenizer.post_processor = ends_too
    assert encode_prompts(policy, ["ab"])[0].tolist() == [[BOS, *plain]]


def test_any_end_in_a_list_ends_a_response():
    policy = real_policy(ends=MANY)
    assert policy.end_ids == set(MANY) and policy.end_id == END  # what is written
    samples = sample(policy, ["1=", "22="], group_size=40, max_new_tokens=8, generator=seeded())
    ends = torch.isin(samples.tokens, torch.tensor(MANY)) & samples.mask
    assert (ends.sum(-1) == (~samples.truncated).long()).all()  # one, or the response was cut off
    assert (samples.lengths[samples.truncated] == 8).all()
    assert 0 < samples.truncated.sum() < samples.truncated.numel()
    ending = samples.tokens.gather(-1, samples.last_positions.unsqueeze(-1)).squeeze(-1)[~samples.truncated]
    assert ending.unique().numel() > 2
    characters = samples.lengths - (~samples.truncated).long()
    rows = zip(samples.tokens.flatten(0, 1), characters.flatten(), strict=True)
    texts = [text for group in samples.texts(policy) for text in group]
    assert texts == [policy.tokenizer.decode(row[:n]) for row, n in rows]


def test_ends_are_those_of_the_tokenizer_and_of_both_configs(tmp_path):
    for generation, config, expected in (
        (None, None, {END}),
        (TURN, None, {END, TURN}),
        (None, [TURN, 9], {END, TURN, 9}),
        ([END, TURN], 7, {END, TURN, 7}),
    ):
        policy = real_policy()
        policy.model.generation_config.eos_token_id, policy.model.config.eos_token_id = generation, config
        assert policy.end_ids == expected
        policy.save(tmp_path)
        assert load_policy(tmp_path, device="cpu").end_ids == expected
    policy.model.generation_config = policy.model.config.eos_token_id = None
    assert policy.end_ids == {END}


def test_what_a_tokenizer_tidies_up_is_left_as_it_was_written(tmp_path):
    policy = real_policy()
    policy.tokenizer.clean_up_tokenization_spaces = True  # Llama 3's tokenizer_config.json says so
    policy.save(tmp_path)
    again = load_policy(tmp_path, device="cpu")
    ids = again.tokenizer("1 , 2 .", add_special_tokens=False)["input_ids"]
    assert again.tokenizer.batch_decode([ids]) == ["1 , 2 ."]
