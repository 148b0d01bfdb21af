"""The page at / in headless Chromium, driven over its devtools protocol: chat, stop, regenerate, probabilities, the live view, the policy,
hostile text. --shots DIR keeps screenshots."""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import urllib.request

from server_fixture import Server, check, equal, main, options, test, until


class WebSocket:
    """RFC 6455, a client's side, as little as devtools needs."""

    def __init__(self, url):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.split(":")
        self.s = socket.create_connection((name, int(port)), timeout=120)
        key = base64.b64encode(os.urandom(16)).decode()
        self.s.sendall(f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        self.held = b""
        while b"\r\n\r\n" not in self.held:
            self.held += self.s.recv(4096)
        head, self.held = self.held.split(b"\r\n\r\n", 1)
        check(b" 101 " in head, head)

    def take(self, n):
        while len(self.held) < n:
            piece = self.s.recv(65536)
            check(piece, "chromium closed the connection")
            self.held += piece
        out, self.held = self.held[:n], self.held[n:]
        return out

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        n = len(data)
        size = bytes([0x80 | n]) if n < 126 else b"\xfe" + struct.pack(">H", n) if n < 65536 else b"\xff" + struct.pack(">Q", n)
        self.s.sendall(b"\x81" + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        message = b""
        while True:
            first, n = self.take(2)
            n &= 127
            if n == 126:
                n = struct.unpack(">H", self.take(2))[0]
            elif n == 127:
                n = struct.unpack(">Q", self.take(8))[0]
            message += self.take(n)
            if first & 0x80:
                return message.decode()


class Browser:
    def __init__(self):
        self.directory = tempfile.mkdtemp()
        program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
        check(program, "there is no chromium")
        self.process = subprocess.Popen([program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0", "--window-size=1280,860",
                                         "--user-data-dir=" + self.directory, "about:blank"], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        def port():
            try:
                with open(self.directory + "/DevToolsActivePort") as f:
                    return int(f.readline())
            except (OSError, ValueError):  # not there, or not written to the end
                return None

        at = until(port, "chromium listens")
        pages = until(lambda: [p for p in json.load(urllib.request.urlopen(f"http://127.0.0.1:{at}/json")) if p["type"] == "page"], "chromium has a page")
        self.socket = WebSocket(pages[0]["webSocketDebuggerUrl"])
        self.count, self.problems = 0, []
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def call(self, method, **params):
        self.count += 1
        self.socket.send(json.dumps({"id": self.count, "method": method, "params": params}))
        while True:
            m = json.loads(self.socket.receive())
            if m.get("method") == "Runtime.exceptionThrown":
                self.problems.append(str(m["params"]["exceptionDetails"].get("exception", {}).get("description")))
            if m.get("method") == "Log.entryAdded" and m["params"]["entry"]["level"] == "error":
                self.problems.append(m["params"]["entry"]["text"])
            if m.get("id") == self.count:
                check("error" not in m, m)
                return m["result"]

    def js(self, text):
        r = self.call("Runtime.evaluate", expression=text, awaitPromise=True, returnByValue=True)
        check("exceptionDetails" not in r, r)
        return r["result"].get("value")

    def until(self, text):
        until(lambda: self.js(text), text)

    def key(self, key, code=None, modifiers=0, text=None):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=code or key, windowsVirtualKeyCode={"Enter": 13, "Tab": 9, "Escape": 27, "ArrowRight": 39, "ArrowLeft": 37}.get(key, 0),
                      modifiers=modifiers, **({"text": text} if text and kind == "keyDown" else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def shot(self, name):
        if options.shots:
            os.makedirs(options.shots, exist_ok=True)
            with open(f"{options.shots}/{name}.png", "wb") as f:
                f.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def close(self):
        self.process.terminate()
        self.process.wait(20)
        shutil.rmtree(self.directory, ignore_errors=True)


browser = None


def opened():
    global browser
    browser = browser or Browser()
    browser.problems.clear()
    browser.js("window.before = true")
    browser.call("Page.navigate", url=f"http://127.0.0.1:{Server.shared().port}/")

    def there():
        try:
            return browser.js("!window.before && document.readyState === 'complete' && document.getElementById('model').options.length > 0")
        except AssertionError:  # the page before went away under the question
            return False

    until(there, "the page is loaded")
    browser.js("document.getElementById('temperature').value = 0; document.getElementById('max_tokens').value = 60; document.getElementById('prompt').focus()")
    return browser


def ask(b, text):
    b.js("document.getElementById('prompt').focus()")
    b.type(text)
    b.key("Enter", text="\r")


def answers(b):
    return b.js("[...document.querySelectorAll('.assistant .said')].map(e => e.textContent)")


@test
def a_conversation_by_keyboard():
    b = opened()
    b.shot("empty")
    ask(b, "Write one sentence about roses.")
    b.until("document.querySelectorAll('.token').length > 3")
    b.shot("streaming")
    b.until("!document.getElementById('stop').disabled === false")
    equal(len(answers(b)), 1)
    server = Server.shared()
    wanted = server.chat(messages=[{"role": "user", "content": "Write one sentence about roses."}], max_tokens=60)[2]["choices"][0]["message"]["content"]
    equal(answers(b)[0], wanted)
    check("tokens/s" in b.js("document.querySelector('.facts').textContent"))
    ask(b, "And in three words?")
    b.until("document.querySelectorAll('.facts').length === 2")
    equal(len(answers(b)), 2)
    check("The answer is there" in b.js("document.getElementById('status').textContent"), "nothing for a screen reader")
    # probabilities: by mouse and by arrow keys
    box = b.js("(() => { const r = document.querySelectorAll('.token')[2].getBoundingClientRect(); return [r.x + r.width / 2, r.y + r.height / 2]; })()")
    b.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0], y=box[1])
    b.until("!document.getElementById('tip').hidden")
    tip = b.js("document.getElementById('tip').textContent")
    check("%" in tip and len(tip.splitlines()) == 6, tip)
    b.shot("probabilities")
    b.js("document.querySelector('.token').focus()")
    first = b.js("document.getElementById('tip').textContent")
    b.key("ArrowRight")
    check(b.js("document.getElementById('tip').textContent") != first, "the arrow key leads nowhere")
    equal(b.js("document.querySelectorAll('.assistant:first-of-type .token[tabindex=\"0\"]').length <= 2"), True)
    # regenerate
    b.js("document.getElementById('temperature').value = 2; document.getElementById('again').click()")
    b.until("document.getElementById('stop').disabled && document.querySelectorAll('.facts').length === 2")
    equal(len(answers(b)), 2)
    b.js("document.getElementById('clear').click()")
    equal(answers(b), [])
    equal(b.problems, [])


@test
def stop_ends_the_request_on_the_server():
    b = opened()
    b.js("document.getElementById('max_tokens').value = 4000")
    ask(b, "Write a very long story.")
    b.until("document.querySelectorAll('.token').length > 5")
    before = Server.shared().metrics()["rose_requests_cancelled_total"]
    b.js("document.getElementById('stop').click()")
    equal(Server.shared().wait_idle()["rose_requests_cancelled_total"], before + 1, "it ended by itself")
    b.until("document.getElementById('stop').disabled")
    check("stopped" in b.js("document.querySelector('.facts').textContent"))
    b.js("document.getElementById('max_tokens').value = 60")


@test
def text_never_becomes_markup():
    b = opened()
    hostile = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script><b>bold</b>"
    ask(b, hostile)
    b.until("document.querySelectorAll('.facts').length === 1")
    equal(b.js("document.querySelector('.user .said').textContent"), hostile)
    equal(b.js("document.querySelectorAll('#log img, #log script, #log b').length"), 0)
    # An answer of markup: the model is asked to go on with it through the page's own code path.
    b.js("addToken(document.querySelector('.assistant .said'), '<img src=x onerror=alert(1)>', [])")
    equal(b.js("document.querySelectorAll('#log img').length"), 0)
    equal(b.js("document.title"), "Rose")
    # The policy holds: markup that got in some other way runs nothing.
    b.js("document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,x\" onerror=\"document.title=1\">');"
         "new Promise(failed => document.body.lastElementChild.addEventListener('error', failed)).then(() => 1)")  # behind the attribute's own handler
    b.js("(() => { const s = document.createElement('script'); s.textContent = \"document.title = 'owned'\"; document.body.append(s); })()")
    equal(b.js("document.title"), "Rose")
    policy = Server.shared().get("/")[1]["content-security-policy"]
    check("default-src 'none'" in policy and "unsafe" not in policy and policy.count("sha256-") == 2, policy)


@test
def the_live_view_moves():
    b = opened()
    ended = threading.Event()

    def work():  # a model may end its answer at any time, so that the page's own alone could be over before the view asks
        while not ended.is_set():
            Server.shared().chat(max_tokens=500, ignore_eos=True)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        see_the_live_view(b)
    finally:
        ended.set()
        worker.join()


def see_the_live_view(b):
    b.js("document.getElementById('max_tokens').value = 7000")
    ask(b, "Tell me about the sea, in many words.")
    b.until("Number(document.getElementById('running').textContent) > 0")
    # The strip has the latest steps only, which may be a fraction of a second: prompts keep coming.
    until(lambda: Server.shared().chat(max_tokens=1) and b.js("document.querySelectorAll('#strip .decode').length > 3 && document.querySelectorAll('#strip .prefill').length > 0"),
          "decode and prefill in the strip")
    b.until("Number(document.getElementById('rate_out').textContent) > 0")
    b.shot("live")
    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    b.shot("dark")
    dark = b.js("getComputedStyle(document.body).backgroundColor")
    b.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    check(dark != b.js("getComputedStyle(document.body).backgroundColor"), "dark looks like light")
    b.call("Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=True)
    b.shot("narrow")
    check(b.js("document.documentElement.scrollWidth") <= 420, "the page is wider than a phone")
    b.call("Emulation.clearDeviceMetricsOverride")
    b.js("document.getElementById('stop').click()")
    b.until("document.getElementById('stop').disabled")


@test
def every_control_has_a_name():
    b = opened()
    tree = b.call("Accessibility.getFullAXTree")["nodes"]
    nameless = [n["role"]["value"] for n in tree if not n.get("ignored") and n.get("role", {}).get("value") in ("button", "textbox", "spinbutton", "combobox", "image")
                and not n.get("name", {}).get("value")]
    equal(nameless, [])


try:
    main()
finally:
    if browser:
        browser.close()
