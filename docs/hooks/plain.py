"""Each page as Markdown beside its HTML, and `llms.txt`, which lists them for language models.

The form of that file is that of https://llmstxt.org.
"""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def on_post_page(output: str, page: Any, config: Any) -> str:
    file = (Path(config.site_dir) / page.file.dest_uri).with_suffix(".md")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(included(page.markdown), encoding="utf-8")
    return output


def included(text: str) -> str:
    """The text with the files that it includes."""
    found = re.compile(r'^--8<-- "(.+)"$', re.M)
    return found.sub(lambda match: (ROOT / match[1]).read_text("utf-8"), text)


def on_post_build(config: Any) -> None:
    site = Path(config.site_dir)
    named = [(title, path) for entry in config.nav for title, path in entry.items()]
    listed = {path for _, path in named}
    decoders = sorted(file.relative_to(site).as_posix() for file in site.glob("decoders/*.md"))
    sections = {
        "Docs": named,
        "Decoders": [(Path(path).stem, path) for path in decoders if path not in listed],
    }
    lines = [f"# {config.site_name}", "", f"> {config.site_description}.", ""]
    for heading, pages in sections.items():
        lines += [f"## {heading}", "", *(f"- [{title}]({path})" for title, path in pages), ""]
    (site / "llms.txt").write_text("\n".join(lines), encoding="utf-8")
