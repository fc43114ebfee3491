// The legend: what the colours mean, which tokens have them, and what the pointer is at.
"use strict";

(() => {
  const { make } = Workbench;
  const fates = () => Workbench.fates;

  /** The legend of the fates, with the race and the switch of rejected drafts. */
  Workbench.legend = (root) => {
    const toggle = make("input", { type: "checkbox" });
    root.classList.add("show-refused");
    toggle.addEventListener("change", () => {
      root.classList.toggle("show-refused", !toggle.checked);
      Workbench.trimLegend(root);
    });
    const bar = make("div.wb-legend", { role: "group", "aria-label": "What the colours mean" });
    const says = make("p.says", { "aria-live": "polite" }, POINT);
    for (const [name, fate] of Object.entries(fates())) {
      bar.append(make("button.entry", { type: "button", "aria-pressed": "false", "data-fate": name }, make(`span.tok.${name}`, {}, fate.label)));
    }
    bar.append(says, Workbench.race(root), make("label.toggle", {}, toggle, "clean text"));
    explain(root, bar, says);
    light(root, bar);
    return bar;
  };

  const POINT = "Point at a word, or tap it, to see where it came from. Click one that was kept, or tap it again, to see what else could stand there.";

  /** Under the legend stands what the colour of the token under the pointer means. */
  function explain(root, bar, says) {
    const at = (event) => event.target.closest && event.target.closest(".tok, .entry");
    const show = (event) => {
      const found = at(event);
      if (!found) return;
      const name = found.dataset.fate || (found.token && found.token.fate) || (found.closest(".entry") || {dataset: {}}).dataset.fate;
      const fate = fates()[name];
      if (!fate) return;
      says.textContent = `${fate.label}: ${fate.help}`;
      for (const entry of bar.querySelectorAll(".entry")) entry.classList.toggle("pointed", entry.dataset.fate === name);
    };
    const hide = (event) => {
      if (!at(event)) return;
      says.textContent = POINT;
      for (const entry of bar.querySelectorAll(".entry")) entry.classList.remove("pointed");
    };
    root.addEventListener("pointerover", show);
    root.addEventListener("focusin", show);
    root.addEventListener("pointerout", hide);
    root.addEventListener("focusout", hide);
  }

  /** An entry of the legend lights its tokens: while it is pointed at or has the focus, and after a click or a tap until the next. */
  function light(root, bar) {
    const entries = [...bar.querySelectorAll(".entry")];
    let kept = null;
    const lit = (entry) => {
      const fate = (entry || kept || { dataset: {} }).dataset.fate;
      if (fate) root.dataset.lit = fate;
      else delete root.dataset.lit;
    };
    for (const entry of entries) {
      entry.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && lit(entry));
      entry.addEventListener("pointerleave", () => lit(null));
      entry.addEventListener("focus", () => entry.matches(":focus-visible") && lit(entry));
      entry.addEventListener("blur", () => lit(null));
      entry.addEventListener("click", () => {
        kept = kept === entry ? null : entry;
        for (const each of entries) each.setAttribute("aria-pressed", String(each === kept));
        lit(null);
      });
    }
  }

  /** Only fates that occur are in the legend; refused drafts once they are shown. */
  Workbench.trimLegend = (root) => {
    const occurring = new Set(root.shown.flatMap((panel) => panel.tokens.map((token) => token.fate)));
    for (const entry of root.querySelectorAll(".wb-legend .entry")) {
      const refused = entry.dataset.fate === "rejected" || entry.dataset.fate === "discarded";
      entry.hidden = refused ? !root.classList.contains("show-refused") : occurring.size > 0 && !occurring.has(entry.dataset.fate);
    }
  };
})();
