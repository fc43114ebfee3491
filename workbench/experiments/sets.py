"""Sets of prompts with answers: their files, public formats and the user's own.

Every fault of a file gives one sentence with the file and the line.
"""

import csv
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from decoders import InputError
from decoders.errors import quoted
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
        """The prompt with this number as the models read it."""
        question = self.items[index].question
        prompt = question.get("prompt")
        return prompt if isinstance(prompt, Chat) else self.template.format_map(question)

    def answer(self, output: str) -> str:
        """The part of an output that counts."""
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
        says: the set in a few words
    """

    read: Callable[[Path], tuple[Item, ...]]
    files: tuple[str, ...]
    template: str
    scorer: str = ""
    stop: tuple[str, ...] = ()
    says: str = ""


def text(path: Path) -> str:
    """A file's text.

    Raises:
        InputError: if it is too large, cannot be read or is not UTF-8
    """
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


def lines(path: Path) -> Iterator[tuple[str, Any]]:
    """The lines of a JSONL file.

    Yields:
        (place, value) of each line

    Raises:
        InputError: if a line is not JSON
    """
    for number, line in enumerate(text(path).split("\n"), 1):
        if line.strip():
            place = f"{path.name}, line {number}"
            try:
                yield place, json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"{place}: not JSON.") from None


def whole(path: Path) -> Any:
    """The value of a JSON file.

    Raises:
        InputError: if it is not JSON
    """
    try:
        return json.loads(text(path))
    except json.JSONDecodeError as error:
        raise InputError(f"{path.name}, line {error.lineno}: not JSON ({error.msg}).") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path.name}: not JSON.") from None


def entries(path: Path, of: str) -> list[tuple[str, Any]]:
    """(place, value) of each entry of a JSON file that is a list.

    Raises:
        InputError: if it is not JSON, or no list
    """
    listed = whole(path)
    if not isinstance(listed, list):
        raise InputError(f"{path.name}: must be a list of {of}.")
    return [(f"{path.name}, entry {number}", value) for number, value in enumerate(listed, 1)]


def take(place: str, value: Any, key: str, kind: type[Any] = str) -> Any:
    """`value[key]`, checked.

    Args:
        place: where the value was read, for messages
        kind: the type that `value[key]` must have: str, list or dict

    Raises:
        InputError: if the key is missing, or its value has another type or is too long
    """
    names: dict[type, str] = {str: "a text", list: "a list", dict: "an object"}
    member: Any = value.get(key) if isinstance(value, dict) else None
    if not isinstance(member, kind) or (kind is str and ("\0" in member or not is_text(member))):
        raise InputError(f'{place}: must have {names[kind]} as "{key}".')
    if kind is str and len(member) > LONGEST:
        raise InputError(
            f'{place}: "{key}" has {len(member):,} characters; at most {LONGEST:,} are read.'
        )
    return member


def gathered(read: Callable[[Path], Iterator[Item]]) -> Callable[[Path], tuple[Item, ...]]:
    """Make a loader return all items; InputError if there are too many, or one is no text."""

    def all_of(path: Path) -> tuple[Item, ...]:
        items = tuple(read(path))
        for item in items:
            texts = item.question, item.answers, item.category, item.id
            if not is_text(json.dumps(texts, ensure_ascii=False, default=str)):
                raise InputError(
                    f"{item.place}: holds half a character (a lone surrogate); remove it."
                )
        if len(items) > 20 * MOST_PROMPTS:
            raise InputError(
                f"{path.name} has {len(items):,} prompts; give at most {20 * MOST_PROMPTS:,}."
            )
        return items

    return all_of


def table(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a CSV file.

    Yields:
        (place, row) of each row

    Raises:
        InputError: if a column is missing or a row is malformed
    """
    csv.field_size_limit(LONGEST * 4)
    reader = csv.DictReader(io.StringIO(text(path), newline=""))
    try:
        missing = [c for c in columns if c not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{path.name}, line 1: the head has no column {quoted(missing[0])}.")
        for row in reader:
            yield f"{path.name}, line {reader.line_num}", row
    except csv.Error as error:
        raise InputError(f"{path.name}, line {reader.line_num}: {error}.") from None


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
    schemas = {}
    for place, entry in entries(path, "databases"):
        tables = take(place, entry, "table_names_original", list)
        columns = take(place, entry, "column_names_original", list)
        try:
            names = [[c for t, c in columns if t == i] for i in range(len(tables))]
        except (TypeError, ValueError):
            raise InputError(
                f'{place}: "column_names_original" must be a list of [table, column].'
            ) from None
        schemas[take(place, entry, "db_id")] = "\n".join(
            f"{t}({', '.join(map(str, cs))})" for t, cs in zip(tables, names, strict=True)
        )
    return schemas


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
    return placed(prompt, place) if is_messages(prompt) else take(place, value, "prompt")


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
TEMPLATES = Path(__file__).with_name("templates")
# Our own prompts of six kinds; Spec-Bench's take their place where its file is.
KINDS, THEIRS = "kinds", "spec-bench"
CHATS = "chats"  # questions of eight kinds
OWN = (".jsonl", ".txt")


def find(name: str, data: Path | None, allow_paths: bool = True) -> ScoredSet:
    """A set by its name.

    Args:
        name: a built-in set, a public format, or the path of a .txt or .jsonl file
        data: of a public format the file, its folder, or a folder that has a folder of its name
        allow_paths: whether the name may be a path

    Raises:
        InputError: if there is no such set, or if it is malformed; the message says what to do
    """
    if name == CHATS:
        return ScoredSet(name, tuple(FORMATS["own"].read(prompts.file_of(name))))
    if name in prompts.BUILT_IN:
        openings = prompts.built_in(name).prompts
        return ScoredSet(name, tuple(Item({"prompt": p.text}, p.place) for p in openings))
    if name == KINDS:
        return _kinds(data)
    if name in FORMATS:
        return _local(name, FORMATS[name], data)
    if allow_paths and Path(name).suffix.lower() in OWN:
        path = Path(name) if data is None or data.is_file() else data / name
        return replace(_local("own", FORMATS["own"], path), name=path.name)
    names = [*prompts.BUILT_IN, KINDS, *FORMATS]
    own = " Or name a .txt or .jsonl file." if allow_paths else ""
    raise InputError(f"There is no set of prompts {quoted(name)}: {nearest(name, names)}{own}")


def _kinds(data: Path | None) -> ScoredSet:
    """Prompts of six kinds: Spec-Bench's if its file is in `data`, else our own."""
    theirs = FORMATS[THEIRS]
    if data is not None and any((data / each / theirs.files[0]).is_file() for each in (THEIRS, "")):
        return replace(_local(THEIRS, theirs, data), name=KINDS)
    return ScoredSet(KINDS, FORMATS["own"].read(prompts.file_of(KINDS)))


def _local(name: str, format: Format, data: Path | None) -> ScoredSet:
    if data is None:
        raise InputError(
            f"The set {quoted(name)} does not come with the project: download {format.files[0]} "
            "from its authors and name its folder with --data FOLDER."
        )
    items = format.read(_file(name, format, data))
    if not items:
        raise InputError(f"{data.name} has no prompts; give at least one.")
    template = (TEMPLATES / f"{format.template}.txt").read_text(encoding="utf-8")
    return ScoredSet(name, items, format.scorer, template.removesuffix("\n"), format.stop)


def _file(name: str, format: Format, data: Path) -> Path:
    if data.is_file() or data.suffix.lower() in OWN:
        return data
    for folder in (data / name, data):
        for file in format.files:
            if (folder / file).is_file():
                return folder / file
    raise InputError(
        f"There is no {' or '.join(format.files)} for the set {quoted(name)} in {data} or in its "
        f"folder {name}."
    )
