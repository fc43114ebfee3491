"""The scripts and styles of a page reach no network, and no text breaks out of them."""

import json
import re

from decoders import Fate
from workbench.show import web


def test_json_cannot_leave_its_script():
    text = web.embed({"text": "</script><!-- \u2028"})
    assert "<" not in text
    assert json.loads(text) == {"text": "</script><!-- \u2028"}


def test_every_fate_has_its_look():
    for fate in Fate:
        assert f".wb .{fate} " in web.head()


def test_nothing_is_loaded_from_elsewhere():
    addresses = set(re.findall(r"https?://[^\s\"')]+", web.head()))
    # the name of a namespace; nothing is fetched
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in web.head()
