"""A client that opens every tab, and so learns all that a page has."""

from typing import Any

import httpx


def whole(address: str, session: str) -> dict[str, Any]:
    """The page's configuration with the content of all tabs, which the session opens."""
    with httpx.Client(base_url=address, timeout=60) as http:
        config: dict[str, Any] = http.get("config").json()
        opened: set[int] = set()
        while senders := [
            handler
            for handler in config["dependencies"]
            if handler["id"] not in opened and _opens_a_tab(config, handler)
        ]:
            for handler in senders:
                opened.add(handler["id"])
                body = {"fn_index": handler["id"], "data": [], "session_hash": session}
                part = http.post("gradio_api/run/predict", json=body).json().get("render_config")
                if part is not None:
                    for kind in ("components", "dependencies"):
                        known = {each["id"]: each for each in (*config[kind], *part[kind])}
                        config[kind] = list(known.values())
    return config


def _opens_a_tab(config: dict[str, Any], handler: dict[str, Any]) -> bool:
    tabs = {part["id"] for part in config["components"] if part["type"] == "tabitem"}
    return not handler["inputs"] and any(
        component in tabs and event == "select" for component, event in handler["targets"]
    )
