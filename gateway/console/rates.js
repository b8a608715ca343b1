// Leases and writes of the last hour, per minute: granted and applied above the axis, refused and failed below it.

import {urlFor, fetchJson} from './api.js';
import {byId, el, PanelState, svg, table, row, cell} from './dom.js';
import {count, now, shortTime} from './words.js';

const HOUR = 3_600_000;
const MINUTE = 60_000;
const CHARTS = [
  {name: 'Leases', up: ['lease_granted'], down: ['lease_refused'], upLabel: 'granted', downLabel: 'refused'},
  {name: 'Writes', up: ['write_applied'], down: ['write_rejected', 'write_failed'], upLabel: 'applied',
    downLabel: 'refused or failed'},
];
const sum = (counts, events) => events.reduce((total, event) => total + (counts[event] ?? 0), 0);

export class Rates {
  /** Calls `onTotals(totals)` after each change. */
  constructor({onTotals}) {
    this.onTotals = onTotals;
    this.state = new PanelState(byId('rates'));
    this.minutes = new Map(); // start of the minute → counts by event type
    this.countedUntil = 0; // the end of the newest summary, which has the earlier events
    this.arrived = undefined; // events that arrive while a summary is requested
    this.charts = el('div', {class: 'charts'});
    this.rows = el('div');
    this.state.body.append(this.charts, el('details', {}, el('summary', {}, 'The same as a table'), this.rows));
    this.state.body.hidden = true;
  }

  async refresh() {
    this.request?.abort(); // its answer would be older
    const {signal} = this.request = new AbortController();
    this.arrived = [];
    const to = now();
    const from = Math.floor((to - HOUR) / MINUTE) * MINUTE + MINUTE;
    try {
      const summary = await fetchJson(urlFor('/v1/history/summary',
        {from: new Date(from).toISOString(), bucket_ms: MINUTE}), {signal});
      this.minutes = new Map(summary.buckets.map(bucket => [Date.parse(bucket.at), bucket.counts]));
      this.countedUntil = Date.parse(summary.to);
      for (const item of this.arrived) this.#count(item);
      this.arrived = undefined;
      this.state.body.hidden = false;
      this.state.showReady();
      this.#show();
    } catch (problem) {
      if (problem.name === 'AbortError') return;
      this.arrived = undefined;
      if (problem.status !== 401) this.state.showProblem(problem, () => this.refresh());
    }
  }

  /** As refresh(), for periodic calls. */
  poll() { return this.state.mayPoll ? this.refresh() : undefined; }

  /** Counts an event that the summary lacks. A stream that resumes also has events from before the summary. */
  #count(item) {
    const at = Date.parse(item.at);
    if (at < this.countedUntil) return;
    const minute = Math.floor(at / MINUTE) * MINUTE;
    const counts = this.minutes.get(minute) ?? {};
    counts[item.event] = (counts[item.event] ?? 0) + 1;
    this.minutes.set(minute, counts);
  }

  /** Counts a new event until the next refresh. */
  add(item) {
    this.arrived?.push(item);
    this.#count(item);
    this.pending ??= setTimeout(() => {
      this.pending = undefined;
      if (this.state.loaded) this.#show();
    }, 1000);
  }

  #show() {
    const last = Math.floor(now() / MINUTE) * MINUTE;
    const bars = Array.from({length: 60}, (_, index) => {
      const at = last - (59 - index) * MINUTE;
      return {at, counts: this.minutes.get(at) ?? {}};
    });
    const totals = {};
    for (const {counts} of bars) {
      for (const [event, number] of Object.entries(counts)) totals[event] = (totals[event] ?? 0) + number;
    }
    this.charts.replaceChildren(...CHARTS.map(chart => this.#chart(chart, bars, totals)));
    this.#table(bars);
    this.onTotals(totals);
  }

  #chart(chart, bars, totals) {
    const up = sum(totals, chart.up);
    const down = sum(totals, chart.down);
    const peak = Math.max(...bars.map(bar => Math.max(sum(bar.counts, chart.up), sum(bar.counts, chart.down))));
    const [width, height, middle] = [360, 72, 44];
    const step = width / bars.length;
    const drawing =
      svg('svg', {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', class: 'bars', role: 'img',
      'aria-label': `${chart.name} in the last hour: ${count(up)} ${chart.upLabel}, ${count(down)} ${chart.downLabel}; `
        + `at most ${count(peak)} in a minute.`});
    bars.forEach((bar, index) => {
      const upHeight = sum(bar.counts, chart.up) / (peak || 1) * (middle - 2);
      const downHeight = sum(bar.counts, chart.down) / (peak || 1) * (height - middle - 2);
      const x = (index * step + 0.75).toFixed(2);
      const barWidth = (step - 1.5).toFixed(2);
      if (upHeight) drawing.append(svg('rect', {class: 'up', x, width: barWidth,
            y: (middle - Math.max(1, upHeight)).toFixed(2), height: Math.max(1, upHeight).toFixed(2)}));
      if (downHeight) drawing.append(
          svg('rect', {class: 'down', x, width: barWidth, y: middle + 1, height: Math.max(1, downHeight).toFixed(2)}));
    });
    drawing.append(svg('line', {class: 'axis', x1: 0, x2: width, y1: middle + 0.5, y2: middle + 0.5}));
    return el('figure', {class: 'chart'},
      el('figcaption', {}, el('strong', {}, chart.name), el('span', {class: 'tabular'},
        el('span', {class: 'key up'}, `${count(up)} ${chart.upLabel}`), ' ',
        el('span', {class: 'key down'}, `${count(down)} ${chart.downLabel}`))),
      drawing,
      el('div', {class: 'chart-foot muted small tabular', 'aria-hidden': 'true'},
        el('span', {}, shortTime(bars[0].at).slice(0, 5)),
        el('span', {}, `most per minute: ${count(peak)}`), el('span', {}, 'now')));
  }

  #table(bars) {
    const columns = [{label: 'Minute'}, ...CHARTS.flatMap(chart => [{label: `${chart.name} ${chart.upLabel}`,
        numeric: true}, {label: `${chart.name} ${chart.downLabel}`, numeric: true}])];
    const {element, body} = table('Grants and refusals per minute', columns);
    for (const bar of bars.filter(({counts}) => Object.keys(counts).length > 0).reverse()) {
      const line = row({});
      line.append(cell(columns[0], shortTime(bar.at).slice(0, 5)));
      CHARTS.flatMap(chart => [chart.up, chart.down])
        .forEach((events, index) => line.append(cell(columns[index + 1], count(sum(bar.counts, events)))));
      body.append(line);
    }
    this.rows.replaceChildren(body.children.length ? element
      : el('p', {class: 'muted'}, 'No events in the last hour.'));
  }
}
