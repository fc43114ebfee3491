"""Whether the clock can be trusted, on an idle machine and beside other programs.

    python -m tests.speed.steady --runs 20            # everything, about twenty minutes
    python -m tests.speed.steady --only threads laps  # the cost of the threads and of the laps

The same comparison runs again and again. Conditions, one run of each in turn: idle; a Chromium tab
that animates; one busy process; two busy processes. Ratios to greedy are compared with the idle
median at the same number of threads."""

import argparse
import multiprocessing
import os
import re
import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import torch

import decoders
from workbench.kinds.comparison.study import Comparison
from workbench.measuring import session
from workbench.measuring.cycles import PATIENCE_SECONDS
from workbench.measuring.threads import Threads, chosen
from workbench.runs import doubts, laps
from workbench.runs.estimates import rows
from workbench.studies.settings import Settings

PROMPT = "Once upon a time, there was a little girl named Lily. She"
DECODERS = ["greedy", "beam_search", "speculative", "mtad", "dsbd"]
ASKED = {"decoders": DECODERS, "max_new_tokens": 64, "temperature": 1.0, "top_k": 20, "top_p": 0.9}
ANIMATION = (
    """<style>@keyframes turn { to { transform: rotate(360deg); } }
div { width: 200px; height: 200px; margin: 90px; background:
linear-gradient(red, blue); animation: turn 1s linear infinite; }</style>"""
    + "<div></div>" * 12
)
PARTS = ("ratios", "threads", "laps")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=20, help="of each condition")
    parser.add_argument(
        "--threads", type=int, default=1, help="held in all runs whose ratios are compared"
    )
    parser.add_argument(
        "--conditions", nargs="+", choices=list(CONDITIONS), default=list(CONDITIONS)
    )
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    args = parser.parse_args()
    pair = decoders.load_pair()
    print(
        f"{args.runs} runs of each condition, load average {os.getloadavg()[0]:.2f} before, "
        f"{os.cpu_count()} cores"
    )
    parts: dict[str, Callable[[], None]] = {
        "ratios": lambda: ratios(pair, args.runs, args.threads, args.conditions),
        "threads": lambda: threads(pair),
        "laps": lambda: cost_of_laps(pair, args.threads),
    }
    for part in args.only:
        print(f"\n*{part}*\n")
        parts[part]()


def ratios(pair: decoders.ModelPair, runs: int, threads: int, conditions: Sequence[str]) -> None:
    """For each decoder and condition: ratios near the idle median, and ratios marked unsteady."""
    torch.set_num_threads(threads)
    found: dict[str, list[dict[str, tuple[float, list[str]]]]] = {
        name: [] for name in CONDITIONS if name in conditions
    }
    # the conditions in turn: what the machine's host does meanwhile favours none of them
    for _ in range(runs):
        for name, each in found.items():
            with CONDITIONS[name]():
                time.sleep(2)
                each.append(once(pair, threads))
    print(f"threads held: {threads}\n")
    print(
        "| decoder | condition | ratio: median (least to most) | within 10% of the idle median | "
        "within 15% or marked | marked |"
    )
    print("|---|---|---|---|---|---|")
    for decoder in DECODERS[1:]:
        middle = statistics.median(run[decoder][0] for run in found["idle"])
        for name, each in found.items():
            values, marked = zip(*(run[decoder] for run in each), strict=True)
            near = sum(abs(v / middle - 1) <= 0.10 for v in values)
            sound = sum(
                abs(v / middle - 1) <= 0.15 or bool(m) for v, m in zip(values, marked, strict=True)
            )
            spread = f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"
            print(
                f"| {decoder} | {name} | {spread} | {near} of {runs} | {sound} of {runs} | "
                f"{sum(map(bool, marked))} of {runs} |"
            )
    print()
    for name, each in found.items():
        reasons = Counter(
            re.sub(r"\d+%?", "n", reason)
            for run in each
            for _, why in run.values()
            for reason in why
        )
        print(f"why marked, {name}: {dict(reasons) or 'nothing'}")


def once(pair: decoders.ModelPair, threads: int) -> dict[str, tuple[float, list[str]]]:
    """Each decoder's ratio to greedy, and why it is marked unsteady, if it is."""
    study = Comparison(PROMPT, Settings.from_json(ASKED))
    *_, ended = session.run(
        pair, study, threads=Threads(threads, "held"), patience=PATIENCE_SECONDS
    )
    return {
        row.decoder: (
            laps.ratio(row.first, row.greedy[0]).value,
            doubts.unsteady(row.first, row.greedy[0]),
        )
        for row in rows(ended.run.results)
    }


def threads(pair: decoders.ModelPair) -> None:
    """The cost of the chosen number of threads against the best one.

    And that of a pass beside a busy process against an idle one."""
    counts = range(1, (os.cpu_count() or 1) + 1)
    picked = chosen(pair)
    idle = {count: pass_seconds(pair, count) for count in counts}
    best = min(idle.values())
    print(
        f"idle: chosen {picked.count} ({picked.reason}); ms per pass: {_listed(idle)}; over the "
        f"best: {idle[picked.count] / best:.2f}"
    )
    with busy(1):
        time.sleep(2)
        picked = chosen(pair)
        seconds = pass_seconds(pair, picked.count)
    print(
        f"beside one busy process: chosen {picked.count} ({picked.reason}); ms per pass: "
        f"{1e3 * seconds:.2f}; over the idle single-threaded pass: {seconds / idle[1]:.2f}"
    )


def cost_of_laps(pair: decoders.ModelPair, threads: int) -> None:
    """Three laps over one, wall time of the whole run."""
    torch.set_num_threads(threads)
    spent: dict[int, list[float]] = {1: [], 3: []}
    for _ in range(5):
        for timings, each in spent.items():
            study = Comparison(PROMPT, Settings.from_json({**ASKED, "timings": timings}))
            began = time.perf_counter()
            list(session.run(pair, study, threads=Threads(threads, "held")))
            each.append(time.perf_counter() - began)
    once, thrice = (statistics.median(each) for each in spent.values())
    print(f"one timing {once:.2f} s, three {thrice:.2f} s: {thrice / once:.2f} times")


def pass_seconds(pair: decoders.ModelPair, count: int) -> float:
    """Of one greedy pass: the median of 64."""
    torch.set_num_threads(count)
    ends = []
    for event in decoders.stream(pair, PROMPT, "greedy", max_new_tokens=64, ignore_eos=True):
        if event.round is not None:
            ends.append(time.perf_counter())
    return statistics.median(after - before for before, after in pairwise(ends))


def _listed(seconds: dict[int, float]) -> str:
    return ", ".join(f"{count}: {1e3 * s:.2f}" for count, s in seconds.items())


# ---- what else is on the machine


@contextmanager
def nothing() -> Iterator[None]:
    yield


@contextmanager
def busy(count: int) -> Iterator[None]:
    """This number of processes that compute without end."""
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def spin() -> None:
    while True:
        pass


@contextmanager
def browser() -> Iterator[None]:
    """A Chromium tab that draws without end."""
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=path,
            args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = chromium.new_page()
        page.set_content(ANIMATION)
        try:
            yield
        finally:
            chromium.close()


CONDITIONS = {
    "idle": nothing,
    "a tab that animates": browser,
    "one busy process": lambda: busy(1),
    "two busy processes": lambda: busy(2),
}

if __name__ == "__main__":
    main()
