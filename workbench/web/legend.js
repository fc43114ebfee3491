// The legend: what the colours mean, in one line, and which tokens have them.
"use strict";

(() => {
  const { make } = Workbench;
  const ORDER = ["accepted", "rejected", "discarded", "corrected", "bonus"]; // as a round goes; the others follow
  const place = ([name]) => (ORDER.includes(name) ? ORDER.indexOf(name) : ORDER.length);

  /** An entry for each fate that occurs in the panels that `fill` is given; the pointer on one lights its tokens, and says more of it. */
  Workbench.legend = (root) => {
    const bar = make("div.wb-legend", { role: "group", "aria-label": "What the colours mean" });
    bar.fill = (shown) => {
      const occurring = new Set(shown.flatMap((panel) => [...panel.tokens, ...panel.rounds.flatMap((round) => round.trials)].map((token) => token.fate)));
      bar.replaceChildren(...Object.entries(Workbench.fates).filter(([name]) => occurring.has(name)).sort((a, b) => place(a) - place(b)).map(([name, fate]) => make("span.entry", { "data-fate": name, title: fate.help }, make(`span.tok.${name}`, {}, fate.plain))));
    };
    const entries = () => [...bar.querySelectorAll(".entry")];
    /** In the first play an entry comes when its colour does. */
    bar.forget = () => entries().forEach((entry) => entry.classList.remove("met"));
    bar.meet = (fates) => entries().forEach((entry) => fates.has(entry.dataset.fate) && entry.classList.add("met"));
    const at = (event) => event.target.closest && event.target.closest(".entry");
    let kept = null; // by a click or a tap, until the next
    const light = (fate) => {
      if (fate) root.dataset.lit = fate;
      else delete root.dataset.lit;
    };
    bar.addEventListener("pointerover", (event) => event.pointerType === "mouse" && at(event) && light(at(event).dataset.fate));
    bar.addEventListener("pointerout", () => light(kept));
    bar.addEventListener("click", (event) => {
      if (!at(event)) return;
      const { fate } = at(event).dataset;
      kept = kept === fate ? null : fate;
      light(kept);
    });
    return bar;
  };
})();
