"""A plan in words."""

from workbench.experiments.plan import Part, Plan, pair_name
from workbench.studies.text import counted


def described(found: Plan) -> str:
    """A plan, with a line for each of its parts."""
    lines = [found.title, "", found.about.strip(), ""]
    lines += map(_part, found.parts)
    return "\n".join([*lines, *(f"note: {note}" for note in found.notes)])


def _part(part: Part) -> str:
    methods = ", ".join(dict.fromkeys(m.name for m in part.methods))
    return (
        f"{part.name}: {counted(len(part.methods), 'setting')} of {methods}; "
        f"{', '.join(part.prompts)}{f' (first {part.limit})' if part.limit else ''}; "
        f"{', '.join(map(pair_name, part.pairs))}; {part.max_new_tokens} tokens"
    )
