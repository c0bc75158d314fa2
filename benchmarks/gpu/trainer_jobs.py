"""Starting the trainer as a child process, on text of our own, and reading what it gives."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hangdoctor.train.data.indexed import write_documents

from .options import Options
from .processes import environment, how_it_ended, last_lines, start
from .worker import JobFailed

VOCAB, SMALL_VOCAB = 50304, 256
_DOCUMENTS, _LENGTH = 400, 4096
_END = "<|endoftext|>"


def prepare(folder: Path, options: Options) -> list[str]:
    """Random text in Megatron's format with a vocabulary of 50,304, and the flags that read it."""
    vocab = SMALL_VOCAB if options.smoke else VOCAB
    words = {_END: 0, **{f"w{i}": i for i in range(1, vocab)}}
    model = {"type": "WordLevel", "vocab": words, "unk_token": _END}
    tokenizer = folder / "tokenizer.json"
    added = {
        "id": 0,
        "content": _END,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    whole = dict.fromkeys(
        ("truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
    )
    tokenizer.write_text(
        json.dumps({"version": "1.0", **whole, "added_tokens": [added], "model": model})
    )
    random = np.random.default_rng(1)
    count = 20 if options.smoke else _DOCUMENTS
    documents = (skewed(random, vocab) for _ in range(count))
    write_documents(str(folder / "text"), documents, vocab)
    return [
        *("--data.path", str(folder / "text")),
        *("--data.tokenizer", str(tokenizer)),
        *("--data.split", "1,0,0"),
        *("--data.workers", "0"),
        *("--log.timers", "false"),
        *("--parallel.dp", "1"),
    ]


def skewed(random: np.random.Generator, vocab: int) -> np.ndarray:
    """Tokens of which some are far more frequent: a loss that falls."""
    return (vocab * random.random(_LENGTH) ** 8).astype(np.int64)


def lines(module: str, words: Sequence[str], options: Options) -> Iterator[dict[str, Any]]:
    """What a job prints, as it comes.

    Raises:
        JobFailed: it ended with an error; after the lines that it had printed.
    """
    # Products that add up in the same order each time.
    more = {**options.environment(), "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile() as error:
        process = start(
            ["-m", f"benchmarks.gpu.jobs.{module}", *words],
            env=environment(**more),
            out=subprocess.PIPE,
            error=error,
        )
        assert process.stdout is not None
        with process.stdout as out:
            for line in out:
                yield json.loads(line)
        code = process.wait()
        if code:
            error.seek(0)
            said = last_lines(error.read().decode(errors="replace"))
            raise JobFailed(f"{module} ended ({how_it_ended(code)}): {said}")


def train(
    trainings: Sequence[tuple[str, list[str]]], folder: Path, options: Options, **plan: bool
) -> Iterator[dict[str, Any]]:
    """A line for each of these trainings (name, flags), in one process."""
    file = folder / "plan.json"
    file.write_text(json.dumps({**plan, "runs": trainings}))
    yield from lines("train", [str(file)], options)
