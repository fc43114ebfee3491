"""How soon the page shows its recorded run, and tokens/s that it shows over those of the library alone: the page's first comparison in
Chromium, and the same decoders here, in turn.

    python -m tests.speed.page [--loads 7] [--rounds 8] [--tokens 64] [--port 17960] [--picture assets/web/workbench.png]

The server and the browser are processes of their own on the same cores. Prints Markdown. `--picture` keeps the page as it opens,
down to its first row of charts: README.md shows it. `--rounds 0` measures only how soon.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from collections import defaultdict
from pathlib import Path

import torch
from playwright.sync_api import Page, sync_playwright

import decoders
from workbench.runs.record import Run
from workbench.studies.comparison import Comparison

DONE = """(last) => {
    const link = document.querySelector('#run-link a');
    return link && link.offsetParent && link.innerText !== last && document.querySelector('#progress').innerText.includes('Done');
}"""

READY = "performance.now() - performance.getEntriesByType('navigation')[0].responseEnd"
PAINTED = """() => {
    const shown = performance.now(), page = performance.getEntriesByType('navigation')[0];
    const paint = performance.getEntriesByName('first-contentful-paint')[0], files = performance.getEntriesByType('resource');
    return {
        "first paint, ms": paint ? paint.startTime - page.responseEnd : 0, "recorded run, ms": shown - page.responseEnd,
        "HTML, kB": page.decodedBodySize / 1e3, "files": files.length, "of them sent, kB": files.reduce((sum, f) => sum + f.transferSize, 0) / 1e3,
    };
}"""


def on_the_page(page: Page, address: str, last: str | None) -> tuple[str, Run]:
    """Press Run; the run's name, and its export."""
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function(DONE, arg=last, timeout=90_000, polling=500)
    name = page.locator("#run-link a").first.inner_text()
    page.wait_for_timeout(1500)  # the charts are drawn
    return name, Run.from_json(urllib.request.urlopen(f"{address}/export/{name.removeprefix('run ')}.json").read())


def drawn(run: Run) -> dict[str, float]:
    """Each decoder's tokens/s in the timing whose tokens were shown as they came."""
    return {r.decoder: r.metrics["new_tokens"] / r.laps[0].seconds for r in run.results}


def alone(pair: decoders.ModelPair, run: Run) -> dict[str, float]:
    """Each decoder's tokens/s for the same request without the page, after a short run to warm up, as on the page."""
    study, speeds = Comparison.from_json(run.study), {}
    torch.set_num_threads(run.environment["threads"])
    for method in study.settings.methods:
        for budget in (8, study.settings.max_new_tokens):
            asked = study.settings.decoding | {"max_new_tokens": budget}
            out = decoders.generate(pair, study.prompt, method, **asked)
        speeds[method.name] = out.metrics.tokens_per_second
    return speeds


def painted(page: Page, address: str) -> dict[str, float]:
    """Milliseconds after the page's HTML has arrived: the first thing that is painted, the panels of the recorded run, what was
    sent until then, and when the page can be used."""
    page.goto(address, wait_until="commit")
    page.locator(".wb-panel .pace").first.wait_for()
    found: dict[str, float] = page.evaluate(PAINTED)
    page.wait_for_function("!document.querySelector('#opening') && !document.querySelector('#run').disabled")
    return {**found, "can be used, ms": page.evaluate(READY)}


def paint_table(page: Page, address: str, loads: int) -> str:
    """The first load of a browser that was never here, and the median of later ones."""
    first, *later = [painted(page, address) for _ in range(loads + 1)]
    lines = [
        f"| {name} | {first[name]:,.0f} | {statistics.median(each[name] for each in later):,.0f} "
        f"({min(each[name] for each in later):,.0f} to {max(each[name] for each in later):,.0f}) |"
        for name in first
    ]
    head = f"| after the HTML has arrived | first visit | median of {loads} later ones (least to most) |\n|---|--:|--:|"
    return "\n".join([head, *lines])


def take_picture(page: Page, file: Path) -> None:
    chart = page.locator("#charts .wb-chart").first.bounding_box()
    clip = {"x": 0, "y": 0, "width": 1400, "height": chart["y"] + chart["height"] + 20}
    page.screenshot(path=file, full_page=True, clip=clip)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loads", type=int, default=7)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--port", type=int, default=17960)
    parser.add_argument("--picture", metavar="FILE", type=Path)
    args = parser.parse_args()
    pair, address = decoders.load_pair(), f"http://127.0.0.1:{args.port}"
    speeds: dict[str, list[tuple[float, float]]] = defaultdict(list)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        environment = {**os.environ, "WORKBENCH_DATA": data, "GRADIO_SERVER_PORT": str(args.port)}
        app = Path(__file__).parents[2] / "app.py"
        server = subprocess.Popen([sys.executable, app], env=environment, stdout=subprocess.PIPE, text=True)
        try:
            next(line for line in server.stdout if "http" in line)
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page, last = browser.new_page(viewport={"width": 1400, "height": 1000}), None
            paints = paint_table(page, address, args.loads)
            if args.picture:
                take_picture(page, args.picture)
            page.goto(f"{address}?max_new_tokens={args.tokens}")
            page.wait_for_timeout(2000)
            for i in range(args.rounds + 1 if args.rounds else 0):
                last, run = on_the_page(page, address, last)
                shown = drawn(run)
                for name, speed in alone(pair, run).items():
                    if i:  # the first round warms up
                        speeds[name].append((shown[name], speed))
            browser.close()
        finally:
            server.terminate()
    print(f"{paints}\n")
    print(
        f"{args.rounds} rounds, {args.tokens} tokens; load average {load:.1f} before, {os.getloadavg()[0]:.1f} after\n"
    )
    print(
        "| decoder | page | library | page over library: of the medians (least to most of a round) |\n|---|---|---|---|"
    )
    for name, pairs in speeds.items():
        shown, own = (statistics.median(side) for side in zip(*pairs, strict=True))
        ratios = [a / b for a, b in pairs]
        print(f"| {name} | {shown:.0f} | {own:.0f} | {shown / own:.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |")


if __name__ == "__main__":
    main()
