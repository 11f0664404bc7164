"""The scripted server: whole and streamed answers, misbehaviour, and counted connections."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cleveragents.models.script_document import read_script
from cleveragents.testing.scripted_server import ScriptedServer, main

SCRIPT = read_script(
    """
rules:
  - when: {user: call}
    reply: {calls: [{tool: read, arguments: {path: a}}], usage: {input: 3, output: 4, cached: 1}}
  - when: {user: hang}
    reply: {fault: {hang: true}}
  - when: {user: slow}
    reply: {text: "a b c d e f g h i j k l m n o p", piece_seconds: 60}
  - when: {user: cut}
    reply: {text: "one two three", fault: {cut_after: 1}}
  - when: {user: raw}
    reply: {fault: {raw: ["not", "json"]}}
  - when: {user: storm}
    every: 2
    reply: {fault: {status: 429, retry_after_seconds: 1.5}}
  - when: {user: unsaid}
    reply: {text: "x", usage: {unsaid: true}}
  - when: {user: limit}
    reply: {text: "x", cut_off: true}
  - when: {attached: application/pdf}
    reply: {text: "read"}
  - reply: {text: "Hello there."}
""",
    "script.yaml",
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(SCRIPT, models=("one", "two")) as started:
        yield started


def connect(server: ScriptedServer) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)


def post(connection: http.client.HTTPConnection, said: object, **more: object) -> http.client.HTTPResponse:
    body = {"model": "one", "messages": [{"role": "user", "content": said}], **more}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection.getresponse()


def whole(server: ScriptedServer, said: object, **more: object) -> dict[str, Any]:
    connection = connect(server)
    try:
        return dict(json.loads(post(connection, said, **more).read()))
    finally:
        connection.close()


def test_a_rule_matches_an_attached_file(server: ScriptedServer) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    file = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,AA=="}}
    text = {"type": "text", "text": "hi"}
    for parts, answer in (([image, file, text], "read"), ([image, text], "Hello there.")):
        assert whole(server, parts)["choices"][0]["message"]["content"] == answer


def test_an_answer_can_be_requested_as_a_whole(server: ScriptedServer) -> None:
    answer = whole(server, "hi")
    (choice,) = answer["choices"]
    assert choice["message"] == {"role": "assistant", "content": "Hello there."}
    assert choice["finish_reason"] == "stop"
    assert answer["model"] == "one"
    assert answer["usage"]["completion_tokens"] == 3


def test_parts_of_a_message_are_read_together(server: ScriptedServer) -> None:
    answer = whole(server, [{"type": "text", "text": "ca"}, {"type": "text", "text": "ll"}])
    assert answer["choices"][0]["finish_reason"] == "tool_calls"


def test_calls_and_usage_are_in_the_answer(server: ScriptedServer) -> None:
    answer = whole(server, "call")
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "read", "arguments": '{"path": "a"}'}
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 1}
    assert "usage" not in whole(server, "unsaid")
    assert whole(server, "limit")["choices"][0]["finish_reason"] == "length"


def test_an_answer_can_be_requested_as_events(server: ScriptedServer) -> None:
    connection = connect(server)
    lines = post(connection, "call", stream=True).read().decode().split("\n\n")
    connection.close()
    assert lines[-2] == "data: [DONE]"
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
    pieces = [event["choices"][0]["delta"]["tool_calls"][0] for event in events[:-2]]
    assert pieces[0]["function"]["name"] == "read"
    assert "".join(piece["function"]["arguments"] for piece in pieces) == '{"path": "a"}'
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert events[-1]["usage"]["total_tokens"] == 7


def test_one_connection_serves_several_requests(server: ScriptedServer) -> None:
    connection = connect(server)
    for _ in range(3):
        assert post(connection, "hi").read()
    connection.close()
    statistics = server.wait_until(lambda seen: seen.open == 0)
    assert (statistics.opened, statistics.requests, statistics.answered) == (1, 3, 3)
    assert len(server.bodies()) == 3


def test_models_are_listed(server: ScriptedServer) -> None:
    connection = connect(server)
    connection.request("GET", "/v1/models")
    listed = json.loads(connection.getresponse().read())
    connection.close()
    assert [model["id"] for model in listed["data"]] == ["one", "two"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/v1/chat/completions", "", 404),
        ("POST", "/elsewhere", "{}", 404),
        ("POST", "/v1/chat/completions", "no json", 400),
        ("POST", "/v1/chat/completions", "[]", 400),
        ("POST", "/v1/chat/completions", '{"messages": 3}', 400),
    ],
)
def test_an_invalid_request_is_refused(
    server: ScriptedServer, method: str, path: str, body: str, status: int
) -> None:
    connection = connect(server)
    connection.request(method, path, body)
    response = connection.getresponse()
    assert response.status == status
    assert json.loads(response.read())["error"]["message"]
    connection.close()


def test_a_request_that_no_rule_fits_is_refused() -> None:
    with ScriptedServer(read_script("rules: []", "s")) as server:
        assert "no rule of the script matches" in whole(server, "hi")["error"]["message"]
        assert "no rule" in whole(server, "hi", messages=[])["error"]["message"]


def test_a_server_can_require_a_key() -> None:
    with ScriptedServer(SCRIPT, key="right") as server:
        assert whole(server, "hi")["error"]["code"] == "invalid_api_key"


NOT_HTTP = [b"nonsense\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc", b"G"]


@pytest.mark.parametrize("raw", NOT_HTTP)
def test_a_request_that_is_not_http_is_cut_off(server: ScriptedServer, raw: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(raw)
        client.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            assert client.recv(100) == b""
    assert server.wait_until(lambda seen: seen.closed == 1).requests == 0


@pytest.mark.parametrize("streams", [True, False])
def test_a_cut_connection_is_not_a_complete_answer(server: ScriptedServer, streams: bool) -> None:
    connection = connect(server)
    with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        post(connection, "cut", stream=streams).read()
    connection.close()


def test_a_raw_script_is_sent_verbatim(server: ScriptedServer) -> None:
    connection = connect(server)
    assert post(connection, "raw").read() == b"not\njson"
    assert post(connection, "raw", stream=True).read() == b"data: not\n\ndata: json\n\n"
    connection.close()


def test_a_rate_limit_says_when_to_retry(server: ScriptedServer) -> None:
    connection = connect(server)
    seen = []
    for _ in range(4):
        response = post(connection, "storm")
        response.read()
        seen.append((response.status, response.headers["Retry-After"]))
    connection.close()
    assert seen == [(429, "1.5"), (200, None)] * 2


@pytest.mark.parametrize("said", ["hang", "slow"])
def test_a_disconnected_client_is_noticed_at_once(server: ScriptedServer, said: str) -> None:
    connection = connect(server)
    body = {"model": "one", "messages": [{"role": "user", "content": said}], "stream": True}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    server.wait_until(lambda seen: seen.requests == 1)
    assert server.statistics().open == 1
    connection.close()
    statistics = server.wait_until(lambda seen: seen.open == 0)
    assert (statistics.abandoned, statistics.answered) == (1, 0)


def test_closing_ends_what_is_being_answered() -> None:
    server = ScriptedServer(SCRIPT)
    server.start()
    connection = connect(server)
    body = {"messages": [{"role": "user", "content": "hang"}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    server.wait_until(lambda seen: seen.requests == 1)
    server.close()
    assert server.statistics().open == 0
    connection.close()
    server.close()


def test_a_condition_that_never_holds_is_reported(server: ScriptedServer) -> None:
    with pytest.raises(TimeoutError, match="opened=0"):
        server.wait_until(lambda seen: seen.opened == 1, timeout_seconds=0)


def test_a_port_in_use_is_reported(server: ScriptedServer) -> None:
    with pytest.raises(OSError):
        ScriptedServer(SCRIPT, port=server.port).start()


def test_many_connections_wait_at_once(server: ScriptedServer) -> None:
    connections = [connect(server) for _ in range(32)]
    body = json.dumps({"messages": [{"role": "user", "content": "hang"}]})
    for connection in connections:
        connection.request("POST", "/v1/chat/completions", body)
    statistics = server.wait_until(lambda seen: seen.requests == 32)
    assert (statistics.open, statistics.answered) == (32, 0)
    assert whole(server, "hi")["choices"]
    for connection in connections:
        connection.close()
    assert server.wait_until(lambda seen: seen.open == 0).abandoned == 32


def test_a_latency_delays_every_answer() -> None:
    with ScriptedServer(SCRIPT, latency_seconds=0.01) as server:
        assert whole(server, "hi")["choices"]


def test_the_server_runs_as_a_program(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules: [{reply: {text: from a program}}]")
    command = [sys.executable, "-m", "cleveragents.testing.scripted_server", str(script), "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        url = program.stdout.readline().strip()
        port = int(url.removesuffix("/v1").rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        answer = json.loads(post(connection, "hi").read())
        connection.close()
        program.communicate(timeout=60)
    assert answer["choices"][0]["message"]["content"] == "from a program"
    assert program.returncode == 0


def test_a_program_serves_until_its_input_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("rules: []")
    with (tmp_path / "empty").open("w+") as empty:
        monkeypatch.setattr(sys, "stdin", empty)
        assert main([str(script)]) == 0
    assert capsys.readouterr().out.startswith("http://127.0.0.1:")


@pytest.mark.parametrize("content", [None, "rules: 7"])
def test_a_program_without_a_script_says_so_in_a_line(
    tmp_path: Path, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script.yaml"
    if content is not None:
        script.write_text(content)
    with pytest.raises(SystemExit) as caught:
        main([str(script)])
    assert caught.value.code == 2
    assert "script.yaml" in capsys.readouterr().err
