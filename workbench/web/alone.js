// A drawing by itself, in an app of somebody else's: the texts, or the picture of a run in one of its states.
"use strict";

(() => {
  /** The picture of the panels of `value` in a state; nothing if there are none. */
  const picture = (state) => (root, value) => {
    root.classList.add("wb", "wb-alone");
    root.replaceChildren();
    if (!value || !value.panels.length) return;
    const drawing = document.createElement("wb-picture"), panels = value.panels.map((source) => JSON.parse(source));
    drawing.className = "wb";
    drawing.dataset.shown = JSON.stringify({ run: value.run, settings: value.settings, state: state(value), panels });
    root.append(drawing);
  };

  Workbench.alone = { texts: (root, value) => Workbench.show(root, value), rounds: picture(({ decoder }) => decoder), race: picture(() => "all") };
})();
