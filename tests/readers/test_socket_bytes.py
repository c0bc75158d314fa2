"""What connections have carried, as the kernel counts it: of a process that waits in poll for more."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

from hangdoctor.readers import proc, socket_bytes

# Sends 3 bytes, reads 5000, says so, and waits for more with a time limit: in poll, of one descriptor.
CLIENT = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=600)
link.sendall(b"abc")
left = 5000
while left:
    left -= len(link.recv(left))
print("read", flush=True)
link.recv(1)
"""
LIMIT_S = 60.0


def test_a_process_that_waits_for_a_connection_has_its_counts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        port = str(server.getsockname()[1])
        words = [sys.executable, "-c", CLIENT, port]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as client:
            try:
                link, _ = server.accept()
                link.sendall(b"x" * 5000)
                assert client.stdout is not None and client.stdout.readline() == "read\n"
                sample = _in_poll(client.pid)
                socket_bytes.SocketCounts().add_to(client.pid, sample)
                [thread] = sample.threads
                assert (thread.received, thread.sent) == (sample.received, 3 + 1) == (5000, 4)
            finally:
                client.kill()


def _in_poll(pid: int):  # type: ignore[no-untyped-def]
    """A sample of the process, once it is in poll on its connection."""
    end = time.monotonic() + LIMIT_S
    while time.monotonic() < end:
        sample = proc.sample_process(pid, 0.0)
        if sample.threads and "-> socket:[" in sample.threads[0].syscall:
            assert sample.threads[0].syscall.startswith(("poll(", "ppoll(")), sample
            return sample
        time.sleep(0.02)
    raise AssertionError("it never came to its poll")


def test_a_process_without_connections_or_of_another_namespace_has_none() -> None:
    sample = proc.sample_process(os.getpid(), 0.0)
    socket_bytes.SocketCounts().add_to(1 << 22, sample)  # there is no such process
    assert sample.received == -1
