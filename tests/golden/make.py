"""Makes the golden data anew, all of it or the named parts: `python -m tests.golden.make links`.

Settings of decoders are written out as their defaults are now, and named in each call from then on.
"""

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

import decoders
from tests.golden import decoding, links, page, records, stored, terminal
from tests.golden.files import write


def settings() -> dict[str, dict[str, Any]]:
    """All settings of each decoder and variant, by its name."""
    usual = {
        name: {field.name: field.default for field in dataclasses.fields(method)}
        for name, method in decoders.catalog.items()
    }
    variants = {k: {**usual[name], **own} for k, (name, own) in decoding.VARIANTS.items()}
    return usual | variants


def calls(dtype: str) -> dict[str, Any]:
    wanted = settings()
    cases = [case for case in decoding.cases(wanted) if case.dtype == dtype]
    return {"settings": wanted, "records": {case.name: decoding.record(case) for case in cases}}


def answers(folder: Path, wanted: dict[str, dict[str, Any]], every: bool = True) -> dict[str, Any]:
    """What `/compare`, `/branch`, `/draw` and a batch give, without what a clock measured."""
    found = page.answers(folder, wanted, every)
    if every:
        found["batch"] = terminal.measured_batch(folder)
    return {name: records.unclocked(run) for name, run in found.items()}


def asked(folder: Path) -> dict[str, Any]:
    wanted = settings()
    return {"settings": wanted, "answers": answers(folder, wanted)}


def opened(folder: Path) -> dict[str, Any]:
    if not all(path.exists() for path in stored.WRITTEN.values()):
        stored.write(_folder(folder, "written"))
    return stored.opened(_folder(folder, "opened"))


def _folder(folder: Path, name: str) -> Path:
    (folder / name).mkdir()
    return folder / name


PARTS: dict[str, Callable[[Path], Any]] = {
    "float64": lambda _: calls("float64"), "float32": lambda _: calls("float32"),
    "links": lambda _: links.parsed(), "stored": opened, "answers": asked,
    "terminal": terminal.printed,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART")
    torch.set_num_threads(1)
    for name in parser.parse_args().parts or PARTS:
        with TemporaryDirectory() as folder:
            write(name, PARTS[name](Path(folder)))


if __name__ == "__main__":
    main()
