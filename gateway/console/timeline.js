// The timeline of one resource: leases as bars, what was written and refused under each token as marks. A stale write is a
// cross behind the end of its bar, with a line to the newer lease that shut it out.

import {address, json} from './api.js';
import {byId, cell, el, optional, PanelState, row, setText, svg, table} from './dom.js';
import {arrange, busyTimes, scaleOf, ticks} from './timeline_model.js';
import {absolute, clockTime, count, details, duration, eventBadge, eventLabel, EVENTS, holder, isStale, now, shortTime} from './words.js';
import * as url from './url.js';

const EVENTS_MAX = 300;
const REFUSALS_MAX = 100; // refused writes are looked for behind those events too
const LANES = 12;
const STALE_MAX = 6; // the latest stale writes have their lanes shown, however many leases came since
const BREAK = 46; // the room of idle time that is left out
const WIDE = 640; // from here on the names of the lanes stand beside them
const COLUMNS = [{label: 'Time'}, {label: 'Event'}, {label: 'Token', numeric: true}, {label: 'Fence', numeric: true}, {label: 'Holder'}, {label: 'Detail'}];

export class Timeline {
  /** `liveLease(resource)`: its lease as the list shows it, if it does. */
  constructor({liveLease}) {
    this.liveLease = liveLease;
    this.state = new PanelState(byId('timeline'));
    this.input = byId('timeline-resource');
    this.window = byId('timeline-window');
    this.events = [];
    this.allLanes = false;
    byId('timeline-form').addEventListener('submit', event => {
      event.preventDefault();
      this.open(this.input.value.trim());
    });
    this.window.addEventListener('change', () => this.open(this.input.value.trim()));

    this.summary = el('p', {class: 'summary'});
    this.older = el('button', {type: 'button', class: 'quiet', onclick: () => { this.allLanes = true; this.#draw(); }});
    this.chart = el('div', {class: 'timeline-chart', tabindex: '0', role: 'group', 'aria-roledescription': 'timeline',
      'aria-label': 'Events of the resource', 'aria-describedby': 'timeline-hint'});
    // Not click: what was pressed may have been drawn anew until it is let go.
    this.chart.addEventListener('pointerdown', event => {
      const mark = event.target.closest('[data-event]');
      if (mark) this.#select(Number(mark.dataset.event));
    });
    this.chart.addEventListener('keydown', event => this.#key(event));
    this.inspector = el('p', {class: 'inspector', 'aria-live': 'polite'});
    this.rows = el('div');
    this.state.body.append(this.summary, this.older, this.chart, legend(),
      el('p', {id: 'timeline-hint', class: 'muted small'}, 'Choose a mark, or step through the events with the arrow keys.'), this.inspector,
      el('details', {}, el('summary', {}, 'The same events as a table'), this.rows));
    this.state.body.hidden = true;
    new ResizeObserver(() => { if (this.resource && this.chart.clientWidth !== this.width) this.#draw(); }).observe(this.chart);
    this.#nothing();
  }

  readAddress() {
    const {timeline = '', window = ''} = url.read(['timeline', 'window']);
    this.input.value = this.resource = timeline;
    this.window.value = window;
    if (this.window.selectedIndex < 0) this.window.value = '';
  }

  /** Draws a resource, and says so in the address. */
  open(resource, {focus = false} = {}) {
    this.input.value = resource;
    url.write({timeline: resource, window: this.window.value});
    if (resource !== this.resource) Object.assign(this, {selected: undefined, allLanes: false, events: []});
    this.resource = resource;
    if (focus) byId('timeline-title').focus();
    return this.refresh();
  }

  #nothing() {
    this.state.body.hidden = true;
    this.state.empty('Choose a resource among the live leases or in the history, or name it here.');
  }

  async refresh() {
    const {resource} = this;
    if (!resource) return this.#nothing();
    const seconds = Number(this.window.value);
    const from = seconds ? new Date(now() - seconds * 1000).toISOString() : '';
    try {
      const page = await json(address('/v1/history', {resource, from, limit: EVENTS_MAX}));
      this.truncated = page.next_cursor !== null;
      const refused = this.truncated ? await this.#refused(resource, from) : [];
      if (resource !== this.resource) return;
      this.events = [...new Map([...page.items, ...refused].map(item => [item.id, item])).values()].sort((a, b) => a.id - b.id);
      if (!this.events.length && !this.liveLease(resource)) {
        this.state.body.hidden = true;
        return this.state.empty(`The history has nothing about ${resource}${seconds ? ' in this time' : ''}.`);
      }
      this.state.body.hidden = false;
      this.state.ready();
      this.#draw();
      this.#table();
    } catch (problem) {
      if (problem.status !== 401 && resource === this.resource) this.state.failed(problem, () => this.refresh());
    }
  }

  /** What nobody may miss behind the latest events: refused writes, and the leases of the latest stale ones with those that shut them out. */
  async #refused(resource, from) {
    const ask = async filters => (await json(address('/v1/history', {resource, ...filters}))).items;
    const refused = await ask({from, event: 'write_rejected', limit: REFUSALS_MAX});
    this.moreRefused = refused.length === REFUSALS_MAX;
    if (this.told?.resource !== resource) this.told = {resource, stories: new Map()};
    const {stories} = this.told;
    for (const token of refused.filter(isStale).slice(0, STALE_MAX).flatMap(item => [item.fencing_token, item.last_fencing_token])) {
      if (!stories.has(token)) stories.set(token, await ask({token_min: token, token_max: token, limit: EVENTS_MAX}));
      refused.push(...stories.get(token).filter(item => item.at >= from));
    }
    return refused;
  }

  /** Time passes: a bar that is still growing grows. */
  tick() {
    if (this.model?.lanes.some(lane => lane.ending === 'live')) this.#draw();
  }

  #draw() {
    if (this.state.body.hidden) return;
    const at = now();
    const model = this.model = arrange(this.events, {live: this.liveLease(this.resource), now: at});
    const stale = model.marks.filter(mark => mark.stale).slice(-STALE_MAX).flatMap(mark => [mark.lane, mark.against]);
    const chosen = new Set([...model.lanes.slice(-LANES), ...stale]);
    const lanes = this.allLanes ? model.lanes : model.lanes.filter(lane => chosen.has(lane));
    const hidden = model.lanes.length - lanes.length;
    this.older.hidden = hidden === 0;
    setText(this.older, `Show ${hidden} older ${hidden === 1 ? 'lease' : 'leases'}`);
    setText(this.summary, this.#words(model));
    this.summary.classList.toggle('bad', model.marks.some(mark => mark.stale));
    this.#paint(model, lanes, at);
    this.#inspect();
  }

  #words({lanes, marks}) {
    const of = event => marks.filter(({item}) => item.event === event).length;
    const stale = marks.filter(mark => mark.stale).length;
    const plural = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;
    const parts = [plural(lanes.filter(lane => lane.start !== undefined).length, 'lease'), plural(of('write_applied'), 'write')];
    if (stale) parts.push(`${this.truncated && this.moreRefused ? 'at least ' : ''}${plural(stale, 'stale write')} refused`);
    if (of('write_rejected') > stale) parts.push(`${plural(of('write_rejected') - stale, 'other write')} refused`);
    if (of('lease_refused')) parts.push(`${plural(of('lease_refused'), 'caller')} turned away`);
    return `${parts.join(', ')}${this.truncated ? `; from before the latest ${EVENTS_MAX} events only refused writes and their leases` : ''}.`;
  }

  #paint(model, lanes, at) {
    const width = this.width = Math.max(280, this.chart.clientWidth);
    const beside = width >= WIDE;
    const gutter = beside ? 220 : 8;
    const right = width - 14;
    const laneHeight = beside ? 34 : 52;
    const top = 26;
    const height = top + lanes.length * laneHeight + 6;
    const seconds = Number(this.window.value);
    const {x, stretches} = scaleOf(seconds ? [[at - seconds * 1000, at]] : busyTimes(lanes, at), gutter, right, beside ? BREAK : BREAK / 2);
    const {from} = stretches[0];
    const yOf = lane => top + lanes.indexOf(lane) * laneHeight + (beside ? laneHeight / 2 : laneHeight - 16);

    const drawing = svg('svg', {width, height, viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': `Timeline of ${this.resource}: ${this.#words(model)}`});
    for (const stretch of stretches) drawing.append(...paintAxis(stretch, {x, top, height}));
    if (!drawing.querySelector('.tick')) drawing.append(...paintEnds(stretches));
    for (const lane of lanes) drawing.append(paintLane(lane, {x, y: yOf(lane), beside, gutter, at, right}));
    stretches.slice(1).forEach((stretch, index) => drawing.append(paintBreak(stretches[index], stretch, {top, height, beside, rows: lanes.map(yOf)})));
    this.marks = model.marks.filter(mark => lanes.includes(mark.lane) && mark.at >= from);
    const chosen = this.marks.find(mark => mark.item.id === this.selected);
    if (chosen) drawing.append(svg('line', {class: 'cursor', x1: x(chosen.at), x2: x(chosen.at), y1: top - 6, y2: height}));
    const [refused, others] = [this.marks.filter(mark => mark.stale), this.marks.filter(mark => !mark.stale)];
    for (const mark of refused) {
      if (lanes.includes(mark.against)) drawing.append(svg('line', {class: 'against', x1: x(mark.at), x2: x(mark.at), y1: yOf(mark.lane), y2: yOf(mark.against)}));
      if (mark.lane.end < mark.at)
        drawing.append(svg('line', {class: 'late', x1: x(mark.lane.end), x2: x(mark.at), y1: yOf(mark.lane), y2: yOf(mark.lane)}));
    }
    for (const mark of [...others, ...refused]) {
      if (['lease_granted', 'lease_released', 'lease_expired'].includes(mark.item.event)) continue; // the ends of the bar
      drawing.append(paintMark(mark, x(mark.at), yOf(mark.lane), mark.item.id === this.selected));
    }
    this.chart.replaceChildren(drawing);
  }

  #key(event) {
    const {marks} = this;
    if (!marks?.length || event.altKey || event.ctrlKey || event.metaKey) return;
    const here = marks.findIndex(mark => mark.item.id === this.selected);
    const next = {ArrowRight: here + 1, ArrowDown: here + 1, ArrowLeft: here < 0 ? marks.length - 1 : here - 1, ArrowUp: here < 0 ? marks.length - 1 : here - 1,
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
    const facts = [`${clockTime(mark.at)}`, item.fencing_token !== null ? `token ${item.fencing_token}` : 'no token',
      item.last_fencing_token !== null ? `fence ${item.last_fencing_token}` : '', holder(item), details(item.detail)];
    this.inspector.replaceChildren(eventBadge(item), ` ${facts.filter(Boolean).join(' · ')}`);
  }

  #table() {
    const {element, body} = table(`Events of ${this.resource}, newest first`, COLUMNS);
    for (const item of this.events.toReversed()) {
      const line = row({class: item.event === 'write_rejected' ? 'bad' : null});
      const at = Date.parse(item.at);
      line.append(
        cell(COLUMNS[0], el('time', {datetime: item.at, title: absolute(at), class: 'tabular'}, clockTime(at))),
        cell(COLUMNS[1], eventBadge(item)),
        optional(COLUMNS[2], item.fencing_token), optional(COLUMNS[3], item.last_fencing_token),
        optional(COLUMNS[4], holder(item)), optional(COLUMNS[5], details(item.detail)));
      body.append(line);
    }
    this.rows.replaceChildren(element);
  }
}

function paintAxis(stretch, {x, top, height}) {
  const [begin, end] = [stretch.begin, stretch.end];
  const axis = ticks(stretch.from, stretch.to, Math.max(1, Math.floor((end - begin) / 110)));
  return axis.at.flatMap(tick => {
    const place = x(tick);
    const line = svg('line', {class: 'grid', x1: place, x2: place, y1: top - 6, y2: height});
    const fits = place > begin + 30 && place < end - 30;
    return fits ? [line, svg('text', {class: 'tick', x: place, y: 12, 'text-anchor': 'middle'}, axis.step < 1000 ? clockTime(tick) : shortTime(tick))] : [line];
  });
}

/** Where no round time has room: the first and the last moment. */
function paintEnds(stretches) {
  const [first, last] = [stretches[0], stretches.at(-1)];
  return [svg('text', {class: 'tick', x: first.begin, y: 12}, shortTime(first.from)),
    svg('text', {class: 'tick', x: last.end, y: 12, 'text-anchor': 'end'}, shortTime(last.to))];
}

/** Time that was left out: the bars are torn there, at the height of each of `rows`; names above them stay whole. */
function paintBreak(before, after, {top, height, beside, rows}) {
  const [left, right] = [before.end + 3, after.begin - 3];
  const words = duration(after.from - before.to);
  return svg('g', {class: 'break'}, rows.map(y => svg('rect', {x: left, y: y - 12, width: right - left, height: 24})),
    svg('path', {d: `M${left} ${top - 6}V${height}M${right} ${top - 6}V${height}`}),
    beside ? svg('text', {class: 'tick', x: (left + right) / 2, y: 12, 'text-anchor': 'middle'}, words.replace(/ (min|h|d) .*/, ' $1')) : '',
    svg('title', {}, `${words} left out`));
}

function paintLane(lane, {x, y, beside, gutter, at, right}) {
  const group = svg('g', {class: `lane ${lane.ending}`});
  const name = lane.token === null ? 'without a token' : String(lane.token);
  const who = lane.owner.length > 24 ? `${lane.owner.slice(0, 23)}…` : lane.owner;
  const label = beside ? svg('text', {class: 'lane-label', x: 0, y: y + 4}) : svg('text', {class: 'lane-label', x: 8, y: y - 16});
  label.append(svg('tspan', {class: 'tabular'}, name), svg('tspan', {class: 'muted', dx: 8}, who), svg('title', {}, `${name} ${lane.owner}`));
  group.append(svg('line', {class: 'rail', x1: gutter, x2: right, y1: y, y2: y}), label);
  if (lane.start === undefined) return group;
  const begin = x(lane.start);
  const end = Math.max(begin + 3, x(lane.ending === 'live' ? Math.min(lane.end, at) : lane.end));
  group.append(svg('rect', {class: `bar${lane.open ? ' open' : ''}`, x: begin, y: y - 8, width: end - begin, height: 16, rx: 3},
    svg('title', {}, `Token ${name}, ${lane.owner}: ${shortTime(lane.start)} to ${lane.ending === 'live' ? 'now' : shortTime(lane.end)}, ${lane.ending}`)));
  if (lane.ending === 'revoked') group.append(svg('rect', {class: 'cut', x: end - 2, y: y - 11, width: 4, height: 22}));
  return group;
}

/** Each kind has a shape of its own, so that colour is never the only difference. */
function shapeOf({item, stale}, x, y) {
  switch (item.event) {
    case 'write_applied':
      return [svg('circle', {class: 'applied', cx: x, cy: y, r: 5})];
    case 'write_rejected':
      return [svg('circle', {class: stale ? 'rejected stale' : 'rejected', cx: x, cy: y, r: stale ? 10 : 7}),
        svg('path', {class: 'cross', d: `M${x - 4} ${y - 4}l8 8M${x + 4} ${y - 4}l-8 8`})];
    case 'write_failed':
      return [svg('path', {class: 'failed', d: `M${x} ${y - 7}l7 12h-14z`})];
    case 'lease_refused':
      return [svg('circle', {class: 'turned-away', cx: x, cy: y, r: 5})];
    case 'lease_revoked':
      return [svg('path', {class: 'rejected', d: `M${x - 5} ${y - 5}h10v10h-10z`})];
    case 'fence_raised':
      return [svg('path', {class: 'fence', d: `M${x} ${y - 6}l6 6l-6 6l-6 -6z`})];
    default:
      return [svg('line', {class: 'renewed', x1: x, x2: x, y1: y - 8, y2: y + 8})];
  }
}

function paintMark(mark, x, y, selected) {
  const group = svg('g', {class: `mark-of ${mark.item.event}${mark.stale ? ' stale-write' : ''}${selected ? ' selected' : ''}`, 'data-event': mark.item.id},
    svg('title', {}, `${clockTime(mark.at)} ${eventLabel(mark.item)}`), svg('circle', {class: 'hit', cx: x, cy: y, r: 13}));
  if (selected) group.append(svg('circle', {class: 'ring', cx: x, cy: y, r: 13}));
  group.append(...shapeOf(mark, x, y));
  return group;
}

function legend() {
  const drawn = (item, words) => el('li', {}, svg('svg', {width: 22, height: 22, 'aria-hidden': 'true'}, shapeOf(item, 11, 11)), words);
  const of = (event, words, stale = false) => drawn({item: {event}, stale}, words);
  return el('ul', {class: 'legend small'},
    el('li', {}, svg('svg', {width: 28, height: 22, 'aria-hidden': 'true'}, svg('rect', {class: 'bar', x: 2, y: 4, width: 24, height: 14, rx: 3})), 'lease'),
    of('write_applied', EVENTS.write_applied.label.toLowerCase()), of('write_rejected', 'stale write refused', true), of('write_rejected', 'other write refused'),
    of('write_failed', 'write failed'), of('lease_refused', 'caller turned away'), of('lease_renewed', 'renewed'), of('fence_raised', 'fence raised'));
}
