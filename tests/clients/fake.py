"""A client of a few lines for the tests of `run`: it does what its words say, one after another.

Takes its base URL as Claude Code does: `--settings` beats the environment. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def main(words: list[str]) -> None:
    environ = dict(os.environ)
    if words[:1] == ["--settings"]:
        given = words[1]
        text = given if given.startswith("{") else Path(given).read_text()
        environ |= json.loads(text)["env"]
        say("settings", given)
        words = words[2:]
    while words:
        word, *words = words
        match word:
            case "call":
                count, *words = words
                say("answers", [call(environ, turns) for turns in range(int(count))])
            case "env":
                name, *words = words
                say(name, environ.get(name))
            case "say":
                text, *words = words
                say(text)
            case "hear":
                name, *words = words
                signal.signal(signal.Signals[name], lambda number, _: say("heard", number))
            case "line":
                say("line", sys.stdin.readline().strip())
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "die":
                name, *words = words
                os.kill(os.getpid(), signal.Signals[name])
            case "sleep":
                time.sleep(600)
            case "exit":
                sys.exit(int(words[0]))
            case _:
                say("word", word)


def say(*things: object) -> None:
    # In one piece and without print's lock: a signal handler may interrupt another say.
    os.write(1, (" ".join(map(str, things)) + "\n").encode())


def call(environ: dict[str, str], turns: int) -> int:
    """Send one request; tries again while nobody listens, as real clients do."""
    headers = {
        "content-type": "application/json",
        "x-api-key": environ.get("ANTHROPIC_API_KEY", ""),
    }
    for line in environ.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines():
        name, _, value = line.partition(":")
        headers[name.strip()] = value.strip()
    url = environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    for _ in range(100):
        request = urllib.request.Request(url, body(turns), headers)
        try:
            with OPENER.open(request, timeout=30) as answer:
                answer.read()
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            time.sleep(0.1)
    return 0


def body(turns: int) -> bytes:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read everything."}]
    for number in range(turns):
        use = {"type": "tool_use", "id": f"toolu_{number}", "name": "Read", "input": {"n": number}}
        text = f"{number} says little. " * 150
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": text}
        messages += [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]
    tools = [{"name": "Read", "input_schema": {"type": "object"}}]
    request = {"model": "claude-opus-5-5", "max_tokens": 99, "tools": tools, "messages": messages}
    return json.dumps(request).encode()


if __name__ == "__main__":
    main(sys.argv[1:])
