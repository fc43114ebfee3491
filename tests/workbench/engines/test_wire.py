"""Connections that a server closes between two requests."""

import socket
import threading

import pytest

from decoders import InputError
from workbench.engines.addresses import Engine
from workbench.engines.client import Wire

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"


def serving(answers: list[int]) -> str:
    """The address of a server that closes each connection at the request after so many answers."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for count in answers:
            with listening.accept()[0] as connection:
                for _ in range(count):
                    connection.recv(65536)
                    connection.sendall(ANSWER)
                connection.recv(65536)
        listening.close()

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_connection_that_was_closed_meanwhile_is_made_again():
    wire = Wire(Engine("fast", serving([1, 2])))
    assert [wire.get("/v1/models") for _ in range(3)] == [{}, {}, {}]
    wire.close()


def test_a_server_that_closes_every_connection_is_asked_no_third_time():
    wire = Wire(Engine("fast", serving([1, 0])))
    assert wire.get("/v1/models") == {}
    with pytest.raises(InputError, match="Engine fast broke off the answer"):
        wire.get("/v1/models")
    wire.close()
