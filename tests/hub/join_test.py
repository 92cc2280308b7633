#!/usr/bin/env python3
"""Autonomous workers and a live hub, as processes: from nothing to serving a decode, restarts of both, kills, budgets, Ctrl-C."""
import os
import signal
import subprocess
import unittest

from hub_process import BIN, MODEL, Hub
from worker_process import WAIT, Worker, holders, until

class Join(unittest.TestCase):
    def setUp(self):
        self.hub = Hub().__enter__()
        self.addCleanup(self.hub.__exit__)
        self.folder = self.hub.folder.name

    def test_a_swarm_that_found_itself_computes_a_decode(self):
        with Worker(self.hub, self.folder + "/a", "--max-experts", "32") as a, \
                Worker(self.hub, self.folder + "/b", "--max-experts", "32") as b:
            until(lambda: sum(segment["replicas"] * (segment["experts"][1] - segment["experts"][0])
                              for model in self.hub.json("/api/expert-demand")[1]["models"]
                              for segment in model["segments"]) == 64)
            until(lambda: len(holders(self.hub)) == 2 and all(one["address"] for one in holders(self.hub)))
            addresses = ",".join(one["address"] for one in holders(self.hub))
            answer = subprocess.run([BIN + "/linkcpp", "verify", "--model", MODEL, "--workers", addresses, "-n", "8",
                                     "--fallback", "none"], capture_output=True, text=True)
            self.assertEqual(answer.returncode, 0, answer.stdout + answer.stderr)
            for worker in (a, b):
                worker.stop()
                self.assertTrue(worker.of("drained"))
            self.assertEqual(holders(self.hub), [])

    def test_keeps_its_slice_and_offers_it_again(self):
        with Worker(self.hub, self.folder + "/a", "--max-experts", "8") as first:
            first.wait("serving")
            until(lambda: holders(self.hub))
            before = holders(self.hub)
            first.stop(signal.SIGKILL)
        with Worker(self.hub, self.folder + "/a", "--max-experts", "8") as second:
            second.wait("registered")
            until(lambda: [(one["node"], one["holds"]) for one in holders(self.hub)] ==
                  [(one["node"], one["holds"]) for one in before])
            self.assertEqual((len(second.of("kept")), second.of("lease")), (1, []))
            second.stop()

    def test_beginnings_of_other_slices_take_no_disk(self):
        slices = self.folder + "/a/slices/m"
        os.makedirs(slices)
        for name in ("layers-3-4-experts-0-3.gguf.part", "layers-3-4-experts-0-3.gguf.part.journal", "mine.part"):
            with open(f"{slices}/{name}", "w") as file:
                file.write("x" * 1000)
        with Worker(self.hub, self.folder + "/a", "--max-experts", "8") as worker:
            worker.wait("serving")
            [slice] = [name for name in os.listdir(slices) if name.endswith(".gguf")]
            self.assertEqual(sorted(os.listdir(slices)), sorted([slice, "mine.part"]))
            worker.stop()

    def test_a_hub_that_comes_back_is_found(self):
        with Worker(self.hub, self.folder + "/a", "--max-experts", "8") as worker:
            worker.wait("serving")
            until(lambda: holders(self.hub))
            self.assertEqual(self.hub.stop(), 0)
            worker.wait("hub_away")
            with Hub(data=self.hub.data, listen=f"127.0.0.1:{self.hub.port}") as again:
                worker.wait("hub_back")
                until(lambda: holders(again))
                self.assertEqual(len(worker.of("lease")), 1)
                worker.stop()

    def test_another_hub_at_the_same_address_is_refused(self):
        with Worker(self.hub, self.folder + "/a", "--max-experts", "8") as worker:
            worker.wait("serving")
            worker.stop()
        self.assertEqual(self.hub.stop(), 0)
        with Hub(listen=f"127.0.0.1:{self.hub.port}") as another:
            with Worker(another, self.folder + "/a", "--max-experts", "8") as worker:
                self.assertEqual(worker.process.wait(timeout=WAIT), 1)
            self.assertIn("another hub", worker.said)

    def test_a_known_key_counts_at_the_first_contact(self):
        key = self.hub.lines[-2].split()[-1]
        with Worker(self.hub, self.folder + "/a", "--max-experts", "8", "--hub-key", "0" * 63 + "1") as worker:
            self.assertEqual(worker.process.wait(timeout=WAIT), 1)
        self.assertIn("another hub", worker.said)
        with Worker(self.hub, self.folder + "/b", "--max-experts", "8", "--hub-key", key) as worker:
            worker.wait("serving")
            worker.stop()

    def test_budgets(self):
        with Worker(self.hub, self.folder + "/a", "--max-memory", "1500kB") as worker:
            worker.wait("serving")
            until(lambda: holders(self.hub))
            used = sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(self.folder + "/a/slices")
                       for name in names if name.endswith(".gguf"))
            self.assertTrue(1_000_000 < used < 1_600_000, used)
            worker.stop()

    def test_private_swarm(self):
        token = self.folder + "/token"
        with open(token, "w") as file:
            file.write("a token of the swarm that is long enough\n")
        with Hub("--join-token", token) as private:
            with Worker(private, self.folder + "/a", "--max-experts", "8") as stranger:
                self.assertEqual(stranger.process.wait(timeout=WAIT), 1)
            self.assertIn("private", stranger.said)
            with Worker(private, self.folder + "/a", "--max-experts", "8", "--join-token", token) as member:
                member.wait("serving")
                member.stop()

    def test_command_lines_that_make_no_sense(self):
        for arguments in (["--hub", self.hub.url], ["--hub", "ftp://x", "--max-experts", "8"],
                          ["--hub", self.hub.url, "--max-experts", "8", "--model", MODEL],
                          ["--hub", self.hub.url, "--max-experts", "8", "--join-token", "/no/such/file"],
                          ["--hub", self.hub.url, "--max-experts", "8", "--serve", "0.0.0.0:0"]):
            done = subprocess.run([BIN + "/linkcpp-expert-worker", "--data", self.folder + "/x", *arguments], capture_output=True,
                                  text=True)
            self.assertEqual(done.returncode, 2, (arguments, done.stderr))


if __name__ == "__main__":
    unittest.main(argv=["join_test", "-v"])
