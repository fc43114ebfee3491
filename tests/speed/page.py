"""The time until the page shows its recorded run, and its tokens/s over those of the library alone.

The page's first comparison in Chromium, and the same decoders here, in turn.

    python -m tests.speed.page [--loads 7] [--rounds 8] [--tokens 64] [--port 17960]

The server and the browser are processes of their own on the same cores. Prints Markdown.
`--rounds 0` measures only the time until the recorded run shows.
"""

import argparse
import os
import statistics
import urllib.request
from collections import defaultdict
from collections.abc import Mapping

import torch
from playwright.sync_api import Page

import decoders
from tools.picture import USABLE, chromium
from workbench.kinds.comparison.study import Comparison
from workbench.runs.record import Run

DONE = """(last) => {
    const link = document.querySelector('#run-link a');
    return link && link.offsetParent && link.innerText !== last
        && document.querySelector('#progress').innerText.includes('Done');
}"""

PRESSED = f"document.querySelector('#opening .wb-run') || ({USABLE})"
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

    The times are those of the moment from which Run takes a press, of the first paint, of the
    panels of the recorded run, and of the moment from which the whole page can be used, when a
    press is carried out."""
    page.goto(address, wait_until="commit")
    page.wait_for_function(PRESSED)
    pressed = page.evaluate(READY)
    page.locator(".wb-panel .pace").first.wait_for()
    found: dict[str, float] = page.evaluate(PAINTED)
    page.wait_for_function(USABLE)
    return {
        "Run takes a press, ms": pressed,
        **found,
        "all can be used, ms": page.evaluate(READY),
    }


def paint_table(page: Page, address: str, loads: int) -> str:
    """The first load in a fresh browser, and the median of later ones."""
    first, *later = [painted(page, address) for _ in range(loads + 1)]
    lines = [
        f"| {name} | {first[name]:,.0f} | {statistics.median(each[name] for each in later):,.0f} "
        f"({min(each[name] for each in later):,.0f} to {max(each[name] for each in later):,.0f}) |"
        for name in first
    ]
    head = (
        f"| after the HTML has arrived | first visit | median of {loads} later ones (least to "
        "most) |\n|---|--:|--:|"
    )
    return "\n".join([head, *lines])


def print_rounds(speeds: Mapping[str, list[tuple[float, float]]]) -> None:
    """Each decoder's tokens/s on the page and in the library, in all rounds."""
    print(
        "| decoder | page | library | page over library: of the medians (least to most of a "
        "round) |\n|---|---|---|---|"
    )
    for name, pairs in speeds.items():
        shown, own = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratios = [a / b for a, b in pairs]
        print(
            f"| {name} | {shown:.0f} | {own:.0f} | {shown / own:.2f} ({min(ratios):.2f} to "
            f"{max(ratios):.2f}) |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--port", type=int, default=17960)
    args = parser.parse_args()
    pair, last = decoders.load_pair(), None
    speeds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    load = os.getloadavg()[0]
    with chromium(args.port) as (page, address):
        paints = paint_table(page, address, args.loads)
        page.goto(f"{address}?max_new_tokens={args.tokens}")
        page.wait_for_timeout(2000)
        for i in range(args.rounds + 1 if args.rounds else 0):
            last, run = on_the_page(page, address, last)
            shown = drawn(run)
            for name, speed in alone(pair, run).items():
                if i:  # the first round warms up
                    speeds[name].append((shown[name], speed))
    print(f"{paints}\n")
    print(
        f"{args.rounds} rounds, {args.tokens} tokens; load average {load:.1f} before, "
        f"{os.getloadavg()[0]:.1f} after\n"
    )
    print_rounds(speeds)


if __name__ == "__main__":
    main()
