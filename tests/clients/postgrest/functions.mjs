// Functions: reads by POST, GET and HEAD, guarded writes, and what may be asked of a set of rows.
import assert from 'node:assert/strict';
import {reader, works, writer} from './cases.mjs';

works('rpc value', () => reader.rpc('order_count'), 4);
works('rpc with arguments', () => reader.rpc('bills_over', {above: 10}),
  ({data}) => assert.deepEqual(data.map(order => order.id), [10, 12]));
works('rpc get', () => reader.rpc('bills_over', {above: 50}, {get: true}),
  ({data}) => assert.deepEqual(data.map(order => order.id), [12]));
works('rpc get with an array', () => reader.rpc('sum_of', {numbers: [1, 2, 3]}, {get: true}), 6);
works('rpc get of arguments with reserved names',
  () => reader.rpc('limit_of', {limit: 5, name: 'eq.x'}, {get: true}), '5eq.x');
works('rpc post with an array', () => reader.rpc('sum_of', {numbers: [1, 2]}), 3);
works('rpc post with a document', () => reader.rpc('echo_doc', {doc: {a: [1, null]}}), {a: [1, null]});
works('rpc head', () => reader.rpc('order_count', {}, {head: true}),
  ({data, status}) => assert.deepEqual([data, status], [null, 200]));
works('rpc head with a document', () => reader.rpc('echo_doc', {doc: {a: 1}}, {head: true}),
  ({data, status}) => assert.deepEqual([data, status], [null, 204]));
works('rpc set of values', () => reader.rpc('order_names'), ['a', 'b', 'c']);
works('rpc composite value', () => reader.rpc('customer_of', {wanted: 2}), ({data}) => assert.equal(data.name, 'Bo'));
works('rpc composite value with single', () => reader.rpc('customer_of', {wanted: 2}).single(),
  ({data}) => assert.equal(data.name, 'Bo'));

works('rpc with select', () => reader.rpc('bills_over', {above: 10}).select('id'), [{id: 10}, {id: 12}]);
works('rpc with a filter', () => reader.rpc('bills_over', {above: 0}).select('id').eq('customer_id', 1),
  [{id: 10}, {id: 11}]);
works('rpc get with a filter', () => reader.rpc('bills_over', {above: 0}, {get: true}).select('id').gt('id', 11),
  [{id: 12}, {id: 13}]);
works('rpc with or', () => reader.rpc('bills_over', {above: 0}).select('id').or('id.eq.10,id.eq.13'),
  [{id: 10}, {id: 13}]);
works('rpc with order', () => reader.rpc('bills_over', {above: 0}).select('id').order('id', {ascending: false}),
  [{id: 13}, {id: 12}, {id: 11}, {id: 10}]);
works('rpc with limit', () => reader.rpc('bills_over', {above: 0}).select('id').limit(1), [{id: 10}]);
works('rpc with range', () => reader.rpc('bills_over', {above: 0}, {get: true}).select('id').range(1, 2),
  [{id: 11}, {id: 12}]);
works('rpc with single', () => reader.rpc('bills_over', {above: 50}).select('id').single(), {id: 12});
works('rpc with maybeSingle', () => reader.rpc('bills_over', {above: 500}).select('id').maybeSingle(), null);
works('rpc with csv', () => reader.rpc('bills_over', {above: 50}).select('id,amount').csv(), 'id,amount\n12,99.99');
works('rpc with stripNulls', () => reader.rpc('bills_over', {above: 0}).select('id,customer_id').eq('id', 13)
  .stripNulls(), [{id: 13}]);
works('rpc with count', () => reader.rpc('bills_over', {above: 0}, {count: 'exact'}).select('id').limit(1),
  ({count, data}) => assert.deepEqual([count, data], [4, [{id: 10}]]));
works('rpc with count and a filter', () => reader.rpc('bills_over', {above: 0}, {count: 'exact'}).gt('id', 11),
  ({count}) => assert.equal(count, 2));
works('rpc with count planned', () => reader.rpc('bills_over', {above: 0}, {count: 'planned'}),
  ({count}) => assert.ok(count > 0));
works('rpc head with count', () => reader.rpc('bills_over', {above: 0}, {head: true, count: 'exact'}),
  ({count, data}) => assert.deepEqual([count, data], [4, null]));
works('rpc of a table type', () => reader.rpc('stock_pairs').select('stock').eq('item', 1), [{stock: 5}]);

works('rpc that writes', () => writer.rpc('restock', {lowest: 1, highest: 2}),
  ({data}) => assert.deepEqual(data.map(item => item.stock), [6, 6]));
works('rpc that writes with select', () => writer.rpc('restock', {lowest: 1, highest: 1}).select('id,stock'),
  [{id: 1, stock: 7}]);
works('rpc that writes with a filter', () => writer.rpc('restock', {lowest: 1, highest: 2}).select('id')
  .eq('id', 2), [{id: 2}]);
works('rpc that writes with single', () => writer.rpc('restock', {lowest: 1, highest: 1}).select('stock')
  .single(), {stock: 9});
works('rpc that writes with count', () => writer.rpc('restock', {lowest: 1, highest: 2}, {count: 'exact'}),
  ({count}) => assert.equal(count, 2));
works('rpc that writes with maxAffected', () => writer.rpc('restock', {lowest: 1, highest: 2}).maxAffected(2),
  ({data}) => assert.equal(data.length, 2));
works('rpc that writes with csv', () => writer.rpc('restock', {lowest: 1, highest: 1}).select('id,stock').csv(),
  'id,stock\n1,12');
works('rpc that returns nothing', () => writer.rpc('restock_quietly', {item: 1}),
  ({data, status}) => assert.deepEqual([data, status], [null, 204]));
