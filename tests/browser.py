"""A headless Chromium driven by its DevTools protocol over two pipes; nothing but the standard library."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Browser:
    """A page in a browser of its own; to be used in a `with`. `messages`: what the console got, exceptions and violated
    policies among it; `requests`: every address that was asked for."""

    def __init__(self, javascript=True):
        self.messages, self.requests, self._number, self._buffer = [], [], 0, b""
        self._javascript = javascript

    def __enter__(self):
        self._profile = tempfile.TemporaryDirectory(prefix="normscope-chromium-", ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()

        def pipes():  # Chromium reads commands from 3 and writes answers to 4
            reader, writer = (fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (to_read, to_write))
            os.dup2(reader, 3)
            os.dup2(writer, 4)

        self._process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self._profile.name}"],
            preexec_fn=pipes, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self._session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        if not self._javascript:
            self.call("Emulation.setScriptExecutionDisabled", value=True)
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._profile.cleanup()

    def call(self, method, **parameters):
        """A command's result."""
        self._number += 1
        number = self._number
        command = {"id": number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._write, json.dumps(command).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self._note(answer)

    def _next(self):
        while b"\0" not in self._buffer:
            read = os.read(self._read, 1 << 20)
            if not read:
                raise RuntimeError("the browser has ended")
            self._buffer += read
        message, self._buffer = self._buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        about = event.get("params", {})
        if event["method"] == "Runtime.consoleAPICalled":
            self.messages.append(str(about["args"]))
        elif event["method"] == "Runtime.exceptionThrown":
            self.messages.append(str(about["exceptionDetails"]))
        elif event["method"] == "Log.entryAdded":
            self.messages.append(about["entry"]["text"])
        elif event["method"] == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])

    def open(self, path, width=1200, height=900, dark=False):
        """Shows a file and waits until it stands."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url="about:blank")
        self.requests.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        if self._javascript:
            self.wait("document.readyState === 'complete'")
            self.settle()
        else:
            time.sleep(1)

    def evaluate(self, expression):
        """The value of a JavaScript expression in the page."""
        done = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in done:
            raise RuntimeError(f"{expression}: {done['exceptionDetails']}")
        return done["result"].get("value")

    def wait(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while not self.evaluate(condition):
            if time.monotonic() > end:
                raise RuntimeError(f"never came true: {condition}")
            time.sleep(0.02)

    def settle(self):
        """Waits until what was changed is drawn."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def point(self, selector, across=0.5, down=0.5, press=False):
        """Moves the pointer over an element, to a share of its width and height, and presses it there."""
        x, y = self.evaluate(f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect(); "
                             f"return [r.left + {across} * r.width, r.top + {down} * r.height]; }})(document.querySelector({selector!r}))")
        for kind in ("mouseMoved", *(("mousePressed", "mouseReleased") if press else ())):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left" if kind != "mouseMoved" else "none", clickCount=1)
        self.settle()

    def key(self, name, text=""):
        """Presses a key."""
        code = {" ": "Space"}.get(name, name)
        number = {"End": 35, "Home": 36, "ArrowLeft": 37, "ArrowRight": 39, " ": 32, "Escape": 27}[name]
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=code, windowsVirtualKeyCode=number, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=code, windowsVirtualKeyCode=number)
        self.settle()

    def choose(self, selector, value):
        """Chooses an option of a <select>."""
        self.evaluate(f"(e => {{ e.value = {value!r}; e.dispatchEvent(new Event('change')); }})(document.querySelector({selector!r}))")
        self.settle()

    def screenshot(self, path, whole=True):
        """Writes a PNG of the page, or of what the window shows."""
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **(
            {"clip": {**self.call("Page.getLayoutMetrics")["cssContentSize"], "scale": 1}} if whole else {}))
        path.write_bytes(base64.b64decode(taken["data"]))
