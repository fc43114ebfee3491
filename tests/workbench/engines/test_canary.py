"""A canary against servers that draw from the model's law, and from others."""

import json
from dataclasses import replace

import numpy as np
import pytest

import decoders
from decoders import InputError, ModelPair
from tests.pairwise import EVERYWHERE
from tests.workbench.engines.canary_rules import RIGHT, WRONG
from tests.workbench.engines.canary_servers import drawing, serving
from tests.workbench.engines.served import Call, a_json, served
from workbench.engines import canary
from workbench.engines.canary import (
    LEVEL,
    SOUGHT,
    CanaryPlan,
    controls,
    labels,
    p_value,
    statistic,
    unlike,
    watch,
)
from workbench.engines.client import connect

WHAT = CanaryPlan(prefixes=("abab", "é 🦊"), draws=600, tokens=4)


def watched(pair: ModelPair, answers, what: CanaryPlan = WHAT, **options):
    with served(answers) as server:
        client = connect(server.engine())
        try:
            return watch(client, pair, what, **options)
        finally:
            client.wire.close()


@pytest.fixture(scope="module")
def right(pair):
    return serving(pair, drawing(pair.target), WHAT.prefixes, WHAT.draws, WHAT.tokens)


def test_a_server_with_the_model_s_law_is_like_it(pair, right):
    report = watched(pair, right)
    assert report.verdict == "like"
    assert report.draws == 600
    assert [check.tokens for check in report.checks] == [*[600] * 4, 1800]
    assert min(check.p for check in report.checks) > 0.01
    assert len(report.controls) == 2
    assert all(rule.variation == pytest.approx(0.1) for rule in report.controls)
    assert {parts.verdict for parts in report.greedy.values()} == {"same"}
    plain = json.loads(json.dumps(report.to_json()))
    assert (plain["verdict"], plain["level"], plain["checks"][0]["tokens"]) == ("like", 0.001, 600)


@pytest.mark.parametrize(
    "write",
    [lambda pair: drawing(pair.target, 1.5), lambda pair: drawing(pair.draft)],
    ids=["temperature", "the draft model alone"],
)
def test_a_server_with_another_law_is_unlike_it(pair, write):
    answers = serving(pair, write(pair), WHAT.prefixes, 300, WHAT.tokens)
    report = watched(pair, answers, replace(WHAT, draws=300))
    assert report.verdict == "unlike"
    assert min(check.p for check in report.checks) < 1e-3


def test_a_greedy_text_of_its_own_is_a_fault(pair, right):
    def answers(call: Call):
        reply = right(call)
        if call.body and call.body["temperature"] == 0:
            answer = json.loads(reply.body)
            ids = answer["choices"][0]["token_ids"]
            answer["choices"][0]["token_ids"] = [*ids[:5], (ids[5] + 1) % 200, *ids[6:]]
            return a_json(answer)
        return reply

    report = watched(pair, answers, replace(WHAT, draws=20))
    assert report.verdict == "fault"
    assert "Fault at new token 6" in report.greedy[WHAT.prefixes[0]].says


def test_a_server_that_dies_is_one_sentence(pair, right):
    def answers(call: Call):
        dies = call.body and call.body["temperature"] and call.body["seed"] >= 100
        return a_json({"error": "out of memory"}, 500) if dies else right(call)

    with pytest.raises(InputError, match=r"^Engine fake failed .* out of memory"):
        watched(pair, answers, replace(WHAT, draws=200))


def test_it_stops_at_the_next_draw(pair, right):
    told = []
    with pytest.raises(KeyboardInterrupt):
        watched(pair, right, doing=lambda *each: told.append(each), stopped=lambda: True)
    assert [each for each in told if each[0] == "draws"] == [("draws", 1, 600)]


def changed(right, **fields):
    """The server, with other fields in each answer."""

    def answers(call: Call):
        reply = right(call)
        if call.body is None:
            return reply
        answer = json.loads(reply.body)
        answer["choices"][0].update(fields)
        answer.pop("usage")
        return a_json(answer)

    return answers


def test_a_server_that_tells_no_ids_cannot_be_tested(pair, right):
    with pytest.raises(InputError, match="does not tell token ids, without which its draws cannot"):
        watched(pair, changed(right, token_ids=None, text="abc"))


def test_a_server_of_another_vocabulary_cannot_be_tested(pair, right):
    with pytest.raises(InputError, match="wrote the token 99999, which the model here does not"):
        watched(pair, changed(right, token_ids=[1, 2, 99999, 4]))


@pytest.mark.parametrize(("fields", "says"), [
    ({"draws": 0}, "draws must be"),
    ({"tokens": 65}, "tokens must be"),
    ({"dtype": "float8"}, "dtype must be"),
    ({"prefixes": ()}, "at least one text"),
    ({"prefixes": ("a", "a")}, "given twice"),
])  # fmt: skip
def test_what_cannot_be_asked_is_one_sentence(fields, says):
    with pytest.raises(InputError, match=says):
        CanaryPlan(**fields)


def test_the_law_is_that_of_the_model_at_each_place(pair):
    prefix, other = (1, 2, 3), (4,)
    drawn = [(prefix, (5, 6)), (prefix, (5, 6)), (prefix, (5,)), (other, (7, 8))]
    draws = canary.read(pair, drawn)
    assert sorted(draws.position) == [0, 0, 0, 0, 1, 1, 1]
    places = decoders.read(pair, [1, 2, 3], [5])
    cell = labels(places.p, places.q)
    here = np.isclose(draws.chances[:, 0], float(places.p[1][cell[1] == 0].sum()))
    assert here[draws.position == 1].sum() == 2
    assert (draws.cells[here] == int(cell[1, 6])).sum() >= 2
    assert np.allclose(draws.chances.sum(axis=1), 1)
    assert np.allclose(draws.others.sum(axis=-1), 1)
    cells = np.abs(draws.others - draws.chances[:, None]).sum(axis=-1) / 2
    assert (draws.distances >= cells - 1e-6).all()


DRAWS = CanaryPlan().draws


def flagged(server, times: int, seed: int) -> int:
    source = np.random.default_rng(seed)
    return sum(unlike(server.watched(DRAWS, source)) for _ in range(times))


@pytest.mark.parametrize("rule", [*WRONG][:: 1 if EVERYWHERE else 3])
def test_a_rule_that_is_off_by_a_tenth_is_found_in_99_of_100(rule):
    assert DRAWS == 2000
    assert flagged(WRONG[rule], 100, 0) >= 99


def test_a_right_server_is_blamed_at_most_twice_in_200():
    assert LEVEL == 0.001
    assert flagged(RIGHT, 200, 0) <= 2


def test_the_control_says_when_draws_are_too_few():
    source = np.random.default_rng(0)

    def control(texts: int):
        draws = RIGHT.watched(texts, source)
        others, distances = draws.chances[:, None, ::-1], np.full((len(draws.position), 1), 0.8)
        return controls(replace(draws, others=others, distances=distances), 0, 40)[0]

    few, many = control(30), control(2000)
    assert few.caught < 10
    assert many.caught == many.times == 40
    assert many.variation == pytest.approx(SOUGHT)


def test_pearson_s_statistic_is_the_same_where_all_places_are_alike():
    law = np.array([0.5, 0.3, 0.2])
    cells = np.repeat([0, 1, 2], [460, 320, 220])
    found, degrees = statistic(cells, np.tile(law, (1000, 1)))
    counts = np.array([460, 320, 220])
    assert degrees == 2
    assert found == pytest.approx(((counts - 1000 * law) ** 2 / (1000 * law)).sum())
    assert p_value(found, 2) == pytest.approx(np.exp(-found / 2))


def test_an_end_without_its_token_cannot_be_tested_without_end_tokens(pair, right):
    with pytest.raises(InputError, match="ended a text without saying with which token"):
        watched(pair, changed(right, finish_reason="stop"))
