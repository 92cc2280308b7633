#!/usr/bin/env python3
"""Every route of a live hub, asked for what makes no sense: the right 4xx as JSON, a hub that lives on, memory that stays."""
import json
import select
import unittest
import urllib.parse

from hub_process import Hub, status_of
from swarm_client import Node, part

SHARD = "/api/proxy/models/{}/expert-shard"
NUMBERS = ["-1", "1.5", "1e3", "0x10", "+1", " 1", "1 ", "9" * 400, "18446744073709551616", "NaN", "null", "", "%00", "１"]
RANGES = ["-1:2", "3:1", "1:1", "1:2:3", "::", "-:", "1:-1", "a:b", "1:2e9", "0:" + "9" * 19, "9" * 400 + ":", "0:1,1:2", "0-1", "[0,1]",
          "", "0:1%00", "%ff:%fe"]
# Names as they stand in the target.
TRICKS = ["..", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd", "%2e", "m%2f..%2fm", "m%00", "m%00.gguf", "M", "m.", "m%20", ".m", "m%5c..",
          "%25", "%c0%ae%c0%ae", "%ff%fe", "m" * 5000, "'%20or%201=1--", "%24%28id%29", "m%0d%0aX-Injected:%201", "%7bmodel%7d"]
# What a field may be replaced with: right nowhere, but for 1.5 as the load.
JUNK = [-1, 1.5, 1e300, 2 ** 64, 10 ** 300, "", "7", "x" * 3000, "\u0000", "\ud800", [], [[]], [None], {}, {"a": 1}, True, [-1, 2], [2, 1], [0, 2 ** 63],
        [0.5, 1], ["0", "1"], [0, 1, 2], "../../etc/passwd"]


def quote(text):
    return urllib.parse.quote(text, safe="%:,[]+")


def variants(value, path=()):
    """(path, body with one field of `value` replaced by junk)"""
    if isinstance(value, dict):
        for key in value:
            for where, changed in variants(value[key], (*path, key)):
                yield where, {**value, key: changed}
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for where, changed in variants(value[0], (*path, 0)):
            yield where, [changed, *value[1:]]
    for junk in JUNK if path else ():
        if type(junk) is not type(value) or (isinstance(value, list) and not isinstance(value[0], dict)):
            yield path, junk


class Abuse(unittest.TestCase):
    def setUp(self):
        self.hub = Hub().__enter__()
        self.addCleanup(self.hub.__exit__)
        self.node = Node(self.hub, self.hub.folder.name, "a")
        self.assertEqual(self.node.register()[0], 200)

    def tearDown(self):
        """It lives, and does its work."""
        self.assertIsNone(self.hub.process.poll())
        self.assertEqual(self.hub.json("/healthz")[0], 200)
        self.assertEqual(self.hub.get(SHARD.format("m") + "?layers=0:1&experts=0:1")[0], 200)

    def refused(self, method, target, body=None, among=(400, 404), **headers):
        """Asks over a socket, so that nobody tidies the target up; a 4xx that explains itself in JSON, and no file in it."""
        text = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {target} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {len(text)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in {"Authorization": "Bearer " + self.node.token, **headers}.items())
        answer = self.hub.raw(head.encode("utf-8", "surrogatepass") + b"\r\n" + text)
        where = (method, target[:100], text[:200])
        self.assertIn(status_of(answer), among, (where, answer[:300]))
        self.assertNotIn(b"X-Injected", answer.split(b"\r\n\r\n")[0], where)
        self.assertNotIn(b"root:", answer, where)
        error = json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]
        self.assertTrue(error["code"] and error["message"], where)
        return error["code"]

    def test_parameters(self):
        for what, values in (("layers", RANGES + ["-1", "1.5", "NaN"]), ("experts", RANGES)):
            for value in values:
                self.refused("GET", SHARD.format("m") + f"?{what}={quote(value)}")
        for value in NUMBERS:
            for target in ("/api/proxy/models/m/file?part={}", "/api/placement?model=m&version={}&wait=0", "/api/placement?model=m&wait={}&version=1",
                           "/api/nodes/" + self.node.id + "/ledger?limit={}", "/api/nodes/" + self.node.id + "/ledger?after={}"):
                self.refused("GET", target.format(quote(value)))
        for target in ("/api/proxy/models", "/api/proxy/models/m/manifest", SHARD.format("m"), "/api/proxy/models/m/file",
                       "/api/expert-demand", "/api/placement?model=m", f"/api/nodes/{self.node.id}/ledger", "/healthz", "/metrics"):
            joint = "&" if "?" in target else "?"
            for wrong in ("a=1&a=2", "%zz=1", "a=%f", "=", "&&&="):
                self.refused("GET", target + joint + "model=m&model=m&" + wrong)

    def test_names(self):
        for name in TRICKS:
            with self.subTest(name=name[:30]):
                for target in (SHARD.format(name), f"/api/proxy/models/{name}/manifest", f"/api/proxy/models/{name}/file",
                               f"/api/expert-demand?model={name}", f"/api/placement?model={name}", f"/api/nodes/{name}/ledger"):
                    self.refused("GET", target)
        for target in ("/../etc/passwd", "/./healthz", "//healthz", "/healthz/", "/api/proxy/models/m/file/../../../../etc/passwd",
                       "/%2e%2e/%2e%2e/etc/passwd", "/api\\proxy\\models", "/API/proxy/models", "*", "/healthz%00", "/\u00e9"):
            self.refused("GET", target)

    def test_methods(self):
        for target in ("/api/proxy/models", SHARD.format("m"), "/api/expert-demand", "/api/placement", "/healthz", "/metrics"):
            for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "get"):
                self.refused(method, target, among=(400, 405))

    def test_a_hundred_ranges_are_one_answer(self):
        path = SHARD.format("m") + "?layers=0:1&experts=0:1"
        n = int(self.hub.get(path, method="HEAD")[1]["Content-Length"])
        for ranges in (["0-"] * 100, [f"{i}-{i}" for i in range(100)], ["-1"] * 100, ["5-2"] * 100):
            status, headers, body = self.hub.get(path, {"Range": "bytes=" + ",".join(ranges)})
            self.assertEqual((status, len(body), "Content-Range" in headers), (200, n, False))
        for one in (f"{n}-", "99999999999999999999-", "-0"):
            self.assertEqual(self.refused("GET", path, among=(416,), Range="bytes=" + one), "range_not_satisfiable")

    def test_bodies(self):
        self.node.hold(part([0, 8]))
        challenge = self.node.challenge()
        receipt = self.node.receipt("0" * 32, 1, 1)
        right = {"/api/nodes": self.node.proof(challenge), "/api/expert-volunteer": {"max_experts": 8, "model": "m", "instead_of": part([0, 8])},
                 "/api/expert-coverage": {"holds": [part([0, 8])], "address": "127.0.0.1:5", "numeric_class": "CPU", "load": 0.5,
                                          "draining": False, "progress": [{"lease": "x", "bytes": 1}]},
                 "/api/receipts": {"receipts": [receipt]}}
        for path, body in right.items():
            n = 0
            for where, changed in variants(body):
                with self.subTest(path=path, where=where, body=str(changed)[:300]):
                    self.check_body(path, where, changed)
                    n += 1
            self.assertGreater(n, 30)
            for text in (b"", b"null", b"[]", b"{", b"{}x", b'{"a":1,}', b"\xef\xbb\xbf{}", b"\x00" * 100, b"\xff\xfe{\x00}\x00", b"[" * 60000,
                         b'{"a":' * 10000, b'"' + b"\\u0000" * 10000 + b'"', b"1e999999", b"-" * 60000, b"{" + b'"a":1,' * 9000 + b'"a":1}'):
                self.refused("POST", path, text, among=(400,))

    def check_body(self, path, where, changed):
        status, answer = self.node.call("POST", path, changed)
        if (path, where) == ("/api/expert-coverage", ("load",)) and changed["load"] == 1.5:
            return self.assertEqual(status, 200)
        if path == "/api/receipts" and status == 200:  # each receipt has an answer of its own
            return self.assertEqual([one["result"] for one in answer["results"]], ["refused"] * len(answer["results"]))
        self.assertIn(status, (400, 403, 404, 409), answer)
        self.assertTrue(answer["error"]["message"])

    def test_large_and_endless_requests(self):
        """Also: none of them leaves anything behind."""
        def once():
            for request in (b"GET /healthz HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 1_000_000 + b"\r\n\r\n",
                            b"GET /healthz HTTP/1.1\r\n" + b"A: b\r\n" * 170_000 + b"\r\n",
                            b"GET /" + b"x" * 1_000_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n",
                            b"GET /healthz?" + b"a&" * 500_000 + b" HTTP/1.1\r\nHost: h\r\n\r\n"):
                self.assertIn(status_of(self.hub.raw(request)), (414, 431), request[:40])
            for size in (b"100\r\n" + b"x" * 256 + b"\r\n", b"1;" + b"e" * 200 + b"\r\nx\r\n", b"1\r\nx\r\n"):
                self.assertIn(self.endless(b"Transfer-Encoding: chunked\r\n", size), (400, 413, 431))
            self.assertEqual(self.endless(b"Content-Length: 9999999999\r\n", b"x" * 1000), 413)
            for chunks in (b"ffffffffffffffffffff\r\n", b"-1\r\nx\r\n", b"zz\r\n", b"fffffffffffffff\r\nx"):
                self.assertIn(status_of(self.hub.raw(b"POST /api/expert-coverage HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                                                     + chunks)), (400, 413), chunks)
        once()
        before = self.hub.memory()
        for _ in range(4):
            once()
        self.assertLess(self.hub.memory() - before, 8e6)

    def endless(self, how, piece):
        """Status of a request whose body goes on until the hub has had enough."""
        with self.hub.connect() as connection:
            connection.sendall(b"POST /api/expert-coverage HTTP/1.1\r\nHost: h\r\n" + how + b"\r\n")
            for _ in range(20_000_000 // len(piece)):
                if select.select([connection], [], [], 0)[0]:
                    return status_of(connection.recv(65536))
                connection.sendall(piece)
        self.fail("the hub takes all of it")

    def test_wrong_tokens_and_headers(self):
        for value in ("", "Bearer", "Bearer ", "Basic YTpi", "bearer x", "Bearer " + "f" * 10_000, "Bearer \u00e9", "Bearer a b"):
            self.refused("POST", "/api/expert-coverage", {"holds": []}, among=(400, 401), Authorization=value)
        for lines in (b"Content-Length: 1\r\nContent-Length: 2\r\n", b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
                      b"Transfer-Encoding: gzip\r\nContent-Length: 1, 2\r\n", b"Content-Length: +1\r\n", b"Content-Length: 1 1\r\n", b"A\x00: b\r\n", b": b\r\n",
                      b"A b: c\r\n"):
            answer = self.hub.raw(b"POST /api/expert-coverage HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n{}")
            self.assertIn(status_of(answer), (400, 401, 501), lines)


if __name__ == "__main__":
    unittest.main(argv=["abuse_test", "-v"])
