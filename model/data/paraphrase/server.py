"""A model behind an OpenAI-compatible endpoint: one request, and what its answer means.

Only the given address is contacted: no proxy, no redirect. Nothing listens. The key comes from the
environment, goes into one header, and into nothing that is written or shown.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from threading import Timer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from model import __version__
from model.common.errors import InputError
from model.common.secrets import brief, redact
from model.common.untrusted import parse_json, shown
from model.data.paraphrase.answers import Reply, error_text, read_reply, tidy

ENDPOINT = "/chat/completions"
MOST_BYTES = 1 << 22  # of an answer
LONGEST_WAIT = 300.0  # seconds; a server may ask for hours
# What no later try will change, for any row. The rest of 4xx is about the one row.
FATAL = {
    401: "the key is missing or wrong; name its environment variable with --key-variable",
    402: "the account has no credit",
    404: "check --base-url (it mostly ends in /v1) and --model",
    405: "check --base-url (it mostly ends in /v1)",
}
PASSING = (408, 409, 425, 429)  # and 5xx


class Setback(Exception):
    """May work later; `wait` is what the server asks for, `limited` if it was asked too often."""

    def __init__(self, reason: str, wait: float | None = None, *, limited: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.limited = wait, limited


class Refusal(Exception):
    """This request will never be answered."""


@dataclass(frozen=True, kw_only=True)
class Server:
    base_url: str
    model: str
    key: str = field(default="", repr=False)
    timeout: float = 60.0  # seconds for one whole request
    temperature: float | None = None  # None: the server's own
    body: Mapping[str, Any] = field(default_factory=dict)  # further fields of a request

    def ask(self, messages: Sequence[Mapping[str, str]], seed: int | None) -> Reply:
        """Raises Setback, Refusal, Garbage, or InputError where no request can work."""
        sent: dict[str, Any] = {"model": self.model, "messages": messages}
        if self.temperature is not None:
            sent["temperature"] = self.temperature
        if seed is not None:
            sent["seed"] = seed
        status, headers, body = self._post(json.dumps({**sent, **self.body}).encode())
        if status == 200:
            return read_reply(body)
        raise self._fault(status, headers, body)

    def hide(self, text: str) -> str:
        """Without the key, whatever its variable is called."""
        return redact(text, {**os.environ, "API_KEY": self.key})

    def told(self, text: str) -> str:
        return tidy(brief(text, 200, {**os.environ, "API_KEY": self.key}))

    def _post(self, content: bytes) -> tuple[int, Mapping[str, str], bytes]:
        url = urlsplit(self.base_url)
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "User-Agent": f"stockpot/{__version__}",
            "Connection": "close",
        }
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        began = time.monotonic()
        try:
            with _connection(url, self.timeout) as connection:
                connection.request("POST", _target(url), content, headers)
                response = connection.getresponse()
                body = response.read(MOST_BYTES + 1)
                if len(body) > MOST_BYTES:
                    raise Setback(f"an answer of more than {MOST_BYTES:,} bytes")
                found = {name.lower(): value for name, value in response.getheaders()}
                return response.status, found, body
        except ssl.SSLCertVerificationError as error:
            fault = f"its certificate is not valid: {self.told(error.verify_message)}"
            raise InputError("--base-url", [fault]) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            if time.monotonic() - began >= self.timeout:
                raise Setback(f"no whole answer in {self.timeout:g} s") from None
            reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            raise Setback(f"the connection failed ({self.told(reason)})") from None

    def _fault(self, status: int, headers: Mapping[str, str], body: bytes) -> Exception:
        data = None
        with suppress(ValueError):
            data = parse_json(body)
        said = self.told(error_text(data) or body[:2000].decode("utf-8", "replace"))
        reason = f"HTTP {status}: {said}" if said else f"HTTP {status}"
        remedy = FATAL.get(status)
        if 300 <= status < 400:
            remedy = "it points elsewhere, and that is not followed; give the address it points to"
        if status == 429 and "insufficient_quota" in json.dumps(data):
            remedy = FATAL[402]
        if remedy:
            return InputError("--base-url", [f"{reason}; {remedy}"])
        if status in PASSING or status >= 500 or status < 400:
            return Setback(reason, retry_after(headers), limited=status == 429)
        return Refusal(reason)


@contextmanager
def _connection(url: SplitResult, timeout: float) -> Iterator[http.client.HTTPConnection]:
    """Connected, and cut after so many seconds: a socket's own timeout is for each read alone, and
    a server that sends a byte now and then would never meet it."""
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=timeout)
    connection.connect()
    sock = connection.sock

    def cut() -> None:
        with suppress(OSError):
            # Not TLS's own way, which another thread may be in the middle of.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = Timer(timeout, cut)
    timer.daemon = True
    timer.start()
    try:
        yield connection
    finally:
        timer.cancel()
        connection.close()
        sock.close()


def _target(url: SplitResult) -> str:
    path = url.path.rstrip("/")
    path = path if path.endswith(ENDPOINT) else path + ENDPOINT
    return f"{path}?{url.query}" if url.query else path


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks for, as a number or a date; never more than LONGEST_WAIT."""
    seconds: float | None = None
    with suppress(ValueError, TypeError, OverflowError):
        if "retry-after-ms" in headers:
            seconds = float(headers["retry-after-ms"]) / 1000
        elif re.fullmatch(r"\s*[\d.]+\s*", headers.get("retry-after", "")):
            seconds = float(headers["retry-after"])
        elif "retry-after" in headers:
            seconds = parsedate_to_datetime(headers["retry-after"]).timestamp() - time.time()
    if seconds is None or not math.isfinite(seconds):
        return None
    return min(max(seconds, 0.0), LONGEST_WAIT)


def url_faults(url: str) -> list[str]:
    """What is wrong with an address; a password in it would be kept with the rest."""
    if redact(url, {}) != url:
        return ["--base-url holds a password or a key; put it into the environment: --key-variable"]
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        return [f"--base-url is not an address: {error}"]
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        return [f"--base-url must be http://HOST/... or https://HOST/..., but is '{shown(url)}'"]
    if re.search(r"[^!-~]", url) or parts.fragment:
        return ["--base-url must be plain characters without spaces or '#'"]
    return []


def find_key(variable: str | None, url: str) -> str:
    """The key in the environment variable of that name; its value is in no message, nor its name,
    because the key itself may have been given by mistake."""
    if variable is None:
        return ""
    key = os.environ.get(variable, "").strip() if re.fullmatch(r"\w+", variable) else ""
    if not key:
        fault = "names no environment variable that holds a key; export the key under that name"
        raise InputError("--key-variable", [fault])
    if not re.fullmatch(r"[!-~]+", key):
        raise InputError("--key-variable", ["the key in it has spaces or characters beyond ASCII"])
    parts = urlsplit("" if url_faults(url) else url)
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        fault = "a key goes over http:// to this machine only; use https://, or a tunnel"
        raise InputError("--key-variable", [fault])
    return key
