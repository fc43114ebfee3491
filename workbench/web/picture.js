// The one picture: one word at a time above, with guesses below, round by round on one clock.
"use strict";

(() => {
  const { make, calm } = Workbench;
  const FIRST = ["speculative", "mtad", "dsbd", "beam_search"]; // of the chips; the others are behind "more"
  const PLAIN = ["greedy", "multinomial"];
  const PACES = { slow: 2400, normal: 1000, fast: 300 }; // ms a pass

  class Picture {
    constructor(root, value) {
      Object.assign(this, { root, value, timer: null, clock: "passes", pace: "normal", time: 0 });
      this.films = value.panels.filter((panel) => panel.status === "done" && panel.tokens.length).map(Workbench.film);
      const plain = this.films.filter(({ panel }) => PLAIN.includes(panel.decoder));
      const cold = (value.settings || {}).temperature === 0;
      this.plain = plain.find(({ panel }) => panel.decoder === (cold ? "greedy" : "multinomial")) || plain[0] || null;
      this.others = this.films.filter((film) => film !== this.plain).sort((a, b) => rank(a) - rank(b));
      this.chosen = this.others.find(({ panel }) => panel.decoder === value.state) || this.others[0] || null;
      this.layOut();
      this.choose(this.chosen);
    }

    layOut() {
      const button = (label, title, act) => {
        const made = make("button", { type: "button", title, "aria-label": title }, label);
        made.addEventListener("click", act);
        return made;
      };
      this.play = button("▶ Play", "play", () => this.toggle());
      this.bar = make("div.bar", {}, this.play, button("◀", "the round before", () => this.step(-1)), button("▶", "the next round", () => this.step(1)));
      this.clean = button("clean text", "hide the words that were refused", () => {
        this.clean.setAttribute("aria-pressed", String(this.root.classList.toggle("clean")));
      });
      this.clean.setAttribute("aria-pressed", "false");
      this.bar.append(this.clean);
      this.chips = make("div.chips", { role: "group", "aria-label": "the decoder that guesses" });
      this.says = make("p.says", { "aria-live": "polite" });
      this.first = make("section", { "aria-label": "one word at a time" });
      this.second = make("section", { "aria-label": "with guesses" });
      this.root.replaceChildren(this.bar, this.first, this.second, this.says);
    }

    choose(film) {
      this.stop();
      this.chosen = film;
      this.lanes = [this.plain, film].filter(Boolean).map((each) => Workbench.lane(each, this.clock));
      const [plain, guessing] = this.plain ? this.lanes : [null, this.lanes[0]];
      this.guessing = guessing || plain;
      this.chips.replaceChildren(...this.others.map((each) => {
        const chip = make("button.chip", { type: "button", "aria-pressed": String(each === film) }, each.panel.title);
        chip.addEventListener("click", () => this.choose(each));
        return chip;
      }));
      if (plain) this.first.replaceChildren(make("h3", {}, "One word at a time", make("span.who", {}, this.plain.panel.title)), plain.box);
      if (guessing) this.second.replaceChildren(make("h3", {}, "With guesses", this.chips), guessing.box);
      this.first.hidden = !plain;
      this.second.hidden = !guessing;
      this.show(this.end);
    }

    get end() { return Math.max(...this.lanes.map((lane) => lane.end)); }

    show(time) {
      this.time = Math.max(0, Math.min(this.end, time));
      for (const lane of this.lanes) lane.show(this.time);
      const { at, film } = this.guessing, says = at < 0 ? "" : film.sentence(at);
      if (this.says.textContent !== says) this.says.textContent = says;
    }

    /** Milliseconds that a pass takes now: what follows the other lane's end is a matter of counting. */
    get beat() { return this.time >= this.guessing.end ? 90 : PACES[this.pace]; }

    go() {
      const next = this.lanes.map((lane) => lane.next(this.time)).filter((moment) => moment !== undefined);
      if (!next.length || !this.root.isConnected) return this.stop();
      const moment = Math.min(...next);
      this.timer = setTimeout(() => { this.show(moment); this.go(); }, (moment - this.time) * this.beat);
    }

    toggle() {
      if (this.timer !== null) return this.stop();
      if (this.time >= this.end) this.show(0);
      this.root.classList.add("playing");
      this.play.textContent = "❚❚ Pause";
      this.play.setAttribute("aria-label", "pause");
      this.go();
    }

    stop() {
      clearTimeout(this.timer);
      this.timer = null;
      this.root.classList.remove("playing");
      this.play.textContent = "▶ Play";
      this.play.setAttribute("aria-label", "play");
    }

    step(by) {
      this.stop();
      const { ends, at } = this.guessing, to = Math.max(-1, Math.min(ends.length - 1, at + by));
      this.show(to < 0 ? 0 : ends[to]);
    }
  }

  const rank = ({ panel }) => (FIRST.indexOf(panel.decoder) + FIRST.length + 1) % (FIRST.length + 1) + (FIRST.includes(panel.decoder) ? 0 : FIRST.length);

  customElements.define("wb-picture", class extends HTMLElement {
    static observedAttributes = ["data-shown"];
    connectedCallback() { this.draw(); }
    attributeChangedCallback() { if (this.isConnected) this.draw(); }
    draw() {
      if (this.drawn === this.dataset.shown) return;
      this.drawn = this.dataset.shown;
      this.picture?.stop();
      this.picture = new Picture(this, JSON.parse(this.drawn));
    }
  });
})();
