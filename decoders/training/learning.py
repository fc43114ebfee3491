"""Training a drafter for a target (Training): on texts, and on what the target itself writes.

The loss is the distance of the drafter's distribution from the target's at every place of a draft,
which is one minus the chance that the token there is accepted, and their divergence. Muon learns
matrices, AdamW norms, embeddings and output rows.
"""

import json
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from decoders.devices import device_of
from decoders.distribution import Warping, warp
from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError, first_line
from decoders.generate import generate
from decoders.training import texts
from decoders.training.students import Acceptance, DraftStudent, HeadStudent, Recipe, Step
from decoders.training.texts import Batches, HeldOut, Text


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


CHECKPOINT_SECONDS = 120
MEASURE_SECONDS = 600
LATER = 0.9  # the weight of each place of a draft beside the one before
ANSWER = 64  # tokens of the answers that acceptance is measured on
DRAFT = 4  # places that acceptance is measured at
PART = 8  # answers that are measured at a time
USED = Warping(temperature=0.7, top_p=0.9)
GREEDY = Warping(temperature=0.0)


class Training:
    """The training of one drafter, which resumes from its folder.

    Args:
        pair: its target, with a tokenizer
        work: folder of the target's own texts, of checkpoints and of a log
        recipe: sizes
        files: text files. Their documents are learnt from, and their beginnings are prompts.
        questions: files of questions, which the target answers
        answers: files of what the target has answered elsewhere, see `texts.read_answers`
        held_out: files of questions that acceptance is measured on; without them documents or
            questions are held out. No text that shares a run of eight words with one is learnt
            from.
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
        pair.packed["target"].refuse_features((0,))
        self.pair, self.work, self.recipe = pair, work, recipe
        self.device = pair.target.device
        config = pair.target.config.get_text_config()
        self._gather(files, questions, answers, held_out, config.vocab_size)
        self._claim(start)
        torch.manual_seed(recipe.seed)
        self.student = self._student(start, config)
        pair.packed["target"].refuse_features(self.student.reads)
        output = {id(weight) for weight in self.student.output.parameters()}
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
        self.step = self.tokens = 0
        self._simple = self._rows_are_products()
        self._resume()

    def _student(self, start: Path | None, config: Any) -> HeadStudent | DraftStudent:
        target, tokenizer, r = self.pair.target, self.pair.tokenizer, self.recipe
        if r.kind == "draft":
            if start is not None:
                return DraftStudent.saved(start, target, tokenizer)
            return DraftStudent.of(r, target, tokenizer)
        if start is not None:
            head = HeadStudent.saved(start, target)
            return head.proposing(self._frequent()) if r.choose else head
        if r.reads:
            self.pair.packed["target"].refuse_features(r.reads)
        return HeadStudent.of(r, target, self._frequent())

    def _frequent(self) -> np.ndarray:
        """The most frequent tokens of the answers that are given, end tokens among them, rising."""
        size = self.pair.target.config.get_text_config().vocab_size
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
        vocabulary: int,
    ) -> None:
        pair, length = self.pair, self.recipe.length
        documents = list(texts.read_texts(files))
        queries = texts.read_questions(questions)
        if held_out:
            self.held_out = HeldOut(texts.read_questions(held_out))
            probes = [texts.as_prompt(pair, question) for question in self.held_out.prompts]
        else:
            # Enough of each, the last if chance has held out too few.
            documents, spare = texts.split(documents)
            queries, others = texts.split(queries)
            if not spare and not others:
                spare, documents = (documents[-1:], documents[:-1] or documents)
            self.held_out = HeldOut(others)
            probes = [texts.as_prompt(pair, question) for question in others]
            for text in spare:
                ids = texts.tokens_of(pair, text)
                probes += [ids[i : i + length // 4] for i in range(0, len(ids), length)]
        self.probes = [probe for probe in probes if probe][: self.recipe.probes]
        clean = [text for text in documents if not self.held_out.shares(text)]
        self.given: list[Text] = []
        for text in clean:
            self.given += texts.pieces(texts.tokens_of(pair, text), length)
        self.dropped = len(documents) - len(clean)
        rows = list(texts.read_answers(answers, vocabulary))
        if not probes:  # nor are there others
            spare_rows = rows[:: texts.HELD_OUT]
            rows = [row for i, row in enumerate(rows) if i % texts.HELD_OUT]
            probes = [row.ids[: row.prompt or length // 4].tolist() for row in spare_rows]
            self.probes = probes[: self.recipe.probes]
        for row in rows:
            shares = self.held_out.prompts and self.held_out.shares(
                pair.tokenizer.decode(row.ids.tolist())
            )
            self.dropped += bool(shares)
            if not shares:
                self.given.append(Text(row.ids[:length], min(row.prompt, length)))
        beginnings = [text.ids[: max(1, length // 8)].tolist() for text in self.given[::-1]]
        clean = [question for question in queries if not self.held_out.shares(question)]
        self.dropped += len(queries) - len(clean)
        self.asked = [texts.as_prompt(pair, question) for question in clean] or beginnings
        rng = np.random.default_rng(self.recipe.seed)
        order = rng.permutation(len(self.asked))
        self.asked = [self.asked[i] for i in order[: self.recipe.own_texts]]
        total = sum(len(text.ids) for text in self.given) + len(self.asked) * length
        if total < 4 * length or not self.probes:
            raise InputError(
                f"The files hold too little text; give at least {8 * length} tokens of it, better "
                "a million."
            )

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
        """Let the target answer, see `texts.write_own`; first the held-out prompts."""
        self._probe_answers()
        r = self.recipe
        yield from texts.write_own(self.pair, self.asked, self.work, r.length, r.seed)

    def _probe_answers(self) -> list[tuple[Text, float]]:
        """The target's answers to the held-out prompts, at temperature 0 and as drafts are used."""
        file = self.work / "held-out.jsonl"
        if not file.is_file():
            rows: list[list] = []
            for warping in (GREEDY, USED):
                results = generate(
                    self.pair, self.probes, "multinomial", max_new_tokens=ANSWER, ignore_eos=True,
                    temperature=warping.temperature, top_p=warping.top_p, max_batch=32,
                    seed=self.recipe.seed,
                )  # fmt: skip
                for prompt, result in zip(self.probes, results, strict=True):
                    if result.error is not None:
                        raise result.error
                    rows.append([prompt, result.tokens, warping.temperature])
            part = file.with_suffix(".part")
            part.write_text("".join(json.dumps(row) + "\n" for row in rows))
            os.replace(part, file)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        return [(Text(np.array([*p, *a], np.int32), len(p)), t) for p, a, t in rows]

    # ---- steps

    def run(self) -> Iterator[Step]:
        """Train to the last step; each one is yielded, and checkpoints are written in between."""
        for _ in self.write_own():
            pass
        r = self.recipe
        own = texts.own_texts(self.work, self.pair.vocabulary)
        # A text needs a place for a draft of all lengths.
        every = [t for t in [*self.given, *own] if len(t.ids) > max(t.prompt, 2) + 1]
        batches = Batches(every, r.rows * r.length, r.seed)
        saved = measured = began = time.monotonic()
        first = self.step
        while self.step < r.steps:
            loss = self._learn(batches[self.step])
            self.step += 1
            last, now = self.step == r.steps, time.monotonic()
            acceptance: Acceptance | None = None
            if last or now - measured > MEASURE_SECONDS:
                acceptance = self.acceptance()
                self._log(loss, acceptance)
                measured = time.monotonic()
            if last or now - saved > CHECKPOINT_SECONDS:
                self.checkpoint()
                saved = time.monotonic()
            each = (time.monotonic() - began) / (self.step - first)
            left = each * (r.steps - self.step)
            yield Step(self.step, r.steps, self.tokens, loss, left, acceptance)

    def rate(self, step: int) -> float:
        """The factor of the learning rates at a step: rising, then falling straight to zero."""
        steps = self.recipe.steps
        return min((step + 1) / min(50, 1 + steps // 10), (steps - step) / steps, 1.0)

    def _learn(self, batch: Sequence[Text]) -> float:
        r, module = self.recipe, self.student.module
        ids, prompts, lengths = texts.padded(batch)
        tokens = torch.from_numpy(ids).to(self.device)
        counted = self._counted(prompts, lengths, ids.shape[1])
        states, p = self._taught(tokens, counted)
        # The divergence teaches fast at first; what is wanted in the end is the overlap.
        share = 1 - 0.7 * self.step / r.steps
        losses = []
        with self._passes():
            places = r.places if isinstance(self.student, HeadStudent) else 1
            for k, rows in enumerate(self.student.rows(tokens, states, places)):
                here = self._started(counted, k)
                known = p[here[counted]]
                if not len(known):
                    continue
                log_q = F.log_softmax(self.student.output(rows[here]).float(), -1)
                missing = 0.5 * (known - log_q.exp()).abs().sum(-1).mean()
                divergence = -(known * log_q).sum(-1).mean()
                losses.append(LATER**k * (missing + share * divergence))
        if not losses:
            return 0.0
        loss = torch.stack(losses).sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for p in module.parameters() if p.requires_grad], 1.0)
        self.optimizers.step(self.rate(self.step))
        self.tokens += int(counted.sum())
        return loss.item()

    def _passes(self) -> Any:
        dtype = device_of(self.device).training_dtype
        return torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)

    def _counted(self, prompts: np.ndarray, lengths: np.ndarray, longest: int) -> torch.Tensor:
        """Whether row i, made of token i + 1, counts: (B, T - 1), of the answers' tokens i + 2."""
        i = np.arange(longest - 1)[None] + 2
        inside = (i >= prompts[:, None]) & (i < lengths[:, None])
        return torch.from_numpy(inside).to(self.device)

    @staticmethod
    def _started(counted: torch.Tensor, k: int) -> torch.Tensor:
        """Of the rows that count those at whose k-th place a draft stands that began at one."""
        if not k:
            return counted
        before = torch.zeros_like(counted)
        before[:, k:] = counted[:, :-k]
        return counted & before

    @torch.no_grad()
    def _taught(
        self, tokens: torch.Tensor, counted: torch.Tensor, whole: bool = False
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The target's states, each (B, T, H), and what it says after the rows that count.

        Its chances of the tokens that the drafter proposes, (n, Vd), sum up to 1 among them. With
        `whole` they are its logits of all tokens, (n, V).
        """
        target: Any = self.pair.target
        options = {"use_cache": False, "output_hidden_states": True}
        with self._passes():
            if self._simple:
                out = target.base_model(tokens, **options)
                state, output = out.last_hidden_state[:, 1:][counted], target.lm_head.weight
                output = output if whole else output[self.student.proposed]
                logits = F.linear(state, output).float()
            else:
                out = target(tokens, **options)
                logits = out.logits[:, 1:][counted].float()
                logits = logits if whole else logits[:, self.student.proposed]
        states = [out.hidden_states[layer].float() for layer in self.student.reads]
        return states, logits if whole else logits.softmax(-1)

    @torch.no_grad()
    def _rows_are_products(self) -> bool:
        """Whether logits are the last states times the rows of an output layer, and no more."""
        target: Any = self.pair.target
        if getattr(getattr(target, "lm_head", None), "bias", 0) is not None:
            return False
        tokens = torch.arange(8, device=self.device)[None] % self.pair.vocabulary
        try:
            state = target.base_model(tokens, use_cache=False).last_hidden_state
            product = F.linear(state, target.lm_head.weight)
        except (RuntimeError, AttributeError):
            return False
        logits = target(tokens, use_cache=False).logits
        return product.shape == logits.shape and torch.allclose(product, logits, 1e-3, 1e-3)

    # ---- figures

    @torch.no_grad()
    def acceptance(self) -> Acceptance:
        """What becomes of drafts on the held-out answers, wherever a draft of all places fits."""
        shares = []
        for warping in (GREEDY, USED):
            answers = [t for t, at in self._probe_answers() if at == warping.temperature]
            reached = torch.zeros(DRAFT + 1, dtype=torch.float64)
            for i in range(0, len(answers), PART):
                reached += self._reached(answers[i : i + PART], warping)
            shares.append(tuple((reached[1:] / reached[:-1].clamp(min=1e-9)).tolist()))
        return Acceptance(*shares)

    def _reached(self, answers: Sequence[Text], warping: Warping) -> torch.Tensor:
        """The expected number of drafts that are kept up to each place, (DRAFT + 1,).

        A text that the target drew stands for all: that a draft's token is kept and is x has the
        probability min(p(x), q(x)), and the text has x with p(x). Where a draft's first tokens are
        those of the text, each start therefore counts as the product of min(1, q / p).
        """
        ids, prompts, lengths = texts.padded(answers)
        tokens = torch.from_numpy(ids).to(self.device)
        counted = self._counted(prompts, lengths, ids.shape[1])
        states, logits = self._taught(tokens, counted, whole=True)
        p = warp(logits, warping)
        place = torch.full(counted.shape, -1, device=self.device)
        place[counted] = torch.arange(len(p), device=self.device)
        whole = counted.clone()  # drafts that begin here
        for k in range(1, DRAFT):
            whole[:, :-k] &= counted[:, k:]
            whole[:, -k:] = False
        starts = whole.nonzero()
        weight = torch.ones(len(starts), dtype=torch.float64, device=self.device)
        reached = [weight.sum()]
        with self._passes():
            every = list(self.student.rows(tokens, states, DRAFT))
        for k, rows in enumerate(every):
            b, i = starts[:, 0], starts[:, 1] + k
            with self._passes():
                said = self.student.output(rows[b, i]).float()
            q = torch.zeros_like(p[: len(said)])
            q[:, self.student.proposed] = warp(said, warping)
            here, token = p[place[b, i]], tokens[b, i + 2][:, None]
            overlap = torch.minimum(here, q).sum(-1)
            reached.append((weight * overlap).sum())
            chance, guess = here.gather(1, token)[:, 0], q.gather(1, token)[:, 0]
            weight = weight * (guess / chance.clamp(min=1e-20)).clamp(max=1) * (chance > 0)
        return torch.stack(reached).cpu()

    def _log(self, loss: float, acceptance: Acceptance) -> None:
        line = {
            "step": self.step, "tokens": self.tokens, "loss": round(loss, 4),
            "greedy": [round(a, 4) for a in acceptance.greedy],
            "drawn": [round(a, 4) for a in acceptance.drawn],
        }  # fmt: skip
        with open(self.work / "log.jsonl", "a") as file:
            file.write(json.dumps(line) + "\n")

    # ---- files

    @property
    def _checkpoint(self) -> Path:
        return self.work / "checkpoint.pt"

    def _trained(self) -> dict[str, torch.Tensor]:
        module = self.student.module
        frozen = {name for name, p in module.named_parameters() if not p.requires_grad}
        return {name: w for name, w in module.state_dict().items() if name not in frozen}

    def checkpoint(self) -> None:
        """Write what a training needs to go on from here."""
        part = self._checkpoint.with_suffix(".part")
        state = {
            "step": self.step,
            "tokens": self.tokens,
            "module": self._trained(),
            "optimizers": self.optimizers.state_dict(),
        }
        torch.save(state, part)
        os.replace(part, self._checkpoint)

    def _resume(self) -> None:
        if not self._checkpoint.is_file():
            return
        try:
            state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
            if state["module"].keys() != self._trained().keys():
                raise ValueError("it has other weights")
            self.student.module.load_state_dict(state["module"], strict=False)
            self.optimizers.load_state_dict(state["optimizers"])
            self.step, self.tokens = int(state["step"]), int(state["tokens"])
        # A file that a full disk has cut off fails in any way.
        except Exception as error:
            raise InputError(
                f"The checkpoint {self._checkpoint} is broken ({first_line(error)}); remove it."
            ) from error

    def save(self, folder: Path) -> None:
        """Write the head or draft, see `HeadStudent.save` and `DraftStudent.save`."""
        self.student.save(folder)
