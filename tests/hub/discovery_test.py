#!/usr/bin/env python3
"""Hubs that announce themselves and workers that look for one, as processes on a network of their own, among strangers who
announce what they like. Skipped (exit code 77) where the system gives us no such network."""
import contextlib
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import types
import unittest

from hub_process import BIN, Hub
from worker_process import WAIT, Worker, holders, until

ADDRESS = "10.77.0.1"
NETWORK = f"""ip link set lo up multicast on && ip link add lan type veth peer name far &&
ip addr add {ADDRESS}/24 dev lan && ip link set far up && ip link set lan up && ip route add 224.0.0.0/4 dev lan"""
AUTO = types.SimpleNamespace(url="auto")
GROUP = ("224.0.0.251", 5353)
PTR, A, TXT, SRV = 12, 1, 16, 33


def enter_network():
    """Runs this test again, inside."""
    if "LINKCPP_TEST_NETWORK" in os.environ:
        return
    inside = ["unshare", "--map-root-user", "--net", "sh", "-c"]
    try:
        made = subprocess.run([*inside, NETWORK], capture_output=True, text=True)
        error = made.stderr.strip() if made.returncode else None
    except OSError as missing:
        error = str(missing)
    if error is not None:
        print(f"skipped: no network namespace can be made here: {error}")
        sys.exit(77)
    os.environ["LINKCPP_TEST_NETWORK"] = "1"
    os.execvp("unshare", [*inside, NETWORK + ' && exec "$@"', "sh", sys.executable, "-B", *sys.argv])


def labels(*names):
    return b"".join(bytes([len(name)]) + name for name in names) + b"\0"


TYPE = (b"_linkcpp", b"_tcp", b"local")


def record(name, kind, data, ttl=120):
    return name + struct.pack("!HHIH", kind, 1, ttl, len(data)) + data


def message(*records, count=None):
    return struct.pack("!HHHHHH", 0, 0x8400, 0, len(records) if count is None else count, 0, 0) + b"".join(records)


def hub_message(name, address="10.77.0.1", port=1, txt=(b"scheme=http",)):
    instance, host = labels(name, *TYPE), labels(b"host-of-" + name, b"local")
    return message(record(labels(*TYPE), PTR, instance), record(instance, SRV, struct.pack("!HHH", 0, 0, port) + host),
                   record(instance, TXT, b"".join(bytes([len(line)]) + line for line in txt)),
                   record(host, A, socket.inet_aton(address)))


@contextlib.contextmanager
def stranger(*messages):
    """Says all of them again and again."""
    end = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            sender.setsockopt(socket.SOL_SOCKET, option, 1)
        sender.bind(("", 5353))
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(ADDRESS))

        def say():
            while not end.wait(0.1):
                for one in messages:
                    sender.sendto(one, GROUP)

        thread = threading.Thread(target=say)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()


HOSTILE = [
    hub_message(b"no port", port=0),
    hub_message(b"this machine", address="127.0.0.1"),
    hub_message(b"nowhere", address="0.0.0.0"),
    hub_message(b"a group", address="224.0.0.1"),
    hub_message(b"everybody", address="255.255.255.255"),
    hub_message(b"another scheme", txt=(b"scheme=ftp",)),
    hub_message(b"no scheme", txt=(b"version=1",)),
    hub_message(b"two schemes", txt=(b"scheme=http", b"scheme=https")),
    hub_message(b"odd text", txt=(b"", b"=", b"scheme", b"\xff\0\x1b[31m", b"x" * 255) * 4),
    hub_message(b"\xff\x1b[2J", port=0),
    message(record(labels(*TYPE), PTR, b"\xc0\x2d")),                       # a name that points to itself
    message(record(labels(*TYPE), PTR, b"\xc0\xff")),                       # and one that points outside
    message(record(labels(*TYPE), PTR, b"\x3fshort")),
    message(record(labels(b"a" * 63, b"b" * 63, b"c" * 63, b"d" * 63, b"e" * 63), A, b"")),
    message(record(labels(*TYPE), SRV, b"\0")),
    message(count=65535),
    hub_message(b"cut")[:-9],
    b"\0",
    b"\xff" * 8000,
] + [message(record(labels(*TYPE), PTR, labels(b"name %d" % i, *TYPE))) for i in range(200)]


class Discovery(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="linkcpp-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name + "/worker"

    def hub(self, *arguments, listen="0.0.0.0:0", data=None):
        log = tempfile.NamedTemporaryFile(prefix="linkcpp-test-")
        self.addCleanup(log.close)
        hub = Hub("--open", *arguments, listen=listen, data=data, stderr=log).__enter__()
        self.addCleanup(hub.__exit__)
        hub.log = log.name
        return hub

    def announced(self, *arguments, **how):
        hub = self.hub(*arguments, **how)
        until(lambda: "announced on the local network" in pathlib.Path(hub.log).read_text())
        return hub

    def worker(self):
        return Worker(AUTO, self.folder, "--max-experts", "8")

    def refused(self, code):
        """What a worker says that finds no hub, or not one."""
        with self.worker() as worker:
            self.assertEqual(worker.process.wait(timeout=WAIT), code)
        return worker.said

    def joins(self, url):
        with self.worker() as worker:
            worker.wait("serving")
            worker.stop()
        self.assertIn(f"found the hub {url}\n", worker.said)

    def test_a_worker_joins_the_hub_of_its_network(self):
        hub = self.announced()
        with self.worker() as worker:
            worker.wait("serving")
            until(lambda: holders(hub))
            worker.stop()
        self.assertIn(f"found the hub http://{ADDRESS}:{hub.port}\n", worker.said)
        self.assertEqual(hub.stop(), 0)
        self.assertIn("no hub answered on this network within 5 s; name it with --hub", self.refused(1))

    def test_one_address(self):
        self.joins(self.announced(listen=ADDRESS + ":0").url)

    def test_loopback_when_asked_to(self):
        self.joins(self.announced("--announce", "on", listen="127.0.0.1:0").url)

    def test_not_announced(self):
        self.hub("--announce", "off")
        self.hub(listen="127.0.0.1:0")
        self.assertIn("no hub answered", self.refused(1))

    def test_what_cannot_be_announced(self):
        done = subprocess.run([BIN + "/linkcpp-hub", "--model", sys.argv[2], "--data", self.folder, "--listen", "[::1]:0",
                               "--announce", "on"], capture_output=True, text=True, timeout=WAIT)
        self.assertEqual(done.returncode, 1)
        self.assertIn("IPv6", done.stderr)

    def test_several_hubs_are_listed(self):
        urls = [f"http://{ADDRESS}:{hub.port}" for hub in (self.announced(), self.announced())]
        said = self.refused(2)
        self.assertIn("several hubs", said)
        for url in urls:
            self.assertIn(url, said)

    def test_two_hubs_with_one_key_get_along(self):
        first = self.announced()
        copy = self.folder + "/copy"
        os.makedirs(copy)
        shutil.copy(first.data + "/hub.key", copy)
        twin = self.announced(data=copy)
        said = self.refused(2)
        self.assertIn(f"http://{ADDRESS}:{first.port}", said)
        self.assertIn(f"http://{ADDRESS}:{twin.port}", said)

    def test_strangers_who_announce_hubs_are_heard(self):
        with stranger(hub_message(b"one", "10.77.0.8", 19000), hub_message(b"two", "10.77.0.9", 443, (b"scheme=https",))):
            self.assertIn("http://10.77.0.8:19000, https://10.77.0.9:443;", self.refused(2))

    def test_what_strangers_say_is_not_believed(self):
        with stranger(*HOSTILE):
            said = self.refused(1)
        self.assertIn("no hub answered", said)
        self.assertNotIn("\x1b", said)

    def test_strangers_do_not_disturb_a_hub(self):
        with stranger(*HOSTILE[:-200]):
            hub = self.announced()
            self.joins(f"http://{ADDRESS}:{hub.port}")
            self.assertEqual(hub.stop(), 0)


if __name__ == "__main__":
    enter_network()
    unittest.main(argv=["discovery_test", "-v"])
