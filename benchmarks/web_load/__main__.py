"""200 readers of the page and 2,000 simulated agents at once, against one real collector: `python
-m benchmarks.web_load`.

The agents (8 ranks each, every rank in an operation, phase and iteration of its own, reports each
second) run in this process, the readers, the prober and Chromium in others; all share the machine
with the collector. Measured without and with readers: processor time of the collector, and its
answer time to an agent's hello, which waits for nothing else. Of the readers: frames, bytes, and
whether those that take nothing are cut off. Then first paint of the page in Chromium, and a capture
of all ranks asked for by the API.

100,000 ranks: `--nodes 500 --crowd 12000 --readers 3`. Simulated collectors speak for the nodes
beside the agents, and no capture is asked for.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib
from pathlib import Path
from typing import Any

import psutil
import zmq

from benchmarks.collector_scale.__main__ import RANKS, Fleet
from benchmarks.collector_scale.crowd import Crowd
from benchmarks.progress import say
from hangdoctor.transport import address, keys
from hangdoctor.transport import messages as msg
from hangdoctor.web.page_address import Published, published

ROOT = Path(__file__).parents[2]
_STUCK = 10  # readers that take nothing
_PAINTS = 5
_PAGE_S = 20.0


def main() -> None:
    """Measure, or do the part of the role that is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=2000)
    parser.add_argument(
        "--crowd", type=int, default=0, help="nodes beside these, behind simulated collectors"
    )
    parser.add_argument("--readers", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=15.0, help="of each measurement")
    parser.add_argument("--role", choices=("readers", "prober", "browser"), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 16_384)), hard))
    if flags.role == "readers":
        asyncio.run(readers(flags.folder, flags.readers, flags.seconds))
    elif flags.role == "prober":
        prober(flags.folder, flags.seconds)
    elif flags.role == "browser":
        browser(flags.folder)
    else:
        with tempfile.TemporaryDirectory() as name:
            asyncio.run(measure(Path(name), flags))


def place(folder: Path) -> Published:
    """Address and token of the page."""
    found = published(folder)
    assert found is not None
    return found


# ----------------------------------------------------------------------- the others, each a process


async def readers(folder: Path, count: int, seconds: float) -> None:
    """Read the stream over many connections, and print what came."""
    told = place(folder)
    host, port = told.address.removeprefix("http://").split(":")
    ask = (
        f"GET /api/v1/stream HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {told.token}\r\nAccept-Encoding: gzip\r\n\r\n"
    ).encode()

    largest = 0

    async def one(unpack: bool) -> tuple[int, int, int]:
        """(frames, bytes on the way, bytes of text); only some unpack, or this process would take
        what the others measure.
        """
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(ask)
        await reader.readuntil(b"\r\n\r\n")
        nonlocal largest
        frames = size = text = 0
        inflate, end = zlib.decompressobj(31), time.monotonic() + seconds
        with contextlib.suppress(asyncio.TimeoutError):
            while (left := end - time.monotonic()) > 0:
                length = int(await asyncio.wait_for(reader.readline(), left), 16)
                data = await reader.readexactly(length + 2)
                text += len(inflate.decompress(data[:-2])) if unpack else 0
                frames, size = frames + 1, size + length
                largest = max(largest, length)
        writer.close()
        return frames, size, text

    idle = [await asyncio.open_connection(host, int(port), limit=1024) for _ in range(_STUCK)]
    for _, writer in idle:
        writer.write(ask)
    found = await asyncio.gather(*(one(i < 3) for i in range(count)))
    times = sum(t for _, _, t in found) / max(1, sum(b for _, b, t in found if t))
    print(
        json.dumps(
            {
                "frames": [f for f, _, _ in found],
                "bytes": sum(b for _, b, _ in found),
                "times": times,
                "largest": largest,
            }
        )
    )


def prober(folder: Path, seconds: float) -> None:
    """Say hello as an agent again and again, and print how long the answers took."""
    made, context = keys.load(folder), zmq.Context()
    socket: Any = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, b"prober")
    socket.curve_serverkey = made.collector.public
    socket.curve_publickey, socket.curve_secretkey = made.agent.public, made.agent.secret
    socket.connect(address.published(folder))
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        begin = time.monotonic()
        socket.send_multipart(msg.encode(msg.Hello("prober", "nprober")))
        socket.recv_multipart()
        times.append((time.monotonic() - begin) * 1e3)
        time.sleep(0.05)
    socket.send_multipart(msg.encode(msg.Bye()))
    context.destroy(linger=500)
    print(json.dumps(times))


def browser(folder: Path) -> None:
    """Open the page in Chromium, and print its first paint."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        "--window-size=1280,900",
    ):
        options.add_argument(flag)
    driver = webdriver.Chrome(
        options=options, service=webdriver.ChromeService(shutil.which("chromedriver"))
    )
    told, found = place(folder), []
    try:
        log_in(driver, told)
        for i in range(_PAINTS):
            say(f"Chromium opens the page, {i + 1} of {_PAINTS}")
            driver.get(told.address + "/")
            found.append([round(mark) for mark in marks_of(driver)])
        use = uses_of(driver)
        if os.environ.get("SHOT"):
            driver.save_screenshot(os.environ["SHOT"])
    finally:
        driver.quit()
    print(json.dumps({"first paint, grid (ms)": found, **use}))


_USES = """
const done = arguments[arguments.length - 1], found = {};
const timed = (name, work) => { const begin = performance.now(); work(); found[name + ' (ms)'] = Math.round(performance.now() - begin); };
const type = text => { const box = document.getElementById('filter'); box.value = text; box.dispatchEvent(new Event('input')); };
timed('filter by ranks', () => type('5000-5100'));
timed('filter by node', () => type('n77'));
timed('filter by operation', () => type('op7'));
timed('no filter', () => type(''));
timed('resize', () => window.dispatchEvent(new Event('resize')));
const sizes = performance.getEntriesByType('resource').map(e => e.transferSize || e.encodedBodySize);
found['largest request but the stream (kB)'] = Math.round(Math.max(0, ...sizes) / 1000);
requestAnimationFrame(() => requestAnimationFrame(() => done(found)));
"""


def uses_of(driver: Any) -> dict[str, float]:
    """Milliseconds that the page needs for what a person does on it."""
    driver.set_script_timeout(_PAGE_S)
    return dict(driver.execute_async_script(_USES))


def log_in(driver: Any, told: Published) -> None:
    """Until the page is open: leaving before the answer to the form has come would leave without
    the session, for the form again.
    """
    driver.get(told.address + "/login")
    driver.find_element("id", "token").send_keys(told.token)
    driver.find_element("css selector", "form button").click()
    end = time.monotonic() + _PAGE_S
    while driver.current_url != told.address + "/":
        if time.monotonic() > end:
            raise SystemExit(f"Chromium was not let in within {_PAGE_S:.0f} s: {state_of(driver)}")
        time.sleep(0.05)


def marks_of(driver: Any) -> list[float]:
    """Milliseconds to first paint and to the first grid of the page that was just opened."""
    marks = [None]
    end = time.monotonic() + _PAGE_S
    while None in marks:
        if time.monotonic() > end:
            raise SystemExit(
                f"the page shows no grid after {_PAGE_S:.0f} s ({marks}): {state_of(driver)}"
            )
        time.sleep(0.05)
        marks = driver.execute_script(
            "return ['first-contentful-paint', 'grid'].map(name => performance.getEntriesByName(name)[0]?.startTime ?? null)"
        )
    return marks


def state_of(driver: Any) -> str:
    """What the browser shows, for the message of a failure."""
    said = driver.execute_script(
        "return document.visibilityState + ', ' + document.readyState + ': ' + document.body.innerText.slice(0, 300)"
    )
    return f"{driver.current_url} is {said!r}; its log: {[e['message'] for e in driver.get_log('browser')][-5:]}"


async def role(name: str, folder: Path, flags: argparse.Namespace) -> Any:
    """Run one of the above beside us; what it printed."""
    words = ["--role", name, "--folder", str(folder)]
    words += ["--readers", str(flags.readers), "--seconds", str(flags.seconds)]
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.web_load",
        *words,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    said, _ = await process.communicate()
    return json.loads(said) if said else None


# ------------------------------------------------------------------ the agents, and the measurement


def motley(node: int, seq: int, rng: random.Random) -> list[msg.RankNow]:
    """Ranks of one node, each somewhere else."""
    return [
        msg.RankNow(
            rank,
            idle_s=0.1 if rng.random() < 0.95 else rng.uniform(4, 30),
            iteration=seq - rng.randrange(3),
            phase=f"phase{rng.randrange(6)}",
            op=f"op{rng.randrange(12)}",
            seq=seq,
            inside=rng.random() < 0.7,
            box=True,
            waits=rng.randrange(90),
        )
        for rank in range(node * RANKS, (node + 1) * RANKS)
    ]


class Motley(Fleet):
    """Agents whose ranks are all in different places: the most that a frame of the page can have to
    say.
    """

    async def report(self, socket: Any, node: int) -> None:
        rng, seq = random.Random(node), 0
        await asyncio.sleep(node / self.nodes)
        while True:
            if self.welcome >= self.nodes:
                seq += 1
                news = [] if self.stalled_at else motley(node, seq, rng)
                await socket.send_multipart(msg.encode(msg.Report(seq, 1, time.time(), news)))
            await asyncio.sleep(1.0)


async def measure(folder: Path, flags: argparse.Namespace) -> None:
    """Start the collector, and measure it."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hangdoctor",
                "collect",
                "--folder",
                str(folder),
                "--bind",
                "tcp://127.0.0.1:*",
                "--capture-timeout",
                "60",
                "--web",
                "127.0.0.1:0",
            ],
            stderr=log,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=ROOT,
        )
    try:
        while published(folder) is None or not address.published(folder):
            await asyncio.sleep(0.1)
        await run(folder, flags, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.wait()
        log_text = (folder / "log").read_text()
        print(log_text[-2000:] if "Traceback" in log_text else "", end="")


async def run(folder: Path, flags: argparse.Namespace, watched: psutil.Process) -> None:
    """Measure without and with readers, then the browser."""
    nodes = flags.nodes + flags.crowd
    print(
        f"load {os.getloadavg()[0]:.1f}; {nodes} nodes, {nodes * RANKS} ranks, {flags.readers} readers",
        flush=True,
    )
    say(f"waiting for {nodes} nodes to be here")
    fleet = Motley(flags.nodes, folder, crowd=flags.crowd)
    if not flags.crowd:
        fleet.pack()
    tasks = [asyncio.create_task(fleet.agent(n)) for n in range(flags.nodes)]
    if flags.crowd:
        rng, others = random.Random(7), list(range(flags.nodes, nodes))
        crowd = Crowd(folder, others, 8, nodes * RANKS, lambda n, seq: motley(n, seq, rng), {})
        tasks.append(asyncio.create_task(crowd.run()))
    while (await status(folder))["status"]["nodes"] < nodes:
        await asyncio.sleep(0.5)
    await asyncio.sleep(3)
    for what in ("without readers", f"with {flags.readers} readers and {_STUCK} that take nothing"):
        say(f"measuring for {flags.seconds:.0f} s {what}")
        told = await one_measurement(folder, flags, watched, readers_too=what != "without readers")
        print(f"{what}: {told}", flush=True)
    metrics = await asyncio.to_thread(get, folder, "/metrics")
    wanted = ("cut_off_total ", "page_frame_seconds ", "page_readers ")
    print(
        "; ".join(
            line
            for line in metrics.decode().splitlines()
            if line[0] != "#" and any(w in line for w in wanted)
        )
    )
    if shutil.which("chromium"):
        painted = await role("browser", folder, flags)
        told = json.dumps(painted) if painted else "not measured, as said above"
        print(f"Chromium, grid of {nodes * RANKS} ranks: {told}", flush=True)
    if not flags.crowd:
        await ask_for_a_capture(folder, fleet)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    fleet.context.destroy(linger=0)


async def ask_for_a_capture(folder: Path, fleet: Fleet) -> None:
    """By the API, of all nodes: until it was dealt with."""
    say("a capture of all nodes, asked for by the API")
    begin = time.monotonic()
    before = (await status(folder))["concluded"]
    await asyncio.to_thread(get, folder, "/api/v1/capture", b"{}")
    while (await status(folder))["concluded"] == before and time.monotonic() - begin < 200:
        await asyncio.sleep(0.3)
    print(
        f"capture asked for by the API: {time.monotonic() - begin:.1f} s until it was dealt with, {fleet.answered} nodes answered"
    )


async def one_measurement(
    folder: Path, flags: argparse.Namespace, watched: psutil.Process, readers_too: bool
) -> str:
    """One line: processor time, memory and answer time of the collector."""
    cpu, begin = sum(watched.cpu_times()[:2]), time.monotonic()
    jobs = [role("prober", folder, flags)] + (
        [role("readers", folder, flags)] if readers_too else []
    )
    times, *read = await asyncio.gather(*jobs)
    took = time.monotonic() - begin
    share = (sum(watched.cpu_times()[:2]) - cpu) / took
    ranked = sorted(times)
    text = (
        f"collector {share:.0%} of a core, {watched.memory_info().rss / 1e6:.0f} MB; answer to a hello: median {statistics.median(times):.1f} ms, "
        f"95 % within {ranked[int(len(ranked) * 0.95)]:.0f} ms, longest {ranked[-1]:.0f} ms ({len(times)} asked)"
    )
    if read and read[0]:
        frames = read[0]["frames"]
        rate = read[0]["bytes"] / len(frames) / flags.seconds / 1e3
        text += (
            f"; frames a reader: {min(frames)} to {max(frames)} in {flags.seconds:.0f} s, {rate:.0f} KB/s each "
            f"({read[0]['times']:.1f} times that unpacked), the largest frame {read[0]['largest'] / 1e6:.2f} MB"
        )
    return text


def get(folder: Path, path: str, body: bytes | None = None) -> bytes:
    """The answer to one request of the page's API."""
    told = place(folder)
    request = urllib.request.Request(
        told.address + path, body, {"Authorization": f"Bearer {told.token}"}
    )
    with urllib.request.urlopen(request, timeout=60) as found:
        return bytes(found.read())


async def status(folder: Path) -> Any:
    """The collector's status, as its API has it."""
    return json.loads(await asyncio.to_thread(get, folder, "/api/v1/status"))


if __name__ == "__main__":
    main()
