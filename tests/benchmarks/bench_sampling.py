"""Our `sample` against transformers' `generate`: 128 sequences of 32 tokens, and a real rollout of the chain task.

Fair because both start from the same prompt strings and draw from the same distribution with the same weights: plain
sampling at temperature 1, a key-value cache, one thread, and each takes a prompt once and expands it to its group.
`generate` gets its attention mask and its pad and end ids; for a fixed length its end id is None, which also spares it
the end-of-sequence checks that ours skips with `stop_at_end=False`. It returns tokens alone, so a third contender adds
the forward that turns them into what ours returns: log-probabilities and entropies.
The ratio says how many times faster ours is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from interleave import interleave, table
from torch import Tensor

from small_models.policies import Policy, build_policy, load_policy
from small_models.sampling import response_logits, sample, token_entropy, token_logp
from small_models.tasks import Chain

GROUP_SIZE = 8
OURS, GENERATE, SCORED = "sample (ours)", "generate", "generate + forward"


def contenders(
    policy: Policy, prompts: Sequence[str], max_new_tokens: int, *, stop_at_end: bool
) -> dict[str, Callable[[], object]]:
    """Return the three ways to draw a group of responses to each prompt."""
    fixed_length = {} if stop_at_end else {"min_new_tokens": max_new_tokens}

    def generate() -> tuple[Tensor, Tensor, Tensor]:
        encoded = policy.tokenizer(list(prompts), padding=True, return_tensors="pt")
        prompt_ids, prompt_mask = encoded["input_ids"], encoded["attention_mask"]
        ids = policy.model.generate(
            prompt_ids,
            attention_mask=prompt_mask,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=max_new_tokens,
            num_return_sequences=GROUP_SIZE,
            use_cache=True,
            pad_token_id=policy.pad_id,
            eos_token_id=policy.end_id if stop_at_end else None,
            **fixed_length,
        )
        return prompt_ids, prompt_mask, ids[:, prompt_ids.shape[1] :].reshape(len(prompts), GROUP_SIZE, -1)

    @torch.no_grad()
    def scored() -> tuple[Tensor, Tensor]:
        prompt_ids, prompt_mask, tokens = generate()
        logits = response_logits(policy, prompt_ids, prompt_mask.bool(), tokens)
        return token_logp(logits, tokens), token_entropy(logits)

    def ours() -> object:
        return sample(policy, prompts, group_size=GROUP_SIZE, max_new_tokens=max_new_tokens, stop_at_end=stop_at_end)

    return {OURS: ours, GENERATE: generate, SCORED: scored}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    task = Chain()
    ratios = {GENERATE: (GENERATE, OURS), SCORED: (SCORED, OURS)}

    print(f"(a) 16 prompts × {GROUP_SIZE}, 32 tokens each, untrained policy")
    fixed = contenders(build_policy(device="cpu"), task.train_prompts[:16], 32, stop_at_end=False)
    del fixed[SCORED]
    print(table(interleave(fixed, rounds=60), {GENERATE: ratios[GENERATE]}))

    print(f"(b, c) chain rollout: 32 prompts × {GROUP_SIZE}, at most {task.max_new_tokens} tokens, warm-started policy")
    policy = load_policy("chain", device="cpu")
    rollout = contenders(policy, task.train_prompts[:32], task.max_new_tokens, stop_at_end=True)
    print(table(interleave(rollout, rounds=80), ratios))
    print("Ours returns log-probabilities and entropies from the same pass; generate returns tokens alone.")


if __name__ == "__main__":
    main()
