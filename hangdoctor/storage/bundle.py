"""The bundle: one folder that holds everything a diagnosis read, so that any incident replays
offline.

    manifest.json    format, versions, command line, sizes and checksums of the other files
    capture.json     `hangdoctor.model.capture.JobCapture` without its operations; with them all
                     that a diagnosis reads
    operations.bin   the operations, packed (`hangdoctor.storage.operations_codec`)
    nodes.bin        of a job of thousands of ranks: the nodes' answers as they came
                     (`hangdoctor.transport.capture_codec`); the two files above then leave out what
                     is in it
    diagnosis.json   the verdict as it was given
    report.txt       the same as text, whole
    raw/NODE/...     what the tools printed, as evidence for people

Written into a hidden folder beside its place and renamed: it is there whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from .._version import __version__
from ..errors import BadInput, BundleError, WireError
from ..files import read_regular
from ..model.capture import CAPTURE_SCHEMA, JobCapture, NodeCapture
from ..model.diagnosis import Diagnosis
from ..model.number_checks import check_job
from ..model.operations import RankOps
from ..text import redaction
from ..text.job_names import short_job
from ..text.plain import readable, safe_name
from ..text.printable import as_json
from ..transport import capture_codec
from . import operations_codec

_OPERATIONS = "operations.bin"
_NODES = "nodes.bin"
BUNDLE_SCHEMA = "hangdoctor.bundle/1"
MAX_MANIFEST = 64 << 20
_MAX_FILE = 2 << 30
_DAMAGED = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class Manifest(msgspec.Struct):
    """manifest.json: by what and when the bundle was made, and what belongs to it."""

    schema: str
    hangdoctor: str
    python: str
    system: str
    created: float
    command: list[str]
    files: dict[str, str]  # path -> "sha256:..."


def default_path(job: str, at: float) -> Path:
    """``hangdoctor-<job>-<time>`` in the current folder."""
    name = safe_name(short_job(job))
    return Path(f"hangdoctor-{name}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(at))}")


def save(
    path: Path, capture: JobCapture, diagnosis: Diagnosis, report: str, command: list[str]
) -> Path:
    """Write a bundle and return where it is: `path`, or `path-2`, `path-3` ... where that exists
    already.

    Raises:
        BundleError: the folder cannot be written; nothing is left behind.
    """
    files = _files(capture, diagnosis, report)
    manifest = Manifest(
        schema=BUNDLE_SCHEMA,
        hangdoctor=__version__,
        python=platform.python_version(),
        system=f"{platform.system()} {platform.release()}",
        created=capture.taken,
        command=command,
        files={name: _checksum(data) for name, data in files.items()},
    )
    files["manifest.json"] = msgspec.json.format(msgspec.json.encode(manifest), indent=1)
    staging: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".hangdoctor-", dir=path.parent))  # 0700
        for name, data in files.items():
            target = staging / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        return _rename(staging, path)
    except OSError as error:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
        raise BundleError(
            f"the bundle cannot be written to {path}: {error.strerror or error}",
            "Choose another folder with --bundle DIR.",
        ) from error


def _checksum(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _files(capture: JobCapture, diagnosis: Diagnosis, report: str) -> dict[str, bytes]:
    raw = {
        f"raw/{safe_name(n.node)}/{safe_name(name)}": text.encode()
        for n in capture.nodes
        for name, text in n.raw.items()
    }
    packed = capture.packed
    written = [_not_packed(n) if n.node in packed else n for n in capture.nodes]
    bare = replace(capture, nodes=[_without_operations(n) for n in written], packed={})
    histories = _histories(replace(capture, nodes=written))
    files = {
        "capture.json": msgspec.json.encode(bare),
        _OPERATIONS: operations_codec.pack(histories),
        "diagnosis.json": encode_diagnosis(diagnosis),
        "report.txt": report.encode(),
        **raw,
    }
    if packed:
        files[_NODES] = msgspec.msgpack.encode(packed)
    return files


def _without_operations(node: NodeCapture) -> NodeCapture:
    """What capture.json holds of a node: operations and raw output have files of their own."""
    ranks = [replace(r, ops=None, ops_before=None) for r in node.ranks]
    return replace(node, raw={}, ranks=ranks)


def _not_packed(node: NodeCapture) -> NodeCapture:
    """Of a node whose answer is kept as it came: the ranks that were added to it, because they are
    gone.
    """
    return NodeCapture(node.node, ranks=[r for r in node.ranks if r.gone and not r.pid])


def _unpack_nodes(capture: JobCapture, data: bytes) -> None:
    """Put the nodes of `nodes.bin` in, in the order in which they came: the first with a group has
    its members.

    Raises:
        BadInput: they are damaged.
    """
    try:
        capture.packed = msgspec.msgpack.decode(data, type=dict[str, bytes])
        shared = capture_codec.Shared()
        found = {
            name: capture_codec.unpack_capture(body, shared)
            for name, body in capture.packed.items()
        }
    except (msgspec.DecodeError, WireError) as error:
        raise BadInput(f"{_NODES} of the bundle is damaged: {error}") from error
    for place, written in enumerate(capture.nodes):
        if written.node in found:
            node = found[written.node]
            capture_codec.name_node(node, written.node)
            present = {r.rank for r in node.ranks}
            node.ranks += [r for r in written.ranks if r.rank not in present]
            capture.nodes[place] = node


def _histories(capture: JobCapture) -> Iterator[tuple[operations_codec.Key, RankOps]]:
    """By the rank's place in the capture: numbers of ranks need not be unique in what people
    collected.
    """
    for place, rank in enumerate(r for n in capture.nodes for r in n.ranks):
        for ops, before in ((rank.ops, False), (rank.ops_before, True)):
            if ops is not None:
                yield (place, before), ops


def _rename(staging: Path, path: Path) -> Path:
    """Move into place without ever replacing what is there: rename(2) refuses a folder that is not
    empty.
    """
    for n in range(1, 10_000):
        target = path if n == 1 else path.with_name(f"{path.name}-{n}")
        if os.path.lexists(target):
            continue
        with contextlib.suppress(FileExistsError):
            staging.rename(target)
            return target
    raise OSError("too many bundles of that name")


def encode_diagnosis(diagnosis: Diagnosis) -> bytes:
    """The diagnosis as indented JSON with a newline: the bytes of `--json` and of the bundle."""
    return as_json(diagnosis)


def as_bytes(capture: JobCapture, diagnosis: Diagnosis, folder: Path) -> bytes:
    """The diagnosis for `report --json`."""
    return encode_diagnosis(diagnosis)


def is_bundle(path: Path) -> bool:
    """Whether this folder says that it is one."""
    return (path / "manifest.json").is_file()


def load(path: Path) -> JobCapture:
    """The capture of a bundle.

    Raises:
        BadInput: it is not a bundle, of another version, incomplete or altered.
    """
    manifest = _manifest(path)
    data = _listed_file(path, "capture.json", manifest)
    operations = _listed_file(path, _OPERATIONS, manifest)
    nodes = _listed_file(path, _NODES, manifest)
    try:
        capture = msgspec.json.decode(data, type=JobCapture)
    except _DAMAGED as error:
        raise BadInput(f"{path}/capture.json is damaged: {str(error)[:200]}") from error
    if capture.schema != CAPTURE_SCHEMA:
        raise BadInput(
            f"{path}/capture.json is of format {capture.schema}; this version reads {CAPTURE_SCHEMA}"
        )
    if operations:
        _put_operations(capture, operations)
    if nodes:
        _unpack_nodes(capture, nodes)
    try:
        check_job(capture)
    except BadInput as error:
        raise BadInput(f"{path} is damaged: {error}") from error
    return capture


def _manifest(path: Path) -> Manifest:
    try:
        data = read_regular(path / "manifest.json", MAX_MANIFEST)
        manifest = msgspec.json.decode(data, type=Manifest)
    except OSError as error:
        raise _unreadable(path, error) from error
    except _DAMAGED as error:
        raise BadInput(f"{path}/manifest.json is damaged: {str(error)[:200]}") from error
    if manifest.schema != BUNDLE_SCHEMA:
        raise BadInput(
            f"{path} is of format {manifest.schema}; this version reads {BUNDLE_SCHEMA}",
            "Update hangdoctor.",
        )
    return manifest


def _listed_file(path: Path, name: str, manifest: Manifest) -> bytes:
    """A file of the bundle; empty where the manifest does not list it, which it must of
    capture.json.

    Raises:
        BadInput: it is not there, or not what is listed.
    """
    listed = manifest.files.get(name)
    if listed is None and name != "capture.json":
        return b""
    try:
        content = read_regular(path / name, _MAX_FILE)
    except OSError as error:
        raise _unreadable(path, error) from error
    if _checksum(content) != listed:
        raise BadInput(f"{path}/{name} does not match the manifest: it was truncated or changed")
    return content


def _unreadable(path: Path, error: OSError) -> BadInput:
    return BadInput(f"{path} is no readable bundle: {error.filename}: {error.strerror}")


def _put_operations(capture: JobCapture, packed: bytes) -> None:
    histories = operations_codec.unpack(packed)
    for place, rank in enumerate(r for n in capture.nodes for r in n.ranks):
        rank.ops = histories.get((place, False), rank.ops)
        rank.ops_before = histories.get((place, True), rank.ops_before)


def command_line() -> list[str]:
    """This process's own command for the manifest, without credentials."""
    return ["hangdoctor", *redaction.arguments([readable(word) for word in sys.argv[1:]])]
