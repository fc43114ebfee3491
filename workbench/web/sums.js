// Rounded figures of which something is said, such as "p / q = 0.834": with as many digits as it takes to be true of them.
"use strict";

(() => {
  const MOST = 9; // digits more than usual

  /** The texts of some figures, each of which `shown` gives with so many digits more than usual: as few more as possible so that `holds`
   *  is true of the numbers that a reader finds in them; no more if that is never so. */
  Workbench.enough = (holds, ...shown) => {
    const texts = (more) => shown.map((text) => text(more));
    for (let more = 0; more <= MOST; more += 1) if (holds(...texts(more).map(Number))) return texts(more);
    return texts(0);
  };

  /** Whether `value`, rounded as `result` is, is `result`. */
  Workbench.gives = (result, value) => {
    const [digits, exponent = "0"] = result.split("e"), decimals = (digits.split(".")[1] || "").length;
    return Math.abs(value - Number(result)) <= 0.5000001 * 10 ** (Number(exponent) - decimals);
  };
})();
