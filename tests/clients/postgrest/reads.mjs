// Reads of tables: select, filters and modifiers, counts, one row, CSV and embedding.
import assert from 'node:assert/strict';
import {reader, works, writer} from './cases.mjs';

const ids = (...wanted) => ({data}) => assert.deepEqual(data.map(row => row.id), wanted);
const customers = (columns = 'id') => reader.from('customers').select(columns).order('id');
const bills = (columns = 'id', options = {}) => reader.from('bills').select(columns, options).order('id');

works('select', () => reader.from('customers').select(), ({data}) => assert.equal(data.length, 3));
works('select columns', () => customers('id, name').eq('id', 1), [{id: 1, name: 'Ada'}]);
works('select with other names', () => customers('number:id,name').eq('id', 1), [{number: 1, name: 'Ada'}]);
works('cast to text', () => reader.from('large_numbers').select('id::text,exact:amount::text'),
  [{id: '9007199254740993', exact: '12345678901234567890.1234567890'}]);
works('cast to text of an embedded column', () => bills('id,lines(no::text)').eq('id', 12),
  [{id: 12, lines: [{no: '1'}]}]);
works('select under a lease', () => writer.from('customers').select('id').eq('id', 2), [{id: 2}]);
works('select with setHeader',
  () => reader.from('items').select('id').setHeader('Fencing-Lease', process.env.FENCING_LEASE), []);
works('select head', () => reader.from('customers').select('*', {head: true}),
  ({data, status}) => assert.deepEqual([data, status], [null, 200]));
works('schema public', () => reader.schema('public').from('customers').select('id').eq('id', 1), [{id: 1}]);

works('eq', () => customers().eq('name', 'Ada'), ids(1));
works('neq', () => customers().neq('id', 1), ids(2, 3));
works('gt', () => customers().gt('id', 2), ids(3));
works('gte', () => customers().gte('id', 2), ids(2, 3));
works('lt', () => customers().lt('id', 2), ids(1));
works('lte', () => customers().lte('id', 2), ids(1, 2));
works('like', () => customers().like('name', 'A%'), ids(1));
works('like with *', () => customers().like('name', '*o'), ids(2));
works('ilike', () => customers().ilike('name', 'aD*'), ids(1));
works('is null', () => customers().is('note', null), ids(2));
works('is true', () => customers().is('vip', true), ids(1));
works('is false', () => customers().is('vip', false), ids(2));
works('in', () => customers().in('id', [1, 3, 9]), ids(1, 3));
works('in with a comma', () => customers().in('note', ['first, "best"'.split(' ')[0], 'x']), ids());
works('in of texts', () => customers().in('name', ['Ada', 'Cy']), ids(1, 3));
works('in of nothing', () => customers().in('id', []), ids());
works('notIn', () => customers().notIn('id', [1, 2]), ids(3));
works('not is null', () => customers().not('note', 'is', null), ids(1, 3));
works('not in', () => customers().not('id', 'in', '(1,2)'), ids(3));
works('not eq', () => customers().not('id', 'eq', 1), ids(2, 3));
works('not like', () => customers().not('name', 'like', 'A*'), ids(2, 3));
works('or', () => customers().or('id.eq.1,name.eq.Cy'), ids(1, 3));
works('or with and', () => customers().or('id.eq.3,and(name.eq.Bo,vip.is.false)'), ids(2, 3));
works('or with not', () => customers().or('not.and(id.gt.1,id.lt.3),id.eq.2'), ids(1, 2, 3));
works('two filters of one column', () => customers().gt('id', 1).lt('id', 3), ids(2));
works('match', () => customers().match({name: 'Ada', city: 'Bern'}), ids(1));
works('filter', () => customers().filter('id', 'gte', 3), ids(3));
works('filter in', () => customers().filter('name', 'in', '("Ada","Bo")'), ids(1, 2));
works('value with reserved characters', () => customers().eq('note', 'first, "best"'), ids(1));
works('date and time', () => bills().gte('made', '2026-01-03T00:00:00Z'), ids(11, 12));

works('order', () => reader.from('bills').select('id').order('amount', {ascending: false}), ids(12, 10, 11, 13));
works('order with nulls first', () => reader.from('customers').select('id').order('city', {nullsFirst: true}),
  ids(3, 2, 1));
works('order with nulls last',
  () => reader.from('customers').select('id').order('vip', {ascending: false, nullsFirst: false}), ids(1, 2, 3));
works('order by two columns', () => reader.from('bills').select('id').order('customer_id')
  .order('id', {ascending: false}), ids(11, 10, 12, 13));
works('limit', () => customers().limit(2), ids(1, 2));
works('range', () => customers().range(1, 2), ids(2, 3));
works('abortSignal', () => customers().abortSignal(AbortSignal.timeout(10_000)), ids(1, 2, 3));
works('returns', () => customers().returns(), ids(1, 2, 3));
works('overrideTypes', () => customers().overrideTypes(), ids(1, 2, 3));
works('throwOnError', () => customers().throwOnError(), ids(1, 2, 3));
works('rollback of a read', () => customers().rollback(), ids(1, 2, 3));

works('count exact', () => bills('id', {count: 'exact'}),
  ({count, status, data}) => assert.deepEqual([count, status, data.length], [4, 200, 4]));
works('count exact of a part', () => bills('id', {count: 'exact'}).limit(1),
  ({count, status}) => assert.deepEqual([count, status], [4, 206]));
works('count exact with head', () => reader.from('bills').select('*', {count: 'exact', head: true}),
  ({count, data}) => assert.deepEqual([count, data], [4, null]));
works('count planned', () => bills('id', {count: 'planned'}), ({count}) => assert.ok(count > 0));
works('count planned with a filter', () => bills('id', {count: 'planned'}).eq('id', 10),
  ({count}) => assert.equal(count, 1));
works('count estimated', () => bills('id', {count: 'estimated'}).gt('id', 10), ({count}) => assert.equal(count, 3));
works('count estimated with head', () => reader.from('bills').select('*', {count: 'estimated', head: true}),
  ({count}) => assert.equal(count, 4));

works('single', () => customers('id,name').eq('id', 2).single(), {id: 2, name: 'Bo'});
works('single of a limit', () => customers().limit(1).single(), {id: 1});
works('maybeSingle', () => customers('name').eq('id', 2).maybeSingle(), {name: 'Bo'});
works('maybeSingle of nothing', () => customers('name').eq('id', 9).maybeSingle(), null);
works('stripNulls', () => customers('id,note,city').eq('id', 2).stripNulls(), [{id: 2, city: 'Basel'}]);
works('stripNulls of a single row', () => customers('id,note').eq('id', 2).stripNulls().single(), {id: 2});
works('csv', () => customers('id,note,vip').csv(), 'id,note,vip\n1,"first, ""best""",t\n2,,f\n3,"",');
works('csv of no rows', () => customers('id,name').eq('id', 9).csv(), 'id,name');
works('csv of arrays and documents', () => bills('id,tags,doc').eq('id', 10).csv(),
  'id,tags,doc\n10,"{new,big}","{""a"": 1}"');

const order = columns => bills(columns).eq('id', 10);
works('embed the referenced row', () => order('id,customers!bills_customer(name)'),
  [{id: 10, customers: {name: 'Ada'}}]);
works('embed nothing referenced', () => bills('id,customers!bills_customer(name)').eq('id', 13),
  [{id: 13, customers: null}]);
works('embed by a column', () => order('payer:customers!payer_id(name)'), [{payer: {name: 'Bo'}}]);
works('embed two of one table', () => order('customer:customers!customer_id(id),payer:customers!payer_id(id)'),
  [{customer: {id: 1}, payer: {id: 2}}]);
works('embed referencing rows', () => customers('id,bills!bills_customer(id)').in('id', [1, 3]),
  [{id: 1, bills: [{id: 10}, {id: 11}]}, {id: 3, bills: []}]);
works('embed one to one', () => customers('id,addresses(street)').lt('id', 3),
  [{id: 1, addresses: {street: 'Main street'}}, {id: 2, addresses: null}]);
works('embed every column', () => order('*,lines(*)'), ({data}) => assert.deepEqual([data[0].tags, data[0].lines],
  [['new', 'big'], [{order_id: 10, no: 1, sku: 'a'}, {order_id: 10, no: 2, sku: 'b'}]]));
works('embed in two levels', () => customers('id,bills!customer_id(id,lines(sku))').eq('id', 1),
  [{id: 1, bills: [{id: 10, lines: [{sku: 'a'}, {sku: 'b'}]}, {id: 11, lines: []}]}]);
works('embed inner', () => bills('id,lines!inner(sku)'),
  [{id: 10, lines: [{sku: 'a'}, {sku: 'b'}]}, {id: 12, lines: [{sku: 'c'}]}]);
works('embed left', () => bills('id,lines!left(sku)').eq('id', 13), [{id: 13, lines: []}]);
works('embed with hint and inner', () => bills('id,customers!bills_payer!inner(name)'),
  [{id: 10, customers: {name: 'Bo'}}, {id: 12, customers: {name: 'Bo'}}]);
works('filter embedded rows', () => bills('id,lines(sku)').eq('lines.no', 2).lt('id', 12),
  [{id: 10, lines: [{sku: 'b'}]}, {id: 11, lines: []}]);
works('filter by embedded rows', () => bills('id,lines!inner(sku)').eq('lines.sku', 'c'),
  [{id: 12, lines: [{sku: 'c'}]}]);
works('filter embedded rows by another name', () => order('parts:lines(sku)').eq('parts.no', 1),
  [{parts: [{sku: 'a'}]}]);
works('or of embedded rows', () => order('lines(sku)').or('no.eq.2,sku.eq.x', {referencedTable: 'lines'}),
  [{lines: [{sku: 'b'}]}]);
works('order embedded rows', () => order('lines(no)').order('no', {referencedTable: 'lines', ascending: false}),
  [{lines: [{no: 2}, {no: 1}]}]);
works('limit embedded rows', () => order('lines(no)').order('no', {referencedTable: 'lines'})
  .limit(1, {referencedTable: 'lines'}), [{lines: [{no: 1}]}]);
works('range of embedded rows', () => order('lines(no)').order('no', {referencedTable: 'lines'})
  .range(1, 1, {referencedTable: 'lines'}), [{lines: [{no: 2}]}]);
works('count with inner embedding', () => bills('id,lines!inner(no)', {count: 'exact'}).limit(1),
  ({count, data}) => assert.deepEqual([count, data.length], [2, 1]));
works('single with embedding', () => order('id,lines(no)').single(), {id: 10, lines: [{no: 1}, {no: 2}]});
works('description of the API', () => reader.getOpenApiSpec(), ({data}) =>
  assert.equal(data.components.schemas.customers.properties.name.type, 'string'));
