"""One more setting of sampling, as docs/contributing.md says: three files, and it is everywhere."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# `within` keeps logits that are at most so far below the highest one. File, place, what follows.
EDITS = (
    (
        "decoders/distribution.py",
        'llama.cpp does", choices=(True, False)\n    )\n',
        '    within: float = setting(0.0, "nats below the highest logit", low=0.0, high=100.0)\n',
    ),
    ("decoders/distribution.py", "self.top_n_sigma or self.temperature_last", " or self.within"),
    ("decoders/distribution.py", "self.top_p < 1 or self.min_p", " or self.within"),
    (
        "decoders/distribution.py",
        ".tiny, warping.temperature_last\n",
        "    if warping.within:\n"
        "        below = logits.amax(-1, keepdim=True) - logits\n"
        "        logits = logits.masked_fill(below > warping.within, -math.inf)\n",
    ),
    ("decoders/distribution.py", "    if warping.top_n_sigma or", " warping.within or"),
    (
        "decoders/testing/situations.py",
        ".std() if n else -math.inf\n",
        "    if warping.within:\n        lowest = max(lowest, row[order[0]] - warping.within)\n",
    ),
    (
        "workbench/studies/settings.py",
        'of_warping("temperature_last", choices=(False, True))\n',
        '    within: float = of_warping("within")\n',
    ),
)
SHOWS = """
import contextlib, io
from decoders import Warping, catalog, generate
from decoders.testing import assert_law, drawn
from tests.models import build_pair
from workbench.__main__ import main
from workbench.engines.dialects import DIALECTS
from workbench.engines.dialects import Query
from workbench.experiments import plan
from workbench.kinds import registry
from workbench.studies.settings import Settings, in_words

situations = [drawn(3, seed, warping=Warping(within=0.7)) for seed in range(3)]
assert_law(catalog["speculative"](draft_length=2), situations=situations)
assert len(generate(build_pair(), [1, 2], "multinomial", max_new_tokens=3, within=0.5).tokens) == 3
assert Settings.from_json({"decoders": ["greedy"], "within": 0.5}).sampling["within"] == 0.5
assert registry.from_query({"prompt": "x", "within": "0.5"}).data["settings"] == {"within": 0.5}
with contextlib.redirect_stdout(io.StringIO()) as help, contextlib.suppress(SystemExit):
    main(["compare", "--help"])
assert "--within" in help.getvalue()
assert in_words({"temperature": 1, "within": 0.5}) == "temperature 1, within 0.5"
assert all(each.unsaid(Query("x", 1, Warping(within=0.5))) for each in DIALECTS.values())
(part,) = plan.parse('[[part]]\\ndecoders = ["greedy"]\\nwithin = [0.5]\\n', "a.toml").parts
(sampled,) = zip(*part.sampled)
assert plan.settings(part, part.methods[0], *sampled).within == 0.5
"""


@pytest.mark.slow
def test_three_files_make_it_a_keyword_a_flag_and_a_parameter_of_links(tmp_path):
    for name in ("decoders", "workbench"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("assets", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name, before, more in EDITS:
        file = tmp_path / name
        text = file.read_text("utf-8")
        assert text.count(before) == 1, before
        file.write_text(text.replace(before, before + more), "utf-8")
    done = subprocess.run(
        [sys.executable, "-c", SHOWS], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
