#!/usr/bin/env python3
"""Models over HTTP: slices equal to those of `linkcpp slice`, ranges, conditions, errors, TLS; the manifest recomputed from
the model's file and docs/SLICES.md alone."""
import hashlib
import json
import os
import ssl
import struct
import subprocess
import tempfile
import unittest
import urllib.request

from hub_process import BIN, MODEL, Hub

SHARD = "/api/proxy/models/m/expert-shard"
FILE = "/api/proxy/models/m/file"


def run(*arguments):
    subprocess.run(arguments, check=True, capture_output=True)


def read(path):
    with open(path, "rb") as file:
        return file.read()


class Slices(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="linkcpp-test-")
        cls.split = cls.folder.name + "/split.gguf"
        run(BIN + "/linkcpp-make-model", "--arch", "qwen3moe", "--layers", "3", "--experts", "6", "--parts", "3", "-o", cls.split)
        cls.first = cls.folder.name + "/split-00001-of-00003.gguf"
        cls.hub = Hub(models=("m=" + MODEL, cls.first)).__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.hub.__exit__()
        cls.folder.cleanup()

    def slice(self, model, *arguments):
        path = self.folder.name + "/slice.gguf"
        run(BIN + "/linkcpp", "slice", model, *arguments, "-o", path)
        return read(path)

    def test_equal_those_of_the_command_line(self):
        for name, model, layers, experts in [("m", MODEL, "0:4", "0:16"), ("m", MODEL, "1:2", "3:7"), ("m", MODEL, "2:4", "15:16"),
                                             ("split", self.first, "0:3", "0:6"), ("split", self.first, "1:3", "2:5")]:
            with self.subTest(model=name, layers=layers, experts=experts):
                expected = self.slice(model, "--layers", layers, "--experts", experts)
                path = f"/api/proxy/models/{name}/expert-shard?layers={layers}&experts={experts}"
                status, headers, body = self.hub.get(path)
                self.assertEqual((status, int(headers["Content-Length"])), (200, len(expected)))
                self.assertEqual(body, expected)
                self.assertEqual(headers["Accept-Ranges"], "bytes")
                self.assertRegex(headers["ETag"], r'^"[0-9a-f]{64}"$')
                status, head, nothing = self.hub.get(path, method="HEAD")
                self.assertEqual((status, head["Content-Length"], head["ETag"], nothing),
                                 (200, str(len(expected)), headers["ETag"], b""))
        self.assertEqual(self.hub.get(SHARD)[2], self.hub.get(SHARD + "?layers=:&experts=0:")[2])
        self.assertEqual(self.hub.get(SHARD + "?layers=2")[2], self.hub.get(SHARD + "?layers=2:3")[2])

    def test_ranges(self):
        whole = self.hub.get(SHARD + "?layers=0:2&experts=0:4")[2]
        n = len(whole)
        for text, begin, end in [("0-0", 0, 1), ("0-", 0, n), (f"{n - 1}-", n - 1, n), ("-1", n - 1, n), (f"-{n + 5}", 0, n),
                                 (f"100-{n * 9}", 100, n), ("2000-300000", 2000, 300001), ("5-99999999999999999999999", 5, n)]:
            with self.subTest(range=text):
                status, headers, body = self.hub.get(SHARD + "?layers=0:2&experts=0:4", {"Range": "bytes=" + text})
                self.assertEqual((status, headers["Content-Range"]), (206, f"bytes {begin}-{end - 1}/{n}"))
                self.assertEqual(body, whole[begin:end])
        for text in ("bytes=0-1,5-6", "bytes=" + ",".join(["0-1"] * 100), "bytes=5-2", "bytes=", "bytes=a-b", "lines=1-2", "bytes=--1"):
            with self.subTest(range=text):
                status, _, body = self.hub.get(SHARD + "?layers=0:2&experts=0:4", {"Range": text})
                self.assertEqual((status, body), (200, whole))
        for text in (f"bytes={n}-", "bytes=99999999999999999999999-", "bytes=-0"):
            status, headers, body = self.hub.get(SHARD + "?layers=0:2&experts=0:4", {"Range": text})
            self.assertEqual((status, headers["Content-Range"], json.loads(body)["error"]["code"]),
                             (416, f"bytes */{n}", "range_not_satisfiable"))

    def test_conditions(self):
        path = SHARD + "?layers=0"
        etag = self.hub.get(path)[1]["ETag"]
        self.assertEqual(self.hub.get(path, {"Range": "bytes=0-9", "If-Range": etag})[0], 206)
        self.assertEqual(self.hub.get(path, {"Range": "bytes=0-9", "If-Range": '"other"'})[0], 200)
        self.assertEqual(self.hub.get(path, {"If-None-Match": '"x", ' + etag})[0], 304)
        self.assertEqual(self.hub.get(path, {"If-Match": etag})[0], 200)
        self.assertEqual(self.hub.get(path, {"If-Match": '"other"'})[0], 412)
        self.assertNotEqual(self.hub.get(SHARD + "?layers=1", method="HEAD")[1]["ETag"], etag)

    def test_three_pieces_by_curl_are_the_slice(self):
        expected = self.slice(MODEL, "--layers", "1:3", "--experts", "4:12")
        n, pieces = len(expected), b""
        for begin, end in [(0, n // 3), (n // 3, n // 2), (n // 2, n)]:
            path = self.folder.name + "/piece"
            run("curl", "-sf", "-r", f"{begin}-{end - 1}", "-o", path, self.hub.url + SHARD + "?layers=1:3&experts=4:12")
            pieces += read(path)
        self.assertEqual(pieces, expected)

    def test_what_is_not_there(self):
        for path, status, code in [("/api/proxy/models/x/expert-shard", 404, "no_such_model"),
                                   ("/api/proxy/models/x/manifest", 404, "no_such_model"),
                                   ("/api/proxy/models/..%2F..%2Fetc%2Fpasswd/file", 404, "no_such_model"),
                                   ("/api/proxy/models/../m/file", 404, "no_such_route"),
                                   (SHARD + "?layers=0:5", 404, "no_such_experts"),
                                   (SHARD + "?experts=0:999999999", 404, "no_such_experts"),
                                   (SHARD + "?layers=3:1", 400, "bad_range"), (SHARD + "?layers=1:1", 400, "bad_range"),
                                   (SHARD + "?layers=-1:2", 400, "bad_range"), (SHARD + "?layers=a:b", 400, "bad_range"),
                                   (SHARD + "?experts=0:99999999999999999999", 400, "bad_range"),
                                   (SHARD + "?layers=0:1:2", 400, "bad_range"), (SHARD + "?layers=", 400, "bad_range"),
                                   (SHARD + "?layer=0:1", 400, "unknown_parameter"), (FILE + "?part=1", 404, "no_such_part"),
                                   (FILE + "?part=-1", 400, "bad_part"), (FILE + "?part=0:2", 400, "bad_part")]:
            with self.subTest(path=path):
                got, value = self.hub.json(path)
                self.assertEqual((got, value["error"]["code"]), (status, code))
                self.assertTrue(value["error"]["message"] and value["error"]["hint"])

    def test_files(self):
        whole = read(MODEL)
        self.assertEqual(self.hub.get(FILE)[2], whole)
        self.assertEqual(self.hub.get(FILE + "?part=0", {"Range": "bytes=1000-5000"})[2], whole[1000:5001])
        for part in range(3):
            self.assertEqual(self.hub.get(f"/api/proxy/models/split/file?part={part}")[2],
                             read(f"{self.folder.name}/split-0000{part + 1}-of-00003.gguf"))

    def test_a_manifest_is_what_the_documents_say(self):
        """model_id and digests again, from the JSON, the model's bytes and docs/SLICES.md."""
        manifest = self.hub.json("/api/proxy/models/m/manifest")[1]
        model = read(MODEL)

        def text(value):
            return struct.pack("<H", len(value)) + value.encode()

        metadata = bytes.fromhex(manifest["slice_metadata"]["hex"])
        out = b"linkcpp-manifest" + struct.pack("<I", 1) + text(manifest["architecture"]) + text(manifest["title"])
        for key in ("alignment", "n_layer", "n_embd", "n_expert", "n_expert_used", "n_ff_exp"):
            out += struct.pack("<I", manifest[key])
        out += bytes.fromhex(manifest["fingerprint"])
        out += struct.pack("<II", manifest["slice_metadata"]["entries"], len(metadata)) + metadata
        out += struct.pack("<I", len(manifest["files"]))
        for file in manifest["files"]:
            self.assertEqual(hashlib.sha256(model[:file["header_bytes"]]).hexdigest(), file["header_sha256"])
            out += struct.pack("<QQ", file["bytes"], file["header_bytes"]) + bytes.fromhex(file["header_sha256"])
        out += struct.pack("<I", len(manifest["tensors"]))
        for tensor in manifest["tensors"]:
            part = tensor["bytes"] // len(tensor["sha256"])
            self.assertEqual(len(tensor["sha256"]), 16 if "_exps." in tensor["name"] else 1)
            for i, digest in enumerate(tensor["sha256"]):
                begin = tensor["offset"] + i * part
                self.assertEqual(hashlib.sha256(model[begin:begin + part]).hexdigest(), digest)
            out += text(tensor["name"]) + struct.pack("<II", tensor["type"], len(tensor["shape"]))
            out += struct.pack(f"<{len(tensor['shape'])}q", *tensor["shape"])
            out += struct.pack("<IQQI", tensor["file"], tensor["offset"], tensor["bytes"], len(tensor["sha256"]))
            out += bytes.fromhex("".join(tensor["sha256"]))
        model_id = hashlib.sha256(out).digest()
        self.assertEqual(manifest["model_id"], model_id.hex())
        self.assertEqual(manifest["hub_key"], self.hub.lines[-2].split()[-1])
        # The signature, by openssl: the key as DER, the prefix of every Ed25519 key in front.
        with tempfile.TemporaryDirectory(prefix="linkcpp-test-") as folder:
            for name, content in [("key", bytes.fromhex("302a300506032b6570032100" + manifest["hub_key"])),
                                  ("text", b"linkcpp manifest 1\n" + model_id), ("sig", bytes.fromhex(manifest["signature"]))]:
                with open(f"{folder}/{name}", "wb") as file:
                    file.write(content)
            run("openssl", "pkeyutl", "-verify", "-pubin", "-keyform", "DER", "-inkey", folder + "/key", "-rawin", "-in",
                folder + "/text", "-sigfile", folder + "/sig")


class Life(unittest.TestCase):
    def test_a_manifest_is_kept_and_made_again_when_the_file_changed(self):
        with tempfile.TemporaryDirectory(prefix="linkcpp-test-") as folder:
            path, data = folder + "/m.gguf", folder + "/data"
            model = bytearray(read(MODEL))
            with open(path, "wb") as file:
                file.write(model)

            def model_id():
                with Hub(models=("m=" + path,), data=data) as hub:
                    return hub.json("/api/proxy/models")[1]["models"][0]["model_id"]
            first = model_id()
            kept = os.stat(data + "/manifests/m").st_mtime_ns
            self.assertEqual(model_id(), first)
            self.assertEqual(os.stat(data + "/manifests/m").st_mtime_ns, kept)
            with Hub(models=("m=" + path,), data=data) as hub:
                model[-1000] ^= 1
                with open(path, "r+b") as file:
                    file.write(model)
                self.assertEqual(hub.json(SHARD)[1]["error"]["code"], "model_changed")
            self.assertNotEqual(model_id(), first)
            with open(data + "/manifests/m", "r+b") as file:
                file.seek(100)
                file.write(b"x")
            second = model_id()
            self.assertEqual(model_id(), second)

    def test_tls(self):
        with tempfile.TemporaryDirectory(prefix="linkcpp-test-") as folder:
            run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder + "/key", "-out", folder + "/cert")
            with Hub("--cert", folder + "/cert", "--key", folder + "/key") as hub:
                self.assertTrue(hub.url.startswith("https://"))
                context = ssl.create_default_context(cafile=folder + "/cert")
                with urllib.request.urlopen(hub.url + FILE, context=context) as answer:
                    self.assertEqual(answer.read(), read(MODEL))
                request = urllib.request.Request(hub.url + SHARD, headers={"Range": "bytes=5000-700000"})
                with urllib.request.urlopen(request, context=context) as part, Hub() as plain:
                    self.assertEqual(part.read(), plain.get(SHARD)[2][5000:700001])

    def test_a_client_that_reads_slowly_or_leaves_holds_up_nobody(self):
        with Hub() as hub:
            slow = [hub.connect() for _ in range(50)]
            for connection in slow:
                connection.sendall(b"GET " + FILE.encode() + b" HTTP/1.1\r\nHost: h\r\n\r\n")
                connection.recv(100)
            self.assertEqual(hub.get(FILE)[2], read(MODEL))
            for connection in slow[:25]:
                connection.close()
            for connection in slow[25:]:
                n = 0
                while n < len(read(MODEL)):
                    n += len(connection.recv(1 << 20))
                connection.close()
            self.assertEqual(hub.json("/healthz")[0], 200)
            self.assertLess(hub.memory(), 60e6)


if __name__ == "__main__":
    unittest.main(argv=["content_test", "-v"])
