// What the page does in the browser next to the panels; Gradio's handlers call it by name.
"use strict";

const WorkbenchPage = (() => {
  const { make } = Workbench;

  /** Fields of a form changed: note it as it stands and take the messages at those that differ away. Of fields that change one right after
   *  another, all are noted: Gradio asks about two notes at once, and the answer about half of the form may come last. */
  const latest = {}, messages = {}; // by the name of a form: its values; what it says at a field, by that one's id
  const note = (form, ids) => (...values) => {
    const before = latest[form] || [], same = (i) => JSON.stringify(values[i]) === JSON.stringify(before[i]);
    latest[form] = values;
    ids.forEach((id, i) => same(i) || delete messages[form]?.[id]);
    say();
    return new Promise((resolve) => setTimeout(() => resolve([latest[form]]), 30));
  };

  /** A field that is noted together with others changed: its message goes. */
  const mended = (form, id) => {
    delete messages[form]?.[id];
    say();
  };

  /** Put each message at its field. A field in a sheet or a fold comes later than its message. */
  const tell = (form) => (faults) => {
    messages[form] = { ...faults };
    say();
    setTimeout(() => (document.querySelector("#form .wb-fault") ?? document.querySelector(".wb-fault"))?.scrollIntoView({ block: "nearest" }), 300);
  };
  function say() {
    const all = Object.assign({}, ...Object.values(messages));
    for (const old of document.querySelectorAll(".wb-fault")) if (all[old.parentElement.id] !== old.textContent) old.remove();
    for (const [id, text] of Object.entries(all)) {
      const field = document.getElementById(id);
      if (!field || field.querySelector(":scope > .wb-fault")) continue;
      field.prepend(make("p.wb-fault", { role: "alert" }, text));
      if (field.closest(".fold")) field.closest(".fold").open = true;
    }
  }
  addEventListener("DOMContentLoaded", () => new MutationObserver(say).observe(document.body, { childList: true, subtree: true }));

  /** Run is pressed: a field that changed just before it, such as by the last keystroke, tells so some moments later. Gradio would take
   *  a second press in these moments for another study. */
  let asking = 0;
  const asked = (form) => (noted, ...more) => new Promise((resolve) => setTimeout(() => {
    asking = 0;
    resolve([latest[form] ?? noted, ...more]);
  }, 30));
  document.addEventListener("click", (event) => {
    if (!event.target.closest?.(".wb-run")) return;
    if (performance.now() < asking) event.stopImmediatePropagation();
    else asking = performance.now() + 1000;
  }, true);

  /** While a line says that it waits for the device: how many visitors are ahead. Gradio writes the place in the queue where the handler
   *  shows its progress, an element of ours that nobody sees; one more has the device. */
  function queued(prefix) {
    let ticks = 0, waited = false;
    const timer = setInterval(() => {
      const says = document.querySelector(`#${prefix}progress [role="status"]`), waits = says?.textContent.startsWith(WAITING);
      const place = /(\d+)\/\d+/.exec(document.getElementById(`${prefix}place`)?.textContent || "");
      if (waits && place) says.textContent = `${WAITING}: ${place[1]} ahead of you.`;
      waited = waited || waits;
      if (!waits && (waited || (ticks += 1) > 40)) clearInterval(timer);
    }, 250);
  }
  const WAITING = "Waiting for the device";

  /** A study begins: its results come into view, and the address no longer names the run that was on screen. It is what is done before
   *  the study is sent off: a handler of its own came after the end of a short study, and took that one's address away. */
  const began = (prefix) => (...inputs) => {
    const link = document.querySelector(`#${prefix}settings-link a`);
    if (link) WorkbenchAddress.show(new URL(link.href).search.slice(1), prefix, true);
    document.querySelector("#notice .wb-instead")?.remove();
    const progress = document.querySelector(`#${prefix}progress`);
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const { top } = progress?.getBoundingClientRect() ?? { top: 0 }, seen = top >= 0 && top < innerHeight / 2;
    if (progress && !seen) progress.scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
    queued(prefix);
    return inputs.length === 1 ? inputs[0] : inputs;
  };

  /** Run what a link asks for, once its tab has come. */
  function go(prefix) {
    const timer = setInterval(() => {
      const button = document.getElementById(`${prefix}run`);
      if (!button || button.disabled || !button.offsetParent) return;
      clearInterval(timer);
      button.click();
    }, 100);
  }

  /** The side sheet was opened, or closed; the keyboard goes with it. */
  const sheet = (open) => () => setTimeout(() => document.querySelector(open ? "#close-sheet" : "#open-sheet")?.focus(), 100);
  document.addEventListener("keydown", (event) => event.key === "Escape" && document.querySelector("#form #close-sheet")?.click());

  /** A run ends when its page is left or reloaded, or with its server: the page that opens next in this tab says so, once the server has
   *  looked for what was finished of it: here is its id, "" if nothing was, null for no such run. A browser may refuse to remember. */
  addEventListener("pagehide", () => {
    if (!document.querySelector(".wb-stop")) return;
    try { sessionStorage.setItem("left", document.querySelector("[data-run]")?.dataset.run || ""); } catch { /* then nothing is said */ }
  });
  function left() {
    let id = null;
    try { id = sessionStorage.getItem("left"); sessionStorage.removeItem("left"); } catch { /* as above */ }
    return id;
  }

  /** Ctrl+Enter presses Run in the tab on screen. */
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const button = [...document.querySelectorAll(".wb-run")].find((found) => found.offsetParent);
    if (!button) return;
    event.preventDefault();
    button.click();
  });

  /** Links within the page: to the prompt, to a tab. The address names a run or settings, which a plain link would drop. The keyboard goes
   *  on from there. */
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a.wb-skip, a[data-tab]");
    if (!link) return;
    event.preventDefault();
    if (link.dataset.tab) return WorkbenchAddress.open(link.dataset.tab);
    document.querySelector("#prompt textarea")?.focus();
  });

  /** Save the chart beside a button, or the picture. */
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.("[data-save]");
    if (!button) return;
    const chart = button.closest(".wb-plot")?.querySelector(".js-plotly-plot"), picture = document.getElementById("picture");
    if (chart) Workbench.save(chart, (chart.layout?.title?.text || "chart").toLowerCase().replace(/\W+/g, "-"), button.dataset.save);
    else if (picture) Workbench.save(picture, `picture-${picture.run}`, button.dataset.save);
  });

  /** Show the decoders whose name or line has these words. */
  const search = (words) => {
    for (const label of document.querySelectorAll("#decoders label:has(input[type='checkbox'])")) {
      const fits = label.textContent.toLowerCase().includes(String(words ?? "").trim().toLowerCase());
      label.style.display = fits ? "" : "none";
    }
  };

  /** The address names the run on screen, so that a reload or a copied address brings it back; in place of a run that could not be kept,
   *  whose links hold its files, it names the settings. */
  const address = (id, prefix) => {
    if (id) return WorkbenchAddress.show(`run=${id}`, prefix);
    setTimeout(() => {
      const lost = document.querySelector(`#${prefix}run-link a[href^="data:"]`), link = document.querySelector(`#${prefix}settings-link a`);
      if (lost && link) WorkbenchAddress.show(new URL(link.href).search.slice(1), prefix, false, true);
    }, 100);
  };

  /** Ask before runs are deleted; the handler deletes those that are ticked in what this returns. */
  const confirmed = (table, ...filters) => {
    const { chosen = [], rows = [] } = table || {};
    const one = rows.find((row) => row.id === chosen[0]);
    const what = chosen.length === 1 && one ? `the run “${one.title.slice(0, 80)}”` : `${chosen.length} runs`;
    const agreed = chosen.length && confirm(`Delete ${what}? This cannot be undone.`);
    return [table, agreed ? chosen : [], ...filters];
  };

  const COLUMNS = { when: "when (UTC)", kind: "kind", title: "prompt", decoders: "decoders", models: "models" };
  const BELOW = { when: "id", decoders: "asked" }; // what stands in small print under a column's text
  const UP = { title: true, kind: true, decoders: true, models: true }; // what texts are sorted by first; dates from the top

  /** The rows by a column, texts as a reader sorts them; equal ones stay newest first. */
  function sorted(rows, { column, up }) {
    return [...rows].sort((a, b) => (up ? 1 : -1) * a[column].localeCompare(b[column]));
  }

  function line(row, ticked) {
    const box = make("input", { type: "checkbox", "aria-label": `Choose the run ${row.title}` });
    box.value = row.id;
    box.addEventListener("change", ticked);
    const cells = Object.keys(COLUMNS).map((name) => {
      const text = make("bdi", {}, row[name]);
      const below = BELOW[name] && make("small", {}, row[BELOW[name]]);
      if (name !== "title") return make(`td.${name}`, {}, text, below);
      const fates = row.fates ? make("span.wb.fates", { "aria-hidden": "true" }, ...row.fates.split(" ").map((fate) => make(`i.${fate}`))) : null;
      return make("td.title", {}, make("a", { href: `?run=${row.id}` }, text), fates, row.verdict ? make("small", {}, row.verdict) : null);
    });
    const line = make("tr", {}, make("td", {}, box), ...cells);
    line.addEventListener("click", (event) => !event.target.closest("a, input") && !String(getSelection()) && box.click());
    return line;
  }

  /** A row for each run, with a box to tick; a head sorts by its column. Texts enter through textContent, so nothing in them can be
   *  executed. */
  function tableOfRuns(root, rows, ticked) {
    const body = make("tbody"), count = make("p.count", { role: "status" }, `${rows.length} run${rows.length === 1 ? "" : "s"}`);
    const heads = Object.entries(COLUMNS).map(([name, text]) => {
      const button = make("button", { type: "button" }, text);
      button.addEventListener("click", () => {
        const up = root.sort.column === name ? !root.sort.up : Boolean(UP[name]);
        root.sort = { column: name, up };
        fill();
      });
      return make("th", { scope: "col", "data-column": name }, button);
    });
    const lines = new Map(rows.map((row) => [row.id, line(row, ticked)]));
    function fill() {
      body.replaceChildren(...sorted(rows, root.sort).map((row) => lines.get(row.id)));
      for (const head of heads) {
        const own = head.dataset.column === root.sort.column;
        if (own) head.setAttribute("aria-sort", root.sort.up ? "ascending" : "descending");
        else head.removeAttribute("aria-sort");
      }
    }
    fill();
    const head = make("thead", {}, make("tr", {}, make("td"), ...heads));
    return [count, make("div.wb-table.wb-runs", {}, make("table", {}, head, body))];
  }

  /** Draw the table if its rows are others than before. A list from the server has rows alone: ticks are the browser's, so that an
   *  answer that comes late takes none away, and a tick leaves the focus where it is. They are kept in the order ticked. */
  function runs(root, props, trigger) {
    const boxes = () => [...root.querySelectorAll("input")];
    const ticked = () => {
      const now = boxes().filter((box) => box.checked).map((box) => box.value);
      root.ticks = [...(root.ticks || []).filter((id) => now.includes(id)), ...now.filter((id) => !(root.ticks || []).includes(id))];
      props.value = { ...props.value, chosen: root.ticks };
      trigger("change");
    };
    root.sort = root.sort || { column: "when", up: false };
    const { rows = [], chosen, empty = "" } = props.value || {};
    const kept = chosen || root.ticks || [];
    const drawn = JSON.stringify([rows, empty]);
    if (root.drawn !== drawn) root.replaceChildren(...(rows.length ? tableOfRuns(root, rows, ticked) : [make("p.count", { role: "status" }, empty)]));
    root.drawn = drawn;
    for (const box of boxes()) box.checked = kept.includes(box.value);
    if (!chosen && rows.length) ticked();
  }

  /** Bring what a button made into view, and the focus with it. */
  function reveal(id) {
    const place = document.getElementById(id);
    if (!place || !place.textContent.trim()) return;
    place.tabIndex = -1;
    place.focus({ preventScroll: true });
    place.scrollIntoView({ block: "start" });
  }

  /** Plotly draws a chart in a hidden tab as wide as it thinks fit, and nothing tells it of its tab's opening: the page's size does. */
  function redraw() {
    for (const plot of document.querySelectorAll(".js-plotly-plot")) {
      const drawn = plot.querySelector(".main-svg");
      const off = drawn && plot.offsetParent && Math.abs(drawn.getBoundingClientRect().width - plot.clientWidth) > 1;
      if (off && window.Plotly) window.Plotly.Plots.resize(plot);
    }
  }
  addEventListener("DOMContentLoaded", () => new ResizeObserver(redraw).observe(document.body));
  addEventListener("click", (event) => event.target.closest?.('[role="tab"]') && setTimeout(redraw, 50), true);
  for (const event of ["beforeprint", "afterprint"]) addEventListener(event, redraw);

  return { go, sheet, search, left, note, mended, asked, tell, began, address, confirmed, runs, reveal };
})();
