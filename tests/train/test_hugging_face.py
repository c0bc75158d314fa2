"""Weights to Hugging Face's shapes and back; the logits are those of `transformers`, where it is."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.hugging_face import __main__ as command  # noqa: E402
from hangdoctor.train.hugging_face.exchange import (  # noqa: E402
    fill_layers,
    options_of,
    read_model,
    write_model,
)
from hangdoctor.train.hugging_face.tensors import (  # noqa: E402
    read_safetensors,
    write_safetensors,
)
from hangdoctor.train.model.whole import WholeModel, whole_context  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.topology import TensorGroup  # noqa: E402

ROOT = Path(__file__).parents[2]
BESIDE = ROOT / ".frameworks" / "site-packages"
SIZES = "--model.layers 2 --model.hidden_size 32 --model.heads 4 --model.seq_length 16 --model.init_std 0.2"
LLAMA = (
    "--model.position rope --model.normalization rmsnorm --model.activation swiglu --model.linear_bias false"
    " --model.ffn_hidden_size 48 --model.rotary_base 500 --model.norm_eps 1e-6"
)
SHAPES = {
    "gpt2": "",
    "gpt2 exact, untied": "--model.activation gelu --model.tie_embeddings false",
    "llama": f"{LLAMA} --model.tie_embeddings false",
    "llama tied": LLAMA,
}
VOCAB = 300
TOKENS = torch.arange(32).view(2, 16) * 7 % VOCAB
# What `transformers` says of a folder; for "make", of a small Llama whose heads share keys, which it
# writes itself.
THEIRS = """
import sys, torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
folder, tokens, out, make = sys.argv[1:]
if make == "make":
    torch.manual_seed(5)
    config = LlamaConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, vocab_size=300,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=16, initializer_range=0.2)
    LlamaForCausalLM(config).save_pretrained(folder)
model, loading = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
assert not loading["missing_keys"] and not loading["unexpected_keys"], loading
with torch.no_grad():
    torch.save(model.float().eval()(torch.load(tokens)).logits, out)
"""


def model(flags: str, vocab: int = VOCAB) -> WholeModel:
    config = load_config(f"{SIZES} {flags}".split())
    made = WholeModel(whole_context(config, vocab, 0, torch.device("cpu"))).eval()
    for parameter in made.parameters():
        if parameter.dim() == 1:  # ones and zeros at the start would hide what is mixed up
            parameter.data += (
                torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1)) / 5
            )
    return made


def reread(folder: Path) -> WholeModel:
    """The model of a folder, by nothing but what `import` says of it."""
    config = load_config([])
    for name, value in options_of(folder).items():
        setattr(config.model, name, value)
    made = WholeModel(whole_context(config, VOCAB, 0, torch.device("cpu"))).eval()
    layers = dict(made.stack.named_parameters())
    fill_layers(layers, read_model(folder, config), TensorGroup(), VOCAB)
    return made


@pytest.mark.parametrize("shape", list(SHAPES))
def test_there_and_back_is_the_same_model(shape: str, tmp_path: Path) -> None:
    ours = model(SHAPES[shape])
    write_model(ours, tmp_path / "m")
    assert torch.equal(reread(tmp_path / "m")(TOKENS), ours(TOKENS))


def theirs(folder: Path, work: Path, make: bool = False) -> torch.Tensor:
    torch.save(TOKENS, work / "tokens.pt")
    env = os.environ | {"PYTHONPATH": f"{ROOT}:{BESIDE}", "HF_HUB_OFFLINE": "1"}
    words = [str(folder), str(work / "tokens.pt"), str(work / "out.pt"), "make" if make else "-"]
    done = subprocess.run(
        [sys.executable, "-c", THEIRS, *words],
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(work / "out.pt", weights_only=True)


needs_transformers = pytest.mark.skipif(
    not (BESIDE / "transformers").is_dir(), reason="no transformers (scripts/setup-frameworks)"
)


@needs_transformers
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "shape",
    ["gpt2", "llama", *(pytest.param(s, marks=pytest.mark.full) for s in list(SHAPES)[1::2])],
)
def test_logits_are_those_of_transformers(shape: str, tmp_path: Path) -> None:
    ours = model(SHAPES[shape])
    write_model(ours, tmp_path / "m")
    found = theirs(tmp_path / "m", tmp_path)
    assert float(found.std()) > 0.3
    assert torch.allclose(found, ours(TOKENS), atol=1e-5)


@needs_transformers
@pytest.mark.timeout(300)
def test_a_model_that_transformers_wrote(tmp_path: Path) -> None:
    """With keys and values that two heads share."""
    found = theirs(tmp_path / "m", tmp_path, make=True)
    assert torch.allclose(found, reread(tmp_path / "m")(TOKENS), atol=1e-5)


def test_slices_of_tensor_parallel_ranks_are_of_one_model(tmp_path: Path) -> None:
    """Each rank of two takes its part; together they are what one rank has."""
    whole = model(SHAPES["llama"])
    write_model(whole, tmp_path / "m")
    weights = read_model(tmp_path / "m", whole.context.config)
    for name, parameter in whole.stack.named_parameters():
        dim = getattr(parameter, "partition_dim", None)
        if dim is None:
            continue
        parts = []
        for rank in range(2):
            part = torch.nn.Parameter(torch.zeros_like(parameter.chunk(2, dim)[rank]))
            part.partition_dim = dim
            fill_layers({name: part}, weights, TensorGroup(rank, 2), VOCAB)
            parts.append(part.data)
        real = VOCAB if name.count(".") == 1 else None
        assert torch.equal(torch.cat(parts, dim)[:real], parameter[:real]), name


def test_a_stage_takes_its_own_layers_alone(tmp_path: Path) -> None:
    for shape in ("gpt2", "llama"):
        made = model(SHAPES[shape])
        write_model(made, tmp_path / shape)
        weights = read_model(tmp_path / shape, made.context.config, {0, 1, 3})
        numbers = {name.partition(".")[0] for name in weights}
        assert "3" in numbers and "2" not in numbers
        embedding = weights["0.weight"]
        assert embedding.untyped_storage().nbytes() > 2 * embedding.nbytes, "mapped, not copied"


def test_the_options_of_a_folder_are_yaml(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(model(LLAMA), tmp_path / "m")
    assert command.main(["import", "--input", str(tmp_path / "m")]) == 0
    (tmp_path / "m.yaml").write_text(capsys.readouterr().out)
    made = load_config(["--config", str(tmp_path / "m.yaml")]).model
    assert (made.layers, made.activation, made.rotary_base) == (2, "swiglu", 500.0)
    assert made.weights == str(tmp_path / "m")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model_type": "bert"}, "model_type bert; known are gpt2, llama"),
        ({"rope_parameters": {"rope_type": "llama3"}}, "rope_type llama3"),
        ({"attention_bias": True}, "attention_bias"),
        ({"head_dim": 16}, "head_dim 16"),
        ({"hidden_act": "relu"}, "hidden_act relu"),
    ],
)
def test_a_model_that_is_none_of_ours_is_refused(change, says, tmp_path, capsys) -> None:
    write_model(model(LLAMA), tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    assert command.main(["import", "--input", str(tmp_path / "m")]) == 2
    assert says in capsys.readouterr().err


def test_a_model_that_neither_shape_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"gpt2 has no model.position alibi; llama has no "):
        write_model(model("--model.position alibi"), tmp_path / "m")


def test_another_configuration_or_vocabulary_is_refused(tmp_path: Path) -> None:
    write_model(model(""), tmp_path / "m")
    other = load_config(f"{SIZES} --model.layers 3".split())
    with pytest.raises(ConfigError, match=r"model.layers is 2, here 3"):
        read_model(tmp_path / "m", other)
    larger = model("", vocab=500)
    weights = read_model(tmp_path / "m", larger.context.config)
    with pytest.raises(ConfigError, match=r"has 300 tokens, --data.tokenizer 500"):
        fill_layers(dict(larger.stack.named_parameters()), weights, TensorGroup(), 500)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_safetensors_of_every_kind(kind: torch.dtype, tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6, dtype=kind).view(2, 3), "b.c": torch.ones(3, dtype=kind)}
    write_safetensors(tmp_path / "t.safetensors", tensors)
    found = read_safetensors(tmp_path / "t.safetensors")
    assert list(found) == ["a", "b.c"]
    assert all(torch.equal(found[n], t) and found[n].dtype == kind for n, t in tensors.items())


HEADER = {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (HEADER, b"1234"),
        ({"a": {**HEADER["a"], "data_offsets": [0, 4]}}, b"12345678"),
        ({"a": {**HEADER["a"], "data_offsets": [-8, 0]}}, b"12345678"),
        ({"a": {**HEADER["a"], "dtype": "I9"}}, b"12345678"),
        ({"a": []}, b"12345678"),
        ([], b""),
    ],
)
def test_damaged_safetensors_are_refused(header, data: bytes, tmp_path: Path) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "t.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    with pytest.raises(ConfigError, match="is damaged, or no safetensors file"):
        read_safetensors(path)
    path.write_bytes(struct.pack("<Q", 1 << 62) + text)
    with pytest.raises(ConfigError, match="is damaged"):
        read_safetensors(path)
    path.write_bytes(b"")
    with pytest.raises(ConfigError, match="is damaged"):
        read_safetensors(path)
