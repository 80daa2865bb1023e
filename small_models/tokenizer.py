"""The two vocabularies of the shipped tasks: a character a token (48 of them), and a word a token (`sentences`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from small_models.checks import short_repr

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

Vocabulary: TypeAlias = Any  # a tokenizer of transformers, or a ShippedTokenizer
PAD, END = "<pad>", "$"
CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz=#+-:;,?. "


def build_tokenizer(tokens: Sequence[str] = CHARACTERS) -> PreTrainedTokenizerFast:
    """Return a tokenizer: id 0 pads, id 1 (`$`) ends a sequence, then `tokens` in order: characters, or words after a space."""
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate([PAD, END, *tokens])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=PAD))
    piece = r"[\s\S]" if max(map(len, tokens)) == 1 else r"\$| ?[^ $]+| "
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(piece), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )


class ShippedTokenizer:
    """The tokenizer of a shipped policy, in its folder, with as much of transformers' tokenizers as training asks for."""

    pad_token, pad_token_id, eos_token_id = PAD, 0, 1
    clean_up_tokenization_spaces = False
    chat_template = None
    all_special_ids = pad_token_id, eos_token_id
    added_tokens_decoder: Mapping[int, Any] = MappingProxyType({})

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend_tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def __call__(self, text: str, *, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids}

    def decode(self, ids: Sequence[int]) -> str:
        return self.backend_tokenizer.decode(ids, skip_special_tokens=False)


@lru_cache(maxsize=16)  # it is asked at every step
def prefix_ids(tokenizer: Vocabulary) -> list[int]:
    """Return the ids that the tokenizer puts before every text, such as Llama's and Gemma's BOS; mostly one or none."""
    alone, complete = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    return next((complete[:n] for n in range(len(complete)) if complete[n : n + len(alone)] == alone), [])


@lru_cache(maxsize=16)
def control_ids(tokenizer: Vocabulary) -> frozenset[int]:
    """Return the ids of the tokens that steer and are no text, such as <|im_end|>: the special ones, and those added as such."""
    added = {token for token, piece in tokenizer.added_tokens_decoder.items() if piece.special}
    return frozenset(tokenizer.all_special_ids) | added


def encode(tokenizer: Vocabulary, texts: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each text, no special token added.

    Raises ValueError for a text that comes back as no token, or that holds a character or a word outside a shipped vocabulary.
    """
    backend = _backend(tokenizer)
    if backend is None:
        ids = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    else:
        ids = [backend.encode(text, add_special_tokens=False).ids for text in texts]
    for text, row in zip(texts, ids, strict=True):
        if not row:
            raise ValueError(f"text {short_repr(text)} has no tokens; a prompt needs at least one")
        if tokenizer.pad_token == PAD and tokenizer.pad_token_id in row:
            engine = tokenizer.backend_tokenizer
            pieces, ids_of = {piece for piece, _ in engine.pre_tokenizer.pre_tokenize_str(text)}, engine.get_vocab()
            known = "".join(sorted(ids_of.keys() - {PAD}, key=ids_of.__getitem__))
            unknown = sorted(pieces - ids_of.keys())
            raise ValueError(f"text {short_repr(text)} holds {unknown}; this vocabulary has {known!r}")
    return ids


def decode(tokenizer: Vocabulary, rows: Sequence[Sequence[int]]) -> list[str]:
    """Return the text of each row of token ids, special tokens included."""
    backend = _backend(tokenizer)
    if backend is None or tokenizer.clean_up_tokenization_spaces:
        return tokenizer.batch_decode(rows)
    return [backend.decode(row, skip_special_tokens=False) for row in rows]


def _backend(tokenizer: Vocabulary) -> Tokenizer | None:
    """Return the tokenizer's own engine where that alone gives its ids; what stands around it takes as long for short texts."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    plain = isinstance(backend, Tokenizer) and backend.truncation is None and backend.padding is None
    return backend if plain and not getattr(tokenizer, "split_special_tokens", False) else None
