"""A model's engine: what runs its passes for the requests of one run."""

from decoders.engine.branches import PlainEngine
from decoders.engine.model import Engine, PackedModel
from decoders.engine.plain import PlainModel
from decoders.engine.translated import Translated, TranslatedEngine

Model = PackedModel | PlainModel | Translated
Passes = Engine | PlainEngine | TranslatedEngine


def engine_of(model: Model, rows: int = 0, most_rows: int | None = None) -> Passes:
    """Of a packed model, `rows` cache rows to begin with and `most_rows` at most, one for each token of the target."""
    if isinstance(model, Translated):
        most = most_rows and most_rows * model.translation.longest
        return TranslatedEngine(model, _own(model.inner, rows, most))
    return _own(model, rows, most_rows)


def _own(model: PackedModel | PlainModel, rows: int, most_rows: int | None) -> Engine | PlainEngine:
    return Engine(model, rows, most_rows) if isinstance(model, PackedModel) else PlainEngine(model)
