// Hides, counts and sorts the answers of index.html. The state is the fragment of the address (#q=rome&correctness=wrong),
// so that a view can be bookmarked and shared. Text goes into the page as text only, never as markup.
"use strict";

(() => {
  const form = document.getElementById("filters");
  const list = document.getElementById("list");
  const shown = document.getElementById("shown");
  const facets = ["run", "correctness", "method", "flag"];

  // Case, accents and width of letters do not matter to a search.
  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

  const questions = [...list.children].map((element, order) => {
    const head = plain(element.querySelector("h3").textContent + "\n" + element.querySelector(".gold").textContent);
    const rows = [...element.querySelectorAll("li")].map((row) => ({
      element: row,
      run: [element.dataset.run],
      correctness: [row.dataset.correctness],
      method: [row.dataset.method],
      flag: row.dataset.flag.split(" "),
      text: head + "\n" + plain(row.querySelector(".method").textContent + "\n" + row.querySelector(".answer").textContent),
    }));
    const right = rows.filter((row) => row.correctness[0] === "right").length / rows.length;
    return { element, order, rows, right };
  });
  const rows = questions.flatMap((question) => question.rows);

  // The texts of the traces come as scripts (a page from disk may not fetch), once they are searched.
  const texts = new Map(); // run -> { strings, plain, rows }, or null while they are loaded
  window.ragNotesText = (run, strings, uses) => {
    texts.set(run, { strings, plain: strings.map(plain) });
    rows.filter((row) => row.run[0] === run).forEach((row, i) => { row.uses = uses[i]; });
    update();
  };
  const load = (run) => {
    texts.set(run, null);
    const script = document.createElement("script");
    script.src = `runs/${run}/text.js`;
    script.onerror = () => { shown.textContent = `${script.src} cannot be read; make the report again.`; };
    document.head.append(script);
  };

  const parse = (query) =>
    [...query.matchAll(/"([^"]*)"?|(\S+)/g)].map((found) => plain(found[1] ?? found[2]).trim()).filter(Boolean);

  const readForm = () => {
    const state = new URLSearchParams();
    for (const [name, value] of new FormData(form)) if (value.trim()) state.append(name, value);
    return state;
  };

  const writeForm = (state) => {
    form.elements.q.value = state.get("q") ?? "";
    form.elements.sort.value = state.get("sort") ?? "";
    if (form.elements.sort.selectedIndex < 0) form.elements.sort.value = "";
    for (const box of form.querySelectorAll("[type=checkbox]"))
      box.checked = state.getAll(box.name).includes(box.value);
  };

  // A link may name what this report does not have: it is left out, and the reader is told.
  let strangers = [];
  const unknown = (state) =>
    facets.flatMap((name) => state.getAll(name).filter((value) =>
      ![...form.querySelectorAll(`[name=${name}]`)].some((box) => box.value === value)).map((value) => `${name} ${value}`));

  // For each term the numbers of the strings that have it, by run.
  const inSteps = (terms) => new Map([...texts].filter(([, held]) => held).map(([run, held]) =>
    [run, terms.map((term) => new Set(held.plain.flatMap((text, i) => (text.includes(term) ? [i] : []))))]));

  const snippet = (run, index, term) => {
    const { strings, plain: plains } = texts.get(run);
    const text = strings[index].length === plains[index].length ? strings[index] : plains[index];
    const at = plains[index].indexOf(term);
    const from = Math.max(0, at - 60), to = at + term.length + 60;
    return (from ? "… " : "") + text.slice(from, to).replace(/\s+/g, " ").trim() + (to < text.length ? " …" : "");
  };

  const setFound = (row, text) => {
    let found = row.element.querySelector(".found");
    if (!text) { found?.remove(); return; }
    if (!found) {
      found = document.createElement("p");
      found.className = "found";
      row.element.append(found);
    }
    found.textContent = text;
  };

  const update = () => {
    const state = readForm();
    const terms = parse(state.get("q") ?? "");
    const deep = terms.length > 0 && state.has("in");
    if (deep) for (const run of new Set(rows.map((row) => row.run[0]))) if (!texts.has(run)) load(run);
    const waiting = deep && [...texts.values()].includes(null);
    const hits = deep ? inSteps(terms) : new Map();

    const matches = (row) => {
      const sets = hits.get(row.run[0]);
      let found = "";
      const all = terms.every((term, i) => {
        if (row.text.includes(term)) return true;
        const index = sets && row.uses.find((number) => sets[i].has(number));
        if (index === undefined) return false;
        found ||= snippet(row.run[0], index, term);
        return true;
      });
      setFound(row, all ? found : "");
      return all;
    };
    const wanted = Object.fromEntries(facets.map((name) => [name, new Set(state.getAll(name))]));
    const fits = (row, name) => wanted[name].size === 0 || row[name].some((value) => wanted[name].has(value));
    const counts = Object.fromEntries(facets.map((name) => [name, new Map()]));
    let answers = 0;
    for (const row of rows) {
      const matched = matches(row);
      const misfits = matched ? facets.filter((name) => !fits(row, name)) : facets;
      row.element.hidden = misfits.length > 0;
      answers += misfits.length === 0;
      // A choice counts what it would show, the other choices as they are.
      for (const name of facets)
        if (misfits.length === 0 || (misfits.length === 1 && misfits[0] === name))
          for (const value of row[name]) counts[name].set(value, (counts[name].get(value) ?? 0) + 1);
    }
    for (const box of form.querySelectorAll("[type=checkbox]")) {
      if (!facets.includes(box.name)) continue;
      const count = counts[box.name].get(box.value) ?? 0;
      box.parentElement.querySelector(".count").textContent = count;
      box.parentElement.classList.toggle("none", count === 0);
    }
    for (const question of questions) question.element.hidden = question.rows.every((row) => row.element.hidden);
    sort(state.get("sort"));
    const left = questions.filter((question) => !question.element.hidden).length;
    shown.textContent =
      `${answers} of ${rows.length} answers, ${left} of ${questions.length} questions` +
      (waiting ? " (loading the texts of the traces …)" : "") +
      (strangers.length ? `. Not in this report: ${strangers.join(", ")}` : "");
  };

  const most = (question, name) =>
    Math.max(...question.rows.filter((row) => !row.element.hidden).map((row) => Number(row.element.dataset[name])));
  let sorted = "";
  const sort = (by) => {
    if (!by && !sorted) return;
    sorted = by;
    const key = { hardest: (q) => q.right, easiest: (q) => -q.right }[by] ?? (by ? (q) => -most(q, by) : () => 0);
    const keys = new Map(questions.map((question) => [question, key(question)]));
    const ordered = [...questions].sort((a, b) => keys.get(a) - keys.get(b) || a.order - b.order);
    list.replaceChildren(...ordered.map((question) => question.element));
  };

  const readAddress = () => {
    const fragment = location.hash.slice(1);
    if (fragment && !fragment.includes("=")) return; // the place of something on the page
    const state = new URLSearchParams(fragment);
    strangers = unknown(state);
    writeForm(state);
    update();
    if (fragment) document.getElementById("answers").scrollIntoView();
  };

  const writeAddress = () => {
    strangers = [];
    const fragment = readForm().toString();
    history.replaceState(null, "", fragment ? `#${fragment}` : location.pathname + location.search);
  };

  form.hidden = false;
  if (matchMedia("(max-width: 60rem)").matches) document.getElementById("choices").open = false;
  let typing;
  form.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => { writeAddress(); update(); }, 120);
  });
  form.addEventListener("reset", () => setTimeout(() => { writeAddress(); update(); }));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", readAddress);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select")) return;
    event.preventDefault();
    form.elements.q.focus();
  });
  readAddress();
  if (!location.hash.includes("=")) update();
})();
