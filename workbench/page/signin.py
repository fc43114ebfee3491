"""Signing in with Hugging Face: offered by a Space whose README says `hf_oauth: true`."""

import os
import time
from collections.abc import Mapping
from importlib.util import find_spec

import gradio as gr

from workbench.models.rights import Account


def offered(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this Space lets visitors sign in, and the packages for that are installed."""
    packages = ("authlib", "itsdangerous")
    return bool(environ.get("OAUTH_CLIENT_ID")) and all(map(find_spec, packages))


def account(request: gr.Request | None) -> Account | None:
    """The account with which the sender of a request is signed in, None without one."""
    scope = getattr(getattr(request, "request", None), "scope", None) or {}
    found = scope.get("session", {}).get("oauth_info")  # Gradio keeps it in a signed cookie
    if not found or (found.get("expires_at") or time.time()) < time.time():
        return None
    return Account(found["userinfo"]["preferred_username"], found["access_token"])
