// Replay: the rounds of one decoder, each as the token tree it tried, with the text so far next to it.
"use strict";

(() => {
  const { make, timed } = Workbench;
  const PAUSE_MS = 900;
  const kept = (trial) => trial.fate !== "rejected" && trial.fate !== "discarded";

  /** What is known of a decoder's rounds: the output after each, the kept token of each node, the round that made it, and the joint ln p up to it. */
  function history(rounds) {
    const texts = new Map(), scores = new Map(), made = new Map(), after = [];
    let current = [];
    for (const round of rounds) {
      for (const node of round.nodes) made.set(node, round);
      for (const t of round.trials) {
        if (!kept(t) && texts.has(t.node)) continue;
        texts.set(t.node, t);
        const above = scores.has(t.parent) ? scores.get(t.parent) : texts.has(t.parent) ? null : 0;
        scores.set(t.node, above === null || t.log_p === null || t.log_p === undefined ? null : above + t.log_p);
      }
      current = [...current.slice(0, round.keep), ...round.nodes];
      after.push(current);
    }
    const line = (node) => {
      const path = [];
      for (let t = texts.get(node); t; t = texts.get(t.parent)) path.push(t); // parents have lower numbers: it ends
      return path.reverse();
    };
    return { texts, scores, made, after, line };
  }

  Workbench.history = history;

  /** Arrow keys among the nodes: to the right a child, to the left the parent, up and down within a column. */
  function neighbour(nodes, node, key) {
    if (key === "ArrowRight") return node.children[0];
    if (key === "ArrowLeft") return nodes.find((other) => other.children.includes(node));
    const column = nodes.filter((other) => other.column === node.column).sort((a, b) => a.y - b.y);
    return column[column.indexOf(node) + (key === "ArrowDown" ? 1 : -1)];
  }

  function beamsTable(beams, answer) {
    const body = make("tbody");
    for (const beam of beams) {
      const best = answer.length && answer[answer.length - 1] === beam.node;
      body.append(make("tr", { class: best ? "best" : null }, make("td", {}, beam.score === null ? "–" : beam.score.toFixed(2)), make("td", {}, make("bdi", {}, `…${beam.text}`), best ? make("b", {}, " (best now)") : null)));
    }
    return make("table.beam-table", {}, make("thead", {}, make("tr", {}, make("th", { scope: "col", title: "the sum of ln p of all its tokens" }, "joint ln p"), make("th", { scope: "col" }, "beam ends with"))), body);
  }

  const button = (label, title) => make("button", { type: "button", title, "aria-label": title }, label);
  const milliseconds = (panel, seconds) => `${timed(panel, (1e3 * seconds).toFixed(1))} ms`;

  const HELP = "Arrow keys step through the rounds, and through the tree once a token has the focus; Space plays, + and − zoom, 0 fits";

  class Replay {
    constructor(root, panel, opener) {
      Object.assign(this, { root, panel, opener, rounds: panel.rounds, timer: null, view: Workbench.viewer() }, history(panel.rounds));
      this.drafts = this.rounds.some((round) => round.trials.some((t) => t.fate === "accepted" || !kept(t)));
      this.beams = this.rounds.some((round) => round.provisional);
      this.score = (node) => (this.beams ? this.scores.get(node) : null);
      this.layOut();
      this.wire();
    }

    layOut() {
      const { panel } = this;
      this.judging = Workbench.judging(this.root, panel);
      this.title = make("h3", { tabindex: -1 }, `Rounds of ${panel.title}`);
      this.sentence = make("p.sentence", { "aria-live": "polite" });
      this.caption = make("p.caption");
      this.text = make("div.wb-paper");
      this.alive = make("div.beams-now");
      this.list = make("ul");
      this.slider = make("input", { type: "range", min: 0, max: this.rounds.length - 1, value: 0, "aria-label": "round" });
      this.buttons = {
        back: button("◀", "previous round"), play: button("▶ Play", "play"), next: button("▶", "next round"), close: button("✕", "close the replay"),
        closer: button("+", "zoom in"), wider: button("−", "zoom out"), whole: button("fit", "show the whole tree"),
      };
      const { back, play, next, close, closer, wider, whole } = this.buttons;
      this.section = make("section.wb-replay", { "aria-label": `Rounds of ${panel.title}` },
        make("header", {}, this.title, make("div.controls", {}, back, play, next, this.slider), make("div.zoom", {}, wider, closer, whole), close),
        this.sentence, this.caption, this.judging.fold, make("div.split", {}, this.view.frame, make("div.beside", {}, this.text, this.alive)),
        make("details.as-text", {}, make("summary", {}, "This round as text"), this.list), make("p.caption.keys", {}, `${HELP}${this.root.stage.stays ? "" : ", Escape closes"}.`));
    }

    wire() {
      const { back, play, next, close, closer, wider, whole } = this.buttons;
      const press = (element, act) => element.addEventListener("click", act);
      this.slider.addEventListener("input", () => this.go(this.at));
      press(back, () => this.go(this.at - 1));
      press(next, () => this.go(this.at + 1));
      press(play, () => this.toggle());
      press(close, () => this.end());
      press(closer, () => this.view.zoom(1.5));
      press(wider, () => this.view.zoom(1 / 1.5));
      press(whole, () => this.view.whole());
      this.section.addEventListener("keydown", (event) => this.key(event));
    }

    get at() { return Number(this.slider.value); }

    show(index) {
      this.slider.value = Math.max(0, Math.min(this.rounds.length - 1, index));
      const { at, rounds, panel, score, texts } = this, round = rounds[at], answer = this.after[at], stands = new Set(answer);
      this.view.show(round, {
        standing: (node) => node.trunk || stands.has(node.trial.node), score, place: { panel, round },
        start: (node) => (texts.has(node) ? texts.get(node).text : "prompt"),
      });
      this.sentence.textContent = Workbench.sentence(round, at ? this.after[at - 1].length : 0, this.drafts);
      const often = round.trials.length > new Set(round.trials.map((t) => t.node)).size ? " · ×2: drawn twice" : "";
      this.caption.textContent = `Round ${round.index + 1} of ${rounds.length} · draft ${milliseconds(panel, round.draft_seconds)}, verify ${milliseconds(panel, round.verify_seconds)}${often}`;
      this.slider.setAttribute("aria-valuetext", `round ${round.index + 1} of ${rounds.length}`);
      this.write(round, answer);
      this.judging.show(round);
      const alive = Workbench.beams(round, this.line);
      this.alive.replaceChildren(...(alive.length ? [beamsTable(alive, answer)] : []));
      this.list.replaceChildren(...Workbench.treeText(this.view.tree.nodes, score).map(({ depth, text }) => {
        const item = make("li", {}, make("bdi", {}, text));
        item.style.marginLeft = `${Math.min(depth, 12) * 1.2}em`;
        return item;
      }));
      this.buttons.back.disabled = at === 0;
      this.buttons.next.disabled = at === rounds.length - 1;
    }

    /** The output after a round, its newest tokens outlined. */
    write(round, answer) {
      const body = make("div.wb-text", { dir: "auto" }), fresh = new Set(round.nodes);
      for (const node of answer) {
        if (!this.texts.has(node)) continue;
        const span = Workbench.tokenSpan(this.texts.get(node));
        span.place = { panel: this.panel, round: this.made.get(node) };
        span.classList.toggle("fresh", fresh.has(node));
        body.append(span);
      }
      this.text.replaceChildren(Workbench.fillPrompt(make("span.prompt", { dir: "auto" }), this.panel), body);
      this.text.scrollTop = this.text.scrollHeight;
    }

    go(index) {
      this.stop();
      this.show(index);
    }

    stop() {
      clearInterval(this.timer);
      this.timer = null;
      this.buttons.play.textContent = "▶ Play";
      this.buttons.play.setAttribute("aria-label", "play");
    }

    toggle() {
      if (this.timer) return this.stop();
      const last = this.rounds.length - 1;
      if (this.at === last) this.show(0);
      this.buttons.play.textContent = "❚❚ Pause";
      this.buttons.play.setAttribute("aria-label", "pause");
      this.timer = setInterval(() => {
        if (!this.section.isConnected || this.at === last) return this.stop();
        this.show(this.at + 1);
      }, PAUSE_MS);
    }

    end() {
      this.stop();
      this.root.stage.close(this.opener);
    }

    key(event) {
      if (event.ctrlKey || event.altKey || event.metaKey) return;
      const group = event.target.closest(".node");
      if (group && event.key.startsWith("Arrow")) {
        event.preventDefault();
        return this.walk(group, event.key);
      }
      const keys = { Escape: () => this.end(), "+": () => this.view.zoom(1.5), "=": () => this.view.zoom(1.5), "-": () => this.view.zoom(1 / 1.5), 0: () => this.view.whole() };
      if (event.target === this.title) keys[" "] = () => this.toggle();
      if (event.target !== this.slider && !event.target.closest(".wb-text")) {
        const last = this.rounds.length - 1;
        Object.assign(keys, { ArrowRight: () => this.go(this.at + 1), ArrowLeft: () => this.go(this.at - 1), Home: () => this.go(0), End: () => this.go(last) });
      }
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    }

    walk(group, key) {
      const { nodes } = this.view.tree;
      const found = neighbour(nodes, nodes.find((node) => node.group === group), key);
      if (!found) return;
      group.setAttribute("tabindex", -1);
      found.group.setAttribute("tabindex", 0);
      found.group.focus({ preventScroll: true });
    }

    open() {
      this.root.stage.put(this.section, this.opener);
      this.show(0);
      let width = this.view.frame.clientWidth;
      new ResizeObserver(() => {
        if (!this.section.isConnected || Math.abs(this.view.frame.clientWidth - width) < 2) return;
        width = this.view.frame.clientWidth;
        this.show(this.at);
      }).observe(this.view.frame);
      this.root.stage.reveal(this.title);
    }
  }

  /** Show the rounds of a panel under its row; `opener` has the focus again when it is closed. */
  Workbench.replay = (root, panel, opener) => new Replay(root, panel, opener).open();
})();
