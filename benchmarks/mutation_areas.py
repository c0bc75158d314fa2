"""Which modules `benchmarks.mutation` changes together, and the quick tests that should notice."""

from __future__ import annotations

_READERS = "safe_pickle blackbox box_header box_tables box_folders flight_recorder flight_recorder_format flight_recorder_entry flight_recorder_groups ras_reader ras_text pyspy_text pyspy_ranks discover proc".split()
_PROBE = "box call_forms flight folder format group_table identity retention signatures sites steps still_written whose_error".split()
_PROBE += "ending own_threads record_core stand_ins".split()

AREAS: dict[str, tuple[list[str], list[str]]] = {
    "messages": (
        ["hangdoctor/transport/messages.py", "hangdoctor/transport/keys.py"],
        [
            "tests/transport/test_messages.py",
            "tests/transport/test_keys.py",
            "tests/sidecar/test_sidecar_parts.py",
            "tests/readers/test_hostile_numbers.py",
        ],
    ),
    "readers": (
        [f"hangdoctor/readers/{name}.py" for name in _READERS],
        [
            "tests/readers/test_safe_pickle.py",
            "tests/readers/test_box_folders.py",
            "tests/readers/test_box_tables.py",
            "tests/readers/test_flight_recorder.py",
            "tests/readers/test_ras_reader.py",
            "tests/readers/test_hostile_numbers.py",
            "tests/readers/test_hostile_owner.py",
            "tests/readers/test_proc.py",
            "tests/readers/test_flight_recorder_fields.py",
            "tests/readers/test_pyspy_parts.py",
            "tests/readers/test_discover.py",
            "tests/cli/test_diagnose_dumps.py",
            "tests/cli/test_diagnose_text.py",
            "tests/probe/test_probe_box.py",
            "tests/probe/test_probe_groups.py",
        ],
    ),
    "base": (
        [
            f"hangdoctor/{n}.py"
            for n in "text/ranges text/redaction text/printable files model/number_checks".split()
        ],
        [
            "tests/stacks/test_place_rules.py",
            "tests/text/test_redaction.py",
            "tests/text/test_ranges.py",
            "tests/test_files.py",
            "tests/readers/test_hostile_numbers.py",
            "tests/readers/test_hostile_owner.py",
            "tests/test_printed.py",
            "tests/cli/test_diagnose_dumps.py",
            "tests/cli/test_diagnose_text.py",
            "tests/launchers/test_targets.py",
        ],
    ),
    "probe": (
        [f"hangdoctor/probe/{name}.py" for name in _PROBE]
        + [f"hangdoctor/probe/calls/{n}.py" for n in ("format", "ring", "request")],
        [
            "tests/probe/test_probe_box.py",
            "tests/probe/test_probe_groups.py",
            "tests/probe/test_calls_recorder.py",
            "tests/probe/test_retention.py",
            "tests/probe/test_probe_parts.py",
            "tests/probe/test_probe_edges.py",
            "tests/probe/test_core_without_extension.py",
            "tests/probe/test_ending.py",
            "tests/probe/test_flight.py",
            "tests/probe/test_places.py",
        ],
    ),
    "ops": (["hangdoctor/diagnosis/ops/*.py"], ["tests/diagnosis/ops"]),
    "passes": (
        ["hangdoctor/diagnosis/*.py"],
        [
            "tests/diagnosis",
            "tests/cli/test_diagnose_dumps.py",
            "tests/cli/test_diagnose_text.py",
            "tests/collector/test_core.py",
        ],
    ),
    "wording": (
        ["hangdoctor/diagnosis/wording/*.py", "hangdoctor/diagnosis/findings/*.py"],
        [
            "tests/diagnosis/test_wording.py",
            "tests/diagnosis/test_wording_parts.py",
            "tests/diagnosis/test_every_sentence.py",
            "tests/diagnosis/test_calls_parting.py",
            "tests/diagnosis/test_unseen_ranks.py",
            "tests/diagnosis/ops/test_ops_passes.py",
            "tests/cli/test_diagnose_dumps.py",
            "tests/cli/test_diagnose_text.py",
        ],
    ),
}
