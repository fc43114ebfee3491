// A lane of the picture: one decoder's text, round by round, and the number of its passes.
"use strict";

(() => {
  const { make, timed, calm } = Workbench;
  const BEATS = { read: 0.4, done: 0.75 }; // of a round on the clock of passes: guessed until here, read until there

  class Lane {
    constructor(film, clock) {
      Object.assign(this, { film, panel: film.panel, clock, at: null, state: "", met: new Set() });
      this.text = make("div.wb-text", { dir: "auto" });
      this.words = make("div.words", { dir: "auto" }, Workbench.fillPrompt(make("span.prompt", { dir: "auto" }), this.panel), this.text);
      this.number = make("b.number");
      this.unit = make("span.unit");
      this.box = make("div.lane", { "data-decoder": this.panel.decoder }, make("div.count", {}, this.number, this.unit), this.words);
      this.groups = film.provisional ? [] : film.rounds.map((_, at) => this.group(at));
      this.text.append(...this.groups);
    }

    /** When each round is over on the clock: after so many passes, or so many seconds. */
    get ends() { return this.clock === "seconds" ? this.film.seconds : this.film.passes; }
    get end() { return this.ends.at(-1) || 0; }

    /** When it is over, in words. */
    get over() { return this.clock === "seconds" ? timed(this.panel, Workbench.seconds(this.end)) : `${this.end} passes`; }

    /** With its decoder's name, where several lanes stand in one list. */
    named() {
      this.box.prepend(make("h4", {}, make("span.title", {}, this.panel.title), make("span.when", {}, this.over)));
      return this;
    }

    /** What is newest comes into view, where a lane has room for a few lines alone. */
    follow() {
      const last = this.film.provisional ? this.text.lastElementChild : this.groups[this.at], line = parseFloat(getComputedStyle(this.words).lineHeight);
      if (last) this.words.scrollTop = line * Math.round((last.offsetTop + last.offsetHeight) / line) - this.words.clientHeight;
    }

    /** The round that is up close; of a copy also the words that it copied. */
    mark(at) {
      for (const element of this.text.querySelectorAll(".opened, .source")) element.classList.remove("opened", "source");
      if (this.groups[at]) this.groups[at].classList.add("opened");
      const from = this.film.copied(at);
      if (from) for (const span of this.text.querySelectorAll(".tok:not(.struck)")) if (span.place.at >= from.first && span.place.at <= from.last) span.classList.add("source");
    }

    /** Copied words fly from where they stand to where they are guessed. */
    fly(at) {
      const from = this.film.copied(at), group = this.groups[at], sources = from ? [...this.text.querySelectorAll(".tok:not(.struck)")].filter(({ place }) => place.at >= from.first && place.at <= from.last) : [];
      if (!from || !group) return;
      const start = (sources[0] || this.words.firstChild).getBoundingClientRect();
      for (const span of group.querySelectorAll(".drafted")) {
        const end = span.getBoundingClientRect(), ghost = make("span.flying", { "aria-hidden": "true" }, span.textContent);
        Object.assign(ghost.style, { left: `${end.left}px`, top: `${end.top}px` });
        this.box.append(ghost);
        ghost.animate([{ transform: `translate(${start.left - end.left}px, ${start.top - end.top}px)`, opacity: 1 }, { transform: "none", opacity: 0.4 }], { duration: 500, easing: "ease-in-out" }).finished.finally(() => ghost.remove());
      }
    }

    word(token, at, phase) {
      const span = Workbench.tokenSpan(token), place = this.film.places.get(token.node);
      span.place = { panel: this.panel, round: this.panel.rounds[at], at: this.panel.tokens[place] === token ? place : null };
      if (token.fate === "rejected" || token.fate === "discarded") span.classList.add("struck");
      if (["accepted", "rejected", "discarded"].includes(token.fate)) span.classList.add("drafted");
      span.style.setProperty("--i", phase);
      return span;
    }

    group(at) {
      const { words, others } = this.film.words(at), group = make("span.round", { "data-round": at });
      words.forEach((token, i) => group.append(this.word(token, at, i)));
      group.style.setProperty("--n", Math.max(1, words.length));
      if (others) group.insertBefore(make("span.others", { title: "guesses on other branches" }, `+${others}`), [...group.children].find((span) => span.token.fate !== "accepted") || null);
      return group;
    }

    /** The round at a moment, and how far it is: "guess", "read" or "done"; -1 before the first. */
    moment(time) {
      const { ends } = this, over = ends.findIndex((end) => end > time + 1e-9);
      if (over < 0) return { at: ends.length - 1, phase: "done" };
      const start = over ? ends[over - 1] : 0, part = (time - start) / (ends[over] - start), { read, done } = this.parts(over);
      if (part <= 1e-9) return { at: over - 1, phase: "done" };
      return { at: over, phase: part < read ? "guess" : part < done ? "read" : "done" };
    }

    parts(at) { return this.clock === "seconds" ? { read: this.film.share(at), done: 1 } : BEATS; }

    /** The next moment after `time` at which something changes; undefined after the last. */
    next(time) {
      const { ends } = this, at = ends.findIndex((end) => end > time + 1e-9);
      if (at < 0) return undefined;
      const start = at ? ends[at - 1] : 0, { read, done } = this.parts(at);
      return [1e-6, read, done, 1].map((part) => start + part * (ends[at] - start)).find((moment) => moment > time + 1e-9);
    }

    /** Whether something changed. */
    show(time, playing) {
      const { at, phase } = this.moment(time), state = `${at}/${phase}`;
      if (state === this.state) return false;
      this.state = state;
      this.at = at;
      this.met = new Set(phase === "done" && at >= 0 ? [...this.film.words(at).words, ...this.film.rounds[at].trials].map((t) => t.fate) : []);
      if (this.film.provisional) this.fill(phase === "done" ? at : at - 1);
      else this.groups.forEach((group, i) => { group.dataset.phase = i < at ? "done" : i === at ? phase : ""; });
      const passes = phase === "done" ? this.film.passes[at] || 0 : this.film.passes[at - 1] || 0;
      this.number.textContent = passes;
      this.unit.textContent = `${this.film.told ? "pass" : "piece"}${passes === 1 ? "" : this.film.told ? "es" : "s"}`;
      this.box.classList.toggle("over", time >= this.end);
      if (playing && phase === "guess" && this.panel.source === "text" && !calm()) this.fly(at);
      return true;
    }

    /** The text of a beam decoder after a round: its best beam then, of which a later round may take words back. */
    fill(at) {
      const nodes = at < 0 ? [] : this.film.after[at], fresh = new Set(at < 0 ? [] : this.film.rounds[at].nodes), last = at === this.film.rounds.length - 1;
      if (last) this.text.style.minHeight = "";
      else if (!this.text.style.minHeight) this.text.style.minHeight = `${this.text.offsetHeight}px`;
      this.text.replaceChildren(...nodes.map((node) => {
        const span = this.word(this.film.token(node), this.film.rounds.indexOf(this.film.made.get(node)), 0);
        span.classList.toggle("fresh", fresh.has(node) && !last);
        return span;
      }));
    }
  }

  Workbench.lane = (film, clock) => new Lane(film, clock);
})();
