// The address of the page: the run or the settings on screen, and the tab. Back goes to the tab before.
"use strict";

const WorkbenchAddress = (() => {
  const first = new URLSearchParams(location.search), theme = first.get("__theme");
  for (const name of ["tab", "__theme"]) first.delete(name);
  let shown = first.toString(); // a run or settings, as a query
  let home = first.get("kind") || "compare"; // the tab that shows it

  const strip = () => document.querySelector("#rooms .tab-container"); // of the outer tabs, which stand first
  const tab = (name) => document.querySelector(`#rooms [data-tab-id="${CSS.escape(name)}"]`);
  /** The tab on screen; of a tab with tabs in it, the one that is open there. */
  function selected() {
    const name = strip()?.querySelector('[aria-selected="true"]')?.dataset.tabId || home;
    const inner = name === "lab" && document.querySelector('#lab [role="tab"][aria-selected="true"]')?.dataset.tabId;
    return inner || name;
  }

  /** Go to a tab by its name, which may lie in another one. */
  function open(name) {
    if (!strip()?.querySelector(`[data-tab-id="${CSS.escape(name)}"]`)) tab("lab")?.click();
    setTimeout(() => tab(name)?.click(), tab(name) ? 0 : 300);
  }

  /** The tab is named if it is not the one that shows what the address names anyway. */
  function address(name) {
    const query = new URLSearchParams(shown);
    if (name !== home) query.set("tab", name);
    if (theme) query.set("__theme", theme);
    return query.size ? `?${query}` : location.pathname;
  }

  const write = (how, name) => history[how]({ tab: name }, "", address(name));
  let running = false, travel = () => {};

  /** The page shows this run or these settings, which belong to the tab whose `elem_id`s have this prefix. What was shown before is a step
   *  back; but the settings of a study that runs give way to its run. */
  function show(query, prefix, runs = false, replaces = query === shown || running) {
    running = runs;
    shown = query;
    home = prefix.replace("-", "") || "compare";
    write(replaces ? "replaceState" : "pushState", selected());
  }

  /** The page shows what its address asked for: from now on another tab is another step of the history. */
  function ready() {
    const wanted = new URLSearchParams(location.search).get("tab");
    write("replaceState", selected() === "lab" && wanted ? wanted : selected()); // a tab in the lab comes later
    const follow = () => {
      const name = selected();
      if (name === "lab") return setTimeout(follow, 200); // of the lab, the tab in it is named once it has come
      if (name !== history.state?.tab) write("pushState", name);
    };
    new MutationObserver(follow).observe(document.getElementById("rooms"), { attributes: true, subtree: true, attributeFilter: ["aria-selected"] });
    addEventListener("popstate", ({ state }) => {
      const query = new URLSearchParams(location.search), name = query.get("tab") || state?.tab || home;
      for (const each of ["tab", "__theme"]) query.delete(each);
      running = false;
      if (query.toString() !== shown) {
        shown = query.toString();
        travel(shown);
      }
      history.replaceState({ tab: name }, "");
      if (name !== selected()) open(name);
    });
  }

  return { show, ready, open, visit: (query) => travel(query), travels: (go) => { travel = go; } };
})();
