"""The workbench in the browser: `python app.py`. This is also what a Hugging Face Space runs."""

import sys

from decoders import InputError
from workbench.page.layout import prepare, serve

try:
    host, demo = prepare()
    if __name__ == "__main__":
        serve(host, demo)
except InputError as error:
    sys.exit(str(error))
