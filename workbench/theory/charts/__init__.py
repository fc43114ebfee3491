"""The closed forms of `decoders.theory` as figures: numbers in, Plotly figures out."""
