// Lists, filters, counts and sorts the answers of index.html. The state is the fragment of the address (#q=rome&correctness=wrong),
// so that a view can be bookmarked and shared. What the reader types goes into the page as text only, never as markup.
"use strict";

(() => {
  const form = document.getElementById("filters");
  const list = document.getElementById("list");
  const shown = document.getElementById("shown");
  const more = document.getElementById("more");
  const facets = ["run", "correctness", "method", "flag"];

  // Case, accents and width of letters do not matter to a search.
  const plain = (text) => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();

  // The answers come as a script for each run (a page from disk may not fetch). The HTML of a question, which the
  // report wrote and escaped, goes into the page when it is shown.
  const questions = [], rows = [];
  window.ragNotesAnswers = (run, list) => {
    for (const [html, head, answers] of list) {
      const searched = plain(head);
      const own = answers.map(([method, correctness, flags, searches, tokens, seconds, text]) => ({
        run: [run], correctness: [correctness], method: [method], flag: flags, searches, tokens, seconds,
        text: searched + "\n" + plain(text),
      }));
      const right = own.filter((row) => row.correctness[0] === "right").length / own.length;
      questions.push({ html, order: questions.length, rows: own, right });
      rows.push(...own);
    }
  };

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

  const elementOf = (question) => {
    if (!question.element) {
      const holder = document.createElement("template");
      holder.innerHTML = question.html;
      question.element = holder.content.firstElementChild;
    }
    [...question.element.querySelectorAll("li")].forEach((item, i) => {
      const row = question.rows[i];
      item.hidden = !row.shown;
      item.querySelector(".found")?.remove();
      if (!row.found) return;
      const found = document.createElement("p");
      found.className = "found";
      found.textContent = row.found;
      item.append(found);
    });
    return question.element;
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
      row.found = all ? found : "";
      return all;
    };
    const wanted = Object.fromEntries(facets.map((name) => [name, new Set(state.getAll(name))]));
    const fits = (row, name) => wanted[name].size === 0 || row[name].some((value) => wanted[name].has(value));
    const counts = Object.fromEntries(facets.map((name) => [name, new Map()]));
    let answers = 0;
    for (const row of rows) {
      const matched = matches(row);
      const misfits = matched ? facets.filter((name) => !fits(row, name)) : facets;
      row.shown = misfits.length === 0;
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
    matching = sorted(questions.filter((question) => question.rows.some((row) => row.shown)), state.get("sort"));
    list.replaceChildren();
    show();
    shown.textContent =
      `${answers} of ${rows.length} answers, ${matching.length} of ${questions.length} questions` +
      (waiting ? " (loading the texts of the traces …)" : "") +
      (strangers.length ? `. Not in this report: ${strangers.join(", ")}` : "");
  };

  // As many questions as a screen or a few take; a button shows the next ones.
  const STEP = 100;
  let matching = [];
  const show = () => {
    const from = list.children.length;
    list.append(...matching.slice(from, from + STEP).map(elementOf));
    more.hidden = list.children.length >= matching.length;
  };

  const most = (question, name) => Math.max(...question.rows.filter((row) => row.shown).map((row) => row[name]));
  const sorted = (found, by) => {
    if (!by) return found;
    const key = { hardest: (q) => q.right, easiest: (q) => -q.right }[by] ?? ((q) => -most(q, by));
    const keys = new Map(found.map((question) => [question, key(question)]));
    return found.sort((a, b) => keys.get(a) - keys.get(b) || a.order - b.order);
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

  const begin = () => {
    form.hidden = false;
    readAddress();
    if (!location.hash.includes("=")) update();
  };
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
  more.addEventListener("click", show);
  document.addEventListener("DOMContentLoaded", begin); // the scripts with the answers have run then
})();
