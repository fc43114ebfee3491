// The address of the page: the run or the settings on screen, and the tab. Back goes to the tab before.
"use strict";

const WorkbenchAddress = (() => {
  const first = new URLSearchParams(location.search), theme = first.get("__theme"), wanted = first.get("tab");
  for (const name of ["tab", "__theme"]) first.delete(name);
  let shown = first.toString(); // a run or settings, as a query
  let home = first.get("kind") || "compare"; // the tab that shows it

  const tabs = () => document.querySelector(".tab-container"); // the outer ones stand first
  const selected = () => tabs()?.querySelector('[aria-selected="true"]')?.dataset.tabId || home;

  /** The tab is named if it is not the one that shows what the address names anyway. */
  function address(tab) {
    const query = new URLSearchParams(shown);
    if (tab !== home) query.set("tab", tab);
    if (theme) query.set("__theme", theme);
    return query.size ? `?${query}` : location.pathname;
  }

  const write = (how, tab) => history[how]({ tab }, "", address(tab));

  /** The page shows this run or these settings, which belong to the tab whose `elem_id`s have this prefix. */
  function show(query, prefix) {
    shown = query;
    home = prefix.replace("-", "") || "compare";
    write("replaceState", selected());
  }

  /** The page shows what its address asked for: from now on another tab is another step of the history. */
  function ready() {
    if (!tabs().querySelector(`[data-tab-id="${CSS.escape(home)}"]`)) home = "compare"; // an address can name anything
    write("replaceState", selected());
    const follow = () => selected() !== history.state?.tab && write("pushState", selected());
    new MutationObserver(follow).observe(tabs(), { attributes: true, subtree: true, attributeFilter: ["aria-selected"] });
    addEventListener("popstate", ({ state }) => {
      const tab = state?.tab || home;
      write("replaceState", tab); // what is shown may have changed since
      if (tab !== selected()) tabs().querySelector(`[data-tab-id="${CSS.escape(tab)}"]`)?.click();
    });
  }

  return { show, ready, elsewhere: Boolean(wanted) && wanted !== "compare" };
})();
