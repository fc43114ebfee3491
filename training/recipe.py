"""Every number of the recipe, by size.

`full` is the pair that ships: two CPU cores take some eight hours for it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

from decoders.training import students
from training.corpus import END_ID, CorpusSettings
from training.mixtures import MODERN_LAST, NEW_FIRST


@dataclass(frozen=True)
class Shape:
    """A Llama with tied embeddings."""

    width: int
    layers: int
    heads: int
    feed_forward: int

    @property
    def half(self) -> "Shape":
        """The shape that `grow` makes into this one."""
        return Shape(self.width // 2, self.layers, self.heads // 2, self.feed_forward // 2)

    def build(self, vocab_size: int, context: int) -> LlamaForCausalLM:
        """A fresh float32 model, its weights drawn from torch's global random source."""
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=vocab_size,
                hidden_size=self.width,
                num_hidden_layers=self.layers,
                num_attention_heads=self.heads,
                num_key_value_heads=self.heads,
                intermediate_size=self.feed_forward,
                max_position_embeddings=context,
                tie_word_embeddings=True,
                bos_token_id=END_ID,
                eos_token_id=END_ID,
                pad_token_id=END_ID,
            )
        )
        model.generation_config = GenerationConfig(
            bos_token_id=END_ID, eos_token_id=END_ID, pad_token_id=END_ID
        )
        return model


@dataclass(frozen=True)
class Run:
    """One model's training: Muon for the matrices, AdamW for the rest.

    Attributes:
        steps: of the whole training
        tokens_per_step: tokens of a batch
        decay_steps: the last steps, in which the rates fall to zero
        warm_up_steps: the first steps, in which the rates rise
        short: tokens of context before the whole one
        whole_steps: the last steps, in which the context is whole; on a CPU each takes 1.7 times as
            long
        muon_rate: learning rate of Muon
        adam_rate: learning rate of AdamW
        weight_decay: of the matrices
        compile: whether the passes are compiled
        checkpoint_every: steps
    """

    steps: int
    tokens_per_step: int
    decay_steps: int
    warm_up_steps: int = 60
    short: int = 256
    whole_steps: int = 0
    muon_rate: float = 0.02
    adam_rate: float = 0.008
    weight_decay: float = 0.05
    compile: bool = True
    checkpoint_every: int = 50

    @property
    def plateau_end(self) -> int:
        """The step at which the decay begins; all before it is independent of `steps`."""
        return self.steps - self.decay_steps

    def rate(self, step: int) -> float:
        """The factor of the rates at a step: warm-up, plateau, then straight to zero.

        As nothing before the decay depends on `steps`, a run on its plateau may get another end
        when it resumes, and a copy of its work folder may get a short one (Hu et al. 2024, MiniCPM,
        4.2)."""
        return min(
            1.0, (step + 1) / (self.warm_up_steps + 1), (self.steps - step) / self.decay_steps
        )

    def length(self, step: int, whole: int) -> int:
        """Tokens of a row at a step: `short`, and `whole` in the last steps."""
        return self.short if step < self.steps - self.whole_steps else whole


@dataclass(frozen=True)
class Recipe:
    """From text to pair.

    Attributes:
        corpus: how text becomes tokens
        target: size of the target
        draft: size and training of the draft
        target_run: training of the target
        small_run: training of a target of half the width, which the target grows from; None for a
            target that begins with fresh weights
        last_weights: the mixture of the target's decay and of the draft, if it is another one
        context: tokens
        seed: of weights and batches
    """

    corpus: CorpusSettings
    target: Shape
    draft: students.Recipe
    target_run: Run
    small_run: Run | None = None
    last_weights: Mapping[str, float] | None = None
    context: int = 1024
    seed: int = 0


def sizes() -> Mapping[str, Recipe]:
    """The recipes by size; "tiny" is for tests and teaches nothing."""
    return {"tiny": tiny(), "full": full()}


# 1.9M. On a CPU a draft's cost is its layers. A second one should help it to copy the names and
# things of a story, which takes a head that finds what stood there before, fed by one that looks at
# the token before (Olsson et al. 2022, "In-context learning and induction heads").
# No rows of the whole context: three hundred last steps of them spoilt the draft's short texts.
DRAFT = students.Recipe(
    kind="draft",
    width=192,
    inner=704,
    heads=6,
    layers=2,
    steps=3100,
    rows=32,
    length=256,
    own_texts=11520,
    muon=0.02,
    rate=0.008,
)


def tiny() -> Recipe:
    run = Run(
        steps=30,
        tokens_per_step=256,
        decay_steps=12,
        whole_steps=8,
        warm_up_steps=2,
        short=32,
        compile=False,
        checkpoint_every=5,
    )
    return Recipe(
        corpus=CorpusSettings(
            {"tinystories": 1, "snakes_stories": 1}, vocab_size=300, held_out_every=5, shingle=13
        ),
        target=Shape(width=32, layers=2, heads=2, feed_forward=64),
        draft=students.Recipe(
            kind="draft",
            width=16,
            inner=32,
            heads=1,
            layers=1,
            steps=10,
            rows=8,
            length=32,
            own_texts=48,
            probes=8,
            muon=0.02,
            rate=0.008,
        ),
        target_run=run,
        small_run=replace(run, steps=10, decay_steps=4, whole_steps=4),
        context=128,
    )


def full() -> Recipe:
    return Recipe(
        corpus=CorpusSettings(NEW_FIRST),
        last_weights=MODERN_LAST,
        target=Shape(width=512, layers=8, heads=8, feed_forward=1408),  # 27.8M
        draft=DRAFT,
        small_run=Run(
            steps=3660,
            tokens_per_step=16384,
            decay_steps=730,
            whole_steps=200,
            checkpoint_every=20,
        ),
        # 32,768 tokens a step: Muon's products take a second a step here, whatever the number of
        # tokens. Sixty steps of the whole context would be too few: what the small target knew of
        # late places is forgotten over nine hundred steps of short rows.
        target_run=Run(
            steps=1200,
            tokens_per_step=32768,
            decay_steps=760,
            whole_steps=320,
            warm_up_steps=30,
            muon_rate=0.01,
            adam_rate=0.004,
            checkpoint_every=10,
        ),
    )
