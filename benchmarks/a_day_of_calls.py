"""A day of a training's calls at once, with and without the probe: `python -m
benchmarks.a_day_of_calls`.

The program `tests/probe/harmless/programs/torch_many.py` with 10,000 groups and 700,000 operations
(eight a second for a day), plain, below `hangdoctor run`, and traced, one after the other. Prints
what each took and kept, and what differs between them; exits with 1 where something does. Needs
torch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from benchmarks.progress import say
from tests.support.harmless.compare import differences
from tests.support.harmless.observe import PLAIN, PROGRAMS, RUN, TRACED, Observation, Running


def main() -> None:
    """Run the program in each mode, print the table, and exit with 1 where something differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--operations", type=int, default=700_000)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument(
        "--seconds", type=float, default=580, help="limit for each of the three (default 580)"
    )
    options = parser.parse_args()
    more = {
        "HARMLESS_OPERATIONS": str(options.operations),
        "HARMLESS_GROUPS": str(options.groups),
        "HARMLESS_SECONDS": "500",
    }
    seen: dict[str, Observation] = {}
    print(
        "| | seconds | MB after the groups | after half of them are gone | after the operations | at the end |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="hangdoctor-day-") as folder:
        for way, before in {"plain": PLAIN, "run": RUN, "traced": TRACED}.items():
            say(f"{way}: {options.groups} groups, {options.operations} operations")
            began = time.monotonic()
            one = seen[way] = Running(
                PROGRAMS / "torch_many.py", before, Path(folder) / way, more
            ).end(options.seconds)
            kept = " | ".join(
                f"{one.memory.get(at, 0) / 1000:.0f}"
                for at in ("groups", "groups gone", "operations", "end")
            )
            print(f"| {way} | {time.monotonic() - began:.0f} | {kept} |", flush=True)
    found = [
        f"{way}: {line}"
        for way in ("run", "traced")
        for line in differences(seen["plain"], seen[way])
    ]
    print("\n".join(["", "What differs: " + ("nothing" if not found else ""), *found]))
    print("The probe:", {way: sorted(set(one.probes.values())) for way, one in seen.items()})
    raise SystemExit(int(bool(found)))


if __name__ == "__main__":
    main()
