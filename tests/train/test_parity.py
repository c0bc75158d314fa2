"""Every kind of parallelism gives the losses and gradient norms of a plain torch GPT on one
process.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch.nn import functional as F  # noqa: E402

pytest.importorskip("deepspeed")

from benchmarks.trainer_parity import reference  # noqa: E402
from hangdoctor.train import deepspeed_guards  # noqa: E402
from hangdoctor.train.config import load_config  # noqa: E402
from hangdoctor.train.data.indexed import write_documents  # noqa: E402
from hangdoctor.train.data.prepare import prepared_standard_library  # noqa: E402
from hangdoctor.train.data.samples import build_samples  # noqa: E402
from hangdoctor.train.flops import padded_vocab  # noqa: E402
from hangdoctor.train.generate import generate, load_model  # noqa: E402
from hangdoctor.train.hugging_face.exchange import write_model  # noqa: E402
from hangdoctor.train.kernels.registry import choose  # noqa: E402
from hangdoctor.train.model.context import ModelContext  # noqa: E402
from hangdoctor.train.model.gpt import layer_specs  # noqa: E402
from hangdoctor.train.model.whole import WholeModel, whole_context  # noqa: E402
from hangdoctor.train.random_state import RandomState  # noqa: E402
from hangdoctor.train.topology import TensorGroup  # noqa: E402
from tests.support.trainer_ranks import SMALL, metrics, observed, run_cases  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

ITERATIONS = 5
COMMON = [
    *SMALL,
    "--train.iterations",
    str(ITERATIONS),
    "--train.rampup",
    "4 4 10",
    "--optimizer.warmup_samples",
    "4",
    "--optimizer.lr",
    "5e-3",
    "--log.num_zeros",
    "true",
    "--log.params_norm",
    "true",
]
# Models that the reference follows; a case is a model, sizes and the rest.
MODELS = {
    "gpt": [],
    "modern": "--model.position rope --model.normalization rmsnorm --model.parallel_block true --model.tie_embeddings false".split(),
    "bloom": "--model.position alibi --model.embedding_norm true".split(),
    "bf16": ["--train.precision", "bf16"],
    "deep": ["--model.layers", "4"],
}
CASES = {
    "gpt_2x2x1_sequence": "--parallel.tp 2 --parallel.pp 2 --parallel.sequence_parallel true",
    "gpt_2x1x2_ulysses": "--parallel.tp 2 --parallel.ulysses true",
    "gpt_1x2x2_zero0": "--parallel.pp 2 --parallel.zero_stage 0",
    "gpt_4x1x1_uniform": "--parallel.tp 4 --parallel.partition uniform --model.attention core",
    "modern_2x2x1": "--parallel.tp 2 --parallel.pp 2 --parallel.partition parameters",
    "bloom_2x2x1_recompute": "--parallel.tp 2 --parallel.pp 2 --parallel.sequence_parallel true --model.recompute true",
    "bf16_2x2x1": "--parallel.tp 2 --parallel.pp 2",
    "gpt_1x1x4_evaluated": "--evaluate.interval 2 --evaluate.iterations 1",
    # Four stages: two that load nothing, and a last one with the output projection alone, no vector
    # beside it.
    "deep_1x4x1_evaluated": "--parallel.pp 4 --evaluate.interval 2 --evaluate.iterations 1",
    "gpt_2x1x2_chunked": "--parallel.tp 2 --parallel.sequence_parallel true --model.loss chunked",
    "modern_1x2x2_chunked": "--parallel.pp 2 --model.loss chunked",
    "gpt_2x1x2_reference_kernels": "--parallel.tp 2 --kernels reference",
}
# Documents of 3 to 12 tokens that do not see each other: the reference knows none, so that these are
# held against each other, and the first loss against the model in one process.
PACKED = {
    "packed_2x2x1_sequence": "--parallel.tp 2 --parallel.pp 2 --parallel.sequence_parallel true",
    "packed_2x1x2_ulysses": "--parallel.tp 2 --parallel.ulysses true",
    "packed_1x4x1_recompute": "--parallel.pp 4 --model.recompute true",
}
CPU = torch.device("cpu")
GIVEN_FLAGS = "--model.init_std 0.1 --model.position learned".split()
PACKED_FLAGS = (
    "--model.layers 4 --model.position rope --data.reset_position_ids true --data.reset_attention_mask true"
    " --data.eod_mask_loss true"
).split()


def flags_of(name: str) -> list[str]:
    return [*COMMON, *MODELS[name.split("_")[0]], *CASES[name].split()]


def start_weights(config, folder: Path) -> reference.Weights:
    """The model's layers, built here without an engine, through files as a checkpoint has them."""
    folder.mkdir(parents=True)
    device = torch.device("cpu")
    context = ModelContext(
        config, TensorGroup(), choose("auto", device), RandomState(1, 0, 0, 0, device), (257, 384)
    )
    for i, spec in enumerate(layer_specs(context)):
        if i == config.model.layers + 3 and config.model.tie_embeddings:
            continue
        dtype = torch.bfloat16 if config.train.precision == "bf16" else torch.float32
        torch.save(
            spec.build().to(dtype).state_dict(), folder / f"layer_{i:02d}-model_00-model_states.pt"
        )
    return reference.load_weights(folder, config.model.layers, 257)


@pytest.fixture(scope="module")
def expected(tmp_path_factory) -> dict[str, list[dict[str, float]]]:
    deepspeed_guards.prepare(False)
    torch.set_num_threads(1)
    made = {}
    for name, flags in MODELS.items():
        config = load_config([*COMMON, *flags])
        weights = start_weights(config, tmp_path_factory.mktemp("start") / name)
        config.data.path = prepared_standard_library("", "byte")
        samples = build_samples(config.data, 0, config.model.seq_length, config.train.seed)
        made[name] = reference.train(config.as_dict(), weights, samples)
    return made


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("parity")
    cases = {name: flags_of(name) for name in CASES}
    end = ["--evaluate.interval", str(ITERATIONS), "--evaluate.iterations", "1"]
    cases["modern_2x2x1"] += [*end, "--checkpoint.dir", str(folder / "saved")]
    rng = np.random.default_rng(3)
    documents = [[*rng.integers(0, 256, n), 256] for n in rng.integers(3, 12, 500)]
    write_documents(str(folder / "packed"), documents, 257)
    packed = [*COMMON, *PACKED_FLAGS, "--data.path", str(folder / "packed")]
    cases |= {name: [*packed, *flags.split()] for name, flags in PACKED.items()}
    given = [*COMMON, *GIVEN_FLAGS]
    write_model(WholeModel(whole_context(load_config(given), 257, 256, CPU)), folder / "given")
    sizes = "--train.seed 7 --parallel.tp 2 --parallel.pp 2".split()
    cases["given_2x2x1"] = [*given, *sizes, "--model.weights", str(folder / "given")]
    cases["residual_2x2x1"] = [*flags_of("bf16_2x2x1"), *"--model.fp32_residual true".split()]
    run_cases(4, cases, folder, timeout=200)
    return folder


@pytest.mark.full
def test_an_fp32_residual_stream_goes_through_stages(trained, expected) -> None:
    """Near the same model in bf16: the rest of it rounds as before."""
    found, near = metrics(trained, "residual_2x2x1"), expected["bf16"]
    for one, other in zip(found, near, strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=0.02)
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=0.05)
    assert [f["loss"] for f in found] != [m["loss"] for m in metrics(trained, "bf16_2x2x1")]


def first_loss(config, start: WholeModel) -> float:
    """Mean loss of the first global batch."""
    config.data.path = prepared_standard_library("", "byte")
    samples = build_samples(config.data, 0, config.model.seq_length, config.train.seed)
    tokens = torch.from_numpy(np.stack([samples[i] for i in range(4)]))
    logits = start(tokens[:, :-1]).detach()
    return float(F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()))


def test_a_training_starts_from_the_weights_of_a_hugging_face_folder(trained) -> None:
    """Its own seed would give other weights."""
    config = load_config([*COMMON, *GIVEN_FLAGS])
    start = WholeModel(whole_context(config, 257, 256, CPU))
    config.train.seed = 7  # the data's order is by the case's seed, the weights by the folder
    found = metrics(trained, "given_2x2x1")
    assert found[0]["loss"] == pytest.approx(first_loss(config, start), rel=1e-5)
    assert found[-1]["loss"] < found[0]["loss"]


def test_a_checkpoint_of_slices_and_stages_is_the_model_in_one_process(trained) -> None:
    model, _ = load_model(trained / "saved" / f"global_step{ITERATIONS}")
    config = model.context.config
    config.data.path = prepared_standard_library("", "byte")
    samples = build_samples(config.data, 1, config.model.seq_length, config.train.seed)
    tokens = torch.from_numpy(np.stack([samples[i] for i in range(8)]))
    logits = model(tokens[:, :-1]).detach()
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    log = (trained / "logs" / "rank0.log").read_text()
    said = log.partition(f"validation loss at iteration {ITERATIONS} | lm loss value: ")[2]
    assert float(said.split()[0]) == pytest.approx(float(loss), rel=1e-5)
    asked = [*range(65, 75)]
    greedy = list(generate(model, asked, 12))
    assert greedy == list(generate(model, asked, 12)) == list(generate(model, asked, 12, 1.0, 1))
    assert greedy[0] == int(model(torch.tensor([asked]))[0, -1].argmax())
    drawn = [list(generate(model, asked, 40, 1.5, seed=seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_documents_go_through_stages_and_slices(trained) -> None:
    config = load_config([*COMMON, *PACKED_FLAGS, "--data.path", str(trained / "packed")])
    model = WholeModel(whole_context(config, 257, 256, torch.device("cpu")))
    samples = build_samples(config.data, 0, config.model.seq_length, config.train.seed)
    tokens = torch.from_numpy(np.stack([samples[i] for i in range(4)]))
    read, labels = tokens[:, :-1], tokens[:, 1:]
    losses = F.cross_entropy(model(read).flatten(0, 1), labels.flatten(), reduction="none")
    kept = (read != 256).float()
    # Each micro-batch of one sample is a mean of its own.
    first = (losses.view_as(kept) * kept).sum(1) / kept.sum(1)
    found = {name: [line["loss"] for line in metrics(trained, name)] for name in PACKED}
    for losses_of_one in found.values():
        assert losses_of_one[0] == pytest.approx(float(first.detach().mean()), rel=1e-5)
        assert losses_of_one == pytest.approx(found["packed_1x4x1_recompute"], rel=1e-5)
        assert losses_of_one[-1] < losses_of_one[0]


@pytest.mark.parametrize("name", list(CASES))
def test_loss_and_gradient_norm_are_those_of_the_reference(name, trained, expected) -> None:
    model = name.split("_")[0]
    # Half a step of bf16: processors that multiply bf16 themselves round the products differently.
    limit = 2**-9 if model == "bf16" else 1e-5
    got, want = metrics(trained, name), expected[model]
    assert len(got) == len(want) == ITERATIONS
    assert [g["batch_size"] for g in got] == [4, 4, 4, 8, 8]
    for g, w in zip(got, want, strict=True):
        assert abs(g["loss"] - w["loss"]) <= limit * max(1.0, w["loss"])
        assert abs(g["grad_norm"] - w["grad_norm"]) <= limit * max(1.0, w["grad_norm"])
    assert want[-1]["loss"] < want[0]["loss"] - 0.05  # the comparison is of a model that learns


def test_zeros_and_the_norm_of_all_weights_are_those_of_the_whole_model(trained) -> None:
    """Every weight counts once, whatever holds it twice; zeros are the rows of the padding, which
    depends on tp: no token has them.
    """
    norms = {}
    for name in CASES:
        model, sizes = name.split("_")[:2]
        if model != "gpt":
            continue
        rows = padded_vocab(257, 128, int(sizes[0]))
        lines = metrics(trained, name)
        padding = (rows - 257) * 32
        for line in lines:  # a gradient or two may come out as zero by chance
            assert padding <= line["num_zeros"] <= padding + 5, name
        norms[name] = (rows, [line["params_norm"] for line in lines])
    for rows, found in norms.values():
        first = next(n for r, n in norms.values() if r == rows)
        assert found == pytest.approx(first, rel=1e-5)


@pytest.mark.parametrize("name", [n for n in CASES if "2x2x1" in n and not n.startswith("modern")])
def test_tied_weights_are_equal_on_first_and_last_stage_after_every_step(name, trained) -> None:
    for first, last in ((0, 2), (1, 3)):  # rank = pp * 2 + tp
        tied = [
            [s["prints"]["tied_modules.word_embedding.weight"] for s in observed(trained, name, r)]
            for r in (first, last)
        ]
        assert tied[0] == tied[1]
        assert len(set(tied[0])) == ITERATIONS  # it moved: the first step has a learning rate of 0
