#!/usr/bin/env python3
"""The swarm over HTTP, live: the worked example with curl, registration, leases, placement, receipts, ledger."""
import json
import subprocess
import sys
import tempfile
import threading
import unittest

from hub_process import BIN, MODEL, Hub as PlainHub
from openapi import Document
from swarm_client import Node, part


DOCUMENT = Document()


class Hub(PlainHub):
    """Every answer is held against docs/openapi.yaml."""

    def json(self, path, **how):
        status, body = super().json(path, **how)
        DOCUMENT.check(how.get("method", "GET"), path, status, body)
        return status, body


def curl(hub, method, path, token=None, body=None):
    command = ["curl", "--silent", "--show-error", "--write-out", "%{http_code}", "--request", method, hub.url + path]
    if token:
        command += ["--header", "Authorization: Bearer " + token]
    if body is not None:
        command += ["--data", json.dumps(body)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    status, body = int(said[-3:]), json.loads(said[:-3])
    DOCUMENT.check(method, path, status, body)
    return body


class WorkedExample(unittest.TestCase):
    """Target 2; A holds [0,128), B [128,256), C [0,128) of layer 0; a volunteer with room for 64 gets [128,192)."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="linkcpp-test-")
        cls.model = cls.folder.name + "/wide.gguf"
        subprocess.run([BIN + "/linkcpp-make-model", "--arch", "qwen3moe", "--layers", "1", "--experts", "256", "--embd", "256",
                        "--ff-exp", "32", "--expert-type", "q4_0", "-o", cls.model], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_with_curl(self):
        with Hub(models=("m=" + self.model,)) as hub:
            nodes = {name: Node(hub, hub.folder.name, name) for name in "ABCD"}
            for node in nodes.values():
                challenge = curl(hub, "POST", "/api/nodes", body={"public_key": node.public_key})
                node.token = curl(hub, "POST", "/api/nodes", body=node.proof(challenge))["token"]
            for name, experts in (("A", [0, 128]), ("B", [128, 256]), ("C", [0, 128])):
                answer = curl(hub, "POST", "/api/expert-coverage", nodes[name].token,
                              {"holds": [{"model": "m", "layer": 0, "experts": experts}], "address": "127.0.0.1:50071"})
                self.assertEqual(len(answer["holds"]), 1, answer)
            demand = curl(hub, "GET", "/api/expert-demand")
            full, scarce = demand["models"][0]["segments"]
            self.assertEqual({**full, "reward": 0}, {"layer": 0, "experts": [0, 128], "replicas": 2, "target": 2,
                                                     "scarcity": 0.0, "reward": 0})
            self.assertEqual({**scarce, "reward": 0}, {"layer": 0, "experts": [128, 256], "replicas": 1, "target": 2,
                                                       "scarcity": 0.5, "reward": 0})
            lease = curl(hub, "POST", "/api/expert-volunteer", nodes["D"].token, {"max_experts": 64})
            self.assertEqual((lease["model"], lease["layer"], lease["layers"], lease["experts"]), ("m", 0, [0, 1], [128, 192]))
            self.assertEqual((lease["scarcity"], lease["replicas"], lease["target"]), (0.5, 1, 2))
            self.assertEqual(lease["reward"], scarce["reward"])
            self.assertEqual(lease["url"], "/api/proxy/models/m/expert-shard?layers=0:1&experts=128:192")
            self.assertEqual(lease["expires"], 60)


class Targets(unittest.TestCase):
    def wanted(self, hub):
        return {entry["model"]: {segment["target"] for segment in entry["segments"]}
                for entry in hub.json("/api/expert-demand")[1]["models"]}

    def test_of_all_models_and_of_one(self):
        models = ("m=" + MODEL, "other=" + MODEL)
        with Hub(models=models) as hub:
            self.assertEqual(self.wanted(hub), {"m": {2}, "other": {2}})
        with Hub("--target-replicas", "other=1", "--target-replicas", "3", models=models) as hub:
            self.assertEqual(self.wanted(hub), {"m": {3}, "other": {1}})

    def test_what_makes_no_sense_is_said(self):
        with tempfile.TemporaryDirectory(prefix="linkcpp-test-") as folder:
            for wrong, saying in (("0", "1 to 1000"), ("1001", "1 to 1000"), ("=2", "[NAME=]N"), ("m=", "[NAME=]N"),
                                  ("2x", "[NAME=]N"), ("x=2", "no model 'x'")):
                hub = subprocess.run([BIN + "/linkcpp-hub", "--listen", "127.0.0.1:0", "--data", folder, "--model", "m=" + MODEL,
                                      "--target-replicas", wrong], capture_output=True, text=True)
                self.assertEqual((hub.returncode, saying in hub.stderr), (2, True), hub.stderr)


class Swarm(unittest.TestCase):
    def setUp(self):
        self.hub = Hub("--welcome", "5000").__enter__()
        self.addCleanup(self.hub.__exit__)

    def node(self, name, register=True):
        node = Node(self.hub, self.hub.folder.name, name)
        if register:
            self.assertEqual(node.register()[0], 200)
        return node

    def test_registration_cannot_be_replayed_or_forged(self):
        node, other = self.node("a", register=False), self.node("b", register=False)
        proof = node.proof(node.challenge())
        status, answer = node.call("POST", "/api/nodes", proof)
        self.assertEqual((status, answer["node"]), (200, node.id))
        for wrong in (proof,                                                            # replayed
                      {**node.proof(node.challenge()), "signature": "00" * 64},         # forged
                      {**other.proof(node.challenge())},                                # somebody else's nonce
                      {**node.proof(node.challenge()), "public_key": other.public_key}):
            status, answer = node.call("POST", "/api/nodes", wrong)
            self.assertEqual((status, answer["error"]["code"]), (403, "not_proven"), wrong)
        for wrong in ({}, {"public_key": 7}, {"public_key": "ab"}, {"public_key": node.public_key, "nonce": "aa"}, "[]", "{"):
            self.assertEqual(node.call("POST", "/api/nodes", wrong)[0], 400, wrong)

    def test_tokens_are_asked_for(self):
        node = self.node("a", register=False)
        for token in (None, "00", "ff" * 80, node.challenge()["nonce"]):
            for method, path, body in (("POST", "/api/expert-volunteer", {"max_experts": 1}),
                                       ("POST", "/api/expert-coverage", {"holds": []}),
                                       ("DELETE", "/api/expert-coverage", None),
                                       ("POST", "/api/receipts", {"receipts": []})):
                status, answer = node.call(method, path, body, token=token)
                self.assertEqual((status, answer["error"]["code"]), (401, "not_registered"))

    def test_lease_progress_and_coverage(self):
        node = self.node("a")
        status, lease = node.call("POST", "/api/expert-volunteer", {"max_experts": 8})
        self.assertEqual((status, lease["layers"], lease["experts"]), (200, [0, 1], [0, 8]))
        status, answer = node.call("POST", "/api/expert-coverage",
                                   {"holds": [], "progress": [{"lease": lease["lease"], "bytes": 5},
                                                              {"lease": "made-up", "bytes": 5}]})
        self.assertEqual((status, [one["lease"] for one in answer["leases"]], answer["lapsed"]),
                         (200, [lease["lease"]], ["made-up"]))
        status, answer = node.hold(part([0, 8]), address=":50072")
        self.assertEqual((status, answer["leases"]), (200, []))
        self.assertEqual(answer["holds"], [{"reward": lease["reward"], "replicas": 1, "target": 2}])
        placement = self.hub.json("/api/placement?model=m")[1]
        self.assertEqual([(h["node"], h["address"], h["holds"]) for h in placement["holders"]],
                         [(node.id, "127.0.0.1:50072", [{"layers": [0, 1], "experts": [0, 8]}])])
        status, answer = node.call("POST", "/api/expert-volunteer", {"max_experts": 8, "instead_of": part([0, 8])})
        self.assertEqual((status, answer["error"]["code"]), (409, "no_better_place"))
        self.assertEqual(node.call("DELETE", "/api/expert-coverage"), (200, {"left": True}))
        self.assertEqual(node.call("DELETE", "/api/expert-coverage"), (200, {"left": False}))
        self.assertEqual(self.hub.json("/api/placement?model=m")[1]["holders"], [])

    def test_placement_waits_for_a_change(self):
        node = self.node("a")
        first = self.hub.json("/api/placement?model=m")[1]
        self.assertEqual(self.hub.json(f"/api/placement?model=m&version={first['version']}&wait=0")[1], first)
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(
            self.hub.json(f"/api/placement?model=m&version={first['version']}&wait=60")))
        waiting.start()
        while b"linkcpp_hub_placement_waiting 1" not in self.hub.get("/metrics")[2]:
            pass
        self.assertEqual(answers, [])
        node.hold(part([0, 16], [0, 4]))
        waiting.join(timeout=30)
        self.assertEqual([(status, len(answer["holders"])) for status, answer in answers], [(200, 1)])
        self.assertGreater(answers[0][1]["version"], first["version"])
        old = self.hub.json(f"/api/placement?model=m&version={first['version']}&wait=60")
        self.assertEqual(old, answers[0], "an old version is answered at once")

    def test_a_hub_that_ends_answers_who_waits(self):
        version = self.hub.json("/api/placement?model=m")[1]["version"]
        answers = []
        waiting = threading.Thread(target=lambda: answers.append(
            self.hub.json(f"/api/placement?model=m&version={version}&wait=60")))
        waiting.start()
        while b"linkcpp_hub_placement_waiting 1" not in self.hub.get("/metrics")[2]:
            pass
        self.assertEqual(self.hub.stop(), 0)
        waiting.join(timeout=30)
        self.assertEqual(answers[0][0], 200)

    def test_receipts_pay_once_and_what_is_there(self):
        backbone, worker, poor = self.node("a"), self.node("b"), self.node("c")
        worker.hold(part([0, 8]))
        reward = worker.hold(part([0, 8]))[1]["holds"][0]["reward"]

        def post(*receipts):
            status, answer = backbone.call("POST", "/api/receipts", {"receipts": list(receipts)})
            self.assertEqual(status, 200, answer)
            return [(one["result"], one.get("reason", "")) for one in answer["results"]]

        def balance(node):
            return self.hub.json(f"/api/nodes/{node.id}/ledger")[1]["balance"]

        first = backbone.receipt(worker.id, 1000, 1)
        self.assertEqual(post(first, first), [("posted", ""), ("duplicate", "")])
        self.assertEqual(post(first), [("duplicate", "")])
        self.assertEqual((balance(worker), balance(backbone)), (5000 + reward, 5000 - reward))
        for wrong, reason in ((backbone.receipt(worker.id, 999, 1), "same sequence number"),
                              ({**backbone.receipt(worker.id, 1000, 2), "rows": 1001}, "signature"),
                              (backbone.receipt(worker.id, 1000, 3, payer=poor.id), "its own credits only"),
                              (poor.receipt(worker.id, 1000, 4, backbone=backbone.id, payer=backbone.id), "signature"),
                              (backbone.receipt(backbone.id, 1000, 5), "cannot pay itself"),
                              (backbone.receipt(worker.id, 1000, 6, experts=(0, 9)), "never said that it holds"),
                              (backbone.receipt(worker.id, 0, 7), "rows"),
                              (backbone.receipt(worker.id, 1, 8, backbone="0" * 32, payer="0" * 32), "not registered")):
            [(result, why)] = post(wrong)
            self.assertEqual(result, "refused", wrong)
            self.assertIn(reason, why)
        [(result, _)] = post(backbone.receipt(worker.id, 10_000_000, 9))
        self.assertEqual(result, "no_credit")
        self.assertEqual(balance(worker), 5000 + reward)
        # Rows of a worker that has left since are still paid, by what it was promised, after a restart of the hub too.
        worker.call("DELETE", "/api/expert-coverage")
        self.assertEqual(self.hub.stop(), 0)
        with Hub(data=self.hub.data) as self.hub_again:
            backbone.hub = self.hub_again
            self.assertEqual(backbone.register()[0], 200)
            again = self.hub_again.json(f"/api/nodes/{worker.id}/ledger")[1]
            self.assertEqual(again["balance"], 5000 + reward)
            self.assertEqual([(e["from"], e["amount"]) for e in again["entries"]], [("operator", 5000), (backbone.id, reward)])
            self.assertEqual(post(first, backbone.receipt(worker.id, 500, 10)), [("duplicate", ""), ("posted", "")])
            self.assertEqual(self.hub_again.json(f"/api/nodes/{worker.id}/ledger?after={again['entries'][-1]['number']}")[1]
                             ["entries"][0]["amount"], reward // 2)

    def test_credits_command(self):
        backbone, worker = self.node("a"), self.node("b")
        worker.hold(part([0, 8]))
        backbone.call("POST", "/api/receipts", {"receipts": [backbone.receipt(worker.id, 1000, 1)]})
        balance = self.hub.json(f"/api/nodes/{worker.id}/ledger")[1]["balance"]

        def credits(*arguments):
            done = subprocess.run([BIN + "/linkcpp", "credits", "--hub", self.hub.url, *arguments], capture_output=True, text=True)
            return done.returncode, done.stdout, done.stderr
        code, said, _ = credits("--node", worker.id)
        self.assertEqual((code, said.splitlines()[-1]), (0, f"{worker.id} has {balance} credits"))
        self.assertRegex(said.splitlines()[-2], rf"  \+{balance - 5000}  from {backbone.id}  1000 rows of m, layers 0:1, experts 0:8$")
        code, said, _ = credits("--node", backbone.id, "--json")
        answer = json.loads(said)
        self.assertEqual((code, answer["balance"], len(answer["entries"])), (0, 10_000 - balance, 2))
        self.assertEqual(credits("--node", "0" * 32)[0], 1)
        code, _, error = credits("--data", self.hub.folder.name + "/nothing")
        self.assertEqual((code, "no worker has joined" in error), (1, True), error)

    def test_bodies_that_make_no_sense(self):
        node = self.node("a")
        deep = "{\"holds\":" + "[" * 100 + "]" * 100 + "}"
        for path, bodies in {
                "/api/expert-volunteer": [{}, {"max_experts": -1}, {"max_experts": "4"}, {"max_experts": 1.5}, {"max_bytes": 1e300},
                                          {"max_experts": 4, "model": 7}, {"max_experts": 4, "instead_of": []},
                                          {"max_experts": 4, "instead_of": part([0, 8])}, "null", "", "\xff"],
                "/api/expert-coverage": [{}, {"holds": {}}, {"holds": [7]}, {"holds": [{}]}, {"holds": [part([0, 8])]}, deep,
                                         {"holds": [part([0, 8])], "address": "nonsense"},
                                         {"holds": [part([0, 8])], "address": "h:0"},
                                         {"holds": [part([0, 8])], "address": "a\nb:5"},
                                         {"holds": [part([8, 0])], "address": ":5"},
                                         {"holds": [part([0, 17])], "address": ":5"},
                                         {"holds": [part([0, 2 ** 32])], "address": ":5"},
                                         {"holds": [part([-1, 3])], "address": ":5"},
                                         {"holds": [part([0, 8]), part([7, 9])], "address": ":5"},
                                         {"holds": [part([0, 1])] * 97, "address": ":5"},
                                         {"holds": [], "progress": [{"lease": "x" * 300, "bytes": 1}]},
                                         {"holds": [], "load": "much"}, {"holds": [], "draining": 1}],
                "/api/receipts": [{}, {"receipts": [{}]}, {"receipts": [7] * 101},
                                  {"receipts": [{**node.receipt("x", 1, 1), "model": "a\nrows 9"}]},
                                  {"receipts": [{**node.receipt("x", 1, 1), "signature": "zz"}]}]}.items():
            for body in bodies:
                status, answer = node.call("POST", path, body.encode("latin-1") if isinstance(body, str) else body)
                self.assertEqual((status, answer["error"]["code"]), (400, "bad_request"), (path, body))
        self.assertEqual(node.call("POST", "/api/expert-volunteer", {"max_experts": 1, "model": "none"})[0], 404)
        self.assertEqual(node.call("POST", "/api/expert-volunteer", {"max_bytes": 1})[1]["error"]["code"], "nothing_to_lease")
        self.assertEqual(node.hold(part([0, 8], model="none"))[0], 404)
        for path, status in (("/api/expert-demand?model=none", 404), ("/api/placement", 400), ("/api/placement?model=none", 404),
                             ("/api/placement?model=none&version=1", 404), ("/api/placement?model=m&version=x", 400),
                             ("/api/placement?model=m&version=1&wait=61", 400), ("/api/nodes/none/ledger", 404),
                             (f"/api/nodes/{node.id}/ledger?limit=1001", 400), (f"/api/nodes/{node.id}/ledger?after=-1", 400)):
            self.assertEqual(self.hub.json(path)[0], status, path)
        for _ in range(4):
            self.assertEqual(node.call("POST", "/api/expert-volunteer", {"max_experts": 1})[0], 200)
        status, answer = node.call("POST", "/api/expert-volunteer", {"max_experts": 1})
        self.assertEqual((status, answer["error"]["code"]), (429, "too_many_leases"))


class WhoMayJoin(unittest.TestCase):
    def test_private(self):
        secret = "correct horse battery staple"
        with Hub() as first:
            path = first.folder.name + "/swarm.token"
            with open(path, "w") as file:
                file.write(secret + "\n")
            with Hub("--join-token", path) as hub:
                node = Node(hub, hub.folder.name, "a")
                self.assertTrue(node.challenge()["private"])
                for token in (None, b"another token of its own"):
                    status, answer = node.register(token)
                    self.assertEqual((status, answer["error"]["code"]), (403, "not_proven"))
                self.assertEqual(hub.json("/api/placement?model=m")[0], 401)
                self.assertEqual(hub.json(f"/api/nodes/{node.id}/ledger")[0], 401)
                self.assertEqual(node.register(secret.encode())[0], 200)
                self.assertEqual(node.call("GET", "/api/placement?model=m")[0], 200)
                self.assertEqual(node.call("GET", f"/api/nodes/{node.id}/ledger")[0], 200)
                credits = [BIN + "/linkcpp", "credits", "--hub", hub.url, "--node", node.id]
                self.assertEqual(subprocess.run(credits, capture_output=True).returncode, 1)
                self.assertEqual(subprocess.run([*credits, "--join-token", path], capture_output=True).returncode, 0)
            with open(path, "w") as file:
                file.write("short\n")
            refused = subprocess.run([BIN + "/linkcpp-hub", "--model", MODEL, "--data", first.data, "--join-token", path],
                                     capture_output=True, text=True)
            self.assertEqual((refused.returncode, "16 characters" in refused.stderr), (2, True))

    def test_closed_beyond_loopback_unless_said_otherwise(self):
        for arguments, status in (((), 403), (("--open",), 200)):
            with Hub(*arguments, listen="0.0.0.0:0") as hub:
                node = Node(hub, hub.folder.name, "a")
                self.assertEqual(node.call("POST", "/api/nodes", {"public_key": node.public_key})[0], status)

    def test_grants(self):
        with Hub() as hub:
            node = Node(hub, hub.folder.name, "a")
            node.register()
            self.assertEqual(hub.stop(), 0)
            for _ in range(2):
                with Hub("--grant", node.id + "=700", data=hub.data) as again:
                    self.assertEqual(again.json(f"/api/nodes/{node.id}/ledger")[1]["balance"], 700)
                    self.assertEqual(again.stop(), 0)
            wrong = subprocess.run([BIN + "/linkcpp-hub", "--model", MODEL, "--data", hub.data, "--listen", "0", "--grant",
                                    "x=5"], capture_output=True, text=True)
            self.assertEqual((wrong.returncode, "NODE=CREDITS" in wrong.stderr), (2, True))

    def test_secrets_are_not_in_the_log(self):
        log = ""
        with Hub() as first:
            path = first.folder.name + "/hub.log"
            with open(path, "w") as file:
                process = subprocess.Popen([BIN + "/linkcpp-hub", "--verbose", "--listen", "127.0.0.1:0", "--model", "m=" + MODEL,
                                            "--data", first.folder.name + "/other"], stdout=subprocess.PIPE, stderr=file, text=True)
            hub = Hub.__new__(Hub)
            for line in process.stdout:
                log += line
                if line.startswith("serving on "):
                    hub.port = int(line.rsplit(":", 1)[1])
                    break
            node = Node(hub, first.folder.name, "a")
            proof = node.proof(node.challenge())
            node.call("POST", "/api/nodes", {**proof, "signature": "00" * 64})
            token = node.call("POST", "/api/nodes", proof)[1]["token"]
            node.call("POST", "/api/expert-coverage", {"holds": 7}, token=token)
            node.call("POST", "/api/expert-coverage", {"holds": []}, token=token[:-2] + "zz")
            process.terminate()
            log += process.communicate()[0]
            with open(path) as file:
                log += file.read()
            with open(first.folder.name + "/other/hub.key") as file:
                key = file.read().splitlines()[1]
            for secret in (token, token[:-2], proof["signature"], key):
                self.assertNotIn(secret, log)


def tearDownModule():
    """What is documented was seen, each status of each route."""
    if len(sys.argv) <= 3:
        never = DOCUMENT.documented("swarm") - DOCUMENT.seen
        assert not never, f"documented, but never seen: {sorted(never)}"


if __name__ == "__main__":
    unittest.main(argv=["market_test", "-v"])
