"""Training a drafter for a target (Training): on texts, and on what the target itself writes.

The loss is the distance of the drafter's distribution from the target's at every place of a draft,
which is one minus the chance that the token there is accepted, and their divergence. Muon learns
matrices, AdamW norms, embeddings and output rows.
"""

import json
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForCausalLM

from decoders.devices import device_of
from decoders.engine.loading.heads import load_head
from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError, first_line, refuse
from decoders.generate import generate
from decoders.methods.catalog import catalog
from decoders.trace import Result
from decoders.training import texts
from decoders.training.students import (
    Acceptance,
    DraftStudent,
    HeadStudent,
    Recipe,
    later,
)
from decoders.training.texts import HeldOut, Text


class InFloat32(TorchFunctionMode):
    """Muon's products in float32: torch's Muon asks for bfloat16 whatever the processor."""

    def __torch_function__(
        self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        if func is Tensor.bfloat16:
            return args[0].clone()
        return func(*args, **(kwargs or {}))


class Optimizers:
    """Muon and AdamW as one. Each group of parameters remembers its `peak` rate.

    Args:
        muon: groups of matrices, each with "params" and "peak"
        adam: groups of all others
        decay: weight decay of the matrices
        adam_decay: weight decay of the others

    Source:
        Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks"
    """

    def __init__(
        self,
        muon: Sequence[dict[str, Any]],
        adam: Sequence[dict[str, Any]],
        decay: float,
        adam_decay: float = 0.0,
    ):
        self.each: list[torch.optim.Optimizer] = [
            torch.optim.Muon([{**g, "weight_decay": decay} for g in muon], lr=muon[0]["peak"]),
            torch.optim.AdamW(list(adam), betas=(0.9, 0.95), weight_decay=adam_decay),
        ]
        self._device = muon[0]["params"][0].device

    def step(self, factor: float) -> None:
        """Make a step at `factor` times the peak rates, and forget the gradients."""
        for one in self.each:
            for group in one.param_groups:
                group["lr"] = group["peak"] * factor
            exact = device_of(self._device).training_dtype == torch.float32
            with InFloat32() if exact else nullcontext():
                one.step()
            one.zero_grad()

    def state_dict(self) -> list[dict]:
        return [one.state_dict() for one in self.each]

    def load_state_dict(self, states: Sequence[dict]) -> None:
        for one, state in zip(self.each, states, strict=True):
            one.load_state_dict(state)


MEASURE_SECONDS = 300  # between two checkpoints, with what is kept of drafts
PLACES = 3  # of a head's draft, all of which are trained
LATER = 0.9  # the weight of each place of a draft beside the one before
ANSWER = 64  # tokens of the answers that acceptance is measured on
DRAFT = 4  # places that acceptance is measured at


class Training:
    """The training of one drafter, which resumes from its folder.

    Args:
        pair: its target, with a tokenizer
        work: folder of the target's own texts, of checkpoints and of the latest drafter
        recipe: sizes
        files: text files. Their documents are learnt from, and their beginnings are prompts.
        questions: files of questions, which the target answers
        answers: files of what the target has answered elsewhere, see `texts.read_answers`
        held_out: files of questions that acceptance is measured on; without them one in a hundred
            is held out, of the questions or, if there are none, of the pieces of other texts. No
            text that shares a run of eight words with such a question is learnt from.
        start: folder of a head or draft whose training goes on, in place of weights that are drawn

    Raises:
        InputError: if the texts are too short, or the folder holds another training
    """

    def __init__(
        self,
        pair: ModelPair,
        work: Path,
        recipe: Recipe,
        files: Sequence[Path] = (),
        questions: Sequence[Path] = (),
        answers: Sequence[Path] = (),
        held_out: Sequence[Path] = (),
        start: Path | None = None,
    ):
        if pair.tokenizer is None:
            raise InputError(
                "A drafter is trained on text, which needs the target's tokenizer; load it with "
                "the target."
            )
        self.pair, self.work, self.recipe = pair, work, recipe
        self.device = pair.target.device
        self._gather(files, questions, answers, held_out)
        self._claim(start)
        torch.manual_seed(recipe.seed)
        kind: Any = HeadStudent if recipe.kind == "head" else DraftStudent
        self.student: HeadStudent | DraftStudent = (
            kind.of(recipe, pair, self._frequent()) if start is None else kind.saved(start, pair)
        )
        pair.packed["target"].refuse_features(self.student.reads)
        output = {id(weight) for weight in self.student.module.lm_head.parameters()}
        trained = [p for p in self.student.module.parameters() if p.requires_grad]
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in output]
        tables = {
            id(m.weight) for m in self.student.module.modules() if isinstance(m, torch.nn.Embedding)
        }
        rate = recipe.rate
        self.optimizers = Optimizers(
            [{"params": [p for p in matrices if id(p) not in tables], "peak": recipe.muon}],
            [
                {"params": [p for p in trained if p.ndim != 2], "peak": rate},
                {"params": [p for p in matrices if id(p) in tables], "peak": rate},
                {"params": [p for p in trained if id(p) in output], "peak": rate / 3},
            ],
            decay=0.01,
            adam_decay=0.01,
        )
        self.step = 0
        self._checkpoint = work / "checkpoint.pt"
        self._resume()

    def _frequent(self) -> np.ndarray:
        """The most frequent tokens of the answers that are given, end tokens among them, rising."""
        size = self.pair.vocabulary
        count = np.zeros(size, np.int64)
        for text in self.given:
            count += np.bincount(text.ids[text.prompt :], minlength=size)
        count[sorted(self.pair.end_tokens)] += 1 + count.max()
        frequent = np.argsort(-count, kind="stable")
        return np.sort(frequent[: min(self.recipe.vocabulary, size)])

    # ---- texts

    def _gather(
        self,
        files: Sequence[Path],
        questions: Sequence[Path],
        answers: Sequence[Path],
        held_out: Sequence[Path],
    ) -> None:
        pair, length, self.dropped = self.pair, self.recipe.length, 0
        queries = texts.read_questions(questions)
        exam = texts.read_questions(held_out)
        if not exam:
            exam = queries[:: texts.HELD_OUT]
            del queries[:: texts.HELD_OUT]
        self.held_out = HeldOut(exam)
        self.given: list[Text] = []
        for text in self._clean(texts.read_texts(files)):
            ids = pair.tokenizer(text, add_special_tokens=False).input_ids
            ids = np.array([*ids, *sorted(pair.end_tokens)[:1]], np.int32)
            self.given += [Text(ids[i : i + length]) for i in range(0, len(ids), length)]
        rows = texts.read_answers(answers, pair.vocabulary)
        for row in self._clean(rows, lambda row: pair.tokenizer.decode(row.ids.tolist())):
            self.given.append(Text(row.ids[:length], min(row.prompt, length)))
        probes = [texts.as_prompt(pair, question) for question in exam]
        if not probes:
            spare = self.given[:: texts.HELD_OUT]
            probes = [text.ids[: text.prompt or length // 4].tolist() for text in spare]
            del self.given[:: texts.HELD_OUT]
        self.probes = probes[: self.recipe.probes]
        beginnings = [text.ids[: max(1, length // 8)].tolist() for text in self.given[::-1]]
        prompts = [texts.as_prompt(pair, each) for each in self._clean(queries)] or beginnings
        order = np.random.default_rng(self.recipe.seed).permutation(len(prompts))
        self.asked = [prompts[i] for i in order[: self.recipe.own_texts]]
        total = sum(len(text.ids) for text in self.given) + len(self.asked) * length
        if total < 4 * length or not probes:
            raise InputError(
                f"The files hold too little text; give at least {8 * length} tokens of it, better "
                "a million."
            )

    def _clean(self, every: Iterable[Any], text_of: Callable[[Any], str] = str) -> Iterator[Any]:
        """Those that share no words with a held-out prompt; the others are counted."""
        for each in every:
            if self.held_out.prompts and self.held_out.shares(text_of(each)):
                self.dropped += 1
            else:
                yield each

    def _claim(self, start: Path | None) -> None:
        """Take the folder for this training, or find that it is this training's."""
        table: Any = self.pair.target.get_input_embeddings()
        given = b"".join(text.ids.tobytes() for text in self.given)
        prompts = json.dumps([self.asked, self.probes]).encode()
        stamp = {
            **asdict(self.recipe),
            "texts": zlib.crc32(prompts, zlib.crc32(given)),
            "target": zlib.crc32(table.weight.detach().float().cpu().numpy().tobytes()),
            "start": None if start is None else str(start),
        }
        file, text = self.work / "training.json", json.dumps(stamp)
        try:
            self.work.mkdir(parents=True, exist_ok=True)
            if not file.is_file():
                file.write_text(text)
            same = file.read_text() == text
        except OSError as error:
            raise InputError(
                f"The folder {self.work} cannot be used ({error.strerror}); name another."
            ) from None
        if not same:
            raise InputError(
                f"The folder {self.work} holds another training; name another folder, or give the "
                "same sizes, texts and target."
            )

    def write_own(self) -> Iterator[int]:
        return texts.write_own(
            self.pair, self.asked, self.work, self.recipe.length, self.recipe.seed
        )

    # ---- steps

    def run(self) -> Iterator[tuple[int, float, Acceptance | None]]:
        """Train to the last step; checkpoints are written in between.

        Yields:
            the number of each step, from 1, its loss, and the acceptance where it was measured
        """
        for _ in self.write_own():
            pass
        r = self.recipe
        own = texts.read_answers(sorted(self.work.glob("own-????.jsonl")), self.pair.vocabulary)
        # A text needs a place for a draft of all lengths.
        every = [t for t in [*self.given, *own] if len(t.ids) > max(t.prompt, 2) + 1]
        refuse((not every, "No text is long enough to learn from; give longer ones."))
        batches = islice(texts.in_batches(every, r.rows * r.length, r.seed), self.step, None)
        measured = time.monotonic()
        while self.step < r.steps:
            loss = self._learn(next(batches))
            self.step += 1
            acceptance = None
            if self.step == r.steps or time.monotonic() - measured > MEASURE_SECONDS:
                acceptance = self.acceptance()
                self.checkpoint()
                measured = time.monotonic()
            yield self.step, loss, acceptance

    def _learn(self, batch: Sequence[Text]) -> float:
        r, module = self.recipe, self.student.module
        ids, prompts, lengths = texts.padded(batch)
        tokens = torch.from_numpy(ids).to(self.device)
        # Row i is made of token i + 1. It counts if the answer has the token after that.
        after = np.arange(ids.shape[1] - 1) + 2
        counts = (after >= prompts[:, None]) & (after < lengths[:, None])
        counted = torch.from_numpy(counts).to(self.device)
        states, p = self._taught(tokens, counted)
        # The divergence teaches fast at first; what is wanted in the end is the overlap.
        share = 1 - 0.7 * self.step / r.steps
        losses = []
        with self._passes():
            for k, rows in enumerate(self.student.rows(tokens, states, PLACES)):
                here = counted & later(counted, k, axis=1)  # a draft began k places before
                known = p[here[counted]]
                if not len(known):
                    continue
                log_q = F.log_softmax(module.lm_head(rows[here]).float(), -1)
                missing = 0.5 * (known - log_q.exp()).abs().sum(-1).mean()
                divergence = -(known * log_q).sum(-1).mean()
                losses.append(LATER**k * (missing + share * divergence))
        loss = torch.stack(losses).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in module.parameters() if p.requires_grad], 1.0)
        # The learning rates rise, then fall straight to zero.
        rising, falling = (self.step + 1) / min(50, 1 + r.steps // 10), 1 - self.step / r.steps
        self.optimizers.step(min(rising, falling))
        return loss.item()

    def _passes(self) -> Any:
        dtype = device_of(self.device).training_dtype
        return torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)

    @torch.no_grad()
    def _taught(
        self, tokens: torch.Tensor, counted: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The target's states, each (B, T, H), and what it says after the rows that count.

        That is its chances of the tokens that the drafter proposes, (n, Vd), which sum up to 1.
        """
        target: Any = self.pair.target
        with self._passes():
            out = target(tokens, use_cache=False, output_hidden_states=True)
        logits = out.logits[:, 1:][counted][:, self.student.proposed]
        states = [out.hidden_states[layer].float() for layer in self.student.reads]
        return states, logits.float().softmax(-1)

    # ---- figures

    def acceptance(self) -> Acceptance:
        """What becomes of drafts on the held-out prompts, as `generate` decodes them."""
        folder, target = self.work / "latest", self.pair.target
        self.student.save(folder)
        if self.recipe.kind == "head":
            draft: Any = load_head(str(folder), target)
        else:
            draft = AutoModelForCausalLM.from_pretrained(folder, dtype=target.dtype)
            draft = draft.to(self.device)
        pair, method = (
            ModelPair(target, draft, self.pair.tokenizer),
            catalog["speculative"](draft_length=DRAFT),
        )
        shares = []
        for temperature, top_p in ((0.0, 1.0), (0.7, 0.9)):
            results = generate(
                pair, self.probes, method, temperature=temperature, top_p=top_p, max_batch=32,
                max_new_tokens=ANSWER, ignore_eos=True, seed=self.recipe.seed,
            )  # fmt: skip
            shares.append(by_place(results))
        return Acceptance(*shares)

    # ---- files

    def checkpoint(self) -> None:
        """Write what a training needs to go on from here."""
        part, module = self._checkpoint.with_suffix(".part"), self.student.module
        state = {
            "step": self.step,
            "module": {
                name: weight.detach()
                for name, weight in module.named_parameters()
                if weight.requires_grad
            },
            "optimizers": self.optimizers.state_dict(),
        }
        torch.save(state, part)
        os.replace(part, self._checkpoint)

    def _resume(self) -> None:
        if not self._checkpoint.is_file():
            return
        try:
            state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
            self.student.module.load_state_dict(state["module"], strict=False)
            self.optimizers.load_state_dict(state["optimizers"])
            self.step = int(state["step"])
        # A file that a full disk has cut off fails in any way.
        except Exception as error:
            raise InputError(
                f"The checkpoint {self._checkpoint} is broken ({first_line(error)}); remove it."
            ) from error


def by_place(results: Sequence[Result]) -> tuple[float, ...]:
    """Of the tokens that were tested at each place of a draft, the share that was kept."""
    tries, hits = np.zeros((2, DRAFT))
    for result in results:
        if result.error is not None:
            raise result.error
        for each in result.rounds:
            tries[: each.tested] += 1
            hits[: each.accepted] += 1
    return tuple((hits / tries.clip(min=1)).tolist())
