"""The universal format: a checkpoint that any topology can load.

python -m train.checkpoint.universal --input DIR/global_stepN [--output DIR/global_stepN_universal]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import deepspeed_guards
from ..model.gpt import TIED
from ..options import ConfigError
from . import files


def universal_info(module: torch.nn.Module, tp: int, vocab_size: int) -> dict[str, Any]:
    """How each parameter of the whole model is put together from its slices, as DeepSpeed's converter reads it.

    Taken from the parameters' own marks, not from a list of names that could fall behind the model.
    Collective over the world: a rank knows its own stage only, and the converter asks one of them.
    """
    everybodys: list[dict[str, set[str]]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everybodys, _own_patterns(module, tp))
    return {
        "universal_checkpoint_version": 0.2,
        "original_vocab_size": vocab_size,
        "pipeline_replicated_parameter_patterns": [re.escape(f"tied_modules.{TIED}.weight") + "$"],
        **{kind: sorted(set().union(*(p[kind] for p in everybodys))) for kind in everybodys[0]},
    }


def _own_patterns(module: torch.nn.Module, tp: int) -> dict[str, set[str]]:
    """Patterns for the parameters of this rank's stage; what none of them matches is joined along dimension 0."""
    replicated, rows, vocabulary = set(), set(), set()
    for name, parameter in module.named_parameters():
        pattern = re.escape(name) + "$"
        untied = re.fullmatch(r"\d+\.weight", name) and parameter.dim() == 2
        if name.startswith(f"tied_modules.{TIED}.") or untied:
            vocabulary.add(pattern)
        dim = getattr(parameter, "partition_dim", None)
        if dim is None and tp > 1:
            replicated.add(pattern)
        elif dim == 1:
            rows.add(pattern)
    return {
        "vocabulary_parameter_patterns": vocabulary,
        "tp_replicated_parameter_patterns": replicated,
        "parameter_with_row_parallelism_patterns": rows,
    }


def convert(source: Path, target: Path) -> None:
    """Write the universal form of `source` to `target`.

    Raises:
        ConfigError: the source is torn, or is there already in this form.
    """
    saved = files.inspect(source)
    if saved.fault:
        raise ConfigError(f"{source} is torn: {saved.fault}")
    if saved.meta["config"]["parallel"]["zero_stage"] == 0:
        raise ConfigError(f"{source} was saved with ZeRO-0, which DeepSpeed's converter cannot read: train with zero_stage 1")
    deepspeed_guards.prepare(torch.cuda.is_available())
    from deepspeed.checkpoint import ds_to_universal

    options = argparse.Namespace(
        input_folder=str(source),
        output_folder=str(target),
        num_extract_workers=1,
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=False,  # patterns cover all stages, a folder's optimizer states may not
        inject_missing_state=False,
    )
    with deepspeed_guards.quiet():
        ds_to_universal.main(options)
    meta = {**saved.meta, "universal": True, "files": {}}
    files.write_durably(target / files.MANIFEST, json.dumps(meta, indent=1))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m train.checkpoint.universal", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--input", required=True, help="a complete global_stepN folder")
    parser.add_argument("--output", default="", help="folder to write (default: the input with _universal)")
    options = parser.parse_args(argv)
    source = Path(options.input)
    target = Path(options.output or f"{options.input.rstrip('/')}_universal")
    try:
        convert(source, target)
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"wrote {target}: resume with --checkpoint.load {target} --checkpoint.universal true")
    return 0


if __name__ == "__main__":
    sys.exit(main())
