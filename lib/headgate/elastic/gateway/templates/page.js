"use strict";
const AGAIN_MS = 250, LOST_MS = 2000, WAIT_S = 30;
const byId = (id) => document.getElementById(id);
let shown = JSON.parse(byId("first").textContent), at = performance.now();

function made(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (className) node.className = className;
  return node;
}
function span(seconds) {
  if (seconds === null) return "";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.floor(seconds)} s`;
}
const whole = (number) => number.toLocaleString("en");
const count = (pool, state) => pool.workers.filter((worker) => worker.state === state).length;

function figures(list, rows) {
  list.replaceChildren(...rows.map(([name, value, title]) => {
    const box = made("div");
    if (title) box.title = title;
    box.append(made("dt", name), made("dd", value));
    return box;
  }));
}
function bar(worker) {
  const box = made("div", null, `use ${worker.state}`), whole = made("div", null, "bar"), part = made("span");
  part.style.width = `${Math.min(100, 100 * worker.requests / worker.slots)}%`;
  whole.append(part);
  box.append(whole, made("span", `${worker.requests} / ${worker.slots}`));
  return box;
}
function row(worker, elapsed) {
  const line = made("tr"), name = made("th", worker.worker_id.replace(/^https?:\/\//, ""));
  name.scope = "row";
  const stage = worker.stage ? `, ${worker.stage}` : "";
  const retry = worker.retry_s === null ? "" : `, tried again in ${span(Math.max(0, worker.retry_s - elapsed))}`;
  const state = made("td");
  state.append(made("span", worker.state + stage + retry + (worker.is_lease_lost ? ", lease wanted" : ""), `state ${worker.state}`));
  const use = made("td"), isAwake = worker.state === "active" || worker.state === "draining";
  if (isAwake) use.append(bar(worker));
  const load = worker.load;
  const counts = load === null ? "" : whole(load.running + load.waiting);
  line.append(name, state, made("td", span(worker.since_s + elapsed), "number"), use,
    made("td", isAwake ? `${Math.round(100 * worker.share)} %` : "", "number"), made("td", counts, "number"),
    made("td", worker.pin === null ? "" : worker.pin), made("td", worker.failures || "", "number"),
    made("td", worker.last_error, worker.failures ? "error" : "error quiet"));
  return line;
}
function show() {
  const { pool, admission } = shown, demand = pool.demand, elapsed = (performance.now() - at) / 1000;
  const awake = demand.active + demand.starting;
  document.title = `${pool.name}: ${awake} awake, ${demand.running} running, ${demand.waiting + admission.waiting} waiting`;
  byId("name").textContent = pool.name;
  const chip = byId("open"), stops = shown.is_draining || !pool.is_open;
  chip.textContent = stops ? "stopping" : pool.is_elastic ? "elastic" : "fixed";
  chip.className = stops ? "chip bad" : "chip";
  byId("about").className = "quiet";
  byId("about").textContent = `${pool.models.join(", ") || "models unknown"} · policy ${pool.policy} · between ${demand.lowest} and ${demand.highest} workers`;
  figures(byId("figures"), [
    ["workers awake", `${awake} → ${pool.desired.workers}`, "active and starting → desired"],
    ["draining", count(pool, "draining")], ["asleep", count(pool, "inactive")], ["failed", count(pool, "failed")],
    ["demand", demand.worth.toFixed(1), "what runs and waits in the pool, in workers that it fills"],
    ["running", whole(demand.running)],
    ["waiting", whole(demand.waiting), "in the pool's line"],
    ["oldest wait", demand.waiting ? span(demand.oldest_wait_s + elapsed) : "–"],
    ["at the gate", whole(admission.waiting), `wait for admission, ${whole(admission.most_waiting)} at most; ${admission.in_flight} of ${admission.limit} are in the pool`],
  ]);
  byId("because").textContent = `Desired: ${pool.desired.workers}, because ${pool.desired.because}`;
  byId("workers").replaceChildren(...pool.workers.map((worker) => row(worker, elapsed)));
  const counts = pool.counts;
  figures(byId("counts"), [["arrived", whole(counts.arrived)], ["served", whole(counts.served)], ["lost", whole(counts.lost)],
    ["refused", whole(counts.refused)], ["withdrawn", whole(counts.withdrawn)], ["handed over", whole(counts.handed_over)],
    ["scaled up", whole(counts.scaled_up)], ["scaled down", whole(counts.scaled_down)],
    ["worker-hours", (counts.awake_s / 3600).toFixed(2)]]);
}
async function follow() {
  let mark = "", query = "";
  for (;;) {
    let pause = AGAIN_MS;
    try {
      const headers = mark ? { "If-None-Match": mark } : {};
      const status = new URL(`elastic/v1/status${query}`, location.origin + location.pathname);
      const answer = await fetch(status, { headers, cache: "no-store" });
      if (answer.status !== 304) {
        if (!answer.ok) throw new Error(`the gateway answered ${answer.status}`);
        shown = await answer.json(); at = performance.now(); mark = answer.headers.get("ETag") || "";
        query = `?wait=${WAIT_S}`;
      }
      show();
    } catch (error) {
      byId("about").className = "lost";
      byId("about").textContent = `No status since ${span((performance.now() - at) / 1000)} (${error.message}); trying again`;
      pause = LOST_MS; mark = ""; query = "";
    }
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}
setInterval(() => { if (byId("about").className === "quiet") show(); }, 1000);
show();
follow();
