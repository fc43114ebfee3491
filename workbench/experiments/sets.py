"""Sets of prompts with answers: their files, public formats and the user's own.

Every fault of a file gives one sentence with the file and the line.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from decoders import InputError
from decoders.errors import quoted, refuse
from decoders.settings import nearest
from workbench.studies import prompts
from workbench.studies.prompts import (
    LARGEST_FILE,
    LONGEST_PROMPT,
    MOST_PROMPTS,
    Chat,
    Words,
    is_messages,
    is_text,
    placed,
    title,
)

# Bytes; training files of SQuAD and Spider are larger than a file of prompts.
LARGEST = 16 * LARGEST_FILE
LONGEST = 4 * LONGEST_PROMPT  # characters: articles


@dataclass(frozen=True, slots=True)
class Item:
    """One prompt of a set.

    Attributes:
        question: the texts that the template takes, by name; or as "prompt" a chat
        place: where it was read, for messages
        answers: the values that the scorer compares the output with, by its names for them; {} if
            there are none
        category: for figures by category
        id: the prompt's name in the set
    """

    question: Mapping[str, Words]
    place: str
    answers: Mapping[str, Any] = field(default_factory=dict)
    category: str = ""
    id: str = ""


@dataclass(frozen=True)
class ScoredSet:
    """A set of prompts.

    Attributes:
        name: name of the set
        items: its prompts
        scorer: a name of `scores.SCORERS`, "" if there is nothing to score
        template: text with {names} of the question
        stop: the output counts up to the first of these texts
    """

    name: str
    items: tuple[Item, ...]
    scorer: str = ""
    template: str = "{prompt}"
    stop: tuple[str, ...] = ()

    def text(self, index: int) -> Words:
        question = self.items[index].question
        prompt = question.get("prompt")
        return prompt if isinstance(prompt, Chat) else self.template.format_map(question)

    def answer(self, output: str) -> str:
        for stop in self.stop:
            output = output.split(stop, 1)[0]
        return output

    @property
    def revision(self) -> str:
        """A hash of all prompts, answers and categories, the template, the scorer and the stops."""
        content = [[dict(i.question), dict(i.answers), i.category] for i in self.items]
        # A database has its name without its folder: the set is the same wherever it lies.
        whole = json.dumps(
            [self.template, self.stop, self.scorer, content],
            sort_keys=True,
            default=lambda value: value.name if isinstance(value, Path) else str(value),
        )
        return hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Format:
    """The format of a public set.

    Attributes:
        read: reads the file
        files: names that the file may have; the first that exists is read
        template: name of a file of `templates`
        scorer: a name of `scores.SCORERS`, "" if there is nothing to score
        stop: the output counts up to the first of these texts
    """

    read: Callable[[Path], Iterator[Item]]
    files: tuple[str, ...]
    template: str
    scorer: str = ""
    stop: tuple[str, ...] = ()


def text(path: Path) -> str:
    """A file's text; InputError if it is too large, cannot be read or is not UTF-8."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(
                f"{path.name} is larger than {LARGEST // 2**20} MB; give a smaller file."
            )
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{path.name} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise InputError(
            f"{path.name}, line {line}: not text in UTF-8; save the file as plain text in UTF-8."
        ) from None


def parsed(file: str, text: str, above: int = 0) -> Any:
    """The value of JSON; InputError names the line, of which `above` others stand in the file."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        line = above + getattr(error, "lineno", 1)
        raise InputError(f"{file}, line {line}: not JSON.") from None


def records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, record) of each row of a .csv file, each entry of a JSON list, or each line of JSON.

    Raises:
        InputError: if one is malformed
    """
    content = text(path)
    rows: Iterable[tuple[str, Any]]
    if path.suffix.lower() == ".csv":
        rows = _rows(path.name, content)
    elif content.lstrip().startswith("["):
        entries = enumerate(parsed(path.name, content), 1)
        rows = ((f"{path.name}, entry {number}", value) for number, value in entries)
    else:
        lines = enumerate(content.split("\n"))
        rows = (
            (f"{path.name}, line {above + 1}", parsed(path.name, line, above))
            for above, line in lines
            if line.strip()
        )
    for place, value in rows:
        if not isinstance(value, dict):
            raise InputError(f"{place}: must be an object.")
        yield place, value


def _rows(file: str, content: str) -> Iterator[tuple[str, dict[str, str]]]:
    csv.field_size_limit(LONGEST * 4)
    reader = csv.DictReader(io.StringIO(content, newline=""))
    try:
        for row in reader:  # an empty cell is a missing one
            yield f"{file}, line {reader.line_num}", {k: cell for k, cell in row.items() if cell}
    except csv.Error as error:
        raise InputError(f"{file}, line {reader.line_num}: {error}.") from None


def take(place: str, value: Any, key: str, kind: type[Any] = str) -> Any:
    """`value[key]`, checked.

    Args:
        place: where the value was read, for messages
        kind: the type that `value[key]` must have: str or list

    Raises:
        InputError: if the key is missing, or its value has another type or is too long
    """
    member: Any = value.get(key) if isinstance(value, dict) else None
    if not isinstance(member, kind) or (kind is str and "\0" in member):
        wanted = "a text" if kind is str else "a list"
        raise InputError(f'{place}: must have {wanted} as "{key}".')
    if kind is str and len(member) > LONGEST:
        raise InputError(
            f'{place}: "{key}" has {len(member):,} characters; at most {LONGEST:,} are read.'
        )
    return member


def members(place: str, value: Any, key: str, name: str) -> Iterator[tuple[str, Any]]:
    for number, member in enumerate(take(place, value, key, list), 1):
        yield f"{place}, {name} {number}", member


def of_records(item: Callable[[str, dict[str, Any]], Item]) -> Callable[[Path], Iterator[Item]]:
    """Reads a file that has an item in each record."""
    return lambda path: (item(place, value) for place, value in records(path))


@of_records
def questions(place: str, value: dict[str, Any]) -> Item:
    """`question.jsonl` of Spec-Bench and MT-Bench: question_id, category and turns.

    Only the first turn is used.
    """
    turns, category = take(place, value, "turns", list), take(place, value, "category")
    if not turns or not isinstance(turns[0], str) or not turns[0].strip():
        raise InputError(f'{place}: "turns" must begin with a text.')
    return Item({"prompt": turns[0]}, place, {}, category, str(value.get("question_id", "")))


@of_records
def articles(place: str, value: dict[str, Any]) -> Item:
    """CNN/DailyMail: JSONL, or the CSV of the usual mirrors, with article and highlights."""
    question = {"article": take(place, value, "article")}
    answers = {"reference": take(place, value, "highlights")}
    return Item(question, place, answers, id=str(value.get("id", "")))


@of_records
def chatgpt_prompts(place: str, value: dict[str, Any]) -> Item:
    """ChatGPT-Prompts: CSV with human_prompt, or act and prompt as in its other version."""
    column = "human_prompt" if "human_prompt" in value else "prompt"
    return Item({"prompt": take(place, value, column)}, place)


@of_records
def alpaca(place: str, value: dict[str, Any]) -> Item:
    """Alpaca-like: instruction and input; of ChatAlpaca's conversations the first message."""
    if "conversations" in value:
        turns = take(place, value, "conversations", list)
        prompt = take(f"{place}, turn 1", next(iter(turns), None), "value")
        return Item({"prompt": prompt}, place, id=str(value.get("id", "")))
    more = [take(place, value, "input")] if value.get("input") else []
    return Item({"prompt": "\n".join([take(place, value, "instruction"), *more])}, place)


@of_records
def human_eval(place: str, value: dict[str, Any]) -> Item:
    """HumanEval: JSONL with task_id and prompt.

    Its tests are not read, because pass@1 would run code that a model wrote.
    """
    return Item({"prompt": take(place, value, "prompt")}, place, id=take(place, value, "task_id"))


def squad(path: Path) -> Iterator[Item]:
    """SQuAD v1 and v2: data, paragraphs, qas; `answers` is empty if a question has no answer."""
    whole = parsed(path.name, text(path))
    for within, article in members(path.name, whole, "data", "article"):
        for here, paragraph in members(within, article, "paragraphs", "paragraph"):
            context = take(here, paragraph, "context")
            for place, each in members(here, paragraph, "qas", "question"):
                question = {"context": context, "question": take(place, each, "question").strip()}
                given = [take(place, a, "text") for a in take(place, each, "answers", list)]
                answers = [] if each.get("is_impossible") else list(dict.fromkeys(given))
                title, id = str(article.get("title", "")), str(each.get("id", ""))
                yield Item(question, place, {"answers": answers}, title, id)


def spider(path: Path) -> Iterator[Item]:
    """Spider: dev.json with `tables.json` and the folder `database` beside it."""
    schemas = dict(_schema(*record) for record in records(path.with_name("tables.json")))
    for place, entry in records(path):
        db, gold = take(place, entry, "db_id"), take(place, entry, "query")
        if not re.fullmatch(r"[A-Za-z0-9_]+", db):
            raise InputError(f'{place}: "db_id" {quoted(db)} is not the name of a database.')
        if db not in schemas:
            raise InputError(f"{place}: tables.json has no database {quoted(db)}.")
        file = path.parent / "database" / db / f"{db}.sqlite"
        question = {"schema": schemas[db], "question": take(place, entry, "question")}
        yield Item(question, place, {"gold": gold, "database": file}, db)


def _schema(place: str, entry: dict[str, Any]) -> tuple[str, str]:
    tables = take(place, entry, "table_names_original", list)
    columns = take(place, entry, "column_names_original", list)
    try:
        names = [", ".join(str(c) for t, c in columns if t == i) for i in range(len(tables))]
    except (TypeError, ValueError):
        raise InputError(
            f'{place}: "column_names_original" must be a list of [table, column].'
        ) from None
    lines = (f"{table}({of})" for table, of in zip(tables, names, strict=True))
    return take(place, entry, "db_id"), "\n".join(lines)


def own(path: Path) -> Iterator[Item]:
    """One prompt per line, or JSONL with `prompt` and, optionally, `answer` and `category`.

    A prompt is a text or a list of messages, an answer a text or a list of texts.
    """
    if path.suffix.lower() == ".jsonl":
        yield from (_own(*record) for record in records(path))
        return
    for number, line in enumerate(text(path).split("\n"), 1):
        if line.strip():
            yield Item({"prompt": line.rstrip("\r")}, f"{path.name}, line {number}")


def _own(place: str, value: dict[str, Any]) -> Item:
    prompt, answer = value.get("prompt"), value.get("answer") or []
    words = placed(prompt, place) if is_messages(prompt) else take(place, value, "prompt")
    answers = [answer] if isinstance(answer, str) else answer
    texts = isinstance(answers, list) and all(isinstance(a, str) for a in answers)
    if not title(words).strip() or not texts:
        raise InputError(
            f'{place}: must have a text or messages as "prompt", and "answer" must be a text '
            "or a list of texts."
        )
    scored = {"answers": answers} if answers else {}
    return Item({"prompt": words}, place, scored, str(value.get("category", "")))


FORMATS = {
    "spec-bench": Format(questions, ("question.jsonl",), "plain"),
    "mt-bench": Format(questions, ("question.jsonl",), "chat"),
    "cnn-dailymail": Format(
        articles, ("test.jsonl", "test.csv", "cnn_dailymail.jsonl"), "summary", "rouge", ("\n\n",)
    ),
    "spider": Format(spider, ("dev.json",), "sql", "spider", (";", "\n\n")),
    "squad": Format(
        squad, ("dev-v2.0.json", "dev-v1.1.json", "dev.json"), "squad", "squad", ("\n",)
    ),
    "humaneval": Format(
        human_eval, ("HumanEval.jsonl",), "plain", stop=("\ndef ", "\nclass ", "\nif __name__")
    ),
    "chatgpt-prompts": Format(chatgpt_prompts, ("prompts.csv", "train.csv"), "plain"),
    "alpaca": Format(alpaca, ("alpaca.json", "chatalpaca.jsonl", "alpaca.jsonl"), "chat"),
    "own": Format(own, ("prompts.jsonl", "prompts.txt"), "plain", "squad", ("\n",)),
}
TEMPLATES = Path(__file__).with_name("templates")
# Our own prompts of six kinds; Spec-Bench's take their place where its file is.
KINDS, THEIRS = "kinds", "spec-bench"
CHATS = "chats"  # questions of eight kinds
OWN = (".jsonl", ".txt")


def find(name: str, data: Path | None) -> ScoredSet:
    """A set by its name.

    Args:
        name: a built-in set, a public format, or the path of a .txt or .jsonl file
        data: of a public format the file, its folder, or a folder that has a folder of its name

    Raises:
        InputError: if there is no such set, or if it is malformed; the message says what to do
    """
    theirs = FORMATS[THEIRS].files[0]
    if name == KINDS and data and any((data / f / theirs).is_file() for f in (THEIRS, "")):
        return replace(_local(THEIRS, data), name=KINDS)
    if name in (CHATS, KINDS):
        return ScoredSet(name, tuple(own(prompts.file_of(name))))
    if name in prompts.BUILT_IN:
        openings = prompts.built_in(name).prompts
        return ScoredSet(name, tuple(Item({"prompt": p.text}, p.place) for p in openings))
    if name in FORMATS:
        return _local(name, data)
    if Path(name).suffix.lower() in OWN:
        path = Path(name) if data is None or data.is_file() else data / name
        return replace(_local("own", path), name=path.name)
    names = [*prompts.BUILT_IN, KINDS, *FORMATS]
    raise InputError(
        f"There is no set of prompts {quoted(name)}: {nearest(name, names)} Or name a .txt or "
        ".jsonl file."
    )


def _local(name: str, data: Path | None) -> ScoredSet:
    format = FORMATS[name]
    if data is None:
        raise InputError(
            f"The set {quoted(name)} does not come with the project: download {format.files[0]} "
            "from its authors and name its folder with --data FOLDER."
        )
    files = [folder / file for folder in (data / name, data) for file in format.files]
    if data.is_file() or data.suffix.lower() in OWN:
        files = [data]
    elif not (files := [file for file in files if file.is_file()]):
        raise InputError(
            f"There is no {' or '.join(format.files)} for the set {quoted(name)} in {data} or in "
            f"its folder {name}."
        )
    items, file = tuple(format.read(files[0])), files[0].name
    most = 20 * MOST_PROMPTS
    refuse(
        (not items, f"{file} has no prompts; give at least one."),
        (len(items) > most, f"{file} has {len(items):,} prompts; give at most {most:,}."),
    )
    for item in items:
        texts = item.question, item.answers, item.category, item.id
        if not is_text(json.dumps(texts, ensure_ascii=False, default=str)):
            raise InputError(f"{item.place}: holds half a character (a lone surrogate); remove it.")
    template = (TEMPLATES / f"{format.template}.txt").read_text(encoding="utf-8")
    return ScoredSet(name, items, format.scorer, template.removesuffix("\n"), format.stop)
