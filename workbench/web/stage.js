// The stage: where the race, a replay or the table of alternatives opens, one at a time, next to what it was opened from.
"use strict";

(() => {
  const { make } = Workbench;
  const swiped = matchMedia("(max-width: 640px)"); // panels stand in one row, see workbench.css

  /** An element with `put(section, opener)`, `reveal(title)` and `close(opener)`. */
  Workbench.stage = (root) => {
    const stage = make("div.wb-stage");
    let panel = null; // of what is on the stage; the race is of all of them
    /** Under the row of the panel: the grid fills the rest of that row with the panels that follow. */
    const stand = () => {
      if (!panel) root.grid.before(stage);
      else if (swiped.matches) root.grid.after(stage);
      else panel.after(stage);
    };
    swiped.addEventListener("change", () => {
      const focused = stage.contains(document.activeElement) ? document.activeElement : null;
      stand();
      if (focused) focused.focus({ preventScroll: true }); // what moves loses it
    });
    return Object.assign(stage, {
      /** What stood there before goes, and the opener stays where it is on the screen. */
      put(section, opener) {
        const before = opener.getBoundingClientRect().top;
        panel = opener.closest(".wb-panel");
        stage.replaceChildren(section);
        stand();
        if (panel) window.scrollBy({ top: opener.getBoundingClientRect().top - before, behavior: "instant" });
      },
      /** The keyboard goes on from the title; the page scrolls only as far as it must. */
      reveal(title) {
        title.focus({ preventScroll: true });
        stage.scrollIntoView({ behavior: Workbench.calm() ? "auto" : "smooth", block: "nearest" });
      },
      close(opener) {
        stage.replaceChildren();
        if (opener.isConnected) opener.focus();
      },
    });
  };
})();
