"""The race: all texts on one clock, in step with the recorded seconds, on every screen.

By mouse and by keyboard."""

import dataclasses
import re
import statistics
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import serving
from tests.browser.readable import faults_of_screens
from workbench.kinds.comparison.study import Comparison
from workbench.measuring import session
from workbench.runs.laps import round_seconds
from workbench.runs.record import Run
from workbench.runs.recorded import recordings
from workbench.runs.trace import Load
from workbench.show.files import WRITERS
from workbench.studies.settings import Settings

DECODERS = ["greedy", "speculative", "dsbd"]
PACE = {"greedy": 0.21, "speculative": 0.37, "dsbd": 0.49}  # seconds of a round
HOSTILE = "<img src=x onerror=window.hacked=1>"


@pytest.fixture(scope="module")
def slow(pair, unmetered) -> Run:
    """A run whose rounds took long enough to be watched; one token is hostile."""
    study = Comparison(
        "ab", Settings.from_json({"decoders": DECODERS, "max_new_tokens": 8, "timings": 1})
    )
    *_, last = session.run(pair, study, meter=unmetered)
    results = []
    for result in last.run.results:
        rounds = [PACE[result.decoder]] * len(result.alone.rounds)
        lap = dataclasses.replace(result.laps[0], rounds=rounds, seconds=sum(rounds), load=Load())
        results.append(dataclasses.replace(result, laps=[lap, lap]))
    first = results[0].alone
    trials = [dataclasses.replace(first.rounds[0].trials[0], text=HOSTILE)]
    rounds = [dataclasses.replace(first.rounds[0], trials=trials), *first.rounds[1:]]
    results[0] = dataclasses.replace(
        results[0], samples=[dataclasses.replace(first, rounds=rounds)]
    )
    return dataclasses.replace(last.run, results=results)


@pytest.fixture(scope="module")
def address(pair, slow, tmp_path_factory):
    with serving(pair, tmp_path_factory.mktemp("runs")) as (address, host):
        host.store.save(slow)
        yield f"{address}?run={slow.id}"


@pytest.fixture
def page(page) -> Iterator[Page]:
    """The slow run; each test leaves the page with no race on it."""
    yield page
    page.set_viewport_size({"width": 1400, "height": 1000})
    if page.locator(".wb-race").count():
        page.get_by_label("close the race").click()
    expect(page.locator(".wb-race")).to_have_count(0)


def opened(page: Page, lanes: int = len(DECODERS)) -> Page:
    page.locator(".race-open").click()
    expect(page.locator(".wb-race .lane")).to_have_count(lanes)
    return page


def tokens_after(run: Run, decoder: str, seconds: float) -> int:
    """The number of tokens that are shown at this second of a decoder's rounds."""
    result = next(r for r in run.results if r.decoder == decoder)
    length, passed = 0, 0.0
    for round_, took in zip(result.alone.rounds, round_seconds(result), strict=True):
        passed += took
        if passed > seconds + 1e-9:
            break
        length = round_.keep + len(round_.nodes)
    return length


def in_step(page: Page, run: Run) -> None:
    """Opens the race and compares each second that it shows with the seconds that have passed.

    A busy machine shows a frame late, but the frame then belongs to that moment. A lane is done as
    soon as its rounds are over."""
    expect(page.locator(".race-open")).to_be_visible()
    page.evaluate(
        """() => {
        window.seen = [];
        const look = () => {
            const clock = document.querySelector(".wb-race .clock");
            const done = [...document.querySelectorAll(".wb-race .lane.done")];
            if (clock) window.seen.push([performance.now() / 1000, parseFloat(clock.textContent),
                done.map((lane) => lane.dataset.decoder)]);
        };
        new MutationObserver(look).observe(document.body,
            { subtree: true, childList: true, characterData: true });
    }"""
    )
    opened(page, len(run.results))
    expect(page.locator(".wb-race .lane.done")).to_have_count(len(run.results), timeout=20_000)
    factor, seen = (
        float(page.get_by_label("speed of the race").input_value()),
        page.evaluate("window.seen"),
    )
    ends = {r.decoder: sum(round_seconds(r)) for r in run.results}
    running = [each for each in seen if 0 < each[1] < max(ends.values()) - 0.01]
    assert len(running) > 1  # a busy machine shows few
    began = min(now - shown / factor for now, shown, _ in running)
    late = [now - began - shown / factor for now, shown, _ in running]
    # Two digits are shown. The median, because a single frame of a busy machine takes longer.
    assert statistics.median(late) <= 0.1 + 0.01 / factor
    for _, shown, done in running:
        assert (
            {d for d in ends if ends[d] < shown - 0.01}
            <= {*done}
            <= {d for d in ends if ends[d] < shown + 0.01}
        )


def test_a_run_that_the_page_brings_along_races_without_a_model(visit, server):
    address, host = server
    before, recorded = host.store.list(), recordings()[0].run
    page = visit(f"{address}?run={recorded.id}")
    in_step(page, recorded)
    expect(page.locator(".wb-race")).to_contain_text("of the measured speed")
    assert host.store.list() == before


def test_it_is_in_step_with_the_recorded_seconds(page, slow):
    in_step(page, slow)
    order = sorted(slow.results, key=lambda r: sum(round_seconds(r)))
    for place, result in zip(("1st", "2nd", "3rd"), order, strict=True):
        lane = page.locator(f'.wb-race .lane[data-decoder="{result.decoder}"]')
        expect(lane.locator(".lane-state")).to_contain_text(
            f"{place} · {len(result.alone.tokens)} tokens in"
        )
    expect(page.locator(".wb-race [role=status]")).to_contain_text("all are done")


def test_it_is_scrubbed_paused_and_slowed(page, slow):
    opened(page)
    slider = page.locator(".wb-race input[type=range]")
    for seconds in (0.0, 0.22, 0.8, 1.3, 60.0):
        slider.evaluate(
            "(s, v) => { s.value = v; s.dispatchEvent(new Event('input')); }", seconds * 1000
        )
        for decoder in DECODERS:
            lane = page.locator(f'.wb-race .lane[data-decoder="{decoder}"]')
            expect(lane).to_have_attribute("data-tokens", str(tokens_after(slow, decoder, seconds)))
    before = page.locator(".wb-race .clock").inner_text()
    page.wait_for_timeout(300)
    assert page.locator(".wb-race .clock").inner_text() == before
    page.get_by_label("back to the start").click()
    page.get_by_label("speed of the race").select_option("0.1")
    asked = time.monotonic()
    page.get_by_label("play", exact=True).click()
    began = time.monotonic()  # a busy browser says late that it has clicked
    page.wait_for_timeout(1500)
    ended = time.monotonic()
    page.get_by_label("pause", exact=True).click()
    passed = 10 * float(page.locator(".wb-race .clock").inner_text().split()[0])
    assert ended - began - 1 < passed < time.monotonic() - asked + 1


def test_by_keyboard_alone(page):
    page.locator(".race-open").focus()
    page.keyboard.press("Enter")
    expect(page.locator(".wb-race h3")).to_be_focused()
    page.keyboard.press(" ")
    expect(page.get_by_label("play", exact=True)).to_be_visible()
    page.get_by_label("time in the race").focus()
    page.keyboard.press("End")
    expect(page.locator(".wb-race .lane.done")).to_have_count(len(DECODERS))
    page.keyboard.press("Escape")
    expect(page.locator(".wb-race")).to_have_count(0)
    expect(page.locator(".race-open")).to_be_focused()


def test_hostile_tokens_stay_text(page):
    opened(page)
    page.get_by_label("time in the race").focus()
    page.keyboard.press("End")
    expect(page.locator('.wb-race .lane[data-decoder="greedy"]')).to_contain_text(HOSTILE)
    assert page.locator(".wb-race img").count() == 0
    assert page.evaluate("window.hacked") is None


def test_it_fits_and_is_readable_on_every_screen(page):
    opened(page)
    page.get_by_label("time in the race").focus()
    page.keyboard.press("End")
    assert faults_of_screens(page, ".wb-race") == []


def test_what_cannot_be_trusted_gives_no_places(slow, chromium, tmp_path):
    """The race named a 1st and a 2nd, and the headline said that timings cannot be trusted."""
    busy = [
        dataclasses.replace(
            r, laps=[dataclasses.replace(lap, load=Load(pressure=0.9)) for lap in r.laps]
        )
        if r.decoder == "dsbd"
        else r
        for r in slow.results
    ]
    file = tmp_path / "run.html"
    file.write_text(WRITERS["html"](dataclasses.replace(slow, results=busy)), encoding="utf-8")
    context = chromium.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    expect(page.locator("main")).to_contain_text(
        "No decoder is clearly the fastest here: timings marked ≈"
    )
    page.locator(".race-open").click()
    page.get_by_label("time in the race").focus()
    page.keyboard.press("End")
    expect(page.locator(".wb-race .lane.done")).to_have_count(len(DECODERS))
    for decoder in DECODERS:
        state = page.locator(f'.wb-race .lane[data-decoder="{decoder}"] .lane-state').inner_text()
        assert re.fullmatch(rf"\d+ tokens in {'≈' if decoder == 'dsbd' else ''}[\d.]+ s", state)
    expect(page.locator(".wb-race")).to_contain_text(
        "There are no places here: timings marked ≈ cannot be trusted."
    )
    context.close()


def test_a_report_races_too(slow, chromium, tmp_path):
    file = tmp_path / "run.html"
    file.write_text(WRITERS["html"](slow), encoding="utf-8")
    context = chromium.new_context()
    page = context.new_page()
    page.goto(file.as_uri())
    page.locator(".race-open").click()
    expect(page.locator(".wb-race .lane.done")).to_have_count(len(DECODERS), timeout=20_000)
    page.locator("#panels .wb-panel .tok:not(.refused)").first.click()
    expect(page.locator(".wb-branch tbody tr")).not_to_have_count(0)
    expect(page.locator(".wb-branch")).to_contain_text("as recorded")
    assert page.locator(".wb-branch button.go").count() == 0
    context.close()


WHOLE = """(papers) => papers.filter((paper) => paper.offsetParent).map((paper) => {
    const line = parseFloat(getComputedStyle(paper).lineHeight);
    return [paper.clientHeight % line, paper.scrollTop % line,
        paper.scrollHeight - paper.clientHeight - paper.scrollTop];
})"""


def at_the_end(page: Page, lanes: int) -> None:
    page.get_by_label("time in the race").focus()
    page.keyboard.press("End")
    expect(page.locator(".wb-race .lane.done")).to_have_count(lanes)


def on_screens(page: Page, lanes: int, *screens: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """The race at its end, opened anew on each screen."""
    for width, height in screens:
        page.set_viewport_size({"width": width, "height": height})
        opened(page, lanes)
        at_the_end(page, lanes)
        yield width, height
        page.get_by_label("close the race").click()
        expect(page.locator(".wb-race")).to_have_count(0)


def test_texts_show_whole_lines_and_the_speed_has_a_name(visit, server):
    """Finished texts were cut in half a line, and nothing said what "a tenth" is of."""
    page = visit(f"{server[0]}?run={recordings()[0].run.id}")
    for _ in on_screens(page, 5, (1400, 1000), (768, 1024), (390, 844), (360, 640)):
        for offsets in page.locator(".wb-race .wb-paper").evaluate_all(WHOLE):
            assert max(map(abs, offsets)) < 0.5
        speed = page.locator(".wb-race label", has_text="Speed")
        expect(speed.get_by_role("combobox")).to_be_visible()


def test_all_lanes_of_many_decoders_are_seen_at_once(visit, server):
    """Only seven of sixteen decoders fitted on a screen."""
    run = next(r.run for r in recordings() if len(r.run.decoders) > 6)
    page = visit(f"{server[0]}?run={run.id}")
    race = page.locator(".wb-race .lanes")
    for width, height in on_screens(page, len(run.decoders), (1400, 800), (768, 1024), (390, 844)):
        race.evaluate("(lanes) => lanes.scrollIntoView({ block: 'end', behavior: 'instant' })")
        assert race.bounding_box()["height"] <= 0.75 * height
        tracks = {round(track.bounding_box()["width"]) for track in race.locator(".track").all()}
        assert len(tracks) == 1  # bars are compared with each other
        lines = race.locator(".lane").evaluate_all(
            "(lanes) => lanes.map((lane) => lane.clientHeight)"
        )
        assert max(lines) <= 30
        for lane in race.locator(".lane-state").all():
            assert lane.evaluate("(state) => state.scrollWidth <= state.clientWidth")
        if width > 640:
            ends = race.locator(".wb-paper").evaluate_all(
                "(all) => all.map((p) => p.scrollWidth - p.clientWidth - p.scrollLeft)"
            )
            assert max(map(abs, ends)) <= 1  # the end of each text is what is seen of it
        assert page.evaluate("document.documentElement.scrollWidth") <= width
