"""A server on loopback that behaves like a language model's API, on its good days and its bad."""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Condition, Event, Thread
from typing import Any

SYLLABLES = "ba ce di fo gu ha ke li mo nu pa re si to va we xi yo zu".split()

ModelAnswer = Callable[[str, int], list[str]]  # the sentence and how many -> its paraphrases
Behaviour = Callable[[str, int], str]  # the sentence and which try, from 1 -> what happens


def words(seed: str, count: int = 7) -> str:
    """A made-up sentence, the same for the same seed and unlike any other."""
    rng = random.Random(seed)
    return " ".join("".join(rng.choices(SYLLABLES, k=3)) for _ in range(count))


def other_words(sentence: str, count: int) -> list[str]:
    return [words(f"{sentence} {number}") for number in range(count)]


class Api:
    def __init__(self, answer: ModelAnswer = other_words) -> None:
        self.answer = answer
        self.behaviour: Behaviour = lambda sentence, attempt: "good"
        self.asked: list[str] = []  # the sentence of every request
        self.times: list[float] = []
        self.keys: set[str | None] = set()
        self.bodies: list[dict[str, Any]] = []
        self.paths: set[str] = set()
        self.tries: Counter[str] = Counter()
        self.answered = 0  # well
        self.changed = Condition()
        self.over = Event()
        self.url = ""

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, timeout=120)


class Handler(BaseHTTPRequestHandler):
    api: Api
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_POST(self) -> None:
        api = self.api
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        prompt = body["messages"][-1]["content"]
        sentence = re.findall(r"Sentence: (.*)", prompt)[-1]
        count = int((re.findall(r"JSON list of (\d+)", prompt) or [1])[-1])
        with api.changed:
            api.asked.append(sentence)
            api.times.append(time.monotonic())
            api.keys.add(self.headers["Authorization"])
            api.bodies.append(body)
            api.paths.add(self.path)
            api.tries[sentence] += 1
            attempt = api.tries[sentence]
            api.changed.notify_all()
        getattr(self, api.behaviour(sentence, attempt))(sentence, count)

    def good(self, sentence: str, count: int) -> None:
        text = "Here you are:\n```json\n" + json.dumps(self.api.answer(sentence, count)) + "\n```"
        self._send(200, self._completion(text))
        with self.api.changed:
            self.api.answered += 1
            self.api.changed.notify_all()

    def limit(self, *_: Any) -> None:
        self._send(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})

    def limit_a_second(self, *_: Any) -> None:
        self._send(429, {"error": {"message": "slow down"}}, {"Retry-After": "1"})

    def broken(self, *_: Any) -> None:
        # It says back what it was sent, the key too.
        self._send(500, {"error": {"message": f"upstream: {self.headers['Authorization']}"}})

    def slow(self, *_: Any) -> None:
        self.api.over.wait()
        self.close_connection = True

    def drip(self, *_: Any) -> None:
        """A byte now and then, for ever: no single read takes long."""
        self.send_response(200)
        self.end_headers()
        try:
            while not self.api.over.wait(0.02):
                self.wfile.write(b" ")
                self.wfile.flush()
        except OSError:
            pass
        self.close_connection = True

    def cut(self, *_: Any) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b'{"choices": [{"mess')
        self.wfile.flush()
        self.close_connection = True

    def garbage(self, *_: Any) -> None:
        self._send(200, self._completion(f"No. {self.headers['Authorization']}"))

    def no_json(self, *_: Any) -> None:
        self._send(200, b"<html>gateway</html>")

    def refused(self, *_: Any) -> None:
        self._send(400, {"error": {"message": "content policy"}})

    def unknown_key(self, *_: Any) -> None:
        self._send(401, {"error": {"message": f"wrong key: {self.headers['Authorization']}"}})

    def elsewhere(self, *_: Any) -> None:
        self._send(307, {}, {"Location": self.api.url + "/elsewhere"})

    def _completion(self, text: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        usage = {"prompt_tokens": 100, "completion_tokens": 50}
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    def _send(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            self.send_response(status)
            for name, value in {**(headers or {}), "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:  # whoever asked has been killed
            self.close_connection = True


class Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: Any) -> None: ...  # connections of killed processes


@contextmanager
def serving(answer: ModelAnswer = other_words) -> Iterator[Api]:
    api = Api(answer)
    server = Quiet(("127.0.0.1", 0), type("Bound", (Handler,), {"api": api}))
    api.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = Thread(target=server.serve_forever, args=[0.05], daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
