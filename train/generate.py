"""python -m hangdoctor.train.generate --checkpoint DIR/global_stepN --prompt TEXT: text from a
checkpoint, in one process, whatever layout saved it.

The likeliest token each time, or one drawn with --temperature.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from .checkpoint import files
from .config import Config
from .data.tokenizer import load_tokenizer
from .model.whole import WholeModel, load_layers, whole_context
from .options import ConfigError


def config_of(folder: Path) -> Config:
    """The configuration that a checkpoint was saved with; options that came later have defaults.

    Raises:
        ConfigError: no complete checkpoint there.
    """
    saved = files.inspect(folder)
    if saved.fault:
        raise ConfigError(f"--checkpoint {folder}: {saved.fault}")
    config = Config()
    for field in dataclasses.fields(config):
        section = getattr(config, field.name)
        known = {f.name for f in dataclasses.fields(section)}
        for name, value in saved.meta["config"].get(field.name, {}).items():
            if name in known:
                setattr(section, name, value)
    return config


def load_model(folder: Path, tokenizer: str = "") -> tuple[WholeModel, Any]:
    """The model of a checkpoint, ready to be asked, and its tokenizer.

    Raises:
        ConfigError: torn, or its tokenizer is not where it was.
    """
    config = config_of(folder)
    config.data.tokenizer = tokenizer or config.data.tokenizer
    words = load_tokenizer(config.data.tokenizer)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = WholeModel(whole_context(config, words.vocab_size, words.end, device))
    load_layers(model, folder)
    return model.to(device).eval(), words


@torch.no_grad()
def generate(
    model: WholeModel,
    tokens: list[int],
    count: int,
    temperature: float = 0.0,
    top_k: int = 0,
    seed: int = 1234,
) -> Iterator[int]:
    """Up to `count` tokens that follow `tokens`, one by one; ends at the end of the document.

    `temperature` 0 takes the likeliest; `top_k` draws among so many only.
    """
    m, device = model.context.config.model, next(model.parameters()).device
    draws = torch.Generator().manual_seed(seed)
    seen = list(tokens) or [model.context.end]
    for _ in range(count):
        window = torch.tensor([seen[-m.seq_length :]], device=device)
        logits = model(window)[0, -1].float().cpu()
        token = _choice(logits, temperature, top_k, draws)
        if token == model.context.end:
            return
        seen.append(token)
        yield token


def _choice(logits: torch.Tensor, temperature: float, top_k: int, draws: torch.Generator) -> int:
    if temperature == 0:
        return int(logits.argmax())
    if 0 < top_k < len(logits):
        least = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    return int(torch.multinomial((logits / temperature).softmax(0), 1, generator=draws))


def main(argv: list[str] | None = None) -> int:
    """Print the prompt and what follows it; 2 where the checkpoint cannot be used."""
    parser = argparse.ArgumentParser(
        prog="python -m hangdoctor.train.generate", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--checkpoint", required=True, type=Path, help="a global_stepN folder")
    parser.add_argument("--prompt", default="", help="text to go on from (default: none)")
    parser.add_argument("--tokens", type=int, default=64, help="the most to make (default: 64)")
    parser.add_argument(
        "--temperature", type=float, default=0.0, help="0: the likeliest each time (default: 0)"
    )
    parser.add_argument(
        "--top-k", type=int, default=0, help="draw among the N likeliest; 0: among all"
    )
    parser.add_argument("--seed", type=int, default=1234, help="of the draws (default: 1234)")
    parser.add_argument(
        "--tokenizer", default="", help="where the tokenizer is now (default: where it was)"
    )
    options = parser.parse_args(argv)
    try:
        model, words = load_model(options.checkpoint, options.tokenizer)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    made = generate(
        model,
        words.encode(options.prompt),
        options.tokens,
        temperature=options.temperature,
        top_k=options.top_k,
        seed=options.seed,
    )
    print(options.prompt + words.decode(list(made)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
