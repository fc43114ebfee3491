// Branching: what else could stand in the place of a token, and continuing from there.
// A page that can ask the models sets `root.ask`; a report shows what the run recorded.
"use strict";

(() => {
  const { known, make, visible, number } = Workbench;
  const HINT = "the text of one token, with its space, or its number, as in #123";
  let names = 0;

  function bar(kind, value) {
    const fill = make(`i.${kind}`);
    fill.style.width = `${Math.min(100, 100 * Math.max(0, value))}%`;
    return make("span.track", {}, fill);
  }

  class Branching {
    constructor(root, panel, index) {
      Object.assign(this, { root, panel, index, asks: Workbench.asking(root), token: panel.tokens[index], group: `branch-${(names += 1)}`, choices: null });
      this.layOut();
    }

    get where() { return { run: this.root.run, decoder: this.panel.decoder, at: this.index }; }

    /** Ask the page; what it answers says which question it answers. */
    ask(event, more = {}) {
      this.asked = `${this.group}/${(names += 1)}`;
      this.asks(event, { ...this.where, ask: this.asked, ...more });
    }

    layOut() {
      const before = this.panel.tokens.slice(Math.max(0, this.index - 8), this.index).map((t) => t.text).join("") || this.panel.prompt.slice(-40);
      this.title = make("h3", { tabindex: -1 }, "What else could stand here?", make("small", {}, ` ${this.panel.title}, token ${this.index + 1}`));
      this.body = make("tbody");
      this.state = make("p.caption", { role: "status" });
      this.fault = make("p.wb-error", { role: "alert", hidden: true });
      this.head = make("tr");
      this.section = make("section.wb-branch", { "aria-label": "Alternatives" }, this.title,
        make("p.context", { dir: "auto" }, make("bdi", {}, `…${visible(before)}`), make("b", {}, make("bdi", {}, visible(this.token.text)))),
        make("table", {}, make("thead", {}, this.head), this.body), this.state, this.fault);
      if (this.asks) this.section.append(this.buttons());
    }

    buttons() {
      this.other = make("input.other", { type: "text", placeholder: HINT, "aria-label": "any other token" });
      const look = make("button", { type: "button" }, "Look it up"), others = this.root.shown.length > 1;
      look.addEventListener("click", () => this.lookUp());
      this.other.addEventListener("keydown", (event) => event.key === "Enter" && !event.ctrlKey && (event.preventDefault(), this.lookUp()));
      const one = make("button.go", { type: "button" }, `Continue with ${this.panel.title}`);
      const all = others ? make("button.go", { type: "button" }, "Continue with all decoders of this run") : null;
      one.addEventListener("click", () => this.go([this.panel.decoder]));
      if (all) all.addEventListener("click", () => this.go(this.root.shown.map((panel) => panel.decoder)));
      return make("div.choose", {}, make("label", {}, "Any other token: ", this.other), look, one, all);
    }

    /** The alternatives: those that the run recorded, until the models have answered. */
    show(choices) {
      const recorded = !choices, own = this.token.id;
      const rows = choices || this.token.alternatives.map((a) => ({ id: a.id, text: a.text, raw: a.p, warped: null }));
      const found = rows.some((row) => row.id === own) ? rows : [...rows, { id: own, text: this.token.text, raw: known(this.token.log_p) ? Math.exp(this.token.log_p) : null, warped: null }];
      const chosen = this.wanted ?? this.chosen ?? own, drawn = rows.some((row) => known(row.warped));
      const heads = ["token", "p of the large model", ...(drawn ? [`p of ${this.panel.title}`] : [])];
      this.head.replaceChildren(...heads.map((text) => make("th", { scope: "col" }, text)));
      this.body.replaceChildren(...found.map((row) => this.row(row, row.id === chosen, drawn)));
      this.state.textContent = !this.asks ? "The five likeliest, as recorded."
        : recorded ? "The five likeliest, as recorded. Asking the large model for more."
          : `${this.meaning(rows, drawn)} You can continue from any of them.`;
    }

    /** What the last column says of this decoder, or why there is none. */
    meaning(rows, drawn) {
      const { title } = this.panel;
      if (!drawn) return `${title} does not draw one token after another from the large model, so these probabilities alone do not determine its text.`;
      if (rows.some((row) => row.warped === 1)) return `Here ${title} always takes the likeliest token.`;
      return rows.some((row) => row.warped === 0) ? "Grey: cut off by the sampling settings, so it is never drawn." : `${title} may draw any of them.`;
    }

    row(row, checked, drawn) {
      const own = row.id === this.token.id, cut = row.warped === 0;
      const input = this.asks ? make("input", { type: "radio", name: this.group, value: String(row.id), checked }) : null;
      if (input) input.addEventListener("change", () => { this.chosen = row.id; this.wanted = undefined; });
      const label = make("label", {}, input, make("bdi.alt", {}, visible(row.text)), make("span.id", {}, `#${row.id}`), own ? make("em", {}, this.asks ? "stands here: rewind to it" : "stands here") : null);
      const cell = (kind, value) => make("td", {}, known(value) ? bar(kind, value) : null, make("span.value", {}, value === 0 && kind === "q" ? "never" : number(value)));
      return make("tr", { class: [own && "own", cut && "cut"].filter(Boolean).join(" ") || null }, make("td", {}, label), cell("p", row.raw), drawn ? cell("q", row.warped) : null);
    }

    get picked() {
      const input = this.body.querySelector("input:checked");
      return input ? Number(input.value) : this.token.id;
    }

    lookUp() {
      this.say("");
      const text = this.other.value;
      if (!text) return this.say("Type a token first.");
      this.state.textContent = "Looking it up.";
      this.ask("select", { token: text });
    }

    go(decoders) {
      this.say("");
      this.state.textContent = "Continuing from here.";
      this.ask("submit", { token: this.picked, decoders });
    }

    say(text) {
      this.fault.textContent = text;
      this.fault.hidden = !text;
    }

    answer({ choices, error, wanted }) {
      if (error) {
        this.say(error);
        this.state.textContent = "";
        return;
      }
      this.wanted = wanted ?? undefined;
      this.show(choices);
      if (known(wanted)) this.body.querySelector("input:checked")?.focus();
    }

    open() {
      this.root.branching = this;
      this.show(null);
      if (this.asks) this.ask("select");
      return this.section;
    }
  }

  /** How a drawing asks the models: through the panels of the page that show the same run; null in a file, and while a run goes on. */
  Workbench.asking = (root) => (root.run === "live" ? null : [root, ...document.querySelectorAll(".wb")].find((each) => each.ask && each.run === root.run)?.ask ?? null);

  /** The panel of a token of a finished text and the token's place there; null for any other token. */
  Workbench.standing = (root, anchor) => {
    if (root.run === "live") return null;
    if (anchor.place) return anchor.place.at === null ? null : anchor.place;
    if (!anchor.matches(".wb-panel .wb-paper > .wb-text > .tok:not(.refused)")) return null;
    const panel = root.shown[root.panels.findIndex(({ box }) => box.contains(anchor))];
    const at = anchor.parentElement.tokens.findIndex((group) => group.includes(anchor));
    return panel && panel.status === "done" && at >= 0 ? { panel, at } : null;
  };

  /** The alternatives of a token that can have some. */
  Workbench.branch = (root, anchor) => {
    const { panel, at } = Workbench.standing(root, anchor);
    return new Branching(root, panel, at).open();
  };

  /** What the page answered: {ask, ...} or {ask, error}; whoever has asked knows the question. */
  Workbench.answered = (value) => {
    if (!value) return;
    for (const root of document.querySelectorAll(".wb")) {
      for (const asker of [root.branching, root.judging]) if (asker && asker.asked === value.ask) asker.answer(value);
    }
  };
})();
