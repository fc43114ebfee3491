"""Every number of the recipe, by size. `full` is the pair the project wants, `interim` what two CPU cores can teach in a few hours."""

from collections.abc import Mapping
from dataclasses import dataclass

from corpus import END_ID, CorpusSettings
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

STORIES_FIRST = {  # how often each file is seen, relative to its length
    "tinystories": 3,
    "tinystories_recased": 3,
    "snakes_stories": 1,
    "snakes_explain": 1,
    "snakes_scripts": 0.5,
    "snakes_textbook": 0.5,
    "storybooks": 2,
    "gutenberg_burgess": 2,
    "fairytaleqa": 1,
    "sgd": 1,
    "synthpersona": 1,
    "topicalchat": 1,
    "gsm8k_train": 1,
}
# Few tokens teach one thing: nine in ten are stories, the rest is there so that nothing in it is foreign.
STORIES_ABOVE_ALL = STORIES_FIRST | {
    "snakes_explain": 0.1,
    "snakes_scripts": 0.05,
    "snakes_textbook": 0.03,
    "gutenberg_burgess": 1,
    "fairytaleqa": 0.5,
    "sgd": 0.05,
    "synthpersona": 0.2,
    "topicalchat": 0.1,
    "gsm8k_train": 0.05,
}


@dataclass(frozen=True)
class Shape:
    """A Llama with tied embeddings."""

    width: int
    layers: int
    heads: int
    feed_forward: int

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
        model.generation_config = GenerationConfig(bos_token_id=END_ID, eos_token_id=END_ID, pad_token_id=END_ID)
        return model


@dataclass(frozen=True)
class Run:
    """One model's training: steps, tokens a step, learning rates (Muon for the matrices, AdamW for the rest)."""

    steps: int
    tokens_per_step: int
    decay_steps: int  # the last steps, in which the rates fall to zero
    warm_up_steps: int = 60
    short: int = 256  # tokens of context before the whole one
    whole_steps: int = 0  # the last steps, in which the context is whole: on a CPU such a step takes 1.7 times as long
    muon_rate: float = 0.02
    adam_rate: float = 0.008
    weight_decay: float = 0.05
    compile: bool = True
    checkpoint_every: int = 50  # steps

    @property
    def plateau_end(self) -> int:
        """The step at which the decay begins; all before it is independent of `steps`."""
        return self.steps - self.decay_steps

    def rate(self, step: int) -> float:
        """Warm-up, plateau, then straight to zero. As nothing before the decay depends on `steps`, a run on its plateau may be
        given another end when it resumes, and a copy of its work folder a short one of its own (Hu et al. 2024, MiniCPM, 4.2)."""
        return min(1.0, (step + 1) / (self.warm_up_steps + 1), (self.steps - step) / self.decay_steps)


@dataclass(frozen=True)
class Recipe:
    """From text to pair. `own_batches` of `own_rows` texts the target writes itself are what the draft sees from `own_from` on."""

    corpus: CorpusSettings
    target: Shape
    draft: Shape
    target_run: Run
    draft_run: Run
    own_batches: int
    own_rows: int = 128
    own_length: int = 256  # tokens, prompt included
    own_from: float = 0.4
    context: int = 1024
    seed: int = 0


def sizes() -> Mapping[str, Recipe]:
    """The dial: "tiny" is for tests and teaches nothing."""
    # 1.9M. On a CPU layers are what a draft costs. A second one should help it to copy the names and things of a story, which takes
    # a head that finds what stood there before, fed by one that looks at the token before (Olsson et al. 2022, induction heads).
    draft = Shape(width=192, layers=2, heads=6, feed_forward=704)
    return {
        "tiny": Recipe(
            corpus=CorpusSettings(
                {"tinystories": 1, "snakes_stories": 1}, vocab_size=300, held_out_every=5, shingle=13
            ),
            target=Shape(width=32, layers=2, heads=2, feed_forward=64),
            draft=Shape(width=16, layers=1, heads=1, feed_forward=32),
            target_run=Run(
                steps=30,
                tokens_per_step=256,
                decay_steps=12,
                whole_steps=8,
                warm_up_steps=2,
                short=32,
                compile=False,
                checkpoint_every=5,
            ),
            draft_run=Run(
                steps=10,
                tokens_per_step=256,
                decay_steps=4,
                whole_steps=4,
                warm_up_steps=2,
                short=32,
                compile=False,
                checkpoint_every=5,
            ),
            own_batches=3,
            own_rows=16,
            own_length=32,
            context=128,
        ),
        "interim": Recipe(
            corpus=CorpusSettings(STORIES_ABOVE_ALL),
            target=Shape(width=256, layers=8, heads=4, feed_forward=704),  # 7.5M
            draft=draft,
            target_run=Run(steps=3660, tokens_per_step=16384, decay_steps=730, whole_steps=200, checkpoint_every=20),
            # no rows of the whole context: three hundred last steps of them spoilt the draft's short texts
            draft_run=Run(steps=3100, tokens_per_step=8192, decay_steps=1240),
            own_batches=150,
        ),
        "full": Recipe(
            corpus=CorpusSettings(STORIES_FIRST),
            target=Shape(width=512, layers=8, heads=8, feed_forward=1408),  # 27.8M
            draft=draft,
            # 5,000 steps are four times through the text; the held-out loss in the log says whether that is too often
            target_run=Run(
                steps=5000,
                tokens_per_step=65536,
                decay_steps=2000,
                whole_steps=2000,
                weight_decay=0.1,
                checkpoint_every=250,
            ),
            draft_run=Run(steps=6000, tokens_per_step=65536, decay_steps=2400, whole_steps=2400, checkpoint_every=250),
            own_batches=50,
            own_rows=1024,
            own_length=512,
        ),
    }
