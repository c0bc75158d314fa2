"""Which names a person may give a job."""

from __future__ import annotations

import pytest

from hangdoctor.readers.jobnames import names_job


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("", "parent:5"),
        ("7", "slurm:7.0"),
        ("slurm:7", "slurm:7.0"),
        ("2180718", "slurm:2180718.0"),
        ("29500", "127.0.0.1:29500"),
        ("127.0.0.1", "127.0.0.1:29500"),
        ("demo", "torchrun:demo-3135"),
        ("5f0e7c21", "torchrun:5f0e7c21-9a1b-4c3d-8e2f-0123456789ab"),
        ("torchrun:demo-3135/77", "run-demo-3135"),
    ],
)
def test_a_name_or_a_part_of_it(wanted: str, name: str) -> None:
    assert names_job(wanted, name)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ("parent:0", "127.0.0.1:17000"),
        ("0", "slurm:7.0"),
        ("180718", "slurm:2180718.0"),
        ("218", "slurm:2180718.0"),
        ("950", "127.0.0.1:29500"),
        ("slurm:7", "slurm:71.0"),
    ],
)
def test_no_digits_from_within_a_number(wanted: str, name: str) -> None:
    assert not names_job(wanted, name)


def test_a_job_is_found_by_the_short_name_that_is_printed() -> None:
    name = "53058581-1538-4163-a8cc-1160451ea064-localhost-46677"
    assert names_job("53058581-localhost-46677", name) and names_job("53058581", name)
    assert not names_job("53058582-localhost-46677", name)
