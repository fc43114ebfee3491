import gradio as gr

from decoders import load_pair
from workbench.components import DraftTree, Race, TokenStrip, compare

pair = load_pair()
with gr.Blocks() as app:
    prompt = gr.Textbox("Once upon a time", label="Prompt")
    parts = [TokenStrip(), DraftTree(decoder="speculative"), Race()]

    @prompt.submit(inputs=prompt, outputs=parts)
    def decode(text):
        return [compare(pair, text, ["greedy", "speculative"], max_new_tokens=24)] * len(parts)


app.launch()
