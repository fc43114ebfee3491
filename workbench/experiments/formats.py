"""Loaders of the public formats.

If a line or entry is malformed, the error names it and its file. Nothing in a file is run, and no
path in it leads out of its folder.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decoders import InputError
from decoders.errors import quoted
from workbench.experiments.sets import (
    Format,
    Item,
    entries,
    gathered,
    lines,
    table,
    take,
    text,
    whole,
)
from workbench.studies.chats import Chat, Words, is_messages, title


@gathered
def question_jsonl(path: Path) -> Iterator[Item]:
    """`question.jsonl` of Spec-Bench and MT-Bench: question_id, category and turns.

    Only the first turn is used.
    """
    for place, value in lines(path):
        turns = take(place, value, "turns", list)
        if not turns or not isinstance(turns[0], str) or not turns[0].strip():
            raise InputError(f'{place}: "turns" must begin with a text.')
        category, id = take(place, value, "category"), str(value.get("question_id", ""))
        yield Item({"prompt": turns[0]}, place, {}, category, id)


@gathered
def articles(path: Path) -> Iterator[Item]:
    """CNN/DailyMail: JSONL, or the CSV of the usual mirrors, with article and highlights."""
    is_csv = path.suffix.lower() == ".csv"
    for place, value in table(path, ("article", "highlights")) if is_csv else lines(path):
        article, highlights = take(place, value, "article"), take(place, value, "highlights")
        yield Item(
            {"article": article}, place, {"reference": highlights}, id=str(value.get("id", ""))
        )


@gathered
def chatgpt_prompts(path: Path) -> Iterator[Item]:
    """ChatGPT-Prompts: CSV with human_prompt, or act and prompt as in its other version."""
    column = "human_prompt" if "human_prompt" in text(path).split("\n", 1)[0] else "prompt"
    for place, row in table(path, (column,)):
        if not (row.get(column) or "").strip():
            raise InputError(f'{place}: must have a text as "{column}".')
        yield Item({"prompt": take(place, row, column)}, place)


@gathered
def alpaca(path: Path) -> Iterator[Item]:
    """Alpaca-like: a JSON list, or JSONL, of instruction, input and output.

    Of ChatAlpaca's conversations, the first message is used.
    """
    is_list = path.suffix.lower() != ".jsonl"
    for place, value in entries(path, "objects") if is_list else lines(path):
        turns = value.get("conversations") if isinstance(value, dict) else None
        if isinstance(turns, list) and turns:
            prompt = take(f"{place}, turn 1", turns[0], "value")
            yield Item({"prompt": prompt}, place, id=str(value.get("id", "")))
            continue
        more = value.get("input") if isinstance(value, dict) else None
        prompt = take(place, value, "instruction")
        if isinstance(more, str) and more:
            prompt = f"{prompt}\n{more}"
        yield Item({"prompt": prompt}, place)


@gathered
def squad(path: Path) -> Iterator[Item]:
    """SQuAD v1 and v2: data, paragraphs, qas; `answers` is empty if a question has no answer."""
    for a, article in enumerate(take(path.name, whole(path), "data", list), 1):
        for p, paragraph in enumerate(
            take(f"{path.name}, article {a}", article, "paragraphs", list), 1
        ):
            place = f"{path.name}, article {a}, paragraph {p}"
            context = take(place, paragraph, "context")
            for q, each in enumerate(take(place, paragraph, "qas", list), 1):
                here = f"{place}, question {q}"
                given = [take(here, answer, "text") for answer in take(here, each, "answers", list)]
                answers = [] if each.get("is_impossible") else list(dict.fromkeys(given))
                question = {"context": context, "question": take(here, each, "question").strip()}
                title = article.get("title", "") if isinstance(article, dict) else ""
                yield Item(
                    question, here, {"answers": answers}, str(title), str(each.get("id", ""))
                )


@gathered
def spider(path: Path) -> Iterator[Item]:
    """Spider: dev.json with `tables.json` and the folder `database` beside it."""
    questions = entries(path, "questions")
    schemas = _schemas(path.with_name("tables.json"))
    for place, entry in questions:
        db, gold = take(place, entry, "db_id"), take(place, entry, "query")
        if not re.fullmatch(r"[A-Za-z0-9_]+", db):
            raise InputError(f'{place}: "db_id" {quoted(db)} is not the name of a database.')
        if db not in schemas:
            raise InputError(f"{place}: tables.json has no database {quoted(db)}.")
        file = path.parent / "database" / db / f"{db}.sqlite"
        question = {"schema": schemas[db], "question": take(place, entry, "question")}
        yield Item(question, place, {"gold": gold, "database": file}, db)


def _schemas(path: Path) -> dict[str, str]:
    """For each database its tables with their columns, one line per table."""
    found = {}
    for place, entry in entries(path, "databases"):
        tables = take(place, entry, "table_names_original", list)
        columns = take(place, entry, "column_names_original", list)
        try:
            names = [[c for t, c in columns if t == i] for i in range(len(tables))]
        except (TypeError, ValueError):
            raise InputError(
                f'{place}: "column_names_original" must be a list of [table, column].'
            ) from None
        found[take(place, entry, "db_id")] = "\n".join(
            f"{t}({', '.join(map(str, cs))})" for t, cs in zip(tables, names, strict=True)
        )
    return found


@gathered
def human_eval(path: Path) -> Iterator[Item]:
    """HumanEval: JSONL with task_id and prompt.

    Its tests are not read, because pass@1 would run code that a model wrote.
    """
    for place, value in lines(path):
        yield Item(
            {"prompt": take(place, value, "prompt")}, place, id=take(place, value, "task_id")
        )


@gathered
def own(path: Path) -> Iterator[Item]:
    """One prompt per line, or JSONL with `prompt` and, optionally, `answer` and `category`.

    A prompt is a text or a list of messages, an answer a text or a list of texts.
    """
    if path.suffix.lower() != ".jsonl":
        for number, line in enumerate(text(path).split("\n"), 1):
            if line.strip():
                yield Item({"prompt": line.rstrip("\r")}, f"{path.name}, line {number}")
        return
    for place, value in lines(path):
        prompt, answer = _prompt(place, value), value.get("answer")
        answers = [answer] if isinstance(answer, str) else [] if answer is None else answer
        texts = isinstance(answers, list) and all(isinstance(a, str) for a in answers)
        if not title(prompt).strip() or not texts:
            raise InputError(
                f'{place}: must have a text or messages as "prompt", and "answer" must be a text '
                "or a list of texts."
            )
        scored = {"answers": answers} if answers else {}
        yield Item({"prompt": prompt}, place, scored, str(value.get("category", "")))


def _prompt(place: str, value: Any) -> Words:
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if not is_messages(prompt):
        return take(place, value, "prompt")
    try:
        return Chat.of(prompt)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


FORMATS = {
    "spec-bench": Format(
        question_jsonl, ("question.jsonl",), "plain",
        says="Spec-Bench: six kinds of task, 480 prompts",
    ),
    "mt-bench": Format(
        question_jsonl, ("question.jsonl",), "chat", says="MT-Bench: 80 questions of eight kinds",
    ),
    "cnn-dailymail": Format(
        articles, ("test.jsonl", "test.csv", "cnn_dailymail.jsonl"), "summary", "rouge", ("\n\n",),
        "articles and highlights",
    ),
    "spider": Format(
        spider, ("dev.json",), "sql", "spider", (";", "\n\n"),
        "questions to answer in SQL, with their databases",
    ),
    "squad": Format(
        squad, ("dev-v2.0.json", "dev-v1.1.json", "dev.json"), "squad", "squad", ("\n",),
        "questions on a paragraph",
    ),
    "humaneval": Format(
        human_eval, ("HumanEval.jsonl",), "plain", stop=("\ndef ", "\nclass ", "\nif __name__"),
        says="code",
    ),
    "chatgpt-prompts": Format(
        chatgpt_prompts, ("prompts.csv", "train.csv"), "plain", says="short instructions",
    ),
    "alpaca": Format(
        alpaca, ("alpaca.json", "chatalpaca.jsonl", "alpaca.jsonl"), "chat", says="instructions",
    ),
    "own": Format(
        own, ("prompts.jsonl", "prompts.txt"), "plain", "squad", ("\n",),
        "your own .txt or .jsonl file",
    ),
}  # fmt: skip
