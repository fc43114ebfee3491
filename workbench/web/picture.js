// The one picture: one word at a time above, with guesses below, round by round on one clock; or all decoders of the run.
"use strict";

(() => {
  const { make, calm } = Workbench;
  const FIRST = ["speculative", "mtad", "dsbd", "beam_search"]; // of the chips; the others are behind "more"
  const PLAIN = ["greedy", "multinomial"];
  const PLAINLY = "One word at a time";
  const PACES = { slow: 2600, normal: 1000, fast: 280 }; // ms a pass
  const WHOLE = { slow: 20, normal: 8, fast: 3 }; // s of all decoders on the clock of seconds
  const QUICKER = 0.85; // of the time of the round before, from the fourth on
  const TELLING = 4200; // ms of the round that is explained, in the first play
  const COUNTING = 80; // ms a pass once the lane with guesses has ended
  const DENSE = 6; // lanes: of more, each is a line
  const STOPS = "button, summary, .tok, .node:not(.trunk)";
  const began = new Map(); // by run, how far its picture has come that plays at once: it is drawn again when Gradio has loaded
  const rank = ({ panel }) => (FIRST.includes(panel.decoder) ? FIRST.indexOf(panel.decoder) : FIRST.length);
  const button = (label, title, act) => {
    const made = make("button", { type: "button", "aria-label": title, title }, label);
    made.addEventListener("click", act);
    return made;
  };

  class Picture {
    constructor(root, value) {
      Object.assign(this, { root, value, timer: null, pace: "normal", time: 0, plays: 0, more: false, all: false });
      Object.assign(root, { run: value.run, shown: value.panels, panels: [] });
      this.films = value.panels.filter((panel) => panel.status === "done" && panel.tokens.length).map(Workbench.film);
      const plain = this.films.filter(({ panel }) => PLAIN.includes(panel.decoder)), wanted = (value.settings || {}).temperature === 0 ? "greedy" : "multinomial";
      this.plains = plain.sort((a) => (a.panel.decoder === wanted ? -1 : 1));
      this.plain = plain[0] || null;
      this.others = this.films.filter((film) => !plain.includes(film)).sort((a, b) => rank(a) - rank(b));
      this.layOut();
      const going = began.get(value.run), first = !began.size; // before this one stops what may still play
      const named = this.films.find(({ panel }) => panel.decoder === value.state), plainly = named && plain.includes(named);
      this.choose({ film: (!plainly && named) || this.others[0] || null, plain: plainly ? named : this.plain, all: value.state === "all" });
      if (!this.lanes.length || calm() || !value.play || !(first || going < this.end)) return;
      this.show(going || 0); // where the drawing that this one takes the place of has come to
      this.toggle();
    }

    layOut() {
      const page = document.documentElement.classList; // of all texts on it
      this.play = button("▶ Play", "play", () => this.toggle());
      this.back = button("◀", "the round before", () => this.step(-1));
      this.next = button("▶", "the next round", () => this.step(1));
      this.speed = button("", "", () => this.setPace(Object.keys(PACES)[(Object.keys(PACES).indexOf(this.pace) + 1) % 3]));
      this.clean = button("Clean text", "hide the words that were refused", () => this.clean.setAttribute("aria-pressed", String(page.toggle("wb-clean"))));
      this.clean.setAttribute("aria-pressed", String(page.contains("wb-clean")));
      this.clock = make("output.clock");
      this.bar = make("div.bar", { role: "toolbar", "aria-label": "the picture" }, this.play, this.back, this.next, this.speed, this.clean, this.clock, Workbench.saving("the picture", () => this.root, () => `picture-${this.value.run}`));
      this.closeup = Workbench.closeup(this.root, this.value.settings);
      this.says = make("p.says");
      this.spoken = make("div.wb-unseen", { "aria-live": "polite" });
      this.stage = make("div.lanes");
      this.legend = Workbench.legend(this.root);
      this.root.replaceChildren(this.bar, this.stage, this.legend, this.spoken);
      this.setPace(this.pace);
      if (this.root.wired) return;
      this.root.wired = true; // the element stays, whatever is drawn in it
      Workbench.card(this.root, { hover: false });
      const now = () => this.root.picture;
      this.root.addEventListener("keydown", (event) => now().key(event));
      this.root.addEventListener("focusin", ({ target }) => target.closest(STOPS) && !target.closest(".wb-card") && now().stopAt(target));
      this.root.addEventListener("click", ({ target }) => now().point(target.closest(".tok")));
    }

    /** A word of the lane with guesses is pressed: its round is up close. */
    point(word) {
      const { guessing } = this, at = word && guessing && guessing.box.contains(word) ? guessing.film.rounds.indexOf(word.place.round) : -1;
      if (at < 0) return;
      this.stop();
      if (this.time >= this.end) this.look(at, "done");
    }

    /** Show other lanes, at their end; or all of them. */
    choose({ film = this.chosen, plain = this.plain, all = false }) {
      this.stop();
      const clocked = this.films.filter((each) => each.seconds);
      Object.assign(this, { chosen: film, plain, all: all && clocked.length > 1 });
      const films = this.all ? clocked : [plain, film].filter(Boolean);
      this.lanes = films.map((each) => Workbench.lane(each, this.all ? "seconds" : "passes"));
      this.guessing = this.lanes.find((lane) => lane.film === film) || this.lanes[0];
      const chips = (list, now, act) => list.map((each) => {
        const chip = button(each.panel.title, each.panel.title, () => act(each));
        chip.setAttribute("aria-pressed", String(each === now));
        chip.classList.add("chip");
        return chip;
      });
      const usual = this.others.filter((each, i) => i < 1 || rank(each) < FIRST.length || each === film), near = this.more || this.all || this.others.length - usual.length < 2 ? this.others : usual, left = this.others.length - near.length;
      const more = left > 0 ? button(`+ ${left} more`, `${left} more decoders`, () => { this.more = true; this.choose({}); this.root.querySelector(".chip")?.focus(); }) : null;
      const every = clocked.length > 1 ? button(this.all ? "Two lanes" : clocked.length === 5 ? "All five" : `All ${clocked.length}`, this.all ? "back to two lanes" : "all decoders, each at its measured time", () => this.choose({ all: !this.all })) : null;
      const law = `exactly the large model’s ${(this.value.settings || {}).temperature === 0 ? "text" : "distribution"}:`, exact = near.filter(({ panel }) => panel.exact), others = near.filter((each) => !exact.includes(each));
      const group = (says, list) => (list.length ? [make("span.who", {}, says), ...chips(list, this.all ? null : film, (each) => this.choose({ film: each }))] : []);
      const guessers = make("span.chips", { role: "group", "aria-label": "the decoder that guesses" }, ...group(law, exact), ...group(exact.length ? "not exactly:" : "not the large model’s own:", others), more, every);
      const plains = make("span.chips", { role: "group", "aria-label": "the plain decoder" }, ...(this.plains.length > 1 ? chips(this.plains, plain, (each) => this.choose({ plain: each })) : this.plains.map(({ panel }) => make("span.who", {}, panel.decoder === "greedy" ? `${panel.title}, always the likeliest` : panel.title))));
      const section = (title, head, ...lanes) => make("section", { "aria-label": title, class: title === PLAINLY ? "plainly" : null }, make("h3", {}, title, head), ...lanes);
      const under = this.guessing && !this.all ? [this.says, this.closeup.box] : [this.says];
      this.closeup.box.style.minHeight = "";
      this.clock.textContent = ""; // of all decoders alone
      this.legend.fill(films.map(({ panel }) => panel));
      if (this.all) this.stage.replaceChildren(section("All decoders, each at its measured time", guessers, ...this.lanes.map((lane) => lane.named().box), ...under));
      else this.stage.replaceChildren(...[plain && section(PLAINLY, plains, this.lanes[0].box), film && section("With guesses", guessers, this.guessing.box, ...under)].filter(Boolean));
      this.root.dataset.rounds = this.guessing ? this.guessing.film.rounds.length : 0;
      this.root.classList.toggle("every", this.all);
      this.root.classList.toggle("dense", this.all && this.lanes.length > DENSE);
      this.bar.hidden = !this.lanes.length;
      if (this.lanes.length) this.rest();
      this.tidy();
    }

    get end() { return Math.max(...this.lanes.map((lane) => lane.end)); }

    /** The end, with the round that explains the most up close. */
    rest() {
      this.show(this.end);
      for (const { words } of this.lanes) words.scrollTop = 0; // where a lane has room for a few lines alone
      this.look(this.guessing.film.telling, "done");
      this.tidy();
    }

    show(time) {
      const held = this.root.contains(document.activeElement);
      this.time = Math.max(0, Math.min(this.end, time));
      for (const lane of this.lanes) {
        if (lane.show(this.time, this.timer !== null)) lane.follow();
        this.legend.meet(lane.met);
      }
      if (this.all) {
        this.clock.textContent = Workbench.seconds(this.time);
        this.tell(this.lanes.filter((lane) => lane.end <= this.time).sort((a, b) => b.end - a.end).slice(0, 1).map((lane) => `${lane.panel.title} is done after ${lane.over}.`).join(""));
      }
      const { at, phase } = this.guessing.moment(this.time);
      if (!this.all && at >= 0) this.look(at, phase);
      else if (!this.all) this.tell("");
      this.tidy(held);
    }

    /** A sentence for those who see, and once it is whole for those who hear. */
    tell(text, whole = true) {
      this.says.textContent = text;
      if (whole && this.spoken.textContent !== text) this.spoken.textContent = text;
    }

    /** A round up close, and in a sentence. */
    look(at, phase) {
      if (this.all) return;
      const { guessing, closeup } = this;
      closeup.show(guessing.film, at, phase);
      closeup.box.style.minHeight = `${Math.max(parseFloat(closeup.box.style.minHeight) || 0, closeup.box.offsetHeight)}px`;
      guessing.mark(at);
      this.tell(phase === "done" ? guessing.film.sentence(at) : guessing.film.begun(at, phase), phase === "done");
    }

    /** Milliseconds that a unit of the clock takes now. */
    get beat() {
      if (this.all) return (1000 * WHOLE[this.pace]) / this.end;
      const { guessing } = this, { at } = guessing.moment(this.time + 1e-6), { telling } = guessing.film;
      if (this.time >= guessing.end) return COUNTING;
      if (this.pace === "normal" && this.plays === 1 && at === telling && guessing.panel.source) return TELLING;
      return Math.max(PACES.fast, PACES[this.pace] * (this.pace === "normal" ? QUICKER ** Math.max(0, at - 2) : 1));
    }

    setPace(pace) {
      this.pace = pace;
      this.speed.replaceChildren(make("span.wide", {}, "speed: "), pace);
      for (const name of ["aria-label", "title"]) this.speed.setAttribute(name, `speed: ${pace}`);
      if (this.timer !== null) { clearTimeout(this.timer); this.go(); }
    }

    go() {
      const next = this.lanes.map((lane) => lane.next(this.time)).filter((moment) => moment !== undefined);
      if (!next.length || !this.root.isConnected) return this.over();
      const moment = Math.min(...next), { beat } = this;
      this.root.style.setProperty("--beat", `${beat}ms`);
      began.set(this.value.run, this.time);
      this.timer = setTimeout(() => { this.show(moment); this.go(); }, (moment - this.time) * beat);
    }

    over() {
      this.stop();
      if (this.root.isConnected) this.rest();
    }

    /** Play, or pause. Whoever wants no motion sees the end of it at once. */
    toggle() {
      if (this.timer !== null) return this.stop();
      if (calm()) return this.rest();
      this.plays += 1;
      this.timer = 0;
      if (this.root.contains(document.activeElement)) this.play.focus({ preventScroll: true }); // a word that is not written yet cannot have it
      if (this.time >= this.end) this.show(0);
      this.root.classList.add("playing");
      this.root.classList.toggle("first", this.plays === 1 && !this.all);
      if (this.plays === 1) this.legend.forget();
      this.play.textContent = "❚❚ Pause";
      this.play.setAttribute("aria-label", "pause");
      this.go();
    }

    stop() {
      clearTimeout(this.timer);
      this.timer = null;
      if (this.root.isConnected && began.has(this.value.run)) began.set(this.value.run, Infinity);
      this.root.classList.remove("playing");
      this.play.textContent = "▶ Play";
      this.play.setAttribute("aria-label", "play");
    }

    step(by) {
      this.stop();
      const lane = this.all ? this.lanes.reduce((a, b) => (b.ends.length > a.ends.length ? b : a)) : this.guessing, { at, phase } = lane.moment(this.time);
      const shown = this.time >= this.end && !this.all ? this.closeup.at : at, to = Math.max(0, Math.min(lane.ends.length - 1, (shown ?? at) + (by > 0 && phase !== "done" ? 0 : by)));
      this.show(lane.ends[to]);
    }

    /** The page can ask the models about this run by now. */
    able() { this.closeup.judging.fit(); }

    /** While a run goes on, its texts grow here as they come: the plain one, and the last that has begun. */
    live(panels) {
      this.stop();
      const begun = panels.filter((panel) => panel.tokens.length), plain = begun.find((panel) => PLAIN.includes(panel.decoder)), last = begun.filter((panel) => panel !== plain).at(-1);
      this.bar.hidden = true;
      this.root.run = "live";
      const lanes = [plain, last].filter(Boolean).map((panel) => Workbench.lane(Workbench.film(panel), "passes"));
      for (const lane of lanes) lane.show(Infinity);
      const head = (panel) => make("span.who", {}, `${panel.title}, ${panel.status === "running" ? panel.state : "done"}`);
      this.stage.replaceChildren(...lanes.map((lane) => make("section", {}, make("h3", {}, lane.panel === plain ? PLAINLY : "With guesses", head(lane.panel)), lane.box)));
      this.legend.fill(lanes.map((lane) => lane.panel));
    }

    // ---- the keyboard: one stop, arrows inside

    rows() {
      const able = (list) => [...list].filter((each) => each.offsetParent || each.getClientRects().length);
      const lanes = this.lanes.flatMap((lane) => [lane.box.querySelectorAll(".whole, .tok")]), [plain, guessing] = this.stage.querySelectorAll("h3");
      const heads = [plain, guessing].map((head) => (head ? head.querySelectorAll("button") : []));
      const order = this.all || !guessing ? [heads[0], ...lanes] : [heads[0], lanes[0], heads[1], lanes[1] || []];
      return [this.bar.querySelectorAll("button"), ...order, this.closeup.box.querySelectorAll(".tok, .node:not(.trunk), summary")].map(able).filter((row) => row.length);
    }

    key(event) {
      if (!this.lanes.length || event.ctrlKey || event.altKey || event.metaKey || event.target.closest(".wb-card")) return;
      const word = event.target.closest(".tok, .node");
      if (event.key === " " && !event.target.closest("button, summary")) {
        event.preventDefault();
        return this.toggle();
      }
      if (event.key === "Enter" && word) return;
      const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], Home: [0, -Infinity], End: [0, Infinity] }[event.key];
      if (!by) return;
      event.preventDefault();
      const rows = this.rows(), at = rows.findIndex((row) => row.includes(event.target)), row = rows[at + by[0]];
      if (at < 0 || !row) return;
      const place = rows[at].indexOf(event.target), x = event.target.getBoundingClientRect().left;
      const nearest = () => row.reduce((best, each) => (Math.abs(each.getBoundingClientRect().left - x) < Math.abs(best.getBoundingClientRect().left - x) ? each : best));
      (by[0] ? nearest() : row[Math.max(0, Math.min(row.length - 1, place + by[1]))]).focus();
    }

    /** The one element that Tab reaches. */
    stopAt(element) {
      for (const each of this.root.querySelectorAll('[tabindex="0"]')) each.tabIndex = -1;
      element.setAttribute("tabindex", 0);
    }

    /** What came anew is no stop of its own, and something is. What had the focus may have gone. */
    tidy(held) {
      for (const each of this.root.querySelectorAll(STOPS)) if (!each.hasAttribute("tabindex") && !each.closest(".wb-card")) each.setAttribute("tabindex", -1);
      if (!this.root.querySelector('[tabindex="0"]')) this.play.tabIndex = 0;
      if (held && !this.root.contains(document.activeElement)) this.play.focus({ preventScroll: true });
    }
  }

  customElements.define("wb-picture", class extends HTMLElement {
    static observedAttributes = ["data-shown"];
    connectedCallback() { this.draw(); }
    /** Gradio patches what stands there: the attributes first, then the children, which takes a drawing made between the two away. */
    attributeChangedCallback() { queueMicrotask(() => this.isConnected && this.draw()); }
    draw() {
      if (this.drawn === this.dataset.shown) return;
      this.drawn = this.dataset.shown;
      this.picture?.stop();
      this.picture = new Picture(this, JSON.parse(this.drawn));
    }
  });
})();
