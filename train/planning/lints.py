"""What slows a shape down on a GPU: tiles, waves, padding, limits of the fused softmax."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..config import Config
from ..flops import padded_vocab

TILE = (256, 128)  # rows and columns of the largest tile of NVIDIA's products
_FULL = 0.8  # a last wave that leaves more than a fifth of all waves idle is named
_LONGEST = 16384  # keys: apex's kernel and the trainer's; apex's first kernels end at 2048


@dataclass(frozen=True)
class Lint:
    """A remark with its arithmetic; `kind`: tile, wave, heads, vocabulary, softmax or ratio."""

    kind: str
    says: str


def lints(config: Config, sms: int) -> list[Lint]:
    """Remarks on a configuration whose tp and micro-batch are settled; `sms`: multiprocessors of
    the GPU.
    """
    found = [*_tiles(config), *_waves(config, sms), *_vocabulary(config), *_softmax(config)]
    return [*found, *_ratio(config)]


def _tiles(config: Config) -> Iterator[Lint]:
    m, tp = config.model, config.parallel.tp
    widths = {
        "hidden": m.hidden_size,
        f"hidden / tp {tp}": m.hidden_size // tp,
        f"MLP / tp {tp}": config.ffn_hidden_size // tp,
    }
    for name, value in widths.items():
        if value % 64:
            yield Lint("tile", f"{name} {value} % 64 = {value % 64}: tiles are cut off")
        elif value % 128:
            yield Lint(
                "tile", f"{name} {value} % 128 = 64: the last tile of each row is half empty"
            )
    head = m.hidden_size // m.heads
    if head % 8:
        yield Lint(
            "heads", f"head width {head} % 8 = {head % 8}: no tensor cores, no fused attention"
        )
    elif head % 64:
        yield Lint("heads", f"head width {head} % 64 = {head % 64}: padded by fused attention")


def _waves(config: Config, sms: int) -> Iterator[Lint]:
    m, tp = config.model, config.parallel.tp
    tokens = config.train.micro_batch * m.seq_length
    up = (2 if m.activation == "swiglu" else 1) * config.ffn_hidden_size // tp
    outputs = {"query-key-value": 3 * m.hidden_size // tp, "MLP up": up, "MLP down": m.hidden_size}
    for name, columns in outputs.items():
        tiles, waves, used = wave_use(tokens, columns, sms)
        if used < _FULL:
            yield Lint(
                "wave",
                f"{name}: {tokens} x {columns} is {tiles} tiles in {waves} waves of {sms}, "
                f"{used:.0%} used",
            )


def wave_use(rows: int, columns: int, sms: int) -> tuple[int, int, float]:
    """(tiles of a product's result, waves, share of the waves' places that have a tile)."""
    tiles = -(-rows // TILE[0]) * -(-columns // TILE[1])
    waves = -(-tiles // sms)
    return tiles, waves, tiles / (waves * sms)


def _vocabulary(config: Config) -> Iterator[Lint]:
    m, tp = config.model, config.parallel.tp
    rows = padded_vocab(m.vocab_size, m.vocab_multiple, tp)
    if rows != m.vocab_size:
        yield Lint(
            "vocabulary",
            f"{m.vocab_size} tokens are padded to {rows}, a multiple of {m.vocab_multiple} x {tp}",
        )


def _softmax(config: Config) -> Iterator[Lint]:
    """Limits of Megatron's fused causal softmax, which step-by-step attention takes."""
    m, length = config.model, config.model.seq_length
    if length > _LONGEST:
        yield Lint("softmax", f"sequence {length} is above the fused softmax's {_LONGEST}")
    elif length > 2048:
        yield Lint("softmax", f"sequence {length}: fused softmax kernels before 2022 end at 2048")
    if length <= 16:
        yield Lint("softmax", f"sequence {length}: the fused softmax begins at 17")
    if length % 8:
        yield Lint(
            "softmax", f"sequence {length} % 8 = {length % 8}: no tensor cores for the scores"
        )
    both = config.train.micro_batch * m.heads // config.parallel.tp
    if both % 4:
        yield Lint(
            "softmax",
            f"micro-batch x heads / tp = {both} % 4 = {both % 4}: apex's fused softmax needs 0",
        )


def _ratio(config: Config) -> Iterator[Lint]:
    m = config.model
    ratio = m.hidden_size / m.layers
    if not 100 <= ratio <= 270:
        yield Lint("ratio", f"hidden / layers {ratio:.0f}: models of 100B to 530B had 128 to 204")
