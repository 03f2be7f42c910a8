"use strict";

// Every text is put in as text (textContent), never as HTML: names and errors come from elsewhere.

const every = 2000; // milliseconds between two questions
let before = null;  // the answer before this one
let answered = null;
let announced = ""; // what announce said last

function element(name, text, kind) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (kind) e.className = kind;
  return e;
}

// words are the columns that hold no numbers.
const words = new Set(["state", "last error", "roles", "address"]);

function table(caption, heads, rows) {
  const t = element("table");
  t.setAttribute("aria-label", caption);
  const head = t.createTHead().insertRow();
  for (const h of heads) {
    const th = element("th", h, words.has(h) ? "left" : "");
    th.scope = "col";
    head.append(th);
  }
  const body = t.createTBody();
  for (const row of rows) {
    const tr = body.insertRow();
    for (const cell of row) tr.append(cell instanceof Node ? cell : element("td", cell));
  }
  const scroll = element("div", undefined, "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  scroll.append(t);
  return scroll;
}

const levels = {live: "good", running: "good", ok: "good", active: "good", degraded: "warn", no_quorum: "bad", founding: "work", restoring: "work", joining: "work", terminating: "work", failed: "bad", lagging: "warn", retrying: "warn", paused: "warn", starting: "work", stopped: "warn", blocked: "bad"};

function sinkRow(s) {
  const wait = s.backoff_s > 0 ? ` (again in ${Math.ceil(s.backoff_s)} s)` : "";
  return [s.name, element("td", s.state, "left " + (levels[s.state] || "")), count(s.covered), count(s.gap_records), count(s.backlog_windows),
    element("td", s.last_error + wait, "left wide")];
}

function partitionRow(p) {
  return [`${p.topic} ${p.partition}`, count(p.lag), count(p.position), count(p.committed), count(p.raw_next), count(p.end)];
}

function partitions(stream, open) {
  const d = element("details");
  d.open = open;
  d.dataset.stream = stream.name;
  d.append(element("summary", `${count(stream.partitions.length)} ${stream.partitions.length === 1 ? "partition" : "partitions"}, ${count(sum(stream.partitions, "lag"))} records behind`));
  d.append(table("Partitions of " + stream.name, ["partition", "lag", "position", "committed", "raw", "end"], stream.partitions.map(partitionRow)));
  return d;
}

function rejects(stream) {
  const drops = stream.drops === null ? "?" : Object.entries(stream.drops).map(([why, n]) => `${why} ${count(n)}`).join(", ") || "none";
  return element("p", `Quarantined: ${count(stream.quarantine.records)}, shed: ${count(stream.quarantine.shed)}. Dropped: ${drops}.`);
}

function repeated(dedup) {
  const sum = (byReason) => Object.values(byReason || {}).reduce((a, b) => a + b, 0);
  let text = `Repeated records (${dedup.mode}): ${count(dedup.duplicates)} of ${count(dedup.checked)} checked, ${count(dedup.dropped)} dropped; `
    + `${count(sum(dedup.unavailable))} passed because nobody could tell or note it, ${count(sum(dedup.unkeyed))} without content to compare.`;
  if (dedup.reason) text += ` Nobody is asked at present: ${dedup.reason}.`;
  if (dedup.window_held_s !== null && dedup.window_held_s < dedup.window_s) text += ` Known for the last ${Math.round(dedup.window_held_s)} s only: older contents were let go for want of max_entries.`;
  return element("p", text);
}

function section(stream, said, open) {
  const s = element("section");
  const title = element("h2", stream.name + " ");
  title.append(element("span", stream.state, levels[stream.state] || ""));
  s.append(title, element("p", said.text, "verdict " + said.level));
  if (stream.sinks.length > 0) {
    s.append(element("h3", "Sinks"));
    s.append(table("Sinks of " + stream.name, ["sink", "state", "covered", "missing", "windows", "last error"], stream.sinks.map(sinkRow)));
  }
  if (stream.partitions.length > 0) s.append(partitions(stream, open));
  s.append(rejects(stream));
  if (stream.dedup) s.append(repeated(stream.dedup));
  return s;
}

function memberRow(m) {
  return [m.id, element("td", m.state, "left " + (levels[m.state] || "")), element("td", (m.roles || []).join(", "), "left"), element("td", m.address, "left")];
}

function cluster(c) {
  const s = element("section");
  const title = element("h2", `cluster ${c.name} `);
  title.append(element("span", c.state, levels[c.state] || ""));
  const said = quorum(c);
  s.append(title, element("p", said.text, "verdict " + said.level));
  for (const alarm of c.alarms || []) s.append(element("p", alarm, "verdict warn"));
  s.append(element("p", `Size ${c.size}, leader ${c.leader || "none"}, term ${count(c.term)}.` + (c.backup ? ` Last backup: ${c.backup.last || "none"}${c.backup.error ? "; the last attempt failed: " + c.backup.error : ""}.` : "")));
  if (c.members && c.members.length > 0) s.append(table("Members", ["node", "state", "roles", "address"], c.members.map(memberRow)));
  return s;
}

// set changes a text only where it differs, so that a screen reader says what is new and nothing else.
function set(id, text) {
  const e = document.getElementById(id);
  if (e.textContent !== text) e.textContent = text;
}

function show(now) {
  set("node", now.node.id);
  set("facts", `version ${now.version}, mode ${now.node.mode}, up for ${duration(now.node.uptime_s)}`);
  document.title = now.node.id + " - twgd";
  const open = new Map([...document.querySelectorAll("details")].map(d => [d.dataset.stream, d.open]));
  const focused = document.activeElement && document.activeElement.getAttribute("aria-label");
  const said = now.streams.map(s => verdict(s, before && before.streams.find(o => o.name === s.name)));
  document.getElementById("cluster").replaceChildren(...(now.cluster ? [cluster(now.cluster)] : []));
  document.getElementById("streams").replaceChildren(...now.streams.map((s, i) => section(s, said[i], open.get(s.name) ?? s.partitions.length <= 12)));
  if (focused) [...document.querySelectorAll(".scroll")].find(e => e.getAttribute("aria-label") === focused)?.focus({preventScroll: true});
  announce(now.streams.map((s, i) => ({name: s.name, ...said[i]})).filter(v => v.level === "bad" || v.level === "warn"));
  before = now;
}

// announce tells a screen reader what needs attention: when that changes, not when a number in it does.
function announce(verdicts) {
  const key = JSON.stringify(verdicts.map(v => [v.name, v.level]));
  if (key === announced) return;
  announced = key;
  set("verdicts", verdicts.map(v => `${v.name}: ${v.text}.`).join(" "));
}

function duration(s) {
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const i = Math.max(0, parts.findIndex(([n]) => s >= n));
  const [unit, name] = s < 1 ? [1, "s"] : parts[i];
  return `${Math.floor(s / unit)} ${name}`;
}

function trouble(text) {
  set("trouble", text);
  document.getElementById("trouble").hidden = text === "";
}

async function refresh() {
  try {
    const answer = await fetch("status", {cache: "no-store", signal: AbortSignal.timeout(10000)});
    if (!answer.ok) throw new Error(`the node answers ${answer.status}`);
    show(await answer.json());
    answered = new Date();
    trouble("");
  } catch (e) {
    trouble(answered ? `No answer since ${answered.toLocaleTimeString()}; what is shown is old.` : `No answer: ${e.message}`);
  }
}

// A page that nobody sees asks nothing.
async function loop() {
  if (!document.hidden) await refresh();
  setTimeout(loop, every);
}

loop();
