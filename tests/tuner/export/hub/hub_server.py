"""A Hugging Face Hub on this machine, as far as a client that uploads needs one."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import yaml

TOKEN = "hf_madeuptoken1234567890"


@dataclass
class Repo:
    private: bool
    files: dict[str, bytes] = field(default_factory=dict)
    commits: list[str] = field(default_factory=list)


@dataclass
class Hub:
    address: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)  # by sha256, as LFS has them
    requests: list[str] = field(default_factory=list)
    sent: int = 0  # large files


@contextmanager
def hub_server() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            hub.requests.append(f"{self.command} {self.path}")
            # What is stored elsewhere has an address that is secret by itself.
            allowed = self.headers.get("Authorization") == f"Bearer {TOKEN}"
            if not allowed and not self.path.startswith(("/lfs/", "/api/validate-yaml")):
                return self.answer(401, {"error": "Invalid username or password."})
            status, found = reply(hub, self.command, self.path.split("?")[0], body)
            self.answer(status, found)

        def answer(self, status: int, found: Any) -> None:
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = handle_any

        def log_message(self, *said: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.address = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reply(hub: Hub, method: str, path: str, body: bytes) -> tuple[int, Any]:
    if path == "/api/repos/create":
        asked = json.loads(body)
        name = f"{asked['organization'] or 'me'}/{asked['name']}"
        if name in hub.repos:
            return 409, {"error": "You already created this model repo", "url": name}
        private = asked.get("private") or asked.get("visibility") == "private"
        hub.repos[name] = Repo(bool(private))
        return 200, {"url": f"{hub.address}/{name}", "name": name}
    if path == "/api/validate-yaml":
        return validate(json.loads(body)["content"])
    if path.startswith("/lfs/"):
        digest = path.removeprefix("/lfs/")
        if hashlib.sha256(body).hexdigest() != digest:
            return 400, {"error": "the content does not fit"}
        hub.large[digest] = body
        hub.sent += 1
        return 200, {}
    if found := re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
        return 200, {"transfer": "basic", "objects": batch(hub, json.loads(body))}
    if found := re.fullmatch(
        r"/api/models/([^/]+/[^/]+)(/preupload/main|/commit/main|/tree/main)?", path
    ):
        if (repo := hub.repos.get(found[1])) is None:
            return 404, {"error": "Repository not found"}
        if found[2] == "/preupload/main":
            return 200, {"files": [mode(each) for each in json.loads(body)["files"]]}
        if found[2] == "/commit/main":
            return commit(hub, found[1], repo, body)
        if found[2] == "/tree/main":
            return 200, [tree_entry(*file) for file in repo.files.items()]
        if method == "GET":
            info = {"id": found[1], "private": repo.private, "tags": [], "siblings": []}
            return 200, {**info, "sha": "0" * 40}
    return 404, {"error": f"no such place: {method} {path}"}


def tree_entry(name: str, content: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(content).hexdigest()
    return {"type": "file", "path": name, "size": len(content), "oid": oid}


def mode(file: dict[str, Any]) -> dict[str, Any]:
    large = file["path"].endswith(".safetensors")
    named = {"path": file["path"], "shouldIgnore": False}
    return {**named, "uploadMode": "lfs" if large else "regular"}


def batch(hub: Hub, asked: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for each in asked["objects"]:
        actions = {"upload": {"href": f"{hub.address}/lfs/{each['oid']}", "header": {}}}
        known = {} if each["oid"] in hub.large else {"actions": actions}
        found.append({"oid": each["oid"], "size": each["size"], **known})
    return found


def commit(hub: Hub, name: str, repo: Repo, body: bytes) -> tuple[int, Any]:
    for line in body.splitlines():
        part = json.loads(line)
        value = part["value"]
        if part["key"] == "header":
            repo.commits.append(value["summary"])
        elif part["key"] == "file":
            repo.files[value["path"]] = base64.b64decode(value["content"])
        elif part["key"] == "lfsFile":
            repo.files[value["path"]] = hub.large[value["oid"]]
        elif part["key"] == "deletedFile":
            del repo.files[value["path"]]
    oid = f"{len(repo.commits):040d}"
    return 200, {
        "commitUrl": f"{hub.address}/{name}/commit/{oid}",
        "commitOid": oid,
        "success": True,
    }


def validate(card: str) -> tuple[int, Any]:
    """What the Hub asks of a card's head, in short."""
    head = yaml.safe_load(card.split("---")[1])
    faults = []
    for model in head.get("model-index", []):
        for result in model["results"]:
            if {"task", "dataset", "metrics"} - result.keys():
                faults.append({"message": "model-index lacks something"})
            if {"type", "name"} - result["dataset"].keys():
                faults.append({"message": "model-index has a dataset without a name"})
    return (400 if faults else 200), {"errors": faults, "warnings": []}
