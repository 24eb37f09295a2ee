"""A Chromium that tests and benchmarks drive: no window, no network, no package beside the standard library.

It gets its commands over two pipes (``--remote-debugging-pipe``), in the messages of the DevTools protocol, each ended
by a zero byte.
"""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-backgrounding-occluded-windows",
    "--disable-renderer-backgrounding",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
PATIENCE = 240.0  # seconds for an answer, on a machine that is busy


def found() -> str | None:
    """The path of a Chromium: that of CLEARANCE_CHROMIUM, or one on the path; None where there is none."""
    named = os.environ.get("CLEARANCE_CHROMIUM")
    return named or next((path for name in NAMES if (path := shutil.which(name))), None)


class Chromium:
    """One page in one browser; a context manager."""

    def __init__(self, program: str) -> None:
        self._folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        # the browser reads its commands on descriptor 3 and answers on 4
        words = [program, *OPTIONS, f"--user-data-dir={self._folder.name}", "--remote-debugging-pipe"]
        line = ["bash", "-c", f'exec 3<&{to_read} 4>&{to_write}; exec "$@"', "bash", *words]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            line, pass_fds=(to_read, to_write), stdin=quiet, stdout=quiet, stderr=quiet
        )
        os.close(to_read)
        os.close(to_write)
        self._count, self._pending, self.errors = 0, b"", list[str]()
        target = self._tell("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._tell("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for room in ("Page", "Runtime"):
            self.tell(f"{room}.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._write)
        os.close(self._read)
        self._folder.cleanup()

    def tell(self, method: str, **settings: Any) -> dict[str, Any]:
        """A command of the protocol for the page, and its answer."""
        return self._tell(method, session=self._session, **settings)

    def open(self, page: Path, fragment: str = "", width: int = 1280, height: int = 900) -> None:
        """Load a page and wait until it says that it is ready."""
        self.tell(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.errors.clear()
        self.tell("Page.navigate", url="about:blank")
        self.tell("Page.navigate", url=page.resolve().as_uri() + fragment)
        self.wait("document.documentElement?.dataset.ready === 'yes'")

    def wait(self, condition: str) -> None:
        """Until an expression is true."""
        ends = time.monotonic() + PATIENCE
        while not self.run(condition):
            if self.errors or time.monotonic() > ends:
                raise AssertionError(f"{condition} did not become true; errors: {self.errors}")
            time.sleep(0.05)

    def run(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        answer = self.tell("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def text(self, name: str) -> str:
        """What an element shows."""
        return str(self.run(f"document.getElementById({name!r}).textContent"))

    def slide(self, name: str, value: float) -> None:
        """Set a slider as a hand does: its value changes, and it says so."""
        self.run(
            f"{{const s = document.getElementById({name!r}); s.value = {value};"
            " s.dispatchEvent(new Event('input', {bubbles: true}));"
            " s.dispatchEvent(new Event('change', {bubbles: true}));}"
        )

    def press(self, key: str, times: int = 1, *, shift: bool = False) -> None:
        """Press a key where the focus is."""
        codes = {
            "Tab": 9,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
            "Home": 36,
            "End": 35,
        }
        settings = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 8 * shift}
        for _ in range(times):
            for kind in ("rawKeyDown", "keyUp"):
                self.tell("Input.dispatchKeyEvent", type=kind, **settings)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the mouse at one place of the window, move, and let go at another."""
        places = [("mousePressed", start), ("mouseMoved", end), ("mouseReleased", end)]
        for kind, (x, y) in places:
            self.tell("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def prefer(self, **features: str) -> None:
        """Set what a reader prefers: ``color_scheme="dark"``, ``reduced_motion="reduce"``."""
        wanted = [
            {"name": f"prefers-{name.replace('_', '-')}", "value": value} for name, value in features.items()
        ]
        self.tell("Emulation.setEmulatedMedia", features=wanted)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG file."""
        size = self.tell("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self.tell("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def _tell(self, method: str, session: str | None = None, **settings: Any) -> dict[str, Any]:
        self._count += 1
        message: dict[str, Any] = {"id": self._count, "method": method, "params": settings}
        if session is not None:
            message["sessionId"] = session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self._count:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return dict(answer["result"])

    def _next(self) -> dict[str, Any]:
        """The next message that the browser sends."""
        while b"\0" not in self._pending:
            if not select.select([self._read], [], [], PATIENCE)[0]:
                raise AssertionError(f"the browser said nothing for {PATIENCE:.0f} s")
            part = os.read(self._read, 1 << 20)
            if not part:
                raise AssertionError("the browser ended")
            self._pending += part
        message, _, self._pending = self._pending.partition(b"\0")
        return dict(json.loads(message))
