"""A small Hugging Face hub on this machine: the model API, resolve with redirects to another host, Range, LFS and git etags, tokens.
It can misbehave in the ways that a broken or hostile one would."""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse


def git_blob(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Hub:
    """files: path -> bytes. Those that end in .safetensors or .gguf are LFS files (etag SHA-256, content on the other host)."""

    def __init__(self, repo, files, commit="c" * 40, token=None, refs=("main",)):
        self.repo, self.files, self.commit, self.token, self.refs = repo, files, commit, token, refs
        self.requests = []       # (method, path, range, had authorization)
        self.cut = {}            # path -> bytes after which the connection breaks, once
        self.change = {}         # path -> other bytes to send
        self.ranges = True       # answer 206
        self.blobs = True        # the API tells sizes and hashes
        self.listing = None      # replaces the API's siblings
        self.raw_listing = None  # replaces the API's whole body
        self.hop = None          # redirect target that replaces the content host
        self.fail = 0            # answer 503 so many times
        self.lock = threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                hub.answer(self, self.server is hub.content)

            do_HEAD = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # The other host: the same machine by its other name, so that clients see a change of host.
        self.content = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        for server in (self.server, self.content):
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.content_url = f"http://localhost:{self.content.server_address[1]}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.content.shutdown()

    def is_lfs(self, path):
        return path.endswith((".safetensors", ".gguf"))

    def etag(self, path):
        content = self.files[path]
        return hashlib.sha256(content).hexdigest() if self.is_lfs(path) else git_blob(content)

    def sibling(self, path):
        entry = {"rfilename": path}
        if self.blobs:
            entry["size"] = len(self.files[path])
            entry["blobId"] = git_blob(b"pointer" if self.is_lfs(path) else self.files[path])
            if self.is_lfs(path):
                entry["lfs"] = {"sha256": self.etag(path), "size": len(self.files[path]), "pointerSize": 130}
        return entry

    def send(self, handler, status, body=b"", headers=()):
        handler.send_response(status)
        for name, value in headers:
            handler.send_header(name, value)
        if not any(name == "Content-Length" for name, _ in headers):
            handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def answer(self, handler, is_content):
        url = urllib.parse.urlsplit(handler.path)
        path = urllib.parse.unquote(url.path)
        authorization = handler.headers.get("Authorization")
        with self.lock:
            self.requests.append((handler.command, path, handler.headers.get("Range"), authorization))
            failing = self.fail > 0
            self.fail -= failing
        if failing:
            return self.send(handler, 503, b"busy")
        if is_content:
            return self.content_file(handler, path[1:])
        if self.token and authorization != f"Bearer {self.token}":
            return self.send(handler, 401, b"who are you?")
        match = re.fullmatch(f"/api/models/{re.escape(self.repo)}/revision/(.+)", path)
        if match and match[1] in (*self.refs, self.commit):
            if self.raw_listing is not None:
                return self.send(handler, 200, self.raw_listing)
            siblings = self.listing if self.listing is not None else [self.sibling(p) for p in self.files]
            body = json.dumps({"id": self.repo, "sha": self.commit, "siblings": siblings}).encode()
            return self.send(handler, 200, body, [("Content-Type", "application/json")])
        if path == f"/api/models/{self.repo}/tree/{self.commit}":  # what Python's client lists with
            files = [{"type": "file", "path": p, "size": len(c), "oid": git_blob(c),
                      **({"lfs": {"oid": self.etag(p), "size": len(c), "pointerSize": 130}} if self.is_lfs(p) else {})} for p, c in self.files.items()]
            return self.send(handler, 200, json.dumps(files).encode(), [("Content-Type", "application/json")])
        match = re.fullmatch(f"/{re.escape(self.repo)}/resolve/([^/]+)/(.+)", path)
        if match and match[1] in (*self.refs, self.commit) and match[2] in self.files:
            return self.resolve(handler, match[2])
        return self.send(handler, 404, b"no such thing")

    def resolve(self, handler, path):
        common = [("X-Repo-Commit", self.commit)]
        if not self.is_lfs(path):
            return self.content_file(handler, path, [*common, ("ETag", f'"{self.etag(path)}"')])
        target = self.hop or f"{self.content_url}/{urllib.parse.quote(path)}"
        linked = [("X-Linked-Etag", f'"{self.etag(path)}"'), ("X-Linked-Size", str(len(self.files[path])))]
        return self.send(handler, 302, b"", [*common, *linked, ("Location", target), ("ETag", '"of the redirect"')])

    def content_file(self, handler, path, headers=()):
        if path not in self.files:
            return self.send(handler, 404)
        content = self.change.get(path, self.files[path])
        begin, status = 0, 200
        match = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
        if match and self.ranges:
            begin, status = int(match[1]), 206
            if begin >= len(content):
                return self.send(handler, 416)
        body = content[begin:]
        headers = [*headers, ("Content-Length", str(len(body)))]
        if status == 206:
            headers.append(("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}"))
        with self.lock:
            cut = self.cut.pop(path, None)
        if cut is None:
            return self.send(handler, status, body, headers)
        self.send(handler, status, body[:cut], headers)
        handler.wfile.flush()
        handler.close_connection = True
        handler.connection.close()
