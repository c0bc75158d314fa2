"""The universal format: a checkpoint that any topology can load.

python -m hangdoctor.train.checkpoint.universal --input DIR/global_stepN [--output
DIR/global_stepN_universal]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from .. import deepspeed_guards
from ..model.gpt import TIED
from ..options import ConfigError
from . import files
from .writer import Writer, deepspeed_types


def universal_info(module: torch.nn.Module, tp: int, vocab_size: int) -> dict[str, Any]:
    """How each parameter of the whole model is put together from its slices, as DeepSpeed's
    converter reads it.

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
    """Patterns for the parameters of this rank's stage; what none of them matches is joined along
    dimension 0.
    """
    replicated, rows, vocabulary = set(), set(), set()
    for name, parameter in module.named_parameters():
        pattern = re.escape(name) + "$"
        untied = re.fullmatch(r"\d+\.weight", name) and parameter.dim() == 2
        if name.startswith(f"tied_modules.{TIED}.") or untied:
            vocabulary.add(pattern)
        if tp > 1 and not getattr(parameter, "tensor_model_parallel", False):
            replicated.add(pattern)
        if getattr(parameter, "partition_dim", None) == 1:
            rows.add(pattern)
    return {
        "vocabulary_parameter_patterns": vocabulary,
        "tp_replicated_parameter_patterns": replicated,
        "parameter_with_row_parallelism_patterns": rows,
    }


def convert(source: Path, target: Path) -> None:
    """Write the universal form of `source` to `target`.

    Raises:
        ConfigError: the source is torn, or does not say how its weights are cut.
    """
    saved = files.inspect(source)
    if saved.fault:
        raise ConfigError(f"{source} is torn: {saved.fault}")
    if saved.meta["config"]["parallel"]["zero_stage"] == 0:
        raise ConfigError(
            f"{source} was saved with ZeRO-0, which DeepSpeed's converter cannot read: train with zero_stage 1"
        )
    if saved.meta["config"].get("optimizer", {}).get("kind", "adam") != "adam":
        raise ConfigError(
            f"{source} has Adam's moments in 8 bits, which DeepSpeed's converter cannot read: "
            "another layout needs a checkpoint of --optimizer.kind adam"
        )
    deepspeed_guards.prepare(torch.cuda.is_available())
    from deepspeed.checkpoint import ds_to_universal

    rows = _row_patterns(source)
    options = argparse.Namespace(
        input_folder=str(source),
        output_folder=str(target),
        num_extract_workers=1,
        num_merge_workers=1,
        keep_temp_folder=False,
        strict=False,  # patterns cover all stages, a folder's optimizer states may not
        inject_missing_state=False,
    )
    with deepspeed_guards.quiet(), _no_code_in_files():
        ds_to_universal.main(options)
    _mark_rows(target, rows)
    meta = {**saved.meta, "universal": True, "files": {}}
    files.write_durably(target / files.MANIFEST, json.dumps(meta, indent=1))


@contextlib.contextmanager
def _no_code_in_files() -> Iterator[None]:
    """DeepSpeed's converter asks torch to run whatever a file pickles; here files are data only."""
    load = torch.load

    def data_only(*args: Any, **options: Any) -> Any:
        return load(*args, **{**options, "weights_only": True})

    with torch.serialization.safe_globals(deepspeed_types()):
        torch.load = data_only
        try:
            yield
        finally:
            torch.load = load


def _row_patterns(source: Path) -> list[str]:
    """Patterns of the weights that are cut along their input features; every model has some."""
    shard = Writer.load(source / "mp_rank_00_model_states.pt", map_location="cpu")
    patterns: list[str] = shard["universal_checkpoint_info"][
        "parameter_with_row_parallelism_patterns"
    ]
    if not patterns:
        raise ConfigError(
            f"{source} does not say which weights are cut along their input: it was saved with tp 1 or Ulysses by an older "
            f"trainer, and other ranks would read it wrong. Resume it on its own topology and save again"
        )
    return patterns


def _mark_rows(target: Path, patterns: list[str]) -> None:
    """The converter notes along which dimension to cut only where it joined slices; with Ulysses
    each rank had the whole.
    """
    for folder in (target / "zero").iterdir():
        if not any(re.match(p, folder.name) for p in patterns):
            continue
        for path in folder.glob("*.pt"):
            held = torch.load(path, weights_only=True)
            if isinstance(held, dict) and "param" in held and held.get("cat_dim") != 1:
                torch.save({**held, "cat_dim": 1}, path)


def load_whole(engine: Any) -> None:
    """With Ulysses a rank holds every weight whole: DeepSpeed would give it the slice of its tensor
    parallel rank.
    """
    for parameter in engine.module.parameters():
        load = parameter.load_hp_checkpoint_state
        parameter.load_hp_checkpoint_state = functools.partial(_load_whole, load)


def _load_whole(load: Any, folder: str, _rank: int, _size: int, **options: Any) -> Any:
    return load(folder, 0, 1, **options)


def main(argv: list[str] | None = None) -> int:
    """Convert a checkpoint as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hangdoctor.train.checkpoint.universal",
        description=(__doc__ or "").splitlines()[0],
    )
    parser.add_argument("--input", required=True, help="a complete global_stepN folder")
    parser.add_argument(
        "--output", default="", help="folder to write (default: the input with _universal)"
    )
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
