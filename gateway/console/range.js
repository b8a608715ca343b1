// The range of time that the timeline, the charts and the history show. The URL has it as `from` and `to`:
// times in RFC 3339, or `from` as a time before now: -15m, -1h, -7d.

import {byId, el, setText} from './dom.js';
import {absolute, now, timeZone} from './words.js';
import * as url from './url.js';

const UNITS = {m: 60_000, h: 3_600_000, d: 86_400_000};
const LAST = {'-1m': 'last minute', '-5m': 'last 5 minutes', '-15m': 'last 15 minutes', '-1h': 'last hour',
  '-6h': 'last 6 hours', '-1d': 'last day', '-7d': 'last 7 days', '-30d': 'last 30 days'};

/** The length of a relative time in ms; 0 if it is none. */
const lengthOf = text => {
  const [, number, unit] = /^-(\d{1,5})([mhd])$/.exec(text) ?? [];
  return number ? Number(number) * UNITS[unit] : 0;
};

/**
 * The range of the URL: `query` ({from, to} for the API, empty where open), its ends in ms (undefined where open),
 * `words`, and whether it ends now.
 */
export function readRange() {
  const {from = '', to = ''} = url.read(['from', 'to']);
  const length = lengthOf(from);
  const query = {from: length ? new Date(now() - length).toISOString() : from, to};
  const at = text => (Number.isNaN(Date.parse(text)) ? undefined : Date.parse(text));
  const ends = {from: at(query.from), to: at(to)};
  const words = [length ? LAST[from] ?? `since ${from.slice(1)} ago` : ends.from && `from ${absolute(ends.from)}`,
    ends.to && `to ${absolute(ends.to)}`].filter(Boolean).join(' ');
  return {query, ...ends, words, endsNow: to === ''};
}

/** Converts between RFC 3339 and the local time of an input of type datetime-local. */
const toLocal = iso => {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return '';
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
};
const toIso = local => (local ? new Date(local).toISOString() : '');

/** The form above the panels. */
export class RangeForm {
  /** Calls `onChange()` after the user has changed the range in the URL. */
  constructor({onChange}) {
    this.last = el('select', {id: 'range-last'});
    [this.from, this.to] = ['from', 'to'].map(name =>
      el('input', {id: `range-${name}`, type: 'datetime-local', step: '1'}));
    const form = byId('range-form');
    const field = (input, label) => el('span', {class: 'range-field'}, el('label', {for: input.id}, label), input);
    form.append(field(this.last, 'Time'), field(this.from, 'From'), field(this.to, 'To'),
      el('span', {class: 'muted small', id: 'time-zone'}));
    const change = values => {
      url.write(values);
      this.readUrl();
      onChange();
    };
    form.addEventListener('submit', event => event.preventDefault());
    this.last.addEventListener('change', () => {
      if (this.last.value !== 'own') change({from: this.last.value, to: ''});
      else this.from.focus();
    });
    for (const input of [this.from, this.to]) input.addEventListener('change', () =>
      change({from: toIso(this.from.value), to: toIso(this.to.value)}));
  }

  readUrl() {
    const {from = '', to = ''} = url.read(['from', 'to']);
    const relative = lengthOf(from) > 0 && !to;
    const options = {'': 'latest', ...LAST, ...(relative && !LAST[from] ? {[from]: readRange().words} : {}),
      own: 'from … to …'};
    this.last.replaceChildren(...Object.entries(options).map(([value, text]) => el('option', {value}, text)));
    this.last.value = relative || !(from || to) ? from : 'own';
    this.from.value = relative ? '' : toLocal(readRange().query.from);
    this.to.value = toLocal(to);
    setText(byId('time-zone'), `Times in ${timeZone()}`);
  }
}
