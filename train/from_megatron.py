"""python -m hangdoctor.train.from_megatron ARGS... : Megatron's command line as a YAML file for this
trainer.

    python -m hangdoctor.train.from_megatron pretrain_gpt.py --num-layers 24 ... > gpt.yaml
    torchrun --nproc_per_node 8 -m hangdoctor.train --config gpt.yaml

What Megatron takes by default is written out where this trainer's default differs. Flags without a
counterpart are named, and nothing is written then; exit code 2.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from .config import Config
from .megatron.translate import Translation, translate
from .options import ConfigError, assign


def yaml_lines(made: Translation) -> Iterator[str]:
    """The file's lines, notes first.

    Raises:
        ConfigError: a value that this trainer does not take.
    """
    import yaml

    yield "# Made by python -m hangdoctor.train.from_megatron"
    for note in made.notes:
        yield f"# {note}"
    sections: dict[str, dict[str, Any]] = {}
    config = Config()
    for name, value in made.options.items():
        assign(config.sections(), name, value, "Megatron's arguments")
        section, _, option = name.partition(".")
        sections.setdefault(section, {})[option] = getattr(getattr(config, section), option)
    yield yaml.safe_dump(sections, sort_keys=False).rstrip()


def main(argv: list[str] | None = None) -> int:
    """Print the YAML; 2 where something has no counterpart."""
    words = sys.argv[1:] if argv is None else argv
    if not words or "--help" in words or "-h" in words:
        print((__doc__ or "").strip())
        return 0 if words else 2
    try:
        lines = list(yaml_lines(translate(words)))
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
