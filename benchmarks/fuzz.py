"""Spoilt input for every reader: `python -m benchmarks.fuzz [--minutes 60] [--reader NAME]...
[--save DIR] [--seed N] [--atheris]`.

Each reader runs in a process of its own with a limit on its memory. A case is a seed (tests/data,
or what our own writers make) with a few changes. Counted as defects: an exception other than our
own errors, more than DEADLINE_S of processor time, more memory than LIMIT_MB, and a process that
dies or does not end. Such cases are saved under --save, and `--replay FILE --reader NAME` reads one
again. With --atheris (pip install atheris) the changes are led by coverage. Prints a table.
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
import traceback
from pathlib import Path

import msgspec
import psutil

from benchmarks.fuzz_mutations import MAX_CASE
from benchmarks.fuzz_readers import TARGETS, Target
from benchmarks.fuzz_texts import SMALL
from benchmarks.progress import say
from hangdoctor.errors import HangdoctorError

DEADLINE_S = 2.0  # of processor time, for one case
LIMIT_MB = 768  # of memory that one case may take beside what was there before
_HARD_MB = 4096  # of address space: where the kernel says no
_STUCK_S = 15.0  # of processor time, on one case
_HEAD = 24  # bytes: number and size of the case, and whether it is still being made
_ROOM = 16 << 20  # for the case that is being read, where the parent finds it
READERS = {t.name: t for t in [*TARGETS, *SMALL]}


class Told(msgspec.Struct):
    """What one reader did so far."""

    executions: int = 0
    own_failures: int = 0  # cases that could not be made
    defects: dict[str, int] = {}  # what happened and where -> how often
    slowest_s: float = 0.0
    peak_mb: float = 0.0

    def count(self, what: str) -> bool:
        """Whether it is new."""
        self.defects[what] = self.defects.get(what, 0) + 1
        return self.defects[what] == 1


class Meter:
    """Processor time and memory of one case."""

    def __init__(self) -> None:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self.before_kb = _memory_kb("VmRSS")
        self.began = time.process_time()

    def read(self) -> tuple[float, float]:
        """(seconds, megabytes) since it was made."""
        return time.process_time() - self.began, max(0, _memory_kb("VmHWM") - self.before_kb) / 1024


def _memory_kb(name: str) -> int:
    line = next(w for w in Path("/proc/self/status").read_text().splitlines() if w.startswith(name))
    return int(line.split()[1])


def where(error: BaseException) -> str:
    """The exception and the innermost line of ours that it came through."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [f for f in frames if "/hangdoctor/" in f.filename or "/agents/" in f.filename] or frames
    last = ours[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.lineno} in {last.name}"


def judge(target: Target, case: bytes, told: Told) -> list[str]:
    """Read one case; what was wrong about it, none of it seen before."""
    found = []
    meter = Meter()
    try:
        target.read(case)
    except HangdoctorError:
        pass
    except Exception as error:
        found.append(where(error))
    seconds, megabytes = meter.read()
    told.executions += 1
    told.slowest_s, told.peak_mb = max(told.slowest_s, seconds), max(told.peak_mb, megabytes)
    if seconds > DEADLINE_S:
        found.append(f"more than {DEADLINE_S:g} s")
    if megabytes > LIMIT_MB:
        found.append(f"more than {LIMIT_MB} MB")
    return [what for what in found if told.count(what)]


def case_of(target: Target, seeds: list[bytes], seed: int, number: int) -> bytes:
    """The same case for the same numbers."""
    chance = random.Random(f"{target.name}:{seed}:{number}")
    data, other = chance.choice(seeds), chance.choice(seeds)
    return data if number < 2 else target.make(data, chance, other)[:MAX_CASE]


def limit_memory(megabytes: int = _HARD_MB) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))


class Child:
    """One reader in a process of its own; what it is at is in shared memory."""

    def __init__(self, target: Target, save: Path, seed: int) -> None:
        self.target, self.save, self.seed = target, save, seed
        self.seeds = target.corpus()
        self.shared = mmap.mmap(-1, _ROOM)

    def run(self, until: float, told: Told) -> Told:
        """Until then, however often the process dies."""
        number = 0
        while time.monotonic() < until:
            reading, writing = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reading)
                self._work(writing, until, told, number)
            os.close(writing)
            death = self._watch(pid, until)
            with os.fdopen(reading, "rb") as pipe:
                lines = pipe.read().splitlines()
            told = msgspec.json.decode(lines[-1], type=Told) if lines else told
            if death and self._making():
                number = self._current()[0] + 1
                told.own_failures += 1
                say(f"{self.target.name}: case {number - 1} could not be made: {death}")
            elif death:
                number = self._current()[0] + 1
                if told.count(death):
                    keep(self.save, self.target, death, self._current()[1])
            else:
                break
        return told

    def _work(self, pipe: int, until: float, told: Told, number: int) -> None:
        """In the child; does not return."""
        try:
            limit_memory()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            last = time.monotonic()
            while time.monotonic() < until:
                # How long it takes to make a case is not the reader's, nor is dying of it.
                self._put(number, b"", making=True)
                case = case_of(self.target, self.seeds, self.seed, number)
                self._put(number, case)
                for what in judge(self.target, case, told):
                    keep(self.save, self.target, what, case)
                number += 1
                if time.monotonic() - last > 1:
                    last = time.monotonic()
                    os.write(pipe, msgspec.json.encode(told) + b"\n")
            os.write(pipe, msgspec.json.encode(told) + b"\n")
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(70)

    def _put(self, number: int, case: bytes, making: bool = False) -> None:
        struct.pack_into("<QQ?", self.shared, 0, number, len(case), making)
        self.shared[_HEAD : _HEAD + min(len(case), _ROOM - _HEAD)] = case[: _ROOM - _HEAD]

    def _current(self) -> tuple[int, bytes]:
        number, size = struct.unpack_from("<QQ", self.shared)
        return number, self.shared[_HEAD : _HEAD + min(size, _ROOM - _HEAD)]

    def _making(self) -> bool:
        """Whether the child was making a case: what happens then is the fuzzer's own failure."""
        return bool(self.shared[16])

    def _watch(self, pid: int, until: float) -> str:
        """Wait for the child; why it had to be ended or ended itself, "" for a good end."""
        number, since, worked = -1, time.monotonic(), 0.0
        child = psutil.Process(pid)
        while True:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return (
                    ""
                    if status == 0
                    else f"the process ended with {os.waitstatus_to_exitcode(status)}"
                )
            now = self._current()
            if now[0] != number or not now[1]:
                number, since, worked = now[0], time.monotonic(), _processor_s(child)
            # Other work on the machine is not a fault of the reader's; one that waits for ever uses
            # no processor at all.
            if _processor_s(child) - worked > _STUCK_S or time.monotonic() - since > 20 * _STUCK_S:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                return f"still reading after {_STUCK_S:g} s"
            time.sleep(0.1)


def _processor_s(child: psutil.Process) -> float:
    try:
        times = child.cpu_times()
    except psutil.Error:
        return 0.0
    return times.user + times.system


def keep(folder: Path, target: Target, what: str, case: bytes) -> None:
    """One file for each kind of defect."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() else "-" for c in what)[:90]
    (folder / f"{target.name}.{name}").write_bytes(case)
    say(f"{target.name}: {what}")


def by_coverage(target: Target, seconds: float, save: Path) -> None:
    """The same reader under atheris, in a child: libFuzzer ends its process."""
    import atheris

    corpus = save / f"corpus.{target.name}"
    corpus.mkdir(parents=True, exist_ok=True)
    for n, seed in enumerate(target.corpus()):
        (corpus / f"seed{n}").write_bytes(target.make(seed, random.Random(n), seed))

    def one(data: bytes) -> None:
        try:
            target.read(data)
        except HangdoctorError:
            return

    pid = os.fork()
    if pid == 0:
        atheris.instrument_all()
        atheris.Setup(
            [
                "fuzz",
                str(corpus),
                f"-max_total_time={int(seconds)}",
                "-timeout=10",
                f"-rss_limit_mb={_HARD_MB}",
                f"-artifact_prefix={save}/{target.name}.atheris.",
                "-verbosity=0",
                "-print_final_stats=1",
                "-max_len=100000",
            ],
            one,
        )
        atheris.Fuzz()
        os._exit(0)
    os.waitpid(pid, 0)


def table(done: dict[str, Told]) -> list[str]:
    """Markdown: a line for each reader."""
    lines = [
        "| reader | executions | tracebacks | over a limit | slowest, s | peak, MB |",
        "|---|---|---|---|---|---|",
    ]
    for name, told in done.items():
        broken = sum(" at " in what for what in told.defects)
        limits = len(told.defects) - broken
        lines.append(
            f"| {name} | {told.executions:,} | {broken} | {limits} | {told.slowest_s:.2f} | {told.peak_mb:.0f} |"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--reader", action="append", choices=sorted(READERS), help="only this one; can be repeated"
    )
    parser.add_argument("--save", type=Path, default=Path("/tmp/hangdoctor-fuzz"))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--replay", type=Path, help="read one saved case, with its traceback")
    parser.add_argument("--atheris", action="store_true")
    told = parser.parse_args()
    chosen = [READERS[n] for n in told.reader or READERS]
    if told.replay:
        limit_memory()
        meter = Meter()
        try:
            chosen[0].read(told.replay.read_bytes())
        except HangdoctorError as error:
            print(f"{type(error).__name__}: {str(error)[:2000]}")
        print("{:.2f} s, {:.0f} MB".format(*meter.read()))
        return 0
    say(f"{len(chosen)} readers, {told.minutes:g} minutes, seed {told.seed}")
    each = told.minutes * 60 / len(chosen)
    done: dict[str, Told] = {}
    for target in chosen:
        if told.atheris:
            by_coverage(target, each, told.save)
            continue
        done[target.name] = Child(target, told.save, told.seed).run(time.monotonic() + each, Told())
        say(table({target.name: done[target.name]})[-1])
    print("\n".join(table(done)))
    for name, one in done.items():
        for what, often in sorted(one.defects.items()):
            print(f"{name}: {what} ({often} times)")
    return int(any(one.defects for one in done.values()))


if __name__ == "__main__":
    sys.exit(main())
