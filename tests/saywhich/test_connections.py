"""Connections of clients that send nothing, or only half of the headers, are closed, and other clients are served."""

import asyncio
import http.client
import socket
import threading
import time
from contextlib import contextmanager

import pytest
import uvicorn

from saywhich.connections import LimitedConnection

HALF = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-a: "


async def answer_request(scope, receive, send):
    if scope["path"] == "/slow":
        await asyncio.sleep(1.2)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def run_server(**limits):
    protocol = type("ConnectionWithLimits", (LimitedConnection,), limits)
    server_socket = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(answer_request, http=protocol, ws="none", lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [server_socket]})
    thread.start()
    try:
        yield server_socket.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(30)


def open_connection(port: int, data: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port), timeout=30)
    client.sendall(data)
    return client


def read_answer(client: socket.socket) -> None:
    found = b""
    while not found.endswith(b"ok"):
        found += client.recv(1000)


def is_closed(client: socket.socket, seconds: float = 30) -> bool:
    client.settimeout(seconds)
    try:
        return client.recv(1000) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def get(port: int, path: str = "/") -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    answer = connection.getresponse().read()
    connection.close()
    return answer


@pytest.mark.parametrize("data", [b"", b"G", HALF])
def test_a_connection_without_whole_headers_is_closed(data):
    with run_server(header_timeout=0.3) as port, open_connection(port, data) as client:
        assert is_closed(client)


def test_bytes_that_come_slowly_do_not_prolong_the_wait():
    with run_server(header_timeout=0.5) as port, open_connection(port, HALF) as client, pytest.raises(ConnectionError):
        send_slowly(client)


def send_slowly(client: socket.socket) -> None:
    for _ in range(600):
        client.sendall(b"x")
        time.sleep(0.05)


def test_a_connection_with_half_of_a_second_request_is_closed():
    with run_server(header_timeout=0.5) as port, open_connection(port, HALF + b"1\r\n\r\n" + HALF) as client:
        read_answer(client)
        assert is_closed(client)


def test_a_connection_whose_request_is_answered_slowly_stays_open():
    with run_server(header_timeout=0.4) as port:
        assert get(port, "/slow") == b"ok"


@pytest.mark.parametrize("data", [b"", HALF, HALF + b"1\r\n\r\n"], ids=["silent", "half", "idle"])
def test_a_new_client_is_answered_where_all_connections_wait(data):
    """In the case `idle`, each client has received an answer and sends no second request."""
    with run_server(header_timeout=30, max_connections=5) as port:
        clients = []
        for _ in range(12):
            clients.append(open_connection(port, data))
            if data.endswith(b"\r\n\r\n"):
                read_answer(clients[-1])
        assert get(port) == b"ok"
        closed = [is_closed(client, 0.5) for client in clients]
        assert closed[:7] == [True] * 7, "expected the connections that waited longest to be closed"
        assert sum(closed) == 8, "expected one more connection to be closed for the new client"
        for client in clients:
            client.close()
