"""Training a head for a target (train_head): on texts and on what the target itself writes.

The loss is the distance of the head's distribution from the target's at every place of a draft,
which is one minus the chance that the token there is accepted.
"""

import json
import lzma
import math
import os
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from transformers import LlamaConfig

from decoders.engine.heads.module import HeadModule, HeadSpec
from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError, refuse
from decoders.training.unrolled import unrolled

END = "<|endoftext|>"
HELD_OUT = 100  # one document in this many is never trained on
CHECKPOINT_SECONDS = 120
PROBED = 32  # rows that the held-out acceptance is taken on
LATER = 0.8  # the weight of each place of a draft beside the one before


@dataclass(frozen=True)
class Recipe:
    """The size of a head and of its training.

    Attributes:
        width: its width
        inner: width of its gate
        heads: of its attention
        vocabulary: it proposes this many tokens, the most frequent ones
        reads: layers of the target whose states it reads; None for three that are spread evenly
        steps: of the training
        rows: texts of a step
        length: tokens of a text
        places: of a draft, all of which are trained
        rate: learning rate at its peak
        compiled: whether the passes of the head are compiled, which takes a C++ compiler and a
            minute
        own_texts: how many texts the target writes; from the middle of the training on, each step
            sees as many of them as of the others
        seed: of weights and batches
    """

    width: int = 256
    inner: int = 512
    heads: int = 4
    vocabulary: int = 3072
    reads: tuple[int, ...] | None = None
    steps: int = 2000
    rows: int = 16
    length: int = 192
    places: int = 3
    rate: float = 3e-3
    compiled: bool = True
    own_texts: int = 3072
    seed: int = 0


@dataclass(frozen=True)
class Progress:
    """A step of a training.

    Attributes:
        step: its number, from 1
        steps: of the training
        loss: of the step
        seconds_left: estimated from the steps so far
        acceptance: held-out acceptance at each place of a draft, where it was measured
    """

    step: int
    steps: int
    loss: float
    seconds_left: float
    acceptance: tuple[float, ...] = ()


def read_texts(files: Sequence[Path]) -> Iterator[str]:
    """The documents of text files, plain or as .xz, which a line `<|endoftext|>` separates.

    Raises:
        InputError: if a file cannot be read
    """
    for file in files:
        try:
            with (lzma.open if file.suffix == ".xz" else open)(file, "rt", encoding="utf-8") as f:
                yield from (text.strip("\n") for text in f.read().split(END) if text.strip())
        except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
            raise InputError(
                f"The text file {file} cannot be read ({error}); name files of plain text."
            ) from None


def tokens_of(pair: ModelPair, texts: Iterable[str]) -> tuple[np.ndarray, np.ndarray]:
    """The tokens of texts, each with its end token: those to train on, and those held out.

    A text's own characters decide on which side it is.

    Raises:
        InputError: if there is too little text
    """
    parts: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    end = sorted(pair.end_tokens)[:1]
    for text in texts:
        ids = [*pair.tokenizer(text, add_special_tokens=False).input_ids, *end]
        parts[zlib.crc32(text.encode()) % HELD_OUT == 0].append(np.array(ids, np.int32))
    if not parts[1] and parts[0]:
        parts[1].append(parts[0].pop())
    found = [np.concatenate(part) if part else np.zeros(0, np.int32) for part in parts]
    return found[0], found[1]


def rows_of(ids: np.ndarray, rng: np.random.Generator, rows: int, length: int) -> torch.Tensor:
    """Stretches of a text that begin anywhere, (rows, length)."""
    starts = rng.integers(0, len(ids) - length + 1, rows)
    return torch.from_numpy(np.stack([ids[i : i + length] for i in starts])).long()


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
        work.mkdir(parents=True, exist_ok=True)
        self.ids, self.held_out = tokens_of(pair, read_texts(files))
        least = 2 * recipe.length
        refuse(
            (
                min(len(self.ids), len(self.held_out)) < least,
                f"The text files hold too little text; give at least {HELD_OUT // 2} documents and "
                f"{least * HELD_OUT} tokens.",
            )
        )
        target: Any = pair.target
        config = target.config.get_text_config()
        count = config.num_hidden_layers
        reads = recipe.reads or tuple(sorted({max(1, count // 4), 5 * count // 8, count - 1}))
        pair.packed["target"].refuse_features(reads)
        frequent = np.argsort(-np.bincount(self.ids, minlength=config.vocab_size), kind="stable")
        self.proposed = np.sort(frequent[: min(recipe.vocabulary, config.vocab_size)])
        self.spec = HeadSpec("EAGLE-3", self._config(config), reads)
        torch.manual_seed(recipe.seed)
        self.module = self._drawn(config)
        self.optimizer = torch.optim.AdamW(
            self.module.parameters(), lr=recipe.rate, betas=(0.9, 0.95), weight_decay=0.01
        )
        self._compare = torch.compile(self._compared, dynamic=False)
        if not recipe.compiled:
            self._compare = self._compared
        self.step = 0
        self._resume()

    def _config(self, target: Any) -> LlamaConfig:
        r = self.recipe
        return LlamaConfig(
            vocab_size=target.vocab_size,
            hidden_size=r.width,
            intermediate_size=r.inner,
            num_hidden_layers=1,
            num_attention_heads=r.heads,
            num_key_value_heads=r.heads,
            head_dim=r.width // r.heads,
            rms_norm_eps=1e-6,
            max_position_embeddings=target.max_position_embeddings,
        )

    def _drawn(self, target: Any) -> HeadModule:
        width, own = target.hidden_size, self.recipe.width
        layer = ["input_layernorm", "hidden_norm", "post_attention_layernorm"]
        shapes: dict[str, tuple[int, ...]] = {
            "embed_tokens.weight": (target.vocab_size, own),
            "fc.weight": (own, len(self.spec.reads) * width),
            "lm_head.weight": (len(self.proposed), own),
            "norm.weight": (own,),
        }
        shapes |= {f"fc_norm.{i}.weight": (width,) for i in range(len(self.spec.reads))}
        shapes |= {f"layers.0.{name}.weight": (own,) for name in layer}
        module = HeadModule(self.spec, shapes)
        for weight in module.parameters():
            if weight.ndim == 1:
                torch.nn.init.ones_(weight)
            else:
                torch.nn.init.normal_(weight, std=0.5 / math.sqrt(weight.shape[1]))
        return module.to(self.pair.target.device)

    # ---- the target's own text

    def write_own(self) -> None:
        """Let the target write texts, at the temperatures at which heads are used.

        They stay in the folder, so that a resumed training has them.
        """
        file = self.work / "own.npy"
        if self.recipe.own_texts and not file.is_file():
            from decoders.generate import generate

            rng, length = np.random.default_rng(self.recipe.seed), self.recipe.length
            prompts = rows_of(self.ids, rng, self.recipe.own_texts, length // 8).tolist()
            written: list[list[int]] = []
            for i, how in enumerate(({"temperature": 0.0}, {"temperature": 1.0, "top_p": 0.95})):
                results = generate(
                    self.pair,
                    prompts[i::2],
                    "multinomial",
                    max_new_tokens=length - length // 8,
                    max_batch=32,
                    seed=i * len(prompts),
                    **how,
                )
                starts = zip(prompts[i::2], results, strict=True)
                written += [[*prompt, *result.tokens] for prompt, result in starts]
            kept = np.concatenate([np.array(text, np.int32) for text in written])
            part = file.with_suffix(".part.npy")
            np.save(part, kept)
            os.replace(part, file)
        self.own = np.load(file) if file.is_file() else self.ids

    # ---- steps

    def run(self) -> Iterator[Progress]:
        """Train to the last step; each one is yielded, and checkpoints are written in between."""
        self.write_own()
        saved, began, first = time.monotonic(), time.monotonic(), self.step
        while self.step < self.recipe.steps:
            loss = self._learn(self._batch())
            self.step += 1
            last = self.step == self.recipe.steps
            acceptance: tuple[float, ...] = ()
            if last or time.monotonic() - saved > CHECKPOINT_SECONDS:
                acceptance = self.acceptance()
                self._save()
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
        loss, _ = self._compare(tokens, *self._taught(tokens))
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

    def _save(self) -> None:
        part = self._checkpoint.with_suffix(".part")
        state = {
            "recipe": asdict(self.recipe),
            "step": self.step,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        torch.save(state, part)
        os.replace(part, self._checkpoint)

    def _resume(self) -> None:
        if not self._checkpoint.is_file():
            return
        state = torch.load(self._checkpoint, map_location="cpu", weights_only=True)
        if state["recipe"] != asdict(self.recipe):
            raise InputError(
                f"The folder {self.work} holds the training of another head; name another folder, "
                "or give the same sizes."
            )
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]

    def save(self, folder: Path) -> None:
        """Write the head in the format of EAGLE-3, in bfloat16.

        Args:
            folder: gets config.json and model.safetensors
        """
        folder.mkdir(parents=True, exist_ok=True)
        ids = torch.from_numpy(self.proposed).long()
        own = self.module.state_dict()
        weights: dict[str, torch.Tensor] = {}
        for name, tensor in own.items():
            if ".state." in name:
                continue
            if ".token." in name:
                tensor = torch.cat([tensor, own[name.replace(".token.", ".state.")]], 1)
                name = name.replace(".token.", ".")
            for project in ("q_proj", "k_proj", "v_proj", "o_proj"):
                name = name.replace(f"layers.0.{project}", f"layers.0.self_attn.{project}")
            weights[name] = tensor.to(torch.bfloat16).contiguous().cpu()
        size: Any = self.pair.target.config.get_text_config()
        t2d = torch.zeros(size.vocab_size, dtype=torch.bool)
        t2d[ids] = True
        weights |= {"d2t": ids - torch.arange(len(ids)), "t2d": t2d}
        config = {
            **self.spec.config.to_diff_dict(),
            "architectures": ["LlamaForCausalLMEagle3"],
            "draft_vocab_size": len(ids),
            "target_hidden_size": size.hidden_size,
            "eagle_aux_hidden_state_layer_ids": list(self.spec.reads),
            "fc_norm": True,
            "dtype": "bfloat16",
        }
        save_file(weights, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
