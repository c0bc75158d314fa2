"""Megatron's files, sample order, blends, the sampler's place after a resume, preparing text."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.support.trainer_ranks import ROOT

torch = pytest.importorskip("torch")

from hangdoctor.train import session  # noqa: E402
from hangdoctor.train.config import Config, DataConfig, load_config  # noqa: E402
from hangdoctor.train.data.indexed import IndexedDataset, IndexedWriter, write_documents  # noqa: E402
from hangdoctor.train.data.loader import MicroBatches, token_batches  # noqa: E402
from hangdoctor.train.data.prepare import prepared_standard_library  # noqa: E402
from hangdoctor.train.data.samples import Blend, Samples, Within, build_samples, split_documents  # noqa: E402
from hangdoctor.train.data.tokenizer import ByteTokenizer, load_tokenizer  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.schedule import BatchSize  # noqa: E402
from hangdoctor.train.validate import Machine, check  # noqa: E402


def megatron_file(prefix, code: int, dtype: str, documents: list[list[int]]) -> None:
    """Both files byte by byte after the format's description, not by the writer under test."""
    body, offsets = b"", []
    for d in documents:
        offsets.append(len(body))
        body += b"".join(struct.pack(dtype, t) for t in d)
    prefix.with_suffix(".bin").write_bytes(body)
    n = len(documents)
    index = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, code, n, n + 1)
    index += struct.pack(f"<{n}i", *map(len, documents)) + struct.pack(f"<{n}q", *offsets)
    index += struct.pack(f"<{n + 1}q", *range(n + 1))
    prefix.with_suffix(".idx").write_bytes(index)


@pytest.mark.parametrize(("code", "dtype"), [(8, "<H"), (4, "<i"), (1, "<B"), (5, "<q")])
def test_reads_what_megatron_writes(code, dtype, tmp_path) -> None:
    documents = [[1, 2, 3], [250], [7, 8]]
    megatron_file(tmp_path / "m", code, dtype, documents)
    dataset = IndexedDataset(str(tmp_path / "m"))
    assert [dataset[i].tolist() for i in range(len(dataset))] == documents


@pytest.mark.parametrize("name", ["u16", "i32"])
def test_reads_files_that_megatron_made(name) -> None:
    dataset = IndexedDataset(str(ROOT / "tests" / "data" / "megatron" / name))
    sequences = [[10, 20, 30], [40], [50], [60, 70, 80, 90, 100], [110, 120], [65000, 1]]
    assert [dataset[i].tolist() for i in range(len(dataset))] == sequences
    assert list(dataset.documents) == [0, 2, 3, 5, 6]


def test_writes_what_megatron_reads(tmp_path) -> None:
    documents = [[1, 2, 3], [250], [7, 8]]
    megatron_file(tmp_path / "m", 8, "<H", documents)
    write_documents(str(tmp_path / "w"), documents, 257)
    for end in (".bin", ".idx"):
        assert (tmp_path / f"w{end}").read_bytes() == (tmp_path / f"m{end}").read_bytes()


def test_nothing_is_under_the_final_name_before_the_end(tmp_path) -> None:
    writer = IndexedWriter(str(tmp_path / "w"), np.uint16)
    writer.add([1, 2])
    assert not (tmp_path / "w.bin").exists()
    writer.close()
    assert len(IndexedDataset(str(tmp_path / "w"))) == 1


@pytest.mark.parametrize(
    ("end", "cut", "says"),
    [(".idx", -4, "cut short"), (".bin", -1, "cut short"), (".idx", 20, "cut|not an index")],
)
def test_damaged_files_are_refused(end, cut, says, tmp_path) -> None:
    write_documents(str(tmp_path / "w"), [[1, 2, 3]] * 4, 257)
    path = tmp_path / f"w{end}"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ConfigError, match=says):
        IndexedDataset(str(tmp_path / "w"))


def samples(tmp_path, count: int = 40, seq: int = 8, seed: int = 1) -> Samples:
    """Documents of different lengths whose tokens are their places in the whole text."""
    lengths = [3 + i % 7 for i in range(count)]
    starts = np.cumsum([0, *lengths])
    write_documents(str(tmp_path / "s"), [list(range(a, b)) for a, b in pairwise(starts)], 65000)
    dataset = IndexedDataset(str(tmp_path / "s"))
    return Samples(dataset, range(count), seq, seed)


def test_an_epoch_sees_every_token_once_but_the_rest(tmp_path) -> None:
    made = samples(tmp_path)
    seen = [t for i in range(made.per_epoch) for t in made[i][:-1].tolist()]
    total = int(made.dataset.lengths.sum())
    assert len(seen) == len(set(seen)) == made.per_epoch * 8 >= total - 8 - 1


def test_epochs_differ_and_samples_depend_on_their_number_only(tmp_path) -> None:
    made, again = samples(tmp_path), samples(tmp_path)
    first = [made[i].tolist() for i in range(3 * made.per_epoch)]
    assert [again[i].tolist() for i in reversed(range(3 * made.per_epoch))] == first[::-1]
    assert first[: made.per_epoch] != first[made.per_epoch : 2 * made.per_epoch]
    assert samples(tmp_path, seed=2)[0].tolist() != first[0]


def test_too_little_text_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match=r"have 3 tokens.*seq_length \+ 1 = 9"):
        samples(tmp_path, count=1)


def test_blend_keeps_its_weights_in_every_block_and_loses_no_sample() -> None:
    parts = [[("a", i) for i in range(9000)], [("b", i) for i in range(9000)]]
    blend = Blend(parts, [0.7, 0.3])
    drawn = [blend[i] for i in range(3000)]
    assert [sum(n == "a" for n, _ in drawn[k : k + 1000]) for k in (0, 1000, 2000)] == [700] * 3
    for name in "ab":
        numbers = [i for n, i in drawn if n == name]
        assert numbers == list(range(len(numbers)))
    assert 60 <= sum(n == "a" for n, _ in drawn[:100]) <= 80  # mixed, not one behind the other


def test_a_part_with_a_small_weight_is_read_too() -> None:
    parts = [[("a", i) for i in range(10000)], [("b", i) for i in range(10000)]]
    blend = Blend(parts, [1, 0.0003])
    assert sum(blend[i][0] == "b" for i in range(10000)) == 3
    with pytest.raises(ConfigError, match="too small"):
        Blend(parts, [1, 1e-12])


def test_tokens_of_another_tokenizer_are_refused(tmp_path) -> None:
    made = samples(tmp_path)
    assert Within(made, 65000)[0].tolist() == made[0].tolist()
    with pytest.raises(
        ValueError, match=r"holds token \d+, and the vocabulary of --data.tokenizer ends at 7"
    ):
        Within(made, 8)[3]


def test_data_is_looked_at_before_any_process_group(tmp_path) -> None:
    """Five documents leave none for validation, which would else be found out at the first
    evaluation.
    """
    write_documents(str(tmp_path / "w"), [[1] * 200] * 5, 257)
    here = ["--data.path", str(tmp_path / "w")]
    session.check_data(checked(*here), 0)
    with pytest.raises(ConfigError, match="documents 5 to 5 have 0 tokens"):
        session.check_data(checked(*here, "--evaluate.interval", "10"), 0)
    with pytest.raises(ConfigError, match="no file /nowhere"):
        session.check_data(checked("--data.path", "/nowhere"), 0)


def checked(*flags: str) -> Config:
    config = load_config(flags)
    check(config, Machine(1, False))
    return config


def test_splits_do_not_overlap() -> None:
    assert split_documents(1000, "949,50,1") == [range(949), range(949, 999), range(999, 1000)]


def test_a_blend_that_is_none_is_refused(tmp_path) -> None:
    with pytest.raises(ConfigError, match="WEIGHT PREFIX"):
        build_samples(DataConfig(path="0.5 a 0.5", split="1,0,0"), 0, 8, 1)


def keys(order: MicroBatches, count: int) -> list[list[tuple[int, int]]]:
    return list(islice(order, count))


def test_ranks_share_each_batch_through_the_ramp_up() -> None:
    batch = BatchSize(final=8, start=4, increment=4, ramp_samples=8)
    both = [keys(MicroBatches(batch, 2, (d, 2), (0, 0)), 4) for d in (0, 1)]
    assert both[0] == [[(1, 0), (1, 1)], [(2, 4), (2, 5)], [(3, 8), (3, 9)], [(3, 12), (3, 13)]]
    together = sorted(s for rank in both for micro in rank for _, s in micro)
    assert together == list(range(16))


def test_a_resumed_sampler_continues_where_the_first_stood() -> None:
    batch = BatchSize(final=8, start=4, increment=4, ramp_samples=8)
    whole = keys(MicroBatches(batch, 2, (1, 2), (0, 0)), 10)
    assert keys(MicroBatches(batch, 2, (1, 2), (2, 8)), 8) == whole[2:]


@pytest.mark.parametrize("workers", [0, 2])
def test_loader_delivers_in_order_and_leaves_the_dropout_stream_alone(workers, tmp_path) -> None:
    made = samples(tmp_path)
    before = torch.get_rng_state()
    batches = token_batches(made, MicroBatches(BatchSize(4), 2, (0, 1), (0, 0)), workers)
    got = [next(batches) for _ in range(5)]
    assert [b.tolist() for b in got] == [
        [made[2 * i].tolist(), made[2 * i + 1].tolist()] for i in range(5)
    ]
    assert torch.equal(torch.get_rng_state(), before)


def test_prepare_from_jsonl_and_text_in_parallel(tmp_path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "one"}\n\n{"text": "zwei ü"}\n')
    (tmp_path / "b.txt").write_text("three")
    out = str(tmp_path / "out" / "data")
    command = [
        sys.executable,
        "-m",
        "hangdoctor.train.data.prepare",
        "--workers",
        "2",
        "--output",
        out,
        "--input",
    ]
    done = subprocess.run(
        [*command, str(tmp_path / "a.jsonl"), str(tmp_path / "b.txt")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    dataset, tokenizer = IndexedDataset(out), ByteTokenizer()
    assert [tokenizer.decode(dataset[i].tolist()) for i in range(3)] == ["one", "zwei ü", "three"]
    assert [int(dataset[i][-1]) for i in range(3)] == [256] * 3
    assert dataset.dtype == np.uint16
    (tmp_path / "bad.jsonl").write_text('{"txt": 1}\n')
    bad = subprocess.run(
        [*command, str(tmp_path / "bad.jsonl")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert bad.returncode == 2
    assert "bad.jsonl:1" in bad.stderr


def tokenizer_file(path, vocabulary: dict[str, int]) -> str:
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"}
    plan = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
    }
    plan |= {
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": None,
        "decoder": None,
        "model": model,
    }
    path.write_text(json.dumps(plan))
    return str(path)


def test_a_tokenizers_file_is_used(tmp_path) -> None:
    pytest.importorskip("tokenizers")
    path = tokenizer_file(
        tmp_path / "t.json", {"[UNK]": 0, "<|endoftext|>": 1, "hello": 2, "world": 3}
    )
    tokenizer = load_tokenizer(path)
    assert (tokenizer.encode("hello world"), tokenizer.end, tokenizer.vocab_size) == ([2, 3], 1, 4)
    with pytest.raises(ConfigError, match="no file"):
        load_tokenizer(str(tmp_path / "none.json"))


def test_a_vocabulary_with_gaps_has_room_for_its_last_token(tmp_path) -> None:
    pytest.importorskip("tokenizers")
    path = tokenizer_file(tmp_path / "t.json", {"[UNK]": 0, "<|endoftext|>": 1, "hello": 9})
    assert load_tokenizer(path).vocab_size == 10


@pytest.mark.parametrize("text", ['{"a": 0, "<|endoftext|>": 1}', "[]", "no json", ""])
def test_a_vocabulary_alone_is_refused_with_what_to_do(text, tmp_path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "gpt2-vocab.json").write_text(text)
    with pytest.raises(
        ConfigError, match=r"gpt2-vocab.json is no tokenizer.json .*--data.merge_file"
    ):
        load_tokenizer(str(tmp_path / "gpt2-vocab.json"))


def test_two_tokenizers_of_one_name_do_not_share_prepared_text(tmp_path, monkeypatch) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "text.py").write_text("hello world")
    monkeypatch.setattr(
        "hangdoctor.train.data.prepare.standard_library", lambda: iter([tmp_path / "text.py"])
    )
    found = []
    for folder, words in (("a", ["hello", "world"]), ("b", ["world", "hello"])):
        (tmp_path / folder).mkdir()
        vocabulary = {w: i for i, w in enumerate(["[UNK]", "<|endoftext|>", *words])}
        path = tokenizer_file(tmp_path / folder / "tokenizer.json", vocabulary)
        found.append(
            IndexedDataset(prepared_standard_library(str(tmp_path / "cache"), path))[0].tolist()
        )
    assert found == [[2, 3, 1], [3, 2, 1]]


def gpt2_files(folder) -> tuple[str, str]:
    """A vocabulary and merges as GPT-2's are written, of a small text."""
    tokenizers = pytest.importorskip("tokenizers")
    trainer = tokenizers.ByteLevelBPETokenizer()
    trainer.train_from_iterator(
        ["def one(two):\n    return two + 1\n"] * 20,
        vocab_size=300,
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    folder.mkdir(exist_ok=True)
    vocab, merges = trainer.save_model(str(folder), "gpt2")
    return vocab, merges


def test_gpt2_by_its_vocabulary_and_merges(tmp_path) -> None:
    vocab, merges = gpt2_files(tmp_path)
    flags = ["--data.vocab_file", vocab, "--data.merge_file", merges]
    tokenizer = load_tokenizer(load_config(flags).data.tokenizer)
    text = "def two(one): return 'zwei ü'\n"
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == text and len(tokens) < len(text.encode())
    assert tokenizer.end == 0 and tokenizer.vocab_size == len(json.loads(Path(vocab).read_text()))


def test_gpt2_prepared_by_its_two_files(tmp_path) -> None:
    from hangdoctor.train.data.prepare import main

    vocab, merges = gpt2_files(tmp_path)
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "def two"}) + "\n")
    words = f"--input {tmp_path}/a.jsonl --output {tmp_path}/d --workers 1".split()
    assert main([*words, "--vocab-file", vocab, "--merge-file", merges]) == 0
    tokenizer = load_tokenizer(f"{vocab}:{merges}")
    assert IndexedDataset(str(tmp_path / "d"))[0].tolist() == [*tokenizer.encode("def two"), 0]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--data.vocab_file v.json", "belong together"),
        ("--data.merge_file m.txt", "belong together"),
        ("--data.vocab_file v --data.merge_file m --data.tokenizer t.json", "give one of the two"),
    ],
)
def test_half_a_tokenizer_is_refused(flags, says) -> None:
    with pytest.raises(ConfigError, match=says):
        load_config(flags.split())


def test_files_that_are_no_bpe_are_refused(tmp_path) -> None:
    pytest.importorskip("tokenizers")
    (tmp_path / "v.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"--data.merge_file: no file"):
        load_tokenizer(f"{tmp_path}/v.json:{tmp_path}/m.txt")
    (tmp_path / "m.txt").write_text("no merges\n")
    (tmp_path / "v.json").write_text("[1]")
    with pytest.raises(ConfigError, match="are no BPE"):
        load_tokenizer(f"{tmp_path}/v.json:{tmp_path}/m.txt")
