"""Tuning keeps the quickest of each decoder's settings, and of DSBD's only those as likely."""

import dataclasses
import json

import pytest
import torch

from decoders import catalog
from tests.workbench.conftest import byte_tokenizer, pair  # noqa: F401 - fixtures
from tools import tune

SECONDS = {2: 3.0, 3: 1.0, 4: 2.0}  # of a draft length


@pytest.fixture
def bench(pair):  # noqa: F811
    """A bench whose clock is made up: a base takes 4 seconds, a draft as long as its length."""

    def measure(runs, rounds):
        for run in runs.values():
            run()
        lengths = {name: "base" if name == "base" else int(name.split()[1][0]) for name in runs}
        return {name: [SECONDS.get(length, 4.0)] * rounds for name, length in lengths.items()}

    texts = {"openings": ["Once"], "refrains": ["la la la la"]}
    return tune.Bench(pair, texts, tokens=4, rounds=2, finalists=2, clock=measure)


def test_the_best_setting_is_the_quickest_at_both_temperatures_together(bench, capsys):
    methods = [catalog["block"](draft_length=n) for n in SECONDS]
    assert bench.best(methods) == catalog["block"](draft_length=3)
    lines = [line for line in capsys.readouterr().out.splitlines() if "draft_length" in line]
    assert [line.split("|")[1:5] for line in lines] == [
        [" draft_length 3 ", *[" 4.00 (4.00 to 4.00) "] * 2, " 4.00 "],
        [" draft_length 4 ", *[" 2.00 (2.00 to 2.00) "] * 2, " 2.00 "],
    ]


@pytest.mark.parametrize(("most", "wanted"), [(3, 3), (2, 2), (1, None)])
def test_dsbd_must_write_texts_as_likely_as_beam_samplings(bench, most, wanted):
    """Its perplexity is made up, too: the draft length, beside that of the base."""

    def perplexity(results):
        method = results[0].method
        return most if method.name == "beam_sampling" else method.draft_length

    bench = dataclasses.replace(bench, run=over, likely=perplexity)
    best = bench.best([catalog["dsbd"](draft_length=n) for n in SECONDS], width=2)
    assert (best and best.draft_length) == wanted


def over(pair, method, texts, options):  # noqa: F811
    def run():
        run.results = [Found(method)]

    return run


class Found:
    def __init__(self, method):
        self.method = method


def test_the_file_keeps_what_was_tuned_before(pair, tmp_path):  # noqa: F811
    """It is read by whoever asks for the pair's settings; the clock is real here."""
    file, threads = tmp_path / "settings.json", torch.get_num_threads()
    (tmp_path / "target").mkdir()
    file.write_text('{"mtad": {"beams": 2}, "block": {"draft_length": 9}}')
    grids = {"block": {"draft_length": (3,)}, "dsbd": tune.GRIDS["dsbd"]}
    flags = ["--only", "block", "--tokens", "3", "--prompts", "1", "--rounds", "1"]
    tune.main(["--pair", str(tmp_path), *flags], lambda folder: pair, grids)
    torch.set_num_threads(threads)
    assert json.loads(file.read_text()) == {"mtad": {"beams": 2}, "block": {"draft_length": 3}}


def test_every_grid_is_of_settings_that_its_decoder_has():
    for name in tune.GRIDS:
        assert len(set(tune.grid(name))) == len(tune.grid(name)) > 1
