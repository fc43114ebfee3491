"""The files of the golden data: JSON, compressed."""

import json
import lzma
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"


def read(name: str) -> Any:
    return json.loads(lzma.decompress((DATA / f"{name}.json.xz").read_bytes()))


def write(name: str, value: Any) -> None:
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    data = lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME)
    DATA.mkdir(exist_ok=True)
    (DATA / f"{name}.json.xz").write_bytes(data)
