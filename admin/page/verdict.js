"use strict";

// verdict says in a sentence what holds a stream up. It is told the stream now and, where there was one, the answer before it:
// whether a number grows says more than the number. Levels: good, work, warn, bad.
function verdict(now, before) {
  const words = (level, text) => ({level, text});
  switch (now.state) {
  case "starting": return words("work", "starting: nothing is assigned yet");
  case "stopped": return words("warn", "stopped");
  case "blocked": return words("bad", "blocked: an operator is needed" + because(now));
  }
  const blocked = now.sinks.find(s => s.state === "blocked");
  if (blocked) return words("bad", `sink ${blocked.name} needs an operator: ${blocked.last_error || "it gives no reason"}`);
  if (now.state === "paused") return words("warn", "the raw store is slow: all bytes that may be in flight wait for it");
  const retrying = now.sinks.find(s => s.state === "retrying");
  if (retrying) return words("warn", `sink ${retrying.name} does not take its rows: ${retrying.last_error || "it gives no reason"}`);
  return behind(now, before, words) || intake(now, before, words);
}

// quorum says in a sentence how the cluster is.
function quorum(c) {
  const words = (level, text) => ({level, text});
  const kept = c.failure_tolerance === null ? "" : c.failure_tolerance > 0 ? `, tolerates the loss of ${c.failure_tolerance}` : ", tolerates the loss of none";
  switch (c.state) {
  case "no_quorum": return words("bad", `no quorum: records go on, recovery waits. ${c.mend || c.waiting || ""}`);
  case "founding": case "restoring": return words("work", `${c.state}: ${c.waiting || "under way"}`);
  case "degraded": return words("warn", `serves${kept}, which is less than size ${c.size} promises`);
  }
  return words("good", `serves${kept}`);
}

// because names the first reason that a sink gives.
function because(stream) {
  const sink = stream.sinks.find(s => s.last_error);
  return sink ? `: ${sink.last_error}` : "";
}

// behind is the verdict where a sink has gaps.
function behind(now, before, words) {
  const sink = now.sinks.find(s => s.state === "lagging");
  if (!sink) return null;
  const old = before && before.sinks.find(s => s.name === sink.name);
  const gap = `${count(sink.gap_records)} records of it are in raw only`;
  if (old && old.gap_records !== null && sink.gap_records !== null && sink.gap_records < old.gap_records) {
    return words("work", `recovery fills sink ${sink.name}: ${gap}, and fewer each time`);
  }
  return words("warn", `sink ${sink.name} is the bottleneck: ${gap}`);
}

// intake is the verdict where every sink has what raw has.
function intake(now, before, words) {
  const lag = sum(now.partitions, "lag");
  if (now.partitions.length === 0) return words("good", "idle: no partition is assigned to this node");
  if (lag === null) return words("work", "running; how far behind the source is not known yet");
  const was = before ? sum(before.partitions, "lag") : null;
  if (lag > 0 && was !== null && lag > was) return words("warn", `the source is faster than this node: ${count(lag)} records behind, and growing`);
  if (lag > 0) return words("work", `catching up: ${count(lag)} records behind the source`);
  const moved = before && sum(before.partitions, "position") !== sum(now.partitions, "position");
  return moved ? words("good", "keeping up with the source") : words("good", "the source is idle, and all of it is stored");
}

// sum adds a column up; null where a number of it is not known.
function sum(rows, key) {
  return rows.reduce((n, row) => n === null || row[key] === null ? null : n + row[key], 0);
}

// count writes a number for people; what is not known is a question mark.
function count(n) { return n === null || n === undefined ? "?" : n.toLocaleString("en"); }
