"""One node's answer as lines of text, to travel over any launcher's standard output.

    HANGDOCTOR-HERE/1
    HANGDOCTOR-REPORT/1 <bytes> <crc32>
    <base64 of zlib-compressed JSON, in lines of 4,096 characters>
    HANGDOCTOR-END/1 <crc32>

What a login shell or a scheduler prints before, after or between whole lines does no harm. A report
counts when its end marker came and the checksum fits: exit codes of srun and mpiexec prove nothing.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from ..errors import BadInput, WireError
from ..model.capture import NodeCapture
from ..model.number_checks import check_node
from ..text.ranges import number_in

HERE = "HANGDOCTOR-HERE/1"  # a line of its own, as soon as the agent runs: from then on its node is worth waiting for
BEGIN = "HANGDOCTOR-REPORT/1"
END = "HANGDOCTOR-END/1"
_LINE = 4096
# Of a decompressed report: a broken or hostile sender must not fill the memory. Three bytes can be a list of 64.
MAX_BYTES = 128 << 20
MAX_OBJECTS = 4_000_000


class NodeReply(msgspec.Struct, omit_defaults=True):
    """What the one-shot agent answers: a capture, or why there is none."""

    node: str
    capture: NodeCapture | None = None
    error: str = ""
    help: str = ""
    preflight: str = ""  # instead of a capture: `readers.preflight.NodeReadings` as JSON


def pack(reply: NodeReply) -> str:
    """The reply as text that ends with the end marker and a newline."""
    body = zlib.compress(msgspec.json.encode(reply), 6)
    checksum = f"{zlib.crc32(body):08x}"
    text = base64.b64encode(body).decode()
    lines = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]
    return "\n".join([f"{BEGIN} {len(body)} {checksum}", *lines, f"{END} {checksum}"]) + "\n"


def unpack(output: str) -> NodeReply:
    """Find the report in what a launcher printed.

    Raises:
        WireError: no report began, it has no end, or it is damaged.
    """
    lines = output.splitlines()
    start = next((i for i, line in enumerate(lines) if line.strip().startswith(BEGIN)), None)
    if start is None:
        raise WireError("no report came")
    stop = next((i for i in range(start, len(lines)) if lines[i].strip().startswith(END)), None)
    if stop is None:
        raise WireError("the report was truncated")
    try:
        told, checksum = lines[start].split()[1:3]
        body = b"".join(
            base64.b64decode(line, validate=True)
            for line in lines[start + 1 : stop]
            if _is_base64(line)
        )
    except (ValueError, binascii.Error) as error:
        raise WireError(f"the report is damaged: {error}") from error
    if len(body) != number_in(told) or f"{zlib.crc32(body):08x}" != checksum:
        raise WireError("the report is damaged: its checksum does not match")
    return _decode(body)


def _is_base64(line: str) -> bool:
    """Lines of other speakers have spaces or punctuation; base64 has neither."""
    return bool(line) and all(c.isalnum() or c in "+/=" for c in line)


def _decode(body: bytes) -> NodeReply:
    inflater = zlib.decompressobj()
    try:
        data = inflater.decompress(body, MAX_BYTES)
        if inflater.unconsumed_tail:
            raise WireError(f"the report is larger than {MAX_BYTES >> 20} MiB")
        if data.count(b"{") + data.count(b"[") > MAX_OBJECTS:
            raise WireError(f"the report has more than {MAX_OBJECTS:,} lists and records")
        reply = msgspec.json.decode(data, type=NodeReply)
        if reply.capture is not None:
            check_node(reply.capture)
        return reply
    except (zlib.error, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the report is damaged: {str(error)[:200]}") from error
    except BadInput as error:
        raise WireError(str(error)) from error
