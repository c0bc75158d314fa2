"""What a run is called, and where its log goes."""

from __future__ import annotations

import getpass
import os
import re
import socket
import time
from pathlib import Path

from ..config import Config
from ..data.tokenizer import load_tokenizer
from ..flops import parameter_count
from ..planning.rendered import size

LOGFILES = Path("logfiles")


def run_name(config: Config) -> str:
    """The model's size and what shapes the run, such as
    gpt-13B-nl40-hs5120-seq1024-tp8-pp1-dp1-mbs1-gbs1-z1-bf16-sp-ckpt.
    """
    m, p, t = config.model, config.parallel, config.train
    vocab = m.vocab_size or load_tokenizer(config.data.tokenizer).vocab_size
    parts = [
        "gpt",
        size(parameter_count(m, config.ffn_hidden_size, vocab)),
        f"nl{m.layers}",
        f"hs{m.hidden_size}",
        f"seq{m.seq_length}",
        f"tp{p.tp}-pp{p.pp}-dp{p.dp}",
        f"mbs{t.micro_batch}-gbs{t.global_batch}",
        f"z{p.zero_stage}-{t.precision}",
    ]
    flags = {"sp": p.sequence_parallel, "ulysses": p.ulysses, "ckpt": m.recompute}
    return "-".join([*parts, *(name for name, is_on in flags.items() if is_on)])


def log_path(folder: Path, name: str, hosts: int, ranks: int) -> Path:
    """FOLDER/NAME/logs/USER-HOST-nhosts2-ranks8-2023-10-11-092906.log; another where it is there."""
    stamp = time.strftime("%Y-%m-%d-%H%M%S")
    user = re.sub(r"[^\w.-]", "_", getpass.getuser())
    stem = f"{user}-{socket.gethostname()}-nhosts{hosts}-ranks{ranks}-{stamp}"
    logs = folder.resolve() / name / "logs"
    found, number = logs / f"{stem}.log", 1
    while found.exists():
        number += 1
        found = logs / f"{stem}-{number}.log"
    return found


def note(log: Path, logfiles: Path = LOGFILES) -> None:
    """Append the log's path, so that `tail -f $(tail -1 logfiles)` follows the newest; the log is
    there from now on, also while the job waits in a queue.
    """
    log.touch()
    with os.fdopen(os.open(logfiles, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), "w") as file:
        file.write(f"{log}\n")
