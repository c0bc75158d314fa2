"""Plan a training before any GPU is taken: sizes, layouts, memory, days.

    python -m hangdoctor.train.plan --layers 96 --hidden 13312 --heads 64 --vocab 150257 \\
        --gpus 384 --memory 80 --tokens 300e9 --tflops 150

Every TP x PP x DP and micro-batch that the trainer takes is listed with the memory of its fullest
stage, bubble, ramp-up and seconds an iteration: what fits first, the fastest on top. Columns with ~
are estimates. Options of the trainer go too, such as --config FILE and --model.position alibi;
without --config the sequence is 2048, the global batch 2048 and the precision bf16.
Exit codes: 0 a layout is usable, 10 none is, 2 usage.
"""

from __future__ import annotations

import argparse
import math
import sys

from .config import Config, load_config
from .flops import parameter_count
from .options import ConfigError, is_number
from .output import write_json, write_lines
from .planning import rendered
from .planning.estimates import gpu_hours, training_days
from .planning.layouts import Machines, plan, settled
from .planning.lints import lints
from .schedule import batch_size
from .validate import MODEL_RULES, Machine

NOTHING_FITS = 10
_DEFAULTS = {"model.seq_length": "2048", "train.global_batch": "2048", "train.precision": "bf16"}
_NAMES = {
    "layers": "model.layers",
    "hidden": "model.hidden_size",
    "heads": "model.heads",
    "vocab": "model.vocab_size",
    "sequence": "model.seq_length",
    "global_batch": "train.global_batch",
    "rampup": "train.rampup",
}


def positive(text: str) -> float:
    """A finite number above 0."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"takes a number above 0, got '{text}'")
    return number


def count(text: str) -> int:
    """A whole number above 0."""
    if not is_number(text) or not int(text):
        raise argparse.ArgumentTypeError(f"takes a whole number above 0, got '{text}'")
    return int(text)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m train.plan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    model = made.add_argument_group("the model")
    model.add_argument("--layers", metavar="N", help="transformer layers")
    model.add_argument("--hidden", metavar="N", help="width of the residual stream")
    model.add_argument("--heads", metavar="N", help="attention heads")
    model.add_argument("--vocab", metavar="N", help="tokens of the vocabulary")
    model.add_argument("--sequence", metavar="N", help="tokens a sample")
    work = made.add_argument_group("the training")
    work.add_argument("--tokens", type=positive, default=0.0, metavar="N", help="tokens in all")
    work.add_argument("--global-batch", metavar="N", help="samples an iteration")
    work.add_argument("--rampup", metavar="'START INCREMENT SAMPLES'", help="batch-size ramp-up")
    work.add_argument(
        "--micro-batches", default="1,2,4,8", metavar="N,N", help="to try (default 1,2,4,8)"
    )
    _machine_options(made)
    made.add_argument("--top", type=count, default=20, metavar="N", help="rows (default 20)")
    made.add_argument("--json", metavar="FILE|-", help="write all layouts as JSON")
    made.add_argument("--markdown", metavar="FILE|-", help="write the table as Markdown")
    return made


def _machine_options(made: argparse.ArgumentParser) -> None:
    there = made.add_argument_group("the machines")
    there.add_argument("--gpus", type=count, required=True, metavar="N", help="GPUs in all")
    there.add_argument(
        "--node", type=count, default=8, metavar="N", help="GPUs a node: most TP (default 8)"
    )
    there.add_argument(
        "--memory", type=positive, default=80.0, metavar="GiB", help="of a GPU (default 80)"
    )
    there.add_argument(
        "--reserve",
        type=positive,
        default=4.0,
        metavar="GiB",
        help="for CUDA, NCCL and fragments (default 4)",
    )
    there.add_argument(
        "--tflops",
        type=positive,
        required=True,
        metavar="N",
        help="TFLOP/s that a GPU reaches while it computes",
    )
    there.add_argument(
        "--sms", type=count, default=108, metavar="N", help="its multiprocessors (default 108)"
    )


def configuration(options: argparse.Namespace, rest: list[str]) -> Config:
    """What is planned: options of the trainer, and the short names of this command.

    Raises:
        ConfigError: what the trainer refuses, or no vocabulary.
    """
    has_file = any(word.partition("=")[0] == "--config" for word in rest)
    words = [] if has_file else [w for k, v in _DEFAULTS.items() for w in (f"--{k}", v)]
    for name, flag in _NAMES.items():
        value = getattr(options, name)
        if value is not None:
            words += [f"--{flag}", value]
    config = load_config([*words, *rest])
    if not config.model.vocab_size:
        raise ConfigError("--vocab is missing: how many tokens there are")
    check(config)
    return config


def check(config: Config) -> None:
    """Raises ConfigError: a model that no layout makes right, or one that is not planned here."""
    p = config.parallel
    alone = settled(config, (1, 1, 1, 1))
    complaints = [c for rule in MODEL_RULES for c in rule(alone, Machine(1, has_gpu=True))]
    if complaints:
        raise ConfigError("\n".join(complaints))
    if p.ulysses:
        raise ConfigError("--parallel.ulysses is not planned: its ranks keep weights whole")
    if p.partition != type(p)().partition:
        raise ConfigError(f"--parallel.partition {p.partition} is not planned: leave it out")
    batch_size(config.train)


def sizes_of(text: str) -> list[int]:
    """The micro-batches to try.

    Raises:
        ConfigError: no whole numbers above 0.
    """
    words = [word.strip() for word in text.split(",")]
    if not all(is_number(word) and int(word) for word in words):
        raise ConfigError(f"--micro-batches takes numbers such as 1,2,4, got '{text}'")
    return sorted({int(word) for word in words})


def summarized(config: Config, options: argparse.Namespace) -> rendered.Summary:
    """The model's size, and days and hours at best."""
    m = config.model
    parameters = parameter_count(m, config.ffn_hidden_size, m.vocab_size)
    days = hours = None
    if options.tokens:
        days = training_days(parameters, options.tokens, options.gpus, options.tflops)
        hours = gpu_hours(parameters, options.tokens, options.tflops)
    return rendered.Summary(
        parameters=parameters,
        ratio=m.hidden_size / m.layers,
        layers=m.layers,
        hidden=m.hidden_size,
        gpus=options.gpus,
        tflops=options.tflops,
        reserve=options.reserve,
        memory=options.memory,
        tokens=options.tokens,
        tokens_an_iteration=config.train.global_batch * m.seq_length,
        days=days,
        hours=hours,
    )


def planned(config: Config, options: argparse.Namespace) -> rendered.Plan:
    """The plan, with remarks on its first layout.

    Raises:
        ConfigError: see `sizes_of`.
    """
    machines = Machines(
        gpus=options.gpus,
        node=options.node,
        memory=options.memory,
        reserve=options.reserve,
        tflops=options.tflops,
    )
    layouts = plan(config, machines, sizes_of(options.micro_batches))
    remarks = []
    if layouts:
        first = layouts[0]
        own = settled(config, (first.tp, first.pp, first.dp, first.micro_batch))
        remarks = lints(own, options.sms)
    return rendered.Plan(summarized(config, options), layouts, remarks)


def main(argv: list[str] | None = None) -> int:
    """Plan and print; the exit code says whether a layout is usable."""
    made = parser()
    options, rest = made.parse_known_args(argv)
    if options.json == "-" and options.markdown == "-":
        made.error("--json - and --markdown -: only one of them can be printed")
    try:
        found = planned(configuration(options, rest), options)
        if options.json:
            write_json(options.json, rendered.data(found))
        if options.markdown:
            write_lines(options.markdown, rendered.markdown(found, options.top))
    except (ConfigError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if "-" not in (options.json, options.markdown):
        write_lines("-", rendered.table(found, options.top))
    return 0 if any(p.is_usable for p in found.layouts) else NOTHING_FITS


if __name__ == "__main__":
    sys.exit(main())
