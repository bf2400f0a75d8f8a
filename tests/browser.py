"""A headless Chromium, spoken to over a pipe: the page as it is really laid out and painted."""

from __future__ import annotations

import base64
import io
import json
import os
import select
import shutil
import subprocess
import sys
import time

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

# The browser reads from descriptor 3 and writes to descriptor 4; the copies keep either from being
# overwritten by the other.
START = """
import os, sys
ends = [os.dup(os.dup(os.dup(int(end)))) for end in sys.argv[1:3]]
os.dup2(ends[0], 3)
os.dup2(ends[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


def find_chromium():
    """Path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, program, profile, patience=60.0):
        self.patience = patience
        self.number = 0
        self.buffer = b""
        self.events = []
        to_read, self.out = os.pipe()
        self.inp, to_write = os.pipe()
        self.process = subprocess.Popen(
            [
                sys.executable, "-S", "-c", START, str(to_read), str(to_write), program,
                "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
                f"--user-data-dir={profile}", "about:blank",
            ],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_read)
        os.close(to_write)
        self.session = None
        try:
            self._attach()
        except AssertionError:
            self.close()
            raise

    def _attach(self):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        """End the browser."""
        self.process.terminate()
        self.process.wait(timeout=20)
        os.close(self.out)
        os.close(self.inp)

    def call(self, method, **params):
        """One command and its answer; what the browser tells meanwhile is kept in ``events``."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            self.events.append(answer)

    def wait_for(self, event):
        """Wait until the browser has told of an event."""
        while not any(told.get("method") == event for told in self.events):
            self.events.append(self._next())

    def open(self, path, width=1200, height=900, scheme="light", mobile=False):
        """Load a page at a width, in a colour scheme."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=mobile,
        )  # fmt: skip
        self.media(scheme=scheme)
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        self.wait_for("Page.loadEventFired")

    def media(self, scheme="light", kind=""):
        """Pretend a colour scheme, and perhaps paper."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def run(self, expression):
        """Value of a JavaScript expression in the page."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def hover(self, x, y):
        """Move the pointer."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def press(self, key):
        """Press a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Tab": 9, "Escape": 27, "Enter": 13}[key])  # fmt: skip

    def picture(self, whole=False):
        """The page as PNG bytes."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(found["data"])

    def pixels(self):
        """The page as (height, width, 3) numbers."""
        import numpy as np
        from PIL import Image

        return np.asarray(Image.open(io.BytesIO(self.picture())).convert("RGB"))

    def asked_for(self):
        """Addresses that the page made the browser ask for, itself among them."""
        return [
            told["params"]["request"]["url"]
            for told in self.events
            if told.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self):
        """What the browser or the page's script complained about."""
        return [
            told["params"]
            for told in self.events
            if told.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")
        ]

    def _next(self):
        end = time.monotonic() + self.patience
        while b"\0" not in self.buffer:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.inp], [], [], max(0, left))
            assert ready, "the browser does not answer"
            part = os.read(self.inp, 1 << 20)
            assert part, "the browser is gone"
            self.buffer += part
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)
