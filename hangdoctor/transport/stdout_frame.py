"""One node's answer as lines of text, to travel over any launcher's standard output: of a capture,
of `preflight`, of `trace`.

    HANGDOCTOR-HERE/1
    HANGDOCTOR-REPORT/2 <bytes> <crc32>
    <base64 of a `NodeReply` in msgpack, in lines of 4,096 characters>
    HANGDOCTOR-END/1 <crc32>

What a login shell or a scheduler prints before, after or between whole lines does no harm. A report
counts when its end marker came and the checksum fits: exit codes of srun and mpiexec prove nothing.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from ..errors import WireError
from ..text.ranges import number_in

# A line of its own, as soon as the agent runs: from then on its node is worth waiting for
HERE = "HANGDOCTOR-HERE/1"
BEGIN = "HANGDOCTOR-REPORT/2"
END = "HANGDOCTOR-END/1"
_ANY_BEGIN = BEGIN.partition("/")[0]
_LINE = 4096


class NodeReply(msgspec.Struct, omit_defaults=True):
    """What a command on a node answers: a body that the asking verb knows how to read, or why there
    is none.

    A capture is packed by `capture_codec.pack_capture`, as on its way to a collector; what is
    smaller is plain msgpack.
    """

    node: str
    body: bytes = b""
    error: str = ""
    help: str = ""


_decoder: msgspec.msgpack.Decoder[NodeReply] = msgspec.msgpack.Decoder(NodeReply)


def pack(reply: NodeReply) -> str:
    """The reply as text that ends with the end marker and a newline."""
    data = msgspec.msgpack.encode(reply)
    checksum = f"{zlib.crc32(data):08x}"
    text = base64.b64encode(data).decode()
    lines = [text[i : i + _LINE] for i in range(0, len(text), _LINE)]
    return "\n".join([f"{BEGIN} {len(data)} {checksum}", *lines, f"{END} {checksum}"]) + "\n"


def unpack(output: str) -> NodeReply:
    """Find the report in what a launcher printed.

    Raises:
        WireError: no report began, it has no end, it is damaged, or of another version.
    """
    lines = output.splitlines()
    start = next((i for i, line in enumerate(lines) if line.strip().startswith(_ANY_BEGIN)), None)
    if start is None:
        raise WireError("no report came")
    stop = next((i for i in range(start, len(lines)) if lines[i].strip().startswith(END)), None)
    if stop is None:
        raise WireError("the report was truncated")
    try:
        version, told, checksum = lines[start].split()[:3]
        data = b"".join(
            base64.b64decode(line, validate=True)
            for line in lines[start + 1 : stop]
            if _is_base64(line)
        )
    except (ValueError, binascii.Error) as error:
        raise WireError(f"the report is damaged: {error}") from error
    if version != BEGIN:
        raise WireError("the hangdoctor there is of another version")
    if len(data) != number_in(told) or f"{zlib.crc32(data):08x}" != checksum:
        raise WireError("the report is damaged: its checksum does not fit")
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"the report is damaged: {str(error)[:200]}") from error


def _is_base64(line: str) -> bool:
    """Lines of other speakers have spaces or punctuation; base64 has neither."""
    return bool(line) and all(c.isalnum() or c in "+/=" for c in line)
