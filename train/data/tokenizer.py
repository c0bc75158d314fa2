"""Text to tokens: bytes by default, a `tokenizers` file otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from ..options import ConfigError


class Tokenizer(Protocol):
    """What data preparation and generation ask of a tokenizer; `end` ends a document."""

    vocab_size: int
    end: int

    def encode(self, text: str) -> list[int]:
        """Token ids of a text."""

    def decode(self, tokens: list[int]) -> str:
        """The text of token ids."""


class ByteTokenizer:
    """UTF-8 bytes are the tokens 0-255; 256 ends a document."""

    vocab_size = 257
    end = 256

    def encode(self, text: str) -> list[int]:
        """The text's UTF-8 bytes."""
        return list(text.encode("utf-8", "replace"))

    def decode(self, tokens: list[int]) -> str:
        """The text of these bytes; special tokens are left out."""
        return bytes(t for t in tokens if t < 256).decode("utf-8", "replace")


class FileTokenizer:
    """A `tokenizers` JSON file, or GPT-2's vocabulary and merges as VOCAB:MERGES.

    The end of a document is its <|endoftext|>, </s>, <eos> or [SEP], whichever it has.
    """

    def __init__(self, path: str) -> None:
        try:
            import tokenizers
        except ImportError as error:
            raise ConfigError(
                f"--data.tokenizer {path} needs the package tokenizers: pip install tokenizers"
            ) from error
        vocab, _, merges = path.partition(":")
        if merges and not Path(path).is_file():
            self._fast: Any = _of_two(tokenizers, vocab, merges)
        else:
            self._fast = _of_one(tokenizers, path)
        self.vocab_size = max(self._fast.get_vocab().values()) + 1  # the numbers may have gaps
        ends = [self._fast.token_to_id(t) for t in ("<|endoftext|>", "</s>", "<eos>", "[SEP]")]
        known = [e for e in ends if e is not None]
        if not known:
            raise ConfigError(
                f"--data.tokenizer {path} has none of <|endoftext|>, </s>, <eos>, [SEP] to end a document"
            )
        self.end = known[0]

    def encode(self, text: str) -> list[int]:
        """Token ids as the tokenizer file says, without special tokens."""
        return list(self._fast.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: list[int]) -> str:
        """The text of token ids."""
        return str(self._fast.decode(tokens))


def _of_one(tokenizers: Any, path: str) -> Any:
    if not Path(path).is_file():
        raise ConfigError(f"--data.tokenizer: no file {path}; it is 'byte' or a tokenizer.json")
    try:
        return tokenizers.Tokenizer.from_file(path)
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(
            f"--data.tokenizer {path} is no tokenizer.json ({error}). A GPT-2 vocabulary and its "
            "merges: --data.vocab_file VOCAB.json --data.merge_file MERGES.txt"
        ) from error


def _of_two(tokenizers: Any, vocab: str, merges: str) -> Any:
    for flag, path in (("vocab", vocab), ("merge", merges)):
        if not Path(path).is_file():
            raise ConfigError(f"--data.{flag}_file: no file {path}")
    try:
        return tokenizers.ByteLevelBPETokenizer(vocab, merges)
    except Exception as error:  # the library raises nothing narrower
        raise ConfigError(
            f"--data.vocab_file {vocab} and --data.merge_file {merges} are no BPE ({error})"
        ) from error


def load_tokenizer(name: str) -> Tokenizer:
    """Raises ConfigError where the file is not there or cannot be used."""
    return ByteTokenizer() if name == "byte" else FileTokenizer(name)
