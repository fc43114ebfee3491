"""The rest of the speculative family: each a draft source and a rule on the one speculative loop."""

from dataclasses import dataclass
from functools import partial

from decoders.drafts.chain import chain
from decoders.drafts.lookup import Lookup
from decoders.drafts.ngram import NGram
from decoders.drafts.tree import tree, without_replacement
from decoders.errors import InputError
from decoders.inputs import as_references, is_whole
from decoders.methods.speculative import LENIENCE, Lenient, speculate
from decoders.request import Request
from decoders.rules.kseq import KSeqRule
from decoders.rules.multiround import MultiRoundRule
from decoders.rules.typical import TypicalRule
from decoders.settings import Decoding, Method, setting

LARGEST_TREE = 512
DRAFT_LENGTH = setting(4, "draft tokens a round (gamma)", low=1, high=64)
EXPANSION = setting((3, 2, 1, 1), "children of each draft token, layer by layer, as 3,2,1,1")
REFERENCES = setting((), "reference documents, as texts, that drafts may copy from")


def tree_size(name: str, expansion: tuple[int, ...]) -> int:
    """The draft tokens of a round; InputError where they are more than LARGEST_TREE."""
    size, layer = 0, 1
    for children in expansion:
        layer *= children
        size += layer
        if size > LARGEST_TREE:
            raise InputError(
                f"{name}: more than {LARGEST_TREE} draft tokens a round are too many; take fewer children or layers."
            )
    return size


@dataclass(frozen=True)
class SpecTr(Method):
    name = "spectr"
    law = "target"
    paper, section = "Sun et al. 2023 (SpecTr)", "K-SEQ"
    summary = "Several drafts at once: the target keeps the one that agrees longest, by optimal transport."
    uses_draft = True

    drafts: int = setting(4, "drafts a round, i.i.d. (k)", low=1, high=64)
    draft_length: int = DRAFT_LENGTH

    def __post_init__(self):
        super().__post_init__()
        tree_size(self.name, self._expansion)

    @property
    def _expansion(self) -> tuple[int, ...]:
        return (self.drafts,) + (1,) * (self.draft_length - 1)

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 1 + tree_size(self.name, self._expansion)

    def decode(self, request: Request) -> Decoding:
        return speculate(request, partial(tree, expansion=self._expansion), KSeqRule())


@dataclass(frozen=True)
class SpecInfer(Method):
    name = "specinfer"
    law = "target"
    paper, section = "Miao et al. 2023 (SpecInfer)", "multi-step speculative sampling"
    summary = "A tree of drafts, verified in one pass; the children of a token are tried one after the other."
    uses_draft = True

    expansion: tuple[int, ...] = EXPANSION

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "expansion", as_expansion(self.name, self.expansion))

    @property
    def branches(self) -> tuple[int, int]:
        return 1, 1 + tree_size(self.name, self.expansion)

    def decode(self, request: Request) -> Decoding:
        return speculate(request, partial(tree, expansion=self.expansion), MultiRoundRule())


@dataclass(frozen=True)
class MCSS(SpecInfer):
    name = "mcss"
    paper, section = "Yang et al. 2024 (MCSD)", "without replacement"
    summary = "SpecInfer's tree with children that all differ, so that no try is wasted on a token already refused."

    def decode(self, request: Request) -> Decoding:
        grow = partial(tree, expansion=self.expansion, sample=without_replacement)
        return speculate(request, grow, MultiRoundRule(replacement=False))


@dataclass(frozen=True)
class Typical(Method):
    name = "typical"
    law = None
    paper, section = "Cai et al. 2024 (Medusa)", "typical acceptance"
    summary = "Keeps a draft token that the target finds likely enough for how sure it is: fast, not exact."
    uses_draft = True

    draft_length: int = DRAFT_LENGTH
    epsilon: float = setting(0.09, "a probability above this always passes", low=0.0, high=1.0)
    delta: float = setting(0.3, "where the target is unsure, delta exp(-entropy) is enough", low=0.0, high=1.0)

    def decode(self, request: Request) -> Decoding:
        return speculate(request, partial(chain, length=self.draft_length), TypicalRule(self.epsilon, self.delta))


@dataclass(frozen=True)
class PromptLookup(Lenient):
    name = "lookup"
    law = "target"
    paper, section = "Yang et al. 2023 (LLMA); Saxena 2023 (prompt lookup)", "EMS-SD 4.1"
    summary = "Copies its drafts from the prompt, the output or reference documents: no draft model at all."

    match: int = setting(2, "longest run of last tokens to look up; shorter runs are tried down to 1", low=1, high=16)
    copy: int = setting(7, "tokens copied a round at most", low=1, high=64)
    references: tuple[str, ...] = REFERENCES
    prefer: str = setting(
        "last",
        "which of several matches: the last, or the first in references, prompt and output, as LLMA does",
        choices=("last", "first"),
    )
    lenience: float = LENIENCE

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "references", as_references(self.references))

    def decode(self, request: Request) -> Decoding:
        return self.speculate(request, Lookup(request, self.match, self.copy, self.prefer == "first").propose)


@dataclass(frozen=True)
class NGramDrafts(Lenient):
    name = "ngram"
    law = "target"
    paper, section = "Leviathan et al. 2023", "3.6"
    summary = "Drafts from counts of words and pairs seen so far: no draft model, at almost no cost."

    order: str = setting("bigram", "what is counted: pairs of tokens, or single ones", choices=("bigram", "unigram"))
    draft_length: int = setting(3, "draft tokens a round (gamma)", low=1, high=64)
    smoothing: float = setting(1.0, "counts lent to what has not been seen", low=1e-6, high=1e6)
    references: tuple[str, ...] = REFERENCES
    lenience: float = LENIENCE

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "references", as_references(self.references))

    def decode(self, request: Request) -> Decoding:
        predict = NGram(request, self.smoothing, self.order == "bigram").predict
        return self.speculate(request, partial(chain, length=self.draft_length, predict=predict))


def as_expansion(name: str, expansion: object) -> tuple[int, ...]:
    """The children of each layer, from a sequence of whole numbers or a text such as "3,2,1,1"; InputError for anything else."""
    given = expansion
    if isinstance(given, str):
        parts = [part.strip() for part in given.split(",")]
        given = [int(part) if part.isdecimal() else part for part in parts]
    if not isinstance(given, (list, tuple)) or not given or not all(is_whole(n) and n >= 1 for n in given):
        raise InputError(f"{name}: expansion must be whole numbers of 1 or more, as 3,2,1,1, not {expansion!r}.")
    expansion = tuple(int(n) for n in given)
    tree_size(name, expansion)
    return expansion
