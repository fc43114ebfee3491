"""The time until the page shows its recorded run, and its tokens/s over those of the library alone.

The page's first comparison in Chromium, and the same decoders here, in turn.

    python -m tests.speed.page [--loads 7] [--rounds 8] [--tokens 64] [--own 3] [--port 17960]

The server and the browser are processes of their own on the same cores. Prints Markdown.
`--rounds 0` measures only the time until the recorded run shows; `--own` how long runs of a
visitor's own take, with five decoders and 64 tokens. WORKBENCH_PAIR names the pair.
"""

import statistics
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from playwright.sync_api import Page

import decoders
from tests.speed.measure import options, prompts, spread, table
from tools.picture import DRAWN, USABLE, chromium
from workbench.kinds.comparison import Comparison
from workbench.runs.record import Run

DONE = """(last) => {
    const link = document.querySelector('#run-link a');
    return link && link.offsetParent && link.innerText !== last
        && document.querySelector('#progress').innerText.includes('Done');
}"""

# Seconds from a press of Run, read off the page: until the run has its picture, its charts and its
# verdict, and until its timing is over.
TIMES = """() => new Promise((done) => {
    const began = performance.now(), before = location.search, times = [];
    document.querySelector('#run').click();
    const says = () => document.querySelector('#progress')?.innerText || "";
    const timer = setInterval(() => {
        const there = says().startsWith('Done') && document.querySelector('#picture')
            && document.querySelector('#headline').innerText && location.search !== before;
        if (!times.length && there) times.push((performance.now() - began) / 1000);
        if (times.length && /result/.test(says())) {
            clearInterval(timer);
            done([...times, (performance.now() - began) / 1000]);
        }
    }, 20);
})"""
READY = "performance.now() - performance.getEntriesByType('navigation')[0].responseEnd"
PAINTED = """() => {
    const shown = performance.now(), page = performance.getEntriesByType('navigation')[0];
    const paint = performance.getEntriesByName('first-contentful-paint')[0];
    const files = performance.getEntriesByType('resource');
    return {
        "first paint, ms": paint ? paint.startTime - page.responseEnd : 0,
        "recorded run, ms": shown - page.responseEnd,
        "HTML, kB": page.decodedBodySize / 1e3,
        "files": files.length,
        "of them sent, kB": files.reduce((sum, f) => sum + f.transferSize, 0) / 1e3,
    };
}"""


def on_the_page(page: Page, address: str, last: str | None) -> tuple[str, Run]:
    """Press Run; the run's name, and its export."""
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(DONE, arg=last, timeout=90_000, polling=500)
    name = page.locator("#run-link a").first.inner_text()
    page.wait_for_timeout(1500)  # the charts are drawn
    return name, Run.from_json(
        urllib.request.urlopen(f"{address}/export/{name.removeprefix('run ')}.json").read()
    )


def drawn(run: Run) -> dict[str, float]:
    """Each decoder's tokens/s in the timing whose tokens were shown as they came."""
    return {r.decoder: r.metrics["new_tokens"] / r.laps[0].seconds for r in run.results}


def alone(pair: decoders.ModelPair, run: Run) -> dict[str, float]:
    """Each decoder's tokens/s for the same request without the page.

    After a short run to warm up, as on the page."""
    study, speeds = Comparison.from_json(run.study), {}
    torch.set_num_threads(run.environment["threads"])
    for method in study.settings.methods:
        for budget in (8, study.settings.max_new_tokens):
            asked = study.settings.decoding | {"max_new_tokens": budget}
            out = decoders.generate(pair, study.prompt, method, **asked)
        speeds[method.name] = out.metrics.tokens_per_second
    return speeds


def painted(page: Page, address: str) -> dict[str, float]:
    """Times in ms after the page's HTML has arrived, and the data sent until the recorded run.

    The times are those of the first paint, of the picture of the recorded run, and of the moment
    from which the page can be used."""
    page.goto(address, wait_until="commit")
    page.locator("#picture").wait_for()
    found: dict[str, float] = page.evaluate(PAINTED)
    page.wait_for_function(USABLE)
    return found | {"all can be used, ms": page.evaluate(READY)}


def own_runs(page: Page, address: str, texts: Sequence[str]) -> Iterator[tuple[float, float]]:
    """Seconds from Run to the last word with the figures, and to the end of the quiet timing."""
    page.goto(address)
    page.wait_for_function(f"{USABLE} && {DRAWN}")
    for text in texts:
        page.locator("#prompt textarea").fill(text)
        page.wait_for_timeout(500)
        yield page.evaluate(TIMES)
        page.wait_for_timeout(1000)


def main() -> None:
    args = options(
        __doc__, {"loads": 1, "rounds": 1, "tokens": 4},
        loads=7, rounds=8, tokens=64, own=0, port=17960,
    )  # fmt: skip
    speeds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    with chromium(args.port) as (page, address):
        if args.own:
            for texts, timing in own_runs(page, address, prompts()["openings"][: args.own]):
                print(f"{texts:.1f} s to the last word and the figures, {timing:.1f} s with timing")
            return
        first, *later = [painted(page, address) for _ in range(args.loads + 1)]
        table(
            ("after the HTML has arrived", "first visit", "later ones"),
            ((name, f"{first[name]:.0f}", spread([e[name] for e in later], 0)) for name in first),
        )
        page.goto(f"{address}?max_new_tokens={args.tokens}")
        page.wait_for_timeout(2000)
        pair, last = decoders.load_pair(), None
        for i in range(args.rounds + 1 if args.rounds else 0):
            last, run = on_the_page(page, address, last)
            shown = drawn(run)
            for name, speed in alone(pair, run).items():
                if i:  # the first round warms up
                    speeds[name].append((shown[name], speed))
    table(
        ("decoder", "page, tokens/s", "library", "page over library"),
        (
            (name, *(f"{statistics.median(side):.0f}" for side in zip(*pairs, strict=True)),
             spread([a / b for a, b in pairs]))
            for name, pairs in speeds.items()
        ),
    )  # fmt: skip


if __name__ == "__main__":
    main()
