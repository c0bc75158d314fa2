"""What a sweep runs: layouts of the planner, every combination of a grid, or a list of jobs."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import Config, bpe_name, read_file
from ..data.tokenizer import load_tokenizer
from ..flops import parameter_count
from ..options import ConfigError, assign, assign_mapping, convert
from ..plan import check as check_planned
from ..planning.layouts import Machines, plan
from ..validate import Machine, check

Options = dict[str, Any]
_WAYS = ("grid", "plan", "jobs")
_PLACES = ("parallel.tp", "parallel.pp", "parallel.dp", "train.micro_batch", "train.global_batch")
# A job of a few iterations, which neither saves nor resumes nor evaluates.
_SHORT = {
    "train.skip": "",
    "train.exit_after": 0,
    "train.exit_minutes": 0,
    "checkpoint.dir": "",
    "checkpoint.load": "none",
    "evaluate.interval": 0,
    "evaluate.test": False,
    "log.interval": 1,
    "log.memory": True,
    "log.tensorboard": "",
    "log.digests": "",
}


@dataclass(frozen=True)
class Candidate:
    """One job. `options` are its own; `refused` says why the trainer would not take it; `plan` is
    the planner's seconds an iteration, where it comes from there.
    """

    options: Options
    config: Config
    ranks: int
    refused: str = ""
    plan: float | None = None

    @property
    def key(self) -> str:
        """The same for the same job: all of its options, and nothing else."""
        text = json.dumps(self.config.as_dict(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def name(self) -> str:
        """For files and schedulers."""
        p, t = self.config.parallel, self.config.train
        sizes = f"tp{p.tp}-pp{p.pp}-dp{p.dp}-mbs{t.micro_batch}-gbs{t.global_batch}"
        return f"{sizes}-{self.key[:6]}"

    @property
    def parameters(self) -> int:
        """Of the whole model."""
        m = self.config.model
        return parameter_count(m, self.config.ffn_hidden_size, m.vocab_size)


@dataclass(frozen=True)
class Sweep:
    """The file of a sweep. `gpus` are the ranks that there is room for, `node` those of one node;
    `varied` names the options that have a column of their own; `cpu`: the scheduler is asked for no
    GPU.
    """

    candidates: list[Candidate]
    gpus: int
    node: int
    varied: tuple[str, ...] = ()
    directives: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    minutes: int = 60
    cores: int = 0
    cpu: bool = False


def read_sweep(path: Path, iterations: int) -> Sweep:
    """The sweep that a file describes, `iterations` long each.

    Raises:
        ConfigError: an unknown key or option, or neither or both of `grid` and `plan`.
    """
    given = read_file(str(path))
    known = {"config", "options", "gpus", "node", "directives", "environment", "minutes", "cores"}
    known |= {"cpu", *_WAYS}
    unknown = sorted(set(given) - known)
    if unknown:
        raise ConfigError(f"{path}: no key '{unknown[0]}'; there are: {', '.join(sorted(known))}")
    if sum(way in given for way in _WAYS) != 1:
        raise ConfigError(f"{path}: give one of {', '.join(_WAYS)}")
    base = _base(path, given, iterations)
    gpus = _whole(path, given, "gpus", 0)
    if not gpus:
        raise ConfigError(f"{path}: 'gpus' is missing: how many ranks there is room for")
    node = _whole(path, given, "node", gpus)
    if "plan" in given:
        own = list(_planned(path, base, given["plan"] or {}, (gpus, node)))
        names = []
    else:
        jobs = given["jobs"] if "jobs" in given else list(_combined(path, given["grid"]))
        _check_jobs(path, jobs)
        names = [name for job in jobs for name in job if name not in _PLACES]
        usual = {name: _value(base, name) for name in names}
        own = [_candidate(base, {**usual, **job}, gpus, str(path)) for job in jobs]
    return Sweep(
        candidates=own,
        gpus=gpus,
        node=node,
        varied=tuple(dict.fromkeys(names)),
        directives=tuple(map(str, given.get("directives") or ())),
        environment={str(k): str(v) for k, v in (given.get("environment") or {}).items()},
        minutes=_whole(path, given, "minutes", 60),
        cores=_whole(path, given, "cores", 0),
        cpu=convert(given.get("cpu", False), False, f"{path}: 'cpu'"),
    )


def _value(config: Config, name: str) -> Any:
    """What an option is without a job's own; None where there is no such option."""
    section, _, field = name.rpartition(".")
    return getattr(config.sections().get(section), field, None)


def _whole(path: Path, given: Mapping[str, Any], name: str, default: int) -> int:
    value = given.get(name, default)
    if type(value) is not int or value < (name in given):
        raise ConfigError(f"{path}: '{name}' takes a whole number above 0, got '{value}'")
    return value


def _base(path: Path, given: Mapping[str, Any], iterations: int) -> Config:
    """What all jobs share: the file that `config` names, beside this one, and `options` over it."""
    config = Config()
    if given.get("config"):
        name = str(path.parent / str(given["config"]))
        assign_mapping(config.sections(), read_file(name), name)
    assign_mapping(config.sections(), given.get("options") or {}, str(path))
    _set(config, {**_SHORT, "train.iterations": iterations}, str(path))
    d = config.data
    d.tokenizer = bpe_name(d.tokenizer, d.vocab_file, d.merge_file)
    if not config.model.vocab_size:
        config.model.vocab_size = load_tokenizer(d.tokenizer).vocab_size
    return config


def _set(config: Config, options: Options, where: str) -> None:
    for name, value in options.items():
        assign(config.sections(), name, value, where)


def _check_jobs(path: Path, jobs: Any) -> None:
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise ConfigError(f"{path}: 'jobs' takes a list, options with a value each")


def _combined(path: Path, grid: Any) -> Iterator[Options]:
    """Every combination, in the order of the file."""
    if not isinstance(grid, dict):
        raise ConfigError(f"{path}: 'grid' takes options with a list of values each")
    axes = [values if isinstance(values, list) else [values] for values in grid.values()]
    for values in itertools.product(*axes):
        yield dict(zip(grid, values, strict=True))


def _candidate(
    base: Config, options: Options, gpus: int, where: str, seconds: float | None = None
) -> Candidate:
    config = copy.deepcopy(base)
    _set(config, options, where)
    p = config.parallel
    p.dp = p.dp or _replicas(config, gpus)
    ranks = p.tp * p.pp * p.dp
    refused = ""
    if ranks > gpus:
        refused = f"tp {p.tp} x pp {p.pp} x dp {p.dp} = {ranks} ranks, there is room for {gpus}"
    try:
        check(copy.deepcopy(config), Machine(ranks, has_gpu=True))
    except ConfigError as error:
        refused = refused or str(error).splitlines()[0]
    # Their batches and sequences have to come out; what is measured is the full ones.
    config.train.rampup = config.train.curriculum = ""
    return Candidate(options, config, ranks, refused, seconds)


def _replicas(config: Config, gpus: int) -> int:
    """As many as there is room for and the global batch divides by; 1 where none fits."""
    p, t = config.parallel, config.train
    room = range(gpus // (p.tp * p.pp), 0, -1)
    return next((n for n in room if t.global_batch % (n * t.micro_batch) == 0), 1)


def _planned(
    path: Path, base: Config, given: Mapping[str, Any], room: tuple[int, int]
) -> Iterator[Candidate]:
    """The planner's first layouts that are usable."""
    wanted = {field.name for field in dataclasses.fields(Machines)} - {"gpus", "node"}
    unknown = sorted(set(given) - wanted - {"micro_batches", "top"})
    if unknown:
        raise ConfigError(f"{path}: 'plan' has no key '{unknown[0]}'")
    if "memory" not in given or "tflops" not in given:
        raise ConfigError(f"{path}: 'plan' needs memory (GiB) and tflops of a GPU")
    gpus, node = room
    machines = Machines(
        gpus=gpus,
        node=node,
        memory=float(given["memory"]),
        reserve=float(given.get("reserve", 4)),
        tflops=float(given["tflops"]),
    )
    check_planned(base)
    found = plan(base, machines, given.get("micro_batches") or [1, 2, 4, 8])
    usable = [layout for layout in found if layout.is_usable]
    for layout in usable[: int(given.get("top", 8))]:
        options = {
            "parallel.tp": layout.tp,
            "parallel.pp": layout.pp,
            "parallel.dp": layout.dp,
            "train.micro_batch": layout.micro_batch,
            "model.recompute": layout.recompute == "full",
            "model.recompute_attention": layout.recompute == "attention",
        }
        yield _candidate(base, options, gpus, str(path), seconds=layout.seconds)
