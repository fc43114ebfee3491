"""One pair per model: making one runs a check, so `generate` must not make one at every call."""

from typing import Any

from transformers import PreTrainedModel

from decoders.engine.loading.pair import ModelPair
from decoders.errors import InputError

NAME = "_decoders_pairs"
MOST = 4  # pairs that one model keeps, each with its draft in memory


class Pairs(list):
    """The pairs of which a model is the target.

    They are kept on the model, so that they go with it; copies and files of the model have none.
    """

    def __deepcopy__(self, memo: Any) -> "Pairs":
        return Pairs()

    def __reduce__(self) -> tuple[type, tuple]:
        return Pairs, ()


def pair_of(
    model: PreTrainedModel,
    draft: PreTrainedModel | None,
    tokenizer: Any = None,
    draft_tokenizer: Any = None,
) -> ModelPair:
    """The pair of these models.

    It is made at the first call, and again if modules were replaced or adapters switched since.

    Args:
        model: the target
        draft: the draft model or None
        tokenizer: the target's tokenizer
        draft_tokenizer: the draft's, if its family is another

    Raises:
        InputError: if the models cannot be decoded with
    """
    pairs = vars(model).setdefault(NAME, Pairs())
    for pair in pairs:
        if (
            pair.draft is draft
            and pair.tokenizer is tokenizer
            and pair.draft_tokenizer is draft_tokenizer
        ):
            if unchanged(pair):
                return pair
            pairs.remove(pair)
            break
    pairs.append(ModelPair(model, draft, tokenizer, draft_tokenizer))
    del pairs[:-MOST]
    return pairs[-1]


def unchanged(pair: ModelPair) -> bool:
    try:
        for packed in pair.packed.values():
            packed.refuse_changes()
    except InputError:
        return False
    return True
