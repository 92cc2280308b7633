#!/usr/bin/env python3
"""The server itself, live: routes, errors, limits, idle and slow connections, orderly end."""
import json
import signal
import socket
import subprocess
import unittest

from hub_process import BIN, MODEL, Hub, status_of

GET = b"GET %s HTTP/1.1\r\nHost: h\r\n\r\n"


class Server(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hub = Hub("--max-connections", "1500").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.hub.__exit__()

    def test_says_what_it_serves(self):
        self.assertRegex(self.hub.lines[0], r"^model m: qwen35moe, 4 layers, 16 experts per layer, 4 used, 9\.3\d MB, id [0-9a-f]{8}$")
        self.assertRegex(self.hub.lines[-2], r"^hub key [0-9a-f]{64}$")

    def test_health_models_and_metrics(self):
        self.assertEqual(self.hub.json("/healthz")[1]["status"], "ok")
        models = self.hub.json("/api/proxy/models")[1]["models"]
        self.assertEqual([(m["name"], m["architecture"], m["n_layer"], m["n_expert"]) for m in models],
                         [("m", "qwen35moe", 4, 16)])
        self.assertIn(b"\nlinkcpp_hub_requests_total ", self.hub.get("/metrics")[2])

    def test_head_is_get_without_body(self):
        _, got, body = self.hub.get("/healthz")
        status, head, nothing = self.hub.get("/healthz", method="HEAD")
        self.assertEqual((status, nothing, head["Content-Length"]), (200, b"", got["Content-Length"]))
        self.assertEqual(int(got["Content-Length"]), len(body))

    def test_errors_are_json(self):
        for path, method, status, code in [("/nothing", "GET", 404, "no_such_route"),
                                           ("/api/proxy/models/", "GET", 404, "no_such_route"),
                                           ("/healthz/../healthz", "GET", 404, "no_such_route"),
                                           ("/healthz", "POST", 405, "method_not_allowed"),
                                           ("/healthz", "BREW", 405, "method_not_allowed"),
                                           ("/healthz?a=%zz", "GET", 400, "bad_target"),
                                           ("/healthz?a=1&a=2", "GET", 400, "bad_target")]:
            with self.subTest(path=path, method=method):
                got, headers, body = self.hub.get(path, method=method)
                error = json.loads(body)["error"]
                self.assertEqual((got, error["code"]), (status, code))
                self.assertTrue(error["message"])
                self.assertEqual(headers["Content-Type"], "application/json")
        self.assertEqual(self.hub.get("/healthz", method="POST")[1]["Allow"], "GET, HEAD")

    def test_what_is_no_request_is_refused(self):
        for request, status in [(b"hello\r\n\r\n", 400), (b"GET /healthz HTTP/3.0\r\n\r\n", 505),
                                (b"GET healthz HTTP/1.1\r\nHost: h\r\n\r\n", 400),
                                (b"GET /healthz HTTP/1.1\r\n\r\n", 400),
                                (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n", 400),
                                (b"GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
                                (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n", 413),
                                (b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70000, 413),
                                (b"GET / HTTP/1.1\r\nHost: h\r\nA: " + b"x" * 20000 + b"\r\n\r\n", 431),
                                (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", 431),
                                (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200000, 431)]:
            with self.subTest(request=request[:60]):
                self.assertEqual(status_of(self.hub.raw(request)), status)

    def test_one_connection_takes_many_requests_also_at_once(self):
        with self.hub.connect() as connection:
            connection.sendall(GET % b"/healthz" * 50 + b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        self.assertEqual(answer.count(b"HTTP/1.1 200 OK"), 51)

    def test_waits_for_the_go_ahead_are_answered(self):
        with self.hub.connect() as connection:
            connection.sendall(b"POST /healthz HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
            self.assertTrue(connection.recv(100).startswith(b"HTTP/1.1 100 "))
            connection.sendall(b"{}")
            self.assertEqual(status_of(connection.recv(65536)), 405)

    def test_a_thousand_idle_connections_cost_little(self):
        before = self.hub.memory()
        idle = [self.hub.connect() for _ in range(1000)]
        try:
            for connection in idle:
                connection.sendall(GET % b"/healthz")
            for connection in idle:
                self.assertEqual(status_of(connection.recv(65536)), 200)
            self.assertEqual(self.hub.json("/healthz")[0], 200)
            self.assertLess(self.hub.memory() - before, 40e6)
        finally:
            for connection in idle:
                connection.close()


class Limits(unittest.TestCase):
    def test_when_places_are_short_the_longest_idle_goes(self):
        with Hub("--max-connections", "3") as hub:
            first, second, third = (hub.connect() for _ in range(3))
            for connection in (first, second, third):
                connection.sendall(GET % b"/healthz")
                connection.recv(65536)
            self.assertEqual(hub.json("/healthz")[0], 200)
            self.assertEqual(first.recv(1), b"")
            for connection in (second, third):
                connection.close()
            first.close()

    def test_ends_in_order(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with Hub() as hub, hub.connect() as idle:
                idle.sendall(GET % b"/healthz")
                idle.recv(65536)
                self.assertEqual(hub.stop(number), 0)
                self.assertEqual(idle.recv(1), b"")

    def test_the_key_stays(self):
        with Hub() as hub:
            first = hub.lines[-2]
            self.assertEqual(hub.stop(), 0)
            with Hub(data=hub.data) as again:
                self.assertEqual(again.lines[-2], first)

    def test_command_lines_that_cannot_work(self):
        def run(*arguments):
            done = subprocess.run([BIN + "/linkcpp-hub", "--data", "/dev/null/x", *arguments], capture_output=True, text=True)
            return done.returncode, done.stderr
        self.assertEqual(run()[0], 2)
        self.assertEqual(run("--model", MODEL, "--cert", "x")[0], 2)
        code, said = run("--model", MODEL)
        self.assertEqual((code, "cannot be created" in said), (1, True))
        with Hub() as hub:
            taken = subprocess.run([BIN + "/linkcpp-hub", "--data", hub.folder.name + "/other", "--model", "a=" + MODEL,
                                    "--listen", str(hub.port)], capture_output=True, text=True)
            self.assertEqual((taken.returncode, "in use" in taken.stderr), (1, True), taken.stderr)
            for models, saying in [((MODEL, MODEL), "two models"), (("a/b=" + MODEL,), "no such file"),
                                   (("..=" + MODEL,), "cannot be the name")]:
                arguments = sum((["--model", m] for m in models), [])
                wrong = subprocess.run([BIN + "/linkcpp-hub", "--data", hub.data, *arguments], capture_output=True, text=True)
                self.assertEqual((wrong.returncode, saying in wrong.stderr), (1, True), wrong.stderr)


if __name__ == "__main__":
    unittest.main(argv=["server_test", "-v"])
