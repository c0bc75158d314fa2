"""Samples of seq_length + 1 tokens from the documents of an indexed data set, shuffled anew each
epoch.

An epoch is one pass over the documents in a random order, strung together and cut into samples; the
samples are shuffled again. Sample i is a pure function of (seed, i): a resumed training asks for
the next number and gets what it would have got.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..config import DataConfig
from ..options import ConfigError
from .indexed import IndexedDataset
from .orders import Order, OrderFolder, make_order


class Samples:
    """`samples[i]`: int64 [seq_length + 1]; i has no end. Orders are in memory, but where `orders`
    says and there is much to be ordered.

    Raises:
        ConfigError: the documents do not hold one whole sample.
    """

    _KEPT = 2  # epochs at hand: loaders that prefetch across a boundary need both
    _STORED_FROM = 500_000  # numbers in an order: fewer are made in 0.1 s and take 8 MB

    def __init__(
        self,
        dataset: IndexedDataset,
        documents: range,
        seq_length: int,
        seed: int,
        orders: OrderFolder | None = None,
    ) -> None:
        self.dataset, self.seq_length, self.seed = dataset, seq_length, seed
        self._first = int(dataset.documents[documents.start])
        last = int(dataset.documents[documents.stop]) if len(documents) else self._first
        self._lengths = dataset.lengths[self._first : last]
        self._tokens = int(self._lengths.sum(dtype=np.int64))
        self.per_epoch = (self._tokens - 1) // seq_length
        if self.per_epoch < 1:
            raise ConfigError(
                f"{dataset.prefix}: documents {documents.start} to {documents.stop} have {self._tokens} tokens, and one sample "
                f"needs --model.seq_length + 1 = {seq_length + 1}: use more text or another --data.split"
            )
        is_large = len(self._lengths) + self.per_epoch >= self._STORED_FROM
        self._stored = orders if is_large else None
        self._orders: OrderedDict[int, Order] = OrderedDict()

    def order(self, number: int) -> Order:
        """The order of epoch `number`."""
        if number not in self._orders:
            self._orders[number] = self._order(number)
            while len(self._orders) > self._KEPT:
                self._orders.popitem(last=False)
        return self._orders[number]

    def _order(self, number: int) -> Order:
        def make() -> Order:
            return make_order(self._lengths, self._first, (self.seed, number), self.per_epoch)

        return make() if self._stored is None else self._stored.order(self._key(number), make)

    def _key(self, number: int) -> dict[str, Any]:
        """All that an order depends on; numpy may draw otherwise in another version."""
        index = Path(f"{self.dataset.prefix}.idx").stat()
        return {
            "index": [index.st_size, index.st_mtime_ns],
            "first": self._first,
            "sequences": len(self._lengths),
            "tokens": self._tokens,
            "samples": self.per_epoch,
            "seq_length": self.seq_length,
            "seed": self.seed,
            "epoch": number,
            "numpy": np.__version__,
        }

    def __getitem__(self, i: int) -> np.ndarray:
        epoch = self.order(i // self.per_epoch)
        start = int(epoch.samples[i % self.per_epoch]) * self.seq_length
        wanted = self.seq_length + 1
        at = int(np.searchsorted(epoch.ends, start, side="right"))
        pieces: list[np.ndarray] = []
        while wanted:
            tokens = self.dataset[int(epoch.documents[at])]
            skip = len(tokens) - (int(epoch.ends[at]) - start)
            piece = tokens[skip : skip + wanted]
            pieces.append(piece)
            wanted -= len(piece)
            start += len(piece)
            at += 1
        return np.concatenate(pieces).astype(np.int64)


def _counts(shares: np.ndarray, block: int) -> np.ndarray:
    """Samples of each part in a block: the shares rounded so that they add up."""
    counts = np.floor(shares * block).astype(np.int64)
    for j in np.argsort(counts - shares * block)[: block - int(counts.sum())]:
        counts[j] += 1
    return counts


class Blend:
    """Several `Samples` mixed by weight, exactly so in every block of samples.

    Raises:
        ConfigError: a weight so small that no block of a reasonable length holds one of its
            samples.
    """

    def __init__(self, parts: list[Samples], weights: list[float]) -> None:
        shares = np.asarray(weights, dtype=np.float64) / sum(weights)
        self._block, counts = 1000, _counts(shares, 1000)
        while not counts.all():  # a part that a block has no place for would never be read
            self._block *= 10
            if self._block > 10**7:
                raise ConfigError(
                    f"--data.path: a weight of {shares.min():.1e} of the blend is too small to be mixed in"
                )
            counts = _counts(shares, self._block)
        # The k-th of n samples of a part is due at (k + 1/2) / n of the block.
        due = np.concatenate([(np.arange(n) + 0.5) / n for n in counts])
        whose = np.concatenate([np.full(n, j) for j, n in enumerate(counts)])
        self._whose = whose[np.argsort(due, kind="stable")]
        self._nth = np.zeros(self._block, dtype=np.int64)
        for j, n in enumerate(counts):
            self._nth[self._whose == j] = np.arange(n)
        self.parts, self.counts = parts, counts

    def __getitem__(self, i: int) -> np.ndarray:
        block, place = divmod(i, self._block)
        part = int(self._whose[place])
        return self.parts[part][block * int(self.counts[part]) + int(self._nth[place])]


class Within:
    """Samples all of whose tokens the model has rows for.

    A data set of another tokenizer would end in an index error on one rank, and where the
    vocabulary is split in zeros for embeddings and an infinite loss.
    """

    def __init__(self, samples: Samples | Blend, vocab: int) -> None:
        self.samples, self.vocab = samples, vocab

    def __getitem__(self, i: int) -> np.ndarray:
        tokens = self.samples[i]
        if tokens.max() >= self.vocab or tokens.min() < 0:
            raise ValueError(
                f"sample {i} of --data.path holds token {tokens.max() if tokens.min() >= 0 else tokens.min()}, and the vocabulary "
                f"of --data.tokenizer ends at {self.vocab - 1}: use the tokenizer that the data was prepared with"
            )
        return tokens


def split_documents(count: int, shares: str) -> list[range]:
    """Documents 0..count cut into train, valid and test by shares such as "949,50,1"."""
    numbers = np.asarray([float(s) for s in shares.split(",")])
    bounds = np.concatenate([[0], np.round(np.cumsum(numbers / numbers.sum()) * count)]).astype(int)
    return [range(a, b) for a, b in pairwise(bounds)]


def parse_blend(path: str) -> list[tuple[float, str]]:
    """``PREFIX`` or ``WEIGHT PREFIX WEIGHT PREFIX ...``.

    Raises:
        ConfigError: neither.
    """
    words = path.split()
    if len(words) == 1:
        return [(1.0, words[0])]
    try:
        pairs = [(float(w), p) for w, p in zip(words[0::2], words[1::2], strict=True)]
    except ValueError:
        raise ConfigError(
            f"--data.path '{path}': write one prefix, or WEIGHT PREFIX WEIGHT PREFIX"
        ) from None
    if min(w for w, _ in pairs) <= 0:
        raise ConfigError(f"--data.path '{path}': weights must be above 0")
    return pairs


def build_samples(
    data: DataConfig, which: int, seq_length: int, seed: int, quiet: bool = False
) -> Samples | Blend:
    """The samples of one share (0 train, 1 valid, 2 test) of a data set or a blend.

    A `quiet` process does not say where orders cannot be stored.
    """
    parts, weights = [], []
    for j, (weight, prefix) in enumerate(parse_blend(data.path)):
        dataset = IndexedDataset(prefix)
        documents = split_documents(len(dataset.documents) - 1, data.split)[which]
        orders = OrderFolder.beside(data.cache, prefix, quiet)
        own_seed = seed + 7919 * j + 104_729 * which
        parts.append(Samples(dataset, documents, seq_length, own_seed, orders=orders))
        weights.append(weight)
    return parts[0] if len(parts) == 1 else Blend(parts, weights)
