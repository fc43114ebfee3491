"""Load made by `vllm bench serve`, vLLM's own generator (VllmBench).

Source:
    vLLM 0.32.0: `vllm/benchmarks/serve.py` and `vllm/benchmarks/lib/endpoint_request_func.py`.
"""

import json
import os
import subprocess
import time
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
from workbench.engines.load import LISTEN_SECONDS, Load, Stopped, never
from workbench.engines.record import Query, Record, Speculation

PATH = "/v1/completions"  # the only one that it asks here
KEY = "OPENAI_API_KEY"
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

    def unfit(self, client: Client) -> str:
        """As of `Generator`."""
        if client.dialect.path != PATH:
            return f"`vllm bench serve` asks {PATH}, but this server takes {client.dialect.path}."
        if client.wire.engine.here:
            return ""
        return "`vllm bench serve` follows redirects, so it asks servers of its own machine only."

    def make(
        self,
        client: Client,
        queries: Sequence[Query],
        at_once: int,
        window: Callable[[], AbstractContextManager[Any]] = nullcontext,
        stopped: Callable[[], bool] = never,
    ) -> Load:
        """As of `Generator`; all requests have the first one's seed."""
        rounds = -(-len(queries) // at_once)
        patience = STARTING + client.wire.limits.total * rounds
        with TemporaryDirectory() as folder, TemporaryFile() as log:
            words = self._command(client, queries, at_once, Path(folder))
            with guarded(words, self._environ(client), log) as process:
                status = _ended(process, client, patience, stopped)
            file = Path(folder, "result.json")
            if status or not file.is_file() or file.stat().st_size > LARGEST:
                said = client.wire.hidden(last_words(log))
                raise InputError(
                    f"`vllm bench serve` failed; correct it, or set WORKBENCH_LOAD to `own`. Its "
                    f"last words: {said}."
                )
            return self._read(client, file.read_text(encoding="utf-8"), queries)

    def _environ(self, client: Client) -> dict[str, str]:
        """Its environment, with no key but the server's, and no proxy and no .netrc."""
        secret = client.wire.engine.secret(self.environ)
        kept = {
            name: value
            for name, value in self.environ.items()
            if name != KEY and not name.lower().endswith("_proxy")
        }
        return {**kept, "NETRC": os.devnull, **({KEY: secret} if secret else {})}

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

    def _read(self, client: Client, text: str, queries: Sequence[Query]) -> Load:
        count, most = len(queries), queries[0].max_tokens
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
        if max(found.output_lens, default=0) > most:
            raise client.wire.fault(
                f"wrote {max(found.output_lens):,} tokens though {most:,} were asked for"
            )
        records = tuple(_record(client, *each) for each in zip(*lists, strict=True))
        return Load(records, found.duration, _speculation(found))


def _ended(
    process: subprocess.Popen[bytes], client: Client, patience: float, stopped: Callable[[], bool]
) -> int:
    """The exit status, when it has ended."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        try:
            return process.wait(LISTEN_SECONDS)
        except subprocess.TimeoutExpired:
            if stopped():
                raise Stopped from None
    raise client.wire.fault(f"kept `vllm bench serve` busy for {patience:g} s, and it was ended")


def _record(
    client: Client, tokens: int, first: float, gaps: Sequence[float], seconds: float, text: str
) -> Record:
    arrivals = tuple((at, None) for at in accumulate((first, *gaps)))
    # It takes 1 where the server tells no number.
    count = None if tokens == 1 and len(gaps) > 1 else tokens
    return Record(
        client.wire.engine.name, client.dialect.kind, client.shown_model,
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
