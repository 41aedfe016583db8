"""Which of this host's interfaces leads to another host: asked of the kernel's routes, no packet is sent."""

import array
import fcntl
import socket
import struct
from collections.abc import Mapping

ELSEWHERE = "192.0.2.1"  # RFC 5737: nobody's address, so the way to it is the way to anywhere
_SIOCGIFADDR = 0x8915
_PORT = 9  # never spoken to


def address_towards(host: str) -> str | None:
    """Return this host's IPv4 address as another one sees it; None where no way leads there.

    Args:
        host: a name or an address.

    Raises:
        OSError: when the name has no IPv4 address.
    """
    to = socket.getaddrinfo(host, _PORT, socket.AF_INET, socket.SOCK_DGRAM)[0][4]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(to)
        except OSError:
            return None
        return str(probe.getsockname()[0])


def interfaces() -> Mapping[str, str]:
    """Return the IPv4 address of each interface that has one, by its name."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = array.array("b", struct.pack("256s", name.encode()))
            try:
                fcntl.ioctl(probe, _SIOCGIFADDR, request)
            except OSError:
                continue
            found[name] = socket.inet_ntoa(request.tobytes()[20:24])
    return found


def interface_of(address: str | None, here: Mapping[str, str]) -> str | None:
    """Return the name of the interface that has an address, None if none has."""
    return next((name for name, own in here.items() if own == address), None)
