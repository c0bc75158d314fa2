"""torch's own distributed tests with and without the probe: `python -m benchmarks.torch_suite`.

Each of the 285 tests that torch's wheel ships runs on gloo three times: plain, below `hangdoctor
run`, and below `hangdoctor run --trace`. It must end the same. A test that did not is run again,
`--again` times in each mode, for some of them depend on time; what differs each time is a fault.
Prints a table; exits with 1 where something differs.

With `--results FOLDER` a run that was interrupted goes on where it was. Needs torch and expecttest.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.progress import say

MODES = {"plain": [], "run": ["run"], "traced": ["run", "--trace"]}
EXPECTED = {"plain": {"none"}, "run": {"records"}, "traced": {"traces"}}
_LIST = "import benchmarks.torch_suite.in_one_mode as m; print(*m.names())"


def environment(folder: Path, ranks: int) -> dict[str, str]:
    """What torch's suite asks for; `folder` takes its files, and the boxes."""
    for name in ("barrier", "test_dir", "init_dir"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return os.environ | {
        "BACKEND": "gloo",
        "WORLD_SIZE": str(ranks),
        "TEMP_DIR": str(folder),
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "DISTRIBUTED_TESTS_DEFAULT_TIMEOUT": "120",
        "HANGDOCTOR_DIR": str(folder / "boxes"),
    }


def run(mode: str, tests: list[str], results: Path, options: argparse.Namespace) -> None:
    """Run tests in one mode; their outcomes are added to `results`."""
    with tempfile.TemporaryDirectory(prefix="hangdoctor-suite-") as folder:
        env = environment(Path(folder), options.ranks)
        words = [
            sys.executable,
            "-m",
            "benchmarks.torch_suite.in_one_mode",
            str(results),
            options.start,
            *tests,
        ]
        if MODES[mode]:
            words = [sys.executable, "-m", "hangdoctor", *MODES[mode], "--", *words]
        subprocess.run(
            words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
        )


def read(results: Path) -> dict[str, dict[str, Any]]:
    """The outcomes by test; the last one of each."""
    lines = results.read_text().splitlines() if results.exists() else []
    return {line["test"]: line for line in map(json.loads, lines)}


def go_on(
    mode: str, tests: list[str], results: Path, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """All outcomes of one mode; a test that took the runner's process with it is written down as
    such.
    """
    while missing := [name for name in tests if name not in read(results)]:
        say(f"{mode}: {len(missing)} of {len(tests)} tests to run")
        run(mode, missing, results, options)
        after = [name for name in tests if name not in read(results)]
        if after == missing:
            with results.open("a") as file:
                file.write(
                    json.dumps(
                        {
                            "test": missing[0],
                            "ended": "ended the runner",
                            "seconds": 0.0,
                            "probe": [],
                        }
                    )
                    + "\n"
                )
    return read(results)


def differences(found: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """The tests that did not end the same in all modes."""
    plain = found["plain"]
    return [
        test
        for test in plain
        if any(by[test]["ended"] != plain[test]["ended"] for by in found.values())
    ]


def repeat(
    tests: list[str], folder: Path, options: argparse.Namespace
) -> dict[str, dict[str, collections.Counter[str]]]:
    """How each of some tests ends in each mode when it is run again and again."""
    found: dict[str, dict[str, collections.Counter[str]]] = {
        t: {m: collections.Counter() for m in MODES} for t in tests
    }
    for turn in range(options.again if tests else 0):
        say(f"again, {turn + 1} of {options.again}: {len(tests)} tests that did not end the same")
        for mode in MODES:
            results = folder / f"again-{turn}-{mode}.jsonl"
            for test, line in go_on(mode, tests, results, options).items():
                found[test][mode][line["ended"]] += 1
    return found


def table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Counts by mode, and in how many tests the probe did its work in the ranks."""
    lines = [
        "| mode | passed | skipped | failed | with the probe at work | seconds |",
        "|---|---|---|---|---|---|",
    ]
    for mode, by in found.items():
        ended = collections.Counter(line["ended"].partition(":")[0] for line in by.values())
        at_work = sum(
            bool(line["probe"]) and set(line["probe"]) <= EXPECTED[mode] | {"waits"}
            for line in by.values()
        )
        seconds = sum(line["seconds"] for line in by.values())
        others = len(by) - ended["passed"] - ended["skipped"]
        probes = "-" if mode == "plain" else str(at_work)
        lines.append(
            f"| {mode} | {ended['passed']} | {ended['skipped']} | {others} | {probes} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run every test in each mode, and exit with 1 where one ends differently."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="*", default=[], metavar="TEST", help="these tests instead of all"
    )
    parser.add_argument(
        "--results", type=Path, help="folder of the outcomes, to go on after an interruption"
    )
    parser.add_argument(
        "--ranks", type=int, default=3, help="world size (default 3, as in torch's own runs)"
    )
    parser.add_argument(
        "--start",
        choices=["fork", "spawn", "forkserver"],
        default="fork",
        help="how ranks are started",
    )
    parser.add_argument(
        "--again", type=int, default=3, help="repetitions of a test that did not end the same"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hangdoctor-suite-") as spare:
        raise SystemExit(compare(options.results or Path(spare), options))


def compare(folder: Path, options: argparse.Namespace) -> int:
    """Run what is missing, print the table and what differs; 1 where something does."""
    folder.mkdir(parents=True, exist_ok=True)
    env = environment(folder / "list", options.ranks)
    tests = (
        options.only
        or subprocess.run(
            [sys.executable, "-c", _LIST],
            env=env,
            check=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ).stdout.split()
    )
    found = {mode: go_on(mode, tests, folder / f"{mode}.jsonl", options) for mode in MODES}
    print(table(found))
    different = differences(found)
    again = repeat(different, folder, options)
    faults = [
        test for test in different if len({frozenset(ends) for ends in again[test].values()}) > 1
    ]
    print(
        f"\n{len(tests)} tests; ended otherwise at first: {len(different)}; also when repeated: {len(faults)}"
    )
    for test in different:
        print(f"- {test}")
        for mode in MODES:
            ends = ", ".join(f"{n} x {ended}" for ended, n in again[test][mode].items())
            print(f"  {mode}: {found[mode][test]['ended']}; again: {ends}")
    off = [
        test
        for mode in MODES
        for test, line in found[mode].items()
        if "switched off" in line["probe"]
    ]
    print(f"the probe switched itself off in: {', '.join(off) or 'none'}")
    return int(bool(faults or off))


if __name__ == "__main__":
    main()
