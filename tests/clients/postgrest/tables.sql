-- The tables and functions of the tests of PostgREST's client.
-- Rows of customers and bills do not change; items is for writes.
create table customers (id integer primary key, name text not null, note text, vip boolean, city text);
create table addresses (customer_id integer primary key references customers, street text);
create table bills (
  id integer primary key, customer_id integer constraint bills_customer references customers,
    payer_id integer constraint bills_payer references customers,
  amount numeric, tags text[], doc jsonb, made timestamptz);
create table lines (order_id integer references bills, no integer, sku text, primary key (order_id, no));
create table large_numbers (id bigint primary key, amount numeric);
insert into large_numbers values (9007199254740993, 12345678901234567890.1234567890);
create table hidden_notes (id integer primary key, order_id integer references bills, words text);
insert into customers values (1, 'Ada', 'first, "best"', true, 'Bern'), (2, 'Bo', null, false, 'Basel'),
  (3, 'Cy', '', null, null);
insert into addresses values (1, 'Main street');
insert into bills values (10, 1, 2, 12.50, '{new,big}', '{"a": 1}', '2026-01-02 03:04:05Z'),
  (11, 1, null, 7, '{}', null, '2026-01-03 00:00:00Z'),
  (12, 2, 2, 99.99, '{old}', '{"a": 2}', '2026-02-01 00:00:00Z'), (13, null, null, 1, null, null, null);
insert into lines values (10, 1, 'a'), (10, 2, 'b'), (12, 1, 'c');
create table items (id integer primary key, name text default 'unnamed',
    stock integer not null default 5 check (stock >= 0), note text);
create unique index items_name on items (name, stock) where id >= 900;
create table keyless (name text, stock integer);

create function bills_over(above numeric) returns setof bills language sql stable
  set search_path = public, pg_temp as 'select * from bills where amount > above order by id';
create function order_names() returns setof text language sql stable
  set search_path = public, pg_temp as 'select sku from lines order by 1';
create function order_count() returns integer language sql stable
  set search_path = public, pg_temp as 'select count(*)::integer from bills';
create function customer_of(wanted integer) returns customers language sql stable
  set search_path = public, pg_temp as 'select * from customers where id = wanted';
create function echo_doc(doc jsonb) returns jsonb language sql immutable
  set search_path = public, pg_temp as 'select doc';
create function sum_of(numbers integer[]) returns integer language sql immutable
  set search_path = public, pg_temp as 'select sum(n)::integer from unnest(numbers) as n';
create function limit_of("limit" integer, "name" text) returns text language sql immutable
  set search_path = public, pg_temp as $$ select "limit" || "name" $$;
create function stock_pairs() returns table (item integer, stock integer) language sql stable
  set search_path = public, pg_temp as 'select id, stock from items order by id';
create function restock(lowest integer, highest integer) returns setof items language sql set search_path = public,
  pg_temp as 'update items set stock = stock + 1 where id between lowest and highest returning *';
create function restock_quietly(item integer) returns void language sql
  set search_path = public, pg_temp as 'update items set stock = stock + 1 where id = item';

select fencing.protect(t::regclass, $$'postgrest/all'::text$$) from unnest('{items,keyless}'::text[]) as t;
select fencing.expose_table(t::regclass) from unnest('{items,keyless}'::text[]) as t;
select fencing.expose_table(t::regclass, operations => '{select}')
  from unnest('{customers,addresses,bills,lines,large_numbers}'::text[]) as t;
select fencing.expose_function(f::regprocedure) from unnest(array['bills_over(numeric)', 'order_names()',
      'order_count()', 'customer_of(integer)', 'echo_doc(jsonb)', 'sum_of(integer[])',
  'limit_of(integer, text)', 'stock_pairs()', 'restock(integer, integer)', 'restock_quietly(integer)']) as f;
