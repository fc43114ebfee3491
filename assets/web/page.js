// What the page does in the browser next to the panels; Gradio's handlers call it by name.
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

  /** Ask before runs are deleted; the handler deletes those that are ticked in what this returns. */
  const confirmed = (table, ...filters) => {
    const { chosen } = table;
    const agreed = chosen.length && confirm(`Delete ${chosen.length} run${chosen.length > 1 ? "s" : ""}?`);
    return [table, agreed ? chosen : [], ...filters];
  };

  const COLUMNS = { when: "when (UTC)", kind: "kind", title: "title", decoders: "decoders", models: "models" };

  /** A row for each run, with a box to tick. Texts enter through textContent, so nothing in them can be executed. */
  function tableOfRuns(rows, ticked) {
    const body = make("tbody");
    for (const row of rows) {
      const box = make("input", { type: "checkbox", "aria-label": `Choose the run ${row.title}` });
      box.value = row.id;
      box.addEventListener("change", ticked);
      const cells = Object.keys(COLUMNS).map((name) => make(`td.${name}`, {}, make("bdi", {}, row[name])));
      const line = make("tr", {}, make("td", {}, box), ...cells);
      line.addEventListener("click", (event) => event.target !== box && !String(getSelection()) && box.click());
      body.append(line);
    }
    const heads = ["", ...Object.values(COLUMNS)].map((text) => make("th", { scope: "col" }, text));
    return make("div.wb-table.wb-runs", {}, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
  }

  /** Draw the table if its rows are others than before. A list from the server has rows alone: ticks are the browser's, so that an
   *  answer that comes late takes none away, and a tick leaves the focus where it is. */
  function runs(root, props, trigger) {
    const ticks = () => [...root.querySelectorAll("input:checked")].map((box) => box.value);
    const ticked = () => {
      props.value = { ...props.value, chosen: ticks() };
      trigger("change");
    };
    const { rows = [], chosen } = props.value || {};
    const kept = chosen || ticks();
    const drawn = JSON.stringify(rows);
    if (root.drawn !== drawn) root.replaceChildren(rows.length ? tableOfRuns(rows, ticked) : make("p", {}, "No runs."));
    root.drawn = drawn;
    for (const box of root.querySelectorAll("input")) box.checked = kept.includes(box.value);
    if (!chosen && rows.length) ticked();
  }

  return { note, tell, unfold, address, confirmed, runs };
})();
