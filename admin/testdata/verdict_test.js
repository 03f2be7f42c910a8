// Run by TestVerdict.
const fs = require("fs"), vm = require("vm"), assert = require("assert"), path = require("path");
vm.runInThisContext(fs.readFileSync(path.join(__dirname, "../page/verdict.js"), "utf8"));

const stream = (state, sinks, partitions) => ({state, sinks, partitions});
const part = (lag, position = 1) => ({lag, position});
const sink = (state, gap_records = 0, last_error = "", name = "lake") => ({name, state, gap_records, last_error});

function f(now, before, level, text) {
  const got = verdict(now, before);
  assert.strictEqual(got.level, level, JSON.stringify(got));
  assert.ok(got.text.includes(text), `${got.text} does not hold ${text}`);
}

f(stream("starting", [], []), null, "work", "starting");
f(stream("stopped", [], []), null, "warn", "stopped");
f(stream("blocked", [sink("live")], []), null, "bad", "an operator is needed");
f(stream("blocked", [sink("blocked", 0, "table missing")], []), null, "bad", "operator is needed: table missing");
f(stream("running", [sink("live"), sink("blocked", 0, "table missing", "db")], [part(0)]), null, "bad", "sink db needs an operator: table missing");
f(stream("paused", [sink("live")], [part(9)]), null, "warn", "the raw store is slow");
f(stream("running", [sink("retrying", 0, "refused")], [part(0)]), null, "warn", "lake does not take its rows: refused");
f(stream("running", [sink("lagging", 5000)], [part(0)]), null, "warn", "sink lake is the bottleneck: 5,000 records");
f(stream("running", [sink("lagging", 7)], [part(0)]), stream("running", [sink("lagging", 5)], [part(0)]), "warn", "is the bottleneck");
f(stream("running", [sink("lagging", 5)], [part(0)]), stream("running", [sink("lagging", 7)], [part(0)]), "work", "recovery fills sink lake");
f(stream("running", [sink("lagging", null)], [part(0)]), stream("running", [sink("lagging", 7)], [part(0)]), "warn", "? records");
f(stream("running", [], [part(null), part(3)]), null, "work", "not known");
f(stream("running", [], [part(30)]), stream("running", [], [part(20)]), "warn", "faster than this node: 30 records");
f(stream("running", [], [part(10)]), stream("running", [], [part(20)]), "work", "catching up: 10");
f(stream("running", [], [part(10)]), null, "work", "catching up");
f(stream("running", [], [part(0, 5)]), stream("running", [], [part(0, 4)]), "good", "keeping up");
f(stream("running", [], [part(0, 5)]), stream("running", [], [part(0, 5)]), "good", "the source is idle");
f(stream("running", [], []), null, "good", "no partition");

function q(c, level, text) {
  const got = quorum({size: 3, failure_tolerance: 1, ...c});
  assert.strictEqual(got.level, level, JSON.stringify(got));
  assert.ok(got.text.includes(text), `${got.text} does not hold ${text}`);
}

q({state: "ok"}, "good", "tolerates the loss of 1");
q({state: "degraded", failure_tolerance: 0}, "warn", "the loss of none, which is less than size 3 promises");
q({state: "no_quorum", failure_tolerance: null, mend: "start n2"}, "bad", "recovery waits. start n2");
q({state: "founding", failure_tolerance: null, waiting: "for n1"}, "work", "founding: for n1");
