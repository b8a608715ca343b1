// What the gateway refuses: by name, before anything runs, or undone.
import assert from 'node:assert/strict';
import {PostgrestClient} from '@supabase/postgrest-js';
import {reader, refused, writer} from './cases.mjs';

const customers = (columns = 'id') => reader.from('customers').select(columns);
const items = () => writer.from('items');
const unchanged = (id, note) => async () =>
  assert.equal((await items().select('note').eq('id', id).single()).data.note, note);
const absent = (...ids) => async () => assert.deepEqual((await items().select('id').in('id', ids)).data, []);
const bad = (name, call, named) => refused(name, call, 400, 'PGRST100', named);

// Not one row, or more than allowed: undone.
refused('single of no row', () => customers().eq('id', 9).single(), 406, 'PGRST116', /0 rows/);
refused('single of several rows', () => customers().single(), 406, 'PGRST116', /3 rows/);
refused('maybeSingle of several rows', () => customers().maybeSingle(), 406, 'PGRST116', /multiple/);
refused('insert of two with single', () => items().insert([{id: 100}, {id: 101}]).select().single(), 406, 'PGRST116',
  /2 rows/, absent(100, 101));
refused('update of two with single', () => items().update({note: 'no'}).lte('id', 2).select().single(), 406, 'PGRST116',
  /2 rows/, unchanged(2, 'x,y'));
refused('update of none with single', () => items().update({note: 'no'}).eq('id', 999).select().single(), 406,
  'PGRST116', /0 rows/);
refused('delete of two with single', () => items().delete().lte('id', 2).single(), 406, 'PGRST116', /2 rows/,
  unchanged(2, 'x,y'));
refused('upsert of two with single', () => items().upsert([{id: 1, note: 'no'}, {id: 100, note: 'no'}])
  .select().single(), 406, 'PGRST116', /2 rows/, absent(100));
refused('rpc of several with single', () => reader.rpc('bills_over', {above: 0}).single(), 406, 'PGRST116', /4 rows/);
refused('rpc that writes several with single', () => writer.rpc('restock', {lowest: 2, highest: 3}).single(), 406,
  'PGRST116', /2 rows/,
    async () => assert.deepEqual((await items().select('stock').eq('id', 3)).data, [{stock: 1}]));
refused('update beyond maxAffected', () => items().update({note: 'no'}).lte('id', 3).maxAffected(2), 400, 'PGRST124',
  /3 rows/, unchanged(2, 'x,y'));
refused('delete beyond maxAffected', () => items().delete().lte('id', 2).maxAffected(1).select(), 400, 'PGRST124',
  /2 rows/, unchanged(2, 'x,y'));
refused('rpc beyond maxAffected', () => writer.rpc('restock', {lowest: 2, highest: 3}).maxAffected(1), 400,
  'PGRST124', /2 rows/,
    async () => assert.deepEqual((await items().select('stock').eq('id', 3)).data, [{stock: 1}]));

// Errors of the guard and the database.
refused('write without a lease', () => reader.from('items').insert({id: 102}), 428, 'FG428', /lease/i, absent(102));
refused('rpc that writes without a lease', () => reader.rpc('restock', {lowest: 1, highest: 1}), 428,
  'FG428', /lease/i);
refused('write with another lease_id', () => reader.from('items').delete().eq('id', 1).setHeader('Fencing-Lease', 'x'),
  403, 'lease-not-authentic', /lease_id/);
refused('duplicate key', () => items().insert({id: 1}), 409, '23505', /duplicate|unique/);
refused('check constraint', () => items().update({stock: -1}).eq('id', 1), 409, '23514', /items_stock_check/);
refused('value of another type', () => items().insert({id: 'x'}), 422, '22P02', /integer/);
refused('unknown table', () => reader.from('nothing').select(), 404, 'PGRST205', /nothing/);
refused('table that is not exposed', () => reader.from('hidden_notes').select(), 404, 'PGRST205', /hidden_notes/);
refused('unknown function', () => reader.rpc('nothing'), 404, 'PGRST202', /nothing/);
refused('unknown argument', () => reader.rpc('order_count', {x: 1}), 422, 'PGRST202', /argument x/);
refused('unknown column', () => customers('id,nothing'), 422, 'PGRST204', /nothing/);
refused('unknown column of a filter', () => customers().eq('nothing', 1), 422, 'PGRST204', /nothing/);
refused('unknown column of an insert', () => items().insert([{id: 103, nothing: 1}]), 422, 'PGRST204',
  /nothing/, absent(103));
refused('update of every row', () => items().update({note: 'no'}), 400, 'PGRST100', /condition/, unchanged(2, 'x,y'));
refused('delete of every row', () => items().delete(), 400, 'PGRST100', /condition/, unchanged(2, 'x,y'));
refused('upsert without a primary key', () => writer.from('keyless').upsert({name: 'a'}), 422, 'unprocessable',
  /primary key/);
refused('insert of an empty array', () => items().insert([]), 400, 'PGRST102', /array of 1 to/);
refused('rollback of a write', () => items().insert({id: 104}).rollback(), 400, 'PGRST122', /tx=rollback/, absent(104));
refused('limit of an update', () => items().update({note: 'no'}).eq('id', 1).limit(1), 400, 'PGRST100', /limit/);
refused('unknown address', () => new PostgrestClient(`${process.env.FENCEGATE_URL}/rest/v2`).from('items').select(),
  404, 'not-found', /address/);

// What is not supported.
bad('likeAllOf', () => customers().likeAllOf('name', ['A*', '*a']), /name.*like\(all\)/);
bad('likeAnyOf', () => customers().likeAnyOf('name', ['A*', 'B*']), /like\(any\)/);
bad('ilikeAllOf', () => customers().ilikeAllOf('name', ['a*']), /ilike\(all\)/);
bad('ilikeAnyOf', () => customers().ilikeAnyOf('name', ['a*']), /ilike\(any\)/);
bad('regexMatch', () => customers().regexMatch('name', '^A'), /match/);
bad('regexIMatch', () => customers().regexIMatch('name', '^a'), /imatch/);
bad('isDistinct', () => customers().isDistinct('note', 'x'), /isdistinct/);
bad('contains', () => reader.from('bills').select('id').contains('tags', ['new']), /tags.*cs/);
bad('containedBy', () => reader.from('bills').select('id').containedBy('tags', ['new']), /cd/);
bad('overlaps', () => reader.from('bills').select('id').overlaps('tags', ['new']), /ov/);
bad('rangeGt', () => reader.from('bills').select('id').rangeGt('made', '[2026-01-01,)'), /sr/);
bad('rangeGte', () => reader.from('bills').select('id').rangeGte('made', '[2026-01-01,)'), /nxl/);
bad('rangeLt', () => reader.from('bills').select('id').rangeLt('made', '[2026-01-01,)'), /sl/);
bad('rangeLte', () => reader.from('bills').select('id').rangeLte('made', '[2026-01-01,)'), /nxr/);
bad('rangeAdjacent', () => reader.from('bills').select('id').rangeAdjacent('made', '[2026-01-01,)'), /adj/);
bad('textSearch', () => customers().textSearch('note', 'best'), /fts/);
bad('textSearch of a type', () => customers().textSearch('note', 'best', {type: 'websearch', config: 'english'}),
  /wfts/);
bad('cast', () => customers('id::int2'), /cast.*::int2.*only ::text/);
bad('JSON path', () => reader.from('bills').select('id,doc->a'), /JSON path.*doc->a/);
bad('JSON path of a filter', () => reader.from('bills').select('id').eq('doc->>a', '1'), /JSON path.*doc->>a/);
bad('aggregate', () => reader.from('bills').select('amount.sum()'), /aggregate.*sum/);
bad('count of rows as a column', () => reader.from('bills').select('count()'), /aggregate.*count/);
bad('spread', () => reader.from('bills').select('id,...customers!bills_customer(name)'), /spread/);
bad('order by an embedded column', () => reader.from('bills').select('id,customers!bills_customer(name)')
  .order('customers(name)'), /order.*embedded/);
bad('embedding in a write', () => items().insert({id: 105}).select('id,lines(sku)'), /embedding/);
bad('embedding in a function', () => reader.rpc('bills_over', {above: 1}).select('id,lines(sku)'), /embedding/);
refused('embedding without a relationship', () => customers('id,lines(sku)'), 422, 'PGRST200', /customers.*lines/);
refused('embedding with several relationships', () => reader.from('bills').select('id,customers(name)'), 422,
  'PGRST201', /bills_customer.*bills_payer/);
refused('embedding a table that is not exposed', () => reader.from('bills').select('id,hidden_notes(words)'), 422,
  'PGRST205', /hidden_notes/);
refused('filter of what is not embedded', () => customers().eq('bills.id', 1), 422, 'PGRST204', /bills\.id/);
refused('geojson', () => customers().geojson(), 406, 'PGRST107', /text\/csv/);
refused('explain', () => customers().explain(), 406, 'PGRST107', /text\/csv/);
refused('explain of a write', () => items().insert({id: 106}).explain({analyze: true}), 406, 'PGRST107',
  /text\/csv/, absent(106));
refused('csv of a value', () => reader.rpc('order_count').csv(), 406, 'PGRST107', /rows/);
refused('another schema', () => reader.schema('other').from('customers').select(), 406, 'PGRST106', /public/);
refused('write to another schema', () => writer.schema('other').from('items').insert({id: 107}), 400, 'PGRST106',
  /public/, absent(107));
