#!/usr/bin/env python3
"""docs/openapi.yaml and a live hub: the same routes, and for those of models and status each answer that is documented. The
swarm's are in market_test.py."""
import json
import os
import shutil
import unittest

from hub_process import MODEL, Hub
from openapi import Document

MODELS = "/api/proxy/models"
# Of expert-shard, file and manifest alike; the path, the request's headers, the status.
FILES = [("", {}, 200), ("", {"Range": "bytes=10-19"}, 206), ("", {"Range": "bytes=-1"}, 206),
         ("", {"Range": "bytes=0-1,4-5"}, 200), ("", {"Range": "bytes=5-1"}, 200), ("", {"Range": "lines=1-2"}, 200),
         ("", {"Range": "bytes=999999999999-"}, 416), ("", {"If-None-Match": "*"}, 304), ("", {"If-Match": '"other"'}, 412),
         ("", {"Range": "bytes=0-1", "If-Range": '"other"'}, 200), ("?nonsense=1", {}, 400)]


class Routes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.document = Document()
        cls.hub = Hub().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.hub.__exit__()

    def ask(self, hub, path, headers, status):
        with self.subTest(path=path, headers=headers):
            got, answered, body = hub.get(path, headers)
            self.assertEqual(got, status)
            is_whole_json = answered["Content-Type"] == "application/json" and got != 206
            self.document.check("GET", path, got, json.loads(body) if is_whole_json else body, answered)

    def test_the_routes_are_those_that_are_documented(self):
        hint = self.hub.json("/nothing")[1]["error"]["hint"]
        self.assertEqual(sorted(hint.split(": ", 1)[1].split(", ")), sorted(self.document.routes()))

    def test_each_answer_of_models_and_status(self):
        for path in ("/healthz", "/metrics", MODELS):
            self.ask(self.hub, path, {}, 200)
        self.ask(self.hub, MODELS + "?a=1", {}, 400)
        for what in ("manifest", "expert-shard", "file"):
            for query, headers, status in FILES:
                self.ask(self.hub, f"{MODELS}/m/{what}{query}", headers, status)
            self.ask(self.hub, f"{MODELS}/other/{what}", {}, 404)
        for query, status in (("layers=1:3&experts=4:", 200), ("layers=9:10", 404), ("experts=2:1", 400), ("layers=x", 400)):
            self.ask(self.hub, f"{MODELS}/m/expert-shard?{query}", {}, status)
        for query, status in (("part=0", 200), ("part=1", 404), ("part=-1", 400)):
            self.ask(self.hub, f"{MODELS}/m/file?{query}", {}, status)
        copy = self.hub.folder.name + "/copy.gguf"
        shutil.copyfile(MODEL, copy)
        with Hub(models=("m=" + copy,)) as changed:
            os.utime(copy, ns=(1, 1))
            for what in ("manifest", "expert-shard", "file"):
                self.ask(changed, f"{MODELS}/m/{what}", {}, 503)
        never = (self.document.documented("models") | self.document.documented("status")) - self.document.seen
        self.assertFalse(never, f"documented, but never seen: {sorted(never)}")


if __name__ == "__main__":
    unittest.main(argv=["routes_test", "-v"])
