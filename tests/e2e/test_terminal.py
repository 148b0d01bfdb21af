"""rose on a terminal (a pty): line editing and history of rose chat, Ctrl-C, the offer to fetch, colours."""
import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import e2e
from e2e import ROSE, case, directory, environment, equal, main
from hub import Hub

MODEL = e2e.model()


class Terminal:
    def __init__(self, *words, env=None):
        self.master, slave = pty.openpty()
        changes = {"TERM": "xterm", "HF_HUB_CACHE": None, "HF_TOKEN": None, "NO_COLOR": None, **(env or {})}
        self.process = subprocess.Popen([ROSE, *words], stdin=slave, stdout=slave, stderr=slave, env=environment(changes), start_new_session=True,
                                        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(slave)
        self.seen = ""
        self.mark = 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.master)

    def type(self, text):
        os.write(self.master, text.encode())

    def expect(self, pattern, seconds=120):
        """The match behind the last one; what was printed is in the error otherwise."""
        end = time.monotonic() + seconds
        while True:
            match = re.compile(pattern).search(self.seen, self.mark)
            if match:
                self.mark = match.end()
                return match
            ready, _, _ = select.select([self.master], [], [], max(0, end - time.monotonic()))
            try:
                piece = os.read(self.master, 65536) if ready else b""
            except OSError:
                piece = b""
            assert piece, f"{pattern!r} did not come; {self.seen!r}"
            self.seen += piece.decode(errors="replace")

    def prompt(self):
        """The prompt, and the line editor reading: it shows the prompt before it takes the terminal out of its own line mode, where a key
        means something else."""
        self.expect("> ")
        end = time.monotonic() + 120
        while termios.tcgetattr(self.master)[3] & termios.ICANON:
            assert time.monotonic() < end, "the line editor does not read"
            time.sleep(0.01)

    def end(self, status):
        equal(self.process.wait(timeout=120), status)


@case
def a_prompt_typed_at_the_terminal():
    with Terminal("run", MODEL, "-n", "3") as t:
        t.expect("Ctrl-D")
        t.type("Hi\n\x04")  # once
        t.end(0)


@case
def a_conversation():
    with directory() as d, Terminal("chat", MODEL, "-n", "12", env={"XDG_CACHE_HOME": d}) as t:
        t.expect("/help lists commands")
        t.prompt()
        t.type("/hell\x7fp\n")  # a typing error, rubbed out
        t.expect("begin anew")
        t.prompt()
        t.type("What is gravity?\n")
        t.expect(r"cut off\]")
        t.prompt()
        t.type("\x1b[A\x1b[A\n")  # two lines up: /help
        t.expect("begin anew")
        t.prompt()
        t.type("half a line\x03")  # Ctrl-C forgets it
        t.prompt()
        t.type("/exit\n")
        t.end(0)
        history = os.path.join(d, "rose", "history")
        equal(os.stat(history).st_mode & 0o77, 0)
        assert "gravity" in open(history).read()
        # The next conversation begins with it.
        with Terminal("chat", MODEL, "-n", "12", env={"XDG_CACHE_HOME": d}) as again:
            again.prompt()
            again.type("\x10\x10\x10\n")  # Ctrl-P past /exit and /help: the question
            again.expect(r"cut off\]")
            again.prompt()
            again.type("\x04")
            again.end(0)


@case
def control_c_stops_the_answer_only():
    with directory() as d, Terminal("chat", MODEL, "--ignore-eos", env={"XDG_CACHE_HOME": d}) as t:
        t.prompt()
        t.type("Write a very long story.\n")
        t.expect(r"story\.\r\n.{20}")
        t.type("\x03")
        t.expect(r"\[stopped\]")
        t.prompt()
        t.type("/exit\n")
        t.end(0)
    with Terminal("run", MODEL, "Write a very long story.", "--ignore-eos") as t:
        t.expect(".{20}")
        t.type("\x03")
        t.end(-signal.SIGINT)


@case
def a_missing_model_is_offered():
    files = {"config.json": b"{}", "model.safetensors": b"\2\0\0\0\0\0\0\0{}"}
    with Hub("acme/tiny-model", files) as hub, directory() as d:
        env = {"HF_HOME": d, "HF_ENDPOINT": hub.url, "no_proxy": "127.0.0.1,localhost"}
        with Terminal("run", "acme/tiny-model", "hi", env=env) as t:
            t.expect(r"Fetch it now\? \[Y/n\] ")
            t.type("n\n")
            t.expect("rose pull acme/tiny-model")
            t.end(1)
        equal(hub.requests, [])
        with Terminal("run", "acme/tiny-model", "hi", env=env) as t:
            t.expect(r"Fetch it now\? \[Y/n\] ")
            t.type("\n")
            t.expect("100%")
            t.expect("rose: .*snapshots")  # it is there now, and no model
            t.end(1)


@case
def colours_on_a_terminal_only():
    with Terminal("kernels", "layout", "(4,8):(8,1)", "--draw") as t:
        t.expect("\x1b\\[")
        t.end(0)
    with Terminal("kernels", "layout", "(4,8):(8,1)", "--draw", env={"NO_COLOR": "1"}) as t:
        t.expect("31")
        assert "\x1b" not in t.seen, t.seen
        t.end(0)


main()
