"""The scripts and styles of a page reach no network, and no text breaks out of them."""

import json
import re

from workbench.show import web
from workbench.show.web import TERMS, explained


def test_json_cannot_leave_its_script():
    text = web.embed({"text": "</script><!-- \u2028"})
    assert "<" not in text
    assert json.loads(text) == {"text": "</script><!-- \u2028"}


def test_nothing_is_loaded_from_elsewhere():
    addresses = set(re.findall(r"https?://[^\s\"')]+", web.head()))
    # the name of a namespace; nothing is fetched
    assert addresses <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in web.head()


def test_a_term_is_marked_where_it_stands_first_and_the_text_stays():
    shown = explained("2 beams, 3 passes & a beam <b>")
    assert shown.count("wb-term") == 2
    assert f'data-help="{TERMS["beam"]}">beams</button>' in shown
    assert shown.endswith(" a beam &lt;b&gt;")
