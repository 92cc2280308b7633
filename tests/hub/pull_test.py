#!/usr/bin/env python3
"""`linkcpp pull` against a live hub, also through a proxy that stalls, cuts and damages; killed, resumed, refused."""
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from hub_process import BIN, MODEL, Hub

HEAD = 15 + 32  # of a journal


class Proxy:
    """Passes bytes on to a hub. What the hub sends is counted; at `stall_at` nothing more comes through until release(), and
    the byte with the number in `flip` arrives with another bit (`flip_all`: one in each piece that follows it)."""

    def __init__(self, port, stall_at=None, flip=None, flip_all=False):
        self.port_behind, self.stall_at, self.flip, self.flip_all = port, stall_at, flip, flip_all
        self.passed, self.lock, self.open, self.all, self.pumps = 0, threading.Lock(), [], [], []
        self.stalled, self.released = threading.Event(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.acceptor = threading.Thread(target=self.accept)
        self.acceptor.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.released.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.acceptor.join()
        self.listener.close()
        self.cut()
        for thread in self.pumps:
            thread.join()
        for one in self.all:
            one.close()

    def cut(self):
        with self.lock:
            for one in self.open:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.open = []

    def release(self):
        self.stall_at = None
        self.released.set()

    def accept(self):
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            try:
                hub = socket.create_connection(("127.0.0.1", self.port_behind))
            except OSError:
                client.close()
                continue
            with self.lock:
                self.open += [client, hub]
            self.all += [client, hub]
            for arguments in ((client, hub, False), (hub, client, True)):
                self.pumps.append(threading.Thread(target=self.pump, args=arguments))
                self.pumps[-1].start()

    def pump(self, source, sink, down):
        try:
            while piece := source.recv(16384):
                sink.sendall(self.through(piece) if down else piece)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def through(self, piece):
        with self.lock:
            if self.stall_at is not None and self.passed + len(piece) > self.stall_at:
                stall = True
            else:
                stall, at = False, self.passed
                self.passed += len(piece)
                if self.flip is not None and (at <= self.flip < at + len(piece) or (self.flip_all and at > self.flip)):
                    piece = bytearray(piece)
                    piece[len(piece) // 2] ^= 16
        if stall:
            self.stalled.set()
            self.released.wait()
        return piece


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def claimed(journal):
    """Bytes that a journal says are here."""
    try:
        with open(journal, "rb") as file:
            records = file.read()[HEAD:]
    except FileNotFoundError:
        return 0
    have = dict(struct.iter_unpack("<IQ", records[:len(records) // 12 * 12]))
    return sum(have.values())


def wait_for(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)


class Pull(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="linkcpp-test-")
        path = cls.folder.name
        subprocess.run([BIN + "/linkcpp-make-model", "--arch", "qwen3moe", "--layers", "2", "--embd", "512", "--heads", "8",
                        "--heads-kv", "4", "--experts", "48", "--ff-exp", "512", "--expert-type", "q8_0", "-o", path + "/big.gguf"],
                       check=True, capture_output=True)
        subprocess.run([BIN + "/linkcpp-make-model", "--arch", "qwen3moe", "--layers", "3", "--experts", "6", "--parts", "3", "-o",
                        path + "/split.gguf"], check=True, capture_output=True)
        cls.models = ("big=" + path + "/big.gguf", "m=" + MODEL, "split=" + path + "/split-00001-of-00003.gguf")
        subprocess.run([BIN + "/linkcpp", "slice", path + "/big.gguf", "-o", path + "/whole.gguf"], check=True, capture_output=True)
        cls.whole, cls.n_bytes = digest(path + "/whole.gguf"), os.path.getsize(path + "/whole.gguf")
        cls.hub = Hub(models=cls.models, data=path + "/data").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.hub.__exit__()
        cls.folder.cleanup()

    def setUp(self):
        self.out = tempfile.TemporaryDirectory(prefix="linkcpp-test-")
        self.file = self.out.name + "/s.gguf"

    def tearDown(self):
        self.out.cleanup()

    def start(self, *arguments, url=None, config=None):
        environment = {**os.environ, "XDG_CONFIG_HOME": config or self.out.name + "/config"}
        return subprocess.Popen([BIN + "/linkcpp", "pull", "--hub", url or self.hub.url, *arguments], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_pull(self, *arguments, **how):
        process = self.start(*arguments, **how)
        out, err = process.communicate()
        return process.returncode, out, err

    def pulled(self, *arguments, **how):
        code, out, err = self.run_pull("--json", *arguments, **how)
        self.assertEqual(code, 0, err)
        return json.loads(out)

    def test_slices_and_backbones_are_those_of_the_command_line(self):
        for number, (name, model, what) in enumerate([
                ("m", MODEL, ["--layers", "1:3", "--experts", "2:9"]), ("m", MODEL, []),
                ("split", self.folder.name + "/split-00002-of-00003.gguf", ["--layers", "0:2", "--experts", "5:6"]),
                ("m", MODEL, ["--backbone"]), ("split", self.folder.name + "/split-00001-of-00003.gguf", ["--backbone"])]):
            with self.subTest(model=name, what=what):
                folder = f"{self.out.name}/{number}"
                os.makedirs(folder + "/a")
                os.makedirs(folder + "/b")
                subprocess.run([BIN + "/linkcpp", "slice", model, *what, "-o", folder + "/a/f.gguf"], check=True, capture_output=True)
                record = self.pulled(name, *what, "-o", folder + "/b/f.gguf")
                self.assertEqual(sorted(os.listdir(folder + "/a")), sorted(os.listdir(folder + "/b")))
                for file in os.listdir(folder + "/a"):
                    self.assertEqual(digest(f"{folder}/a/{file}"), digest(f"{folder}/b/{file}"), file)
                    a, b = os.stat(f"{folder}/a/{file}").st_blocks, os.stat(f"{folder}/b/{file}").st_blocks
                    self.assertLess(abs(a - b) * 512, 65536 + a * 16)
                self.assertEqual((record["bytes_resumed"], record["damaged"]), (0, 0))

    def test_killed_and_resumed(self):
        for share in (0.3, 0.7):
            with self.subTest(share=share), Proxy(self.hub.port, stall_at=int(self.n_bytes * share)) as proxy:
                process = self.start("big", "-o", self.file, "--connections", "2", url=proxy.url)
                journal = self.file + ".part.journal"
                wait_for(lambda: claimed(journal) >= (share - 0.02) * self.n_bytes)
                process.send_signal(signal.SIGKILL)
                process.communicate()
                self.assertFalse(os.path.exists(self.file))
                record = self.pulled("big", "-o", self.file)
                self.assertGreaterEqual(record["bytes_resumed"], (share - 0.02) * self.n_bytes)
                self.assertLessEqual(record["bytes_fetched"], (1 - share + 0.02) * self.n_bytes)
                self.assertEqual(digest(self.file), self.whole)
                self.assertEqual(sorted(os.listdir(self.out.name)), ["config", "s.gguf"])
                os.remove(self.file)

    def test_interrupted_by_hand(self):
        with Proxy(self.hub.port, stall_at=self.n_bytes // 2) as proxy:
            process = self.start("big", "-o", self.file, url=proxy.url)
            proxy.stalled.wait()
            wait_for(lambda: claimed(self.file + ".part.journal") > 0)
            process.send_signal(signal.SIGINT)
            err = process.communicate()[1]
            self.assertEqual((process.returncode, "start again to go on" in err), (1, True), err)
            self.assertFalse(os.path.exists(self.file))
            # What is on the disk is checked again, whatever the journal says.
            with open(self.file + ".part", "r+b") as part:
                part.seek(self.n_bytes // 8)
                byte = part.read(1)
                part.seek(self.n_bytes // 8)
                part.write(bytes([byte[0] ^ 1]))
            self.assertGreater(self.pulled("big", "-o", self.file)["bytes_resumed"], 0)
            self.assertEqual(digest(self.file), self.whole)

    def test_a_flipped_bit_is_found_and_fetched_again(self):
        with Proxy(self.hub.port, flip=self.n_bytes // 2) as proxy:
            code, out, err = self.run_pull("--json", "big", "-o", self.file, "--connections", "1", url=proxy.url)
            self.assertEqual((code, json.loads(out)["damaged"], "arrived damaged" in err), (0, 1, True), err)
            self.assertEqual(digest(self.file), self.whole)
            self.assertLess(json.loads(out)["bytes_fetched"], 1.02 * self.n_bytes)

    def test_what_is_always_damaged_never_gets_its_name(self):
        with Proxy(self.hub.port, flip=1_000_000, flip_all=True) as proxy:
            code, _, err = self.run_pull("big", "-o", self.file, "--connections", "1", url=proxy.url)
            self.assertNotEqual(code, 0)
            self.assertFalse(os.path.exists(self.file), err)

    def test_survives_a_restart_of_the_hub(self):
        with Hub(models=self.models, data=self.folder.name + "/data") as first, \
                Proxy(first.port, stall_at=self.n_bytes // 3) as proxy:
            process = self.start("--json", "big", "-o", self.file, url=proxy.url)
            proxy.stalled.wait()
            first.process.kill()
            first.process.wait()
            proxy.release()
            proxy.cut()
            with Hub(models=self.models, data=self.folder.name + "/data", listen=f"127.0.0.1:{first.port}"):
                out, err = process.communicate()
                self.assertEqual(process.returncode, 0, err)
                self.assertEqual(digest(self.file), self.whole)
                self.assertLess(json.loads(out)["bytes_fetched"], 1.02 * self.n_bytes)

    def test_keys_of_hubs_are_pinned(self):
        config = self.out.name + "/pins"
        key = self.hub.lines[-2].split()[-1]
        record = self.pulled("m", "-o", self.file, config=config)
        self.assertEqual(record["hub_key"], key)
        with open(config + "/linkcpp/known_hubs") as known:
            self.assertEqual(known.read(), f"{self.hub.url} {key}\n")
        with open(config + "/linkcpp/known_hubs", "w") as known:
            known.write(f"{self.hub.url} {'00' * 32}\n")
        code, _, err = self.run_pull("m", "-o", self.file + "2", config=config)
        self.assertEqual((code, "has another key" in err), (1, True), err)
        self.pulled("m", "-o", self.file + "2", "--hub-key", key, config=config)
        code, _, err = self.run_pull("m", "-o", self.file + "3", "--hub-key", "11" * 32)
        self.assertEqual((code, "not the one that --hub-key names" in err), (1, True), err)
        self.assertFalse(os.path.exists(self.file + "3"))

    def test_says_what_is_wrong(self):
        for arguments, saying in [(["x", "-o", self.file], "there is no model 'x' here"),
                                  (["m", "--layers", "0:9", "-o", self.file], "0:9"),
                                  (["m", "--layers", "3:1", "-o", self.file], "3:1"),
                                  (["m", "-o", self.out.name], "is a folder"),
                                  (["../m", "-o", self.file], "no name of a model")]:
            with self.subTest(arguments=arguments):
                code, _, err = self.run_pull(*arguments)
                self.assertEqual((code, saying in err), (1, True), err)
        with socket.create_server(("127.0.0.1", 0)) as unused:
            port = unused.getsockname()[1]
        code, _, err = self.run_pull("m", "-o", self.file, url=f"http://127.0.0.1:{port}")
        self.assertEqual((code, str(port) in err), (1, True), err)


if __name__ == "__main__":
    unittest.main(argv=["pull_test", "-v"])
