"""Training a head for a target (train_head): on texts and on what the target itself writes.

The loss is the distance of the head's distribution from the target's at every place of a draft,
which is one minus the chance that the token there is accepted.
"""

import json
import logging
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from decoders.engine.heads.module import HeadSpec
from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError, first_line
from decoders.training.drawn import config_of, drawn
from decoders.training.export import export
from decoders.training.recipe import Progress, Recipe
from decoders.training.texts import own_text, read_texts, rows_of, tokens_of, write_own
from decoders.training.unrolled import unrolled

CHECKPOINT_SECONDS = 120
PROBED = 32  # rows that the held-out acceptance is taken on
LATER = 0.8  # the weight of each place of a draft beside the one before


class Training:
    """The training of one head, which resumes from its folder.

    Args:
        pair: its target, with a tokenizer
        files: the texts
        work: folder of the target's own text, of checkpoints and of a log
        recipe: sizes

    Raises:
        InputError: if the texts are too short, or the folder holds another training
    """

    def __init__(self, pair: ModelPair, files: Sequence[Path], work: Path, recipe: Recipe):
        if pair.tokenizer is None:
            raise InputError(
                "A head is trained on text, which needs the target's tokenizer; load it with the "
                "target."
            )
        pair.packed["target"].refuse_features((0,))
        self.pair, self.work, self.recipe = pair, work, recipe
        self.ids, self.held_out = tokens_of(pair, read_texts(files), 2 * recipe.length)
        self._claim()
        target: Any = pair.target
        config = target.config.get_text_config()
        count = config.num_hidden_layers
        reads = recipe.reads or tuple(sorted({max(1, count // 4), 5 * count // 8, count - 1}))
        pair.packed["target"].refuse_features(reads)
        frequent = np.argsort(-np.bincount(self.ids, minlength=config.vocab_size), kind="stable")
        self.proposed = np.sort(frequent[: min(recipe.vocabulary, config.vocab_size)])
        self.spec = HeadSpec("EAGLE-3", config_of(recipe, config), reads)
        torch.manual_seed(recipe.seed)
        self.module = drawn(self.spec, config, len(self.proposed)).to(target.device)
        self.optimizer = torch.optim.AdamW(
            self.module.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        self._compare = self._compared
        if recipe.compiled:
            self._compare = torch.compile(self._compared, dynamic=False)
        self.step = 0
        self._resume()

    def _claim(self) -> None:
        """Take the folder for this training, or find that it is this training's."""
        table: Any = self.pair.target.get_input_embeddings()
        stamp = {
            **asdict(self.recipe),
            "texts": zlib.crc32(self.ids.tobytes()),
            "target": zlib.crc32(table.weight.detach().float().cpu().numpy().tobytes()),
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
                f"The folder {self.work} holds the training of another head; name another folder, "
                "or give the same sizes, texts and target."
            )

    def write_own(self) -> Iterator[int]:
        """Let the target write its own texts, see `decoders.training.texts.write_own`."""
        r = self.recipe
        yield from write_own(self.pair, self.ids, self.work, r.own_texts, r.length, r.seed)

    # ---- steps

    def run(self) -> Iterator[Progress]:
        """Train to the last step; each one is yielded, and checkpoints are written in between."""
        for _ in self.write_own():
            pass
        self.own = own_text(self.work)
        if len(self.own) < self.recipe.length:
            self.own = self.ids
        saved, began, first = time.monotonic(), time.monotonic(), self.step
        while self.step < self.recipe.steps:
            loss = self._learn(self._batch())
            self.step += 1
            last = self.step == self.recipe.steps
            acceptance: tuple[float, ...] = ()
            if last or time.monotonic() - saved > CHECKPOINT_SECONDS:
                acceptance = self.acceptance()
                self.checkpoint()
                saved = time.monotonic()
            each = (time.monotonic() - began) / (self.step - first)
            left = each * (self.recipe.steps - self.step)
            yield Progress(self.step, self.recipe.steps, loss, left, acceptance)

    def _batch(self) -> torch.Tensor:
        # Seed and step alone decide it, so a resumed training sees the same batches.
        r = self.recipe
        rng = np.random.default_rng([r.seed, self.step])
        own = r.rows // 2 if 2 * self.step >= r.steps else 0
        parts = [rows_of(self.ids, rng, r.rows - own, r.length)]
        parts += [rows_of(self.own, rng, own, r.length)] if own else []
        return torch.cat(parts).to(self.pair.target.device)

    def rate(self, step: int) -> float:
        """The factor of the learning rate at a step: rising, then falling straight to zero."""
        return min((step + 1) / 100, (self.recipe.steps - step) / self.recipe.steps)

    def _learn(self, tokens: torch.Tensor) -> float:
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.rate * self.rate(self.step)
        taught = self._taught(tokens)
        try:
            loss, _ = self._compare(tokens, *taught)
        except Exception as error:
            # There may be no compiler; what else is wrong is wrong without it, too.
            if self._compare == self._compared:
                raise
            logging.getLogger("decoders").warning(
                "The training is not compiled (%s); it takes longer.", first_line(error)
            )
            self._compare = self._compared
            loss, _ = self._compare(tokens, *taught)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    @torch.no_grad()
    def _taught(self, tokens: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
        """The target's states, each (B, T, H), and its chances of the tokens that a head proposes.

        The chances are those after the second token and later ones, (B, T - 1, Vd).
        """
        out = self.pair.target(tokens, use_cache=False, output_hidden_states=True)
        p = out.logits[:, 1:].float().softmax(-1)[..., self.proposed]
        return [out.hidden_states[layer].float() for layer in self.spec.reads], p

    def _compared(
        self, tokens: torch.Tensor, states: list[torch.Tensor], p: torch.Tensor
    ) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """The loss, and for each place of a draft the chance of acceptance.

        Acceptance is the overlap of the two distributions. Beside it counts their divergence, KL(p
        || q) in nats among the tokens that the head proposes, without the entropy of p, which no
        head can change. Later places, which a draft reaches less often, count less.

        Source:
            Leviathan et al. 2023 (arXiv 2211.17192), corollary 3.6
        """
        losses, accepted = [], []
        entering = self.module.entering(states)
        for k, q in enumerate(unrolled(self.module, tokens, entering, self.recipe.places)):
            known, log_q = p[:, k:], F.log_softmax(q[:, k:].float(), -1)
            accepted.append(torch.minimum(known, log_q.exp()).sum(-1).mean())
            divergence = -(known * log_q).sum(-1).mean()
            losses.append(LATER**k * (1 - accepted[-1] + divergence))
        return torch.stack(losses).sum(), accepted

    @torch.no_grad()
    def acceptance(self) -> tuple[float, ...]:
        """The chance of acceptance at each place of a draft, on held-out text."""
        rng = np.random.default_rng(self.recipe.seed)
        tokens = rows_of(self.held_out, rng, PROBED, self.recipe.length)
        tokens = tokens.to(self.pair.target.device)
        _, found = self._compared(tokens, *self._taught(tokens))
        return tuple(float(a) for a in found)

    # ---- files

    @property
    def _checkpoint(self) -> Path:
        return self.work / "checkpoint.pt"

    def checkpoint(self) -> None:
        """Write what a training needs to go on from here."""
        part = self._checkpoint.with_suffix(".part")
        state = {
            "step": self.step,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, part)
        os.replace(part, self._checkpoint)

    def _resume(self) -> None:
        if not self._checkpoint.is_file():
            return
        try:
            state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
            self.module.load_state_dict(state["module"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = int(state["step"])
        # A file that a full disk has cut off fails in any way.
        except Exception as error:
            raise InputError(
                f"The checkpoint {self._checkpoint} is broken ({first_line(error)}); remove it."
            ) from error

    def save(self, folder: Path) -> None:
        """Write the head in the format of EAGLE-3, see `decoders.training.export`."""
        export(self.module, self.proposed, self.pair.target, folder)
