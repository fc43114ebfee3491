"""Components that Gradio lacks; workbench/web has the scripts that draw them."""

from typing import Any

import gradio as gr


class Drawn(gr.HTML):
    """Plain data that a script draws.

    The template is constant, so Gradio never renders over the drawing, and no text passes a
    template.
    """

    script: str

    def __init__(self, value: Any = None, **options: Any):
        super().__init__(
            value,
            html_template="<div></div>",
            js_on_load=self.script,
            apply_default_css=False,
            padding=False,
            **options,
        )

    def api_info(self) -> dict[str, Any]:
        return {"type": "object"}


class TokenStrip(Drawn):
    """Panels of coloured tokens, one under another, with the card of each token.

    Its value is made by `view` in `workbench.kinds.comparison`. The event `select` asks for
    the alternatives of a token: {ask, run, decoder, at}, and `token` if one was typed. `submit`
    continues from one of them: {ask, run, decoder, at, token, decoders}. `expand` asks for what
    other rules would keep of a round: {ask, run, decoder, round}. `ask` names the question.
    """

    script = """
const root = element.firstElementChild;
const show = () => Workbench.show(root, props.value);
root.ask = trigger;
watch('value', show);
show();
"""


class Alternatives(Drawn):
    """Answers to the strip's questions, drawn where they were asked.

    Its value is {ask, choices, wanted}, {ask, tokens, rows, note} or {ask, error}.
    """

    script = """
const show = () => Workbench.answered(props.value);
watch('value', show);
"""


class RunTable(Drawn):
    """Past runs to choose from.

    Its value is {"rows": [{id, when, kind, title, decoders, models, best, speed, asked}], "chosen":
    [ids], "empty": a text in place of no rows}.
    """

    script = """
const root = element.firstElementChild;
const show = () => WorkbenchPage.runs(root, props, trigger);
watch('value', show);
show();
"""


class Address(Drawn):
    """The page's address.

    Its value tells the browser {go: the prefix of a tab whose study runs at once}; the browser
    answers a step back or forward with {query: what the address asks for}, as the event `submit`.
    """

    script = """
WorkbenchAddress.travels((query) => { props.value = { query }; trigger('submit'); });
const go = () => props.value?.go !== undefined && WorkbenchPage.go(props.value.go);
watch('value', go);
go();
"""
