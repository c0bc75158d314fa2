"""Every reader of something that another program, user or machine has made, with what it is tried
on.

A `Target` makes its case from a seed and a generator of chance, and reads it. The case is bytes:
what failed can be saved and read again. An error of `hangdoctor.errors` is the right answer to
nonsense; any other exception is a defect.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import pickle
import random
import tempfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from benchmarks import fuzz_seeds as seeds
from benchmarks.fuzz_mutations import spoil, spoil_json, spoil_tree

Make = Callable[[bytes, random.Random, bytes], bytes]


class Target(msgspec.Struct):
    """One reader: its seeds, how a case is made of one, and the reading."""

    name: str
    corpus: Callable[[], list[bytes]]
    read: Callable[[bytes], object]
    make: Make = spoil


@contextlib.contextmanager
def _as_file(data: bytes, name: str) -> Iterable[Path]:  # type: ignore[misc]
    with tempfile.TemporaryDirectory(prefix="hangdoctor-fuzz-", dir="/dev/shm") as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        yield path


def _json_or_bytes(data: bytes, chance: random.Random, other: bytes) -> bytes:
    return spoil_json(data, chance) if chance.random() < 0.6 else spoil(data, chance, other)


def _packed(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """Compressed msgpack: spoilt before the operations_codec, or after it, or a bomb."""
    how = chance.random()
    if how < 0.5:
        with contextlib.suppress(
            msgspec.DecodeError, ValueError, RecursionError, TypeError, OverflowError
        ):
            return zlib.compress(
                msgspec.msgpack.encode(
                    spoil_tree(msgspec.msgpack.decode(data, strict=False), chance)
                ),
                1,
            )
    if how < 0.53:
        return zlib.compress(
            data[: chance.randrange(200)]
            + chance.choice((b"\0", b"\x90", b"\x81")) * chance.choice((1 << 20, 300 << 20)),
            1,
        )
    packed = zlib.compress(spoil(data, chance, other) if how < 0.9 else data, 1)
    return packed if how < 0.9 else spoil(packed, chance, other)


def _in_pickle(data: bytes, chance: random.Random, other: bytes) -> bytes:
    if chance.random() < 0.5:
        with contextlib.suppress(ValueError, RecursionError, TypeError, pickle.PicklingError):
            from hangdoctor.readers import safe_pickle

            return pickle.dumps(spoil_tree(safe_pickle.loads(data), chance), protocol=2)
    return spoil(data, chance, other)


# --------------------------------------------------------------------------- the readers


def _read_box(data: bytes) -> None:
    from hangdoctor.readers import blackbox

    with _as_file(data, "n-1.blackbox") as path:
        blackbox.find_boxes(path.parent)
        blackbox.read_box(path)
        blackbox.read_box(path, last=4)


def _read_glance(data: bytes) -> None:
    from hangdoctor.readers.box_position import BoxWatch

    with _as_file(data, "n-1.blackbox") as path:
        watch = BoxWatch(path)
        try:
            watch.read()
            watch.waiting_share(0, 2 * 10**18)
            watch.age_s(0.0, 1.8e9, 1e5)
        finally:
            watch.close()


def _read_calls(data: bytes) -> None:
    from hangdoctor.readers.calls import CallsReader

    with _as_file(data, "n-1.calls") as path, CallsReader(path) as reader:
        reader.read()
        reader.read(last=50)
        reader.read_last(20)
        reader.read_oldest()


def _read_nccl(data: bytes) -> None:
    from hangdoctor.readers import nccl_operations, nccl_profiler

    with _as_file(data, "n-1.nccl") as path:
        events = nccl_profiler.read_events(path)
        if events is not None:
            nccl_operations.rank_operations({0: events, 1: events}, 2)


def _read_dump(data: bytes) -> None:
    from hangdoctor.readers import flight_recorder
    from hangdoctor.readers import flight_recorder_format as fr_format

    dump = fr_format.parse(data)
    flight_recorder.convert({0: dump})
    flight_recorder.convert({3: dump, 5: dump}, world_size=8)


def _read_folder(data: bytes) -> None:
    """The case holds several files: a line of JSON with their names, then each with its length."""
    from hangdoctor.cli.diagnose import load
    from hangdoctor.diagnosis import diagnose

    head, _, rest = data.partition(b"\n")
    try:
        names = json.loads(head)
        sizes = [int(n) for n in names.values()]
    except (ValueError, AttributeError, TypeError, RecursionError, OverflowError):
        names, sizes = {"x": len(rest)}, [len(rest)]
    with tempfile.TemporaryDirectory(prefix="hangdoctor-fuzz-", dir="/dev/shm") as folder:
        for name, size in zip(names, sizes, strict=True):
            body, rest = rest[: max(0, size)], rest[max(0, size) :]
            plain = "".join(c for c in str(name) if c.isalnum() or c in "._-[]")[:100] or "x"
            Path(folder, plain if plain not in (".", "..") else "x").write_bytes(body)
        capture = load([Path(folder)])
        if (
            capture.world_size <= 4096
        ):  # how long a verdict over more ranks takes is not a matter of reading
            diagnose(capture)


def _read_pyspy_json(data: bytes) -> None:
    from hangdoctor.readers import pyspy_frames

    pyspy_frames.parse_json(data)


def _read_pyspy_text(data: bytes) -> None:
    from hangdoctor.readers import pyspy_ranks

    with _as_file(data, "trace-n1.out") as path:
        pyspy_ranks.read_files([path])


def _read_ras(data: bytes) -> None:
    from hangdoctor.readers import ras_reader

    ras_reader.is_ras(data)
    ras_reader.parse(data)


def _read_fr_trace(data: bytes) -> None:
    from hangdoctor.readers import fr_trace_text

    fr_trace_text.is_fr_trace(data)
    text = data.decode("utf-8", "replace")
    fr_trace_text.records(list(fr_trace_text.blocks(text)))


def _read_gpus(data: bytes) -> None:
    from hangdoctor.readers import gpus

    gpus.parse(data)


def _read_wire(data: bytes) -> None:
    from hangdoctor.transport import capture_codec
    from hangdoctor.transport import stdout_frame as wire

    capture_codec.unpack_capture(wire.unpack(data.decode("utf-8", "replace")).body)


def _read_node(data: bytes) -> None:
    from hangdoctor.transport import capture_codec

    capture_codec.unpack_capture(data)


def _read_operations(data: bytes) -> None:
    from hangdoctor.storage import operations_codec

    operations_codec.unpack(data)


def _read_bundle(data: bytes) -> None:
    from hangdoctor.storage import bundle

    head, _, rest = data.partition(b"\n")
    with tempfile.TemporaryDirectory(prefix="hangdoctor-fuzz-", dir="/dev/shm") as folder:
        for name, content in seeds_of_bundle().items():
            told = rest if name.encode() == head else content
            Path(folder, name).write_bytes(told)
        if head != b"manifest.json":  # else every change would end at its checksum
            manifest = json.loads(Path(folder, "manifest.json").read_bytes())
            for name in manifest["files"]:
                digest = hashlib.sha256(Path(folder, name).read_bytes()).hexdigest()
                manifest["files"][name] = f"sha256:{digest}"
            Path(folder, "manifest.json").write_text(json.dumps(manifest))
        bundle.load(Path(folder))


def seeds_of_bundle() -> dict[str, bytes]:
    global _BUNDLE
    _BUNDLE = _BUNDLE or seeds.bundle_files()
    return _BUNDLE


_BUNDLE: dict[str, bytes] = {}


def _named_json(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """The first line names the file that is spoilt."""
    head, _, rest = data.partition(b"\n")
    if head == b"operations.bin":
        return head + b"\n" + _packed(zlib.decompress(rest), chance, other)
    return head + b"\n" + _json_or_bytes(rest, chance, other.partition(b"\n")[2])


def _files_of_folder(data: bytes, chance: random.Random, other: bytes) -> bytes:
    """One of the files is spoilt, or the table of their names."""
    head, _, rest = data.partition(b"\n")
    names: dict[str, int] = json.loads(head)
    bodies: list[bytes] = []
    for size in names.values():
        bodies.append(rest[:size])
        rest = rest[size:]
    for _ in range(chance.choice((1, 2))):
        at = chance.randrange(len(bodies))
        bodies[at] = _json_or_bytes(bodies[at], chance, other)
    table = {_other_name(n, chance): len(b) for n, b in zip(names, bodies, strict=True)}
    bodies = bodies[: len(table)]
    return (
        json.dumps(dict(zip(table, map(len, bodies), strict=True))).encode()
        + b"\n"
        + b"".join(bodies)
    )


def _other_name(name: str, chance: random.Random) -> str:
    if chance.random() > 0.15:
        return name
    return chance.choice(
        ("trace_rank_9999999", "trace-n1.out", "x.blackbox", "0", "trace-n" + "9" * 90, name + "1")
    )


def _folder_seeds() -> list[bytes]:
    folders: list[dict[str, bytes]] = [
        {f"trace_rank_{n}": data for n, data in enumerate(seeds.files(f"flight_recorder/{kind}/*"))}
        for kind in ("gloo-json", "gloo-pickle")
    ]
    folders.append(
        {
            "trace-n1.out": seeds.files("pyspy/text.out")[0],
            "trace-n2.out": seeds.files("pyspy/native.out")[0],
        }
    )
    folders.append({"trace-n1.json": seeds.files("pyspy/json.out")[0]})
    folders.append({"n1-1.blackbox": seeds.box(), "ras.txt": seeds.files("ras/*.txt")[0]})
    return [
        json.dumps({n: len(d) for n, d in folder.items()}).encode()
        + b"\n"
        + b"".join(folder.values())
        for folder in folders
    ]


def _wire_seeds() -> list[bytes]:
    from hangdoctor.transport import stdout_frame as wire
    from hangdoctor.transport.capture_codec import pack_capture

    return [
        msgspec.msgpack.encode(wire.NodeReply("n1", pack_capture(seeds.node()))),
        msgspec.msgpack.encode(wire.NodeReply("n2", error="no ranks")),
    ]


def _wire_case(data: bytes, chance: random.Random, other: bytes) -> bytes:
    import base64

    from hangdoctor.transport import stdout_frame as wire

    body = spoil(data, chance, other)
    text = f"{wire.BEGIN} {len(body)} {zlib.crc32(body):08x}\n{base64.b64encode(body).decode()}\n{wire.END} {zlib.crc32(body):08x}\n"
    return text.encode() if chance.random() < 0.8 else spoil(text.encode(), chance, other)


def _node_seeds() -> list[bytes]:
    from hangdoctor.transport import capture_codec

    return [zlib.decompress(capture_codec.pack_capture(seeds.node()))]


def _operation_seeds() -> list[bytes]:
    from hangdoctor.storage import operations_codec

    return [
        zlib.decompress(
            operations_codec.pack([((0, False), seeds.history(0)), ((1, True), seeds.history(1))])
        )
    ]


def _bundle_seeds() -> list[bytes]:
    names = ("manifest.json", "capture.json", "operations.bin")
    return [name.encode() + b"\n" + seeds_of_bundle()[name] for name in names]


TARGETS = [
    Target("blackbox", lambda: [seeds.box()], _read_box),
    Target("glance", lambda: [seeds.box()], _read_glance),
    Target("calls", lambda: [seeds.ring()], _read_calls),
    Target("nccl", lambda: [seeds.nccl()], _read_nccl),
    Target(
        "flight_recorder_json",
        lambda: seeds.files("flight_recorder/gloo-json/*"),
        _read_dump,
        _json_or_bytes,
    ),
    Target(
        "flight_recorder_pickle",
        lambda: seeds.files("flight_recorder/gloo-pickle/*"),
        _read_dump,
        _in_pickle,
    ),
    Target("pyspy_json", lambda: seeds.files("pyspy/json.out"), _read_pyspy_json, _json_or_bytes),
    Target("pyspy_text", lambda: seeds.files("pyspy/*.out"), _read_pyspy_text),
    Target("ras", lambda: seeds.files("ras/*"), _read_ras, _json_or_bytes),
    Target("fr_trace", lambda: seeds.files("fr_trace/*.log"), _read_fr_trace),
    Target("gpus", lambda: seeds.files("gpus/*.xml"), _read_gpus),
    Target("wire", _wire_seeds, _read_wire, _wire_case),
    Target("node_packing", _node_seeds, _read_node, _packed),
    Target("operations", _operation_seeds, _read_operations, _packed),
    Target("bundle", _bundle_seeds, _read_bundle, _named_json),
    Target("folder", _folder_seeds, _read_folder, _files_of_folder),
]
