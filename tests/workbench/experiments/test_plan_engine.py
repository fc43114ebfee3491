"""[[engine]] in plans: what it means, every fault named, and no address anywhere."""

import dataclasses
import re
from pathlib import Path

import pytest

from decoders import InputError
from workbench.engines.addresses import FILE, starters
from workbench.experiments.plan import Costs, PlanEngine
from workbench.experiments.plan_file import parse
from workbench.kinds.experiment.described import described

STARTED = '[[engine]]\nstart = "vllm"\n'
RUNNING = '[[engine]]\nname = "fast"\n'


def test_an_engine_has_defaults_and_grids():
    (plain,) = parse(RUNNING, "mine.toml").engines
    assert plain == PlanEngine("fast", False, "fast")
    (whole,) = parse(
        f"{STARTED}part = 'drafts'\ndraft_lengths = [0, 3, 3]\nconcurrency = 4\n"
        "prompts = ['refrains']\nlimit = 9\nmax_new_tokens = 5\ntemperature = 0\nseed = 2\n"
        "timings = 5\nflags = ['--max-num-seqs', '8']\nabout = 'Says http://why.'\n"
        "costs = { prompt = 2, draft = 0.1, token = 0.05 }",
        "mine.toml",
    ).engines
    assert whole == PlanEngine(
        "vllm", True, "drafts", ("refrains",), (4,), (0, 3), ("--max-num-seqs", "8"),
        "Says http://why.", 9, 5, 0.0, 2, 5, Costs(2.0, 0.1, 0.05),
    )  # fmt: skip
    assert parse(STARTED, "mine.toml").engines[0].draft_lengths == (0,)


def test_a_plan_without_engines_is_what_it_was():
    text = '[[part]]\ndecoders = ["greedy"]\n'
    both = parse(f"{text}{RUNNING}", "mine.toml")
    alone = parse(text, "mine.toml")
    assert alone.engines == ()
    assert dataclasses.replace(both, engines=(), source=text) == alone
    assert both.names == ["part 1", "fast"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[engine]]\n", "give either `name`, of an engine that runs, or `start`"),
        (f'{RUNNING}start = "vllm"\n', "give either `name`"),
        (f"{RUNNING}draft_lengths = [2]\n", "(fast): `draft_lengths` needs `start`"),
        (f'{RUNNING}flags = ["--x"]\n', "(fast): `flags` needs `start`"),
        ("[[engine]]\nname = 3\n", "`name` must be a text, not 3"),
        ('[[engine]]\nname = "a b"\n', "'a b' is no name of an engine"),
        (f'{RUNNING}conurrency = [1]\n', "no key 'conurrency': did you mean 'concurrency'"),
        (f"{RUNNING}concurrency = [0]\n", "`concurrency` must be from 1 to 1024, not [0]"),
        (f"{RUNNING}concurrency = [1.5]\n", "`concurrency` must be a whole number"),
        (f"{RUNNING}concurrency = []\n", "`concurrency` must be a whole number"),
        (f"{STARTED}draft_lengths = [65]\n", "`draft_lengths` must be from 0 to 64, not [65]"),
        (f"{STARTED}draft_lengths = true\n", "`draft_lengths` must be a whole number"),
        (f'{STARTED}flags = "--x"\n', "`flags` must be a list of texts"),
        (f'{STARTED}flags = ["--host", "all"]\n', "'--host' says where the server listens"),
        (f'{STARTED}flags = ["--port=80"]\n', "'--port=80' says where the server listens"),
        (f"{RUNNING}prompts = []\n", "`prompts` needs at least one name"),
        (f"{RUNNING}limit = 0\n", "`limit` must be a whole number from 1"),
        (f"{RUNNING}max_new_tokens = 0\n", "`max_new_tokens` must be a whole number from 1"),
        (f"{RUNNING}temperature = -1\n", "`temperature` must be a number from 0 to 100, not -1"),
        (f"{RUNNING}temperature = nan\n", "`temperature` must be a number from 0 to 100"),
        (f"{RUNNING}seed = -1\n", "`seed` must be a whole number from 0"),
        (f"{RUNNING}timings = 0\n", "`timings` must be a whole number from 1 to 100"),
        (f"{RUNNING}costs = {{ draft = 1 }}\n", "`costs` must be a table with prompt, draft"),
        (
            f'{RUNNING}costs = {{ prompt = 1, draft = "x", token = 0 }}\n',
            "costs: `draft` must be a number",
        ),
        (f"{RUNNING}{RUNNING}", "two parts named 'fast'"),
        (f'[[part]]\nname = "fast"\ndecoders = ["greedy"]\n{RUNNING}', "two parts named 'fast'"),
        ("[engine]\nname = 'fast'\n", "write `engine` as [[engine]]"),
    ],
)  # fmt: skip
def test_each_fault_is_one_sentence(text, says):
    with pytest.raises(InputError) as error:
        parse(text, "mine.toml")
    assert says in str(error.value)
    assert str(error.value).startswith("mine.toml")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "line",
    [
        'name = "http://10.0.0.1:8000"',
        'name = "localhost:8000"',
        'name = "10.0.0.1"',
        'url = "https://host.example"',
        'host = "host.example:443"',
        'address = { v6 = ["[::1]:8000"] }',
        '"http://host" = 1',
        'start = "vllm"\nflags = ["--kv-transfer-config", "{\\"url\\": \\"tcp://host\\"}"]',
        'start = "vllm"\nflags = ["--master=host:29500"]',
    ],
)
def test_an_address_is_refused_and_not_repeated(line):
    with pytest.raises(InputError, match="a plan carries no address") as error:
        parse(f"[[engine]]\n{line}\n", "mine.toml")
    assert "host" not in str(error.value).lower().replace("mine.toml", "")
    assert "8000" not in str(error.value)


def test_flags_with_json_are_no_addresses():
    flags = """['--override', '{"num": 3, "max":16, "a": [1,2]}', '0.75', '--gpu-memory=0.9']"""
    (found,) = parse(f"{STARTED}flags = {flags}\n", "mine.toml").engines
    assert len(found.flags) == 4


def test_a_plan_in_words_says_what_it_starts():
    text = f"title = 'Drafts'\n{STARTED}draft_lengths = [0, 2]\nflags = ['--a b']\nlimit = 3\n"
    assert described(parse(text, "mine.toml")).splitlines()[-1] == (
        "vllm: starts the engine vllm with '--a b'; stories (first 3); draft lengths 0, 2; "
        "concurrency 1; 64 tokens"
    )
    assert described(parse(RUNNING, "mine.toml")).splitlines()[-1] == (
        "fast: engine fast; stories; concurrency 1; 64 tokens"
    )


def test_the_examples_of_the_documentation_can_be_used(tmp_path):
    page = Path(__file__).parents[3] / "docs" / "experiments.md"
    whole = page.read_text(encoding="utf-8").partition("## Engines in a plan")[2]
    plan, file, costs = re.findall(r"```toml.*?\n(.*?)```", whole, re.S)
    started, running = parse(plan + costs, "drafts.toml").engines
    assert (started.draft_lengths, running.costs) == ((0, 2, 3), Costs(3.0, 0.1, 0.05))
    (tmp_path / "engines.toml").write_text(file)
    known = starters({FILE: str(tmp_path / "engines.toml")})
    assert started.name in known
    assert all("3" in " ".join(each.drafting(3)) for each in known.values())
