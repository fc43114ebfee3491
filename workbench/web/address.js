// The address of the page: the run or the settings on screen, and the tab. Back goes to the tab before.
"use strict";

const WorkbenchAddress = (() => {
  const first = new URLSearchParams(location.search), theme = first.get("__theme");
  for (const name of ["tab", "__theme"]) first.delete(name);
  let shown = first.toString(); // a run or settings, as a query
  let home = first.get("kind") || "compare"; // the tab that shows it
  const tabs = { outer: null, lab: null }; // on screen, and in the lab

  /** The tab on screen; of the lab, the one that is open in it: null until it has come. */
  const selected = () => (tabs.outer === "lab" ? tabs.lab : tabs.outer ?? home);

  /** A tab has come on screen, or has been chosen in the lab; both come together where one was asked for. */
  function enter(name, where) {
    const before = steps;
    tabs[where] = name;
    setTimeout(() => follows && before === steps && selected() && selected() !== history.state?.tab && write("pushState", selected()), 50);
  }

  /** The tab is named if it is not the one that shows what the address names anyway. */
  function address(name) {
    const query = new URLSearchParams(shown);
    if (name !== home) query.set("tab", name);
    if (theme) query.set("__theme", theme);
    return query.size ? `?${query}` : location.pathname;
  }

  const write = (how, name) => history[how]({ tab: name }, "", address(name));
  let running = false, follows = false, travel = () => {}, open = () => {};
  let steps = 0; // back or forward

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
    write("replaceState", selected() ?? new URLSearchParams(location.search).get("tab")); // a tab in the lab comes later
    follows = true;
    addEventListener("popstate", ({ state }) => {
      const query = new URLSearchParams(location.search), name = query.get("tab") || state?.tab || home;
      for (const each of ["tab", "__theme"]) query.delete(each);
      steps += 1;
      running = false;
      if (query.toString() !== shown) {
        shown = query.toString();
        travel(shown);
      }
      history.replaceState({ tab: name }, "");
      if (name !== selected()) open(name);
    });
  }

  /** What the page asks Gradio for, and what Gradio asks of the page: that a study runs at once. */
  const wants = {};
  function talk(props, trigger) {
    const ask = (event, name) => (what) => {
      wants[name] = what;
      props.value = { ...wants };
      trigger(event);
    };
    travel = ask("submit", "query");
    open = ask("select", "tab");
    if (props.value?.go !== undefined) WorkbenchPage.go(props.value.go);
  }

  return { enter, show, ready, talk, open: (name) => open(name), visit: (query) => travel(query) };
})();
