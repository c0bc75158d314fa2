"""Which words of a command line are credentials, and which only sound like it."""

from __future__ import annotations

import random
import string
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoctor.text.redaction import REDACTED, arguments, code, text
from tests.support.stage import hangdoctor

HEX = "9f8a7c6b5d4e3f2a1b0c9d8e7f6a5b4c3d2e1f0a"
B64 = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

SECRETS = [
    (["--token", "abc123"], ["--token", REDACTED]),
    (["--api-key=hunter22"], [f"--api-key={REDACTED}"]),
    (["--hf_token", "x" * 12], ["--hf_token", REDACTED]),
    (["--hub-token=swordfish"], [f"--hub-token={REDACTED}"]),
    (["--wandbApiKey", "swordfish"], ["--wandbApiKey", REDACTED]),
    (["--password", "correct horse"], ["--password", REDACTED]),
    (["WANDB_API_KEY=abcdef"], [f"WANDB_API_KEY={REDACTED}"]),
    (["env", f"AWS_SECRET_ACCESS_KEY={B64}"], ["env", f"AWS_SECRET_ACCESS_KEY={REDACTED}"]),
    (["x", "hf_" + "aB3dE5gH7jK9mN1pQ3rS"], ["x", REDACTED]),
    (["sk-proj-" + "aB3dE5gH7jK9mN1pQ3rS"], [REDACTED]),
    (["ghp_" + "a1B2c3D4e5F6g7H8i9J0"], [REDACTED]),
    (["AKIAIOSFODNN7EXAMPLE"], [REDACTED]),
    (
        ["--url", "https://me:geheim@host/path?x=1"],
        ["--url", f"https://me:{REDACTED}@host/path?x=1"],
    ),
    (["https://host/x?token=geheim&step=7"], [f"https://host/x?token={REDACTED}&step=7"]),
    (["-H", "Authorization: Bearer abc.def-123"], ["-H", f"Authorization: Bearer {REDACTED}"]),
    (
        ["bash", "-c", "export WANDB_API_KEY=abc; python t.py --token xyz --seed 1"],
        ["bash", "-c", f"export WANDB_API_KEY={REDACTED}; python t.py --token {REDACTED} --seed 1"],
    ),
    (['{"api_key": "swordfish", "lr": 0.1}'], [f'{{"api_key": "{REDACTED}", "lr": 0.1}}']),
    (["--key", HEX], ["--key", REDACTED]),
    ([f"--wandb-key={HEX}"], [f"--wandb-key={REDACTED}"]),
    (["--token=hf_short", "--token"], [f"--token={REDACTED}", "--token"]),
]

ORDINARY = [
    ["--tokenizer", "gpt2"],
    ["--tokenizer-type", "GPT2BPETokenizer"],
    ["--num-key-value-heads", "8"],
    ["--seed", "1234"],
    ["--token-dropping"],
    ["--token-dropping", "--lr", "0.1"],
    ["--tokens-per-batch=4096", "--max-tokens", "1000000"],
    ["--pad-token", "<pad>", "--eos-token=</s>", "--pad_token", "[PAD]"],
    ["--vocab-file", "/data/gpt2-vocab.json", "--key-dim=128", "--kv-channels", "128"],
    ["--monkey", "business", "--keyboard=us", "--author", "someone", "--authority=me"],
    ["--secretary", "x", "--passes", "3", "--compass=north"],
    ["--data-path", "/data/sk-learn/key/file_text_document", "--split", "949,50,1"],
    [
        "--master-addr",
        "n1",
        "--master_port=29500",
        "--rdzv-endpoint=n1:29500",
        "--rdzv-id",
        "job-2026-11-21T22-30",
    ],
    ["https://host:8080/path?step=7", "s3://bucket/key/checkpoint-1200"],
    ["--name", "run-20261121-223000-abcdef", "--commit", HEX, "--key-file", "/home/me/.ssh/id"],
    ["python", "-m", "train.main", "--hidden-size", "5120", "--sequence-length=2048", "--bf16"],
    ["--next-token-loss=1.0", "--num-tokens", "512", "--token_type=word", "-token"],
    ["{'lr': 0.1, 'key': 'value', 'tokens': 12}"],
    ["risk-assessment-of-the-model", "task-switching-and-more-words"],
]


@pytest.mark.parametrize(("argv", "kept"), SECRETS, ids=lambda x: " ".join(x)[:40])
def test_credentials_are_taken_out(argv: list[str], kept: list[str]) -> None:
    assert arguments(argv) == kept
    assert arguments(kept) == kept  # nothing is taken twice


@pytest.mark.parametrize("argv", ORDINARY, ids=lambda x: " ".join(x)[:40])
def test_ordinary_arguments_stay(argv: list[str]) -> None:
    assert arguments(argv) == argv


def test_a_program_line_keeps_its_names() -> None:
    for line in (
        "token = tokens[i]",
        "api_key = os.environ['WANDB_API_KEY']",
        "loss = model(token=token)",
        "password: str = field()",
    ):
        assert code(line) == line
    assert code('login(token="swordfish", key=key)') == f'login(token="{REDACTED}", key=key)'
    assert code("wandb.login(key='" + HEX + "')") == f"wandb.login(key='{REDACTED}')"


def test_long_texts_take_no_time() -> None:
    """Texts made to keep a search busy: twice as long must not take four times as long."""
    for piece in (
        "a=",
        "--token ",
        "://a:",
        "sk-",
        "x_" * 40 + "=",
        "eyJaaaaaaaa.",
        "- ",
        "\"' = ",
        "-----BEGIN PRIVATE KEY-----",
    ):
        used = []
        for size in (40_000, 160_000):
            words = (piece * size)[:size]
            begin = time.process_time()
            text(words)
            used.append(time.process_time() - begin)
        assert used[1] < 12 * used[0] + 0.2, piece
    random.seed(7)
    for _ in range(300):
        text("".join(random.choices(string.printable, k=2000)))


def test_a_captured_rank_has_no_secret_in_its_bundle(tmp_path: Path) -> None:
    program = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', '--api-key={HEX}'])\n"
    script = tmp_path / "train.py"
    script.write_text(
        program + "print('up', flush=True)\ntime.sleep(600)  # login(token='swordfish')\n"
    )
    argv = [
        sys.executable,
        str(script),
        "--token",
        "geheim-4711",
        "--tokenizer",
        "gpt2",
        "https://me:geheim-4711@host/",
    ]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as rank:
        try:
            assert rank.stdout is not None and rank.stdout.readline() == b"up\n"
            done = hangdoctor(
                "dump",
                "--pid",
                str(rank.pid),
                "--settle",
                "0",
                "--bundle",
                "kept",
                "--json",
                "all.json",
                cwd=tmp_path,
            )
        finally:
            import os
            import signal

            os.killpg(rank.pid, signal.SIGKILL)
    files = [p for p in (tmp_path / "kept").rglob("*") if p.is_file()]
    everything = (
        b"".join(p.read_bytes() for p in files)
        + (tmp_path / "all.json").read_bytes()
        + done.stdout.encode()
    )
    assert len(files) >= 5
    assert b"gpt2" in everything and REDACTED.encode() in everything
    for secret in (b"geheim-4711", HEX.encode(), b"swordfish"):
        assert secret not in everything


RANDOM = "aB3dE5gH7jK9mN1p"  # of sixteen characters: the shortest that looks random


@pytest.mark.parametrize(
    ("name", "value", "hidden"),
    [
        ("--key", RANDOM, True),
        ("--key", RANDOM[:15], False),
        ("--key", RANDOM.replace("a", "!", 1), False),
        ("--key", "abcdefghijklmnopq", False),
        ("--key", "1234567890123456", False),
        ("--key", "aaaaaaaaaaaaaaaaaa1", False),
        ("--key-id", RANDOM, True),
        ("--key-id", "main", False),
        ("--node-id", RANDOM, False),
        ("--access-key", "main", True),
        ("--sort-key", "main", False),
        ("--sort-key", RANDOM, True),
        ("--cookie", "main", True),
        ("--token", "main", True),
        ("--pad-token", "main", False),
        ("--max-tokens", "main", False),
    ],
)
def test_what_a_name_means_for_its_value(name: str, value: str, hidden: bool) -> None:
    assert arguments([name, value]) == [name, REDACTED if hidden else value]
    assert text(f"{name} {value}") == f"{name} {REDACTED if hidden else value}"
