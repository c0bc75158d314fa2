"""From Megatron's words to this trainer's options; nothing is dropped without a word."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..config import Config
from ..options import ConfigError, assign, is_number
from ..schedule import BatchSize, batch_size
from . import aliases


@dataclass
class Translation:
    """Options by name, and what a reader of the file should know."""

    options: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def flags_of(words: Sequence[str]) -> dict[str, list[str]]:
    """{flag without dashes: its words}. What stands before the script (a launcher and its options)
    and the script itself are left out.

    Raises:
        ConfigError: a word that belongs to no flag.
    """
    scripts = [i for i, word in enumerate(words) if word.endswith(".py")]
    found: dict[str, list[str]] = {}
    last = ""
    for word in words[scripts[0] + 1 if scripts else 0 :]:
        if word.startswith("--"):
            last, equals, value = word[2:].partition("=")
            found[last] = [value] if equals else []
        elif last:
            found[last].append(word)
        else:
            raise ConfigError(f"'{word}' is not a flag of Megatron's, and no flag is before it")
    return found


def translate(words: Sequence[str]) -> Translation:
    """What these words of Megatron's command line mean here.

    Raises:
        ConfigError: flags that have no counterpart, all of them by name, or values that do not fit.
    """
    given = flags_of(words)
    args = {name: [value] for name, value in aliases.DEFAULTS.items()} | given
    made = Translation()
    taken = {name for name in args if _plain(name, args[name], made)}
    for names, rule in _RULES:
        if any(name in args for name in names):
            rule(args, made)
        taken.update(names)
    unknown = [name for name in given if name not in taken]
    if unknown:
        lines = [_unknown(name) for name in unknown]
        raise ConfigError("\n".join([*lines, "Leave out what you can do without."]))
    _schedule(args, made)
    missing = [f"--{name}" for name in ("num-layers", "hidden-size") if name not in given]
    if missing:
        raise ConfigError(
            f"{' and '.join(missing)} not given: Megatron has no default for it either"
        )
    return made


def _plain(name: str, words: list[str], made: Translation) -> bool:
    """Whether one of the tables knows the flag."""
    if name in aliases.RENAMED:
        made.options[aliases.RENAMED[name]] = _one(name, words)
    elif name in aliases.SWITCHES:
        _none(name, words)
        option, value = aliases.SWITCHES[name]
        made.options[option] = value
    elif name in aliases.ALWAYS:
        value, known = _one(name, words), aliases.ALWAYS[name]
        if value not in known:
            raise ConfigError(f"--{name} {value}: this trainer has {', '.join(known)}")
    elif name in aliases.WITHOUT_EFFECT:
        count, why = aliases.WITHOUT_EFFECT[name]
        if len(words) != count:
            raise ConfigError(f"--{name} takes {count} values, got {len(words)}")
        made.notes.append(f"--{' '.join([name, *words])}: no effect here ({why})")
    else:
        return False
    return True


def _one(name: str, words: list[str]) -> str:
    if len(words) != 1:
        raise ConfigError(f"--{name} takes one value, got {len(words)}")
    return words[0]


def _none(name: str, words: list[str]) -> None:
    if words:
        raise ConfigError(f"--{name} takes no value, got '{' '.join(words)}'")


def _unknown(name: str) -> str:
    rules = [known for names, _ in _RULES for known in names]
    tables = (aliases.RENAMED, aliases.SWITCHES, aliases.ALWAYS, aliases.WITHOUT_EFFECT)
    known = [*rules, *(flag for table in tables for flag in table), *_SCHEDULE]
    near = difflib.get_close_matches(name, known, 1, 0.75)
    hint = f"; did you mean --{near[0]}?" if near else ""
    return f"--{name}: no counterpart in this trainer{hint}"


def _number(name: str, text: str) -> int:
    if not is_number(text):
        raise ConfigError(f"--{name} {text} is no whole number")
    return int(text)


# ------------------------------------------------------------------ flags that need a thought each

Args = dict[str, list[str]]


def _data_path(args: Args, made: Translation) -> None:
    made.options["data.path"] = " ".join(args["data-path"])


def _skip(args: Args, made: Translation) -> None:
    made.options["train.skip"] = ",".join(args["skip-train-iteration-range"])


def _positions(args: Args, made: Translation) -> None:
    wanted = _number(
        "max-position-embeddings", _one("max-position-embeddings", args["max-position-embeddings"])
    )
    length = _number("seq-length", _one("seq-length", args.get("seq-length", [str(wanted)])))
    if wanted < length:
        raise ConfigError(f"--max-position-embeddings {wanted} is below --seq-length {length}")
    if wanted > length:
        made.notes.append(
            f"--max-position-embeddings {wanted}: there are {length} positions here, one for each of --seq-length"
        )


def _swiglu_width(args: Args, made: Translation) -> None:
    """Megatron's width where none is given: two thirds of 4 x hidden, in steps of 64."""
    if "ffn-hidden-size" not in args and "hidden-size" in args:
        hidden = _number("hidden-size", _one("hidden-size", args["hidden-size"]))
        made.options["model.ffn_hidden_size"] = int(4 * hidden * 2 / 3 / 64) * 64


def _position_type(args: Args, made: Translation) -> None:
    kinds = {"rope": "rope", "rotary": "rope", "alibi": "alibi"}
    made.options["model.position"] = kinds.get(args["position-embedding-type"][0], "learned")


def _normalization(args: Args, made: Translation) -> None:
    made.options["model.normalization"] = args["normalization"][0].lower()


def _zero_stage(args: Args, made: Translation) -> None:
    made.options["parallel.zero_stage"] = args["zero-stage"][0]


def _load(args: Args, made: Translation) -> None:
    folder = _one("load", args["load"])
    if args.get("save") != [folder]:
        raise ConfigError(
            f"--load {folder} is not --save: set checkpoint.load to one checkpoint's folder in it, "
            "made by this trainer, or leave --load out"
        )


def _save(args: Args, made: Translation) -> None:
    if "load" not in args:
        made.options["checkpoint.load"] = "none"
        made.notes.append("--save without --load: each start is a new training, as Megatron's is")


def _save_interval(args: Args, made: Translation) -> None:
    made.options["checkpoint.interval"] = _one("save-interval", args["save-interval"])
    if "save" not in args:
        del made.options["checkpoint.interval"]
        made.notes.append("--save-interval: nothing is saved without --save")


def _evaluate(args: Args, made: Translation) -> None:
    shares = [share for share in args["split"][0].split(",") if share.strip()]
    if args["eval-iters"] == ["0"] or len(shares) < 2 or float(shares[1]) == 0:
        made.options.pop("evaluate.iterations", None)
        made.notes.append("no evaluation: --eval-iters is 0, or --split leaves nothing for it")
    else:
        made.options["evaluate.interval"] = _one("eval-interval", args["eval-interval"])
        if len(shares) > 2 and float(shares[2]) > 0:
            made.notes.append("no loss on the test share at the end: evaluate.test true has it")


def _exit_interval(args: Args, made: Translation) -> None:
    made.options["train.exit_after"] = _one("exit-interval", args["exit-interval"])
    made.notes.append("--exit-interval: counted from the start of each run, as train.exit_after is")


def _loss_scale(args: Args, made: Translation) -> None:
    scale = _number("initial-loss-scale", _one("initial-loss-scale", args["initial-loss-scale"]))
    power = math.log2(max(1, scale))
    if power != int(power):
        raise ConfigError(f"--initial-loss-scale {scale} is no power of 2")
    made.options["train.initial_loss_scale_power"] = int(power)


def _recompute(args: Args, made: Translation) -> None:
    kind = _one("recompute-granularity", args["recompute-granularity"])
    options = {"full": "model.recompute", "selective": "model.recompute_attention"}
    if kind not in options:
        raise ConfigError(f"--recompute-granularity {kind}: this trainer has full and selective")
    made.options[options[kind]] = True


def _recompute_how(args: Args, made: Translation) -> None:
    for name in ("recompute-method", "recompute-num-layers", "checkpoint-num-layers"):
        if name in args:
            made.notes.append(f"--{name} {_one(name, args[name])}: each layer recomputes itself")


_RULES: tuple[tuple[tuple[str, ...], Callable[[Args, Translation], None]], ...] = (
    (("data-path",), _data_path),
    (("max-position-embeddings",), _positions),
    (("swiglu",), _swiglu_width),
    (("position-embedding-type",), _position_type),
    (("normalization",), _normalization),
    (("zero-stage",), _zero_stage),
    (("load",), _load),
    (("save",), _save),
    (("save-interval",), _save_interval),
    (("eval-interval",), _evaluate),
    (("exit-interval",), _exit_interval),
    (("initial-loss-scale",), _loss_scale),
    (("recompute-granularity",), _recompute),
    (("skip-train-iteration-range",), _skip),
    (("recompute-method", "recompute-num-layers", "checkpoint-num-layers"), _recompute_how),
)
_SCHEDULE = (
    "train-iters train-samples rampup-batch-size lr-decay-iters lr-decay-samples lr-warmup-iters lr-warmup-samples "
    "lr-warmup-fraction"
).split()
_RULES += ((tuple(_SCHEDULE), lambda args, made: None),)


def _schedule(args: Args, made: Translation) -> None:
    """Megatron's iterations, samples and fractions as samples, by the batch size of each iteration."""
    options = made.options
    if "rampup-batch-size" in args:
        options["train.rampup"] = " ".join(args["rampup-batch-size"])
    batch = _batch_size(options)
    if "train-samples" in args:
        wanted = _number("train-samples", _one("train-samples", args["train-samples"]))
        options["train.iterations"] = _iterations(batch, wanted)
    elif "train-iters" in args:
        options["train.iterations"] = _number(
            "train-iters", _one("train-iters", args["train-iters"])
        )
    else:
        raise ConfigError("one of --train-iters and --train-samples is needed")
    decay = _samples(args, batch, "decay")
    if decay:
        options["optimizer.decay_samples"] = decay
    warmup = _samples(args, batch, "warmup")
    if "lr-warmup-fraction" in args:
        fraction = float(_one("lr-warmup-fraction", args["lr-warmup-fraction"]))
        warmup = int(fraction * (decay or batch.samples_after(options["train.iterations"])))
    if warmup:
        options["optimizer.warmup_samples"] = warmup


def _batch_size(options: dict[str, Any]) -> BatchSize:
    config = Config()
    if "train.global_batch" not in options:
        raise ConfigError(
            "--global-batch-size is needed: without it Megatron takes --micro-batch-size x replicas, "
            "which only the started job has"
        )
    for name in ("train.global_batch", "train.rampup"):
        if name in options:
            assign(config.sections(), name, options[name], "Megatron's arguments")
    return batch_size(config.train)


def _iterations(batch: BatchSize, samples: int) -> int:
    """Iterations until at least so many samples are consumed, as Megatron counts them."""
    iterations, consumed = 0, 0
    while consumed < min(samples, batch.ramp_samples):
        consumed += batch.at(consumed)
        iterations += 1
    return iterations + max(0, samples - consumed) // batch.final


def _samples(args: Args, batch: BatchSize, what: str) -> int:
    if f"lr-{what}-samples" in args:
        name = f"lr-{what}-samples"
        return _number(name, _one(name, args[name]))
    if f"lr-{what}-iters" in args:
        name = f"lr-{what}-iters"
        return batch.samples_after(_number(name, _one(name, args[name])))
    return 0
