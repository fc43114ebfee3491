"""Forty addresses of the page, of every form that was ever made, and the studies they ask for."""

from typing import Any
from urllib.parse import parse_qsl

from workbench.kinds.registry import from_query

QUERIES = (
    "",
    "run=0123456789ab&__theme=dark&utm_source=mail",
    "prompt=Once+upon+a+time",
    "prompt=Once&decoders=greedy,mtad&temperature=0&mtad.beams=4",
    "prompt=Once&decoders=greedy%2Cmtad&temperature=0.7&top_k=20&top_p=0.9&seed=3",
    "decoders=greedy",
    "decoders=speculative,dsbd,mtad&speculative.draft_length=6&dsbd.beams=3&dsbd.keep_one=True",
    "decoders=speculative&speculative.draft_length=auto&speculative.confidence=0.4",
    "decoders=speculative&speculative.draft=head&speculative.gate=0.5",
    "decoders=speculative&speculative.rule=block&speculative.lenience=0.5",
    "decoders=speculative&speculative.draft=lookup&speculative.rule=match",
    "decoders=mtad&mtad.threshold=0.25&mtad.ratio=raw&mtad.draft=search",
    "decoders=mtjd&mtjd.block_length=3&mtjd.beams=5&mtjd.form=sample",
    "decoders=mtjd&mtjd.exact=true&mtjd.beams=4",
    "decoders=beam_search,beam_sampling&beam_search.length_penalty=0.5&beam_sampling.beams=8",
    "decoders=dsbd&dsbd.draft_beams=6&dsbd.width_threshold=0.8&dsbd.min_beams=2&dsbd.beams=none",
    "decoders=specinfer,mcss&specinfer.expansion=4%2C2%2C1&mcss.expansion=2,2,2",
    "decoders=lookup&lookup.copy=3&lookup.match=4&lookup.prefer=first",
    "decoders=lookup&lookup.references=a+red+ball",
    "decoders=ngram&ngram.order=unigram&ngram.smoothing=0.5&ngram.draft_length=5",
    "decoders=suffix,recycling&suffix.shape=tree&suffix.factor=2&recycling.width=4",
    "decoders=best_first&best_first.nodes=24&best_first.depth=4&best_first.by=head",
    "decoders=bild,typical,fly&bild.fallback=0.5&typical.delta=0.2&fly.window=3&fly.threshold=0.4",
    "decoders=cascade,ensemble&cascade.alpha=0.1&cascade.defer=opt&ensemble.weight=0.25",
    "decoders=block,match,traversal,multipath,spectr&multipath.drafts=2&spectr.drafts=8",
    "min_p=0.1&top_n_sigma=1.5&temperature_last=True&penalties=True&chat_template=True",
    "max_new_tokens=32&repeats=3&timings=2&seed=7&ignored=1",
    "temperature=1.5&top_k=0&top_p=1",
    "kind=batch",
    "kind=batch&prompts=refrains&count=5&sizes=2%2C8&schemes=dynamic&ignore_eos=False",
    "kind=batch&prompts=stories&sizes=1,2&schemes=vanilla,unpadded&cache_mb=2.5&prefill_chunk=16",
    "kind=batch&decoders=lookup&temperature=0&lookup.copy=3",
    "kind=draw&prompt=Once&draws=200&decoders=multinomial,dsbd&temperature=0.5",
    "kind=draw&prompt=Once&cache_mb=64&max_new_tokens=4&seed=100",
    "kind=advice&prompts=stories&count=4",
    "kind=advice&decoders=speculative,mtad",
    "kind=poem&prompt=Once",
    "temperatur=1&seed=7",
    "seed=7&decoders=gredy&mtad.threshold=7",
    "kind=batch&prompts=novels&count=0&seed=7",
)


def parsed() -> dict[str, Any]:
    """By query: the kind, the parts of the study, and how many parts could not be used."""
    found = {}
    for query in QUERIES:
        link = from_query(dict(parse_qsl(query, keep_blank_values=True)))
        found[query] = link and {"kind": link.kind, "data": link.data, "faults": len(link.faults)}
    return found
