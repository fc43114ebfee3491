// The opening: two recorded texts grow once, slowly, on one clock: a jump, and a tick under the text, for each pass of the large model.
"use strict";

(() => {
  const { make, calm, timed } = Workbench;
  const SECONDS = 8; // of the slower text
  const JUMP_MS = 240;
  const begun = new Map(); // by run, when its lanes began on this page: a drawing that comes later goes on from there

  const milliseconds = (panel, seconds) => `${timed(panel, (1000 * seconds).toFixed(0))} ms`;
  const counted = (count, one, many) => `${count} ${count === 1 ? one : many}`;
  /** A panel whose rounds are passes of the large model, each with its measured seconds. */
  const plain = (panel) => panel && panel.status === "done" && panel.rounds.length > 0 && panel.passes === panel.rounds.length && (panel.clock || []).length === panel.passes;

  class Lane {
    constructor(panel) {
      let total = 0;
      Object.assign(this, { panel, ends: panel.clock.map((s) => (total += s)), at: 0 });
      this.groups = panel.rounds.map((round) => {
        const spans = panel.tokens.filter((token) => token.round === round.index).map(Workbench.tokenSpan);
        for (const span of spans) span.removeAttribute("tabindex");
        return make("span.pass", {}, ...spans, make("i.tick"));
      });
      this.count = make("span.count");
      this.figures = make("span.figures");
      this.hopper = make("i.hopper");
      this.start = make("span.from", {}, `…${panel.prompt.slice(-24).replace(/^\S*\s/, "")}`);
      this.words = make("div.words", { "aria-hidden": "true", dir: "auto" }, this.start, ...this.groups, this.hopper);
      this.box = make("div.lane", { "data-decoder": panel.decoder }, make("div.who", {}, make("h4", {}, panel.title), this.count, this.figures), this.words);
    }

    get end() { return this.ends[this.ends.length - 1]; }

    /** The seconds of the next pass that ends after `time`. */
    next(time) { return this.ends.find((end) => end > time); }

    show(time, jump) {
      const passes = this.ends.filter((end) => end <= time).length, over = passes === this.ends.length;
      for (let i = Math.min(passes, this.at); i < this.groups.length; i += 1) this.groups[i].classList.toggle("shown", i < passes);
      this.count.textContent = counted(passes, "pass", "passes") + (over ? `, ${milliseconds(this.panel, this.end)}` : "");
      this.box.dataset.passes = passes;
      this.box.classList.toggle("done", over);
      if (jump && passes > this.at) this.leap(passes);
      this.at = passes;
    }

    /** The marker jumps from the end of one pass to that of another; it is not drawn again until the next jump. */
    leap(passes) {
      const place = (i) => (i ? this.groups[i - 1].lastChild : this.start);
      const right = (element) => { const box = element.getClientRects(), last = box[box.length - 1] || element.getBoundingClientRect(); return [last.right, last.top]; };
      const home = this.words.getBoundingClientRect(), [x, y] = right(place(passes)), [fromX, fromY] = right(place(this.at));
      this.hopper.style.left = `${x - home.left}px`;
      this.hopper.style.top = `${y - home.top}px`;
      const back = `translate(${fromX - x}px, ${fromY - y}px)`, up = `translate(${(fromX - x) / 2}px, ${Math.min(0, fromY - y) - 12}px)`;
      this.hopper.animate([{ transform: back }, { transform: up }, { transform: "none" }], { duration: JUMP_MS, easing: "ease-out" });
    }
  }

  /** Greedy, and of the decoders with a draft model the one with the most tokens per pass; null if a run lacks either. */
  function chosen(panels) {
    const greedy = panels.find((panel) => plain(panel) && panel.decoder === "greedy");
    const drafting = panels.filter((panel) => plain(panel) && panel.drafts).sort((a, b) => a.passes / a.tokens.length - b.passes / b.tokens.length);
    return greedy && drafting.length ? [greedy, drafting[0]] : null;
  }

  const value = (panel, name) => (panel.numbers.find((n) => n.name === name) || {}).value;

  class Lanes {
    constructor(panels, run) {
      Object.assign(this, { run, lanes: panels.map((panel) => new Lane(panel)), timer: null });
      this.last = Math.max(...this.lanes.map((lane) => lane.end));
      this.slower = SECONDS / this.last;
      this.button = make("button.again", { type: "button" });
      this.button.addEventListener("click", () => (this.timer === null ? this.begin() : this.finish()));
      const slow = this.slower >= 1.5 ? `${this.slower.toFixed(0)} times slower than measured` : "as fast as measured";
      this.section = make("section.wb-lanes", { "aria-label": "One pass at a time" },
        make("header", {}, make("h3", {}, "The small model guesses ahead, the large one checks."),
          make("p.caption", {}, "Each tick is one ", ...Workbench.explained("pass"), ` of the large model; ${slow}.`), this.button),
        ...this.lanes.map((lane) => lane.box));
    }

    get time() { return (performance.now() - begun.get(this.run)) / 1000 / this.slower; }

    begin() {
      begun.set(this.run, performance.now() + 500);
      this.go();
    }

    /** Show this moment, and come back when the next pass is over: between two passes, and after the last, nothing is done. */
    go(jump = false) {
      clearTimeout(this.timer);
      const time = this.time, next = this.lanes.map((lane) => lane.next(time)).filter((end) => end !== undefined);
      for (const lane of this.lanes) lane.show(time, jump);
      this.timer = next.length && this.section.isConnected ? setTimeout(() => this.go(true), Math.max(0, (Math.min(...next) - time) * this.slower * 1000) + 1) : null;
      this.section.classList.toggle("over", this.timer === null);
      this.button.textContent = this.timer === null ? "↺ Again" : "Skip";
      for (const { panel, figures } of this.lanes) figures.textContent = this.timer === null ? `${value(panel, "block_efficiency")} per pass` : "";
    }

    finish() {
      begun.set(this.run, -Infinity);
      this.go();
    }
  }

  /** The place of the lanes; `show(value, panels)` draws those of a recorded run, and takes away those of any other; `finish()` ends them. */
  Workbench.lanes = () => {
    const place = make("div");
    let shown = null;
    place.show = (value, panels) => {
      const pair = value && value.recorded ? chosen(panels) : null;
      if (shown && pair && shown.run === value.run && shown.lanes.every((lane, i) => lane.panel === pair[i])) return;
      if (shown) clearTimeout(shown.timer);
      shown = pair && new Lanes(pair, value.run);
      place.replaceChildren(...(shown ? [shown.section] : []));
      if (!shown) return;
      if (calm()) shown.finish();
      else if (begun.has(shown.run)) shown.go();
      else shown.begin();
    };
    /** Show its end: something else moves now. */
    place.finish = () => { if (shown && shown.timer !== null) shown.finish(); };
    return place;
  };
})();
