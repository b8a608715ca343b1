// The timeline of one resource: leases as bars, events as marks. A stale write is a cross after the end of its lease,
// with a line to the newer lease whose token refused it.

import {urlFor, fetchJson} from './api.js';
import {byId, cell, el, optionalCell, PanelState, row, setText, svg, table} from './dom.js';
import {buildLanes, findActivePeriods, makeTicks, makeTimeScale, mergeEvents} from './timeline_model.js';
import {absolute, clockTime, count, dateTime, details, duration, eventBadge, eventLabel, EVENTS, holder, isStale,
  isToday, linkToResource, now, shortDate, shortTime} from './words.js';
import {readRange} from './range.js';
import * as url from './url.js';

const EVENTS_MAX = 300;
const REFUSALS_MAX = 100; // refused writes that are loaded beyond those events
const LANES = 12;
const STALE_MAX = 6; // the latest stale writes, whose lanes are shown although newer leases exist
const BREAK_WIDTH = 46; // of a gap in time that is left out
const WIDE_MIN = 640; // from this width on, the names of the lanes are beside them
const COLUMNS = [{label: 'Time'}, {label: 'Event'}, {label: 'Token', numeric: true}, {label: 'Fence', numeric: true},
  {label: 'Holder'}, {label: 'Detail'}];

export class Timeline {
  /** `liveLeases(resource)` returns its leases as the list of live leases shows them. */
  constructor({liveLeases}) {
    this.liveLeases = liveLeases;
    this.state = new PanelState(byId('timeline'));
    this.input = byId('timeline-resource');
    this.events = [];
    this.allLanes = false;
    byId('timeline-form').addEventListener('submit', event => {
      event.preventDefault();
      this.open(this.input.value.trim());
    });

    this.summary = el('p', {class: 'summary'});
    this.older = el('button', {type: 'button', class: 'quiet', onclick: () => { this.allLanes = true; this.#draw(); }});
    this.chart = el('div', {class: 'timeline-chart', tabindex: '0', role: 'group', 'aria-roledescription': 'timeline',
      'aria-label': 'Events of the resource', 'aria-describedby': 'timeline-hint'});
    // Not click: the chart may be redrawn between pressing and releasing the button.
    this.chart.addEventListener('pointerdown', event => {
      const mark = event.target.closest('[data-event]');
      if (mark) this.#select(Number(mark.dataset.event));
    });
    this.chart.addEventListener('keydown', event => this.#handleKey(event));
    this.inspector = el('p', {class: 'inspector', 'aria-live': 'polite'});
    this.rows = el('div');
    this.state.body.append(this.summary, this.older, this.chart, legend(),
      el('p', {id: 'timeline-hint', class: 'muted small'},
        'Select a mark, or step through the events with the arrow keys.'), this.inspector,
      el('details', {}, el('summary', {}, 'The same events as a table'), this.rows));
    this.state.body.hidden = true;
    new ResizeObserver(() => { if (this.resource && this.chart.clientWidth !== this.width) this.#draw(); })
      .observe(this.chart);
    this.#showNoResource();
  }

  readUrl() {
    this.#setResource(url.read(['timeline']).timeline ?? '');
  }

  /** Shows a resource and puts its name into the URL. */
  open(resource, {focus = false} = {}) {
    this.#setResource(resource);
    url.write({timeline: resource});
    if (focus) byId('timeline-title').focus();
    return this.refresh();
  }

  /** Hides what is shown if it belongs to another resource. */
  #setResource(resource) {
    this.input.value = resource;
    if (resource === this.resource) return;
    Object.assign(this, {resource, selected: undefined, allLanes: false, events: []});
    this.state.body.hidden = true;
    this.state.showLoading();
  }

  #showNoResource() {
    this.state.body.hidden = true;
    this.state.showEmpty('Choose a resource from the live leases or the history, or enter its name here.');
  }

  /** As refresh(), for periodic calls. */
  poll() { return this.state.mayPoll && readRange().endsNow ? this.refresh() : undefined; }

  async refresh() {
    this.request?.abort(); // its answer would be older, or of another resource
    const {signal} = this.request = new AbortController();
    const {resource} = this;
    if (!resource) return this.#showNoResource();
    const {query, words} = readRange();
    try {
      const page = await fetchJson(urlFor('/v1/history', {resource, ...query, limit: EVENTS_MAX}), {signal});
      this.truncated = page.next_cursor !== null;
      const refused = this.truncated ? await this.#loadRefused(resource, query, signal) : [];
      this.events = mergeEvents([page.items, ...refused]);
      if (!this.events.length && !(readRange().endsNow && this.liveLeases(resource).length)) {
        this.state.body.hidden = true;
        return this.state.showEmpty(`The history has no events of ${resource}${words ? ' in this time' : ''}.`);
      }
      this.state.body.hidden = false;
      this.state.showReady();
      this.#draw();
      this.#table();
    } catch (problem) {
      if (problem.name !== 'AbortError' && problem.status !== 401)
        this.state.showProblem(problem, () => this.refresh());
    }
  }

  /**
   * Loads older events that must be visible: refused writes, and all events of the tokens of the latest stale writes
   * and of the fences that refused them.
   * Returns them as lists; those of the tokens are first, because they are complete.
   */
  async #loadRefused(resource, query, signal) {
    const load = async filters => (await fetchJson(urlFor('/v1/history', {resource, ...filters}), {signal})).items;
    const refused = await load({...query, event: 'write_rejected', limit: REFUSALS_MAX});
    this.moreRefused = refused.length === REFUSALS_MAX;
    if (this.loaded?.resource !== resource) this.loaded = {resource, eventsByToken: new Map()};
    const {eventsByToken} = this.loaded;
    const lists = [];
    for (const token of refused.filter(isStale).slice(0, STALE_MAX)
        .flatMap(item => [item.last_fencing_token, item.fencing_token])) {
      if (!eventsByToken.has(token))
        eventsByToken.set(token, await load({token_min: token, token_max: token, limit: EVENTS_MAX}));
      lists.push(eventsByToken.get(token).filter(item => item.at >= query.from && !(query.to && item.at >= query.to)));
    }
    return [...lists, refused];
  }

  /** Redraws while a live lease makes a bar grow. */
  tick() {
    if (this.model?.lanes.some(lane => lane.ending === 'live')) this.#draw();
  }

  #draw() {
    if (this.state.body.hidden) return;
    const {to} = readRange();
    const at = Math.min(to ?? Infinity, now());
    const live = at === to ? [] : this.liveLeases(this.resource);
    const model = this.model = buildLanes(this.events, {live, now: at});
    const stale = model.marks.filter(mark => mark.stale).slice(-STALE_MAX).flatMap(mark => [mark.lane, mark.refusedBy]);
    const visible = new Set([...model.lanes.slice(-LANES), ...stale]);
    const lanes = this.allLanes ? model.lanes : model.lanes.filter(lane => visible.has(lane));
    const hidden = model.lanes.length - lanes.length;
    this.older.hidden = hidden === 0;
    setText(this.older, `Show ${hidden} older ${hidden === 1 ? 'lease' : 'leases'}`);
    this.summary.replaceChildren(`${this.#describe(model)} `,
      url.read(['page']).page === 'resource' ? '' : linkToResource(this.resource));
    this.summary.classList.toggle('bad', model.marks.some(mark => mark.stale));
    this.#render(model, lanes, at);
    this.#inspect();
  }

  #describe({lanes, marks}) {
    const countOf = event => marks.filter(({item}) => item.event === event).length;
    const stale = marks.filter(mark => mark.stale).length;
    const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;
    const parts = [plural(lanes.filter(lane => lane.start !== undefined).length, 'lease'),
      plural(countOf('write_applied'), 'write')];
    if (stale)
      parts.push(`${this.truncated && this.moreRefused ? 'at least ' : ''}${plural(stale, 'stale write')} refused`);
    if (countOf('write_rejected') > stale)
      parts.push(`${plural(countOf('write_rejected') - stale, 'other write')} refused`);
    if (countOf('lease_refused')) parts.push(`${plural(countOf('lease_refused'), 'lease request')} refused`);
    const older = `; of older events than the latest ${EVENTS_MAX}, only refused writes and their leases`;
    return `${parts.join(', ')}${this.truncated ? older : ''}.`;
  }

  #render(model, lanes, at) {
    const width = this.width = Math.max(280, this.chart.clientWidth);
    const beside = width >= WIDE_MIN;
    const gutter = beside ? 220 : 8;
    const right = width - 14;
    const laneHeight = beside ? 34 : 52;
    const top = 26;
    const height = top + lanes.length * laneHeight + 6;
    const {from: start} = readRange();
    const {x, segments} = makeTimeScale(start < at ? [[start, at]] : findActivePeriods(lanes, at), gutter,
      right, beside ? BREAK_WIDTH : BREAK_WIDTH / 2);
    const {from} = segments[0];
    const yOf = lane => top + lanes.indexOf(lane) * laneHeight + (beside ? laneHeight / 2 : laneHeight - 16);

    const drawing = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img',
      'aria-label': `Timeline of ${this.resource}: ${this.#describe(model)}`});
    drawing.append(...drawAxis(segments, {x, top, height}));
    for (const lane of lanes) drawing.append(drawLane(lane, {x, y: yOf(lane), beside, gutter, at, right}));
    segments.slice(1).forEach((segment, index) =>
      drawing.append(drawBreak(segments[index], segment, {top, height, beside, rows: lanes.map(yOf)})));
    this.marks = model.marks.filter(mark => lanes.includes(mark.lane) && mark.at >= from);
    const selected = this.marks.find(mark => mark.item.id === this.selected);
    if (selected)
      drawing.append(svg('line', {class: 'cursor', x1: x(selected.at), x2: x(selected.at), y1: top - 6, y2: height}));
    const [stale, others] = [this.marks.filter(mark => mark.stale), this.marks.filter(mark => !mark.stale)];
    for (const mark of stale) {
      if (lanes.includes(mark.refusedBy)) drawing.append(svg('line',
          {class: 'refused-by', x1: x(mark.at), x2: x(mark.at), y1: yOf(mark.lane), y2: yOf(mark.refusedBy)}));
      if (mark.lane.end < mark.at)
        drawing.append(
          svg('line', {class: 'late', x1: x(mark.lane.end), x2: x(mark.at), y1: yOf(mark.lane), y2: yOf(mark.lane)}));
    }
    for (const mark of [...others, ...stale]) {
      // The ends of the bar.
      if (['lease_granted', 'lease_released', 'lease_expired'].includes(mark.item.event)) continue;
      drawing.append(drawMark(mark, x(mark.at), yOf(mark.lane), mark.item.id === this.selected));
    }
    this.chart.replaceChildren(drawing);
  }

  #handleKey(event) {
    const {marks} = this;
    if (!marks?.length || event.altKey || event.ctrlKey || event.metaKey) return;
    const current = marks.findIndex(mark => mark.item.id === this.selected);
    const next = {ArrowRight: current + 1, ArrowDown: current + 1,
      ArrowLeft: current < 0 ? marks.length - 1 : current - 1, ArrowUp: current < 0 ? marks.length - 1 : current - 1,
      Home: 0, End: marks.length - 1}[event.key];
    if (event.key === 'Escape') this.#select(undefined);
    else if (next === undefined) return;
    else this.#select(marks[Math.min(Math.max(next, 0), marks.length - 1)].item.id);
    event.preventDefault();
  }

  #select(id) {
    this.selected = id;
    this.#draw();
  }

  #inspect() {
    const mark = this.marks?.find(candidate => candidate.item.id === this.selected);
    const id = mark ? String(mark.item.id) : '';
    if (this.inspector.dataset.event === id) return;
    this.inspector.dataset.event = id;
    if (!mark) return this.inspector.replaceChildren();
    const {item} = mark;
    const facts = [dateTime(mark.at), item.fencing_token !== null ? `token ${item.fencing_token}` : 'no token',
      item.last_fencing_token !== null ? `fence ${item.last_fencing_token}` : '', holder(item), details(item.detail)];
    this.inspector.replaceChildren(eventBadge(item), ` ${facts.filter(Boolean).join(' · ')}`);
  }

  #table() {
    const {element, body} = table(`Events of ${this.resource}, newest first`, COLUMNS);
    for (const item of this.events.toReversed()) {
      const line = row({class: item.event === 'write_rejected' ? 'bad' : null});
      const at = Date.parse(item.at);
      line.append(
        cell(COLUMNS[0], el('time', {datetime: item.at, title: absolute(at), class: 'tabular'}, dateTime(at))),
        cell(COLUMNS[1], eventBadge(item)),
        optionalCell(COLUMNS[2], item.fencing_token), optionalCell(COLUMNS[3], item.last_fencing_token),
        optionalCell(COLUMNS[4], holder(item)), optionalCell(COLUMNS[5], details(item.detail)));
      body.append(line);
    }
    this.rows.replaceChildren(element);
  }
}

/** Draws the lines and labels of the ticks. Unless all is of today, the first label of each day has the date. */
function drawAxis(segments, {x, top, height}) {
  const dated = segments.some(({from, to}) => !isToday(from) || !isToday(to));
  const [spacing, margin] = dated ? [130, 50] : [110, 30]; // in pixels, for the widest label
  let date = '';
  const label = (at, time, position, anchor) => {
    const previous = date;
    if (dated) date = shortDate(at);
    return svg('text', {class: 'tick', x: position, y: 12, 'text-anchor': anchor},
      [date !== previous && date, time].filter(Boolean).join(' '));
  };
  const axes = segments.map(segment => ({...segment,
      ...makeTicks(segment.from, segment.to, Math.max(1, Math.floor((segment.end - segment.begin) / spacing)))}));
  const fits = ({begin, end}, at) => x(at) > begin + margin && x(at) < end - margin;
  const lines = axes.flatMap(({times}) =>
    times.map(at => svg('line', {class: 'grid', x1: x(at), x2: x(at), y1: top - 6, y2: height})));
  // Without space for a tick, the first and the last moment are labelled.
  if (!axes.some(axis => axis.times.some(at => fits(axis, at)))) {
    const [first, last] = [segments[0], segments.at(-1)];
    return [...lines, label(first.from, shortTime(first.from), first.begin, 'start'),
      label(last.to, shortTime(last.to), last.end, 'end')];
  }
  const labels = axes.flatMap(axis => {
    const shown = axis.times.filter(at => fits(axis, at));
    const middle = (axis.from + axis.to) / 2;
    if (!shown.length && dated && shortDate(middle) !== date) return [label(middle, '', x(middle), 'middle')];
    return shown.map(at => label(at, axis.step < 1000 ? clockTime(at) : shortTime(at), x(at), 'middle'));
  });
  return [...lines, ...labels];
}

/**
 * Draws a gap in time that is left out: covers the bars at the height of each of `rows`, but not the names above them.
 */
function drawBreak(previous, next, {top, height, beside, rows}) {
  const [left, right] = [previous.end + 3, next.begin - 3];
  const words = duration(next.from - previous.to);
  return svg('g', {class: 'break'}, rows.map(y => svg('rect', {x: left, y: y - 12, width: right - left, height: 24})),
    svg('path', {d: `M${left} ${top - 6}V${height}M${right} ${top - 6}V${height}`}),
    beside ? svg('text', {class: 'tick', x: (left + right) / 2, y: 12, 'text-anchor': 'middle'},
      words.replace(/ (min|h|d) .*/, ' $1')) : '',
    svg('title', {}, `${words} left out`));
}

function drawLane(lane, {x, y, beside, gutter, at, right}) {
  const group = svg('g', {class: `lane ${lane.ending}`});
  const name = lane.token === null ? 'without a token' : `${lane.token}${lane.grant ? ' shared' : ''}`;
  const owner = lane.owner.length > 24 ? `${lane.owner.slice(0, 23)}…` : lane.owner;
  const label = beside ? svg('text', {class: 'lane-label', x: 0, y: y + 4})
    : svg('text', {class: 'lane-label', x: 8, y: y - 16});
  label.append(svg('tspan', {class: 'tabular'}, name), svg('tspan', {class: 'muted', dx: 8}, owner),
    svg('title', {}, `${name} ${lane.owner}`));
  group.append(svg('line', {class: 'rail', x1: gutter, x2: right, y1: y, y2: y}), label);
  if (lane.start === undefined) return group;
  const begin = x(lane.start);
  const end = Math.max(begin + 3, x(lane.ending === 'live' ? Math.min(lane.end, at) : lane.end));
  group.append(
    svg('rect', {class: `bar${lane.open ? ' open' : ''}`, x: begin, y: y - 8, width: end - begin, height: 16, rx: 3},
    svg('title', {}, `Token ${name}, ${lane.owner}: ${dateTime(lane.start)} `
      + `to ${lane.ending === 'live' ? 'now' : dateTime(lane.end)}, ${lane.ending}`)));
  if (lane.ending === 'revoked') group.append(svg('rect', {class: 'cut', x: end - 2, y: y - 11, width: 4, height: 22}));
  return group;
}

/** Draws the shape of an event type; each has its own, so that colour is never the only difference. */
function drawShape({item, stale}, x, y) {
  switch (item.event) {
    case 'write_applied':
      return [svg('circle', {class: 'applied', cx: x, cy: y, r: 5})];
    case 'write_rejected':
      return [svg('circle', {class: stale ? 'rejected stale' : 'rejected', cx: x, cy: y, r: stale ? 10 : 7}),
        svg('path', {class: 'cross', d: `M${x - 4} ${y - 4}l8 8M${x + 4} ${y - 4}l-8 8`})];
    case 'write_failed':
      return [svg('path', {class: 'failed', d: `M${x} ${y - 7}l7 12h-14z`})];
    case 'lease_refused':
      return [svg('circle', {class: 'lease-refused', cx: x, cy: y, r: 5})];
    case 'lease_revoked':
      return [svg('path', {class: 'rejected', d: `M${x - 5} ${y - 5}h10v10h-10z`})];
    case 'fence_raised':
      return [svg('path', {class: 'fence', d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z`})];
    default:
      return [svg('line', {class: 'renewed', x1: x, x2: x, y1: y - 8, y2: y + 8})];
  }
}

function drawMark(mark, x, y, selected) {
  const group =
    svg('g', {class: `mark-of ${mark.item.event}${mark.stale ? ' stale-write' : ''}${selected ? ' selected' : ''}`,
    'data-event': mark.item.id},
    svg('title', {}, `${dateTime(mark.at)} ${eventLabel(mark.item)}`),
    svg('circle', {class: 'hit', cx: x, cy: y, r: 13}));
  if (selected) group.append(svg('circle', {class: 'ring', cx: x, cy: y, r: 13}));
  group.append(...drawShape(mark, x, y));
  return group;
}

function legend() {
  const entryFor = (item, words) =>
    el('li', {}, svg('svg', {width: 22, height: 22, 'aria-hidden': 'true'}, drawShape(item, 11, 11)), words);
  const entry = (event, words, stale = false) => entryFor({item: {event}, stale}, words);
  return el('ul', {class: 'legend small'},
    el('li', {}, svg('svg', {width: 28, height: 22, 'aria-hidden': 'true'},
      svg('rect', {class: 'bar', x: 2, y: 4, width: 24, height: 14, rx: 3})), 'lease'),
    entry('write_applied', EVENTS.write_applied.label.toLowerCase()),
    entry('write_rejected', 'stale write refused', true), entry('write_rejected', 'other write refused'),
    entry('write_failed', 'write failed'), entry('lease_refused', 'lease request refused'),
    entry('lease_renewed', 'renewed'), entry('fence_raised', 'fence raised'));
}
