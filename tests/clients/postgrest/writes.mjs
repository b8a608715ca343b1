// Guarded writes: insert, upsert, update and delete, with what a caller may ask to get back.
import assert from 'node:assert/strict';
import {works, writer} from './cases.mjs';

const items = () => writer.from('items');
const row = (id, rest = {}) => ({id, name: 'unnamed', stock: 5, note: null, ...rest});
const rows = async (...ids) => (await items().select().in('id', ids).order('id')).data;

works('insert one row', () => items().insert({id: 1, name: 'a'}), async ({status, data}) => {
    assert.deepEqual([status, data], [201, null]);
    assert.deepEqual(await rows(1), [row(1, {name: 'a'})]);
});
works('insert with select', () => items().insert({id: 2}).select(), [row(2)]);
works('insert with selected columns', () => items().insert({id: 3, stock: 1}).select('number:id,stock'),
  [{number: 3, stock: 1}]);
works('insert an array', () => items().insert([{id: 4, name: 'x'}, {id: 5, name: 'y'}]), async ({status}) => {
    assert.equal(status, 201);
    assert.deepEqual((await rows(4, 5)).map(item => item.name), ['x', 'y']);
});
works('insert an array of one', () => items().insert([{id: 6, note: 'n'}]).select('id,note'), [{id: 6, note: 'n'}]);
works('insert an array with select', () => items().insert([{id: 7}, {id: 8}]).select('id'), [{id: 7}, {id: 8}]);
works('insert different keys, null by default', () => items().insert([{id: 9, note: 'n', stock: 1}, {id: 10, stock: 2}])
  .select('id,note'), [{id: 9, note: 'n'}, {id: 10, note: null}]);
works('insert different keys, missing=default',
  () => items().insert([{id: 11, name: 'n'}, {id: 12, stock: 2}], {defaultToNull: false}).select(),
    [row(11, {name: 'n'}), row(12, {stock: 2})]);
works('insert with count', () => items().insert([{id: 13}, {id: 14}], {count: 'exact'}),
  ({count}) => assert.equal(count, 2));
works('insert with count planned', () => items().insert({id: 15}, {count: 'planned'}),
  ({count}) => assert.equal(count, 1));
works('insert with single', () => items().insert({id: 16}).select('id').single(), {id: 16});
works('insert with maybeSingle', () => items().insert({id: 17}).select('id').maybeSingle(), {id: 17});
works('insert with csv', () => items().insert([{id: 18}, {id: 19}]).select('id,stock,note').csv(),
  'id,stock,note\n18,5,\n19,5,');
works('insert a row of defaults', () => writer.from('keyless').insert({}).select(), [{name: null, stock: null}]);
works('insert with stripNulls', () => items().insert({id: 20}).select('id,note').stripNulls(), [{id: 20}]);
works('insert a bigint', () => items().insert({id: 21, stock: 7n}).select('stock'), [{stock: 7}]);
works('insert with schema', () => writer.schema('public').from('items').insert({id: 22}),
  ({status}) => assert.equal(status, 201));

works('upsert a new row', () => items().upsert({id: 30, name: 'new'}).select('id,name'), [{id: 30, name: 'new'}]);
works('upsert by the primary key', () => items().upsert({id: 30, name: 'newer'}).select(), [row(30, {name: 'newer'})]);
works('upsert an array', () => items().upsert([{id: 30, name: 'b'}, {id: 31, name: 'c'}]).select('id,name'),
  [{id: 30, name: 'b'}, {id: 31, name: 'c'}]);
works('upsert by onConflict', () => items().upsert({id: 30, note: 'n'}, {onConflict: 'id'}).select('name,note'),
  [{name: 'b', note: 'n'}]);
works('upsert that ignores duplicates',
  () => items().upsert([{id: 30, name: 'z'}, {id: 32, name: 'z'}], {ignoreDuplicates: true}).select('id'), [{id: 32}]);
works('upsert ignoring duplicates by onConflict',
  () => items().upsert({id: 30, name: 'z'}, {onConflict: 'id', ignoreDuplicates: true}).select('id'), []);
works('upsert with missing=default', () => items().upsert([{id: 33, name: 'm'}, {id: 34, stock: 1}],
  {defaultToNull: false}).select(), [row(33, {name: 'm'}), row(34, {stock: 1})]);
works('upsert with count', () => items().upsert([{id: 33, stock: 2}, {id: 35, stock: 2}], {count: 'exact'}),
  ({count}) => assert.equal(count, 2));
works('upsert with single', () => items().upsert({id: 33, stock: 3}).select('stock').single(), {stock: 3});

works('update', () => items().update({note: 'u'}).eq('id', 1), async ({status, data}) => {
    assert.deepEqual([status, data], [204, null]);
    assert.equal((await rows(1))[0].note, 'u');
});
works('update with select', () => items().update({note: 'v'}).in('id', [1, 2]).select('id,note'),
  ({data}) => assert.deepEqual(data.map(item => item.note), ['v', 'v']));
works('update with several filters', () => items().update({note: 'w'}).gt('id', 1).lt('id', 3).select('id'), [{id: 2}]);
works('update with or', () => items().update({note: 'o'}).or('id.eq.1,id.eq.2').select('id'),
  ({data}) => assert.equal(data.length, 2));
works('update of nothing', () => items().update({note: 'w'}).eq('id', 999).select(), []);
works('update with count', () => items().update({note: 'c'}, {count: 'exact'}).lte('id', 2),
  ({count}) => assert.equal(count, 2));
works('update with count estimated', () => items().update({note: 'c'}, {count: 'estimated'}).lte('id', 2),
  ({count}) => assert.equal(count, 2));
works('update with single', () => items().update({note: 's'}).eq('id', 1).select('note').single(), {note: 's'});
works('update with single and no select', () => items().update({note: 's'}).eq('id', 1).single(),
  ({status}) => assert.equal(status, 204));
works('update with maybeSingle', () => items().update({note: 's'}).eq('id', 999).select().maybeSingle(), null);
works('update with maxAffected', () => items().update({note: 'm'}).lte('id', 2).maxAffected(2).select('id'),
  ({data}) => assert.equal(data.length, 2));
works('update with csv', () => items().update({note: 'x,y'}).eq('id', 2).select('id,note').csv(), 'id,note\n2,"x,y"');

works('delete', () => items().delete().eq('id', 13), async ({status}) => {
    assert.equal(status, 204);
    assert.deepEqual(await rows(13), []);
});
works('delete with select', () => items().delete().eq('id', 14).select('id'), [{id: 14}]);
works('delete with count', () => items().delete({count: 'exact'}).in('id', [7, 8]),
  ({count}) => assert.equal(count, 2));
works('delete with single', () => items().delete().eq('id', 9).select('id').single(), {id: 9});
works('delete with maxAffected', () => items().delete().eq('id', 10).maxAffected(1),
  ({status}) => assert.equal(status, 204));
works('delete of nothing with maybeSingle', () => items().delete().eq('id', 999).select().maybeSingle(), null);
