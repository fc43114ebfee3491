// What the page does in the browser next to the panels; Gradio's handlers call it by name.
"use strict";

const WorkbenchPage = (() => {
  const { make } = Workbench;

  /** A field changed: note the form as it stands and take the field's message away. */
  const note = (...values) => [values, { __type__: "update", loading_status: { validation_error: null } }];

  /** Put each message at its field; null takes one away. */
  const tell = (messages) => {
    setTimeout(unfoldMessages, 100); // once they are drawn
    return messages.map((message) => ({ __type__: "update", loading_status: { validation_error: message, show_validation_error: true } }));
  };

  /** Show the folds of the chosen decoders. */
  const unfold = (names) => (chosen) => names.map((name) => ({ __type__: "update", visible: chosen.includes(name) }));

  /** A study has begun: its results come into view, and the address no longer names the run that was on screen. */
  function began(prefix) {
    const link = document.querySelector(`#${prefix}settings-link a`);
    if (link) history.replaceState(null, "", link.getAttribute("href") + themed("&"));
    const progress = document.querySelector(`#${prefix}progress`);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (progress) progress.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
  }

  /** Ctrl+Enter presses Run in the tab on screen. */
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const button = ["#run", "#batch-run"].map((id) => document.querySelector(id)).find((found) => found && found.offsetParent);
    if (!button) return;
    event.preventDefault();
    button.click();
  });

  /** A message in a fold that is shut is not seen: open the folds around it. */
  function unfoldMessages() {
    for (const message of document.querySelectorAll(".validation-error")) {
      for (let fold = message.closest(".gr-accordion"); fold; fold = fold.parentElement.closest(".gr-accordion")) {
        const button = fold.querySelector(":scope > button.label-wrap");
        if (button && !button.classList.contains("open")) button.click();
      }
    }
  }

  const themed = (mark) => {
    const theme = new URLSearchParams(location.search).get("__theme");
    return theme ? `${mark}__theme=${theme}` : "";
  };

  /** The address names the run on screen, so that a reload or a copied address brings it back. */
  function address(id) {
    if (!id) return;
    history.replaceState(null, "", `?run=${id}${themed("&")}`);
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

  return { note, tell, unfold, began, address, confirmed, runs };
})();
