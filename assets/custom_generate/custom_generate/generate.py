"""`model.generate(**inputs, custom_generate="this repository", trust_remote_code=True, decoder="mtad", assistant_model=draft)`."""

try:
    from decoders import hf
except ImportError as error:
    raise ImportError(
        "This generation method needs the package decoding-workbench: pip install decoding-workbench. "
        "The package called decoders on PyPI is another one; uninstall it first if it is there."
    ) from error


def generate(
    model,
    decoder="lookup",
    settings=None,
    assistant_model=None,
    tokenizer=None,
    streamer=None,
    stop_strings=(),
    seed=None,
    **arguments,
):
    """decoder   a name of the catalog, such as "speculative", "mtad" or "lookup";   settings  its settings, as a dictionary
    assistant_model   the draft model; tokenizer, streamer, stop_strings and seed as `decoders.hf` takes them
    Everything else is what `generate` itself takes.
    """
    method = hf(
        decoder,
        draft=assistant_model,
        tokenizer=tokenizer,
        streamer=streamer,
        stop=stop_strings or (),
        seed=seed,
        **(settings or {}),
    )
    return model.generate(**arguments, custom_generate=method)
