"""Titles of the processes of vLLM and SGLang."""

from __future__ import annotations

import pytest

from hangdoctor.readers import served_titles
from hangdoctor.readers.served_titles import Title


def numbered(*titles: str) -> list[int] | None:
    return served_titles.ranks([served_titles.read(title) for title in titles])


@pytest.mark.parametrize(
    ("title", "kind"),
    [
        ("VLLM::Worker", "worker"),
        ("VLLM::Worker_DP0_PP1_TP0_EP4", "worker"),
        ("VLLM::EngineCore", "engine"),
        ("VLLM::EngineCore_DP1", "engine"),
        ("VLLM::EngineCore_0", "engine"),
        ("VLLM::APIServer_1", "other"),
        ("VLLM::DPCoordinator", "other"),
        ("sglang::scheduler_TP0", "worker"),
        ("sglang::scheduler_DP1_PP0_ATTN_CP0_MOE_DP1_TP3_EP3", "worker"),
        ("sglang::scheduler", "worker"),
        ("sglang::detokenizer", "other"),
        ("sglang::data_parallel_controller", "other"),
        ("sglang::tokenizer_worker:77", "other"),
    ],
)
def test_who_is_a_worker(title: str, kind: str) -> None:
    found = served_titles.read(title)
    assert found is not None and found.kind == kind


@pytest.mark.parametrize(
    "title",
    [
        "python train.py",
        "",
        "VLLM",
        "my VLLM::Worker_TP0",
        "VLLM::Worker_TP0 --x",
        "VLLM::" + "W" * 99,
    ],
)
def test_other_programs_have_no_such_title(title: str) -> None:
    assert served_titles.read(title) is None


def test_the_rank_is_the_place_along_all_axes() -> None:
    assert numbered("VLLM::Worker_TP1", "VLLM::Worker_TP0") == [1, 0]
    pipeline = [f"VLLM::Worker_PP{p}_TP{t}" for p in (1, 0) for t in (1, 0)]
    assert numbered(*pipeline) == [3, 2, 1, 0]
    replicas = [f"VLLM::Worker_DP{d}_TP{t}_EP{2 * d + t}" for d in (0, 1) for t in (0, 1)]
    assert numbered(*replicas) == [0, 1, 2, 3]
    # One replica of two is on this node
    assert numbered("VLLM::Worker_DP1_TP0", "VLLM::Worker_DP1_TP1") == [2, 3]
    assert numbered("VLLM::EngineCore_DP1", "VLLM::EngineCore_DP0") == [1, 0]


def test_data_parallel_attention_divides_the_ranks_of_tensor_parallelism() -> None:
    assert numbered(*[f"sglang::scheduler_DP{n // 2}_TP{n}" for n in range(4)]) == [0, 1, 2, 3]
    two_servers = [f"sglang::scheduler_DP{d}_TP{t}" for d in (0, 1) for t in (0, 1)]
    assert numbered(*two_servers) == [0, 1, 2, 3]


def test_no_number_is_invented() -> None:
    assert numbered("VLLM::Worker", "VLLM::Worker") is None
    assert numbered("VLLM::Worker_TP0", "VLLM::Worker_TP0") is None
    assert numbered("VLLM::Worker_TP0", "python") is None
    assert numbered("VLLM::Worker_DP9999_PP99_TP0", "VLLM::Worker_DP9999_PP99_TP1") is None
    assert numbered("VLLM::Worker_TP99999", "VLLM::Worker_TP0") is None


def test_an_engine_is_a_worker_only_where_it_has_none() -> None:
    titles = [Title("VLLM::EngineCore", "engine"), Title("VLLM::Worker", "worker"), None]
    assert served_titles.workers(titles) == [False, True, False]
    assert served_titles.workers([titles[0], None]) == [True, False]
    assert served_titles.workers([None, Title("VLLM::APIServer", "other")]) == [True, False]
    assert served_titles.workers([None, None]) == [True, True]


@pytest.mark.parametrize(
    ("command", "size"),
    [
        ("python3 -m sglang.launch_server --model m --tp-size 16 --nnodes 2 --node-rank 0", 16),
        ("python3 -m sglang.launch_server --tp 8 --dp-size 8 --pp-size 2", 16),
        ("/v/bin/vllm serve m --tensor-parallel-size=4 --data-parallel-size 2", 8),
        ("vllm serve m --port 8000", 0),
        ("python train.py --tp 4", 0),
    ],
)
def test_the_size_that_a_server_was_started_with(command: str, size: int) -> None:
    assert served_titles.world_size([command, "sglang::scheduler_TP0"]) == size


def test_two_servers_of_other_sizes_show_none() -> None:
    start = "python3 -m sglang.launch_server --tp {}"
    assert served_titles.world_size([start.format(4), start.format(8)]) == 0
    assert served_titles.world_size([start.format(4), start.format(4)]) == 4
