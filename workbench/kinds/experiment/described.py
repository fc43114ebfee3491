"""A plan in words."""

import shlex

from workbench.experiments.plan import Part, Plan, PlanEngine, pair_name
from workbench.studies.text import counted


def described(found: Plan) -> str:
    """A plan, with a line for each of its parts."""
    lines = [found.title, "", found.about.strip(), ""]
    lines += [*map(_part, found.parts), *map(_engine, found.engines)]
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _part(part: Part) -> str:
    methods = ", ".join(dict.fromkeys(m.name for m in part.methods))
    return (
        f"{part.name}: {counted(len(part.methods), 'setting')} of {methods}; "
        f"{_prompts(part)}; {', '.join(map(pair_name, part.pairs))}; {part.max_new_tokens} tokens"
    )


def _engine(engine: PlanEngine) -> str:
    lengths = ", ".join(map(str, engine.draft_lengths))
    return (
        f"{engine.part}: {'starts the engine' if engine.starts else 'engine'} {engine.name}"
        f"{f' with {shlex.join(engine.flags)}' if engine.flags else ''}; {_prompts(engine)}; "
        f"{f'draft lengths {lengths}; ' if lengths else ''}"
        f"concurrency {', '.join(map(str, engine.concurrency))}; "
        f"{engine.max_new_tokens} tokens"
    )


def _prompts(of: Part | PlanEngine) -> str:
    return f"{', '.join(of.prompts)}{f' (first {of.limit})' if of.limit else ''}"
