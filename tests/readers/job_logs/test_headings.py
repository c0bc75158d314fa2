"""Lines that only announce an error: the sentence below them is what failed."""

from __future__ import annotations

from pathlib import Path

from tests.support.read_logs import diagnosed, named

HEAD = "MPICH ERROR [Rank 37] [job id 55.0] [Tue Mar 10 09:15:02 2026] [reef0042]\n"
CALL = "Fatal error in PMPI_Waitall: Other MPI error\n"
STACK = """\
MPIDI_OFI_handle_cq_error(1310): OFI poll failed
  (ofi_events.c:1312:MPIDI_OFI_handle_cq_error:
   Input/output error - {})
"""
LOCAL = "Invalid request descriptor"
ANNOUNCED = 'The following error occurred in the object "tide_gauge", of type "ShoreReader".\n'
REASON = "Error! No gauge of that name: harbour_9 in ShoreReader::find()\n"
LEFT = "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 3\n"


def test_who_the_heading_names_has_the_reason_at_the_end_of_the_stack(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, HEAD + CALL + STACK.format(LOCAL))
    [cause] = verdict.causes
    assert (cause.ranks, cause.nodes) == ([37], ["reef0042"])
    assert f"Input/output error - {LOCAL}" in verdict.summary and "PMPI_Waitall" in verdict.summary
    assert "MPICH ERROR" not in verdict.summary


def test_a_reason_that_another_process_can_be_behind_accuses_nobody(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, HEAD + CALL + STACK.format("CANCELED"))
    assert not any(cause.ranks for cause in verdict.causes)
    assert "rank 37" in verdict.summary and "OFI poll failed" in verdict.summary


def test_a_stack_that_is_set_in_is_read_line_by_line(tmp_path: Path) -> None:
    stack = (
        "  PMPI_Waitall(352).............:\n  MPIR_Waitall(167).............:\n"
        "  MPIDI_OFI_register(55)........: Invalid request descriptor\n"
    )
    verdict = diagnosed(tmp_path, HEAD + CALL.replace("\n", ", error stack:\n") + stack)
    assert [cause.ranks for cause in verdict.causes] == [[37]]
    assert f"'{LOCAL}'" in verdict.summary


def test_a_heading_speaks_for_the_next_line_alone(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, HEAD + "reading forcing of day 7\n" + CALL + STACK.format(LOCAL))
    assert not any(37 in cause.ranks for cause in verdict.causes)


def test_the_words_below_an_announcement_are_the_reason(tmp_path: Path) -> None:
    verdict = diagnosed(tmp_path, f"*** ERROR ***\n{ANNOUNCED}\n{REASON}\n{LEFT}")
    assert named(verdict) == [("error", [3])]
    assert "No gauge of that name: harbour_9" in verdict.summary
    assert "following error" not in verdict.summary


def test_an_announcement_with_its_reason_in_the_line_is_quoted(tmp_path: Path) -> None:
    line = "The following error occurred: no gauge of that name, harbour_9\n"
    verdict = diagnosed(tmp_path, f"{line}\n{LEFT}")
    assert named(verdict) == [("error", [3])] and "harbour_9" in verdict.summary
