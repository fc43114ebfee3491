"""Settings and prompts by name."""

from decoders import catalog
from workbench.studies.settings import Settings

SHOWN = tuple(catalog[name]() for name in ("greedy", "beam_search", "speculative", "mtad", "dsbd"))
# A decoder's defaults are its paper's; what the papers add is the warping: MTAD top-k 20 then top-p 0.9, DSBD top-k 10 and top-p 0.8.
SETTINGS = {
    "greedy (T=0)": Settings(SHOWN, temperature=0.0),
    "MTAD paper": Settings(SHOWN, temperature=1.0, top_k=20, top_p=0.9),
    "DSBD paper": Settings(SHOWN, temperature=1.0, top_k=10, top_p=0.8),
    "sampling T=1": Settings(SHOWN, temperature=1.0),
}

PROMPTS = {
    "A story": "Once upon a time, there was a little girl named Lily. She",
    "A friendship": "Tom and his dog Max lived near the forest. One morning they heard",
    "A dialogue": '"Can I play with you?" asked the small bear.',
    "A surprise": "Mia opened the big red box. Inside she found",
}
