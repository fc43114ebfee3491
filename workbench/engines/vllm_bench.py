"""Load made by `vllm bench serve`, vLLM's own generator (VllmBench).

Source:
    vLLM 0.32.0: `vllm/benchmarks/serve.py` and `vllm/benchmarks/lib/endpoint_request_func.py`.
"""

import json
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Annotated, Any

from pydantic import Field

from decoders.errors import InputError
from workbench.engines.answers import Count, Shape, shaped
from workbench.engines.client import Client
from workbench.engines.guard import guarded, last_words
from workbench.engines.load import Load
from workbench.engines.record import Query, Record, Speculation

STARTING = 300.0  # seconds for its own start, besides the requests
LARGEST = 256 * 2**20  # bytes of its result
OF_REQUESTS = ("prompt", "stream", "stream_options", "model")  # fields that it fills in itself
Seconds = Annotated[float, Field(ge=0, le=1e9, strict=False)]


class Result(Shape):
    """The file that it writes with `--save-result --save-detailed`, as far as it is read."""

    duration: Seconds
    completed: Count
    output_lens: list[Count]
    ttfts: list[Seconds]
    itls: list[list[Seconds]]
    latencies: list[Seconds]
    generated_texts: list[str]
    errors: list[str]
    spec_decode_num_drafts: Count = 0
    spec_decode_draft_tokens: Count = 0
    spec_decode_accepted_tokens: Count = 0


@dataclass(frozen=True)
class VllmBench:
    """The generator.

    Attributes:
        program: `vllm`, or its path
        version: its version
        environ: its environment
    """

    program: str
    version: str
    environ: Mapping[str, str]

    says = ""

    @property
    def name(self) -> str:
        return f"vllm bench serve {self.version}"

    @staticmethod
    def found(program: str, environ: Mapping[str, str]) -> "VllmBench":
        """The generator of a program.

        Raises:
            InputError: if it cannot be run
        """
        try:
            told = subprocess.run(
                [program, "--version"], env=dict(environ), stdin=subprocess.DEVNULL,
                capture_output=True, timeout=STARTING, check=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise InputError(
                f"`{program} --version` failed ({type(error).__name__}); name a vllm that runs "
                "with WORKBENCH_LOAD, or set it to `own`."
            ) from None
        words = told.stdout.decode(errors="replace").split()
        return VllmBench(program, words[-1][:80] if words else "of unknown version", environ)

    def make(
        self,
        client: Client,
        queries: Sequence[Query],
        at_once: int,
        window: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> Load:
        """As of `Generator`; all requests have the first one's seed."""
        secret = client.wire.engine.secret(self.environ)
        key = {"OPENAI_API_KEY": secret} if secret else {}
        rounds = -(-len(queries) // at_once)
        patience = STARTING + client.wire.limits.total * rounds
        with TemporaryDirectory() as folder, TemporaryFile() as log:
            words = self._command(client, queries, at_once, Path(folder))
            with guarded(words, {**self.environ, **key}, log) as process:
                try:
                    status = process.wait(patience)
                except subprocess.TimeoutExpired:
                    raise client.wire.fault(
                        f"kept `vllm bench serve` busy for {patience:g} s, and it was ended"
                    ) from None
            file = Path(folder, "result.json")
            if status or not file.is_file() or file.stat().st_size > LARGEST:
                said = client.wire.hidden(last_words(log))
                raise InputError(
                    f"`vllm bench serve` failed; correct it, or set WORKBENCH_LOAD to `own`. Its "
                    f"last words: {said}."
                )
            return self._read(client, file.read_text(encoding="utf-8"), len(queries))

    def _command(
        self, client: Client, queries: Sequence[Query], at_once: int, folder: Path
    ) -> list[str]:
        body = client.dialect.body(queries[0], client.model)
        extra = {name: value for name, value in body.items() if name not in OF_REQUESTS}
        prompts = folder / "prompts.jsonl"
        prompts.write_text(
            "".join(f"{json.dumps({'prompt': query.prompt})}\n" for query in queries),
            encoding="utf-8",
        )
        options = {
            "backend": "openai", "base-url": client.wire.engine.url, "model": client.model,
            "dataset-name": "custom", "dataset-path": prompts, "num-prompts": len(queries),
            "max-concurrency": at_once, "num-warmups": at_once, "result-dir": folder,
            "result-filename": "result.json", "extra-body": json.dumps(extra),
        }  # fmt: skip
        # Without its tokenizer it takes the number of tokens that the server tells.
        switches = ("skip-tokenizer-init", "skip-chat-template", "disable-shuffle", "save-result",
                    "save-detailed", "disable-tqdm")  # fmt: skip
        return [
            self.program, "bench", "serve",
            *(w for name, value in options.items() if value for w in (f"--{name}", str(value))),
            *(f"--{name}" for name in switches),
        ]  # fmt: skip

    def _read(self, client: Client, text: str, count: int) -> Load:
        try:
            found = shaped(Result, json.loads(text))
        except json.JSONDecodeError:
            raise InputError("`vllm bench serve` wrote a result that is not JSON.") from None
        lists = (
            found.output_lens, found.ttfts, found.itls, found.latencies, found.generated_texts,
        )  # fmt: skip
        failed = next((error for error in found.errors if error), "")
        if failed or found.completed != count or any(len(each) != count for each in lists):
            why = client.wire.hidden(failed.strip().splitlines()[-1][:200]) if failed else "no word"
            raise client.wire.fault(
                f"answered {found.completed} of {count} requests of `vllm bench serve`; the first "
                f"failure: {why}".rstrip(".")
            )
        records = tuple(_record(client, *each) for each in zip(*lists, strict=True))
        return Load(records, found.duration, _speculation(found))


def _record(
    client: Client, tokens: int, first: float, gaps: Sequence[float], seconds: float, text: str
) -> Record:
    arrivals = tuple((at, None) for at in accumulate((first, *gaps)))
    # It takes 1 where the server tells no number.
    count = None if tokens == 1 and len(gaps) > 1 else tokens
    return Record(
        client.wire.engine.name, client.dialect.kind, client.model,
        datetime.now(UTC).isoformat(timespec="milliseconds"),
        client.wire.hidden(text), None, count, arrivals, seconds, "",
    )  # fmt: skip


def _speculation(found: Result) -> Speculation | None:
    drafted, accepted, steps = (
        found.spec_decode_draft_tokens,
        found.spec_decode_accepted_tokens,
        found.spec_decode_num_drafts,
    )
    return Speculation(drafted, accepted, steps, of="server") if steps else None
