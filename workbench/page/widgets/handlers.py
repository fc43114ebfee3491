"""Options of handlers, which run outside the queue or on the one device."""

from typing import Any

QUIET: dict[str, Any] = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
DEVICE: dict[str, Any] = {
    "concurrency_id": "device",
    "concurrency_limit": 1,
    "api_visibility": "private",
}
