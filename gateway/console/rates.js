// Leases and writes of the range of time, by default of the last hour: granted and applied above the axis,
// refused and failed below it, with marks for failovers, changes of the guard and revocations.

import {urlFor, fetchJson} from './api.js';
import {byId, cell, el, PanelState, row, setText, svg, table} from './dom.js';
import * as url from './url.js';
import {readRange} from './range.js';
import {absoluteTime, count, dateTime, details, eventBadge, eventLabel, linkToResource, now, shortDate,
  shortTime} from './words.js';

const HOUR = 3_600_000;
const MINUTE = 60_000;
const DAY = 24 * HOUR;
/** Lengths of a bar; the shortest is taken that gives at most BARS_MAX bars. */
const BUCKETS = [MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, DAY, 7 * DAY, 30 * DAY, 366 * DAY];
const BARS_MAX = 100;
const MARKED = 'storage_generation_changed,guard_changed,lease_revoked';
const MARKS_MAX = 200;
const MARKS_LISTED = 10;

/** Returns the length of a bar and where the first begins: at a whole minute, hour or day of the viewer. */
function makeAxis({from, to}) {
  const end = to ?? now();
  const begin = Math.min(from ?? end - HOUR, end - 1);
  const bucket = BUCKETS.find(length => (end - begin) / length <= BARS_MAX) ?? BUCKETS.at(-1);
  const offset = -new Date(begin).getTimezoneOffset() * MINUTE;
  // Without a range the hour ends with the minute that has begun: sixty bars.
  const earliest = from === undefined ? begin + bucket : begin;
  const first = Math.floor((earliest + offset) / bucket) * bucket - offset;
  return {bucket, offset, first};
}

/** A time with the offset that decides where the API's buckets begin: 2026-11-21T00:00:00.000+01:00 */
function withOffset(at, offset) {
  const minutes = Math.abs(offset) / MINUTE;
  const two = number => String(Math.floor(number)).padStart(2, '0');
  const zone = `${offset < 0 ? '-' : '+'}${two(minutes / 60)}:${two(minutes % 60)}`;
  return new Date(at + offset).toISOString().replace('Z', zone);
}
const CHARTS = [
  {name: 'Leases', up: ['lease_granted'], down: ['lease_refused'], upLabel: 'granted', downLabel: 'refused'},
  {name: 'Writes', up: ['write_applied'], down: ['write_rejected', 'write_failed'], upLabel: 'applied',
    downLabel: 'refused or failed'},
];
const sum = (counts, events) => events.reduce((total, event) => total + (counts[event] ?? 0), 0);

const isGuardChange = item => item.event === 'guard_changed';

/** Lists of marks, newest first: changes of the guard that follow each other within a minute are one list. */
export function groupGuardChanges(marks) {
  const groups = [];
  for (const item of marks) {
    const last = groups.at(-1)?.at(-1);
    if (last && isGuardChange(item) && isGuardChange(last) && Date.parse(last.at) - Date.parse(item.at) < MINUTE)
      groups.at(-1).push(item);
    else groups.push([item]);
  }
  return groups;
}

/** What a guard change did to what: "protect public.inventory" */
const describeGuardChange = ({detail}) =>
  [detail?.action, detail?.relation ?? detail?.function ?? detail?.name].filter(Boolean).join(' ');

function describeMarks(group) {
  const [newest] = group;
  if (!isGuardChange(newest)) return newest.resource ? linkToResource(newest.resource) : details(newest.detail);
  if (group.length === 1) return describeGuardChange(newest);
  const to = new Date(Date.parse(newest.at) + 1).toISOString();
  return [describeGuardChange(newest), ' and ', el('a', {href: `/console?${new URLSearchParams({event: newest.event,
    from: group.at(-1).at, to})}#history`}, `${count(group.length - 1)} before`)];
}

export class Rates {
  /** Calls `onTotals(totals)` after each change. */
  constructor({onTotals}) {
    this.onTotals = onTotals;
    this.state = new PanelState(byId('rates'));
    this.buckets = new Map(); // start of the bar → counts by event type
    this.marks = [];
    this.marksList = el('div');
    this.countedUntil = 0; // the end of the newest summary, which has the earlier events
    this.arrived = undefined; // events that arrive while a summary is requested
    this.charts = el('div', {class: 'charts'});
    this.rows = el('div');
    this.state.body.append(this.charts, this.marksList,
      el('details', {}, el('summary', {}, 'The same as a table'), this.rows));
    this.state.body.hidden = true;
  }

  async refresh() {
    this.request?.abort(); // its answer would be older
    const {signal} = this.request = new AbortController();
    this.arrived = [];
    const range = readRange();
    const axis = makeAxis(range);
    const from = withOffset(axis.first, axis.offset);
    try {
      const summary = await fetchJson(urlFor('/v1/history/summary',
        {from, to: range.query.to, bucket_ms: axis.bucket}), {signal});
      const marks = await fetchJson(urlFor('/v1/history',
        {event: MARKED, from, to: range.query.to, limit: MARKS_MAX}), {signal});
      Object.assign(this, {axis, range, marks: marks.items, moreMarks: marks.next_cursor !== null});
      this.buckets = new Map(summary.buckets.map(bucket => [Date.parse(bucket.at), bucket.counts]));
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
  poll() { return this.state.mayPoll && readRange().endsNow ? this.refresh() : undefined; }

  /** Counts an event that the summary lacks. A stream that resumes also has events from before the summary. */
  #count(item) {
    const at = Date.parse(item.at);
    if (!this.axis || at < this.countedUntil || !this.range.endsNow) return;
    const {bucket, offset} = this.axis;
    const start = Math.floor((at + offset) / bucket) * bucket - offset;
    const counts = this.buckets.get(start) ?? {};
    counts[item.event] = (counts[item.event] ?? 0) + 1;
    this.buckets.set(start, counts);
    if (MARKED.split(',').includes(item.event) && !this.marks.some(({id}) => id === item.id)) this.marks.unshift(item);
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
    const {bucket, first} = this.range.endsNow ? makeAxis(readRange()) : this.axis;
    const end = this.range.to ?? now();
    const bars = Array.from({length: Math.max(1, Math.ceil((end - first) / bucket))}, (_, index) => {
      const at = first + index * bucket;
      return {at, counts: this.buckets.get(at) ?? {}};
    });
    const totals = {};
    for (const {counts} of bars) {
      for (const [event, number] of Object.entries(counts)) totals[event] = (totals[event] ?? 0) + number;
    }
    this.charts.replaceChildren(...CHARTS.map(chart => this.#chart(chart, bars, totals)));
    this.#table(bars);
    this.#listMarks();
    const {from = '-1h', to = ''} = url.read(['from', 'to']);
    this.onTotals(totals, {words: this.#words(), from: from || '-1h', to});
  }

  #words() { return this.range.words || 'last hour'; }

  #listMarks() {
    setText(byId('rates-title'), this.#words().replace(/^./, letter => letter.toUpperCase()));
    const groups = groupGuardChanges(this.marks);
    const shown = groups.slice(0, MARKS_LISTED);
    const rest = this.marks.length - shown.flat().length;
    this.marksList.replaceChildren(shown.length ? el('ul', {class: 'marks small', 'aria-label': 'Marks in the charts'},
      shown.map(group => el('li', {}, absoluteTime(group[0].at), ' ', eventBadge(group[0]), ' ',
        describeMarks(group))),
      rest ? el('li', {class: 'muted'}, `and ${count(rest)}${this.moreMarks ? '+' : ''} more`) : '') : '');
  }

  #label(at) {
    const {bucket} = this.axis;
    return bucket >= DAY ? shortDate(at) : (bucket > MINUTE ? `${shortDate(at)} ` : '') + shortTime(at).slice(0, 5);
  }

  #chart(chart, bars, totals) {
    const up = sum(totals, chart.up);
    const down = sum(totals, chart.down);
    const peak = Math.max(...bars.map(bar => Math.max(sum(bar.counts, chart.up), sum(bar.counts, chart.down))));
    const [width, height, middle] = [360, 72, 44];
    const step = width / bars.length;
    const drawing =
      svg('svg', {viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: 'none', class: 'bars', role: 'img',
      'aria-label': `${chart.name}, ${this.#words()}: ${count(up)} ${chart.upLabel}, `
        + `${count(down)} ${chart.downLabel}; `
        + `at most ${count(peak)} in ${this.#bucketWords()}.`});
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
    for (const item of this.marks) {
      const x = ((Date.parse(item.at) - bars[0].at) / this.axis.bucket * step).toFixed(2);
      drawing.append(svg('line', {class: 'mark', x1: x, x2: x, y1: 0, y2: height},
        svg('title', {}, `${dateTime(Date.parse(item.at))} ${eventLabel(item)} ${item.resource ?? ''}`)));
    }
    drawing.append(svg('line', {class: 'axis', x1: 0, x2: width, y1: middle + 0.5, y2: middle + 0.5}));
    return el('figure', {class: 'chart'},
      el('figcaption', {}, el('strong', {}, chart.name), el('span', {class: 'tabular'},
        el('span', {class: 'key up'}, `${count(up)} ${chart.upLabel}`), ' ',
        el('span', {class: 'key down'}, `${count(down)} ${chart.downLabel}`))),
      drawing,
      el('div', {class: 'chart-foot muted small tabular', 'aria-hidden': 'true'},
        el('span', {}, this.#label(bars[0].at)),
        el('span', {}, `most in ${this.#bucketWords()}: ${count(peak)}`),
        el('span', {}, this.range.endsNow ? 'now' : this.#label(this.range.to))));
  }

  #bucketWords() {
    const {bucket} = this.axis;
    const [unit, length] = bucket >= DAY ? ['day', DAY] : bucket >= HOUR ? ['hour', HOUR] : ['minute', MINUTE];
    return bucket === length ? `${unit === 'hour' ? 'an' : 'a'} ${unit}` : `${bucket / length} ${unit}s`;
  }

  #table(bars) {
    const columns = [{label: this.axis.bucket === MINUTE ? 'Minute' : 'Begin'},
      ...CHARTS.flatMap(chart => [{label: `${chart.name} ${chart.upLabel}`,
        numeric: true}, {label: `${chart.name} ${chart.downLabel}`, numeric: true}])];
    const {element, body} = table('Grants and refusals', columns);
    for (const bar of bars.filter(({counts}) => Object.keys(counts).length > 0).reverse()) {
      const line = row({});
      line.append(cell(columns[0], this.#label(bar.at)));
      CHARTS.flatMap(chart => [chart.up, chart.down])
        .forEach((events, index) => line.append(cell(columns[index + 1], count(sum(bar.counts, events)))));
      body.append(line);
    }
    this.rows.replaceChildren(body.children.length ? element
      : el('p', {class: 'muted'}, `No events, ${this.#words()}.`));
  }
}
