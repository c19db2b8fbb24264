"""A link between two network namespaces that loses packets and takes its time, for where there is no `tc netem`.

lossy.py PID PID LOSS DELAY: between the namespaces of these processes, LOSS of 1 is lost, DELAY is in seconds one way. Makes a
device `cable` in each; says "ready" and moves packets until it is killed.
"""

import ctypes
import fcntl
import heapq
import os
import random
import select
import struct
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000


def device(pid):
    """A device in the namespace of a process."""
    with open(f"/proc/{pid}/ns/net") as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"cable", IFF_TUN | IFF_NO_PI))
    return tun


def main():
    ends = [device(sys.argv[1]), device(sys.argv[2])]
    loss, delay = float(sys.argv[3]), float(sys.argv[4])
    print("ready", flush=True)
    chance = random.Random(7)
    # Packets under way: when they are there, a number that keeps their order, where to, and what.
    under_way, number = [], 0
    while True:
        now = time.monotonic()
        while under_way and under_way[0][0] <= now:
            _, _, end, packet = heapq.heappop(under_way)
            try:
                os.write(end, packet)
            except OSError:
                pass  # The device is full, or down.
        pause = under_way[0][0] - now if under_way else None
        for end in select.select(ends, [], [], pause)[0]:
            try:
                packet = os.read(end, 65536)
            except OSError:
                continue
            if chance.random() >= loss and len(under_way) < 10_000:
                number += 1
                other = ends[1] if end == ends[0] else ends[0]
                heapq.heappush(under_way, (time.monotonic() + delay, number, other, packet))


main()
