"""One character, one token: a vocabulary of 48 that every shipped task is written in."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

PAD, END = "<pad>", "$"
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz=#+-:;,?. "


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return the character tokenizer: id 0 pads, id 1 (`$`) ends a sequence, then `CHARACTERS` in order."""
    vocabulary = {token: index for index, token in enumerate([PAD, END, *CHARACTERS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


def prefix_ids(tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids that the tokenizer puts before every text, such as Llama's and Gemma's BOS; mostly one or none."""
    alone, whole = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    return next((whole[:at] for at in range(len(whole)) if whole[at : at + len(alone)] == alone), [])


def encode(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text, no special token added.

    Raises ValueError for a text that comes back as no token, or that holds a character outside a character vocabulary.
    """
    ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    for text, row in zip(texts, ids, strict=True):
        if not row:
            raise ValueError(f"text {text!r} has no tokens; a prompt needs at least one")
        if tokenizer.pad_token == PAD and tokenizer.pad_token_id in row:
            unknown = sorted(set(text) - set(CHARACTERS) - {END})
            raise ValueError(f"text {text!r} holds {unknown}; this vocabulary has {CHARACTERS!r} and {END!r}")
    return ids
