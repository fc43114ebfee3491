"""The door of the page."""

import socket

import pytest

from decoders import InputError
from workbench.page.layout import build
from workbench.page.opening import serve


def test_a_port_that_is_taken_is_said(host):
    """Once it was a traceback."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"^Port {port} is taken; choose another one.$"):
            serve(host, build(host), port)
