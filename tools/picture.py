"""The picture in README.md: the page as it opens, down to its charts.

python -m tools.picture [--file assets/workbench.png] [--port 17961]
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).parents[1]
USABLE = "document.querySelector('#run')?.disabled === false"
DRAWN = "document.querySelectorAll('#charts .js-plotly-plot .main-svg').length >= 3"


@contextmanager
def chromium(port: int) -> Iterator[tuple[Page, str]]:
    """An empty page of Chromium and the address of a workbench without stored runs.

    Server and browser are processes of their own, which end with the block."""
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        environment = {**os.environ, "WORKBENCH_DATA": data, "GRADIO_SERVER_PORT": str(port)}
        server = subprocess.Popen(
            [sys.executable, ROOT / "app.py"], env=environment, stdout=subprocess.PIPE, text=True
        )
        try:
            next(line for line in server.stdout if "http" in line)
            browser = playwright.chromium.launch(
                executable_path=shutil.which("chromium"), args=["--no-sandbox"]
            )
            size = {"width": 1400, "height": 1000}
            page = browser.new_page(viewport=size, reduced_motion="reduce")  # its end
            yield page, f"http://127.0.0.1:{port}"
            browser.close()
        finally:
            server.terminate()


def take(page: Page, address: str, file: Path) -> None:
    page.goto(address)
    page.wait_for_function(f"{USABLE} && {DRAWN}")
    chart = page.locator("#charts").bounding_box()
    clip = {"x": 0, "y": 0, "width": 1400, "height": chart["y"] + chart["height"] + 20}
    page.screenshot(path=file, full_page=True, clip=clip)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, default=ROOT / "assets" / "workbench.png")
    parser.add_argument("--port", type=int, default=17961)
    args = parser.parse_args()
    with chromium(args.port) as (page, address):
        take(page, address, args.file)


if __name__ == "__main__":
    main()
