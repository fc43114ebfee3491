"""Exports over HTTP: `/export/<run>.json`, `.csv`, `.html`.

They are made on request, so nothing piles up on the disk.
"""

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from decoders import InputError
from decoders.errors import quoted
from workbench.runs.store import RunStore
from workbench.show.files import WRITERS

TYPES = {"json": "application/json", "csv": "text/csv", "html": "text/html"}


def export_route(store: RunStore) -> Route:
    """The route of exports, which answers 404 with one sentence for an unknown run or format."""

    def export(request: Request) -> Response:
        id, _, kind = request.path_params["name"].partition(".")
        try:
            if kind not in WRITERS:
                raise InputError(
                    f"There is no export {quoted(kind)}: there is {', '.join(WRITERS)}."
                )
            text = WRITERS[kind](store.get(id))
        except InputError as error:
            return PlainTextResponse(str(error), status_code=404)
        headers = {"Content-Disposition": f'attachment; filename="run-{id}.{kind}"'}
        return Response(text.encode(), media_type=TYPES[kind], headers=headers)

    return Route("/export/{name}", export)
