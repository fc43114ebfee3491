// The settings of the ticked decoders, a fold for each, drawn from plain data.
"use strict";

const WorkbenchSettings = (() => {
  const { make } = Workbench;

  /** The input of a field: {name, id, label, help, kind, choices}. */
  function input({ label, id, kind, choices }) {
    const about = { "aria-label": label, "aria-describedby": `${id}-help` };
    if (kind === "switch") return make("input", { type: "checkbox", ...about });
    if (kind === "choice") return make("select", about, ...choices.map((choice) => make("option", { value: choice }, choice || "–")));
    if (kind === "number") return make("input", { type: "number", step: "any", ...about });
    return kind === "lines" ? make("textarea", { rows: 1, ...about }) : make("input", { type: "text", list: choices.length ? `${id}-choices` : null, ...about });
  }

  /** A field's value as it travels, and back into its input. */
  const read = (part, kind) => (kind === "switch" ? part.checked : kind !== "number" ? part.value : part.value === "" ? null : Number(part.value));
  function write(part, kind, value) {
    if (kind === "switch") part.checked = Boolean(value);
    else if (part !== document.activeElement || read(part, kind) !== value) part.value = value ?? "";
  }

  function fold(decoder, changed) {
    const inputs = decoder.fields.map(input);
    const fields = decoder.fields.map((field, i) => {
      const { id, label, help, kind, choices } = field, says = make("small", { id: `${id}-help` }, help);
      const list = kind === "text" && choices.length ? make("datalist", { id: `${id}-choices` }, ...choices.map((choice) => make("option", { value: choice }))) : null;
      inputs[i].addEventListener(["switch", "choice"].includes(kind) ? "change" : "input", () => changed(decoder, field));
      return make("div.field", { id }, make("label", {}, make("span", {}, label), says, inputs[i]), list);
    });
    const element = make("details.fold", { "data-decoder": decoder.name }, make("summary", {}, decoder.title), make("div.fields", {}, ...fields));
    element.inputs = inputs;
    return element;
  }

  /** Draw the folds of the ticked decoders; those that are there stay as they are, open or shut.
   *  The value is {ticked: [names], own: {decoder: {setting: value}}}; what it does not name is as the form begins. */
  function show(root, { form, decoders }, props, trigger) {
    root.className = "wb-settings";
    Object.assign(root, { props, show: () => show(root, { form, decoders }, props, trigger) });
    const { ticked = [], own = {} } = props.value || {};
    const folds = new Map([...root.children].map((element) => [element.dataset.decoder, element]));
    function changed(decoder, field) {
      const { inputs } = folds.get(decoder.name);
      const typed = Object.fromEntries(decoder.fields.map((each, i) => [each.name, read(inputs[i], each.kind)]));
      props.value = { ...props.value, own: { ...props.value?.own, [decoder.name]: typed } };
      WorkbenchPage.mended(form, field.id);
      trigger("change");
    }
    const shown = decoders.filter((decoder) => ticked.includes(decoder.name));
    for (const decoder of shown) if (!folds.has(decoder.name)) folds.set(decoder.name, fold(decoder, (...what) => root.changed(...what)));
    root.changed = changed;
    const wanted = shown.map((decoder) => folds.get(decoder.name));
    for (const element of [...root.children]) if (!wanted.includes(element)) element.remove();
    wanted.forEach((element, i) => root.children[i] !== element && root.insertBefore(element, root.children[i] ?? null));
    for (const decoder of shown) {
      const typed = own[decoder.name] ?? {}; // an emptied number is null
      decoder.fields.forEach(({ name, kind, start }, i) => write(folds.get(decoder.name).inputs[i], kind, name in typed ? typed[name] : start));
    }
  }

  /** Other decoders are ticked. Settings that are not on screen have the ticks that they came with. */
  function tick(id, ticked) {
    const root = document.querySelector(`#${CSS.escape(id)} .wb-settings`);
    if (!root) return;
    root.props.value = { ...root.props.value, ticked };
    root.show();
  }

  return { show, tick };
})();
