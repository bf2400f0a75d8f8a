"""A small Hub on loopback: the endpoints that huggingface_hub asks to push and to download."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

OWNER = "anna"
TOKEN = "hf_of_anna"


@dataclass
class FakeHub:
    """What the server has: by repository its branches, by branch its commits, each a dict of files."""

    repositories: dict = field(default_factory=dict)
    objects: dict = field(default_factory=dict)  # large files by SHA-256
    requests: list = field(default_factory=list)  # (method, path)
    fail_on: str | None = None  # a part of a path: the connection is closed there
    commits: dict = field(default_factory=dict)  # id -> files
    messages: list = field(default_factory=list)
    private: set = field(default_factory=set)
    url: str = ""

    def commit(self, repo, branch, files):
        """Put files into a branch; the id of the commit."""
        number = hashlib.sha1(f"{repo} {branch} {len(self.commits)}".encode()).hexdigest()
        self.commits[number] = dict(files)
        self.repositories.setdefault(repo, {})[branch] = number
        return number

    def files(self, repo, revision="main"):
        branches = self.repositories[repo]
        return self.commits[branches.get(revision, revision)]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def log_message(self, *words):
        pass

    def _answer(self, status=200, content=b"", **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _missing(self, code):
        self._answer(404, {"error": code}, X_Error_Code=code, X_Error_Message=code)

    def _handle(self):
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((self.command, path))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if hub.fail_on is not None and hub.fail_on in path:
            self.close_connection = True
            return None
        writes = self.command in ("POST", "PUT") and not path.startswith("/lfs/")
        if writes and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid username or password."})
        if path == "/api/repos/create":
            return self._create(json.loads(body))
        if path == "/api/validate-yaml":
            return self._answer(content={"errors": [], "warnings": []})
        if path.startswith("/lfs/"):
            if self.command == "PUT":
                hub.objects[path.removeprefix("/lfs/")] = body
            return self._answer(content={})
        repo = "/".join(path.removeprefix("/api/models").strip("/").split("/")[:2])
        repo = repo.removesuffix(".git")
        if repo not in hub.repositories:
            return self._missing("RepoNotFound")
        what, _, rest = path.partition(repo)[2].removeprefix(".git").strip("/").partition("/")
        return getattr(self, f"_{what or 'revision'}")(repo, rest, body)

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815

    def _create(self, asked):
        repo = f"{asked.get('organization') or OWNER}/{asked['name']}"
        found = {"url": f"{self.hub.url}/{repo}", "name": repo}
        if repo in self.hub.repositories:
            return self._answer(409, {"error": "You already created this model repo", **found})
        self.hub.commit(repo, "main", {".gitattributes": b""})
        if asked.get("private") or asked.get("visibility") == "private":
            self.hub.private.add(repo)
        return self._answer(content=found)

    def _known(self, repo, revision):
        branches = self.hub.repositories[repo]
        number = branches.get(revision or "main", revision)
        if number in self.hub.commits:
            return number
        self._missing("RevisionNotFound")
        return None

    def _revision(self, repo, revision, body):
        if (number := self._known(repo, revision)) is None:
            return
        siblings = [{"rfilename": name} for name in self.hub.commits[number]]
        private = repo in self.hub.private
        about = {"id": repo, "modelId": repo, "sha": number, "private": private}
        self._answer(content={**about, "siblings": siblings, "tags": []})

    def _tree(self, repo, rest, body):
        if (number := self._known(repo, rest.partition("/")[0])) is None:
            return
        files = self.hub.commits[number].items()
        self._answer(
            content=[
                {"type": "file", "path": name, "size": len(content), "oid": _oid(content)}
                for name, content in files
            ]
        )

    def _branch(self, repo, branch, body):
        branches = self.hub.repositories[repo]
        if branch in branches:
            self._answer(409, {"error": "it exists"})
        else:
            branches[branch] = branches["main"]
            self._answer(content={})

    def _preupload(self, repo, revision, body):
        files = json.loads(body)["files"]
        modes = [
            {
                "path": file["path"],
                "uploadMode": "lfs"
                if file["path"].endswith((".safetensors", ".onnx"))
                else "regular",
                "shouldIgnore": False,
            }
            for file in files
        ]
        self._answer(content={"files": modes})

    def _info(self, repo, rest, body):
        assert rest == "lfs/objects/batch"
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}}
            for one in json.loads(body)["objects"]
        ]
        self._answer(content={"transfer": "basic", "objects": objects})

    def _commit(self, repo, branch, body):
        files = dict(self.hub.files(repo, branch))
        for line in body.splitlines():
            entry = json.loads(line)
            value = entry["value"]
            if entry["key"] == "header":
                self.hub.messages.append(value["summary"])
                if value.get("parentCommit") not in (None, self.hub.repositories[repo][branch]):
                    return self._answer(412, {"error": "A commit has happened since."})
            elif entry["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif entry["key"] == "lfsFile":
                files[value["path"]] = self.hub.objects[value["oid"]]
            elif entry["key"] == "deletedFile":
                del files[value["path"]]
        number = self.hub.commit(repo, branch, files)
        url = f"{self.hub.url}/{repo}/commit/{number}"
        return self._answer(content={"commitOid": number, "commitUrl": url, "success": True})

    def _resolve(self, repo, rest, body):
        revision, _, name = rest.partition("/")
        if (number := self._known(repo, revision)) is None:
            return
        if name not in self.hub.commits[number]:
            self._missing("EntryNotFound")
            return
        content = self.hub.commits[number][name]
        etag = f'"{_oid(content)}"'
        self._answer(content=content, ETag=etag, X_Repo_Commit=number)


def _oid(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


@contextmanager
def running_hub():
    """A Hub in a thread of its own."""
    hub = FakeHub()
    handler = type("HandlerOfHub", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
