// The page to try a model. It asks the server for predictions and draws them; it loads nothing else.

const POINTS = 33, MOST_LEVELS = 24, MOST_BARS = 10, MOST_LINES = 6, MOST_MOVES = 12, MOST_COMPARED = 3000, FILE_ROWS = 1000;
const $ = (id) => document.getElementById(id);
let model, row, held = 0, token = "", version = 0, busy = false, again = false, timer;

// ------------------------------------------------------------------ elements

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "circle", "text"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "style") Object.assign(node.style, value);
    else if (typeof value === "boolean") node.toggleAttribute(name, value);
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const percent = (p) => (p > 0.9995 && p < 1 ? "> 99.9%" : p > 0 && p < 0.0005 ? "< 0.1%" : `${(100 * p).toFixed(1)}%`);
const short = (x) => (x === 0 || (Math.abs(x) >= 1e-4 && Math.abs(x) < 1e6) ? String(Number(x.toPrecision(4))) : x.toExponential(2));
const colour = (k) => `var(--c${k % 16})`;
const width = (share) => ({ width: `${100 * Math.min(1, Math.max(0, share))}%` });

// a long name breaks after _ rather than inside a word
const breakable = (name) => name.split(/(?<=[_.-])/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));

function bar(name, value, ...inside) {
  return make("div", { class: value ? "bar" : "bar bare" }, make("span", { class: "name", title: name }, ...breakable(name)),
    make("span", { class: "track" }, ...inside), make("span", { class: "value" }, value));
}

function complain(message) {
  $("trouble").hidden = !message;
  $("trouble").textContent = message;
}

// ------------------------------------------------------------------ the server

async function ask(path, body) {
  const headers = { ...(token && { authorization: `Bearer ${token}` }), ...(body && { "content-type": "application/json" }) };
  for (let tries = 0; ; tries++) {
    const got = await fetch(path, { method: body ? "POST" : "GET", headers, body });
    if (got.ok) return got.json();
    if (got.status === 503 && tries < 10) {
      await new Promise((done) => setTimeout(done, 1000 * Number(got.headers.get("retry-after") || 1)));
      continue;
    }
    const { detail } = await got.json().catch(() => ({ detail: `the server answers ${got.status}.` }));
    throw Object.assign(new Error(detail), { status: got.status });
  }
}

const toRow = (cells) => (model.named ? Object.fromEntries(model.columns.map((c, j) => [c.name, cells[j]])) : cells);
const change = (j, value) => row.map((cell, i) => (i === j ? value : cell));

function predict(rows, more = false) {
  const query = more ? `?uncertainty=${!!model.classes}&novelty=${model.novelty}` : "";
  return ask(`predict${query}`, JSON.stringify({ rows: rows.map(toRow) }));
}

// ------------------------------------------------------------------ cells

function toDays(text, form) {
  return (form === "time" ? Date.parse(`1970-01-01T${text}Z`) : Date.parse(text.length > 10 ? `${text}Z` : text)) / 864e5;
}

function toDate(days, form) {
  const text = new Date(6e4 * Math.round(1440 * days)).toISOString();
  return form === "date" ? text.slice(0, 10) : form === "time" ? text.slice(11, 16) : text.slice(0, 16);
}

const toCell = (column, x) => (column.kind === "date" ? toDate(x, column.form) : x);
const toNumber = (column, cell) => (column.kind === "date" ? toDays(cell, column.form) : cell);
const describe = (column, x) => (column.kind === "date" ? toDate(x, column.form).replace("T", " ") : short(x));

function makeColumn(column, j) {
  const id = `cell-${j}`, set = (cell) => { row[j] = cell; hold(j); refresh(); };
  const box = make("div", { class: `column ${column.kind}` }, make("label", { for: id }, ...breakable(column.name)));
  let field, slider;
  if (column.kind === "category") {
    const options = column.levels.map((level) => make("option", { value: level }, level));
    field = column.free ? make("input", { id, type: "text" }) : make("select", { id }, ...options);
    field.addEventListener("change", () => set(field.value));
    box.append(field);
  } else {
    const { low, high, step } = column, about = column.kind === "number" ? { type: "number", step: "any" } : { type: column.form };
    field = make("input", { id, ...about });
    slider = make("input", { type: "range", min: low, max: high, step, "aria-label": `${column.name}, slider` });
    field.addEventListener("input", () => {
      const cell = column.kind === "number" ? field.valueAsNumber : field.value;
      if (cell === "" || Number.isNaN(cell)) return;
      slider.value = toNumber(column, cell);
      set(cell);
    });
    slider.addEventListener("input", () => {
      const x = Number(Number(slider.value).toFixed(6));
      set(toCell(column, x));
      field.value = row[j];
    });
    box.append(field, make("div", { class: "slide" }, describe(column, low), slider, describe(column, high)));
  }
  const unknown = make("input", { type: "checkbox", id: `unknown-${j}` });
  if (column.missing) {
    box.append(make("label", { class: "unknown" }, unknown, " unknown"));
    unknown.addEventListener("change", () => { enable(); set(unknown.checked ? null : read()); });
  }
  const read = () => (column.kind === "number" ? field.valueAsNumber : field.value);
  const enable = () => [field, slider].forEach((input) => input && (input.disabled = unknown.checked));
  box.addEventListener("focusin", () => { if (held !== j) { hold(j); refresh(); } });
  box.reset = () => {
    field.value = column.typical;
    if (slider) slider.value = toNumber(column, column.typical);
    unknown.checked = false;
    enable();
  };
  return box;
}

function hold(j) {
  held = j;
  [...$("columns").children].forEach((box, i) => box.classList.toggle("held", i === j));
}

function reset() {
  if (model.decisions?.threshold) $("cut").value = model.decisions.threshold.high;
  delete $("cut").dataset.moved;
  row = model.columns.map((column) => column.typical);
  [...$("columns").children].forEach((box) => box.reset());
  hold(held);
  refresh();
}

// ------------------------------------------------------------------ predictions

async function refresh() {
  version++;
  if (busy) { again = true; return; }
  busy = true;
  clearTimeout(timer);
  try {
    do {
      again = false;
      const column = model.columns[held], values = chooseValues(column), now = row[held];
      const [one, many] = await Promise.all([predict([row], true), predict(values.map((v) => change(held, toCell(column, v))))]);
      complain("");
      (model.classes ? showClasses : showNumber)(one, many);
      showNovelty(one);
      (column.kind === "category" ? drawLevels : drawCurve)(column, values, many, now);
    } while (again);
    timer = setTimeout(explain, 200);
  } catch (error) {
    complain(error.message);
  }
  busy = false;
}

function chooseValues({ kind, low, high, levels }) {
  return kind === "category" ? levels.slice(0, MOST_LEVELS) : Array.from({ length: POINTS }, (_, i) => low + (i * (high - low)) / (POINTS - 1));
}

function showClasses(one) {
  const P = one.probabilities[0], C = P.length, best = P.indexOf(Math.max(...P));
  $("label").textContent = model.classes[best];
  $("how").textContent = `with probability ${percent(P[best])}`;
  let order = P.map((_, k) => k);
  if (C > MOST_BARS) order = order.sort((a, b) => P[b] - P[a]).slice(0, MOST_BARS);
  $("bars").replaceChildren(...order.map((k) =>
    bar(model.classes[k], percent(P[k]), make("span", { class: "fill", style: { ...width(P[k]), background: colour(k) } }))));
  showDecision(one);
  const tell = (share, what, part, kind) => make("span", { title: model.terms[part] }, make("i", { class: `key ${kind}` }), `${percent(share)} ${what} (${part})`);
  const most = Math.log(C), [noise, lack] = [one.aleatoric[0] / most, one.epistemic[0] / most];
  $("split").replaceChildren(
    bar("total", percent(one.total[0] / most), make("span", { class: "fill noise", style: width(noise) }),
      make("span", { class: "fill lack", style: width(lack) })),
    make("div", { class: "legend" }, "100%: all classes are equally probable.",
      tell(noise, "noise in the labels: more rows would not help", "aleatoric", "noise"),
      tell(lack, "too little data: more rows like this one would help", "epistemic", "lack")));
}

function showDecision(one) {
  const { decisions } = model, threshold = decisions?.threshold;
  $("decision").hidden = !decisions;
  $("threshold").hidden = !threshold;
  if (!decisions) return;
  const name = (action) => (action === null ? "refuse" : `decide ${action}`);
  const say = () => {
    const cut = Number($("cut").value), own = !threshold || $("cut").dataset.moved !== "yes";
    if (own) {
      $("decision").textContent = `Cheapest: ${name(one.decisions[0])}. Expected cost ${short(one.expected_costs[0])}, ${short(one.margins[0])} less than the next action.`;
    } else {
      const yes = model.classes.indexOf(threshold.label), p = one.probabilities[0][yes];
      const ratio = cut > 0 && cut < 1 ? ` It fits if missing ${threshold.label} costs ${short((1 - cut) / cut)} times a false alarm.` : "";
      $("decision").textContent = `With this threshold: ${name(model.classes[p > cut ? yes : 1 - yes])}.${ratio}`;
    }
    if (!threshold) return;
    const range = threshold.low < threshold.high ? `, refused from ${percent(threshold.low)}` : "";
    $("at").textContent = `Decide ${threshold.label} from a probability of ${own ? percent(threshold.high) + range : percent(cut)}`;
  };
  $("cut").oninput = () => { $("cut").dataset.moved = "yes"; say(); };
  say();
}

function showNumber(one, many) {
  const [mean, low, high] = [one.mean[0], one.low[0], one.high[0]];
  const bottom = Math.min(low, ...many.low), scale = Math.max(high, ...many.high) - bottom || 1;
  $("label").textContent = short(mean);
  $("how").textContent = `between ${short(low)} and ${short(high)} with probability 95%`;
  const at = (x) => `${(100 * (x - bottom)) / scale}%`;
  $("bars").replaceChildren(make("div", { class: "track" },
    make("span", { class: "interval", style: { left: at(low), ...width((high - low) / scale) } }), make("span", { class: "dot", style: { left: at(mean) } })));
  $("split").replaceChildren(make("p", { class: "calm" },
    `A new value differs from this by ${short(one.std[0])} in a typical case (standard deviation, noise included).`));
}

function showNovelty(one) {
  const found = one.novelty?.[0];
  $("novelty").hidden = found === undefined || found === null;
  if ($("novelty").hidden) return;
  const strange = found >= 0.99;
  $("novelty").className = strange ? "strange" : "calm";
  $("novelty").textContent = strange
    ? "Novelty: no training row was as unusual as this one."
    : `Novelty: ${Math.round(100 * found)}% of the training rows were more usual than this one.`;
}

// ------------------------------------------------------------------ what if

function drawCurve(column, values, found, now) {
  $("held").textContent = column.name;
  const W = Math.max(280, $("plot").clientWidth), H = 200, left = 44, bottom = H - 22, top = 8, first = values[0], span = values.at(-1) - first || 1;
  const lines = model.classes ? chooseLines(found.probabilities) : [{ y: found.mean, fill: "var(--accent)" }];
  const low = model.classes ? 0 : Math.min(...found.low), high = model.classes ? 1 : Math.max(...found.high);
  const X = (x) => left + ((W - left - 4) * (x - first)) / span, Y = (y) => bottom - ((bottom - top) * (y - low)) / (high - low || 1);
  const path = (ys) => ys.map((y, i) => `${i ? "L" : "M"}${X(values[i]).toFixed(1)} ${Y(y).toFixed(1)}`).join("");
  const svg = make("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": `Predictions over ${column.name}` });
  for (const share of [0, 0.5, 1]) {
    const y = low + share * (high - low), x = first + share * span;
    svg.append(make("line", { class: "grid", x1: left, x2: W - 4, y1: Y(y), y2: Y(y) }),
      make("text", { x: left - 6, y: Y(y) + 4, "text-anchor": "end" }, model.classes ? `${100 * share}%` : short(y)),
      make("text", { x: X(x), y: H - 4, "text-anchor": ["start", "middle", "end"][2 * share] }, describe(column, x)));
  }
  if (!model.classes) {
    const back = found.low.map((y, i) => `L${X(values[i]).toFixed(1)} ${Y(y).toFixed(1)}`).reverse().join("");
    svg.append(make("path", { class: "band", d: `${path(found.high)}${back}Z`, style: { fill: "var(--accent)" } }));
  }
  lines.forEach(({ y, fill }) => svg.append(make("path", { class: "line", d: path(y), style: { stroke: fill } })));
  if (now !== null) {
    const x = X(Math.min(Math.max(toNumber(column, now), first), first + span));
    svg.append(make("line", { class: "now", x1: x, x2: x, y1: top, y2: bottom }));
  }
  $("plot").replaceChildren(svg, makeLegend(lines));
}

function chooseLines(P) {
  const lines = model.classes.map((name, k) => ({ name, k, y: P.map((p) => p[k]), fill: colour(k) }));
  const peak = (line) => Math.max(...line.y);
  return lines.sort((a, b) => peak(b) - peak(a)).slice(0, MOST_LINES).sort((a, b) => a.k - b.k);
}

function makeLegend(lines) {
  const keys = lines.filter(({ name }) => name !== undefined).map(({ name, fill }) =>
    make("span", {}, make("i", { class: "key", style: { background: fill } }), name));
  return make("div", { class: "legend" }, ...keys);
}

function drawLevels(column, levels, found, now) {
  $("held").textContent = column.name;
  const bottom = Math.min(...(found.low || [0])), scale = Math.max(...(found.high || [1])) - bottom || 1;
  const bars = levels.map((level, i) => {
    const inside = model.classes
      ? found.probabilities[i].map((p, k) => make("span", { class: "fill", title: `${model.classes[k]}: ${percent(p)}`, style: { ...width(p), background: colour(k) } }))
      : [make("span", { class: "interval", style: { left: `${(100 * (found.low[i] - bottom)) / scale}%`, ...width((found.high[i] - found.low[i]) / scale) } }),
        make("span", { class: "dot", style: { left: `${(100 * (found.mean[i] - bottom)) / scale}%` } })];
    return bar(level === now ? `▸ ${level}` : level, model.classes ? "" : short(found.mean[i]), ...inside);
  });
  $("plot").replaceChildren(...bars, makeLegend(model.classes ? chooseLines(found.probabilities) : []));
}

// ------------------------------------------------------------------ contributions

async function explain() {
  const began = version, size = new TextEncoder().encode(JSON.stringify(toRow(row))).length + 20;
  const room = Math.min(model.most_rows, MOST_COMPARED, Math.floor(model.most_bytes / size)) - 1;
  const compared = [];
  let count = 0;
  for (const column of model.columns) if ((count += column.others.length) <= room) compared.push(column);
  const rows = compared.flatMap((column, j) => column.others.map((cell) => change(j, cell)));
  try {
    const found = await predict([row, ...rows]);
    if (began === version) showMoves(compared, found);
  } catch (error) {
    complain(error.message);
  }
}

function showMoves(compared, found) {
  const own = model.classes && found.probabilities[0], best = model.classes && own.indexOf(Math.max(...own));
  const rest = (P) => P.reduce((sum, p, k) => (k === best ? sum : sum + p), 0) || 1e-300; // 1 − p would cancel
  const average = (rows) => rows[0].map((_, k) => rows.reduce((sum, P) => sum + P[k], 0) / rows.length);
  const odds = (P) => Math.max(P[best], 1e-300) / rest(P);
  let at = 1;
  const moves = compared.map(({ name, others }) => {
    const end = at + others.length, rows = (found.probabilities || found.mean).slice(at, end);
    at = end;
    if (model.classes) return { name, move: Math.log(odds(own)) - Math.log(odds(average(rows))) };
    return { name, move: found.mean[0] - rows.reduce((sum, mean) => sum + mean, 0) / rows.length };
  });
  moves.sort((a, b) => Math.abs(b.move) - Math.abs(a.move));
  const most = Math.max(...moves.map(({ move }) => Math.abs(move)), model.classes ? Math.LN2 : 1e-300);
  const say = ({ move }) => {
    if (model.classes) return Math.abs(move) < 0.005 ? "0" : `${move < 0 ? "−" : "+"}${Math.abs(move).toFixed(2)}`;
    return Math.abs(move) < 1e-3 * most ? "0" : (move > 0 ? "+" : "−") + short(Number(Math.abs(move).toPrecision(3)));
  };
  const left = compared.length < model.columns.length ? ` The first ${compared.length} columns.` : "";
  $("compared").textContent = (model.classes
    ? `Log-odds of ${model.classes[best]}: +0.69 means twice the odds that a typical value of the column gives, −0.69 half.`
    : "How much this value moves the prediction, compared with other values of the column.") + left;
  const draw = (moved) => {
    const half = (50 * Math.abs(moved.move)) / most;
    const box = bar(moved.name, say(moved), make("span", { class: "move", style: { left: `${50 - (moved.move < 0 ? half : 0)}%`, width: `${half}%` } }));
    box.querySelector(".track").classList.add("mid");
    return box;
  };
  const shown = moves.length > MOST_MOVES + 2 ? MOST_MOVES : moves.length; // a fold of one or two hides nothing worth it
  const more = moves.slice(shown).map(draw), open = !!$("moves").querySelector("details")?.open;
  $("moves").replaceChildren(...moves.slice(0, shown).map(draw));
  if (more.length) $("moves").append(make("details", { open }, make("summary", {}, `${more.length} more columns`), ...more));
}

// ------------------------------------------------------------------ files

function findStop(text, at, border) { // where the cell that starts at a place ends; -1 if a quotation mark does not end it
  border.lastIndex = at;
  if (text[at] !== '"') return border.exec(text).index;
  let close = text.indexOf('"', at + 1);
  while (close >= 0 && text[close + 1] === '"') close = text.indexOf('"', close + 2);
  border.lastIndex = close + 1;
  return close >= 0 && border.exec(text).index === close + 1 ? close + 1 : -1;
}

function parseTable(text) {
  const line = text.replace(/"[^"]*"/g, "").split(/[\r\n]/, 1)[0];
  const comma = [",", ";", "\t", "|"].reduce((a, b) => (line.split(b).length > line.split(a).length ? b : a));
  const rows = [[]], border = new RegExp(`[${comma}\\r\\n]|$`, "g");
  for (let at = 0, next = comma; next !== undefined; ) {
    const stop = findStop(text, at, border);
    if (stop < 0) throw new Error(`row ${rows.length - 1} below the header has a quotation mark that does not end a cell.`);
    rows.at(-1).push(text[at] === '"' ? text.slice(at + 1, stop - 1).replaceAll('""', '"') : text.slice(at, stop));
    next = text[stop];
    if (next && next !== comma) rows.push([]);
    at = stop + (next === "\r" && text[stop + 1] === "\n" ? 2 : 1);
  }
  return { comma, header: rows[0], rows: rows.slice(1).filter((cells) => cells.length > 1 || cells[0]) };
}

function readCells(header) {
  const places = model.columns.map((c, j) => (model.named ? header.indexOf(c.name) : j));
  const absent = model.columns.filter((_, j) => places[j] < 0).map((c) => c.name);
  if (absent.length) throw new Error(`the file has no column ${absent.slice(0, 5).join(", ")}: it needs all columns of the model.`);
  if (!model.named && header.length !== places.length) throw new Error(`the file has ${header.length} columns, but the model has ${places.length}.`);
  return (cells) => places.map((place) => {
    const text = (cells[place] ?? "").trim();
    return model.named ? text || null : Number(text);
  });
}

async function* predictFile(rows, read) {
  for (let start = 0; start < rows.length;) {
    const block = [];
    for (let size = 0; start + block.length < rows.length && block.length < Math.min(FILE_ROWS, model.most_rows); ) {
      const cells = read(rows[start + block.length]);
      size += new TextEncoder().encode(JSON.stringify(toRow(cells))).length + 1;
      if (block.length && size > 0.9 * model.most_bytes) break;
      block.push(cells);
    }
    const found = await predict(block, true).catch((error) => {
      throw new Error(error.message.replace(/^row (\d+)/, (_, i) => `row ${start + Number(i)}`));
    });
    yield [start, found];
    start += block.length;
  }
}

const guard = (text) => (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text); // a spreadsheet would run it

function makeColumns(found) {
  const columns = model.classes ? { label: found.labels.map(guard) } : {};
  if (model.classes) model.classes.forEach((name, k) => { columns[`p_${name}`] = found.probabilities.map((p) => p[k]); });
  if (found.decisions) Object.assign(columns, { decision: found.decisions.map((action) => guard(action ?? "refuse")), expected_cost: found.expected_costs, margin: found.margins });
  for (const name of ["mean", "std", "low", "high", "total", "aleatoric", "epistemic", "novelty"]) if (found[name]) columns[name] = found[name];
  return columns;
}

async function predictDropped(file) {
  const counts = {}, lines = [], progress = $("progress");
  try {
    progress.textContent = `Reading ${file.name} …`;
    const { comma, header, rows } = parseTable((await file.text()).replace(/^\ufeff/, ""));
    if (!rows.length) throw new Error("the file has no rows below its header.");
    const quote = (cell) => (/["\r\n]/.test(cell) || String(cell).includes(comma) ? `"${String(cell).replaceAll('"', '""')}"` : cell);
    for await (const [start, found] of predictFile(rows, readCells(header))) {
      const columns = makeColumns(found), names = Object.keys(columns);
      if (!start) lines.push([...header, ...names.map((name) => (header.includes(name) ? `predicted_${name}` : name))].map(quote).join(comma));
      columns[names[0]].forEach((_, i) => lines.push([...header.map((_, j) => rows[start + i][j] ?? ""), ...names.map((name) => columns[name][i])].map(quote).join(comma)));
      (found.labels || []).forEach((label) => { counts[label] = (counts[label] || 0) + 1; });
      progress.textContent = `Predicted ${lines.length - 1} of ${rows.length} rows …`;
    }
  } catch (error) {
    progress.textContent = `${file.name}: ${error.message}`;
    return;
  }
  const address = URL.createObjectURL(new Blob([lines.join("\n"), "\n"], { type: "text/csv" }));
  const link = make("a", { href: address, download: file.name.replace(/(\.\w+)?$/, "-predictions.csv") }, "Save the predictions");
  const said = Object.entries(counts).sort((a, b) => b[1] - a[1]).slice(0, 6).map(([label, n]) => `${n} ${label}`).join(", ");
  progress.replaceChildren(`${lines.length - 1} rows${said && `: ${said}`}. `, link);
  link.click();
}

// ------------------------------------------------------------------ start

async function open() {
  try {
    model = await ask("schema");
  } catch (error) {
    $("door").hidden = error.status !== 401;
    $("programs").hidden = error.status === 401; // a link cannot carry the token
    complain(error.status === 401 && !token ? "" : error.message);
    $("token").focus();
    return;
  }
  complain("");
  $("door").hidden = true;
  $("main").hidden = false;
  const { target, classes, columns } = model, what = target || (classes ? "the class" : "the value");
  $("title").textContent = document.title = `Predict ${what}`;
  $("about").textContent = `${columns.length} columns${classes ? `, ${classes.length} classes` : ""}. Change a value to see the prediction.`;
  $("why").title = model.terms.contribution;
  $("columns").replaceChildren(...columns.map(makeColumn));
  reset();
}

$("door").addEventListener("submit", (event) => { event.preventDefault(); token = $("token").value; open(); });
$("reset").addEventListener("click", reset);
$("choose").addEventListener("change", (event) => { if (event.target.files[0]) predictDropped(event.target.files[0]); event.target.value = ""; });
for (const kind of ["dragover", "dragleave", "drop"]) {
  addEventListener(kind, (event) => {
    event.preventDefault();
    $("drop").classList.toggle("over", kind === "dragover");
    if (kind === "drop" && model && event.dataTransfer.files[0]) predictDropped(event.dataTransfer.files[0]);
  });
}
open();
