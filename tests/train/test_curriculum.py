"""Sequences that grow: the lengths are DeepSpeed's, a step is one on shorter batches, stages and a
restart change nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")

from deepspeed.runtime.data_pipeline.curriculum_scheduler import CurriculumScheduler  # noqa: E402

from hangdoctor.train.config import Config, load_config  # noqa: E402
from hangdoctor.train.curriculum import sequence_length  # noqa: E402
from hangdoctor.train.options import ConfigError  # noqa: E402
from hangdoctor.train.schedule import BatchSize, LearningRate, learning_rate  # noqa: E402
from hangdoctor.train.train_state import TrainState  # noqa: E402
from hangdoctor.train.validate import Machine, check  # noqa: E402
from tests.support.trainer_ranks import SMALL, metrics, observed, run_cases  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.timeout(240)]

ITERATIONS = 6
LENGTHS = [8, 16, 16, 24, 32, 32]  # 8 + 24 n / 5, down to a multiple of 8
BATCHES = [4, 4, 4, 8, 8, 8]
TOKENS = [size * length for size, length in zip(BATCHES, LENGTHS, strict=True)]
COMMON = [*SMALL, *f"--train.iterations {ITERATIONS} --optimizer.lr 5e-3".split()]
CURRICULUM = ["--train.curriculum", "fixed_linear 8 32 5 8"]
RAMP = ["--train.rampup", "4 4 10"]
BY_TOKENS = "--optimizer.warmup_tokens 100 --optimizer.decay_tokens 700".split()
STAGES = "--parallel.tp 2 --parallel.pp 2 --parallel.sequence_parallel true".split()


@pytest.mark.parametrize(
    "words",
    ["64 2048 1000 8", "8 1024 777 8", "128 2048 60000 64", "80 80 5 16", "7 700 99 7"],
)
def test_lengths_are_those_of_deepspeed(words: str) -> None:
    start, full, steps, multiple = map(int, words.split())
    ours = sequence_length(f"fixed_linear {words}", full)
    theirs = CurriculumScheduler(
        {
            "min_difficulty": start,
            "max_difficulty": full,
            "schedule_type": "fixed_linear",
            "schedule_config": {"total_curriculum_step": steps, "difficulty_step": multiple},
        }
    )
    numbers = [*range(1, steps + 3, max(1, steps // 1500)), steps, steps + 1]
    assert [ours.at(n) for n in numbers] == [theirs.get_difficulty(n) for n in numbers]
    assert ours.at(steps) == full and set(map(ours.at, numbers)) <= set(ours.lengths())


def refusal(words: str, *flags: str) -> str:
    config = load_config(["--train.curriculum", words, "--model.seq_length", "2048", *flags])
    with pytest.raises(ConfigError) as caught:
        check(config, Machine(4, False))
    return str(caught.value)


def test_what_does_not_come_out_is_refused_with_its_arithmetic() -> None:
    assert "takes 'fixed_linear START FULL STEPS MULTIPLE'" in refusal("fixed_root 64 2048 9 8")
    assert "takes 'fixed_linear" in refusal("fixed_linear 64 2048 9")
    assert "ends at 1024, and --model.seq_length is 2048" in refusal("fixed_linear 64 1024 9 8")
    assert "START 60 % MULTIPLE 8 = 4" in refusal("fixed_linear 60 2048 9 8")
    assert "START must be 1 to 2048" in refusal("fixed_linear 4096 2048 9 8")
    assert "STEPS and MULTIPLE 1 or more" in refusal("fixed_linear 64 2048 9 0")
    split = "--parallel.tp 4 --parallel.sequence_parallel true".split()
    assert "MULTIPLE 2 % --parallel.tp 4 = 2" in refusal("fixed_linear 64 2048 9 2", *split)
    assert "has 9 lengths" in refusal("fixed_linear 64 2048 9 8", "--compile", "inductor")
    both = "--optimizer.warmup_tokens 9 --optimizer.decay_samples 9".split()
    assert "by tokens or by samples" in refusal("fixed_linear 64 2048 9 8", *both)


def test_the_learning_rate_by_tokens_ends_with_the_training() -> None:
    optimizer = Config().optimizer
    optimizer.lr, optimizer.warmup_tokens, optimizer.decay_style = 1.0, 100, "linear"
    lengths = sequence_length("fixed_linear 8 32 5 8", 32)
    batch = BatchSize(final=8, start=4, increment=4, ramp_samples=10)
    total = lengths.tokens_after(ITERATIONS, batch)
    assert total == sum(TOKENS)
    assert lengths.tokens_after(3, batch) == sum(TOKENS[:3])
    rate = learning_rate(optimizer, 36, total)
    found = [rate.at(10**6, tokens) for tokens in (0, 50, 100, (total + 100) // 2, total)]
    assert found == [0.0, 0.5, 1.0, 0.5, 0.0]
    assert learning_rate(Config().optimizer, 36, total).decay_tokens == 0


def test_a_checkpoint_of_before_tokens_were_counted_had_full_sequences() -> None:
    old = {"iteration": 3, "consumed_samples": 24, "scheduled_samples": 16}
    state = TrainState.restored(old, 32)
    assert (state.consumed_tokens, state.scheduled_tokens) == (768, 512)
    assert TrainState.restored(state.as_dict(), 64) == state


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four ranks: with the curriculum, cut by hand, by tokens, over stages, and resumed on its way."""
    folder = tmp_path_factory.mktemp("curriculum")
    stages = [*COMMON, *CURRICULUM, *RAMP, *BY_TOKENS, *STAGES, "--model.hidden_dropout", "0"]
    saving = ["--checkpoint.dir", str(folder / "saved"), "--checkpoint.interval", "2"]
    evaluated = "--evaluate.interval 1 --evaluate.iterations 1".split()
    resumed = ["--checkpoint.load", str(folder / "saved" / "global_step2")]
    cut = ["--by-hand", ",".join(map(str, LENGTHS)), "2"]
    run_cases(
        4,
        {
            "curriculum": [*COMMON, *CURRICULUM],
            "cut": [*cut, *COMMON],
            "tokens": [*COMMON, *CURRICULUM, *RAMP, *BY_TOKENS],
            "stages": [*stages, *saving, *evaluated],
            "resumed": [*stages, *resumed],
        },
        folder,
        timeout=200,
    )
    return folder


def losses(folder: Path, name: str) -> list[tuple[float, float]]:
    return [(line["loss"], line["grad_norm"]) for line in metrics(folder, name)]


def test_a_step_is_one_on_shorter_batches_to_the_bit(trained: Path) -> None:
    assert losses(trained, "curriculum") == losses(trained, "cut")
    prints = [observed(trained, name, 0)[-1]["prints"] for name in ("curriculum", "cut")]
    assert prints[0] and prints[0] == prints[1]
    assert [line["curriculum_seqlen"] for line in metrics(trained, "curriculum")] == LENGTHS


def test_stages_and_slices_follow_the_length(trained: Path) -> None:
    """Evaluations between the steps are on full sequences: they change no step."""
    found, wanted = losses(trained, "stages"), losses(trained, "tokens")
    for one, other in zip(found, wanted, strict=True):
        assert one == pytest.approx(other, rel=1e-5)
    log = (trained / "logs" / "rank0.log").read_text()
    assert log.count("validation loss at iteration") == ITERATIONS
    assert " | curriculum seqlen:    24 | " in log


def test_a_restart_on_the_way_goes_on_as_if_it_had_not_been(trained: Path) -> None:
    whole, resumed = metrics(trained, "stages"), metrics(trained, "resumed")
    kept = ("iteration", "loss", "grad_norm", "learning_rate", "consumed_tokens", "batch_size")
    assert [[line[name] for name in kept] for line in resumed] == [
        [line[name] for name in kept] for line in whole[2:]
    ]


def test_the_learning_rate_follows_the_tokens_that_were_trained_on(trained: Path) -> None:
    lines = metrics(trained, "tokens")
    consumed = [sum(TOKENS[: n + 1]) for n in range(ITERATIONS)]
    assert [line["consumed_tokens"] for line in lines] == consumed
    rate = LearningRate(5e-3, 0.0, 100, 700, "cosine")  # the same numbers, as samples
    wanted = [rate.at(tokens) for tokens in (0, *consumed[:-1])]
    assert [line["learning_rate"] for line in lines] == pytest.approx(wanted)
