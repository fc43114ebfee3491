"""Components, handlers and forms of the page, and its tools for agents."""
