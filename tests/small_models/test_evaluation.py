"""Evaluation: what it says of the responses is what their texts and a fresh forward say, at the temperature asked for."""

import pytest
import torch

from small_models.evaluation import evaluate
from small_models.policies import load_policy
from small_models.sampling import encode_prompts, encode_responses, response_logits, sample
from small_models.tasks import Chain, Lookup


def by_hand(policy, task, temperature, max_new_tokens):
    """Return shares right and well formed, mean length and entropy of the policy's own tokens, a response at a time."""
    generator = torch.Generator().manual_seed(5)
    prompts = task.held_out_prompts[:40]
    texts = sample(
        policy, prompts, task=task, max_new_tokens=max_new_tokens, temperature=temperature, generator=generator
    ).texts(policy)
    right, formed, entropies = 0, 0, []
    for prompt, (text,) in zip(prompts, texts, strict=True):
        grade = task.grade(prompt, text)
        right, formed = right + grade.correct, formed + grade.format
        tokens, mask = encode_responses(policy, [task.turns(prompt, text)])
        with torch.no_grad():
            logits = response_logits(policy, *encode_prompts(policy, [prompt]), tokens)
        written = mask[..., :max_new_tokens]  # without the end of sequence that a response which was cut off lacks
        p = (logits[..., :max_new_tokens, :][written].double() / (temperature or 1.0)).softmax(-1)
        entropies += (-(p * p.log()).sum(-1)).tolist()
    return right / 40, formed / 40, len(entropies) / 40, sum(entropies) / len(entropies)


@pytest.mark.parametrize(
    ("task", "temperature", "longest"),
    [(Chain(), 0.6, None), (Chain(), 0, None), (Lookup(), 1.0, 6)],
)
def test_it_says_what_the_responses_say(task, temperature, longest):
    policy = load_policy(task.name, device="cpu")
    expected = by_hand(policy, task, temperature, longest or task.max_new_tokens)
    result = evaluate(policy, task, temperature=temperature, num_prompts=40, max_new_tokens=longest, seed=5)
    assert (result.accuracy, result.well_formed, result.length) == pytest.approx(expected[:3])
    assert result.entropy == pytest.approx(expected[3], rel=1e-4)
