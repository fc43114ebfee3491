"""Every decoder by name: `catalog["mtad"](beams=8)` makes one with these settings."""

from collections.abc import Iterator, Mapping

from decoders.errors import InputError
from decoders.methods.autoregressive import Greedy, Multinomial
from decoders.methods.beam import BeamSampling, BeamSearch
from decoders.methods.bild import BiLD
from decoders.methods.dsbd import DSBD
from decoders.methods.lookup import PromptLookup
from decoders.methods.mcss import MCSS
from decoders.methods.mtad import MTAD
from decoders.methods.mtjd import MTJD
from decoders.methods.ngram import NGramDrafts
from decoders.methods.specinfer import SpecInfer
from decoders.methods.spectr import SpecTr
from decoders.methods.speculative import Speculative
from decoders.methods.typical import Typical
from decoders.settings import Method, nearest


class Catalog(Mapping[str, type[Method]]):
    """The decoders in the order they are shown. An unknown name raises InputError, which suggests the nearest one."""

    def __init__(self, *methods: type[Method]):
        self._methods = {method.name: method for method in methods}

    def __getitem__(self, name: str) -> type[Method]:
        if name not in self._methods:
            raise InputError(f"There is no decoder {name!r}: {nearest(str(name), self._methods)}")
        return self._methods[name]

    def __contains__(self, name: object) -> bool:
        return name in self._methods

    def __iter__(self) -> Iterator[str]:
        return iter(self._methods)

    def __len__(self) -> int:
        return len(self._methods)


catalog = Catalog(
    Greedy, Multinomial, BeamSearch, BeamSampling, Speculative, MTAD, DSBD,
    MTJD, BiLD, SpecTr, SpecInfer, MCSS, Typical, PromptLookup, NGramDrafts,
)  # fmt: skip
