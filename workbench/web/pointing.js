// When the card of a token is on the screen, and where: a mouse points, the keyboard moves the focus; a press pins it to the right margin,
// with what else could stand there. On a phone it is a sheet at the foot.
"use strict";

(() => {
  const { make } = Workbench;
  const SHEET = matchMedia("(max-width: 640px), (pointer: coarse)");
  const LEAST = 220; // px of its height
  const MARGIN = 12; // px, to the edges of the window
  const spoken = make("div.wb-unseen", { "aria-live": "polite" });
  let card = null, shown = null; // shown: {root, anchor, pinned}
  let tapped = false; // whether the last thing that pressed was no mouse and no key
  document.addEventListener("pointerdown", (event) => { tapped = event.pointerType !== "mouse"; }, true);
  document.addEventListener("keydown", () => { tapped = false; }, true);
  let lit = [];

  /** Beside its token, or at the right margin below the token's line; a sheet at the foot, whose token is kept clear of it. */
  function place() {
    const { anchor, pinned } = shown, box = anchor.getBoundingClientRect();
    card.removeAttribute("style");
    if (card.classList.contains("sheet")) {
      const covered = box.bottom + MARGIN - card.getBoundingClientRect().top;
      if (covered > 0) window.scrollBy({ top: covered, behavior: Workbench.calm() ? "auto" : "smooth" });
      return;
    }
    const { offsetWidth: width, offsetHeight: height } = card, right = document.documentElement.clientWidth - width - MARGIN;
    const left = pinned ? right : Math.max(MARGIN, Math.min(box.left, right)), clear = box.right < left, lowest = window.innerHeight - height - MARGIN;
    const below = box.bottom + 8 <= lowest || box.top < window.innerHeight - box.bottom;
    card.style.left = `${left}px`;
    if (!clear && box.bottom + 8 > lowest && below) {
      card.style.maxHeight = `${Math.max(LEAST, window.innerHeight - box.bottom - 8 - MARGIN)}px`; // what does not fit scrolls
      card.style.top = `${box.bottom + 8}px`;
      return;
    }
    card.style.top = `${Math.max(MARGIN, clear ? Math.min(box.top, lowest) : below ? Math.min(box.bottom + 8, lowest) : Math.min(box.top - height - 8, lowest))}px`;
  }

  /** The tokens at the same position of the other texts on the page. */
  function alike(anchor) {
    const at = anchor.place ? -1 : Workbench.standing(shown.root, anchor)?.at ?? -1;
    const texts = at < 0 ? [] : [...document.querySelectorAll(".wb-panel .wb-paper > .wb-text")].filter((box) => box.offsetParent && box.tokens && box.tokens[at]);
    return texts.map((box) => box.tokens[at].at(-1));
  }

  /** The token before (-1) or after (1) another in its text. */
  function beside(anchor, step) {
    const text = anchor.closest(".wb-text"), tokens = text ? [...text.querySelectorAll(".tok")].filter((t) => t.getClientRects().length) : [];
    return tokens[tokens.indexOf(anchor) + step];
  }

  function move(from, to) {
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  function hide() {
    if (!shown) return;
    const { root } = shown;
    card.hidden = true;
    card.replaceChildren();
    root.branching = shown = null;
    for (const span of lit.splice(0)) span.classList.remove("lit");
  }

  function close() {
    const { anchor } = shown;
    hide();
    if (anchor.isConnected) anchor.focus({ preventScroll: true });
  }

  /** What can be done from a pinned card: the tokens beside, and the alternatives, for which the models are asked. They are there at once,
   *  but for a finger, whose sheet is small. */
  function actions(root, anchor) {
    const step = (label, title, by) => {
      const next = beside(anchor, by), button = make("button", { type: "button", "aria-label": title, disabled: !next }, label);
      button.addEventListener("click", () => { move(anchor, next); show(root, next, true); });
      return button;
    };
    const able = Workbench.standing(root, anchor);
    const more = able && tapped && make("button.table", { type: "button" }, "What else could stand here?");
    if (more) {
      more.addEventListener("click", () => {
        const section = Workbench.branch(root, anchor);
        more.replaceWith(section);
        place();
        section.querySelector("h3").focus({ preventScroll: true });
      });
    }
    const inside = able && !tapped ? Workbench.branch(root, anchor) : null;
    if (inside) for (const list of card.querySelectorAll(":scope > :is(h4, ol)")) list.remove(); // it has them
    const steps = anchor.closest(".wb-text") ? [step("◀", "the token before", -1), step("▶", "the token after", 1)] : [];
    return make("div.actions", {}, steps[0], more || inside, steps[1]);
  }

  function show(root, anchor, pinned = false) {
    hide();
    if (!card) {
      card = make("div.wb.wb-card", { "aria-label": "details of a token", hidden: true });
      card.addEventListener("keydown", (event) => event.key === "Escape" && close());
      // It grows with the models' answer, past the foot of the window.
      new ResizeObserver(() => requestAnimationFrame(() => shown?.pinned && place())).observe(card);
    }
    if (!card.isConnected) document.body.append(card);
    shown = { root, anchor, pinned };
    card.replaceChildren(...Workbench.told(root, anchor).card);
    if (pinned) {
      const cross = make("button.close", { type: "button", "aria-label": "close the card" }, "✕");
      cross.addEventListener("click", close);
      card.firstElementChild.append(cross);
      card.append(actions(root, anchor));
    }
    card.className = `wb wb-card${pinned ? " pinned" : ""}${pinned && SHEET.matches ? " sheet" : ""}`;
    card.setAttribute("role", pinned ? "dialog" : "tooltip");
    card.hidden = false;
    place();
    lit = alike(anchor);
    for (const span of [anchor, ...lit]) span.classList.add("lit");
    lit.push(anchor);
    if (pinned && !tapped) (card.querySelector(".wb-branch h3") || card.querySelector(".close")).focus({ preventScroll: true });
  }

  const anchorOf = (event) => {
    const anchor = event.target.closest && event.target.closest("[data-card], .tok");
    return anchor && anchor.token ? anchor : null;
  };

  /** Events are delegated on the root: tokens come and go while a decoder runs. With `hover` the card follows the mouse and the focus. */
  Workbench.card = (root, { hover = true } = {}) => {
    const free = () => hover && !(shown && shown.pinned);
    root.addEventListener("pointerover", (event) => event.pointerType !== "touch" && anchorOf(event) && free() && show(root, anchorOf(event)));
    root.addEventListener("pointerout", () => free() && shown && shown.anchor !== document.activeElement && hide()); // the keyboard's card stays
    root.addEventListener("focusin", (event) => {
      const anchor = anchorOf(event);
      if (!anchor) return;
      if (!tapped && free()) show(root, anchor);
      if (!spoken.isConnected) document.body.append(spoken);
      spoken.textContent = Workbench.told(root, anchor).spoken;
    });
    root.addEventListener("focusout", () => free() && hide());
    const press = (event) => {
      const anchor = anchorOf(event);
      if (!anchor || String(getSelection())) return;
      if (shown && shown.pinned && shown.anchor === anchor) return close();
      event.preventDefault();
      show(root, anchor, true);
    };
    root.addEventListener("click", press);
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && shown) close();
      if (event.key === "Enter" && !event.ctrlKey && !event.metaKey) press(event);
      const step = hover && { ArrowRight: 1, ArrowLeft: -1 }[event.key], next = step && event.target.classList.contains("tok") && beside(event.target, step);
      if (!next) return;
      event.preventDefault();
      move(event.target, next);
    });
    const elsewhere = ({ target }) => shown && shown.pinned && shown.root === root && !card.contains(target) && !anchorOf({ target }) && hide();
    document.addEventListener("pointerup", elsewhere); // no scrolling ends so
    window.addEventListener("resize", () => shown?.pinned && place());
    window.addEventListener("scroll", () => shown && !shown.pinned && (shown.anchor === document.activeElement || shown.anchor.matches(":hover") ? place() : hide()), { passive: true, capture: true });
  };

  /** What a root draws anew takes its card away. */
  Workbench.uncard = (root) => shown && shown.root === root && hide();
})();
