"""Reports of a test process, in text that can be sent to the one that started it.

Half a character cannot be sent, and would end them both."""

from typing import Any

import pytest


def sendable(value: Any) -> Any:
    """The same value with each lone surrogate in its strings written as its escape."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {sendable(key): sendable(item) for key, item in value.items()}
        case list() | tuple():
            return type(value)(map(sendable, value))
    return value


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable(report: pytest.CollectReport | pytest.TestReport):
    return sendable((yield))
