// What other rules would keep of a round's draft: a fold under a round, filled by the models when it is opened.
"use strict";

(() => {
  const { make } = Workbench;
  const ABOUT = "Each place is tested with the random number of this round; “on average” is over all random numbers.";
  let names = 0;

  class Judging {
    constructor(root) {
      Object.assign(this, { root, panel: null, round: null, chain: false, group: `judge-${(names += 1)}`, asked: null });
      this.body = make("tbody");
      this.state = make("p.caption", { role: "status" });
      this.heads = make("thead", {}, make("tr", {}, ...["rule", "keeps", "on average", "why"].map((text) => make("th", { scope: "col" }, text))));
      this.table = make("table", { hidden: true }, this.heads, this.body);
      this.fold = make("details.rules", { hidden: true }, make("summary", {}, "What other rules would keep"), this.state, this.table);
      this.fold.addEventListener("toggle", () => this.fold.open && this.look());
      root.judging = this;
    }

    /** Fit it to a round, which rules can judge again if it guessed one `chain`. */
    show(panel, round, chain) {
      Object.assign(this, { panel, round, chain, asked: null });
      this.table.hidden = true;
      this.fit();
      if (this.fold.open && !this.fold.hidden) this.look();
    }

    fit() { this.fold.hidden = !this.chain || !Workbench.asking(this.root); }

    look() {
      if (this.asked || !this.round) return;
      this.asked = `${this.group}/${(names += 1)}`;
      this.state.textContent = "Asking both models.";
      Workbench.asking(this.root)("expand", { ask: this.asked, run: this.root.run, decoder: this.panel.decoder, round: this.round.index });
    }

    answer({ rows, note, tokens, error }) {
      this.table.hidden = Boolean(error);
      this.state.textContent = error || [ABOUT, note].filter(Boolean).join(" ");
      if (error) return;
      const cell = (text, kind) => make(`td${kind}`, {}, text);
      this.body.replaceChildren(...rows.map((row) => make("tr", { class: row.own ? "own" : null },
        make("td", {}, make("b", {}, row.title), make("span.law", {}, `${row.own ? "this decoder, " : ""}${row.law}`)),
        cell(`${row.kept} of ${tokens.length}`, ".count"), cell(row.mean.toFixed(2), ".count"), make("td", {}, make("bdi", {}, row.why)))));
    }
  }

  /** The fold of a round up close: `show(panel, round, chain)` fits it to one. */
  Workbench.judging = (root) => new Judging(root);
})();
