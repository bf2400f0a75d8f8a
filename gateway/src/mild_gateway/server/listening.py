"""The listening socket: how it begins, and how it ends without losing a connection."""

from __future__ import annotations

import ctypes
import socket
import struct
import sys
from contextlib import suppress

# Connections that wait to be accepted.
BACKLOG = 2048
# Of Linux; Python does not name it.
SO_ATTACH_FILTER = 26
# A program for the kernel's packet filter: code, jump if true, jump if false, value.
DROP_SYN = (
    (0x30, 0, 0, 13),  # load the flags of the TCP header
    (0x54, 0, 0, 0x12),  # look at SYN and ACK only
    (0x15, 0, 1, 0x02),  # is it SYN alone, which asks for a new connection?
    (0x06, 0, 0, 0),  # then drop it
    (0x06, 0, 0, 0xFFFFFFFF),  # else take it
)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket that worker processes can inherit."""
    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    server = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Its connections inherit this: small answers are sent at once.
    server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        server.bind((host.strip("[]"), port))
        server.listen(BACKLOG)
    except OSError:
        server.close()
        raise
    server.setblocking(False)
    return server


def drop_new_connections(sock: socket.socket) -> None:
    """Let the kernel drop what asks for a new connection; those that wait can still be accepted.

    A connection that is established but not accepted when its socket closes is reset, and with it a request
    that a proxy may not send again. A dropped one asks again after a second, is refused then, and the proxy
    goes elsewhere. Only Linux has this; elsewhere the few connections of that moment are reset.
    """
    if sys.platform != "linux":
        return
    program = b"".join(struct.pack("HBBI", *line) for line in DROP_SYN)
    memory = ctypes.create_string_buffer(program, len(program))
    pointer = struct.pack("HL", len(DROP_SYN), ctypes.addressof(memory))
    # A sandbox may forbid it.
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, pointer)
