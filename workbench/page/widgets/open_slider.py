"""A slider whose number box may be empty for a moment."""

import gradio as gr


class OpenSlider(gr.Slider):
    """Hands on what its box holds, be it nothing or beyond its ends, for its handler to answer: Gradio's answer to an emptied box
    is the text of a TypeError."""

    is_template = True  # to the browser it is Gradio's slider

    def preprocess(self, payload: float | None) -> float | None:
        return payload
