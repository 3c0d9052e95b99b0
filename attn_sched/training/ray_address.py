"""Which Ray a program is to use: the cluster that it is told of, or one of its own. Light: nothing here imports Ray."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from attn_sched.errors import InputError

VARIABLE = "RAY_ADDRESS"  # Ray sets it for the command of a job
OWN = "local"  # Ray's word for a new Ray of this process's own
CONNECT_S = 5.0


def cluster_address(given: str | None = None, environment: Mapping[str, str] = os.environ) -> str | None:
    """The running cluster to use, or None where there is to be a new Ray.

    That something listens there is checked here, since Ray itself tries for minutes.

    Args:
        given: HOST:PORT or ``auto``; None for that of the environment.
        environment: May have RAY_ADDRESS.

    Raises:
        InputError: the address is malformed, or nothing listens there.
    """
    field = "address" if given else VARIABLE
    address = given or environment.get(VARIABLE) or OWN
    if address == OWN:
        return None
    if address == "auto":
        return address
    host, separator, port = address.removeprefix("ray://").rpartition(":")
    if not separator or not host or not port.isdecimal() or not 0 < int(port) < 65536 or "://" in host:
        raise InputError(f"{address!r} is no address of a cluster", field=field, expected="HOST:PORT, as HEAD:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except OSError as error:
        raise InputError(
            f"no cluster answers at {address}: {error.strerror or error}",
            field=field,
            expected="a running cluster, or no address: then a new Ray is started",
        ) from error
    return address
