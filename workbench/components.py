"""Gradio components for any app: texts in the colours of their tokens, and the rounds of a run.

All three show a run of several decoders, which `compare` makes. They bring their scripts and
styles along, load nothing from elsewhere, and treat every text as text.

Example:
    import gradio as gr
    from decoders import load_pair
    from workbench.components import TokenStrip, compare

    pair = load_pair()
    with gr.Blocks() as app:
        prompt, strip = gr.Textbox("Once upon a time"), TokenStrip()
        prompt.submit(lambda text: compare(pair, text, ["greedy", "mtad"]), prompt, strip)
    app.launch()
"""

from collections.abc import Sequence
from typing import Any

from decoders import InputError, ModelPair
from workbench.kinds.comparison import Comparison, strip
from workbench.measuring import session
from workbench.page.widgets import Canvas
from workbench.runs.events import Ended
from workbench.runs.record import Run
from workbench.show.panel import cuts, run_panels
from workbench.show.web import embedded
from workbench.studies.settings import Settings

__all__ = ["DraftTree", "Race", "TokenStrip", "compare"]


def compare(pair: ModelPair, prompt: str, decoders: Sequence[str], **settings: Any) -> Run:
    """Decode one prompt with several decoders, and time them.

    Args:
        pair: a pair of models
        prompt: the text to continue
        decoders: names of the catalog
        **settings: as the page's links have them: `max_new_tokens`, `temperature`, `top_k`,
            `top_p`, `seed`, `timings`, and for one decoder a dictionary of its own settings:
            `mtad={"beams": 4}`

    Returns:
        the run, with all rounds of each decoder

    Raises:
        InputError: for a setting, a decoder or a prompt that cannot be used, in one sentence
    """
    asked = Settings.from_json({"decoders": list(decoders), **settings})
    for event in session.run(pair, Comparison(prompt, asked)):
        if isinstance(event, Ended):
            return event.run
    raise AssertionError("a study ends with its run")


class Embedded(Canvas):
    """A drawing of a run in an app of its own; `None` leaves it empty."""

    drawing: str

    def __init__(self, value: Run | None = None, **options: Any):
        draw = f"Workbench.alone.{self.drawing}(root, props.value);"
        super().__init__(draw, value, head=embedded(), **options)

    def postprocess(self, value: Any) -> Any:
        """The panels of a run.

        Raises:
            InputError: for anything but a run of several decoders
        """
        if not isinstance(value, Run):
            if value is None:
                return None
            raise InputError(
                f"{type(self).__name__} shows a run, which `compare` makes, not "
                f"{type(value).__name__}."
            )
        if value.kind != Comparison.kind:
            raise InputError(
                f"{type(self).__name__} shows runs of several decoders, not of the kind "
                f"{value.kind}."
            )
        return {**strip(run_panels(value), value.id), "settings": cuts(value)}


class TokenStrip(Embedded):
    """The texts of all decoders, one under another, each token in the colour of its fate.

    A card tells of each token; legend and figures are as on the workbench's page.
    """

    drawing = "texts"


class DraftTree(Embedded):
    """The rounds of one decoder, beside one word at a time.

    Args:
        value: the run
        decoder: whose rounds; by default those of the first decoder that drafts
        **options: those of `gradio.HTML`
    """

    drawing = "rounds"

    def __init__(self, value: Run | None = None, decoder: str | None = None, **options: Any):
        self.decoder = decoder
        super().__init__(value, **options)

    def postprocess(self, value: Any) -> Any:
        shown = super().postprocess(value)
        return shown and {**shown, "decoder": self.decoder}


class Race(Embedded):
    """All texts of a run grow on one clock, each round at the time at which it was measured."""

    drawing = "race"
