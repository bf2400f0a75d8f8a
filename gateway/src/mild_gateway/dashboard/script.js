"use strict";
(() => {
  const PACE = 2000, PATIENCE = 5000;
  const byId = id => document.getElementById(id);
  let seen = null, goneSince = null;
  // The admin key, while this page is open: in no address, cookie or storage.
  let key = null, asksForKey = false;
  const drawn = {};

  // Text only: names and queries never become markup.
  function make(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") Object.assign(node.style, value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
    }
    node.append(...children.filter(child => child !== null && child !== undefined));
    return node;
  }
  function picture(tag, attributes, ...children) {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  // What has not changed is left alone: a selection or a focus stays.
  function fill(id, data, build) {
    const text = JSON.stringify(data);
    if (drawn[id] === text) return;
    drawn[id] = text;
    byId(id).replaceChildren(...[build()].flat());
  }

  const percent = (share, digits = 1) => share == null ? "–" : (100 * share).toFixed(digits) + "\u00a0%";
  const count = value => value == null ? "–" : value.toLocaleString("en-US");
  function dollars(value) {
    if (value == null) return "–";
    if (value === 0) return "$0";
    if (value < 0.00001) return "< $0.00001";
    const digits = value >= 0.1 ? 2 : Math.min(7, 2 - Math.floor(Math.log10(value)));
    return "$" + value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  }
  const signed = value => (value < 0 ? "\u2212" : "") + dollars(Math.abs(value));
  function milliseconds(value) {
    if (value == null) return "–";
    if (value >= 10000) return (value / 1000).toFixed(0) + " s";
    if (value >= 1000) return (value / 1000).toFixed(1) + " s";
    return (value >= 10 ? value.toFixed(0) : value.toFixed(1)) + " ms";
  }
  const clock = seconds => new Date(seconds * 1000).toLocaleTimeString("en-GB");
  const plural = (n, word) => `${count(n)} ${word}${n === 1 ? "" : "s"}`;

  function notices(status) {
    const list = [];
    if (goneSince !== null) {
      const since = seen === null ? "It has not answered since this page was opened."
        : `No answer since ${clock(goneSince / 1000)}; the figures are from ${clock(seen.time)}.`;
      list.push(make("div", { class: "notice bad" }, make("strong", {}, "The gateway does not answer"), since));
    }
    if (status) {
      if (status.shares.drift) list.push(make("div", { class: "notice warn", id: "drift" },
        make("strong", {}, "Shares are outside their bands"), status.shares.sentence));
      for (const trouble of status.troubles) list.push(make("div", { class: "notice bad" },
        make("strong", {}, "Needs attention"), trouble));
    }
    return list;
  }

  // Against the expert that would have cost most, and by how much against the others.
  function savings(data) {
    if (!data) return [];
    const experts = Object.entries(data.always).sort((a, b) => b[1] - a[1]);
    const words = ([name, cost]) => `always ${name} ${dollars(cost)}`;
    const { estimate, low, high } = data.saved[experts[0][0]];
    const sign = estimate >= 0 ? 1 : -1;
    const ends = [sign * low, sign * high].sort((a, b) => a - b);
    const interval = low === null ? "" : `${percent(data.confidence, 0)} interval ${signed(ends[0])} to ${signed(ends[1])}; `;
    return [[sign > 0 ? `Saved compared with always ${experts[0][0]}` : `Spent above always ${experts[0][0]}`, dollars(Math.abs(estimate)),
      `${interval}${dollars(data.paid)} for the last ${plural(data.rows, "answer")}, with the same tokens ${experts.map(words).join(", ")}`]];
  }

  function tiles(status) {
    const tile = (name, value, more) => make("li", {}, make("span", {}, name), make("strong", {}, value), make("small", {}, more));
    const { traffic, latency, spend } = status;
    const day = spend && spend.all.day;
    const failed = traffic.requests ? traffic.failures / traffic.requests : null;
    return [
      tile("Requests, last hour", count(traffic.requests), `${count(traffic.minutes.at(-2).requests)} in the last full minute`),
      tile("Failed, last hour", failed === null ? "–" : percent(failed), failed === null ? "no requests" : `${count(traffic.failures)} of ${count(traffic.requests)}`),
      tile("Median latency", milliseconds(latency.latency_ms.p50),
        `95 % within ${milliseconds(latency.latency_ms.p95)}; gateway adds ${milliseconds(latency.overhead_ms.p50)}`),
      day ? tile("Spent today", dollars(day.spent), day.budget === null ? "no budget set" : `of ${dollars(day.budget)}, ${percent(day.budget ? day.spent / day.budget : 0, 0)}`)
        : tile("Spent, last hour", dollars(traffic.dollars), "no budget set"),
      ...savings(status.savings).map(line => tile(...line)),
    ];
  }

  function shares(data) {
    const at = share => (100 * share) + "%";
    const usual = data.reference === "earlier" ? "earlier" : "trained";
    return data.experts.map(expert => {
      const meter = make("div", { class: "meter", "aria-hidden": "true" });
      if (expert.high !== undefined) meter.append(make("i", { class: "band", style: { left: at(expert.low), width: at(expert.high - expert.low) } }));
      if (expert.live) meter.append(make("i", { class: "live", style: { width: at(expert.live) } }));
      if (expert.usual !== undefined) meter.append(make("i", { class: "usual", style: { left: at(expert.usual) } }));
      const judged = expert.usual !== undefined && data.window >= data.least;
      const word = !judged ? null : expert.outside ? make("span", { class: "pill bad" }, "outside its band") : make("span", { class: "pill good" }, "in its band");
      return make("li", { class: "row" + (expert.outside ? " outside" : "") },
        make("div", { class: "who" }, expert.name, " ", word),
        meter,
        make("div", { class: "figures" }, make("span", { class: "unseen" }, "live share "), percent(expert.live),
          ...(expert.usual === undefined ? [] : [make("small", {}, `${usual} ${percent(expert.usual)}`),
            make("small", {}, `band ${(100 * expert.low).toFixed(0)} to ${percent(expert.high, 0)}`)])));
    });
  }
  function rule(data) {
    if (data.reference === null) return "Bands appear here once the router records its shares in training, or enough decisions have been made.";
    const source = data.reference === "trained" ? `the shares that the router had on ${count(data.reference_rows)} training rows`
      : `the shares among ${count(data.reference_rows)} earlier decisions`;
    const so = data.window < data.full ? `, ${count(data.window)} so far,` : "";
    return `Rule: the last ${count(data.full)} decisions${so} are compared with ${source}. The bands are beta-binomial and hold for all experts at once: ` +
      `if nothing has changed, they contain all shares with a probability of ${percent(data.confidence, 0)} at any one time. Pinned requests, and requests that name an expert or a trade-off, are not counted.`;
  }

  function feedbackRows(data) {
    const at = share => (100 * share) + "%";
    return Object.entries(data).map(([name, { answers, rate, samples, self_selected: chosen }]) => {
      const words = [rate === null ? "no answers of its own"
        : `${percent(rate.mean)} of ${plural(answers, "answer")} (${(100 * rate.low).toFixed(1)} to ${percent(rate.high)})`];
      if (samples) words.push(`${count(samples.count)} picked at random`);
      if (chosen) words.push(`${count(chosen.count)} self-selected${samples ? `, mean ${chosen.mean.toFixed(2)}` : ""}`);
      const { mean, low, high } = samples || chosen;
      return make("li", { class: "row" },
        make("div", { class: "who" }, name, ...words.map(text => make("small", {}, text))),
        make("div", { class: "meter", "aria-hidden": "true" },
          make("i", { class: "band", style: { left: at(low), width: at(high - low) } }),
          make("i", { class: "usual", style: { left: at(mean) } })),
        make("div", { class: "figures" }, make("span", { class: "unseen" }, "mean score "), mean.toFixed(2),
          make("small", {}, `${low.toFixed(2)} to ${high.toFixed(2)}`)));
    });
  }

  function cascadeSentence(data) {
    if (data.escalated === null) return `None of the last ${plural(data.requests, "request")} reached an expert.`;
    return `Of the last ${plural(data.requests, "request")}, ${percent(data.escalated)} were escalated beyond the first step; ` +
      `${data.calls.toFixed(1)} calls per request.`;
  }
  function cascadeRows(data) {
    return data.steps.map(step => make("li", { class: "row" },
      make("div", { class: "who" }, `Step ${step.step}`, make("small", {}, step.experts.join(", "))),
      make("div", { class: "meter", "aria-hidden": "true" }, make("i", { class: "live", style: { width: (100 * step.share) + "%" } })),
      make("div", { class: "figures" }, make("span", { class: "unseen" }, "ended here "), percent(step.share),
        make("small", {}, plural(step.requests, "request")))));
  }

  function spendRows(spend) {
    if (!spend) return [make("li", { class: "empty" }, "Spend is not counted.")];
    const line = (name, entry, renews) => {
      const part = entry.budget ? entry.spent / entry.budget : 0;
      const held = entry.budget ? Math.min(entry.held / entry.budget, Math.max(0, 1 - part)) : 0;
      const kind = entry.budget === null ? "" : part >= 1 ? " over" : part >= 0.8 ? " near" : "";
      const state = entry.budget === null ? null
        : part >= 1 ? make("span", { class: "pill bad" }, "used up") : part >= 0.8 ? make("span", { class: "pill warn" }, "nearly used up") : null;
      const meter = entry.budget === null ? null : make("div", { class: "meter thin", "aria-hidden": "true" },
        make("i", { class: "spent", style: { width: 100 * Math.min(1, part) + "%" } }),
        make("i", { class: "held", style: { left: 100 * Math.min(1, part) + "%", width: 100 * held + "%" } }));
      return make("li", { class: "row" + kind },
        make("div", { class: "who" }, name, " ", state, renews && entry.budget !== null ? make("small", {}, renews) : null),
        make("div", { class: "figures" }, entry.budget === null ? dollars(entry.spent) : `${dollars(entry.spent)} of ${dollars(entry.budget)}`,
          make("small", {}, entry.budget === null ? "no budget" : `${percent(part, 0)}${entry.held > 0 ? `, ${dollars(entry.held)} held` : ""}`)),
        meter);
    };
    const renews = period => { const at = new Date(period.renews * 1000); return Number.isNaN(at.getTime()) ? "" : `renews ${at.toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" })}`; };
    const rows = [line("All, today", spend.all.day, renews(spend.day)), line("All, this month", spend.all.month, renews(spend.month))];
    const keys = Object.entries(spend.keys).sort((a, b) => b[1].month.spent - a[1].month.spent);
    for (const [name, entry] of keys.slice(0, 8)) {
      const daily = entry.day.budget !== null;
      rows.push(line(`${name}, ${daily ? "today" : "this month"}`, daily ? entry.day : entry.month, ""));
    }
    if (keys.length > 8) rows.push(make("li", { class: "empty" }, `and ${plural(keys.length - 8, "more key")}`));
    return rows;
  }

  function traffic(data) {
    const width = 480, height = 164, step = width / data.minutes.length;
    const top = Math.max(1, ...data.minutes.map(minute => minute.requests));
    const bars = data.minutes.flatMap((minute, place) => {
      const tall = (height - 38) * minute.requests / top, bad = (height - 38) * minute.failures / top;
      const base = height - 18, x = place * step + 1;
      const tip = picture("title", {}, `${clock(minute.time).slice(0, 5)}: ${plural(minute.requests, "request")}, ${count(minute.failures)} failed, ${dollars(minute.dollars)}`);
      return minute.requests === 0 ? [] : [picture("g", {}, tip,
        picture("rect", { class: "ok-bar", x, y: base - tall, width: step - 2, height: tall - bad, rx: 1.5 }),
        picture("rect", { class: "bad-bar", x, y: base - bad, width: step - 2, height: bad, rx: 1.5 }))];
    });
    const words = `${plural(data.requests, "request")} in the last hour, at most ${count(top)} a minute; ${count(data.failures)} failed.`;
    const other = Object.entries(data.outcomes).filter(([name]) => name !== "ok").map(([name, n]) => `${count(n)} ${name}`).join(", ");
    return [
      make("p", { class: "lead" }, data.requests ? `${plural(data.requests, "request")}, ${dollars(data.dollars)}; ${other || "all answered"}.` : "No requests."),
      make("ul", { class: "legend", "aria-hidden": "true" }, make("li", {}, make("i", { class: "key live" }), "answered, per minute"), make("li", {}, make("i", { class: "key failed" }), "failed (at the bottom)")),
      picture("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words },
        picture("line", { class: "axis", x1: 0, x2: width, y1: height - 17.5, y2: height - 17.5 }), ...bars,
        picture("text", { x: 0, y: height - 3 }, "an hour ago"), picture("text", { x: width, y: height - 3, "text-anchor": "end" }, "now"),
        ...(data.requests ? [picture("text", { x: width, y: 10, "text-anchor": "end" }, `at most ${count(top)} a minute`)] : [])),
    ];
  }

  function latencyRows(data) {
    const line = (name, entry) => make("tr", {}, make("th", { scope: "row" }, name), make("td", {}, milliseconds(entry.p50)), make("td", {}, milliseconds(entry.p95)));
    return [line("full answer", data.latency_ms), line("first byte", data.first_byte_ms), line("added by the gateway", data.overhead_ms)];
  }

  function expertRow(expert) {
    let kind = "";
    let word = "unknown";
    if (expert.asked_last > 0) {
      kind = "bad";
      word = "asked last";
      if (expert.workers > 1) word += ` in ${expert.asked_last} of ${expert.workers} workers`;
    } else if (expert.workers > 0) {
      kind = "good";
      word = "reachable";
    }
    const flight = expert.in_flight === null ? "–" : count(expert.in_flight) + (expert.max_in_flight === null ? "" : ` of ${count(expert.max_in_flight)}`);
    const last = expert.last_failure;
    const attempts = [count(expert.failed_attempts), last ? make("small", {}, `last: ${last.kind}, ${clock(last.time)}`) : null];
    return make("tr", {}, make("th", { scope: "row" }, expert.name),
      make("td", {}, make("span", { class: "pill " + kind }, word)),
      ...Object.entries({ "in flight": flight, "requests, 1 h": count(expert.requests), failed: count(expert.failures), "failed attempts": attempts, "fell back": count(expert.fell_back),
        "median": milliseconds(expert.p50), "95 % within": milliseconds(expert.p95), "spent, 1 h": dollars(expert.dollars) })
        .map(([name, cell]) => make("td", { "data-name": name }, ...[cell].flat())));
  }

  // A cascade is not an expert: what is said of endpoints is left out.
  function cascadeRow(data) {
    const cells = { "in flight": "–", "requests, 1 h": count(data.requests), failed: count(data.failures), "failed attempts": "–", "fell back": "–",
      "median": milliseconds(data.p50), "95 % within": milliseconds(data.p95), "spent, 1 h": dollars(data.dollars) };
    return make("tr", {}, make("th", { scope: "row" }, "cascade", make("small", {}, "its experts' calls together")),
      make("td", {}, make("span", { class: "pill" }, data.escalated === null ? "no calls" : `${percent(data.escalated, 0)} escalated`)),
      ...Object.entries(cells).map(([name, cell]) => make("td", { "data-name": name }, cell)));
  }

  function decision(entry) {
    const kind = { ok: "good", cut: "bad", failed: "bad", refused: "warn" }[entry.outcome] || "";
    const why = [];
    if (!entry.expert && entry.outcome === "failed") why.push(`chosen: ${entry.chosen || entry.asked}`);
    if (entry.path) why.push(entry.path);
    else if (entry.chosen && entry.expert && entry.chosen !== entry.expert) why.push(`instead of ${entry.chosen}`);
    if (entry.pinned) why.push("pinned");
    if (entry.propensity !== null && entry.propensity < 0.5 && !entry.pinned) why.push("explored");
    if (!entry.chosen && entry.expert) why.push("named");
    if (entry.streamed) why.push("stream");
    return make("li", {},
      make("span", { class: "when" }, clock(entry.time)),
      make("span", { class: "who-asked" }, entry.key, " ", make("small", {}, "asked for " + entry.asked)),
      make("span", { class: "expert" }, entry.expert || "no expert", " ", make("small", {}, why.join(", "))),
      make("span", { class: "num price" }, dollars(entry.price)),
      make("span", { class: "num took" }, milliseconds(entry.latency_ms)),
      make("span", { class: "state" }, make("span", { class: "pill " + kind }, entry.outcome === "ok" ? "ok" : `${entry.outcome} ${entry.status}`)),
      entry.text ? make("span", { class: "query" }, entry.text) : null);
  }

  function show(status) {
    fill("tiles", [status.traffic, status.latency, status.spend], () => tiles(status));
    const outside = status.shares.experts.filter(e => e.outside).length;
    byId("shares-sentence").textContent = outside ? `${outside} of ${status.shares.experts.length} shares of the last ${count(status.shares.window)} decisions are outside their bands.`
      : status.shares.sentence;
    byId("shares-legend").hidden = status.shares.experts.every(e => e.usual === undefined);
    byId("usual-word").textContent = status.shares.reference === "earlier" ? "earlier share" : "trained share";
    fill("shares", status.shares, () => shares(status.shares));
    byId("rule").textContent = rule(status.shares);
    byId("feedback-card").hidden = !Object.keys(status.feedback).length;
    fill("feedback", status.feedback, () => feedbackRows(status.feedback));
    fill("spend", status.spend, () => spendRows(status.spend));
    fill("traffic", status.traffic, () => traffic(status.traffic));
    fill("latency", status.latency, () => latencyRows(status.latency));
    const cascade = status.cascade;
    byId("cascade-card").hidden = !cascade;
    if (cascade) {
      byId("cascade-sentence").textContent = cascadeSentence(cascade);
      fill("cascade", cascade, () => cascadeRows(cascade));
    }
    fill("experts", [status.experts, cascade], () => [...status.experts.map(expertRow), ...(cascade ? [cascadeRow(cascade)] : [])]);
    fill("last", status.last, () => status.last.length ? status.last.map(decision)
      : [make("li", { class: "empty" }, status.ledger ? "No decisions yet." : "No ledger is configured: decisions, shares and latencies are not kept.")]);
    const routers = [...new Set(status.workers.map(worker => worker.router).filter(Boolean))];
    byId("workers").textContent = (status.workers.length ? plural(status.workers.length, "worker") : "No worker has reported") +
      (routers.length ? `, router ${routers.map(name => name.slice(0, 12)).join(" and ")}` : "") + ".";
  }

  function pulse() {
    const node = byId("pulse");
    node.className = "pulse " + (goneSince !== null ? "gone" : seen ? "live" : "waiting");
    node.textContent = asksForKey ? "A key is needed" : goneSince !== null ? "no answer" : seen ? `live, ${clock(seen.time)}` : "Connecting …";
    document.documentElement.classList.toggle("stale", goneSince !== null);
    fill("notices", [goneSince, seen && seen.shares, seen && seen.troubles], () => notices(seen));
  }

  async function ask() {
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), PATIENCE);
    try {
      const headers = key === null ? {} : { Authorization: `Bearer ${key}` };
      const answer = await fetch("status.json", { cache: "no-store", signal: stop.signal, headers });
      if (answer.status === 401 || answer.status === 403) {
        askForKey(answer.status);
        return;
      }
      if (!answer.ok) throw new Error(String(answer.status));
      seen = await answer.json();
      goneSince = null;
      show(seen);
    } catch (error) {
      if (!(error instanceof TypeError || error instanceof SyntaxError || error.name === "AbortError" || /^\d+$/.test(error.message))) console.error(error);
      goneSince = goneSince ?? Date.now();
    } finally {
      clearTimeout(timer);
    }
    pulse();
    setTimeout(next, PACE);
  }

  // The figures are hidden until a key may see them; nothing is asked meanwhile.
  function askForKey(status) {
    const wasRefused = key !== null;
    key = null;
    seen = goneSince = null;
    asksForKey = true;
    byId("main").hidden = true;
    byId("key-card").hidden = false;
    byId("raw").hidden = true;
    byId("key-problem").textContent = !wasRefused ? "" : status === 401 ? "The gateway does not know this key." : "This is not an admin key.";
    byId("key").value = "";
    byId("key").focus();
    pulse();
  }
  byId("key-form").addEventListener("submit", event => {
    event.preventDefault();
    key = byId("key").value.trim();
    if (!key) return;
    asksForKey = false;
    byId("key-card").hidden = true;
    byId("main").hidden = false;
    ask();
  });
  // A tab that nobody sees asks nothing.
  const next = () => document.hidden ? document.addEventListener("visibilitychange", next, { once: true }) : ask();

  const theme = byId("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
  const current = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { theme.textContent = current() === "dark" ? "Light" : "Dark"; theme.setAttribute("aria-label", `Change to ${theme.textContent.toLowerCase()} colours`); };
  theme.addEventListener("click", () => { document.documentElement.dataset.theme = current() === "dark" ? "light" : "dark"; label(); });
  dark.addEventListener("change", label);
  label();
  ask();
})();
