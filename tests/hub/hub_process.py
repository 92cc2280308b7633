"""A live linkcpp-hub for tests, and HTTP by hand: what curl would never send. Bin folder and model come from the
command line of the test: test.py BIN_FOLDER MODEL.gguf"""
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile

BIN = sys.argv[1]
MODEL = sys.argv[2]
SANITIZED = bool(os.environ.get("LINKCPP_SANITIZE"))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def end(process):
    """Whatever it is doing; nothing of it is left afterwards."""
    if process.poll() is None:
        process.kill()
    process.wait()
    for pipe in (process.stdout, process.stderr):
        if pipe:
            pipe.close()


class Hub:
    """Runs until the end of its `with`; `lines` is what it said before it served."""

    def __init__(self, *arguments, models=("m=" + MODEL,), data=None, listen="127.0.0.1:0", stderr=None):
        self.folder = tempfile.TemporaryDirectory(prefix="linkcpp-test-")
        self.data = data or self.folder.name + "/data"
        command = [BIN + "/linkcpp-hub", "--listen", listen, "--data", self.data, *arguments]
        for model in models:
            command += ["--model", model]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        self.lines = []
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith("serving on "):
                break
        else:
            raise AssertionError(f"the hub ended with {self.process.wait()} before it served")
        self.url = self.lines[-1].split()[-1]
        self.port = int(self.url.rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end(self.process)
        self.folder.cleanup()

    def stop(self, number=signal.SIGTERM):
        """Asks it to end; the exit code."""
        self.process.send_signal(number)
        return self.process.wait(timeout=60)

    def get(self, path, headers=None, method="GET", body=None):
        """(status, headers, body) over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()

    def json(self, path, **how):
        status, _, body = self.get(path, **how)
        return status, json.loads(body)

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.settimeout(60)
        return connection

    def raw(self, request):
        """Sends bytes as they are and reads until the hub closes; an answer cut off by a reset counts as what came."""
        with self.connect() as connection:
            with contextlib.suppress(OSError):  # it may have closed already
                connection.sendall(request)
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):
                while piece := connection.recv(65536):
                    answer += piece
            return answer

    def memory(self):
        """Resident bytes that are not pages of files: what the hub itself allocates. Under a sanitizer, whose allocator keeps
        what is freed, they say nothing: 0."""
        if SANITIZED:
            return 0
        with open(f"/proc/{self.process.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return int(fields["RssAnon"].split()[0]) * 1024


def status_of(answer):
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None
