"""Questions for SmolLM2 to answer, from the texts in ../shared/data: JSON lines on standard output.

    python -m training.smollm2.questions --data ../shared/data > questions.jsonl

They ask for explanations, sums, code, lists, tables, letters, dialogues, and for rewriting,
summing up and copying a text that is given. `train-head --questions` lets the target answer them.
"""

import argparse
import json
import lzma
import random
import re
from collections.abc import Iterator
from pathlib import Path

from training import DATA

# How many of each kind, at most.
COUNTS = {
    "snakes_explain": 9000, "topics": 6500, "texts": 4500, "code": 2500, "gsm8k_train": 2200,
    "snakes_scripts": 1200, "snakes_stories": 900,
}  # fmt: skip
TEXTS = (
    "snakes_textbook", "snakes_stories", "storybooks", "gutenberg_novels_easy", "snakes_explain",
    "fables_tf1", "gutenberg_fairy", "topicalchat", "sgd",
)  # fmt: skip
TOPICS = (
    "Explain {} in simple words.", "What is {} and why does it matter?",
    "List five facts about {}.",
    "Write a short paragraph about {}.", "Make a table with two columns about {}.",
    "Write three quiz questions about {} with their answers.",
    "Write an email to a colleague about {}.",
    "Pretend to be an expert in {} and give a beginner advice.",
    "Write a dialogue between a teacher and a student about {}.",
    "What are the advantages and disadvantages of {}?",
    "Give a step-by-step plan for learning about {}.", "Write a blog post about {}.",
    "What do people often get wrong about {}?", "Write a short speech about {}.",
    "Write a poem about {}.", "Compare {} and {}.", "How does {} relate to {}?",
    "What would you say to a friend who asks about {}?",
    "Summarize what you know about {} as bullet points.", "Describe the history of {}.",
    "You are a travel guide. Explain {} to your guests.",
    "Discuss {} from the point of view of an economist.", "Why do we need {}? Give an example.",
)  # fmt: skip
TASKS = (
    "Summarize this text in two sentences:", "Rewrite this text in simpler words:",
    "Correct the grammar of this text:", "What is this text about?", "List the names in this text:",
    "Rewrite this text in the present tense:", "Turn this text into bullet points:",
    "Give this text a title and explain your choice:", "Rewrite this text more formally:",
    "Shorten this text:", "Copy this text, one sentence on each line:", "What happens next?",
    "Extract the most important facts of this text as JSON:",
    "Write three questions about this text:", "Rewrite this text as a dialogue:",
    "Repeat this text and correct all mistakes:", "Explain this text to a child:",
    "Who is mentioned in this text and what do they do?",
)  # fmt: skip
CODE = (
    "Write a {} function that {}.", "Write a {} program that {}, with comments.",
    "How do I write {} code that {}?", "Show me {} code that {} and explain how it works.",
    "Implement in {} something that {}.", "I am learning {}. Can you show me code that {}?",
    "Write {} code that {} and a test for it.", "Give two ways in {} to write code that {}.",
)  # fmt: skip
LANGUAGES = "Python", "JavaScript", "Java", "C", "C++", "Go", "Rust", "Bash", "SQL"
PROGRAMS = (
    "reverses a string", "checks whether a number is prime",
    "sorts a list of dictionaries by a key",
    "reads a CSV file and prints the average of a column", "counts the words of a text file",
    "finds the largest number of a list", "merges two sorted lists",
    "removes duplicates from a list", "computes factorials", "computes Fibonacci numbers",
    "checks whether a word is a palindrome", "converts Celsius to Fahrenheit",
    "implements a stack", "implements a linked list", "parses a date", "downloads a web page",
    "draws a line chart", "flattens a nested list", "counts vowels", "finds all anagrams",
    "rotates a matrix", "computes the greatest common divisor", "generates a random password",
    "validates a phone number", "converts a number to Roman numerals",
    "groups words by their first letter", "checks balanced parentheses", "implements bubble sort",
    "implements quicksort", "implements a hash table", "traverses a binary tree",
    "finds the shortest path in a graph", "simulates a dice game", "computes compound interest",
    "formats a table of prices", "reads JSON and prints one field", "writes a log file",
    "measures how long a function takes", "splits a list into chunks",
    "sums the digits of a number",
    "prints a multiplication table", "computes the median of numbers",
    "zips two lists into a dictionary", "renames files in a folder", "sends a request to an API",
    "defines a class for a bank account", "handles errors when a file is missing",
    "encrypts a text with a Caesar cipher", "checks whether a year is a leap year",
    "shuffles a deck of cards", "searches a list with binary search", "prints a pyramid of stars",
)  # fmt: skip
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
DULL = re.compile(r"chapter|conclusion|introduction|summary", re.IGNORECASE)


def documents(data: Path, name: str) -> list[str]:
    with lzma.open(data / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
        return [text.strip() for text in file.read().split("<|endoftext|>")]


def asked(data: Path, name: str) -> Iterator[str]:
    """The questions of documents of a user and an assistant, or of sums and their answers."""
    for text in documents(data, name):
        question, found, _ = text.partition(
            "\nAnswer:" if name == "gsm8k_train" else "\nAssistant:"
        )
        question = re.sub(r"^(User:)? *((Question|Q):)? *", "", question)
        if found and 8 < len(question) < 900:
            yield question


def topics(data: Path, rng: random.Random, count: int) -> Iterator[str]:
    """Questions about the headings of textbooks."""
    found = {h.strip("* #") for t in documents(data, "snakes_textbook") for h in HEADING.findall(t)}
    headings = sorted(h for h in found if 3 < len(h) < 60 and not DULL.match(h))
    for _ in range(count):
        form = rng.choice(TOPICS)
        yield form.format(*rng.sample(headings, form.count("{}")))


def tasks(data: Path, rng: random.Random) -> Iterator[str]:
    """Tasks on a passage of 60 to 230 words."""
    for name in TEXTS:
        texts = documents(data, name)
        for text in rng.sample(texts, min(900, len(texts))):
            lines = [line for line in text.split("\n") if len(line.split()) > 12]
            passage = ""
            for line in lines[rng.randrange(len(lines)) if lines else 0 :]:
                passage = f"{passage}\n{line}".strip()
                if len(passage.split()) >= 90:
                    break
            if 60 <= len(passage.split()) <= 230:
                task = rng.choice(TASKS)
                after = task.replace("this text", "the text above")
                yield f"{task}\n\n{passage}" if rng.random() < 0.7 else f"{passage}\n\n{after}"


def questions(data: Path, seed: int = 0) -> list[str]:
    """All of them, shuffled."""
    rng = random.Random(seed)
    made = "topics", "texts", "code"
    kinds = {name: list(asked(data, name)) for name in COUNTS if name not in made}
    kinds["topics"] = list(topics(data, rng, 2 * COUNTS["topics"]))
    kinds["texts"] = list(tasks(data, rng))
    kinds["code"] = [
        form.format(language, program)
        for form in CODE for language in LANGUAGES for program in PROGRAMS
    ]  # fmt: skip
    chosen: list[str] = []
    for name, count in COUNTS.items():
        each = sorted(set(kinds[name]))
        chosen += rng.sample(each, min(count, len(each)))
    rng.shuffle(chosen)
    return chosen


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=DATA, help="folder of *.txt.xz")
    for question in questions(parser.parse_args().data):
        print(json.dumps({"question": question}, ensure_ascii=False))
