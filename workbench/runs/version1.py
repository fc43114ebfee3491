"""Runs of earlier versions, turned into this version's JSON."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

FORMAT: Final = "decoding-workbench run"


def upgraded(data: Any) -> Any:
    """The JSON of a run in version 3.

    In version 2 all prompts were texts. A comparison of version 1 names its version. A batch of
    that time has neither format nor id, so its id is made from its content. Anything else is
    returned unchanged, for the validation to refuse.
    """
    if not isinstance(data, Mapping):
        return data
    if data.get("format") == FORMAT and data.get("version") == 1:
        return _comparison(data)
    if data.get("format") == FORMAT and data.get("version") == 2:
        return {**data, "version": 3}
    if "format" not in data and "cells" in data and "acceptances" in data:
        return _batch(data)
    return data


def _some(data: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: data[name] for name in names if name in data}


def _comparison(data: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **_some(data, "id", "created", "cancelled"),
        "environment": data["environment"],
        "kind": "comparison",
        "title": data["prompt"],
        "study": {"prompt": data["prompt"], "settings": data["settings"]},
        "results": [_result(r) for r in data["results"]],
        "format": FORMAT,
        "version": 3,
    }


def _result(r: Mapping[str, Any]) -> dict[str, Any]:
    sample = _some(r, "prompt_length", "text", "tokens", "rounds", "finished", "error")
    check = r.get("greedy_check")
    agreement = None
    if check is not None:
        agreement = {
            "reference": "greedy",
            "compared": 1,
            "differing": int(not check["identical"]),
            **_some(check, "differs_at", "gap", "noise", "near_tie", "dtype"),
        }
    seconds = r["metrics"].get("seconds")
    laps = [] if seconds is None else [{"seconds": seconds, "rounds": [], "energy": r["energy"]}]
    gained = [round_["keep"] + len(round_["nodes"]) for round_ in r["rounds"]]
    gained = [after - before for after, before in zip(gained, [0, *gained], strict=False)]
    # Beams may take tokens back; such a round gains nothing.
    return {
        **_some(r, "decoder", "repeat", "seed", "metrics", "energy", "error"),
        "samples": [{"prompt": 0, **sample, "gained": [max(0, g) for g in gained]}],
        "laps": laps,
        "agreement": agreement,
    }


def _batch(data: Mapping[str, Any]) -> dict[str, Any]:
    settings = dict(data["settings"])
    settings["schemes"] = settings.pop("ways")
    digest = hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
    prompts = {"name": data["prompt"], "count": len(data["prompt_tokens"]), "texts": None}
    first: set[str] = set()
    results = []
    for cell in data["cells"]:
        gained = None if cell["decoder"] in first else data["acceptances"][cell["decoder"]]
        first.add(cell["decoder"])
        results.append(
            _cell(cell, settings["seed"] + cell["repeat"], data["prompt_tokens"], gained)
        )
    return {
        "id": digest[:12],
        "created": data["created"],
        "kind": "batch",
        "title": f"{prompts['count']} {prompts['name']}",
        "study": {"prompts": prompts, "settings": settings},
        "environment": data["environment"],
        "results": results,
        "cancelled": data.get("cancelled", False),
        "format": FORMAT,
        "version": 3,
    }


def _cell(
    cell: Mapping[str, Any], seed: int, lengths: list[int], gained: list[list[int]] | None
) -> dict[str, Any]:
    own = ("decoder", "batch_size", "way", "repeat", "differing", "reference", "errors")
    metrics = {name: value for name, value in cell.items() if name not in own}
    metrics["tokens_per_second"] = cell["new_tokens"] / cell["seconds"]
    energy = {
        "joules": None,
        "source": "not measured: an earlier version measured no energy of batches",
        "detail": "",
    }
    samples = [
        {
            "prompt": i,
            "prompt_length": length,
            "gained": gained[i] if gained else [],
            "error": error,
        }
        for i, (length, error) in enumerate(
            zip(lengths, [*cell["errors"], *[None] * len(lengths)], strict=False)
        )
    ]
    return {
        "decoder": cell["decoder"],
        "repeat": cell["repeat"],
        "seed": seed,
        "batch_size": cell["batch_size"],
        "scheme": cell["way"],
        "metrics": metrics,
        "energy": energy,
        "laps": [{"seconds": cell["seconds"], "rounds": [], "energy": energy}],
        "samples": samples,
        "agreement": {
            "reference": cell["reference"],
            "compared": len(lengths),
            "differing": cell["differing"],
        },
    }
