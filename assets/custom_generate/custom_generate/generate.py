"""The decoders of decoding-workbench as a generation method from the Hub.

model.generate(
    **inputs,
    custom_generate="this repository",
    trust_remote_code=True,
    decoder="mtad",
    assistant_model=draft,
)
"""

try:
    from decoders import hf
except ImportError as error:
    raise ImportError(
        "This generation method needs the package decoding-workbench: "
        "pip install decoding-workbench. "
        "The package called decoders on PyPI is another one; uninstall it first if it is there."
    ) from error


def generate(
    model,
    decoder="lookup",
    settings=None,
    assistant_model=None,
    assistant_tokenizer=None,
    tokenizer=None,
    streamer=None,
    stop_strings=(),
    seed=None,
    **arguments,
):
    """Generate with a decoder of decoding-workbench.

    Args:
        model: the target model
        decoder: a name of the catalog, such as "speculative", "mtad" or "lookup"
        settings: the decoder's settings, as a dictionary
        assistant_model: the draft model
        assistant_tokenizer: the draft model's tokenizer, if it is of another family; `tokenizer` is
            then needed, too
        tokenizer: as `decoders.hf` takes it
        streamer: as `generate` takes it
        stop_strings: as `decoders.hf` takes its `stop`
        seed: as `decoders.hf` takes it
        arguments: all other arguments of `generate`

    Returns:
        the result of `model.generate`
    """
    method = hf(
        decoder,
        draft=assistant_model,
        draft_tokenizer=assistant_tokenizer,
        tokenizer=tokenizer,
        stop=stop_strings or (),
        seed=seed,
        **(settings or {}),
    )
    return model.generate(**arguments, streamer=streamer, custom_generate=method)
