"""linkcpp-expert-worker as an autonomous process for tests, and waiting for what other processes do."""
import json
import signal
import subprocess
import threading
import time

from hub_process import BIN

WAIT = 60


class Worker:
    """linkcpp-expert-worker --hub with JSON lines; events are kept as they come."""

    def __init__(self, hub, folder, *arguments):
        self.events = []
        self.changed = threading.Condition()
        command = [BIN + "/linkcpp-expert-worker", "--hub", hub.url, "--data", folder, "--log", "json", "--threads", "1", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            with self.changed:
                self.events.append(json.loads(line))
                self.changed.notify_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.end()

    def end(self):
        code = self.process.wait(timeout=WAIT)
        self.reader.join()
        self.process.stdout.close()
        self.said = self.process.stderr.read()
        self.process.stderr.close()
        return code

    def stop(self, number=signal.SIGINT):
        self.process.send_signal(number)
        self.process.wait(timeout=WAIT)
        self.reader.join()  # all it said has been read

    def of(self, kind):
        return [event for event in self.events if event["event"] == kind]

    def wait(self, kind, count=1):
        with self.changed:
            done = self.changed.wait_for(lambda: len(self.of(kind)) >= count, WAIT)
        assert done, f"no {kind} in {self.events}"
        return self.of(kind)[count - 1]


def until(condition, limit=WAIT):
    """Waits for what another process will do."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def holders(hub):
    return hub.json("/api/placement?model=m")[1]["holders"]
