"""What a training is: the sections of options. `train.validate` holds the checks across them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .options import ConfigError, assign_arguments, assign_mapping, help_lines
from .sections import (
    CheckpointConfig,
    DataConfig,
    EvaluateConfig,
    LogConfig,
    ModelConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    TrainConfig,
)


@dataclass
class Config:
    """All settings of a run, by section."""

    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    data: DataConfig = field(default_factory=DataConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    log: LogConfig = field(default_factory=LogConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    run: RunConfig = field(default_factory=RunConfig)

    def sections(self) -> dict[str, Any]:
        """Section name -> section; the bare flags (--kernels, --compile, --fault) are the section ""."""
        named = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "run"}
        return {**named, "": self.run}

    def as_dict(self) -> dict[str, Any]:
        """All sections as plain data."""
        return dataclasses.asdict(self)

    @property
    def ffn_hidden_size(self) -> int:
        """Width of the MLP: as configured, else four times the hidden size."""
        return self.model.ffn_hidden_size or 4 * self.model.hidden_size

    @property
    def weight_tp(self) -> int:
        """Ranks that share one weight matrix: Ulysses leaves the weights whole."""
        return 1 if self.parallel.ulysses else self.parallel.tp

    @property
    def split_sequence(self) -> bool:
        """Whether a rank holds only its part of the sequence between the layers."""
        return self.parallel.tp > 1 and (self.parallel.sequence_parallel or self.parallel.ulysses)


USAGE = """usage: torchrun --nproc_per_node N -m hangdoctor.train --config FILE.yaml [--SECTION.NAME VALUE]...

The same under srun, mpiexec and deepspeed. A value on the command line wins over the file.
  --config FILE: YAML with the sections below (default: none, all defaults)"""


def help_text() -> str:
    """What `--help` prints: usage, and all options by section with default and range."""
    return "\n".join([USAGE, *help_lines(Config().sections())])


def load_config(argv: Sequence[str]) -> Config:
    """Configuration from the words of a command line, `--config FILE` among them.

    Raises:
        ConfigError: an unknown option, a value out of its range, or a file that is not there.
    """
    config, rest, files = Config(), list(argv), []
    for word in [w for w in rest if w == "--config" or w.startswith("--config=")]:
        at = rest.index(word)
        files.append(word.partition("=")[2] or (rest[at + 1] if at + 1 < len(rest) else ""))
        del rest[at : at + (1 if "=" in word else 2)]
    for name in files:
        assign_mapping(config.sections(), read_file(name), name)
    assign_arguments(config.sections(), rest)
    d = config.data
    d.tokenizer = bpe_name(d.tokenizer, d.vocab_file, d.merge_file)
    return config


def bpe_name(tokenizer: str, vocab_file: str, merge_file: str) -> str:
    """The tokenizer's name, which is VOCAB:MERGES where it comes in two files.

    Raises:
        ConfigError: one of them alone, or a tokenizer beside them.
    """
    if not vocab_file and not merge_file:
        return tokenizer
    both = f"{vocab_file}:{merge_file}"
    if not (vocab_file and merge_file):
        raise ConfigError("--data.vocab_file and --data.merge_file belong together: give both")
    if tokenizer not in ("byte", both):
        raise ConfigError(
            f"--data.tokenizer {tokenizer} beside --data.vocab_file and --data.merge_file: give one of the two"
        )
    return both


def read_file(name: str) -> dict[str, Any]:
    """A YAML file of options, as plain data.

    Raises:
        ConfigError: it is not there, no YAML or no mapping.
    """
    import yaml

    try:
        data = yaml.safe_load(Path(name).read_text()) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"--config {name}: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(
            f"--config {name}: it has no sections; "
            "write 'model:' and the like, options indented under them"
        )
    return data
