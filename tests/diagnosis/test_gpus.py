"""What the drivers say of GPUs, beside stacks and operations."""

from __future__ import annotations

import time

from hangdoctor.diagnosis import diagnose
from hangdoctor.model.capture import JobCapture, NodeCapture, RankCapture
from hangdoctor.model.diagnosis import Diagnosis
from hangdoctor.model.gpu import Gpu, Xid
from tests.support.captures import LOAD, WAIT, causes, still
from tests.support.fake_gpus import one

FALLEN = Xid(79, 1.0, 0, "GPU has fallen off the bus")


def job(ranks: list[RankCapture], gpus: list[Gpu]) -> Diagnosis:
    node = NodeCapture("n1", ranks=ranks, gpus=gpus)
    return diagnose(JobCapture("j", [node], [], len(ranks), taken=time.time()))


def ranks(outside: int = -1, world: int = 4) -> list[RankCapture]:
    """All wait in one all_reduce but one; rank n is process 9 + n."""
    return [still(r, LOAD if r == outside else WAIT, world_size=world) for r in range(world)]


def gpus(**of: dict[str, object]) -> list[Gpu]:
    """One for each of four ranks; of="g2={...}" changes the figures of GPU 2."""
    return [one(n, pids=[9 + n], **of.get(f"g{n}", {})) for n in range(4)]


def says(found: Diagnosis) -> list[str]:
    return [e.says for c in found.causes for e in c.evidence if e.source == "gpu"]


def test_one_idle_device_against_all_others_supports_the_verdict() -> None:
    found = job(ranks(outside=2), gpus(g2={"busy": 0}))
    plain = job(ranks(outside=2), [])
    assert [c.ranks for c in found.causes] == [c.ranks for c in plain.causes] == [[2]]
    assert found.causes[0].confidence > plain.causes[0].confidence
    assert says(found)[0] == ("its GPU is idle (0 %), those of the 3 other ranks are busy (100 %)")


def test_one_busy_device_against_all_others() -> None:
    figures = {f"g{n}": {"busy": 3 + n} for n in (0, 1, 3)}
    found = job(ranks(outside=2), gpus(**figures))
    assert "its GPU is busy (100 %), those of the 3 other ranks are idle (3-6 %)" in says(found)


def test_devices_that_are_half_busy_tell_nothing() -> None:
    found = job(ranks(outside=2), gpus(g2={"busy": 50}))
    assert not any("other ranks are" in text for text in says(found))


def test_a_device_of_another_rank_is_a_note() -> None:
    found = job(ranks(outside=2), gpus(g1={"busy": 0}))
    assert [c.ranks for c in found.causes] == [[2]]
    assert "The GPU of rank 1 is idle (0 %), those of ranks 0,2-3 are busy." in found.notes


def test_an_error_that_stops_the_gpu_names_its_rank_where_all_only_wait() -> None:
    without = job(ranks(), gpus())
    assert causes(without) == [("in_communication", [0, 1, 2, 3])]
    found = job(ranks(), gpus(g3={"xids": [FALLEN]}))
    assert (found.status, causes(found)) == ("hang", [("error", [3])])
    [cause] = found.causes
    assert "its GPU reported Xid 79 (the GPU has fallen off the bus)" in cause.summary
    assert cause.advice.startswith("Drain the node") and cause.nodes == ["n1"]
    assert any("Xid 79" in text for text in says(found))


def test_an_error_of_another_ranks_gpu_is_a_note_beside_a_clear_cause() -> None:
    found = job(ranks(outside=2), gpus(g3={"xids": [FALLEN]}))
    assert causes(found)[0][1] == [2]
    assert "The GPU of rank 3 reported Xid 79 since the job began." in found.notes


def test_an_error_that_stops_nothing_names_no_rank() -> None:
    found = job(ranks(), gpus(g3={"xids": [Xid(63, 1.0)]}))
    assert causes(found) == [("in_communication", [0, 1, 2, 3])]


def test_a_rank_is_joined_by_the_pid_of_the_error_where_its_gpu_is_gone() -> None:
    lost = Gpu(-1, bus="0000:3e:00", xids=[Xid(79, 1.0, pid=12)])
    found = job(ranks(), [*gpus()[:3], lost])
    assert causes(found) == [("error", [3])]


def test_without_processes_the_environment_joins_them() -> None:
    listed = [one(n, busy=0 if n == 2 else 100) for n in range(4)]
    captured = ranks(outside=2)
    for rank in captured:
        rank.gpu = str(rank.rank)
    assert any("is idle" in text for text in says(job(captured, listed)))
    captured[2].gpu = listed[2].uuid
    assert any("is idle" in text for text in says(job(captured, listed)))


def test_figures_of_the_culprits_gpu() -> None:
    worn = {
        "uncorrected": 2,
        "link_errors": 40,
        "slowed": ["hw_thermal_slowdown"],
        "clock_mhz": 300,
    }
    found = job(ranks(outside=2), gpus(g2=worn))
    assert says(found)[-1] == (
        "2 uncorrectable memory errors since the driver was loaded, 40 NVLink errors, 100 % busy, "
        "71000 of 81559 MB used, clock 300 of 1980 MHz, slowed down by hw_thermal_slowdown"
    )


def test_a_healthy_job_stays_healthy() -> None:
    node = NodeCapture("n1", ranks=[], gpus=gpus(g1={"xids": [FALLEN]}))
    assert diagnose(JobCapture("j", [node], [], 4)).causes == []
