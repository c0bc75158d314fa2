"""Who may come in: ZeroMQ asks here for each key."""

from __future__ import annotations

import logging
import secrets

import zmq
import zmq.asyncio
from zmq.utils import z85

_LOG = logging.getLogger("hangdoctor.collector")


class Gate:
    """ZAP (https://rfc.zeromq.org/spec/27/): who holds the job's key may come in; the others are
    counted.
    """

    def __init__(self, context: zmq.asyncio.Context, admitted: bytes) -> None:
        self.admitted = z85.decode(admitted)
        self.refused = 0
        self.socket = context.socket(zmq.REP)
        self.socket.bind("inproc://zeromq.zap.01")

    async def run(self) -> None:
        """Answer ZeroMQ until it is cancelled."""
        while True:
            version, number, _, _, _, mechanism, *credentials = await self.socket.recv_multipart()
            good = mechanism == b"CURVE" and secrets.compare_digest(
                b"".join(credentials[:1]), self.admitted
            )
            if not good:
                self.refused += 1
                if self.refused <= 3 or self.refused % 1000 == 0:
                    _LOG.warning(
                        "a connection with an unknown key was refused (%d so far)", self.refused
                    )
            said = [b"200", b"OK"] if good else [b"400", b"no"]
            user, metadata = b"", b""
            await self.socket.send_multipart([version, number, *said, user, metadata])
