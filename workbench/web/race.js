// The race: all texts of a run arrive again on one clock, each round when it was over as measured.
"use strict";

(() => {
  const { make, calm, timed } = Workbench;
  const SPEEDS = [["measured speed", 1], ["half", 0.5], ["a quarter", 0.25], ["a tenth", 0.1], ["a hundredth", 0.01], ["twice as fast", 2], ["ten times as fast", 10]];
  const WATCHABLE = 1.5; // seconds: a shorter race opens in slow motion
  const ROOMY = 6; // lanes: of more, each is a single line, so that all are seen
  const seconds = (value) => `${value.toFixed(value < 1 ? 3 : value < 10 ? 2 : 1)} s`;

  /** The text of an engine after each piece of its answer, whose number its tokens have instead of a round's. */
  function arrived(panel) {
    const texts = new Map(panel.tokens.map((token) => [token.node, token]));
    return { texts, after: panel.clock.map((_, i) => panel.tokens.filter((token) => token.round <= i).map((token) => token.node)) };
  }

  /** A panel as a lane: when each of its rounds was over, and its text then. */
  class Lane {
    constructor(panel) {
      const { texts, after } = panel.rounds.length ? Workbench.history(panel.rounds) : arrived(panel);
      let total = 0;
      Object.assign(this, { panel, texts, after, ends: panel.clock.map((s) => (total += s)), at: null });
      this.length = Math.max(1, panel.tokens.length);
      this.fill = make("i");
      this.text = make("div.wb-text", { dir: "auto" });
      this.state = make("span.lane-state");
      this.paper = make("div.wb-paper", { tabindex: 0, role: "group", "aria-label": `the text of ${panel.title}` }, this.text);
      this.box = make("article.lane", { "data-decoder": panel.decoder }, make("header", {}, make("h4", {}, panel.title), this.state), make("div.track", {}, this.fill), this.paper);
    }

    get end() { return this.ends[this.ends.length - 1] || 0; }

    /** How many rounds were over after so many seconds. */
    rounds(time) {
      let count = 0;
      while (count < this.ends.length && this.ends[count] <= time + 1e-9) count += 1;
      return count;
    }

    /** When it was over, in words. */
    get over() { return timed(this.panel, seconds(this.end)); }

    /** Whether the text is another one now. */
    show(time) {
      const count = this.rounds(time), done = count === this.ends.length;
      if (count === this.at) return false;
      this.at = count;
      const nodes = count ? this.after[count - 1] : [], old = count > 1 ? new Set(this.after[count - 2]) : new Set();
      this.text.replaceChildren(...nodes.filter((node) => this.texts.has(node)).map((node) => {
        const span = Workbench.tokenSpan(this.texts.get(node));
        span.removeAttribute("tabindex");
        span.classList.toggle("fresh", !old.has(node) && !done);
        return span;
      }));
      this.fill.style.width = `${Math.min(100, (100 * nodes.length) / this.length)}%`;
      this.box.classList.toggle("done", done);
      this.box.dataset.tokens = nodes.length;
      const [place] = this.panel.place;
      if (done) this.state.replaceChildren(place && `${place} · `, make("span.length", {}, `${this.panel.tokens.length} tokens in `), this.over);
      else this.state.textContent = `${nodes.length} token${nodes.length === 1 ? "" : "s"}`;
      return true;
    }
  }

  class Race {
    constructor(root, panels, opener) {
      Object.assign(this, { root, opener, lanes: panels.map((panel) => new Lane(panel)), time: 0, frame: null });
      this.last = this.lanes.reduce((a, b) => (b.end > a.end ? b : a));
      this.layOut();
    }

    get total() { return this.last.end; }

    /** Why places are shared, or none is given. */
    get places() {
      const places = this.lanes.map((lane) => lane.panel.place[0]), why = this.lanes[0].panel.place[1];
      if (!places.some(Boolean)) return why && ` There are no places here: ${why}.`;
      return places.some((place) => place.startsWith("shared")) ? " Places are shared where the ranges of the timings overlap." : "";
    }

    layOut() {
      const button = (label, title) => make("button", { type: "button", "aria-label": title, title }, label);
      this.title = make("h3", { tabindex: -1 }, "The race: every text on one clock");
      this.play = button("▶ Play", "play");
      this.again = button("↺", "back to the start");
      this.close = button("✕", "close the race");
      this.slider = make("input", { type: "range", min: 0, max: Math.max(1, Math.ceil(this.total * 1000)), step: 1, value: 0, "aria-label": "time in the race" });
      this.speed = make("select", { "aria-label": "speed of the race" }, ...SPEEDS.map(([name, factor]) => make("option", { value: factor }, name)));
      this.clock = make("output.clock");
      this.news = make("p.caption", { role: "status" });
      const slow = SPEEDS.filter(([, factor]) => factor <= 1), [name, factor] = slow.find(([, factor]) => this.total / factor >= WATCHABLE) || slow.at(-1);
      this.speed.value = factor;
      const why = factor < 1 ? ` It took ${this.last.over}, so it opens at ${name} of the measured speed.` : "";
      this.section = make("section.wb-race", { "aria-label": "Race" },
        make("header", {}, this.title, make("div.controls", {}, this.again, this.play, make("label", {}, "Speed ", this.speed), this.slider, this.clock), this.close),
        make("p.caption", {}, `Each text grows round by round, at the measured times.${why}${this.places}`, make("span.keys", {}, ` Space plays and pauses${this.root.stage.stays ? "" : ", Escape closes"}.`)),
        make(this.lanes.length > ROOMY ? "div.lanes.dense" : "div.lanes", {}, ...this.lanes.map((lane) => lane.box)), this.news);
      this.play.addEventListener("click", () => this.toggle());
      this.again.addEventListener("click", () => { this.go(0); });
      this.close.addEventListener("click", () => this.end());
      this.slider.addEventListener("input", () => { this.pause(); this.show(Math.min(this.total, Number(this.slider.value) / 1000)); });
      this.speed.addEventListener("change", () => this.frame && this.run());
      this.section.addEventListener("keydown", (event) => {
        if (event.key === "Escape") this.end();
        else if (event.key === " " && !event.target.closest("button, select, input")) {
          event.preventDefault();
          this.toggle();
        }
      });
    }

    show(time) {
      this.time = Math.max(0, Math.min(this.total, time));
      const papers = this.lanes.filter((lane) => lane.show(this.time)).map((lane) => lane.paper);
      // What is newest comes into view. All sizes are read before anything scrolls: one layout, not one for each lane.
      const ends = papers.map((paper) => [paper.scrollWidth, paper.scrollHeight]);
      papers.forEach((paper, i) => paper.scrollTo(...ends[i]));
      this.slider.value = Math.round(this.time * 1000);
      this.slider.setAttribute("aria-valuetext", `${seconds(this.time)} of ${this.last.over}`);
      this.clock.textContent = `${seconds(this.time)} of ${this.last.over}`;
      const done = this.lanes.filter((lane) => lane.end <= this.time + 1e-9).sort((a, b) => b.end - a.end);
      const news = done.length ? `${done[0].panel.title} is done after ${done[0].over}${done.length === this.lanes.length ? ": all are done" : ""}.` : "";
      if (this.news.textContent !== news) this.news.textContent = news;
    }

    /** Run on from where it is; the clock is the browser's, so a slow screen skips and never lags. */
    run() {
      cancelAnimationFrame(this.frame);
      const factor = Number(this.speed.value), from = this.time, began = performance.now();
      const step = () => {
        if (!this.section.isConnected) return this.pause();
        this.show(from + ((performance.now() - began) / 1000) * factor);
        if (this.time >= this.total) return this.pause();
        this.frame = requestAnimationFrame(step);
      };
      this.frame = requestAnimationFrame(step);
      this.play.textContent = "❚❚ Pause";
      this.play.setAttribute("aria-label", "pause");
    }

    pause() {
      cancelAnimationFrame(this.frame);
      this.frame = null;
      this.play.textContent = "▶ Play";
      this.play.setAttribute("aria-label", "play");
    }

    go(time) {
      const running = this.frame !== null;
      this.pause();
      this.show(time);
      if (running) this.run();
    }

    toggle() {
      if (this.frame !== null) return this.pause();
      if (this.time >= this.total) this.show(0);
      this.run();
    }

    end() {
      this.pause();
      this.root.stage.close(this.opener);
    }

    open() {
      if (this.root.lanes) this.root.lanes.finish();
      this.root.stage.put(this.section, this.opener);
      this.show(0);
      this.root.stage.reveal(this.title);
      if (!calm()) this.run();
    }
  }

  const timedRounds = ({ rounds, clock = [] }) => rounds.length > 0 && clock.length === rounds.length;
  const timedPieces = ({ rounds, clock = [], tokens }) => !rounds.length && tokens.length > 0 && tokens.every(({ round }) => round !== null && round < clock.length);
  const clocked = (panel) => panel && panel.status === "done" && (timedRounds(panel) || timedPieces(panel));
  const racing = (root) => root.shown.filter(clocked);

  /** Start the race of these panels; nothing happens without one whose seconds are known. */
  Workbench.start = (root, panels, opener) => {
    const able = panels.filter(clocked);
    if (able.length) new Race(root, able, opener).open();
  };

  /** The button that opens the race, once two texts with known seconds are there. */
  Workbench.race = (root) => {
    const button = make("button.race-open", { type: "button", hidden: true }, "▶ Race");
    button.title = "play all texts on one clock, at the measured speed";
    button.addEventListener("click", () => new Race(root, racing(root), button).open());
    root.racing = () => { button.hidden = racing(root).length < 2; };
    return button;
  };
})();
