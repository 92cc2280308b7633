#!/usr/bin/env python3
"""A backbone that asks the hub, as a process, in the middle of a decode: a hub that is killed and comes back, workers that leave and
join, receipts that are paid once and for all. The decode stands still whenever a test does not read its text, so what happens
"in the middle" does so at a place that the test chooses."""
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import unittest

from hub_process import BIN, MODEL, Hub, end
from worker_process import WAIT, Worker, holders, until

PROMPT, N_PROMPT, N_LAYERS, N_USED = "The capital of France is", 5, 4, 4


def rows_of(n_predict):
    """Of a whole decode: the last token is not computed with."""
    return (N_PROMPT + n_predict - 1) * N_LAYERS * N_USED


class Backbone:
    """linkcpp generate; its text is taken piece by piece."""

    def __init__(self, n_predict, *arguments, data=None, environment=None):
        ours, its = socket.socketpair()
        # The smallest there is: room for a few tokens, then the decode waits until we read.
        its.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        ours.settimeout(WAIT)
        self.socket, self.text = ours, b""
        command = [BIN + "/linkcpp", "generate", "--model", MODEL, "--prompt", PROMPT, "-n", str(n_predict), "--ignore-eos",
                   "--threads", "1", *arguments]
        if data:
            command += ["--hub-data", data]
        self.process = subprocess.Popen(command, stdout=its, stderr=subprocess.PIPE, text=True, env=environment)
        its.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.socket.close()

    def read(self, size):
        """Until there is so much text in all."""
        while len(self.text) < size:
            piece = self.socket.recv(min(16, size - len(self.text)))
            assert piece, f"it ended: {self.process.stderr.read()}"
            self.text += piece

    def finish(self):
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(4096):
                self.text += piece
        self.said = self.process.stderr.read()
        return self.process.wait(timeout=WAIT)


def local_text(n_predict):
    with Backbone(n_predict) as local:
        assert local.finish() == 0, local.said
        return local.text


class Placement(unittest.TestCase):
    def setUp(self):
        self.known = set()
        self.hub = self.start_hub()
        self.folder = self.hub.folder.name
        self.data = self.folder + "/backbone"

    def start_hub(self, **how):
        hub = Hub("--welcome", "1000000", **how).__enter__()
        self.addCleanup(hub.__exit__)
        return hub

    def kill_hub(self):
        self.hub.stop(signal.SIGKILL)

    def restart_hub(self):
        self.hub = self.start_hub(data=self.hub.data, listen=f"127.0.0.1:{self.hub.port}")

    def worker(self, name, experts):
        """Serves, and the hub knows."""
        worker = Worker(self.hub, f"{self.folder}/{name}", "--max-experts", str(experts)).__enter__()
        self.addCleanup(worker.__exit__)

        def serving():
            """The node that is new, with all that it is to hold."""
            for holder in holders(self.hub):
                held = [what["layers"] + what["experts"] for what in holder["holds"]]
                if holder["node"] not in self.known and sum((b - a) * (d - c) for a, b, c, d in held) == experts:
                    worker.id = holder["node"]
                    return True
            return False
        until(serving)
        self.known.add(worker.id)
        return worker

    def backbone(self, n_predict, *arguments):
        return Backbone(n_predict, "--hub", self.hub.url, "--fallback", "none", *arguments, data=self.data)

    def earned(self, node):
        """(rows, number of receipts) that the hub has paid this node for."""
        entries = self.hub.json(f"/api/nodes/{node}/ledger?limit=1000")[1]["entries"]
        rows = [int(match[1]) for entry in entries if (match := re.match(r"(\d+) rows of ", entry["reason"]))]
        return sum(rows), len(rows)

    def all_rows(self):
        return sum(self.earned(node)[0] for node in self.known)

    def test_hub_is_killed_in_mid_decode_and_comes_back(self):
        n = 160
        for name in "ab":
            self.worker(name, 32)
        with self.backbone(n) as backbone:
            backbone.read(100)
            self.kill_hub()
            backbone.read(300)  # tokens go on
            self.restart_hub()
            until(lambda: len(holders(self.hub)) == 2, limit=30)
            backbone.read(400)
            self.assertEqual(backbone.finish(), 0, backbone.said)
            self.assertEqual(backbone.text, local_text(n), backbone.said)
            self.assertNotIn("NO HOLDER", backbone.said)
        self.assertEqual(self.all_rows(), rows_of(n))

    def test_receipts_are_kept_for_a_hub_that_is_away_and_count_once(self):
        a = self.worker("a", 64)
        with self.backbone(8) as first:
            first.read(10)
            self.kill_hub()
            self.assertEqual(first.finish(), 0, first.said)
            self.assertRegex(first.said, r"\d+ receipts are kept until the hub takes them")
        shutil.copy(self.data + "/receipts", self.folder + "/old-receipts")
        with self.backbone(4) as second:  # by the workers that it knows from before
            self.assertEqual(second.finish(), 0, second.said)
        self.restart_hub()
        until(lambda: len(holders(self.hub)) == 1)
        with self.backbone(4) as third:
            self.assertEqual(third.finish(), 0, third.said)
        all_rows = rows_of(8) + 2 * rows_of(4)
        rows, receipts = self.earned(a.id)
        self.assertEqual(rows, all_rows, third.said)
        # A crash between the hub's answer and our noting it: the same receipts are sent again.
        shutil.copy(self.folder + "/old-receipts", self.data + "/receipts")
        with self.backbone(4) as fourth:
            self.assertEqual(fourth.finish(), 0, fourth.said)
        rows, again = self.earned(a.id)
        self.assertEqual(rows, all_rows + rows_of(4))
        self.assertGreater(again, receipts)

    def take_over(self, number):
        """One of three leaves in mid-decode, a fourth takes over: the same tokens, the same backbone."""
        n = 120
        self.worker("a", 32)
        self.worker("b", 16)
        c = self.worker("c", 16)
        held = next(holder["holds"] for holder in holders(self.hub) if holder["node"] == c.id)
        with self.backbone(n) as backbone:
            backbone.read(100)
            c.stop(number)
            until(lambda: len(holders(self.hub)) == 2)
            d = self.worker("d", 16)
            self.assertEqual(next(holder["holds"] for holder in holders(self.hub) if holder["node"] == d.id), held)
            backbone.read(300)
            self.assertEqual(backbone.finish(), 0, backbone.said)
            self.assertEqual(backbone.text, local_text(n), backbone.said)
        self.assertGreater(self.earned(c.id)[0], 0)
        self.assertGreater(self.earned(d.id)[0], 0)
        self.assertEqual(self.all_rows(), rows_of(n))

    def test_one_leaves_and_a_fourth_takes_over(self):
        self.take_over(signal.SIGTERM)

    def test_one_is_killed_and_a_fourth_takes_over(self):
        self.take_over(signal.SIGKILL)

    def test_waits_until_all_experts_have_a_holder(self):
        with self.backbone(8) as backbone:
            lines = iter(backbone.process.stderr.readline, "")
            self.assertTrue(any("nobody has: layers 0:4 all 16 experts" in line for line in lines))
            self.worker("a", 64)
            self.assertEqual(backbone.finish(), 0, backbone.said)
            self.assertEqual(backbone.text, local_text(8))

    def test_tells_who_was_paid(self):
        a = self.worker("a", 64)
        environment = {**os.environ, "XDG_DATA_HOME": self.folder}
        with Backbone(8, "--hub", self.hub.url, "--fallback", "none", environment=environment) as backbone:
            self.assertEqual(backbone.finish(), 0, backbone.said)
            self.assertIn(f"receipts for {rows_of(8)} rows ({a.id[:8]} {rows_of(8)}); recorded by the hub: {rows_of(8)}",
                          backbone.said)
        said = subprocess.run([BIN + "/linkcpp", "credits", "--hub", self.hub.url, "--backbone"], env=environment, check=True,
                              capture_output=True, text=True).stdout
        paid = [int(match[1]) for match in re.finditer(rf"-(\d+)  to {a.id}  \d+ rows of m", said)]
        self.assertGreater(sum(paid), 0)
        self.assertTrue(said.endswith(f" has {1000000 - sum(paid)} credits\n"), said)

    def test_without_a_way_to_the_workers_it_says_so(self):
        with self.backbone(4, "--hub-model", "other") as backbone:
            self.assertEqual(backbone.finish(), 1)
            self.assertIn("has no model 'other'; it has: m", backbone.said)
        with self.backbone(4, "--wait", "0") as backbone:
            self.assertEqual(backbone.finish(), 1)
            self.assertIn("going on without holders of layers 0:4 all 16 experts", backbone.said)
            self.assertIn("no worker computes experts", backbone.said)
        self.kill_hub()
        with self.backbone(4) as backbone:
            self.assertEqual(backbone.finish(), 1)
            self.assertIn("so there are no workers", backbone.said)
        self.assertEqual(subprocess.run([BIN + "/linkcpp", "generate", "--model", MODEL, "--wait", "3", "--workers", "h:1"],
                                        capture_output=True).returncode, 2)

    def test_another_hub_at_the_same_address_is_refused(self):
        self.worker("a", 64)
        with self.backbone(4) as backbone:
            self.assertEqual(backbone.finish(), 0, backbone.said)
        self.kill_hub()
        self.hub = self.start_hub(listen=f"127.0.0.1:{self.hub.port}")
        with self.backbone(4) as backbone:
            self.assertEqual(backbone.finish(), 1)
            self.assertIn("another hub", backbone.said)

    def test_a_known_key_counts_at_the_first_contact(self):
        self.worker("a", 64)
        with self.backbone(4, "--hub-key", "0" * 63 + "1") as backbone:
            self.assertEqual(backbone.finish(), 1)
            self.assertIn("another hub", backbone.said)
        with self.backbone(4, "--hub-key", self.hub.lines[-2].split()[-1]) as backbone:
            self.assertEqual(backbone.finish(), 0, backbone.said)

    def test_doctor_looks_at_the_workers_of_the_hub(self):
        command = [BIN + "/linkcpp", "doctor", "-m", MODEL, "--hub", self.hub.url, "--hub-data", self.data]
        self.assertIn("names no workers", subprocess.run(command, capture_output=True, text=True).stdout)
        self.worker("a", 64)
        said = subprocess.run(command, capture_output=True, text=True).stdout
        self.assertIn("names 1 worker\n", said)
        self.assertIn("worker " + holders(self.hub)[0]["address"], said)

    def test_the_plugin_asks_too(self):
        a = self.worker("a", 64)
        tool = BIN + "/llama-completion"
        if not os.path.exists(tool):
            self.skipTest("there are no stock tools in this build")
        environment = {**os.environ, "GGML_BACKEND_PATH": BIN + "/libggml-linkcpp.so", "LINKCPP_HUB": self.hub.url,
                       "LINKCPP_HUB_DATA": self.data, "LINKCPP_FALLBACK": "none"}
        done = subprocess.run([tool, "-m", MODEL, "-p", PROMPT, "-n", "8", "--temp", "0", "-no-cnv", "--ignore-eos"],
                              env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(local_text(8).decode().strip(), done.stdout)
        self.assertGreaterEqual(self.earned(a.id)[0], rows_of(8))


if __name__ == "__main__":
    unittest.main(argv=["placement_test", "-v"])
