// When the card of a token is on the screen, and where: a mouse points, the keyboard moves the focus, a finger taps.
"use strict";

(() => {
  const { make } = Workbench;

  /** Beside its token; as a sheet at the foot of the screen, whose token is kept clear of it. */
  function place(card, anchor) {
    card.hidden = false;
    card.removeAttribute("style");
    const box = anchor.getBoundingClientRect();
    if (card.classList.contains("sheet")) {
      const covered = box.bottom + 12 - card.getBoundingClientRect().top;
      if (covered > 0) window.scrollBy({ top: covered, behavior: Workbench.calm() ? "auto" : "smooth" });
      return;
    }
    const { offsetWidth: width, offsetHeight: height } = card;
    const left = Math.max(8, Math.min(box.left, window.innerWidth - width - 8));
    const below = box.bottom + 8 + height < window.innerHeight || box.top < window.innerHeight - box.bottom;
    card.style.left = `${left}px`;
    card.style.top = `${Math.max(8, below ? Math.min(box.bottom + 8, window.innerHeight - height - 8) : box.top - height - 8)}px`;
  }

  /** The tokens at the same position of the other texts on the page. */
  function light(anchor) {
    const text = anchor.closest(".wb-panel .wb-paper > .wb-text");
    const at = text && text.tokens ? text.tokens.findIndex((group) => group.includes(anchor)) : -1;
    if (at < 0) return [];
    const lit = [...document.querySelectorAll(".wb-panel .wb-paper > .wb-text")].filter((box) => box.offsetParent && box.tokens && box.tokens[at]);
    return lit.map((box) => box.tokens[at][box.tokens[at].length - 1]);
  }

  /** The token before (-1) or after (1) another in its text. */
  function beside(anchor, step) {
    const text = anchor.closest(".wb-text"), tokens = text ? [...text.querySelectorAll(".tok")].filter((t) => t.offsetParent) : [];
    return tokens[tokens.indexOf(anchor) + step];
  }

  function move(from, to) {
    from.tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }

  /** What a thumb can do from a sheet: a token is often narrower than a thumb, so its neighbours are a button away. */
  function actions(root, anchor, show, hide) {
    const step = (label, title, by) => {
      const next = beside(anchor, by), button = make("button", { type: "button", "aria-label": title, disabled: !next }, label);
      button.addEventListener("click", () => {
        move(anchor, next);
        show(next, true);
      });
      return button;
    };
    const table = make("button.table", { type: "button" }, "What else could stand here?");
    table.addEventListener("click", () => {
      hide();
      Workbench.branch(root, anchor);
    });
    const steps = anchor.closest(".wb-text") ? [step("◀", "the token before", -1), step("▶", "the token after", 1)] : [];
    return make("div.actions", {}, steps[0], Workbench.standing(root, anchor) ? table : null, steps[1]);
  }

  /** Events are delegated on the root: tokens come and go while a decoder runs. The card follows the mouse and the keyboard's focus. A finger
   *  cannot point: its first tap shows the card as a sheet, and the second does what a click does. */
  Workbench.card = (root) => {
    const card = make("div.wb-card", { role: "tooltip", "aria-label": "details of a token", hidden: true });
    const spoken = make("div.wb-unseen", { "aria-live": "polite" });
    let lit = [], current = null, tapped = false; // whether the last thing that pressed was no mouse and no key
    root.append(card, spoken);
    const isSheet = () => !card.hidden && card.classList.contains("sheet");
    const hide = () => {
      card.hidden = true;
      current = null;
      for (const span of lit.splice(0)) span.classList.remove("lit");
    };
    const show = (anchor, sheet = false) => {
      hide();
      card.replaceChildren(...Workbench.told(root, anchor).card);
      if (sheet) {
        const close = make("button.close", { type: "button", "aria-label": "close the card" }, "✕");
        close.addEventListener("click", hide);
        card.firstElementChild.append(close);
        card.append(actions(root, anchor, show, hide));
      }
      card.classList.toggle("sheet", sheet);
      card.setAttribute("role", sheet ? "dialog" : "tooltip");
      place(card, anchor);
      current = anchor;
      lit = light(anchor);
      for (const span of lit) span.classList.add("lit");
    };
    const anchorOf = (event) => {
      const anchor = event.target.closest && event.target.closest("[data-card], .tok");
      return anchor && anchor.token ? anchor : null;
    };
    document.addEventListener("pointerdown", (event) => { tapped = event.pointerType !== "mouse"; }, true);
    document.addEventListener("keydown", () => { tapped = false; }, true);
    root.addEventListener("pointerover", (event) => event.pointerType !== "touch" && anchorOf(event) && show(anchorOf(event)));
    root.addEventListener("pointerout", () => isSheet() || current === document.activeElement || hide()); // the keyboard's card stays
    root.addEventListener("focusin", (event) => {
      const anchor = anchorOf(event);
      if (!anchor) return;
      if (!tapped) show(anchor);
      spoken.textContent = Workbench.told(root, anchor).spoken;
    });
    root.addEventListener("focusout", () => isSheet() || hide());
    root.addEventListener("click", (event) => {
      const anchor = tapped && anchorOf(event);
      if (!anchor) return;
      if (isSheet() && current === anchor) return hide();
      event.preventDefault(); // not yet what a click does
      show(anchor, true);
    });
    document.addEventListener("pointerup", (event) => isSheet() && !card.contains(event.target) && !anchorOf(event) && hide()); // no scrolling ends so
    window.addEventListener("scroll", () => current && !isSheet() && (current === document.activeElement ? place(card, current) : hide()), { passive: true, capture: true });
    root.addEventListener("keydown", (event) => {
      if (event.key === "Escape") hide();
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], next = step && event.target.classList.contains("tok") && beside(event.target, step);
      if (!next) return;
      event.preventDefault();
      move(event.target, next);
    });
  };
})();
