"""Wrong variants of weights of tokens in the batch's mean."""

from __future__ import annotations

import torch
from torch import Tensor

from rlviz.exercises.mistakes.mistake import Mistake


def every_width_the_same(mask: Tensor) -> Tensor:
    return mask.double() / mask.numel()


def sequence_weight_on_every_token(mask: Tensor) -> Tensor:
    return mask.double() / mask.any(-1).sum()


def plain_token_sum(mask: Tensor) -> Tensor:
    return mask.double()


def length_mean_kept(mask: Tensor) -> Tensor:
    responses = mask.any(-1).sum()
    return mask.double() / (mask.sum(-1, keepdim=True).clamp(min=1) * responses)


def tokens_and_sequences_swapped(mask: Tensor) -> Tensor:
    return mask.double() / mask.sum()


def nothing_divided_by_the_responses(mask: Tensor) -> Tensor:
    return mask.double() / 16


def prompts_counted_for_responses(mask: Tensor) -> Tensor:
    return mask.double() / (mask.shape[0] * 16)


def all_responses_counted(mask: Tensor) -> Tensor:
    return mask.double() / (mask[..., 0].numel() * 16)


def width_of_the_tensor_for_the_maximum(mask: Tensor) -> Tensor:
    return mask.double() / (mask.any(-1).sum() * mask.shape[-1])


def longest_response_for_the_maximum(mask: Tensor) -> Tensor:
    return mask.double() / (mask.any(-1).sum() * mask.sum(-1).max())


def responses_of_each_prompt_counted(mask: Tensor) -> Tensor:
    return mask.double() / (mask.any(-1).sum(1, keepdim=True).unsqueeze(-1).clamp(min=1) * 16)


def padding_weighs_too(mask: Tensor) -> Tensor:
    return torch.ones_like(mask, dtype=torch.double) / (mask.any(-1).sum() * 16)


def empty_responses_counted(mask: Tensor) -> Tensor:
    return mask.double() / (mask.sum(-1, keepdim=True).clamp(min=1) * mask[..., 0].numel())


PADDING_IN_THE_MEAN = Mistake(
    every_width_the_same,
    "padding leaks into the mean: you divide by the number of places, not by the number of tokens.",
)
LONG_COUNTS_MORE = Mistake(
    sequence_weight_on_every_token,
    "each token gets the weight of a whole response, so long responses count more: a (B, 1) loss times a (B, T) mask, summed.",
    "TRL, issue 3823, describes it: github.com/huggingface/trl/issues/3823",
)
TOKEN_SUM = Mistake(
    plain_token_sum,
    "you sum over tokens and divide by nothing: the size of a step then depends on how much was written.",
    "the DCPO authors' code, where the paper has Eq. 8",
)
LENGTH_MEAN = Mistake(
    length_mean_kept,
    "you divide by each response's own length: that is GRPO's mean of means, in which long responses are diluted.",
    "TRL, whose pull request 3138 asks for the missing half of Dr.GRPO: github.com/huggingface/trl/pull/3138",
)
TOKEN_MEAN_INSTEAD = Mistake(
    tokens_and_sequences_swapped,
    "you average over all tokens at once: here every *response* is averaged first, then the responses.",
)
EMPTY_COUNTED = Mistake(empty_responses_counted, "you count responses that have no token at all: leave them out of B.")
SEQUENCE_MEAN = (PADDING_IN_THE_MEAN, TOKEN_MEAN_INSTEAD, LONG_COUNTS_MORE, TOKEN_SUM, EMPTY_COUNTED)
TOKEN_MEAN = (PADDING_IN_THE_MEAN, LENGTH_MEAN, LONG_COUNTS_MORE, TOKEN_SUM)
CONSTANT = (  # for a maximum length of 16
    Mistake(
        every_width_the_same,
        "you divide by the number of places, padding included: Dr.GRPO divides by responses · 16, whatever was written.",
    ),
    Mistake(
        tokens_and_sequences_swapped,
        "you divide by the tokens of this batch, which is DAPO's mean: Dr.GRPO divides by responses · 16, whatever was written.",
    ),
    Mistake(
        length_mean_kept,
        "you divide by each response's own length, which is GRPO's mean and the bias that Dr.GRPO removes: divide by 16 instead.",
        LENGTH_MEAN.seen,
    ),
    Mistake(nothing_divided_by_the_responses, "you divide by 16 only: divide by the number of responses too."),
    Mistake(prompts_counted_for_responses, "you count prompts (dim 0): the number of responses is what divides."),
    Mistake(all_responses_counted, "you count responses that have no token at all: leave them out."),
    Mistake(
        responses_of_each_prompt_counted,
        "you count the responses of each prompt by itself: the mean is over all responses of the batch.",
    ),
    Mistake(width_of_the_tensor_for_the_maximum, "you divide by the width of the tensor: the maximum is fixed, 16."),
    Mistake(longest_response_for_the_maximum, "you divide by the longest response: the maximum is fixed, 16."),
    Mistake(padding_weighs_too, "padding gets a weight: it is 0 wherever the mask is false."),
    Mistake(
        sequence_weight_on_every_token,
        "you divide by the number of responses only: divide by the maximum length, 16, too.",
    ),
    TOKEN_SUM,
)
SEQUENCE_SUM = (TOKEN_SUM, LENGTH_MEAN, LONG_COUNTS_MORE)
