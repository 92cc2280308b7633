"""A node as a test plays it: its key in a file, made and used by openssl as docs/MARKET.md shows it."""
import hashlib
import hmac
import json
import os
import subprocess


def openssl(*arguments, stdin=None):
    return subprocess.run(["openssl", *arguments], input=stdin, check=True, capture_output=True).stdout


class Node:
    def __init__(self, hub, folder, name):
        self.hub = hub
        self.pem = os.path.join(folder, name + ".pem")
        openssl("genpkey", "-algorithm", "ed25519", "-out", self.pem)
        self.public_key = openssl("pkey", "-in", self.pem, "-pubout", "-outform", "DER")[-32:].hex()
        self.id = hashlib.sha256(bytes.fromhex(self.public_key)).hexdigest()[:32]
        self.token = None

    def sign(self, text):
        path = self.pem + ".text"
        with open(path, "wb") as file:
            file.write(text.encode())
        return openssl("pkeyutl", "-sign", "-inkey", self.pem, "-rawin", "-in", path).hex()

    def call(self, method, path, body=None, token=None):
        """(status, JSON)"""
        headers = {"Content-Type": "application/json"}
        if token or self.token:
            headers["Authorization"] = "Bearer " + (token or self.token)
        text = None if body is None else body if isinstance(body, (bytes, str)) else json.dumps(body)
        return self.hub.json(path, method=method, headers=headers, body=text)

    def challenge(self):
        status, answer = self.call("POST", "/api/nodes", {"public_key": self.public_key})
        assert status == 200, answer
        return answer

    def statement(self, challenge):
        return f"linkcpp node registration 1\nhub {challenge['hub']}\nnonce {challenge['nonce']}\nnode {self.public_key}\n"

    def proof(self, challenge, join_token=None):
        text = self.statement(challenge)
        proof = {"public_key": self.public_key, "nonce": challenge["nonce"], "signature": self.sign(text)}
        if join_token:
            proof["join_proof"] = hmac.new(join_token, text.encode(), hashlib.sha256).hexdigest()
        return proof

    def register(self, join_token=None):
        status, answer = self.call("POST", "/api/nodes", self.proof(self.challenge(), join_token))
        if status == 200:
            self.token = answer["token"]
        return status, answer

    def hold(self, *holds, address="127.0.0.1:50071", **more):
        return self.call("POST", "/api/expert-coverage",
                         {"holds": list(holds), "address": address, "numeric_class": "CPU", **more})

    def receipt(self, node, rows, sequence, experts=(0, 8), layers=(0, 1), model="m", payer=None, backbone=None):
        """A receipt of this node as a backbone, signed."""
        receipt = {"backbone": backbone or self.id, "payer": payer or self.id, "node": node, "model": model,
                   "layers": list(layers), "experts": list(experts), "rows": rows, "period": [1700000000, 1700000060],
                   "sequence": sequence}
        text = ("linkcpp receipt 1\nbackbone {backbone}\npayer {payer}\nnode {node}\nmodel {model}\n"
                "layers {layers[0]}:{layers[1]}\nexperts {experts[0]}:{experts[1]}\nrows {rows}\n"
                "period {period[0]}:{period[1]}\nsequence {sequence}\n").format(**receipt)
        receipt["signature"] = self.sign(text)
        return receipt


def part(experts, layers=(0, 1), model="m"):
    return {"model": model, "layers": list(layers), "experts": list(experts)}
