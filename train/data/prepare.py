"""Text or JSONL to Megatron's indexed format, in parallel.

    python -m hangdoctor.train.data.prepare --input FILE_OR_FOLDER... --output PREFIX \\
        [--tokenizer byte] [--workers N]

A .jsonl file gives one document a line (its key "text"); any other file is one document.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import multiprocessing
import os
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ..config import bpe_name
from ..options import ConfigError
from .indexed import IndexedWriter, smallest_dtype
from .tokenizer import Tokenizer, load_tokenizer

_tokenizer: Tokenizer | None = None


def _start_worker(name: str) -> None:
    global _tokenizer
    _tokenizer = load_tokenizer(name)


def _encode(text: str) -> np.ndarray:
    assert _tokenizer is not None
    return np.asarray(
        [*_tokenizer.encode(text), _tokenizer.end], dtype=smallest_dtype(_tokenizer.vocab_size)
    )


def _files(inputs: list[str]) -> Iterator[Path]:
    for name in inputs:
        path = Path(name)
        if path.is_dir():
            yield from sorted(p for p in path.rglob("*") if p.is_file())
        elif path.is_file():
            yield path
        else:
            raise ConfigError(f"--input {name}: no such file or folder")


def documents(files: Iterator[Path], key: str = "text") -> Iterator[str]:
    """The texts, one by one.

    Raises:
        ConfigError: a JSONL line without the key.
    """
    for path in files:
        if path.suffix != ".jsonl":
            text = path.read_text(encoding="utf-8", errors="replace")
            if text:
                yield text
            continue
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.strip():
                    continue
                try:
                    yield json.loads(line)[key]
                except (json.JSONDecodeError, KeyError, TypeError) as error:
                    raise ConfigError(
                        f"{path}:{number}: no JSON object with '{key}' ({error})"
                    ) from error


def prepare(
    texts: Iterator[str], prefix: str, tokenizer: str, workers: int, progress: bool = False
) -> int:
    """Tokenize and write; returns the number of tokens."""
    _start_worker(tokenizer)
    assert _tokenizer is not None
    writer = IndexedWriter(prefix, smallest_dtype(_tokenizer.vocab_size))
    total = 0
    if workers > 1:
        with multiprocessing.get_context("fork").Pool(workers, _start_worker, (tokenizer,)) as pool:
            total = _write(writer, pool.imap(_encode, texts, chunksize=16), progress)
    else:
        total = _write(writer, map(_encode, texts), progress)
    writer.close()
    return total


def _write(writer: IndexedWriter, encoded: Iterator[np.ndarray], progress: bool) -> int:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    total = 0
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not progress) as bar:
        task = bar.add_task("0 documents", total=None)
        for count, tokens in enumerate(encoded, 1):
            writer.add(tokens)
            total += len(tokens)
            if count % 64 == 0:
                bar.update(task, description=f"{count} documents, {total} tokens")
    return total


def standard_library() -> Iterator[Path]:
    """The Python sources of the standard library, tests and installed packages left out."""
    root = Path(sysconfig.get_paths()["stdlib"])
    skipped = {
        "site-packages",
        "dist-packages",
        "test",
        "tests",
        "idlelib",
        "lib2to3",
        "__pycache__",
    }
    for path in sorted(root.rglob("*.py")):
        if not skipped.intersection(path.relative_to(root).parts):
            yield path


def _cache_name(tokenizer: str) -> str:
    """By content: most of these files are called tokenizer.json."""
    if tokenizer == "byte":
        return tokenizer
    load_tokenizer(tokenizer)  # says what is wrong with the files
    paths = [Path(name) for name in tokenizer.split(":")] if ":" in tokenizer else [Path(tokenizer)]
    content = b"".join(path.read_bytes() for path in paths)
    return f"{paths[0].stem}-{zlib.crc32(content):08x}"


def prepared_standard_library(cache: str, tokenizer: str) -> str:
    """Prefix of the standard library's text as tokens, made by whichever rank comes first."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = Path(cache) if cache else Path(home) / "hangdoctor-train"
    folder.mkdir(parents=True, exist_ok=True)
    prefix = folder / f"stdlib-{version}-{_cache_name(tokenizer)}"
    with Path(f"{prefix}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not Path(f"{prefix}.idx").is_file():
            prepare(documents(standard_library()), str(prefix), tokenizer, workers=1)
    return str(prefix)


def main(argv: list[str] | None = None) -> int:
    """Make a data set as the command line says; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m hangdoctor.train.data.prepare", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "--input", nargs="+", required=True, help="text files, .jsonl files, folders; or: stdlib"
    )
    parser.add_argument("--output", required=True, help="prefix of the .bin and .idx to write")
    parser.add_argument(
        "--tokenizer", default="byte", help="byte, or a tokenizers JSON file (default: byte)"
    )
    parser.add_argument("--vocab-file", default="", help="vocabulary of GPT-2's BPE")
    parser.add_argument("--merge-file", default="", help="merges of GPT-2's BPE")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)"
    )
    parser.add_argument(
        "--key", default="text", help="key of the text in a JSONL object (default: text)"
    )
    options = parser.parse_args(argv)
    try:
        tokenizer = bpe_name(options.tokenizer, options.vocab_file, options.merge_file)
        files = standard_library() if options.input == ["stdlib"] else _files(options.input)
        tokens = prepare(
            documents(files, options.key),
            options.output,
            tokenizer,
            options.workers,
            progress=True,
        )
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}.bin: {tokens} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
