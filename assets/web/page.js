// What the page does in the browser beside the panels; Gradio's handlers call it by name.
"use strict";

const WorkbenchPage = (() => {
  const { make } = Workbench;

  /** A field changed: note the form as it stands and take the field's message away. */
  const note = (...values) => [values, { __type__: "update", loading_status: { validation_error: null } }];

  /** Put each message at its field; null takes one away. */
  const tell = (messages) =>
    messages.map((message) => ({ __type__: "update", loading_status: { validation_error: message, show_validation_error: true } }));

  /** Show the folds of the chosen decoders. */
  const unfold = (names) => (chosen) => names.map((name) => ({ __type__: "update", visible: chosen.includes(name) }));

  /** The address names the run on screen, so that a reload or a copied address brings it back. */
  function address(id) {
    if (!id) return;
    const theme = new URLSearchParams(location.search).get("__theme");
    history.replaceState(null, "", `?run=${id}${theme ? `&__theme=${theme}` : ""}`);
  }

  /** The runs to delete: all that are ticked if the visitor agrees, else none. */
  const confirmed = (table) => {
    const { rows, chosen } = table;
    const agreed = chosen.length && confirm(`Delete ${chosen.length} run${chosen.length > 1 ? "s" : ""}?`);
    return [{ rows, chosen: agreed ? chosen : [] }];
  };

  /** A table of runs with a box to tick in each row. Texts enter through textContent, so nothing in them can be executed. */
  function runs(root, props, trigger) {
    const { rows = [], chosen = [] } = props.value || {};
    const heads = ["", "when (UTC)", "kind", "title", "decoders", "models"];
    const body = make("tbody");
    for (const row of rows) {
      const box = make("input", { type: "checkbox", "aria-label": `Choose the run ${row.title}` });
      box.value = row.id;
      box.checked = chosen.includes(row.id);
      box.addEventListener("change", () => {
        const ticked = [...body.querySelectorAll("input:checked")].map((input) => input.value);
        props.value = { rows, chosen: ticked };
        trigger("change");
      });
      const line = make("tr", {}, make("td", {}, box));
      for (const text of [row.when, row.kind, row.title, row.decoders, row.models]) line.append(make("td", {}, make("bdi", {}, text)));
      line.addEventListener("click", (event) => event.target !== box && box.click());
      body.append(line);
    }
    const head = make("thead", {}, make("tr", {}, ...heads.map((text) => make("th", {}, text))));
    root.replaceChildren(rows.length ? make("div.wb-table.wb-runs", {}, make("table", {}, head, body)) : make("p", {}, "No runs."));
  }

  return { note, tell, unfold, address, confirmed, runs };
})();
