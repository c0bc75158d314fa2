"""One candidate from its files to its result."""

from __future__ import annotations

import json
import re
import statistics
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import flops
from ..config import Config
from ..flops import padded_vocab
from ..submit.job import Job, rank_command
from . import results
from .candidates import Candidate, Sweep
from .launchers import Launcher
from .results import Result
from .watch import Limits, Progress, Watched, lines, watch

_NO_MEMORY = re.compile(r"out of memory|OutOfMemory|MemoryError|allocate memory|oom[-_ ]kill", re.I)
_VERDICT = re.compile(r"^hangdoctor: (.*?)(?: Details: .*)?$", re.M)
_RANK = re.compile(r"^\[\w+\]: ?")  # torch puts the rank in front of a traceback's lines
_REFUSED = re.compile(r"^error: (.*)$", re.M)


def run(
    candidate: Candidate,
    sweep: Sweep,
    launcher: Launcher,
    limits: Limits,
    *,
    folder: Path,
    stop: threading.Event,
) -> Result:
    """Start the candidate's job, wait for its end, and say what became of it.

    Raises:
        ConfigError: the launcher could not start it.
        Stopped: see `watch`.
    """
    if candidate.refused:
        return _result(candidate, sweep, results.REFUSED, note=candidate.refused)
    own = folder / candidate.name
    own.mkdir(parents=True, exist_ok=True)
    metrics = own / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    job = job_of(candidate, sweep, own)
    job.log.write_bytes(b"")
    progress = Progress(metrics, candidate.config.train.iterations)
    watched = watch(launcher, launcher.start(job), progress, limits, stop)
    return judged(candidate, sweep, watched, own)


def job_of(candidate: Candidate, sweep: Sweep, folder: Path) -> Job:
    """The candidate as a job; its configuration is written into its folder."""
    import yaml

    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(nested(candidate.config), sort_keys=False))
    nodes = nodes_of(candidate.ranks, sweep.node)
    per_node = candidate.ranks // nodes
    return Job(
        name=candidate.name,
        command=rank_command("--config", str(config), "--log.metrics", f"{folder}/metrics.jsonl"),
        nodes=nodes,
        per_node=per_node,
        log=folder / "job.log",
        # The sweep watches itself; a sidecar beside it would be a second watchdog.
        environment={"HANGDOCTOR_SIDECAR": "off", **sweep.environment},
        directives=sweep.directives,
        minutes=sweep.minutes,
        cores=sweep.cores,
        gpus=0 if sweep.cpu else per_node,
    )


def nodes_of(ranks: int, node: int) -> int:
    """The fewest nodes over which so many ranks come out even, `node` at most on each."""
    return next(n for n in range(-(-ranks // node), ranks + 1) if ranks % n == 0)


def nested(config: Config) -> dict[str, Any]:
    """As the file of --config has it: sections, and the bare options beside them."""
    plain = config.as_dict()
    return {**plain.pop("run"), **plain}


def judged(candidate: Candidate, sweep: Sweep, watched: Watched, folder: Path) -> Result:
    """What became of a job, by its metrics, its log and the verdict."""
    log = (folder / "job.log").read_text(errors="replace")
    steps = measured(folder / "metrics.jsonl")
    found: dict[str, Any] = {"log": str(folder / "job.log"), "verdict": watched.diagnosis}
    seconds = [step["seconds"] for step in steps]
    if len(seconds) > 1:
        middle = statistics.median(seconds[1:])
        found |= {"seconds": middle, "tflops": rate(candidate.config, middle)}
    if steps:
        found |= {"memory": max(step["memory_MB"] for step in steps) * 1e6, "iterations": seconds}
    if watched.is_hung or watched.is_late:
        status = results.HANG if watched.is_hung else results.TIME_LIMIT
        return _result(candidate, sweep, status, note=watched.sentence, **found)
    if len(steps) >= candidate.config.train.iterations:
        return _result(candidate, sweep, results.MEASURED, **found)
    status, note = how_it_failed(log)
    return _result(candidate, sweep, status, note=note, **found)


def how_it_failed(log: str) -> tuple[str, str]:
    """(status, note) of a job that ended before its last iteration, from its log."""
    said = _VERDICT.findall(log)
    refused = _REFUSED.findall(log)
    last = [line for line in log.splitlines() if line.strip()][-1:]
    note = (said or last or ["no output"])[-1]
    short = [line for line in log.splitlines() if _NO_MEMORY.search(line)]
    if short:
        own = _RANK.sub("", short[0]).strip()
        return results.OUT_OF_MEMORY, note if _NO_MEMORY.search(note) else own
    if refused:
        return results.REFUSED, refused[0]
    return results.FAILED, note


def measured(metrics: Path) -> list[dict[str, float]]:
    """The iterations that the job has written whole."""
    count = lines(metrics)
    text = metrics.read_text().splitlines()[:count] if count else []
    return [json.loads(line) for line in text]


def rate(config: Config, seconds: float) -> float:
    """TFLOP/s of a GPU as the trainer's own log counts them."""
    m, p = config.model, config.parallel
    vocab = padded_vocab(m.vocab_size, m.vocab_multiple, p.tp)
    done = flops.step_flops(
        m, vocab, config.train.global_batch, ffn=config.ffn_hidden_size, recompute=m.recompute
    )
    return flops.tflops(done, seconds, p.tp * p.pp * p.dp)


def _result(candidate: Candidate, sweep: Sweep, status: str, **found: Any) -> Result:
    return Result(
        key=candidate.key,
        name=candidate.name,
        status=status,
        options=candidate.options,
        sizes=sizes(candidate, sweep),
        plan=candidate.plan,
        date=time.strftime("%Y-%m-%d"),
        **found,
    )


def sizes(candidate: Candidate, sweep: Sweep) -> Mapping[str, int]:
    """The numbers of the table that are known before the job."""
    p, t = candidate.config.parallel, candidate.config.train
    return {
        "nodes": nodes_of(candidate.ranks, sweep.node),
        "parameters": candidate.parameters,
        "dp": p.dp,
        "tp": p.tp,
        "pp": p.pp,
        "micro_batch": t.micro_batch,
        "global_batch": t.global_batch,
    }
