"""A chat endpoint on loopback that misbehaves as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class FakeEndpoint:
    """Serves ``/v1/chat/completions``; a context manager.

    Parameters
    ----------
    answer : prompt -> text; None answers with the name of the model that is asked for
    script : what to do with the first requests, one after the other: "hang", "cut", "html", "no usage",
        "close", "list", ("status", code, headers, message), ("body", object); the others are answered
    usage : (tokens in, tokens out) that every answer reports
    delay : seconds that every answer takes
    most_answers : so many requests are answered; those behind them wait for ``answer_all``
    """

    def __init__(
        self,
        answer=lambda prompt: "42",
        script=(),
        usage=(10, 2),
        delay=0.0,
        most_answers=math.inf,
    ):
        self.answer = answer
        self.script = list(script)
        self.usage = usage
        self.delay = delay
        self.most_answers = most_answers
        self.requests = []
        self.answered = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.lock = threading.Lock()
        self.released = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    @property
    def prompts(self):
        """The last message of every request."""
        return [request["body"]["messages"][-1]["content"] for request in self.requests]

    def answer_all(self):
        """Answer also those that wait because there were too many."""
        self.most_answers = math.inf

    def asked(self):
        """How often each prompt was asked."""
        return Counter(self.prompts)

    def _handler(self):
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body in one packet: two would wait for each other.
            wbufsize = 1 << 16

            def log_message(self, *_):
                pass

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with endpoint.lock:
                    endpoint.requests.append(
                        {
                            "time": time.monotonic(),
                            "path": self.path,
                            "headers": dict(self.headers),
                            "body": body,
                        }
                    )
                    number = len(endpoint.requests)
                    step = endpoint.script.pop(0) if endpoint.script else "answer"
                    endpoint.in_flight += 1
                    endpoint.most_in_flight = max(endpoint.most_in_flight, endpoint.in_flight)
                try:
                    self.misbehave(step, body, number)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                finally:
                    with endpoint.lock:
                        endpoint.in_flight -= 1

            def misbehave(self, step, body, number):
                if endpoint.delay:
                    time.sleep(endpoint.delay)
                while number > endpoint.most_answers and not endpoint.released.is_set():
                    time.sleep(0.01)
                if step == "hang":
                    endpoint.released.wait(600)
                    self.close_connection = True
                elif step == "close":
                    self.close_connection = True
                elif step == "html":
                    self.reply(200, b"<html>busy</html>")
                elif step == "list":
                    self.reply(200, b"[]")
                elif isinstance(step, tuple) and step[0] == "status":
                    _, code, headers, message = step
                    content = json.dumps({"error": {"message": message}}).encode()
                    self.reply(code, content, headers)
                elif isinstance(step, tuple):
                    self.reply(200, json.dumps(step[1]).encode())
                else:
                    content = endpoint.completion(body, step != "no usage")
                    self.reply(200, content, cut=step == "cut")
                    endpoint.answered += step != "cut"

            def reply(self, code, content, headers=None, cut=False):
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if cut else content)
                if cut:
                    self.close_connection = True

        return Handler

    def completion(self, body, usage):
        """A chat completion as JSON."""
        text = body["model"]
        if self.answer is not None:
            text = self.answer(body["messages"][-1]["content"])
        content = {
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "finish_reason": "stop",
                }
            ]
        }
        if usage:
            content["usage"] = {"prompt_tokens": self.usage[0], "completion_tokens": self.usage[1]}
        return json.dumps(content).encode()
